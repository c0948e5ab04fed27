"""The broker's present figures, for the front page, the live frame, /metrics and the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from ...broker.delays.delivery import DeliverDelayed
from ...broker.deliveries.service import DeliveryService
from ...broker.groups import SubscriptionGroupManager
from ...broker.processors.pull import PullProcessor
from ...broker.sampler import RATE_SAMPLES, Sampler
from ...broker.sending.send_back_counts import SendBackCounts
from ...broker.sending.send_path import SendPath
from ...broker.timers.delivery import DeliverTimers
from ...broker.timers.rolling import RollTimers
from ...broker.topics import TopicConfigManager
from ...broker.transactions.open_halves import OpenHalves
from ...clock import Clock
from ...figures import BY_NAME, FIGURES
from ...remoting.server import RemotingServer
from ...store.message_store import MessageStore
from ..health.disk_room import DiskRoom
from ..process.system import rss_bytes
from ..transactions.snapshots import TransactionCounts

#: The figures of the front page, which has fields of these names (`snapshots.Overview`).
_FRONT = (
    *("in_rate", "out_rate", "in_bytes_rate", "out_bytes_rate", "put_total", "delivered_total", "connections"),
    *("parked_pulls", "log_bytes", "unsynced_bytes"),
)


@dataclass
class Reading:
    """One reading of a broker's figures. seconds: rates are of the last ones."""

    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    pull: PullProcessor
    server: RemotingServer
    sampler: Sampler
    disk: DiskRoom
    delayed: DeliverDelayed
    timers: DeliverTimers
    rolls: RollTimers
    send_backs: SendBackCounts
    sends: SendPath
    deliveries: DeliveryService
    halves: OpenHalves
    counts: Callable[[], TransactionCounts]
    clock: Clock
    quota_count: Callable[[str], int]
    seconds: int = RATE_SAMPLES

    def rate(self, total: str) -> float | None:
        return self.sampler.total_rate(total, self.seconds)

    def memory(self) -> int | None:
        return rss_bytes()

    @cached_property
    def transactions(self) -> TransactionCounts:
        return self.counts()

    def oldest_half_s(self) -> float:
        """Return the age of the oldest open half message in seconds; 0 without one."""
        stored_ms = self.transactions.oldest_stored_at_ms
        return 0 if stored_ms is None else max(0, self.clock.wall_ms() - stored_ms) / 1000


class BrokerFigures:
    """Any thread; takes a fraction of a millisecond."""

    def __init__(self, reading: partial[Reading], sampler: Sampler) -> None:
        """reading: makes a Reading; `seconds` may be given."""
        # Constant after construction.
        self.reading = reading
        self._sampler = sampler

    @property
    def sample(self) -> tuple[int, int | None]:
        """Number of the newest sample, and wall ms when it was taken."""
        return self._sampler.count, self._sampler.sampled_at_ms or None

    def now(self) -> dict[str, Any]:
        """Return the figures by the names of `snapshots.Overview`; a rate is None before there are two samples."""
        reading = self.reading()
        return {name: BY_NAME[name].read(reading) for name in _FRONT}

    def metrics(self) -> dict[str, float]:
        """Return numbers by their names at /metrics."""
        reading, found = self.reading(), {}
        for figure in FIGURES:
            if figure.metric:
                value = figure.read(reading)
                found[figure.metric] = value if figure.per == 1 else value / figure.per
        return found

    def upstream(self) -> Iterator[tuple[str, float]]:
        """Yield numbers with their names in Apache's metrics."""
        reading = self.reading()
        return ((figure.upstream, figure.read(reading)) for figure in FIGURES if figure.upstream)
