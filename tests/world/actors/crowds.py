"""A user of the wire with quotas of requests or of connections, who makes more of them than these allow."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from appliance.engine.access.quotas import Quotas
from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.actors.signed import (
    BURST_S,
    GREEDY,
    LONGEST_S,
    OTHER,
    SLACK_S,
    TAKEN_S,
    Asked,
    give,
    is_well,
    send,
    take,
)
from tests.world.machine import Peer
from tests.world.oracle import Message, Violation

if TYPE_CHECKING:
    from tests.world.world import World

MAX_OFFSET, COMMIT_OFFSET = 30, 15
#: The broker sees so soon that a connection has closed.
_SEEN_S = 0.05
#: A connection beyond the quota is closed so soon after its answer.
_CLOSED_S = 0.5


def _requests(world: World, act: Act) -> str:
    if not give(world, Quotas(requests=act["rate"])):
        return "no users"
    machine = world.machine
    world.pass_time(TAKEN_S)
    if machine.killed:
        return ""
    greedy, other, plain = (machine.connect(signs=signs) for signs in (True, True, False))
    begun, was_well = world.now, is_well(world)
    said = {"topic": act["topic"], "queue": 0, "size": 10}
    sends: list[tuple[Message, Asked]] = []
    mine: list[tuple[str, Asked]] = []
    for index, what in enumerate(act["asks"]):
        if what == "send":
            sends.append(send(world, act, greedy, GREEDY, index, said))
            mine.append((what, sends[-1][1]))
        else:
            mine.append((what, Asked(world, greedy, GREEDY, *_request(what, act["topic"]))))
    others = [Asked(world, peer, user, *_request("read", act["topic"])) for peer, user in ((other, OTHER), (plain, ""))]
    every = [*(asked for _, asked in mine), *others]
    world.sent[act["n"]] = [message for message, _ in sends]
    if not machine.run(lambda: all(one.answers.ended for one in every), 30.0) and not machine.killed:
        raise Violation("a request is not answered", "one of a user")
    for message, asked in sends:
        take(world, message, asked)
    if machine.killed:
        return ""
    _judge(act["rate"], begun, mine)
    if was_well and is_well(world):
        if any(asked.took_s > LONGEST_S + SLACK_S for _, asked in mine):
            raise Violation("who is over a quota waits too long", f"{[round(one.took_s, 1) for _, one in mine]}")
        if any(asked.is_over_quota or asked.took_s > SLACK_S for asked in others):
            raise Violation("another's quota harms a client", f"{[round(one.took_s, 1) for one in others]}")
    _hang_up(world, greedy, other, plain)
    return f"{sum(not one.is_over_quota for _, one in mine)} of {len(mine)} handled"


def _request(what: str, topic: str) -> tuple[int, dict[str, object], bytes]:
    """work: what a client has to ask to go on, here of a group whose offset no test reads."""
    if what == "work":
        return COMMIT_OFFSET, {"consumerGroup": "WORLD", "topic": topic, "queueId": 0, "commitOffset": 0}, b""
    return MAX_OFFSET, {"topic": topic, "queueId": 0}, b""


def _judge(rate: int, begun: float, mine: list[tuple[str, Asked]]) -> None:
    handled = [one.came for what, one in mine if what != "work" and one.answers.command and not one.is_over_quota]
    if handled and len(handled) - 1 > rate * (max(handled) - begun + BURST_S):
        raise Violation(
            "a user makes more requests than its quota", f"{len(handled)} in {max(handled) - begun:.1f} s, of {rate}"
        )
    if any(asked.is_over_quota for what, asked in mine if what == "work"):
        raise Violation("work of a client is refused because of a quota", f"{rate} requests a second")


def _connections(world: World, act: Act) -> str:
    most, machine = act["most"], world.machine
    if not give(world, Quotas(connections=most)):
        return "no users"
    world.pass_time(_SEEN_S)
    peers: list[Peer] = []
    for number in range(most + act["more"]):
        if machine.killed:
            return ""
        peers.append(machine.connect(signs=True))
        _enter(world, act, peers[-1], number < most, f"connection {number + 1} of {most}")
    world.pass_time(_CLOSED_S)
    if machine.killed:
        return ""
    _count(peers, most)
    if act["then"] == "fewer":
        most -= 1
        if not give(world, Quotas(connections=most)):
            return "it is not known how many"
        world.pass_time(_CLOSED_S)
        if machine.killed:
            return ""
        _count(peers, most)
    elif act["then"] == "another":
        machine.hang_up(peers.pop(0))
        world.pass_time(_SEEN_S)
        if machine.killed:
            return ""
        peers.append(machine.connect(signs=True))
        _enter(world, act, peers[-1], True, "another one in place of one that closed")
    open_now = [peer for peer in peers if not peer.closed]
    _hang_up(world, *open_now)
    return f"{len(open_now)} of {len(peers)} stay"


def _enter(world: World, act: Act, peer: Peer, may: bool, name: str) -> None:
    """A new connection asks for something."""
    asked = Asked(world, peer, GREEDY, *_request("read", act["topic"]))
    if not world.machine.run(lambda: asked.answers.ended, 30.0) and not world.machine.killed:
        raise Violation("a request is not answered", "the first one of a connection")
    if asked.answers.command is None:
        return
    if may and asked.is_over_quota:
        raise Violation("a connection within its quota is refused", name)
    if not may and not asked.is_over_quota:
        raise Violation("a user has more connections than its quota", name)


def _count(peers: list[Peer], most: int) -> None:
    """Those that came first stay."""
    for peer in peers:
        if not peer.closed:
            peer.receive()
    found = [not peer.closed for peer in peers]
    if found != [number < most for number in range(len(peers))]:
        raise Violation("other connections stay than those that came first", f"{found}, {most} may")


def _hang_up(world: World, *peers: Peer) -> None:
    for peer in peers:
        if not world.machine.killed and not peer.closed:
            world.machine.hang_up(peer)


def _make_requests(chance: random.Random, before: list[Act]) -> Act:
    return {
        "topic": chance.choice(TOPICS), "rate": chance.choice((1, 3, 10)),
        "asks": [chance.choice(("send", "read", "work")) for _ in range(chance.choice((4, 12, 24)))],
    }  # fmt: skip


def _make_connections(chance: random.Random, before: list[Act]) -> Act:
    return {
        "topic": chance.choice(TOPICS), "most": chance.choice((2, 3)), "more": chance.choice((0, 1, 2)),
        "then": chance.choice(("", "fewer", "another")),
    }  # fmt: skip


KINDS = [
    Kind("users", "requests", 0.4, _make_requests, _requests),
    Kind("users", "connections", 0.4, _make_connections, _connections),
]
