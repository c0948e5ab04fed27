"""The broker's health checks: store, tables, disk, name servers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from ...broker.registration import Registration
from ...store import findings
from ...store.findings import Finding as Stored
from ...store.message_store import MessageStore
from ..options import Options
from ..sentences import say
from . import limits
from .disk_room import disk_figures
from .finding import Finding, degraded, failed, fine

_MENDED = ("torn", "queue", "queues")
#: Of the parts that `Broker.failures` names: those that save tables, and those that deliver what waits.
_SAVING = ("configuration", "topics", "groups", "offsets", "filters", "delays", "timers")
_DELIVERING = ("delayed", "timed", "rolled")


class Recording(Protocol):
    """The writer of delivery events. dropped: events lost because they could not be written."""

    failure: str | None
    dropped: int


class Replicating(Protocol):
    """The findings about the slaves, or about the master."""

    def findings(self) -> Iterator[Finding]: ...


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
        failures: Callable[[], Mapping[str, str | None]],
        registration: Registration,
        options: Options,
        delivery_events: Recording,
        transaction_records: TransactionRecording,
        replication: Replicating,
    ) -> None:
        """failures: as `Broker.failures`."""
        # Constant after construction.
        self._store = store
        self._failures = failures
        self._registration = registration
        self._options = options
        self._delivery_events = delivery_events
        self._transaction_records = transaction_records
        self._replication = replication
        # (time and size of the file, what it holds); replaced, never changed.
        self._findings_read: tuple[tuple[int, int], list[Stored]] = ((0, 0), [])

    def all(self) -> list[Finding]:
        failures = self._failures()

        def judged(check: str, part: str, well: str, failing: str) -> Finding:
            reason = failures[part]
            return fine(check, say(well)) if reason is None else failed(check, say(failing, reason=reason))

        found = [
            judged("store", "store", "store_writable", "store_broken"),
            judged("queues", "queues", "queues_written", "queues_failing"),
            self._index(),
        ]
        failing = [
            failed("tables", say("tables_failing", table=name, reason=failures[name]))
            for name in _SAVING
            if failures[name] is not None
        ]
        found += failing or [fine("tables", say("tables_saved"))]
        slow = self._store._pressure
        found.append(degraded("flow", say("back_pressure"), "watch") if slow else fine("flow", say("flow_free")))
        synchronous = self._store.settings.synchronous
        found.append(fine("flush", say("sync_flush")) if synchronous else degraded("flush", say("async_flush")))
        late = next((part for part in _DELIVERING if failures[part] is not None), _DELIVERING[0])
        return [
            *found,
            judged("delays", late, "delays_delivered", "delays_failing"),
            self._open_transactions(failures["transactions"]),
            judged("replay", "replay", "replay_well", "replay_failing"),
            self._disk(),
            self._cleaning(),
            self._recording(),
            self._findings(),
            *self._replication.findings(),
            *self._name_servers(),
        ]

    def _open_transactions(self, failure: str | None) -> Finding:
        """Check that the open transactions are known, so that they can end, and that their ends are recorded."""
        if failure is not None:
            return failed("transactions", say("transactions_failing", reason=failure))
        records = self._transaction_records
        if records.failure is not None:
            text = say("transactions_unrecorded", count=records.lost, reason=records.failure)
            return degraded("transactions", text, "watch")
        return fine("transactions", say("transactions_checked"))

    def _index(self) -> Finding:
        index = self._store.index
        if index.failure is not None:
            return failed("index", say("index_failing", reason=index.failure))
        if not index.enabled:
            return fine("index", say("index_off"))
        if index.behind > limits.INDEX_BEHIND_BYTES:
            return degraded("index", say("index_behind", size_bytes=index.behind), "watch")
        return fine("index", say("index_current"))

    def _recording(self) -> Finding:
        """Check that deliveries are recorded for the messages' stories. Nothing else needs them, so /readyz ignores
        this check."""
        events = self._delivery_events
        if events.failure is not None:
            failing = say("deliveries_failing", count=events.dropped, reason=events.failure)
            return failed("deliveries", failing)
        on = self._options.config.store.max_delivery_event_bytes > 0
        return fine("deliveries", say("deliveries_recorded" if on else "deliveries_off"))

    def _findings(self) -> Finding:
        """Report bytes of the log that have changed, and the findings of the last days (`limits.FINDINGS_S`): what was
        cut, quarantined or set aside."""
        store = self._store
        damaged = store.blocks.damaged
        if damaged:
            name, begin, end = damaged[0]
            place = f"commitlog/{name} [{begin}, {end})"
            return failed("findings", say("bytes_changed", count=len(damaged), place=place))
        since_ms = (time.time() - limits.FINDINGS_S) * 1000
        recent = [finding for finding in self._all_findings(store) if finding.time_ms > since_ms]
        if not recent:
            return fine("findings", say("nothing_found"))
        newest = recent[-1]
        place = newest.file if newest.begin < 0 else f"{newest.file} [{newest.begin}, {newest.end})"
        text = say("found_lately", count=len(recent), place=place, reason=newest.reason)
        # The next start repairs what a kill leaves behind, so no operator has to act.
        mended = all(finding.kind in _MENDED for finding in recent)
        return fine("findings", text) if mended else degraded("findings", text, "watch")

    def _all_findings(self, store: MessageStore) -> list[Stored]:
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

    def _cleaning(self) -> Finding:
        """Check that expired messages can be deleted."""
        status = self._store.cleaner.status
        if status.failure is not None:
            return failed("cleaning", say("cleaning_failing", reason=status.failure))
        if status.clock_ahead_ms:
            return degraded("cleaning", say("clock_ahead", hours=status.clock_ahead_ms / 3_600_000), "watch")
        return fine("cleaning", say("cleaning_well"))

    def _disk(self) -> Finding:
        config = self._options.config
        disk = disk_figures(config.store_dir)
        if disk.used_percent is None or disk.free_bytes is None:
            return failed("disk", say("disk_unreadable", reason=disk.failure or "no figures"))
        if self._store.log.refused_by("disk") is not None:
            stage = self._store.cleaner.status.stages.refuse * 100
            full = say("disk_full", used_percent=disk.used_percent, limit_percent=stage)
            return failed("disk", full)
        stages = self._store.cleaner.status.stages
        if disk.used_percent > stages.force * 100:
            # Messages are being deleted, which is as urgent as a failure.
            text = say("disk_deletes", used_percent=disk.used_percent, limit_percent=stages.refuse * 100)
            return degraded("disk", text, "act")
        limit = config.store.disk_max_used_space_ratio
        if disk.used_percent >= limit:
            text = say("disk_filling", used_percent=disk.used_percent, limit_percent=limit)
            return degraded("disk", text, "watch")
        return fine("disk", say("disk_roomy", free_bytes=disk.free_bytes, used_percent=disk.used_percent))

    def _name_servers(self) -> list[Finding]:
        status = self._registration.status
        if not status:
            return [degraded("namesrv", say("no_namesrv"))]
        return [
            fine("namesrv", say("namesrv_registered", address=address))
            if known
            else failed("namesrv", say("namesrv_lost", address=address))
            for address, known in sorted(status.items())
        ]
