"""The thread that writes down what happened to transactions, and finishes the acts of an earlier process."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...errors import QueueBroken
from ...protocol.names import HALF_TOPIC
from ...service_thread import ServiceThread
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES, unpack_entries
from .admin_journal import DecisionJournal
from .check import CheckTransactions
from .check_counts import CheckCountsFile
from .half import HALF_QUEUE
from .open_halves import OpenHalves
from .resolved import ResolvedTransactions

logger = logging.getLogger(__name__)

PERIOD_S = 1.0
#: Periods between two writes of the counts of questions.
_COUNTS_EVERY = 5


class TransactionRecords(ServiceThread):
    """The thread `transaction-records`. Owns: `checks` in DATA/rocketbox/transactions, and writes `resolved/`."""

    def __init__(
        self,
        store: MessageStore,
        halves: OpenHalves,
        checks: CheckTransactions,
        resolved: ResolvedTransactions,
        counts: CheckCountsFile,
        journal: DecisionJournal,
        finish: Callable[[], None],
    ) -> None:
        """finish: as `AdminActs.finish`, called when all open halves are known."""
        super().__init__("transaction-records", checks.clock)
        # Constant after construction.
        self._store = store
        self._halves = halves
        self._checks = checks
        self._resolved = resolved
        self._counts = counts
        self._journal = journal
        self._finish = finish
        self._finished = False
        self._counts_failure: str | None = None

    @property
    def failure(self) -> str | None:
        """Reason why something cannot be written down; None if all can."""
        return self._resolved.failure or self._counts_failure or self._journal.failure

    @property
    def lost(self) -> int:
        """Number of transactions that ended since the start and are not kept."""
        return self._resolved.lost

    def run(self) -> None:
        turn = 0
        while not self.stopped:
            self.wait(PERIOD_S)
            turn += 1
            try:
                self._work(turn)
            except Exception:
                logger.exception("transactions: writing down failed")

    def _work(self, turn: int) -> None:
        self._resolved.write()
        if not self._checks.ready:
            return
        if not self._finished:
            self._finished = True
            self._finish()
        if turn % _COUNTS_EVERY == 0:
            self._save_counts()

    def remembered(self) -> list[tuple[int, bytes]]:
        """Return how often producers were asked before this start, as pages; none if the file is of another half
        queue."""
        try:
            found = self._counts.load()
            if found is None or self._physical_of(found.last_offset) != found.last_physical:
                return []
        except (OSError, QueueBroken) as error:
            logger.warning("transactions: counts of questions cannot be read, and begin anew: %s", error)
            return []
        return found.pages

    def _save_counts(self) -> None:
        queue = self._store.find_queue(HALF_TOPIC, HALF_QUEUE)
        pages = self._halves.pages()
        last = -1 if queue is None else queue.max_offset - 1
        try:
            self._counts.save(last, self._physical_of(last), pages)
        except (OSError, QueueBroken) as error:
            if self._counts_failure is None:
                logger.error("transactions: counts of questions cannot be written down: %s", error)
            self._counts_failure = str(error)
        else:
            self._counts_failure = None

    def _physical_of(self, offset: int) -> int:
        """Return the physical offset of a half message; -1 without one."""
        queue = self._store.find_queue(HALF_TOPIC, HALF_QUEUE)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return -1
        files = self._store.queues.new_files(capacity=1)
        try:
            data = self._store.queues.read_entries(queue, offset, 1, files)
        finally:
            files.close()
        for physical, _, _ in unpack_entries(data[:ENTRY_BYTES]) if len(data) >= ENTRY_BYTES else ():
            return physical
        return -1

    def stop(self, deadline: float = 5.0) -> bool:
        """End the thread and write the rest. The loop has ended by now."""
        ended = super().stop(deadline)
        if ended:
            if self._checks.ready:
                self._save_counts()
            self._resolved.close()
            self._journal.close()
        return ended
