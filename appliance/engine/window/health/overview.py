"""The data of the front page: checks, needs, rates, and the groups furthest behind."""

from __future__ import annotations

import time
from typing import NamedTuple

from .. import snapshots as s
from ..clients.views import ClientViews
from ..figures.lag import ConsumerLag
from ..figures.traffic import BrokerFigures
from ..groups.views import GroupViews
from ..process.system import SystemView
from ..sentences import say
from ..sources import Sources
from .checks import Checks
from .disk_room import DiskRoom
from .finding import checks_of
from .needs import Needs

BEHIND_SHOWN = 8
#: The result of a look that took LONG_S or more of processor time is reused for KEPT_S.
LONG_S, KEPT_S = 0.02, 3.0


class StandingSnapshot(NamedTuple):
    """The fields are those of `snapshots.Overview`."""

    producer_clients: int
    consumer_clients: int
    behind: tuple[s.GroupLag, ...]
    needs: tuple[s.Need, ...]
    checks: tuple[s.Check, ...]


class Standing:
    """The values that change with commits every few seconds: connected clients, groups that are behind, needs, checks.

    Any thread; 10 ms at 2,000 topics and 500 groups.
    """

    def __init__(
        self, lag: ConsumerLag, groups: GroupViews, clients: ClientViews, checks: Checks, needs: Needs
    ) -> None:
        # Constant after construction.
        self._lag = lag
        self._groups = groups
        self._clients = clients
        self._checks = checks
        self._needs = needs
        # Replaced whole: (until when it is reused, `behind_shown`, the result).
        self._seen: tuple[float, int, StandingSnapshot] | None = None

    def look(self, behind_shown: int) -> StandingSnapshot:
        """Return the present values. behind_shown: number of groups at most. A costly result is reused for some
        seconds."""
        seen = self._seen
        if seen is not None and seen[1] == behind_shown and time.monotonic() < seen[0]:
            return seen[2]
        begun = time.thread_time()
        found = self._look(behind_shown)
        took = time.thread_time() - begun
        self._seen = (time.monotonic() + KEPT_S, behind_shown, found) if took >= LONG_S else None
        return found

    def _look(self, behind_shown: int) -> StandingSnapshot:
        progress = self._lag.snapshot()
        findings = self._checks.all()
        producers, consumers = self._clients.counts(progress)
        return StandingSnapshot(
            producer_clients=producers,
            consumer_clients=consumers,
            behind=self._groups.behind(behind_shown, progress),
            needs=self._needs.of(progress, findings),
            checks=checks_of(findings),
        )


class OverviewView:
    """Any thread."""

    def __init__(
        self,
        sources: Sources,
        traffic: BrokerFigures,
        standing: Standing,
        disk: DiskRoom,
        system: SystemView,
    ) -> None:
        # Constant after construction.
        self._store, self._topics, self._groups = sources.store, sources.topics, sources.groups
        self._traffic = traffic
        self._standing = standing
        self._disk = disk
        self._system = system

    def snapshot(self) -> s.Overview:
        """Return the front page: rates, needs, checks, the groups furthest behind. Made for each call: a page fetches
        it once, and follows `live_frame` from then on."""
        disk = self._disk.figures()
        full_at, full_why = self._disk.full_at_ms(disk)
        oldest = self._store.earliest_time_ms()
        addresses = self._system.addresses()
        return s.Overview(
            **self._traffic.now(),
            **self._standing.look(BEHIND_SHOWN)._asdict(),
            topics=len(self._topics.all()),
            groups=len(self._groups.all()),
            oldest_at_ms=oldest if oldest >= 0 else None,
            oldest_why=None if oldest >= 0 else say("no_messages"),
            disk_used_percent=disk.used_percent,
            disk_free_bytes=disk.free_bytes,
            disk_full_at_ms=full_at,
            disk_full_why=full_why,
            uptime_ms=self._system.uptime_ms,
            broker_name=self._system.broker_name,
            broker_address=addresses.broker,
            namesrv_address=addresses.namesrv,
            sampled_at_ms=self._traffic.sample[1],
        )
