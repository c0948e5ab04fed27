"""The marks of one unique key, topic and TIMER_OUT_MS, by which some of its records no longer count.

Clients choose their keys, and two messages may have the same. So a mark names the record that it is for by its queue
offset in the timer topic, which only the broker assigns:

    the copy of a record that was rolled  ROCKETBOX_TIMER_FIRST: place of the message's first record; the newest counts
    a mark of an administrator's act      ROCKETBOX_TIMER_OF: the first record of the message that it takes out
    a recall, a client's own mark         names no record: as with Apache it takes out all messages of the key that
                                          were stored before it

Records of older versions and of Apache say less. A copy that does not name its original replaces the records that were
stored until TIMER_ENQUEUE_MS, when its message began to wait; any mark of its key takes it out.
"""

from __future__ import annotations

from .waiting import Timed


class KeyMarks:
    """The marks for one key and TIMER_OUT_MS."""

    __slots__ = ("_below", "_copies", "_newest", "_places")

    def __init__(self) -> None:
        #: First record of the last mark that names no record: messages whose first record lies below are cancelled.
        self._below = -1
        self._places: set[int] = set()
        #: Queue offset of the first record -> (roll times, queue offset) of the record that counts.
        self._newest: dict[int, tuple[int, int]] = {}
        #: Copies that do not name their original: (roll times, queue offset, TIMER_ENQUEUE_MS).
        self._copies: list[tuple[int, int, int]] = []

    def note(self, timed: Timed, queue_offset: int) -> None:
        """Add a mark. queue_offset: of its record."""
        if timed.cancels is not None:
            if timed.takes_out >= 0:
                self._places.add(timed.takes_out)
            else:
                self._below = max(self._below, timed.first_of(queue_offset).queue_offset)
        elif timed.first is not None:
            first = timed.first.queue_offset
            self._newest[first] = max(self._newest.get(first, (0, -1)), (timed.roll_times, queue_offset))
        else:
            self._copies.append((timed.roll_times, queue_offset, timed.enqueued_ms))

    def is_cancelled(self, timed: Timed, queue_offset: int) -> bool:
        """True if a mark cancels the message: one of a recall or a client, or of an administrator's act."""
        first = timed.first_of(queue_offset)
        return first.queue_offset in self._places or self._below > (-1 if first.roll_times else first.queue_offset)

    def is_replaced(self, timed: Timed, queue_offset: int, stored_ms: int) -> bool:
        """True if the message was rolled since, so that a newer record counts in place of this one."""
        first = timed.first_of(queue_offset, stored_ms)
        if (timed.roll_times, queue_offset) < self._newest.get(first.queue_offset, (0, -1)):
            return True
        return any(
            first.roll_times < times and first.queue_offset < offset and (not until_ms or first.stored_ms <= until_ms)
            for times, offset, until_ms in self._copies
        )
