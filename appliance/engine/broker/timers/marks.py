"""What marks say of the records of one unique key, topic and TIMER_OUT_MS: which of them do not count any more.

A key is what a client wrote, and two messages may have the same. So a mark names the record that it is for by its
queue offset in the timer topic, which is nobody's but the broker's:

    a record that was stored once more    ROCKETBOX_TIMER_FIRST: where the first one of them lay; the newest counts
    a mark of an administrator's act      ROCKETBOX_TIMER_OF: the first record of the message that it takes out
    a recall, a client's own mark         names nothing: as with Apache it takes out all messages of the key, of those
                                          that were stored before it

Records of older versions and of Apache say less. One that was stored once more without saying of what takes the place
of those that were stored until TIMER_ENQUEUE_MS, when its message began to wait; any mark of its key takes it out.
"""

from __future__ import annotations

from .waiting import Timed


class KeyMarks:
    """The marks for one key and TIMER_OUT_MS."""

    __slots__ = ("_below", "_copies", "_newest", "_places")

    def __init__(self) -> None:
        #: A mark without a place: messages whose first record lies below it are cancelled.
        self._below = -1
        self._places: set[int] = set()
        #: First record -> (roll times, queue offset) of the record that counts.
        self._newest: dict[int, tuple[int, int]] = {}
        #: Of records that say not of what they are copies: (roll times, queue offset, TIMER_ENQUEUE_MS).
        self._copies: list[tuple[int, int, int]] = []

    def note(self, timed: Timed, queue_offset: int) -> None:
        """A mark was met."""
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
        """Whether a message was taken back, or dealt with early."""
        first = timed.first_of(queue_offset)
        return first.queue_offset in self._places or self._below > (-1 if first.roll_times else first.queue_offset)

    def is_replaced(self, timed: Timed, queue_offset: int, stored_ms: int) -> bool:
        """Whether a message's record was stored once more, so that a newer one counts."""
        first = timed.first_of(queue_offset, stored_ms)
        if (timed.roll_times, queue_offset) < self._newest.get(first.queue_offset, (0, -1)):
            return True
        return any(
            first.roll_times < times and first.queue_offset < offset and (not until_ms or first.stored_ms <= until_ms)
            for times, offset, until_ms in self._copies
        )
