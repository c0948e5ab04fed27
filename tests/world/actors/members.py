"""Members of groups: broadcast consumers, each with a place of its own, and two clients that have one id."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from tests.support.peer import pull_fields, records
from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.machine import Peer
from tests.world.oracle import Violation

if TYPE_CHECKING:
    from tests.world.world import World

PULL, QUERY_OFFSET, HEART_BEAT, SIGN_OFF, MEMBERS, LOCK = 11, 14, 34, 35, 38, 41
FOUND, NOTHING, AGAIN, MOVED = 0, 19, 20, 21
BROADCAST, TWINS = "BG", "TW"


def beat(world: World, peer: Peer, who: str, group: str, topic: str, model: str) -> bool:
    """A consumer's heartbeat; False without an answer."""
    answer = world.ask(HEART_BEAT, {}, beat_body(who, group, topic, model), peer)
    return answer is not None and answer.code == 0


def beat_body(who: str, group: str, topic: str, model: str) -> bytes:
    wanted = {"topic": topic, "subString": "*", "expressionType": "TAG", "subVersion": 1}
    member = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [wanted],
    }  # fmt: skip
    return json.dumps({"clientID": who, "producerDataSet": [], "consumerDataSet": [member]}).encode()


# --- broadcast


def _make_broadcast(chance: random.Random, before: list[Act]) -> Act:
    return {
        "who": chance.choice(("b1", "b2")), "topic": chance.choice(TOPICS[:2]), "queue": chance.randrange(4),
        "many": chance.choice((1, 3, 32)), "pulls": chance.choice((1, 2, 8)),
    }  # fmt: skip


def _broadcast(world: World, act: Act) -> str:
    """A member reads on from its place, which it keeps itself."""
    topic, queue, peer = act["topic"], act["queue"], world.peer()
    if queue >= world.oracle.topics.get(topic, 0):
        return "no such queue"
    if not beat(world, peer, act["who"], BROADCAST, topic, "BROADCASTING"):
        return "no answer"
    place, store = (act["who"], topic, queue), world.machine.broker.store
    at = world.oracle.own_places.get(place)
    if at is None:
        at = store.min_offset(topic, queue)
    begun = at
    for _ in range(act["pulls"]):
        world.see_arrivals()
        if world.machine.killed:
            return "no answer"
        spans, begin = store.offset_range(topic, queue), store.log.min_offset
        fields = pull_fields(topic, queue, at, consumerGroup=BROADCAST, maxMsgNums=act["many"], commitOffset=begun)
        answer = world.ask(PULL, fields, b"", peer)
        if answer is None:
            return "no answer"
        if answer.code not in (FOUND, NOTHING, AGAIN, MOVED):
            raise Violation("a broadcast consumer is refused", f"{act}: {answer.code} {answer.remark}")
        found = records(answer.body) if answer.code == FOUND else []
        for record in found:
            world.oracle.record(topic, queue, record, world.now)
        after = int(answer.ext_fields["nextBeginOffset"])
        if store.offset_range(topic, queue) != spans or store.log.min_offset != begin:
            return "the queue has changed"
        _judge(world, act, at, after, {one.queue_offset for one in found}, (*spans, begin), answer.code)
        at = world.oracle.own_places[place] = after
        if answer.code in (NOTHING, AGAIN):
            break
    fields = {"consumerGroup": BROADCAST, "topic": topic, "queueId": queue, "setZeroIfNotFound": "false"}
    answer = world.ask(QUERY_OFFSET, fields)
    if answer is not None and answer.code == 0 and (BROADCAST, topic, queue) not in world.oracle.moved:
        raise Violation("a broadcast group has an offset at the broker", f"{act}: {answer.ext_fields['offset']}")
    return f"from {begun} to {at} of {spans[0]}-{spans[1]}"


