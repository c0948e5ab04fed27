"""The front page: is it working, what needs me now, who is furthest behind."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import snapshots as s
from .checks import Checks, disk_figures
from .client_views import producer_groups_of
from .group_views import GroupViews
from .lag import LagBook
from .sentences import say

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..engine import Engine
    from .sampler import Sampler

BEHIND_SHOWN = 8


def client_counts(broker: Broker, book: LagBook) -> tuple[int, int]:
    """(connections that produce, connections that consume)."""
    producers = {
        channel.conn
        for group in producer_groups_of(broker.clients)
        for channel in broker.clients.producer_channels(group)
    }
    consumers = {conn for info in book.online.values() for conn in list(info.channels)}
    return len(producers), len(consumers)


def overview_of(
    engine: Engine, broker: Broker, sampler: Sampler, groups: GroupViews, checks: Checks, started_at: float
) -> s.Overview:
    """One look at everything; 10 ms at 2,000 topics and 500 groups."""
    store = broker.store
    book = LagBook(broker, sampler.index)
    found = checks.all()
    disk = disk_figures(engine.config.store_dir)
    full_at, full_why = checks.disk_full_at_ms(disk)
    oldest = store.earliest_time_ms()
    producers, consumers = client_counts(broker, book)
    return s.Overview(
        in_rate=sampler.total_rate("in"),
        out_rate=sampler.total_rate("out"),
        in_bytes_rate=sampler.total_rate("in_bytes"),
        out_bytes_rate=sampler.total_rate("out_bytes"),
        put_total=store.put_count,
        delivered_total=broker.pull.answers.message_count,
        connections=len(engine.server.connections),
        producer_clients=producers,
        consumer_clients=consumers,
        topics=len(broker.topics.all()),
        groups=len(broker.groups.all()),
        parked_pulls=broker.pull.long_polling.count,
        log_bytes=store.published - store.log.min_offset,
        oldest_at_ms=oldest if oldest >= 0 else None,
        oldest_why=None if oldest >= 0 else say("no_messages"),
        unsynced_bytes=max(0, store.log.written - store.log.durable),
        disk_used_percent=disk.used_percent,
        disk_free_bytes=disk.free_bytes,
        disk_full_at_ms=full_at,
        disk_full_why=full_why,
        behind=groups.behind(BEHIND_SHOWN, book),
        needs=checks.needs(book, found),
        checks=found,
        uptime_ms=int((time.monotonic() - started_at) * 1000),
        broker_name=engine.config.broker.broker_name,
        broker_address=engine.broker_address,
        namesrv_address=engine.namesrv_address,
        sampled_at_ms=sampler.sampled_at_ms or None,
    )
