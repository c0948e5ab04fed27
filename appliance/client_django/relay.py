"""Sends what the outbox holds. Any number of relays may work at once.

A relay takes one lane after the other, for a time: it writes its name and the end of that time into the lane's row,
and renews that long before. Others take the lane when it was let go, or when they have seen its row stand still for
this time, by steady clocks of their own. The database's clock only makes each renewal another: set forward it would let
two relays into a lane, set back none. A relay sends before it deletes, so a message is sent again if the relay dies in
between, and its row waits for the lane's time to end. Of one key there is one message on its way, and the next one
follows when that is confirmed; so the order remains when a send fails. A message that cannot be sent is tried for
ever, later and later, and holds up its own key only.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from django.db import connections, models, transaction
from django.db.models import F, Q, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Now

from .models import LANES, OutboxLane, OutboxMessage
from .sdk import ClientError, Producer

logger = logging.getLogger("rocketbox.outbox")

#: Time for which a lane is taken. A round of sends ends long before: a client's time-out is 3 s unless told otherwise.
LEASE_S = 60.0
_BATCH = 500
_BATCH_BYTES = 16 << 20
_LONGEST_PAUSE_S = 30.0
_ERROR_CHARACTERS = 1000


class LaneLost(Exception):
    """Another relay has the lane, because this one was slower than its lease."""


class Relay:
    def __init__(
        self,
        database: str,
        producer: Producer,
        monotonic: Callable[[], float],
        is_ending: Callable[[], bool] = lambda: False,
        lease_s: float = LEASE_S,
    ) -> None:
        """database: its alias. is_ending: asked between sends; True ends the pass."""
        self.name = uuid.uuid4().hex
        self._database = database
        self._producer = producer
        self._monotonic = monotonic
        self._is_ending = is_ending
        self._lease_s = lease_s
        self._renew_at = 0.0
        #: Lane of another relay -> (its row, when that was first seen).
        self._seen: dict[int, tuple[object, float]] = {}

    def prepare(self) -> None:
        """Make the lanes that are missing."""
        lanes = [OutboxLane(lane=lane) for lane in range(LANES)]
        OutboxLane.objects.using(self._database).bulk_create(lanes, ignore_conflicts=True)

    def send_all(self) -> int:
        """Send what is due in lanes that no other relay has. Returns the number of messages that were confirmed.
        Raises django.db.Error; messages that were sent, and are still there, are sent again."""
        sent = 0
        lanes = list(self._due().values_list("lane", flat=True).distinct().order_by("lane"))
        random.shuffle(lanes)  # several relays begin with different ones
        for lane in lanes:
            if self._is_ending():
                break
            if self._take(lane):
                try:
                    sent += self._send_lane(lane)
                except LaneLost:
                    logger.warning("lane %d of the outbox went to another relay: this one was too slow", lane)
                finally:
                    self._let_go(lane)
        return sent

    # --- lanes

    def _lane(self, lane: int) -> models.QuerySet[OutboxLane]:
        return OutboxLane.objects.using(self._database).filter(pk=lane)

    def _take(self, lane: int) -> bool:
        free = self._lane(lane).filter(until=None)
        if connections[self._database].features.has_select_for_update_skip_locked:
            with transaction.atomic(using=self._database):
                # If another relay is at the row, this one goes to the next lane and does not wait.
                taken = bool(list(free.select_for_update(skip_locked=True))) and self._hold(free)
        else:
            taken = self._hold(free)
        return taken or self._take_left(lane)

    def _take_left(self, lane: int) -> bool:
        """Take a lane whose relay has not renewed its lease for as long as it lasts."""
        row = self._lane(lane).values_list("relay", "until").first()
        seen, since = self._seen.get(lane, (None, 0.0))
        now = self._monotonic()
        if row is None or row != seen:
            self._seen[lane] = row, now
            return False
        return now - since >= self._lease_s and self._hold(self._lane(lane).filter(relay=row[0], until=row[1]))

    def _hold(self, rows: models.QuerySet[OutboxLane]) -> bool:
        began = self._monotonic()
        until = _in(self._lease_s)
        self._renew_at = began + self._lease_s / 3
        return rows.update(relay=self.name, until=until) == 1

    def _check_lease(self, lane: int) -> None:
        """Renew the lease when a third of it has passed. Raises LaneLost."""
        if self._monotonic() >= self._renew_at and not self._hold(self._lane(lane).filter(relay=self.name)):
            raise LaneLost

    def _let_go(self, lane: int) -> None:
        self._lane(lane).filter(relay=self.name).update(relay="", until=None)

    # --- messages

    def _due(self) -> models.QuerySet[OutboxMessage]:
        return OutboxMessage.objects.using(self._database).exclude(_waits())

    def _batch_of(self, lane: int) -> list[OutboxMessage]:
        """Return the lane's first messages that may be sent now: none behind one of its key that waits."""
        rows = OutboxMessage.objects.using(self._database)
        waiting = rows.filter(_waits(), lane=lane).exclude(key="").values("key")
        due = self._due().filter(lane=lane).exclude(key__in=waiting).order_by("id")
        chosen: list[int] = []
        size = 0
        for pk, more in due.values_list("pk", "size")[:_BATCH]:
            size += more
            if chosen and size > _BATCH_BYTES:
                break
            chosen.append(pk)
        return list(rows.filter(pk__in=chosen).order_by("id"))

    def _send_lane(self, lane: int) -> int:
        sent = 0
        while not self._is_ending():
            rows = self._batch_of(lane)
            if not rows:
                break
            sent += self._send(lane, rows)
        return sent

    def _send(self, lane: int, rows: Iterable[OutboxMessage]) -> int:
        """Send rows in rounds, of each key one message a round."""
        lines: dict[Any, deque[OutboxMessage]] = {}
        for row in rows:
            lines.setdefault(row.key or row.pk, deque()).append(row)
        sent = 0
        while lines and not self._is_ending():
            self._check_lease(lane)
            outcomes = self._round([line[0] for line in lines.values()])
            confirmed = [row.pk for row, error in outcomes if error is None]
            OutboxMessage.objects.using(self._database).filter(pk__in=confirmed).delete()
            sent += len(confirmed)
            failed = [(row, error) for row, error in outcomes if error is not None]
            self._put_off(failed)
            for row, error in outcomes:
                line = lines[row.key or row.pk]
                line.popleft()
                if error is not None or not line:
                    del lines[row.key or row.pk]
        return sent

    def _round(self, rows: Iterable[OutboxMessage]) -> list[tuple[OutboxMessage, ClientError | None]]:
        """Send rows; return those that were sent, and their errors. It ends early when the lease is to be renewed: a
        full producer has a send wait."""
        begun: list[tuple[OutboxMessage, Any]] = []
        for row in rows:
            if begun and (self._monotonic() >= self._renew_at or self._is_ending()):
                break
            try:
                begun.append((row, self._producer.submit(row.as_message())))
            except ClientError as error:
                begun.append((row, error))
        outcomes: list[tuple[OutboxMessage, ClientError | None]] = []
        for row, promised in begun:
            found: ClientError | None = None
            if isinstance(promised, ClientError):
                found = promised
            else:
                try:
                    promised.result()
                except ClientError as error:
                    found = error
            outcomes.append((row, found))
        return outcomes

    def _put_off(self, failed: Iterable[tuple[OutboxMessage, ClientError]]) -> None:
        alike: dict[tuple[int, str], list[OutboxMessage]] = {}
        for row, error in failed:
            alike.setdefault((row.attempts, f"{error}"[:_ERROR_CHARACTERS]), []).append(row)
        for (attempts, text), rows in alike.items():
            pause = min(_LONGEST_PAUSE_S, 2.0 ** min(attempts, 10))
            logger.warning(
                "the outbox tries %d messages again in %g s, the first is %s, attempt %d: %s",
                *(len(rows), pause, rows[0], attempts + 1, text),
            )
            OutboxMessage.objects.using(self._database).filter(pk__in=[row.pk for row in rows]).update(
                attempts=F("attempts") + 1,
                error=text.replace("\0", ""),
                next_at=_in(pause),
            )


def _in(seconds: float) -> Combinable:
    return Now() + Value(timedelta(seconds=seconds), output_field=models.DurationField())


def _waits() -> Q:
    """True for a message that is not tried again yet. One that waits for longer than any does was put off before the
    database's clock was set back."""
    return Q(next_at__isnull=False, next_at__gt=Now(), next_at__lt=_in(2 * _LONGEST_PAUSE_S))