def _judge(
    world: World, act: Act, at: int, after: int, found: set[int], spans: tuple[int, int, int], code: int
) -> None:
    low, high, begin = spans
    clamped = min(max(at, low), high)
    if code == MOVED and after != clamped:
        raise Violation("a broadcast consumer is sent elsewhere", f"{act}: from {at} of {low}-{high} to {after}")
    shown = world.oracle.shown.get((act["topic"], act["queue"]), {})
    passed = [
        offset
        for offset in range(clamped, min(after, high))
        if offset not in found and offset in shown and shown[offset].physical >= begin
    ]
    if passed:
        raise Violation("a broadcast consumer misses a message", f"{act}: {passed[:3]} between {at} and {after}")


# --- two with one id


def _make_one_id(chance: random.Random, before: list[Act]) -> Act:
    return {
        "topic": chance.choice(TOPICS[:2]), "first": chance.choice(("signs off", "hangs up", "stays")),
        "after": chance.choice((0.05, 0.05, 40.0)),
    }  # fmt: skip


def _one_id(world: World, act: Act) -> str:
    """Two clients with one id in a group: when one of them goes the other one still has what is its own."""
    topic, who = act["topic"], f"twin{act['n']}"
    if world.has_faults or not world.oracle.topics.get(topic):
        return "not now"
    first, second, third = (world.machine.connect() for _ in range(3))
    try:
        return _with_twins(world, act, topic, who, (first, second, third))
    finally:
        for peer in (first, second, third):
            if not world.machine.killed and not peer.closed:
                world.machine.hang_up(peer)


def _with_twins(world: World, act: Act, topic: str, who: str, peers: tuple[Peer, Peer, Peer]) -> str:
    first, second, third = peers
    for peer, name in ((first, who), (second, who), (third, "other")):
        if not beat(world, peer, name, TWINS, topic, "CLUSTERING"):
            return "no answer"
    if not _locks(world, second, who, topic):
        return "not locked"
    if act["first"] == "hangs up":
        world.machine.hang_up(first)
    elif act["first"] == "signs off":
        world.ask(SIGN_OFF, {"clientID": who, "consumerGroup": TWINS}, b"", first)
    world.pass_time(act["after"])
    if world.machine.killed:
        return ""
    answer = world.ask(MEMBERS, {"consumerGroup": TWINS}, b"", third)
    if answer is None:
        return "no answer"
    members = json.loads(answer.body)["consumerIdList"] if answer.code == 0 else []
    if who not in members or "other" not in members:
        raise Violation("a member is counted out while it is there", f"{act}: {members}")
    if _locks(world, third, "other", topic):
        raise Violation("a queue in order has two consumers", f"{act}: one of two with one id went")
    for peer in (first, second):
        if not peer.closed and not world.machine.killed:
            world.ask(SIGN_OFF, {"clientID": who, "consumerGroup": TWINS}, b"", peer)
    if world.machine.killed:
        return ""
    answer = world.ask(MEMBERS, {"consumerGroup": TWINS}, b"", third)
    if answer is None:
        return "no answer"
    left = json.loads(answer.body)["consumerIdList"] if answer.code == 0 else []
    if left != ["other"]:
        raise Violation("a group has other members than are there", f"{act}: {left} when both with one id went")
    if not _locks(world, third, "other", topic):
        if world.machine.killed:
            return ""
        raise Violation("a queue in order is kept from its consumer", f"{act}: both with one id went")
    world.ask(SIGN_OFF, {"clientID": "other", "consumerGroup": TWINS}, b"", third)
    return f"of {members}"


def _locks(world: World, peer: Peer, who: str, topic: str) -> bool:
    rows: list[dict[str, Any]] = [{"topic": topic, "brokerName": "broker-a", "queueId": 0}]
    body = json.dumps({"consumerGroup": TWINS, "clientId": who, "mqSet": rows}).encode()
    answer = world.ask(LOCK, {}, body, peer)
    return answer is not None and answer.code == 0 and bool(json.loads(answer.body)["lockOKMQSet"])


KINDS = [
    Kind("consumers", "broadcast", 4, _make_broadcast, _broadcast),
    Kind("consumers", "one id", 1, _make_one_id, _one_id),
]
