"""Administrators who empty a topic: all that is there, or what came before a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from appliance.engine.errors import AdminError
from appliance.engine.window.admin_pool import POOL, AdminPool
from appliance.engine.window.figures.lag import ConsumerLag
from appliance.engine.window.figures.lag_times import LagTimes
from appliance.engine.window.figures.measures import Measures
from appliance.engine.window.sources import Sources
from appliance.engine.window.topics.purge import TopicPurges
from tests.world.actors.kind import TOPICS, Act, Kind
from tests.world.oracle import Violation

if TYPE_CHECKING:
    from appliance.engine.broker.broker import Broker
    from tests.world.world import World


def purges_of(broker: Broker, pools: dict[str, Any]) -> TopicPurges:
    """The window's command."""
    sampler, measures = broker.sampler, Measures()
    lag = ConsumerLag(broker.topics, broker.groups, broker.clients, broker.offsets, sampler.index)
    sources = Sources(
        broker.store, broker.topics, broker.groups, broker.offsets.pulled, sampler, lag, LagTimes(measures), measures
    )
    return TopicPurges(sources, broker.topic_service, AdminPool(pools[POOL]))


def _purge(world: World, act: Act) -> str:
    topic, oracle = act["topic"], world.oracle
    queues = range(oracle.topics.get(topic, 0))
    spans = {}
    for queue in queues:
        span = world.look_at(topic, queue)
        if world.machine.killed:
            return ""
        if span is None:
            return "files went"
        spans[queue] = span
    before_ms = None
    if "where" in act:
        times = sorted(one.stored_ms for queue in queues for one in oracle.shown.get((topic, queue), {}).values())
        before_ms = times[min(int(act["where"] * len(times)), len(times) - 1)] if times else world.wall_ms
    store, began = world.machine.broker.store, world.wall_ms
    hidden = {queue for name, queue in oracle.expected if name == topic} - spans.keys()  # it has fewer queues now
    oracle.purge_begins(topic, {**{queue: span[1] for queue, span in spans.items()}, **dict.fromkeys(hidden, 1 << 60)})
    if act.get("also"):  # the machine dies in the midst of it
        world.machine.disk.kill_in = act["also"]
    purges = purges_of(world.machine.broker, world.machine.pools)
    answer = world.act_on(lambda: purges.purge(topic, before_ms=before_ms, force=True))
    if answer is None:
        return "no answer"
    if isinstance(answer, AdminError):
        if not (world.has_faults or world.waits_for_slave) and topic in oracle.topics:
            raise Violation("a purge is refused", f"{act}: {answer}")
        return f"refused: {answer}"
    for queue, (low, high) in spans.items():
        first, end = store.offset_range(topic, queue)
        if before_ms is not None and end == high:
            if low < high:
                oracle.search(topic, queue, (low, high), before_ms, (began, world.wall_ms), first)
        elif before_ms is None and not high <= first <= end:
            raise Violation("a purged queue begins elsewhere", f"{act}: {queue} at {first}, it was [{low}, {high})")
        oracle.purged(topic, queue, first)
    for queue in sorted(hidden):
        oracle.purged(topic, queue, store.min_offset(topic, queue))
    world.look()
    return str({queue: store.min_offset(topic, queue) for queue in queues})


KINDS = [
    Kind(
        "administrators",
        "purge",
        1.2,
        lambda chance, before: {
            "topic": chance.choice((TOPICS[0], TOPICS[0], TOPICS[1])),
            **({"where": round(chance.random(), 3)} if chance.random() < 0.5 else {}),
            **({"also": chance.randint(1, 12)} if chance.random() < 0.3 else {}),
        },
        _purge,
    )
]
