"""Consumers: they pull, commit offsets (also such as cannot be), ask for them, and search by time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.support.peer import pull_fields, records
from tests.world.actors.kind import GROUPS, TOPICS, Act, Kind
from tests.world.oracle import Commits, Violation

if TYPE_CHECKING:
    from tests.world.world import World

PULL, QUERY_OFFSET, COMMIT_OFFSET, SEARCH = 11, 14, 15, 29
FOUND, NO_SUCH_QUEUE, NOT_FOUND = 0, 1, 22


def _queue(chance: random.Random) -> Act:
    return {"topic": chance.choice(TOPICS[:2]), "queue": chance.randrange(4)}


def _is_there(world: World, act: Act) -> bool:
    return act["queue"] < world.oracle.topics.get(act["topic"], 0)


def _pull(world: World, act: Act) -> str:
    if not _is_there(world, act):
        return "no such queue"
    low, high = world.machine.broker.store.offset_range(act["topic"], act["queue"])
    at = max(0, low + int((high - low + 2) * act["where"]) - 1)
    answer = world.ask(PULL, pull_fields(act["topic"], act["queue"], at, consumerGroup=act["group"]))
    if answer is None:
        return "no answer"
    if answer.code == FOUND:
        found = records(answer.body)
        offsets = [one.queue_offset for one in found]
        if offsets != sorted(set(offsets)) or (offsets and offsets[0] < at):
            raise Violation("a pull gives messages out of order", f"{act} {offsets}")
        if len(found) > world.machine.config.store.max_transfer_count_on_message_in_memory:
            raise Violation("a pull gives more messages than its limit", f"{act} {offsets}")
        for record in found:
            world.oracle.record(act["topic"], act["queue"], record, world.now)
        return f"{len(found)} from {at}"
    return f"{answer.code} at {at} of {low}-{high}"


def _commit(world: World, act: Act) -> str:
    if not _is_there(world, act):
        return "no such queue"
    key = (act["group"], act["topic"], act["queue"])
    low, high = world.machine.broker.store.offset_range(act["topic"], act["queue"])
    offset = high + act["beyond"] if "beyond" in act else low + int((high - low) * act["where"])
    commits = world.oracle.commits.setdefault(key, Commits())
    moved = key in world.oracle.moved
    if not (moved and "beyond" in act):
        commits.commit(offset, world.now)
    if moved and commits.loose is None:  # as long as no member has heard of it what they commit is left out
        commits.unknown = commits.tainted = commits.astray = True
    answer = world.ask(
        COMMIT_OFFSET, {"consumerGroup": key[0], "topic": key[1], "queueId": key[2], "commitOffset": offset}
    )
    if answer is None or answer.code != 0:
        # A refused offset leaves the old one. Without an answer the outcome is unknown.
        if answer is not None:
            if not moved:
                commits.last = commits.saved.pop() if commits.saved else None
            commits.unknown = commits.unknown or commits.tainted
            if "beyond" not in act and answer.code != 24:
                raise Violation("an offset is refused", f"{act}: {answer.code} {answer.remark}")
            return f"{offset} refused with {answer.code}"
        commits.unsure = True
        return "no answer"
    if "beyond" in act and not moved:
        raise Violation("an offset beyond the end is taken", f"{key}: {offset}, the end is {high}")
    return f"{offset}"


def _offset(world: World, act: Act) -> str:
    key = (act["group"], act["topic"], act["queue"])
    commits = world.oracle.commits.get(key)
    if commits is None or not _is_there(world, act):
        return "nothing to ask for"
    fields = {"consumerGroup": key[0], "topic": key[1], "queueId": key[2], "setZeroIfNotFound": "false"}
    answer = world.ask(QUERY_OFFSET, fields)
    if answer is None:
        return "no answer"
    offset = int(answer.ext_fields["offset"]) if answer.code == 0 else -1
    allowed = commits.allowed()
    if allowed and offset not in allowed:
        raise Violation("a group's offset is another one", f"{key}: {offset}, not of {sorted(allowed)}")
    commits.seen(offset, world.now)
    high = world.machine.broker.store.max_offset(key[1], key[2])
    if offset > high:
        raise Violation("a group's offset lies beyond the end", f"{key}: {offset} of {high}")
    return str(offset)


def _search(world: World, act: Act) -> str:
    if not _is_there(world, act):
        return "no such queue"
    topic, queue = act["topic"], act["queue"]
    spans = world.look_at(topic, queue)
    if spans is None or world.machine.killed:
        return "no answer"
    low, high = spans
    shown = world.oracle.shown.get((topic, queue), {})
    times = sorted(shown[offset].stored_ms for offset in range(low, high) if offset in shown)
    if "near" in act or not times:
        asked = world.wall_ms + act.get("near", 0)
    else:
        asked = times[min(int(act["where"] * len(times)), len(times) - 1)] + act["by"]
    before = world.wall_ms
    answer = world.ask(SEARCH, {"topic": topic, "queueId": queue, "timestamp": asked})
    if answer is None:
        return "no answer"
    if world.machine.broker.store.offset_range(topic, queue) != spans:
        return "it has grown"
    found = int(answer.ext_fields["offset"])
    world.oracle.search(topic, queue, spans, asked, (before, world.wall_ms), found)
    return str(found)


def _make_search(chance: random.Random, before: list[Act]) -> Act:
    if chance.random() < 0.4:
        return _queue(chance) | {"near": chance.choice((0, 0, -5000, -200_000, 30_000))}
    return _queue(chance) | {"where": round(chance.random(), 3), "by": chance.choice((0, 1, -1))}


def _make_commit(chance: random.Random, before: list[Act]) -> Act:
    act = _queue(chance) | {"group": chance.choice(GROUPS)}
    if chance.random() < 0.15:
        return act | {"beyond": chance.choice((1, 1000, (1 << 63) - 1 - (1 << 40)))}
    return act | {"where": round(chance.random(), 3)}


KINDS = [
    Kind(
        "consumers",
        "pull",
        12,
        lambda chance, before: _queue(chance) | {"group": chance.choice(GROUPS), "where": round(chance.random(), 3)},
        _pull,
    ),
    Kind("consumers", "commit", 8, _make_commit, _commit),
    Kind("consumers", "offset", 6, lambda chance, before: _queue(chance) | {"group": chance.choice(GROUPS)}, _offset),
    Kind("consumers", "search", 4, _make_search, _search),
]
