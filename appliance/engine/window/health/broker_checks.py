"""The broker's health checks: store, tables, disk, name servers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ...broker.registration import Registration
from ...store import findings
from ...store.findings import Finding
from ...store.message_store import MessageStore
from .. import snapshots as s
from ..options import Options
from ..sentences import say
from . import limits
from .disk_room import disk_figures

_MENDED = ("torn", "queue", "queues")


class Failing(Protocol):
    """A part with the reason why it cannot do its work now, such as saving a file; None while it can."""

    @property
    def failure(self) -> str | None: ...


class Recording(Protocol):
    """The writer of delivery events. dropped: events lost because they could not be written."""

    failure: str | None
    dropped: int


class Replicating(Protocol):
    """The checks of the slaves, or of the master."""

    def checks(self) -> list[s.Check]: ...


class TransactionRecording(Protocol):
    """The writer of transactions' ends. lost: number of ends that are not recorded."""

    @property
    def failure(self) -> str | None: ...

    @property
    def lost(self) -> int: ...


class BrokerChecks:
    """Any thread."""

    def __init__(
        self,
        store: MessageStore,
        tables: Mapping[str, Failing],
        queues_failure: Callable[[], str | None],
        registration: Registration,
        options: Options,
        delivery_events: Recording,
        delayed: Sequence[Failing],
        replays: Failing,
        transactions: Failing,
        transaction_records: TransactionRecording,
        replication: Replicating,
    ) -> None:
        """tables: by the name that the sentence uses. delayed: the services that deliver delayed and timed messages.
        replays: the part that saves replay jobs. transactions: the part that checks open transactions."""
        # Constant after construction.
        self._store = store
        self._tables = tables
        self._queues_failure = queues_failure
        self._registration = registration
        self._options = options
        self._delivery_events = delivery_events
        self._replays = replays
        self._delayed = delayed
        self._transactions = transactions
        self._transaction_records = transaction_records
        self._replication = replication
        # (time and size of the file, what it holds); replaced, never changed.
        self._findings_read: tuple[tuple[int, int], list[Finding]] = ((0, 0), [])

    def all(self) -> list[s.Check]:
        log = self._store.log
        queues = self._queues_failure()
        found = [
            s.Check("store", "ok", say("store_writable"))
            if log.broken is None
            else s.Check("store", "failed", say("store_broken", reason=log.broken)),
            s.Check("queues", "ok", say("queues_written"))
            if queues is None
            else s.Check("queues", "failed", say("queues_failing", reason=queues)),
            self._index(),
        ]
        failing = [
            s.Check("tables", "failed", say("tables_failing", table=name, reason=table.failure))
            for name, table in self._tables.items()
            if table.failure is not None
        ]
        found += failing or [s.Check("tables", "ok", say("tables_saved"))]
        slow = self._store._pressure
        found.append(s.Check("flow", "warning" if slow else "ok", say("back_pressure" if slow else "flow_free")))
        synchronous = self._store.settings.synchronous
        flush = say("sync_flush" if synchronous else "async_flush")
        found.append(s.Check("flush", "ok" if synchronous else "warning", flush))
        return [
            *found,
            self._delays(),
            self._open_transactions(),
            self._replay(),
            self._disk(),
            self._cleaning(),
            self._recording(),
            self._findings(),
            *self._replication.checks(),
            *self._name_servers(),
        ]

    def _delays(self) -> s.Check:
        """Check that delayed messages are delivered when they are due."""
        failures = [service.failure for service in self._delayed if service.failure is not None]
        if failures:
            return s.Check("delays", "failed", say("delays_failing", reason=failures[0]))
        return s.Check("delays", "ok", say("delays_delivered"))

    def _open_transactions(self) -> s.Check:
        """Check that the open transactions are known, so that they can end, and that their ends are recorded."""
        failure = self._transactions.failure
        if failure is not None:
            return s.Check("transactions", "failed", say("transactions_failing", reason=failure))
        records = self._transaction_records
        if records.failure is not None:
            text = say("transactions_unrecorded", count=records.lost, reason=records.failure)
            return s.Check("transactions", "warning", text)
        return s.Check("transactions", "ok", say("transactions_checked"))

    def _replay(self) -> s.Check:
        """Check that replay jobs can be saved; if they cannot, no message is lost."""
        failure = self._replays.failure
        if failure is not None:
            return s.Check("replay", "failed", say("replay_failing", reason=failure))
        return s.Check("replay", "ok", say("replay_well"))

    def _index(self) -> s.Check:
        index = self._store.index
        if index.failure is not None:
            return s.Check("index", "failed", say("index_failing", reason=index.failure))
        if not index.enabled:
            return s.Check("index", "ok", say("index_off"))
        if index.behind > limits.INDEX_BEHIND_BYTES:
            return s.Check("index", "warning", say("index_behind", size=index.behind))
        return s.Check("index", "ok", say("index_current"))

    def _recording(self) -> s.Check:
        """Check that deliveries are recorded for the messages' stories. Nothing else needs them, so /readyz ignores
        this check."""
        events = self._delivery_events
        if events.failure is not None:
            failing = say("deliveries_failing", count=events.dropped, reason=events.failure)
            return s.Check("deliveries", "failed", failing)
        on = self._options.config.store.max_delivery_event_bytes > 0
        return s.Check("deliveries", "ok", say("deliveries_recorded" if on else "deliveries_off"))

    def _findings(self) -> s.Check:
        """Report bytes of the log that have changed, and the findings of the last days (`limits.FINDINGS_S`): what was
        cut, quarantined or set aside."""
        store = self._store
        damaged = store.blocks.damaged
        if damaged:
            name, begin, end = damaged[0]
            place = f"commitlog/{name} [{begin}, {end})"
            return s.Check("findings", "failed", say("bytes_changed", count=len(damaged), place=place))
        since_ms = (time.time() - limits.FINDINGS_S) * 1000
        recent = [finding for finding in self._all_findings(store) if finding.time_ms > since_ms]
        if not recent:
            return s.Check("findings", "ok", say("nothing_found"))
        newest = recent[-1]
        place = newest.file if newest.begin < 0 else f"{newest.file} [{newest.begin}, {newest.end})"
        text = say("found_lately", count=len(recent), place=place, reason=newest.reason)
        # The next start repairs what a kill leaves behind, so no operator has to act.
        mended = all(finding.kind in _MENDED for finding in recent)
        return s.Check("findings", "ok" if mended else "warning", text)

    def _all_findings(self, store: MessageStore) -> list[Finding]:
        """Return the list on disk. It is read again only when its file has changed, because live pages ask every
        second."""
        try:
            stat = os.stat(store.paths.quarantine / findings.NAME)
            mark = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            mark = (0, 0)
        if mark != self._findings_read[0]:
            self._findings_read = (mark, store.files.findings())
        return self._findings_read[1]

    def _cleaning(self) -> s.Check:
        """Check that expired messages can be deleted."""
        status = self._store.cleaner.status
        if status.failure is not None:
            return s.Check("cleaning", "failed", say("cleaning_failing", reason=status.failure))
        if status.clock_ahead_ms:
            return s.Check("cleaning", "warning", say("clock_ahead", hours=status.clock_ahead_ms / 3_600_000))
        return s.Check("cleaning", "ok", say("cleaning_well"))

    def _disk(self) -> s.Check:
        config = self._options.config
        disk = disk_figures(config.store_dir)
        if disk.used_percent is None or disk.free_bytes is None:
            return s.Check("disk", "failed", say("disk_unreadable", reason=disk.failure or "no figures"))
        if self._store.log.refused_by("disk") is not None:
            stage = self._store.cleaner.status.stages.refuse * 100
            full = say("disk_full", used_percent=disk.used_percent, limit_percent=stage)
            return s.Check("disk", "failed", full)
        stages = self._store.cleaner.status.stages
        if disk.used_percent > stages.force * 100:
            used, refused = disk.used_percent, stages.refuse * 100
            return s.Check("disk", "warning", say("disk_deletes", used_percent=used, limit_percent=refused))
        limit = config.store.disk_max_used_space_ratio
        if disk.used_percent >= limit:
            return s.Check("disk", "warning", say("disk_filling", used_percent=disk.used_percent, limit_percent=limit))
        return s.Check("disk", "ok", say("disk_roomy", free_bytes=disk.free_bytes, used_percent=disk.used_percent))

    def _name_servers(self) -> list[s.Check]:
        status = self._registration.status
        if not status:
            return [s.Check("namesrv", "warning", say("no_namesrv"))]
        return [
            s.Check("namesrv", "ok", say("namesrv_registered", address=address))
            if known
            else s.Check("namesrv", "failed", say("namesrv_lost", address=address))
            for address, known in sorted(status.items())
        ]
