"""Claims on messages that wait for their time: delivery, a recall or an administrator acts on one, never two of them.

A mark takes a message out of the schedule, but it reaches the schedule when it is published, some time after it was
staged. A claim covers that time. It is for the messages with one key (`topic+unique key`) and TIMER_OUT_MS, and holds
up no others:

    delivery                                          a recall or an administrator
      enter(key, out_ms)                                claim(key, out_ms, who)   too late for what delivery entered
        False while it is claimed, or while its mark    stage the mark, wait until it is published
        is not in the index: later                    release(key, out_ms, end)  end: of the timer topic, by then
      leave(key, out_ms) when its copy is published

So delivery meets every mark that was acknowledged. A message that was delivered before the clock was set back looks as
if it were not due yet. For times up to where delivery has been (`reached_ms`), a recall therefore checks that the
message waits.
"""

from __future__ import annotations

import enum
import threading

#: Most messages remembered that were delivered before their time by the wall clock; the oldest are dropped.
MOST_EARLY = 65_536
#: `who` of all recalls: those of one message may go on at once, as they do the same.
RECALLS = object()


class Claim(enum.Enum):
    """Result of a claim. YOURS: it is to be released. TOO_LATE: delivery has the message. TAKEN: another has the
    claim."""

    YOURS = "yours"
    TOO_LATE = "too_late"
    TAKEN = "taken"


class Claims:
    """Any thread. Memory: messages that are acted on or delivered at the moment, and those delivered early."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock; places are (out_ms, key).
        self._held: dict[tuple[int, str], tuple[object, int]] = {}
        #: Published marks: queue offset that the index has to reach to contain them.
        self._ends: dict[tuple[int, str], int] = {}
        self._entered: dict[tuple[int, str], int] = {}
        self._early: dict[tuple[int, str], None] = {}
        #: Time that delivery has reached; wall ms by the clock as it was then. Written by delivery.
        self.reached_ms = -1

    def claim(self, key: str, out_ms: int, who: object) -> Claim:
        """Claim the messages with this key and TIMER_OUT_MS. who: the owner, which may claim them several times."""
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
        """End a claim: the mark is published, or there will be none. end: a queue offset behind it; 0 without one."""
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
        """Enter a message that delivery takes; False if that has to wait."""
        place = (out_ms, key)
        with self._lock:
            if place in self._held or place in self._ends:
                return False
            self._entered[place] = self._entered.get(place, 0) + 1
            return True

    def is_free(self, key: str, out_ms: int) -> bool:
        """True if delivery may enter the message now."""
        place = (out_ms, key)
        return place not in self._held and place not in self._ends

    def leave(self, key: str, out_ms: int, is_early: bool = False) -> None:
        """End what `enter` began, whether the message was delivered or not. is_early: it was delivered, and is not due
        yet by the wall clock."""
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
        """Note that the index has all records below a queue offset; forget early deliveries that are due by now."""
        if self._ends:
            with self._lock:
                for place in [place for place, needed in self._ends.items() if needed <= end]:
                    del self._ends[place]
        if self._early:
            with self._lock:
                for place in [place for place in self._early if place[0] < wall_ms]:
                    del self._early[place]

    def forget_entered(self) -> None:
        """Forget what delivery has entered, as it begins anew."""
        with self._lock:
            self._entered.clear()
