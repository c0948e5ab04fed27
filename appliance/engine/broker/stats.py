"""Counters and rates of the broker, as GET_BROKER_RUNTIME_INFO (28) and the metrics page show them.

Totals are sampled every 10 s; a rate is the difference over the last 10, 60 or 600 s. "Morning" figures are the totals
at the last two local midnights, 0 for one before the process began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import date

from ..clock import Clock
from ..named_tuple import NamedTuple
from ..plain_text import size_text
from ..remoting.dispatcher import WorkerPool
from ..remoting.server import RemotingServer
from ..store.message_store import MessageStore
from .delays.delivery import DeliverDelayed
from .processors.pull import PullProcessor
from .processors.query import POOL as QUERY_POOL
from .timers.delivery import DeliverTimers

SAMPLE_S = 10.0
_WINDOWS = (1, 6, 60)


class _Sample(NamedTuple):
    at: float
    put: int
    found: int
    miss: int
    transferred: int
    timed: int
    timed_out: int


class BrokerStats:
    """`sample` runs on remoting-io; the rest may be read by any thread."""

    def __init__(
        self,
        store: MessageStore,
        pull: PullProcessor,
        server: RemotingServer,
        pools: Mapping[str, WorkerPool],
        delivery: DeliverDelayed,
        timers: DeliverTimers,
        clock: Clock,
    ) -> None:
        # Constant after construction.
        self._store = store
        self._delivery = delivery
        self._timers = timers
        self._pull = pull
        self._server = server
        self._pools = pools
        self._clock = clock
        self._boot_ms = clock.wall_ms()
        self._booted = clock.steady()
        # Owned by remoting-io.
        self._samples: deque[_Sample] = deque(maxlen=_WINDOWS[-1] + 1)
        # Numbers of yesterday and today -> (put, got) when the day began; yesterday's as today's if it was not seen.
        self._mornings = {_day_of(self._boot_ms): (0, 0)}
        self._day_begins()
        self.sample()

    def sample(self) -> None:
        """Keep the present totals; at a new day also as the morning's."""
        pull = self._pull
        put, got = self._store.put_count, pull.message_count
        timed, timed_out = self._timers.index.indexed.queue_offset, self._timers.delivered
        now = self._clock.monotonic()
        self._samples.append(_Sample(now, put, pull.found_count, pull.miss_count, got, timed, timed_out))
        self._day_begins()

    def _day_begins(self) -> None:
        """Keep the totals as the morning's if a new day has begun. A clock that is set back makes no new day: the
        earlier day keeps its morning, and the later one will begin again."""
        day = _day_of(self._clock.wall_ms())
        mornings = {one: totals for one, totals in self._mornings.items() if day - 1 <= one <= day}
        now = (self._store.put_count, self._pull.message_count)
        today = mornings.setdefault(day, now)
        mornings.setdefault(day - 1, today)
        self._mornings, self._today = mornings, (mornings[day - 1], today)

    def _rates(self, field: str) -> str:
        samples = list(self._samples)
        last = samples[-1]
        rates = []
        for window in _WINDOWS:
            first = samples[max(0, len(samples) - 1 - window)]
            elapsed = last.at - first.at
            rates.append((getattr(last, field) - getattr(first, field)) / elapsed if elapsed > 0 else 0.0)
        return " ".join(str(rate) for rate in rates)

    def _total_rates(self) -> str:
        found, miss = (map(float, self._rates(name).split()) for name in ("found", "miss"))
        return " ".join(str(a + b) for a, b in zip(found, miss, strict=True))

    def runtime_info(self) -> dict[str, str]:
        """Return the store's and the traffic's part of request 28; every value is text."""
        store = self._store
        seconds = int(self._clock.steady() - self._booted)
        minutes, s = divmod(seconds, 60)
        hours, m = divmod(minutes, 60)
        days, h = divmod(hours, 24)
        disk = store.disk.usage(store.paths.root)
        log = store.log
        transferred = self._rates("transferred")
        put, size = store.put_count, store.put_bytes
        yesterday, today = self._today
        return {
            "bootTimestamp": str(self._boot_ms),
            "runtime": f"[ {days} days, {h} hours, {m} minutes, {s} seconds ]",
            "msgPutTotalYesterdayMorning": str(yesterday[0]),
            "msgPutTotalTodayMorning": str(today[0]),
            "msgPutTotalTodayNow": str(put),
            "msgGetTotalYesterdayMorning": str(yesterday[1]),
            "msgGetTotalTodayMorning": str(today[1]),
            "msgGetTotalTodayNow": str(self._pull.message_count),
            "putTps": self._rates("put"),
            "getFoundTps": self._rates("found"),
            "getMissTps": self._rates("miss"),
            "getTotalTps": self._total_rates(),
            "getTransferedTps": transferred,
            "getTransferredTps": transferred,
            "putMessageTimesTotal": str(put),
            "putMessageFailedTimes": str(store.failed_puts),
            "putMessageSizeTotal": str(size),
            "putMessageAverageSize": str(size / put if put else 0.0),
            "commitLogDiskRatio": str(disk.share),
            "consumeQueueDiskRatio": str(disk.share),
            "commitLogMinOffset": str(log.min_offset),
            "commitLogMaxOffset": str(store.published),
            "commitLogDirCapacity": f"Total : {size_text(disk.total_bytes)}, Free : {size_text(disk.free_bytes)}.",
            "earliestMessageTimeStamp": str(store.earliest_time_ms()),
            "dispatchBehindBytes": str(store.index.behind),  # queue entries are made with the append
            "remainHowManyDataToFlush": size_text(log.written - log.durable),
            "timerCongestNum": str(self._timers.pending),
            "timerEnqueueTps": self._rates("timed").split()[0],
            "timerDequeueTps": self._rates("timed_out").split()[0],
            **self._waiting(),
            **{
                f"scheduleMessageOffset_{level}": f"{delivered},{end}"
                for level, (delivered, end) in self._delivery.offsets().items()
            },
        }

    def _waiting(self) -> dict[str, str]:
        """Return the figures of sends that back-pressure holds, pulls that wait for the disk, and searches."""
        sends = self._server.held_producers()
        pulls, queries = self._pools["pull-cold"], self._pools[QUERY_POOL]
        pulled, queried = pulls.waiting(), queries.waiting()
        return {
            "sendThreadPoolQueueSize": str(sends.number),
            "sendThreadPoolQueueHeadWaitTimeMills": str(sends.first_ms),
            "pullThreadPoolQueueSize": str(pulled.number),
            "pullThreadPoolQueueCapacity": str(pulls.capacity),
            "pullThreadPoolQueueHeadWaitTimeMills": str(pulled.first_ms),
            "queryThreadPoolQueueSize": str(queried.number),
            "queryThreadPoolQueueCapacity": str(queries.capacity),
            "queryThreadPoolQueueHeadWaitTimeMills": str(queried.first_ms),
        }


def _day_of(wall_ms: int) -> int:
    """Return the local day's number."""
    return date.fromtimestamp(wall_ms / 1000).toordinal()
