"""Who acts on a message that waits for its time: delivery, a recall or an administrator, never two of them.

A mark takes a message out of the schedule, but the schedule learns of it when it is published, some time after it was
staged. A claim covers that time. Delivery closes everything that is due until now (`close`): nobody claims that any
more, and whoever had claimed it has published his mark or given up by the time it returns; so delivery reads what is
new in the queue then, and meets every mark that counts.
"""

from __future__ import annotations

import enum
import threading


class Claim(enum.Enum):
    """YOURS, to be released; or TOO_LATE: delivery has it; or TAKEN: somebody else acts on it."""

    YOURS = "yours"
    TOO_LATE = "too_late"
    TAKEN = "taken"


class Claims:
    """Any thread. Memory: what is under way."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # Guarded by _changed.
        self._closed_ms = -1
        #: (out_ms, key) -> how many recalls of it are under way, or 0 for one act that tolerates no other.
        self._held: dict[tuple[int, str], int] = {}

    def claim(self, key: str, out_ms: int, alone: bool) -> Claim:
        """Claim the messages with this key (`topic+unique key`) and TIMER_OUT_MS. alone: two recalls of one message may
        go on at once, anything else may not."""
        place = (out_ms, key)
        with self._changed:
            if out_ms < self._closed_ms:
                return Claim.TOO_LATE
            held = self._held.get(place)
            if held is None:
                self._held[place] = 0 if alone else 1
            elif alone or not held:
                return Claim.TAKEN
            else:
                self._held[place] = held + 1
            return Claim.YOURS

    def release(self, key: str, out_ms: int) -> None:
        """The mark is published, or there will be none."""
        place = (out_ms, key)
        with self._changed:
            held = self._held.pop(place, 0)
            if held > 1:
                self._held[place] = held - 1
            elif out_ms < self._closed_ms:
                self._changed.notify_all()

    def close(self, until_ms: int, timeout_s: float) -> bool:
        """Delivery takes what is due until then, that included. False when somebody still acts on some of it after
        `timeout_s`: ask again. Times that are closed stay so."""
        with self._changed:
            self._closed_ms = max(self._closed_ms, until_ms)
            return self._changed.wait_for(self._free, timeout_s)

    def _free(self) -> bool:
        return not self._held or min(self._held)[0] >= self._closed_ms
