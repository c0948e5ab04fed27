"""The thread that writes recorded deliveries to the files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from ...clock import Clock
from ...config import EngineConfig
from ...remoting.event_loop import EventLoop
from ...service_thread import ServiceThread
from ...store.message_store import MessageStore
from .event_format import EVENT_BYTES
from .last_pulls import LastPulls
from .recorder import DeliveryRecorder, Taken
from .ring import DeliveryRing

if TYPE_CHECKING:
    from .history import DeliveryReader

logger = logging.getLogger(__name__)

#: Seconds between two hand-overs of the I/O thread: a crash takes this much.
PERIOD_S = 1.0
#: Pause after a failed write; events that come meanwhile are dropped.
RETRY_S = 5.0


class DeliveryService(ServiceThread):
    """The thread `delivery-events`. Owns: the files in DATA/rocketbox/deliveries. Woken by: what was recorded."""

    def __init__(
        self,
        recorder: DeliveryRecorder,
        ring: DeliveryRing,
        budget_bytes: Callable[[], int],
        published: Callable[[], int],
        clock: Clock,
    ) -> None:
        """published: returns the published end of the log. budget_bytes: returns the present budget."""
        super().__init__("delivery-events", clock)
        # Constant after construction.
        self._recorder = recorder
        self._ring = ring
        self._budget_bytes = budget_bytes
        self._recovered = published()
        self.last_pulls = LastPulls()
        recorder.on_taken = self.wakeup
        # Owned by the thread; figures may be read by anyone.
        self._opened = False
        self._retry_at = 0.0
        self._owed = 0
        self.failure: str | None = None
        #: Events that were dropped because the disk did not take them.
        self.dropped = 0
        #: Events that were written to files since the start.
        self.written = 0

    @property
    def lost(self) -> int:
        """Events that were not kept since the start: neither memory nor disk had room."""
        return self._recorder.lost + self.dropped

    def run(self) -> None:
        self._tell_of_a_gap()
        while not self.stopped:
            try:
                self.work()
            except Exception:
                logger.exception("deliveries: writing failed")
            self.wait(None)

    def _tell_of_a_gap(self) -> None:
        """Note a gap in the files of an earlier start when this one records nothing."""
        if self._budget_bytes() or not self._ring.files():
            return
        try:
            self._ring.open(self._recovered, self.clock.wall_ms(), on=False)
            self._opened = True
        except OSError as error:
            logger.warning("deliveries: that they are not recorded cannot be written down: %s", error)

    def work(self) -> None:
        """Write the waiting events. Those that cannot be written are dropped and counted."""
        waiting = self._recorder.waiting
        while waiting:
            taken = waiting.popleft()
            self.last_pulls.take(taken)
            if self.failure is not None and self.clock.monotonic() < self._retry_at:
                self._drop(taken)
                continue
            try:
                if not self._opened:
                    self._ring.open(self._recovered, taken.wall_ms)
                    self._opened = True
                self._ring.write(taken._replace(lost=taken.lost + self._owed), self._budget_bytes())
            except OSError as error:
                if self.failure is None:
                    logger.error("deliveries: events are dropped, their files cannot be written: %s", error)
                self.failure = error.strerror or str(error)
                self._retry_at = self.clock.monotonic() + RETRY_S
                self._drop(taken)
                continue
            if self.failure is not None:
                logger.info("deliveries: events are written again; dropped meanwhile: %d", self._owed)
            self.failure, self._owed = None, 0
            self.written += len(taken.events) // EVENT_BYTES

    def _drop(self, taken: Taken) -> None:
        count = len(taken.events) // EVENT_BYTES
        self._owed += taken.lost + count
        self.dropped += count

    def stop(self, deadline: float = 5.0) -> bool:
        """End the thread and write the rest. The loop has ended before."""
        ended = super().stop(deadline)
        if ended:
            self._recorder.hand_over()
            self.work()
            self._ring.close()
        return ended


class Deliveries:
    """The recorder on remoting-io, the files, and the thread between them (D17)."""

    def __init__(self, store: MessageStore, loop: EventLoop, options: Callable[[], EngineConfig]) -> None:
        def budget() -> int:
            return options().store.max_delivery_event_bytes

        def published() -> int:
            return store.publication.published

        # Constant after construction.
        self._ring = DeliveryRing(store.paths.own / "deliveries", store.disk)
        self.recorder = DeliveryRecorder(loop, published, budget() > 0)
        self.service = DeliveryService(self.recorder, self._ring, budget, published, loop.clock)

    @cached_property
    def history(self) -> DeliveryReader:
        """What the files say; loaded at the first use."""
        from .history import DeliveryReader

        return DeliveryReader(self._ring)
