"""The thread that makes the schedule index durable, merges its runs, and keeps Apache's checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...errors import CorruptFile
from ...service_thread import ServiceThread
from ...store.message_store import MessageStore
from .apache_files import LOG_FILE_BYTES, Unit, remove_schedule, save_checkpoint, write_timer_log
from .delivery import DeliverTimers
from .look import ScheduleLook
from .rolling import RollTimers

logger = logging.getLogger(__name__)

#: Pause between a change and its save; there is none when memory is short.
SAVE_AFTER_S = 0.5
#: Pause after a save that failed.
RETRY_S = 1.0
#: Seconds between two writes of the checkpoint while anything changes; it is also written at the stop.
CHECKPOINT_S = 10.0
#: Time limit at the stop for writing down, for an Apache broker, which messages wait.
HAND_OVER_S = 3.0
#: A published message waits no longer than this before it is in the index.
_UNKNOWN_MS = 60_000
#: Pause between two pieces of a merge, for the other threads.
_REST_S = 0.001


class SaveTimers(ServiceThread):
    """The thread `save-timers`. Sleeps while nothing changes."""

    def __init__(
        self,
        store: MessageStore,
        delivery: DeliverTimers,
        look: Callable[[], ScheduleLook] | None = None,
        log_file_bytes: int = LOG_FILE_BYTES,
    ) -> None:
        """look: opens a look at what waits, to note it for an Apache broker at the stop; None to leave that out."""
        super().__init__("save-timers", delivery.clock)
        self._log = store.log
        self._store_dir = store.paths.root
        self._disk = store.disk
        self._delivery = delivery
        self._index = index = delivery.index
        self._look = look
        self._log_file_bytes = log_file_bytes
        index.on_unsaved = self.wakeup
        self._checkpoint_at = -CHECKPOINT_S
        self._checkpoint: tuple[int, int] | None = None
        #: Set by the owner before start().
        self.roll: RollTimers | None = None
        #: Reason why the last save failed; None if it did not.
        self.failure: str | None = None

    def run(self) -> None:
        while not self.stopped:
            if not self._index.is_unsaved:
                self.wait(None)
                self._try(self._work)
                continue
            if not self._index.is_full:
                self._rest(SAVE_AFTER_S)
            self.save_now()
            if self.failure is not None:
                self._rest(RETRY_S)

    def _rest(self, seconds: float) -> None:
        """Sleep; a wake-up ends it only when memory is short, or at the stop."""
        end = self.clock.monotonic() + seconds
        while not self.stopped and (left := end - self.clock.monotonic()) > 0:
            self.wait(left)
            if self._index.is_full and self.failure is None:
                return

    def save_now(self, last: bool = False) -> None:
        """Save; a failure is logged and stays in `failure` until a save succeeds."""
        self._try(lambda: self._save(last))

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, CorruptFile) as error:
            text = str(error)
            if text != self.failure:
                logger.error("timers: the schedule index cannot be saved, will try again: %s", text)
            self.failure = text
            return
        self.failure = None

    def _save(self, last: bool) -> None:
        self._index.save()
        self._look_at_checkpoint(last)
        if not last:
            while self._index.merge(self._log.min_offset, self.clock.wall_ms(), self._pause):
                self._index.save()
            self._work()

    def _work(self) -> None:
        """Scan for a roll that waits for it, and drop the entries of records that were rolled."""
        if self.roll is None:
            return
        self.roll.scan()
        if self.roll.tidy:
            self.roll.tidy = False
            if self._index.merge(self._log.min_offset, self.clock.wall_ms(), self._pause, everything=True):
                self._index.save()

    def _pause(self) -> bool:
        self.clock.sleep(_REST_S)
        return not self.stopped

    def checkpoint(self) -> tuple[int, int]:
        """Return what Apache's checkpoint says: (time before which no waiting message is due, wall ms; queue offset of
        the timer topic before which nothing waits). Any thread."""
        return self._checkpoint or (self.clock.wall_ms() - _UNKNOWN_MS, 0)

    def done(self) -> dict[str, str]:
        """Return the fields that slaves and members get beside the checkpoint; none before they are known. Any
        thread."""
        if not self._delivery.is_ready:
            return {}
        try:
            return self._index.settled().fields()
        except (OSError, CorruptFile):
            return {}

    def _look_at_checkpoint(self, last: bool) -> None:
        """Write Apache's checkpoint when it is time. Called after a save: what is not saved has not happened."""
        now = self.clock.monotonic()
        if not self._delivery.is_ready or (not last and now - self._checkpoint_at < CHECKPOINT_S):
            return
        _, low = self._index.lowest()
        due, wall_ms = self._index.lowest_due_ms(), self.clock.wall_ms()
        # A message that was just stored may be due before all messages in the index.
        wanted = (min(wall_ms - _UNKNOWN_MS, wall_ms if due is None else due - 1), min(low, self._index.indexed[0]))
        first = self._checkpoint is None
        if wanted != self._checkpoint:
            save_checkpoint(self._disk, self._store_dir, *wanted, wall_ms)
        if first:
            remove_schedule(self._disk, self._store_dir)
        self._checkpoint, self._checkpoint_at = wanted, now

    def _hand_over(self) -> None:
        """Write down which messages wait, for an Apache broker that may go on with the store. All is saved by now."""
        indexed = self._index.indexed
        if self._look is None or not self._delivery.is_ready or indexed.physical_offset < 0 or self.failure is not None:
            return
        deadline = self.clock.monotonic() + HAND_OVER_S
        last = Unit(0, indexed.physical_offset, indexed.size)
        try:
            with self._look() as look:
                units = (Unit(*one) for one in look.units(lambda: self.clock.monotonic() >= deadline))
                wall_ms = self.clock.wall_ms()
                first_ms = write_timer_log(self._disk, self._store_dir, units, last, wall_ms, self._log_file_bytes)
            save_checkpoint(self._disk, self._store_dir, first_ms, indexed.queue_offset, self.clock.wall_ms())
        except TimeoutError:
            logger.warning("timers: too many messages wait to note each for an Apache broker; it would read the topic")
            self._take_back()
        except (OSError, CorruptFile) as error:
            logger.warning("timers: what waits cannot be noted for an Apache broker: %s", error)
            self._take_back()

    def _take_back(self) -> None:
        try:
            remove_schedule(self._disk, self._store_dir)
        except OSError as error:
            logger.error("timers: %s", error)

    def stop(self, deadline: float = 5.0) -> bool:
        """End the thread and save. The log is durable to its end by now, if all is well."""
        ended = super().stop(deadline)
        if ended:
            self.save_now(last=True)
            self._hand_over()
            self._index.close()
        return ended
