"""Is it well, and what needs a person: sentences with a level, from what the engine knows about itself."""

from __future__ import annotations

import ipaddress
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from ..host_port import host_of
from ..protocol.names import DLQ_PREFIX
from ..store import findings
from ..store.disk import disk_usage
from . import snapshots as s
from .client_views import conflicts_of, members_of
from .group_views import is_system_group
from .lag import LagBook
from .sentences import Sentence, say

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..engine import Engine
    from ..store.findings import Finding
    from ..store.message_store import MessageStore
    from .sampler import Sampler

#: A group that is behind and whose offsets have not moved for so long is called stuck.
STUCK_MINUTES = 5
#: The last samples a forecast of the disk is made from.
FORECAST_SAMPLES = 600
#: A forecast further away is not worth a word.
FORECAST_DAYS = 365
#: What was found in the store is news for so long.
FINDINGS_S = 7 * 86_400
_MENDED = ("torn", "queue", "queues")
_LEVELS = {"act": 0, "stuck": 1, "watch": 2}


class DiskFigures(NamedTuple):
    """Of the store's file system. free: for us; used_percent: as Apache counts it, of all."""

    total_bytes: int | None
    free_bytes: int | None
    used_percent: float | None
    failure: str | None


def disk_figures(path: str | os.PathLike[str]) -> DiskFigures:
    try:
        usage = disk_usage(path)
    except OSError as error:
        return DiskFigures(None, None, None, error.strerror or str(error))
    total = usage.used_bytes + usage.free_bytes
    return DiskFigures(total, usage.free_bytes, usage.share * 100 if total else None, None)


