"""Who acts on a message that waits for its time: delivery, a recall or an administrator, never two of them.

A mark takes a message out of the schedule, but the schedule learns of it when it is published, some time after it was
staged. A claim covers that time, of messages with one key (`topic+unique key`) and TIMER_OUT_MS, and holds up nobody
else:

    delivery                                          somebody who acts
      enter(key, out_ms)                                claim(key, out_ms, who)   too late for what delivery entered
        False while it is claimed, or while its mark    stage the mark, wait until it is published
        is not in the index: later                    release(key, out_ms, end)  end: of the timer topic, by then
      leave(key, out_ms) when its copy is published

So delivery meets every mark that was answered. What was delivered before the clock was set back looks as if it were
not due yet: of times up to where delivery has been (`reached_ms`) a recall has to look whether the message waits.
"""

from __future__ import annotations

import enum
import threading

#: Of messages that came before their time by the wall clock so many are known; of more the oldest are forgotten.
MOST_EARLY = 65_536
#: Who claims: recalls of one message may go on at once, as they do the same.
RECALLS = object()


class Claim(enum.Enum):
    """YOURS, to be released; or TOO_LATE: delivery has it; or TAKEN: somebody else acts on it."""

    YOURS = "yours"
    TOO_LATE = "too_late"
    TAKEN = "taken"


class Claims:
    """Any thread. Memory: what is under way, and what came early."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock; places are (out_ms, key).
        self._held: dict[tuple[int, str], tuple[object, int]] = {}
        #: Marks that are published: up to where the index has to be to know them.
        self._ends: dict[tuple[int, str], int] = {}
        self._entered: dict[tuple[int, str], int] = {}
        self._early: dict[tuple[int, str], None] = {}
        #: Delivery has been so far; wall ms by the clock as it was then. Written by delivery.
        self.reached_ms = -1

    def claim(self, key: str, out_ms: int, who: object) -> Claim:
        """Claim the messages with this key and TIMER_OUT_MS. who: may have them several times at once."""
        place = (out_ms, key)
        with self._lock:
            if place in self._entered or place in self._early:
                return Claim.TOO_LATE
            holder, times = self._held.get(place, (who, 0))
            if holder is not who:
                return Claim.TAKEN
            self._held[place] = (who, times + 1)
            return Claim.YOURS

    def release(self, key: str, out_ms: int, end: int) -> None:
        """The mark is published, or there will be none. end: a queue offset behind it; 0 without one."""
        place = (out_ms, key)
        with self._lock:
            holder, times = self._held[place]
            if times > 1:
                self._held[place] = (holder, times - 1)
            else:
                del self._held[place]
            if end:
                self._ends[place] = max(end, self._ends.get(place, 0))

    # --- delivery

    def enter(self, key: str, out_ms: int) -> bool:
        """Delivery takes a message; False when that has to wait."""
        place = (out_ms, key)
        with self._lock:
            if place in self._held or place in self._ends:
                return False
            self._entered[place] = self._entered.get(place, 0) + 1
            return True

    def is_free(self, key: str, out_ms: int) -> bool:
        """Whether it may be entered now."""
        place = (out_ms, key)
        return place not in self._held and place not in self._ends

    def leave(self, key: str, out_ms: int, is_early: bool = False) -> None:
        """It is delivered, or was not. is_early: it is delivered, and not due yet by the wall clock."""
        place = (out_ms, key)
        with self._lock:
            times = self._entered.pop(place)
            if times > 1:
                self._entered[place] = times - 1
            if is_early:
                self._early[place] = None
                if len(self._early) > MOST_EARLY:
                    del self._early[next(iter(self._early))]

    def indexed(self, end: int, wall_ms: int) -> None:
        """The index knows all below a queue offset."""
        if self._ends:
            with self._lock:
                for place in [place for place, needed in self._ends.items() if needed <= end]:
                    del self._ends[place]
        if self._early:
            with self._lock:
                for place in [place for place in self._early if place[0] < wall_ms]:
                    del self._early[place]

    def forget_entered(self) -> None:
        """Delivery begins anew."""
        with self._lock:
            self._entered.clear()
