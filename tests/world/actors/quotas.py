"""A user of the wire with quotas of bytes, who sends and pulls more than these allow, beside others who do not."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from appliance.engine.access.quotas import Quotas
from tests.support.peer import pull_fields, records
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

PULL = 11
#: A pull is held for so long at most.
HELD_MS = 3000


def _quota(world: World, act: Act) -> str:
    if not give(world, Quotas(send_bytes=act["send"], pull_bytes=act["pull"])):
        return "no users"
    machine = world.machine
    world.pass_time(TAKEN_S)
    if machine.killed:
        return ""
    greedy, other, plain = (machine.connect(signs=signs) for signs in (True, True, False))
    begun, was_well = world.now, is_well(world)
    said = {"topic": act["topic"], "queue": act["queue"]}
    mine: list[tuple[Message, Asked]] = []
    others: list[tuple[Message, Asked]] = []
    for index, size in enumerate(act["sizes"]):
        mine.append(send(world, act, greedy, GREEDY, index, said | {"size": size}))
        if index < act["others"]:
            for number, (peer, user) in enumerate(((other, OTHER), (plain, ""))):
                others.append(send(world, act, peer, user, 1000 * (number + 1) + index, said | {"size": 10}))
    world.sent[act["n"]] = [message for message, _ in (*mine, *others)]
    every = [asked.answers for _, asked in (*mine, *others)]
    if not machine.run(lambda: all(one.ended for one in every), 30.0) and not machine.killed:
        raise Violation("a request is not answered", "one of a user")
    for message, asked in (*mine, *others):
        take(world, message, asked)
    if machine.killed:
        return ""
    _judge(act, begun, mine, others, was_well and is_well(world))
    told = _pull(world, act, greedy)
    for peer in (greedy, other, plain):
        if not machine.killed and not peer.closed:
            machine.hang_up(peer)
    codes = [asked.answers.command.code for _, asked in mine if asked.answers.command is not None]
    return f"{codes.count(0)} of {len(mine)} taken, {told}"


def _judge(
    act: Act,
    begun: float,
    mine: list[tuple[Message, Asked]],
    others: list[tuple[Message, Asked]],
    well: bool,
) -> None:
    taken = [(message, asked) for message, asked in mine if asked.answers.command and asked.answers.command.code == 0]
    sizes = [len(message.body) for message, _ in taken]
    last = max((asked.came for _, asked in taken), default=begun)
    if sum(sizes) - max(sizes, default=0) > act["send"] * (last - begun + BURST_S):
        raise Violation("a user sends more than its quota", f"{sizes} in {last - begun:.1f} s, of {act['send']}")
    offsets = [asked.answers.command.ext_fields["queueOffset"] for _, asked in taken]  # type: ignore[union-attr]
    if sorted(map(int, offsets)) != list(map(int, offsets)):
        raise Violation("the sends of one connection lose their order", f"{offsets}")
    if not well:
        return
    for _, asked in mine:
        if asked.took_s > LONGEST_S + SLACK_S:
            raise Violation("who is over a quota waits too long", f"{asked.took_s:.1f} s")
    for message, asked in others:
        answer = asked.answers.command
        if answer is None or answer.code == 2 or asked.took_s > SLACK_S:
            raise Violation("another's quota harms a client", f"{message.body[:20]!r}, {asked.took_s:.1f} s: {answer}")


def _pull(world: World, act: Act, peer: Peer) -> str:
    """Read the queue with the quota of pulls: held, never refused, and nothing is missing or twice."""
    topic, queue, machine = act["topic"], act["queue"], world.machine
    store = machine.broker.store
    if topic not in world.oracle.topics or queue >= world.oracle.topics[topic]:
        return "no queue"
    begun, total, largest, held = world.now, 0, 0, 0
    at, end = store.offset_range(topic, queue)
    for _ in range(act["pulls"]):
        fields = pull_fields(topic, queue, at, consumerGroup="CG", sysFlag=6, suspendTimeoutMillis=HELD_MS)
        asked = Asked(world, peer, GREEDY, PULL, fields, b"")
        if not machine.run(lambda: asked.answers.ended, 30.0) and not machine.killed:  # noqa: B023
            raise Violation("a request is not answered", "a pull of a user")
        answer = asked.answers.command
        if answer is None or machine.killed:
            return "killed"
        if answer.code not in (0, 19, 20, 21):
            raise Violation("a pull over its quota is refused", f"{answer.code} {answer.remark}")
        if asked.took_s > HELD_MS / 1000 + SLACK_S and not world.has_faults:
            raise Violation("a pull over its quota is held for too long", f"{asked.took_s:.1f} s")
        if answer.code == 0:
            for record in records(answer.body):
                world.oracle.record(topic, queue, record, world.now)
            total, largest = total + len(answer.body), max(largest, len(answer.body))
            if total - largest > act["pull"] * (world.now - begun + BURST_S):
                raise Violation("a user pulls more than its quota", f"{total} in {world.now - begun:.1f} s")
        held += answer.code == 20
        after = int(answer.ext_fields["nextBeginOffset"])
        if answer.code == 20 and after != at:
            raise Violation("a held pull moves its offset", f"{at} to {after}")
        at = after
        if at >= end:
            break
    return f"{total} bytes pulled, {held} held to their end"


def _make(chance: random.Random, before: list[Act]) -> Act:
    return {
        "topic": chance.choice(TOPICS), "queue": chance.randrange(4), "send": chance.choice((500, 2000, 10_000)),
        "pull": chance.choice((500, 2000, 100_000)), "pulls": chance.choice((2, 4)), "others": chance.choice((1, 4)),
        "sizes": [chance.choice((10, 300, 2000)) for _ in range(chance.choice((3, 10, 20)))],
    }  # fmt: skip


KINDS = [Kind("users", "quota", 0.7, _make, _quota)]
