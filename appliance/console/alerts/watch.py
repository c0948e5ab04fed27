"""The two threads of alerts: one judges the figures, one sends the notices."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from django.db import DatabaseError, connection
from django.db.models import Q

from ...engine.clock import AgeClock
from ...engine.service_thread import ServiceThread
from ..models import now_ms
from ..serving.said_once import SaidOnce
from .figures import Measured
from .models import AlertDelivery

if TYPE_CHECKING:
    from .book import Judge
    from .chat import Notice
    from .target import Target
    from .teller import Teller

logger = logging.getLogger(__name__)

#: Seconds between two looks for a new sample; the history takes one every 30 s.
LOOK_S = 5.0
#: Seconds between two looks for notices whose next try is due.
SENDING_S = 2.0
#: Waits before a failed try is repeated. After the last one the notice has failed for good.
RETRY_AFTER_MS = (10_000, 60_000, 300_000, 1_800_000)
CLEAN_MS = 3_600_000


class AlertWatch(ServiceThread):
    """The thread `alerts`: judges each new sample. measure() -> (its number, its figures); number 0: there is none."""

    def __init__(
        self, measure: Callable[[], tuple[int, Measured]], teller: Callable[[], Teller], wake: Callable[[], None]
    ) -> None:
        super().__init__("alerts")
        # Constant after construction.
        self._measure = measure
        self._teller = teller
        self._wake = wake
        # This thread's.
        self._judge: Judge | None = None
        self._judged = 0
        self._cleaned_ms = 0
        self._ages: AgeClock | None = None
        self._failures = SaidOnce()

    def run(self) -> None:
        try:
            while not self.stopped:
                self.wait(LOOK_S)
                if not self.stopped:
                    self._look()
        finally:
            connection.close()

    def _look(self) -> None:
        """Judge the newest sample if it was not judged before. Never raises: after a failure the state is read anew and
        the sample is judged the next time."""
        try:
            number, measured = self._measure()
            if number == self._judged:
                return
            from . import book  # loaded with the first sample: the start should not wait for it

            now = now_ms()
            if self._ages is None:  # before anything is stored by the present clock
                self._ages = AgeClock(self.clock, book.newest_ms())
            if self._judge is None:
                judge = book.Judge(self._teller())
                judge.begin(now)
                self._judge = judge
            self._judge.look(measured, now)
            self._judged = number
            self._wake()
            old_as_of = self._ages.now_ms()
            if not 0 <= now - self._cleaned_ms < CLEAN_MS:
                book.clean(old_as_of)
                self._cleaned_ms = now
            self._failures.went_well()
        except (DatabaseError, OSError) as error:
            self._judge = None
            connection.close()
            if self._failures.is_new(error):
                logger.error("alerts: they are judged later: %s", error)
        except Exception:
            self._judge = None
            connection.close()
            logger.exception("alerts: a look failed")


def _send(target: Target, notice: Notice) -> str | None:
    from .sending import send  # loaded with the first notice: HTTP, TLS and mail

    return send(target, notice)


class AlertSender(ServiceThread):
    """The thread `alerts-sending`: sends notices one after the other, each until it was accepted or failed for good."""

    def __init__(self, send: Callable[[Target, Notice], str | None] = _send) -> None:
        super().__init__("alerts-sending")
        # Constant after construction.
        self._send = send
        # This thread's.
        self._failures = SaidOnce()

    def run(self) -> None:
        try:
            while not self.stopped:
                self.wait(SENDING_S)
                try:
                    while not self.stopped and self.send_next(now_ms()):
                        pass
                    self._failures.went_well()
                except (DatabaseError, OSError) as error:
                    connection.close()
                    if self._failures.is_new(error):
                        logger.error("alerts: notices are sent later: %s", error)
                except Exception:
                    connection.close()
                    logger.exception("alerts: a notice could not be sent")
        finally:
            connection.close()

    def send_next(self, at_ms: int) -> bool:
        """Try to send the notice that has been due longest. Return False if none is due."""
        # A notice that is due later than any wait allows: the clock was set back.
        due = Q(next_try_ms__lte=at_ms) | Q(next_try_ms__gt=at_ms + RETRY_AFTER_MS[-1] + 60_000)
        waiting = AlertDelivery.objects.filter(due, state=AlertDelivery.State.WAITING)
        delivery = waiting.select_related("channel").order_by("next_try_ms", "id").first()
        if delivery is None:
            return False
        from . import book
        from .chat import Notice

        if delivery.channel is None:
            why: str | None = "the channel was deleted"
            delivery.tries = len(RETRY_AFTER_MS)
        else:
            try:
                why = self._send(book.target_of(delivery.channel), Notice(**delivery.notice))
            except Exception as error:  # it would be the one due longest for ever
                logger.exception("alerts: a notice could not be sent")
                why = type(error).__name__  # its text may hold the address
        note_try(delivery, why, now_ms())
        return True


def note_try(delivery: AlertDelivery, why: str | None, at_ms: int) -> None:
    """Store the outcome of a try, and the time of the next one."""
    delivery.tries += 1
    delivery.why = why or ""
    if why is None:
        delivery.state, delivery.done_ms = AlertDelivery.State.SENT, at_ms
    elif delivery.tries > len(RETRY_AFTER_MS):
        delivery.state, delivery.done_ms = AlertDelivery.State.FAILED, at_ms
        logger.error("alerts: channel %s was not told: %s", delivery.channel_name, why)
    else:
        delivery.next_try_ms = at_ms + RETRY_AFTER_MS[delivery.tries - 1]
    delivery.save(update_fields=["tries", "why", "state", "done_ms", "next_try_ms"])