def is_loopback(address: str | None) -> bool:
    """Whether "host:port" leads to this machine only."""
    host = host_of(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


#: An index further behind is being made anew, or the machine is too slow for it.
_INDEX_BEHIND_BYTES = 256 * 1024 * 1024
#: Lines of what needs a person; beyond them only how many.
NEEDS_SHOWN = 20


class Checks:
    """Any thread."""

    def __init__(self, engine: Engine, broker: Broker | None, sampler: Sampler | None) -> None:
        self._engine = engine
        self._broker = broker
        self._sampler = sampler
        # (time and size of the file, what it holds); replaced, never changed.
        self._findings_read: tuple[tuple[int, int], list[Finding]] = ((0, 0), [])

    def all(self) -> tuple[s.Check, ...]:
        """Every check, the network's first."""
        engine = self._engine
        io = "ok" if engine.loop.alive else "failed"
        found = [s.Check("io", io, say("io_running" if engine.loop.alive else "io_ended"))]
        if self._broker is not None:
            found += self._store(self._broker)
            found += self._registration(self._broker)
        if engine.wire_audit.failure is not None:
            text = say("wire_audit_failing", reason=engine.wire_audit.failure)
            found.append(s.Check("wire_audit", "failed", text))
        address = engine.broker_address or engine.namesrv_address
        if address is not None:
            away = is_loopback(address)
            code = "advertised_loopback" if away else "advertised"
            found.append(s.Check("address", "warning" if away else "ok", say(code, address=address)))
        return tuple(found)

    def _index(self, broker: Broker) -> s.Check:
        index = broker.store.index
        if index.failure is not None:
            return s.Check("index", "failed", say("index_failing", reason=index.failure))
        if not index.enabled:
            return s.Check("index", "ok", say("index_off"))
        if index.behind > _INDEX_BEHIND_BYTES:
            return s.Check("index", "warning", say("index_behind", size=index.behind))
        return s.Check("index", "ok", say("index_current"))

    def _store(self, broker: Broker) -> list[s.Check]:
        store = broker.store
        log = store.log
        queues = broker.health()["queues"]
        found = [
            s.Check("store", "ok", say("store_writable"))
            if log.broken is None
            else s.Check("store", "failed", say("store_broken", reason=log.broken)),
            s.Check("queues", "ok", say("queues_written"))
            if queues["ok"]
            else s.Check("queues", "failed", say("queues_failing", reason=queues["detail"])),
        ]
        found.append(self._index(broker))
        failing = [
            s.Check("tables", "failed", say("tables_failing", table=name, reason=failure))
            for name, failure in (
                ("topics", broker.topics.failure),
                ("groups", broker.groups.failure),
                ("offsets", broker.offsets.failure),
            )
            if failure is not None
        ]
        found += failing or [s.Check("tables", "ok", say("tables_saved"))]
        slow = store._pressure
        found.append(s.Check("flow", "warning" if slow else "ok", say("back_pressure" if slow else "flow_free")))
        synchronous = store.settings.synchronous
        flush = say("sync_flush" if synchronous else "async_flush")
        found.append(s.Check("flush", "ok" if synchronous else "warning", flush))
        found.append(self._disk())
        found.append(self._cleaning(broker))
        found.append(self._findings(broker))
        return found

    def _findings(self, broker: Broker) -> s.Check:
        """What was cut, quarantined, set aside or altered, as far as it is news."""
        store = broker.store
        damaged = store.blocks.damaged
        if damaged:
            name, begin, end = damaged[0]
            place = f"commitlog/{name} [{begin}, {end})"
            return s.Check("findings", "failed", say("bytes_changed", count=len(damaged), place=place))
        since_ms = (time.time() - FINDINGS_S) * 1000
        recent = [finding for finding in self._all_findings(store) if finding.time_ms > since_ms]
        if not recent:
            return s.Check("findings", "ok", say("nothing_found"))
        newest = recent[-1]
        place = newest.file if newest.begin < 0 else f"{newest.file} [{newest.begin}, {newest.end})"
        text = say("found_lately", count=len(recent), place=place, reason=newest.reason)
        # What a kill leaves is put right by the next start and needs nobody.
        mended = all(finding.kind in _MENDED for finding in recent)
        return s.Check("findings", "ok" if mended else "warning", text)

    def _all_findings(self, store: MessageStore) -> list[Finding]:
        """The list as it is on disk, read again when its file has changed: live pages ask every second."""
        try:
            stat = os.stat(store.paths.quarantine / findings.NAME)
            mark = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            mark = (0, 0)
        if mark != self._findings_read[0]:
            self._findings_read = (mark, store.files.findings())
        return self._findings_read[1]

    @staticmethod
    def _cleaning(broker: Broker) -> s.Check:
        """Whether old messages can go."""
        status = broker.store.cleaner.status
        if status.failure is not None:
            return s.Check("cleaning", "failed", say("cleaning_failing", reason=status.failure))
        if status.clock_ahead_ms:
            return s.Check("cleaning", "warning", say("clock_ahead", hours=status.clock_ahead_ms / 3_600_000))
        return s.Check("cleaning", "ok", say("cleaning_well"))

    def _disk(self) -> s.Check:
        config = self._engine.config
        disk = disk_figures(config.store_dir)
        if disk.used_percent is None or disk.free_bytes is None:
            return s.Check("disk", "failed", say("disk_unreadable", reason=disk.failure or "no figures"))
        if self._broker is not None and self._broker.store.log.refused is not None:
            stage = self._broker.store.cleaner.status.stages.refuse * 100
            full = say("disk_full", used_percent=disk.used_percent, limit_percent=stage)
            return s.Check("disk", "failed", full)
        limit = config.store.disk_max_used_space_ratio
        if disk.used_percent >= limit:
            return s.Check("disk", "warning", say("disk_filling", used_percent=disk.used_percent, limit_percent=limit))
        return s.Check("disk", "ok", say("disk_roomy", free_bytes=disk.free_bytes, used_percent=disk.used_percent))

    @staticmethod
    def _registration(broker: Broker) -> list[s.Check]:
        status = broker.registration.status
        if not status:
            return [s.Check("namesrv", "warning", say("no_namesrv"))]
        return [
            s.Check("namesrv", "ok", say("namesrv_registered", address=address))
            if known
            else s.Check("namesrv", "failed", say("namesrv_lost", address=address))
            for address, known in sorted(status.items())
        ]

    # --- what needs a person

    def needs(self, book: LagBook, checks: tuple[s.Check, ...]) -> tuple[s.Need, ...]:
        """The worst first. What the console warns of at start-up (flush mode, loopback) is no need of the moment."""
        broker, sampler = self._broker, self._sampler
        found: list[s.Need] = [
            s.Need("act" if check.level == "failed" else "watch", "system", check.name, check.sentence)
            for check in checks
            if check.level == "failed" or (check.level == "warning" and check.name in ("disk", "flow", "findings"))
        ]
        if broker is None or sampler is None:
            return tuple(found)
        for topic, queues in book.queues.items():
            if topic.startswith(DLQ_PREFIX):
                count = sum(queue.max_offset - queue.min_offset for queue in queues)
                if count:
                    group = topic[len(DLQ_PREFIX) :]
                    found.append(s.Need("act", "group", group, say("dead_letters", count=count, group=group)))
        now = time.monotonic()
        moves: dict[str, float] = {}
        for (_, group), track in list(sampler.pairs.items()):
            moves[group] = max(moves.get(group, 0.0), track.moved_at)
        for group in book.entries.keys() | book.online.keys():
            if is_system_group(group):
                continue
            info = book.online.get(group)
            if info is not None and len(info.channels) > 1 and conflicts_of(members_of(info)):
                found.append(s.Need("act", "group", group, say("subscriptions_differ", group=group)))
            backlog = book.backlog(group)
            if not backlog.lag:
                continue
            if info is None:
                found.append(s.Need("watch", "group", group, say("nobody_consumes", group=group, lag=backlog.lag)))
                continue
            idle_minutes = int((now - max(moves.get(group, 0.0), sampler.started_at)) // 60)
            if idle_minutes >= STUCK_MINUTES:
                text = say("stuck", group=group, lag=backlog.lag, minutes=idle_minutes)
                found.append(s.Need("stuck", "group", group, text))
        found.sort(key=lambda need: (_LEVELS[need.level], need.kind != "system", need.name))
        if len(found) > NEEDS_SHOWN:
            more = len(found) - NEEDS_SHOWN + 1
            found[NEEDS_SHOWN - 1 :] = [s.Need("watch", "groups", "", say("more_needs", count=more))]
        return tuple(found)

    def disk_full_at_ms(self, disk: DiskFigures) -> tuple[int | None, Sentence | None]:
        """(wall ms when the disk reaches diskMaxUsedSpaceRatio at the present rate, why that is not known)."""
        if self._sampler is None or disk.total_bytes is None or disk.free_bytes is None:
            return None, say("disk_unreadable", reason=disk.failure or "no broker runs here")
        rate = self._sampler.total_rate("log", FORECAST_SAMPLES)
        if rate is None:
            return None, say("not_measured_yet")
        limit = self._engine.config.store.disk_max_used_space_ratio / 100
        room = disk.free_bytes - disk.total_bytes * (1 - limit)
        if rate <= 0 or room / rate > FORECAST_DAYS * 86_400:
            return None, say("disk_not_filling")
        return int((time.time() + max(0.0, room) / rate) * 1000), None
