"""Transactions: the open ones, their ends, the questions about them and the records of them, in one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from ...config import EngineConfig
from ...errors import StartError
from ...remoting.event_loop import EventLoop
from ...store.message_store import MessageStore
from ..clients import ClientManager
from ..sending.sending import Sending
from ..tables import Tables
from .admin_journal import DecisionJournal
from .check import CheckSettings, CheckTransactions
from .check_counts import CheckCountsFile
from .decisions import Decisions
from .open_halves import OpenHalves
from .records import TransactionRecords
from .resolved import ResolvedTransactions

if TYPE_CHECKING:
    from .admin_acts import AdminActs
    from .half_appends import HalfAppends
    from .resume import ResumeDiscarded


class Transactions:
    """The table of open half messages, the decisions about them, and the threads `check-transactions` and
    `transaction-records`."""

    def __init__(
        self,
        store: MessageStore,
        sending: Sending,
        tables: Tables,
        clients: ClientManager,
        loop: EventLoop,
        options: Callable[[], EngineConfig],
        left_ms: Callable[[int, int, int], float],
    ) -> None:
        """left_ms: as `DeliverDelayed.left_until_ms`. Raises StartError."""
        appends, clock = sending.appends, loop.clock
        # Constant after construction.
        self._store = store
        self._appends = appends
        self._loop = loop
        self._options = options
        self._began_at = store.index.target
        self._making = Lock()
        self._resume: ResumeDiscarded | None = None
        self.open_halves = halves = OpenHalves()
        self.decisions = Decisions(store, appends, halves, tables.topics, sending.places, clock.wall_ms)
        self.check = check = CheckTransactions(
            store, self.decisions, clients, tables.offsets, loop, self.settings, left_ms
        )
        sending.path.on_half = check.stored
        clients.on_producers = check.producers_came
        directory, disk = store.paths.own / "transactions", store.disk
        self.resolved = ResolvedTransactions(directory / "resolved", disk)
        self.decisions.on_ended = self.resolved.note
        path = directory / "decisions.journal"
        try:
            self.journal = DecisionJournal(path, clock, disk)
        except OSError as error:
            raise StartError(f"{path} cannot be opened: {error.strerror or error}.") from None
        counts = CheckCountsFile(directory / "checks", disk)
        self.records = TransactionRecords(store, halves, check, self.resolved, counts, self.journal, self._finish_acts)
        # A circle: the records are made from the checks, which begin with the counts in the records.
        check.remembered = self.records.remembered
        if self.journal.unfinished():
            _ = self.acts

    # --- for administrators; loaded at the first use, which is above, in the window's lock for makers, or a tool's
    # request. From Python 3.12 on a cached_property has no lock

    @cached_property
    def half_appends(self) -> HalfAppends:
        from .half_appends import HalfAppends

        return HalfAppends(self._store, self._appends, self.check.stored, self._loop.call_soon)

    @property
    def resume(self) -> ResumeDiscarded:
        """One object for pages and tools: its lock keeps two from resuming the same one."""
        from .resume import ResumeDiscarded

        with self._making:
            if self._resume is None:
                self._resume = ResumeDiscarded(self._store, self.half_appends, self._began_at)
            return self._resume

    @cached_property
    def acts(self) -> AdminActs:
        """Administrators' decisions. Made before it adds anything to the journal, which has the unfinished ones of the
        last process."""
        from .admin_acts import AdminActs

        call_soon, clock = self._loop.call_soon, self._loop.clock
        return AdminActs(self._store, self.decisions, self.check, self.resume, self.journal, call_soon, clock)

    def _finish_acts(self) -> None:
        if "acts" in self.__dict__:
            self.acts.finish()

    def settings(self) -> CheckSettings:
        """Return the options in force."""
        config = self._options()
        broker, store = config.broker, config.store
        return CheckSettings(
            broker.transaction_time_out_ms,
            broker.transaction_check_interval_ms,
            broker.transaction_check_max,
            store.file_reserved_time_hours * 3_600_000,
            broker.broker_name,
        )

    def open_now(self) -> tuple[int | None, int]:
        """Return (queue offset of the oldest open half message, number of open ones). For another thread."""
        try:
            return self.open_halves.lowest, self.open_halves.count
        except RuntimeError:  # they change this moment
            return None, 0

    def join_store(self) -> None:
        """Have the store ask before it deletes log files."""
        self._store.cleaner.keepers.append(self.check.keeps)

    def start(self) -> None:
        self.check.start()
        self.records.start()
