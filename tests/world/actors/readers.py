"""Consumers that choose and wait: by tags and SQL92 expressions, by keys, in order, and those that send back."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tests.support.peer import pull_fields, records, send_fields
from tests.world.actors.kind import GROUPS, TOPICS, Act, Kind
from tests.world.oracle import LEASE_S, Commits, Message, Place, Shown, Violation

if TYPE_CHECKING:
    from tests.world.world import World

SEND, PULL, QUERY, SEND_BACK, LOCK, UNLOCK = 310, 11, 12, 36, 41, 42
FOUND, MOVED = 0, 21
#: `messageDelayLevel`, as far as retries are sent to.
LEVELS_S = (1, 5, 10, 30, 60, 120)
FIRST_RETRY_LEVEL = 3
KEYS = ("k1", "k2", "k3", "k4", "order 17", "0A0000011234ABCD0001")


def _number(properties: Mapping[str, str]) -> int | None:
    return int(properties["n"]) if "n" in properties else None


#: Expression -> (its type, what fits).
FILTERS: dict[str, tuple[str, Callable[[Mapping[str, str]], bool]]] = {
    "x": ("TAG", lambda had: had.get("TAGS") == "x"),
    "x || y": ("TAG", lambda had: had.get("TAGS") in ("x", "y")),
    "n > 5": ("SQL92", lambda had: (_number(had) or 0) > 5),
    "n BETWEEN 2 AND 4": ("SQL92", lambda had: 2 <= (-1 if (number := _number(had)) is None else number) <= 4),
    "n IS NULL": ("SQL92", lambda had: "n" not in had),
    "TAGS = 'x' OR n = 7": ("SQL92", lambda had: had.get("TAGS") == "x" or _number(had) == 7),
    "TAGS IN ('x', 'x y') AND n IS NOT NULL": ("SQL92", lambda had: had.get("TAGS") in ("x", "x y") and "n" in had),
    "NOT (n < 8)": ("SQL92", lambda had: (_number(had) or 0) >= 8),
}


def _queue(chance: random.Random) -> Act:
    return {"topic": chance.choice(TOPICS[:2]), "queue": chance.randrange(4)}


# --- filters


def _filter(world: World, act: Act) -> str:
    if act["queue"] >= world.oracle.topics.get(act["topic"], 0):
        return "no such queue"
    kind = FILTERS[act["filter"]][0]
    return judge_filter(world, act, {"consumerGroup": "WORLD", "subscription": act["filter"], "expressionType": kind})


def judge_filter(world: World, act: Act, changes: Act) -> str:
    """Read a queue through the filter that the act names. changes: fields of the pulls."""
    topic, queue = act["topic"], act["queue"]
    spans = world.look_at(topic, queue)
    if spans is None or world.machine.killed:
        return "no answer"
    low, high = spans
    fits = FILTERS[act["filter"]][1]
    shown = world.oracle.shown.get((topic, queue), {})
    wanted = {offset for offset in range(low, high) if offset in shown and fits(shown[offset].message.properties)}
    found: set[int] = set()
    at = low
    while at < high:
        answer = world.ask(PULL, pull_fields(topic, queue, at, maxMsgNums=act["many"], **changes))
        if answer is None:
            return "no answer"
        if answer.code == FOUND:
            found.update(record.queue_offset for record in records(answer.body))
        elif answer.code not in (19, 20, MOVED):
            raise Violation("a pull with a filter is refused", f"{act}: {answer.code} {answer.remark}")
        after = int(answer.ext_fields["nextBeginOffset"])
        if after <= at:
            raise Violation("a pull with a filter does not get on", f"{act} at {at} of {high}: {answer.code} {after}")
        at = after
    found = {offset for offset in found if offset < high}
    if found != wanted and world.machine.broker.store.min_offset(topic, queue) == low:
        raise Violation(
            "a filter lets other messages through", f"{act}: not {sorted(wanted - found)}, but {sorted(found - wanted)}"
        )
    return f"{len(found)} of {high - low}"


# --- keys


def _by_key(world: World, act: Act) -> str:
    topic, key = act["topic"], act["key"]
    matching: dict[int, Place] = {}
    for queue in range(world.oracle.topics.get(topic, 0)):
        if world.look_at(topic, queue) is None:
            return "no answer"
        for offset, one in world.oracle.shown.get((topic, queue), {}).items():
            if key in _keys_of(one.message):
                matching[one.physical] = Place(topic, queue, offset)
    begin = world.machine.broker.store.log.min_offset
    fields = {"topic": topic, "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    answer = world.ask(QUERY, fields)
    if answer is None:
        return "no answer"
    if answer.code not in (FOUND, 22):
        raise Violation("a query is refused", f"{act}: {answer.code} {answer.remark}")
    found = records(answer.body) if answer.code == FOUND else []
    if world.machine.broker.store.log.min_offset != begin:
        return "files went"
    for record in found:
        same = world.oracle.named(record.topic, record.body)
        if record.topic != topic or not any(key in _keys_of(one) for one in same):
            raise Violation("a query finds what nobody asked for", f"{act}: {record.topic} {record.body[:60]!r}")
    places = {record.physical_offset for record in found}
    missing = [place for physical, place in matching.items() if physical >= begin and physical not in places]
    if missing and len(found) < 64:
        raise Violation("a query does not find a message", f"{act}: {missing[:3]} of {len(matching)}")
    return f"{len(found)}"


def _keys_of(message: Message) -> set[str]:
    keys = set(message.properties.get("KEYS", "").split(" ")) - {""}
    if "UNIQ_KEY" in message.properties:
        keys.add(message.properties["UNIQ_KEY"])
    return keys


# --- waiting


def _hold(world: World, act: Act) -> str:
    """A pull waits at the end of a queue, and a message is sent there."""
    topic, queue = act["topic"], act["queue"]
    if queue >= world.oracle.topics.get(topic, 0):
        return "no such queue"
    world.see_arrivals()
    if world.machine.killed:
        return ""
    end = world.machine.broker.store.max_offset(topic, queue)
    changes = {"consumerGroup": "WORLD", "sysFlag": 6, "suspendTimeoutMillis": act["for"]}
    if act["tag"]:
        changes |= {"subscription": "x"}
    held = world.peer(act["n"] + 1).ask(PULL, pull_fields(topic, queue, end, **changes))
    world.pass_time(act["after"])
    if world.machine.killed or held.ended:
        return "not held"
    broker = world.machine.config.broker
    if not broker.long_polling_enable and act["after"] > broker.short_polling_time_ms / 1000 + 0.4:
        raise Violation("a pull is held for long, though long polling is off", f"{act}")
    body = b"%d.0 woken" % act["n"]
    message = Message(act["n"], topic, body, "plain", {"TAGS": "x"}, world.now)
    world.oracle.sent(message)
    answer = world.ask(SEND, send_fields(topic, queue, "TAGS\x01x\x02"), body)
    if answer is None:
        return "no answer"
    if answer.code != 0:
        return f"refused with {answer.code}"
    offset = int(answer.ext_fields["queueOffset"])
    physical = int(answer.ext_fields["msgId"][16:], 16)
    world.oracle.acknowledged(message, queue, offset, physical, world.now)
    world.machine.run(lambda: held.ended, 3.0)
    if world.machine.killed or held.lost:
        return "no answer"
    if held.command is None:
        raise Violation("a pull that waits is not answered when a message comes", f"{act}")
    if held.command.code != FOUND:
        return f"{held.command.code}"
    for record in records(held.command.body):
        world.oracle.record(topic, queue, record, world.now)
    return "woken"


# --- in order


def _in_order(world: World, act: Act) -> str:
    topic, group, who = act["topic"], act["group"], act["who"]
    count = world.oracle.topics.get(topic, 0)
    wanted = [queue for queue in act["queues"] if queue < count]
    if not wanted:
        return "no such queue"
    world.pass_time(act.get("after", 0.0))
    if world.machine.killed:
        return ""
    rows = [{"topic": topic, "brokerName": "broker-a", "queueId": queue} for queue in wanted]
    body = json.dumps({"consumerGroup": group, "clientId": who, "mqSet": rows}).encode()
    leases = world.oracle.leases
    if act["gives back"]:
        answer = world.ask(UNLOCK, {}, body)
        for queue in wanted:
            if leases.get((group, topic, queue), ("", 0.0))[0] == who:
                if answer is None:
                    leases[group, topic, queue] = ("", 0.0)
                else:
                    del leases[group, topic, queue]
        return "no answer" if answer is None else "given back"
    asked_at = world.now
    answer = world.ask(LOCK, {}, body)
    if answer is None:
        return "no answer"
    if answer.code != 0:
        raise Violation("locks are refused", f"{act}: {answer.code} {answer.remark}")
    got = {one["queueId"] for one in json.loads(answer.body)["lockOKMQSet"]}
    for queue in wanted:
        holder, until = leases.get((group, topic, queue), (who, 0.0))
        if queue in got and holder not in (who, "") and world.now < until:
            raise Violation(
                "a queue in order has two consumers", f"{act}: {queue} is {holder}'s for {until - world.now:.1f} s"
            )
        if queue not in got and (holder == who or (holder != "" and asked_at > until + 1.0)):
            raise Violation("a queue in order is kept from its consumer", f"{act}: {queue}")
        if queue in got:
            leases[group, topic, queue] = (who, asked_at + LEASE_S)
    return f"{sorted(got)}"


# --- back


def _send_back(world: World, act: Act) -> str:
    group = act["group"]
    topic = f"%RETRY%{group}" if act["topic"] == "retry" else act["topic"]
    places = [
        (offset, one)
        for queue in range(world.oracle.topics.get(topic, 0))
        for offset, one in sorted(world.oracle.shown.get((topic, queue), {}).items())
        if one.physical >= world.oracle.min_physical
    ]
    if not places:
        return "nothing to send back"
    _, shown = places[min(int(act["where"] * len(places)), len(places) - 1)]
    return _back(world, act, group, topic, shown)


def _back(world: World, act: Act, group: str, topic: str, shown: Shown) -> str:
    message = shown.message
    retries = message.retries
    is_dead = act["level"] < 0 or retries >= act["most"]
    level = act["level"] or FIRST_RETRY_LEVEL + retries
    target = f"%DLQ%{group}" if is_dead else f"%RETRY%{group}"
    wait = 0.0 if is_dead else float(LEVELS_S[level - 1]) if level <= len(LEVELS_S) else 180.0
    now = world.now
    copy = Message(
        act["n"], target, message.body, "dead" if is_dead else "retry", message.properties, now, now + wait,
        retries=retries + 1,
    )  # fmt: skip
    world.oracle.sent(copy)
    for name in (f"%RETRY%{group}", target):
        if name not in world.oracle.topics:
            world.oracle.unsure.add(name)
    begin = world.machine.broker.store.log.min_offset
    fields = {
        "offset": shown.physical, "group": group, "delayLevel": act["level"], "originMsgId": "", "originTopic": topic,
        "unitMode": "false", "maxReconsumeTimes": act["most"],
    }  # fmt: skip
    answer = world.ask(SEND_BACK, fields)
    if answer is None:
        return "no answer"
    topics = world.machine.broker.topics
    for name in (f"%RETRY%{group}", target):
        world.oracle.unsure.discard(name)
        if name not in world.oracle.topics and (config := topics.get(name)) is not None:
            world.oracle.topics[name] = config.read_queue_nums
            world.oracle.made_by_send[name] = world.now
    if answer.code != 0:
        gone = world.machine.broker.store.log.min_offset != begin
        slow = world.oracle.trouble_since <= world.now
        excused = gone or slow or world.has_faults or world.waits_for_slave
        if not excused and answer.code not in (10, 11, 12, 14):
            raise Violation("a message is not taken back", f"{act}: {answer.code} {answer.remark}")
        return f"refused with {answer.code}"
    if world.machine.log_failed:
        raise Violation("a broken log acknowledges", f"{act}")
    world.oracle.copied(copy, world.now)
    return f"act {message.act} to {target} in {wait:.0f} s"


# --- offsets that are moved


def _move(world: World, act: Act) -> str:
    """An administrator moves a group."""
    topic, group = act["topic"], act["group"]
    count = world.oracle.topics.get(topic, 0)
    if not count:
        return "no such topic"
    spans = {}
    for queue in range(count):
        spans[queue] = world.look_at(topic, queue)
        if spans[queue] is None:
            return "no answer"
    before = world.wall_ms
    asked = -1 if act["to"] == "end" else max(0, before + act["to"])
    for queue in range(count):
        world.oracle.moved.add((group, topic, queue))
        if (commits := world.oracle.commits.get((group, topic, queue))) is not None:
            commits.loose = (commits.loose or set()) | commits.allowed()
            commits.unsure = True
    answer = world.ask(222, {"topic": topic, "group": group, "timestamp": asked, "isForce": "true"})
    if answer is None:
        for queue in range(count):
            world.oracle.offset_in_doubt((group, topic, queue))
        return "no answer"
    if answer.code != 0:
        if not world.has_faults:
            raise Violation("a group is not moved", f"{act}: {answer.code} {answer.remark}")
        for queue in range(count):
            world.oracle.offset_in_doubt((group, topic, queue))
        return f"refused with {answer.code}"
    targets = offsets_in(answer.body)
    for queue in range(count):
        if world.machine.broker.store.offset_range(topic, queue) != spans[queue]:
            world.oracle.offset_in_doubt((group, topic, queue))
            continue
        found = targets.get(queue, -1)
        if asked >= 0:
            world.oracle.search(topic, queue, spans[queue], asked, (before, world.wall_ms), found)
        elif found != spans[queue][1]:
            raise Violation("a group is moved elsewhere", f"{act}: queue {queue} to {found}, not to its end")
        world.oracle.commits.setdefault((group, topic, queue), Commits()).moved(found)
    return f"{targets}"


def offsets_in(body: bytes) -> dict[int, int]:
    """Return queue -> offset of an answer to 222."""
    return {int(queue): int(offset) for queue, offset in re.findall(rb'"queueId":(\d+)[^}]*}:(\d+)', body)}


KINDS = [
    Kind(
        "consumers",
        "filter",
        3,
        lambda chance, before: (
            _queue(chance) | {"filter": chance.choice(tuple(FILTERS)), "many": chance.choice((1, 3, 32))}
        ),
        _filter,
    ),
    Kind(
        "consumers",
        "by key",
        2,
        lambda chance, before: {"topic": chance.choice(TOPICS[:2]), "key": chance.choice(KEYS)},
        _by_key,
    ),
    Kind(
        "consumers",
        "hold",
        2,
        lambda chance, before: (
            _queue(chance)
            | {
                "for": chance.choice((5000, 20_000)),
                "after": chance.choice((0.0, 0.02, 0.3, 1.5)),
                "tag": chance.random() < 0.5,
            }
        ),
        _hold,
    ),
    Kind(
        "consumers",
        "in order",
        4,
        lambda chance, before: {
            "topic": chance.choice(TOPICS[:2]),
            "group": chance.choice(GROUPS),
            "who": chance.choice(("c1", "c2")),
            "queues": sorted(chance.sample(range(4), chance.randint(1, 3))),
            "gives back": chance.random() < 0.2,
            "after": chance.choices((0.0, LEASE_S + 1.5), (9, 1))[0],
        },
        _in_order,
    ),
    Kind(
        "consumers",
        "send back",
        5,
        lambda chance, before: {
            "topic": chance.choice((TOPICS[0], TOPICS[0], TOPICS[1], "retry")),
            "group": chance.choice(GROUPS),
            "where": round(chance.random(), 3),
            "level": chance.choice((0, 0, 1, 2, -1)),
            "most": chance.choice((0, 1, 2, 16)),
        },
        _send_back,
    ),
    Kind(
        "administrators",
        "move",
        1.5,
        lambda chance, before: {
            "topic": chance.choice(TOPICS[:2]),
            "group": chance.choice(GROUPS),
            "to": chance.choice(("end", 0, -1000, -5000, -60_000, 10_000)),
        },
        _move,
    ),
]
