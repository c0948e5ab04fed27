"""Steps of the clocks that stamped the log: how far this broker's wall clock is ahead of a record's stamping clock.

    0 ............. | begin ........ | begin ......... the log's end
      ahead: 0        ahead: +1 h      ahead: 0
                      a leader whose   this broker leads
                      clock is an
                      hour behind

A store time, and what follows from it such as the time a delayed message is due, is converted to this broker's clock by
adding its distance there. When this clock is set, its distance to all earlier stamps changes by the same amount, so no
message waits shorter or longer and no file gets older or younger. Only a step while no process runs goes unnoticed,
or in the last second before a kill.

Kept in `DATA/rocketbox/clock-steps`, which exists once a clock differed: one line with a CRC (`crc_lines.py`),
`{"spans": [[begin, ahead_ms], ...]}`. A damaged file counts as none: then store times are taken as they are.
"""

from __future__ import annotations

import json
import logging
import threading
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

from ..crc_lines import line_of, only_text
from ..disk import Disk
from ..named_tuple import NamedTuple

logger = logging.getLogger(__name__)

NAME = "clock-steps"
#: Difference of the two clocks beyond slewing and rounding: this much, plus this share of the time that passed.
STEP_MS = 20.0
SLEW = 0.001
#: Spans kept; of more, the two oldest are merged into one, with the later result rather than the earlier.
MOST_SPANS = 512
_MOST_BYTES = 1 << 20


def is_step(jump_ms: float, passed_ms: float) -> bool:
    """True if the wall clock was set since the last look: its jump against a steady clock is more than slewing."""
    return abs(jump_ms) > slewed_ms(passed_ms)


def slewed_ms(passed_ms: float) -> float:
    """Return by how much a clock that is not set may differ from a steady one after a time."""
    return STEP_MS + passed_ms * SLEW


class Stamped(NamedTuple):
    """Records from physical offset `begin` on were stamped by a clock that this broker's is `ahead_ms` ahead of."""

    begin: int
    ahead_ms: int


class ClockSteps:
    """Written by one thread at a time: that of delayed messages while the broker appends, else the one that follows the
    leader. Any thread may read: the spans are replaced whole."""

    def __init__(self, path: Path, disk: Disk) -> None:
        # Constant after construction.
        self._path = path
        self._disk = disk
        #: Held while the spans change.
        self._lock = threading.Lock()
        #: Ascending; before the first one the clocks agree.
        self.spans: tuple[Stamped, ...] = ()

    def load(self, begin: int, end: int) -> None:
        """Read the spans saved by an earlier process, for a log from `begin` to `end`. Raises OSError."""
        data = self._disk.read_if_any(self._path, _MOST_BYTES)
        if data is None:
            return
        try:
            spans = json.loads(only_text(data))["spans"]
            found = sorted(Stamped(int(at), int(ahead_ms)) for at, ahead_ms in spans)
        except (ValueError, TypeError, KeyError) as error:
            logger.error("clock steps: %s is damaged, store times count as they are: %s", self._path, error)
            return
        # Spans behind the end belong to records that were cut off.
        self.spans = _within([one for one in found if one.begin <= end], begin)

    def ahead_ms(self, physical: int) -> int:
        """Return how far this broker's wall clock is ahead of the one that stamped this record. Any thread."""
        return ahead_of(self.spans, physical)

    def stamped(self, begin: int, ahead_ms: int, log_begin: int = 0) -> None:
        """Note that records from `begin` on are stamped by a clock that this one is `ahead_ms` ahead of."""
        with self._lock:
            self._take(_stamped(self.spans, begin, ahead_ms), log_begin)

    def set_by(self, ms: int, log_begin: int = 0) -> None:
        """Note that this broker's clock was set by `ms`, which adds to its distance ahead of all earlier stamps."""
        with self._lock:
            self._take(_set_by(self.spans, ms, log_begin), log_begin)

    def set_while_appending(self, ms: int, looked: int, written: int, log_begin: int = 0) -> None:
        """Like `set_by`, for a broker that stamps records itself. looked, written: records between these offsets were
        stamped before or after the setting; they count as whichever makes them later, since no message may come early.

        Both changes are saved at once: the first alone would mean that all later records are stamped by the old clock.
        """
        with self._lock:
            spans = _set_by(self.spans, ms, log_begin)
            self._take(_stamped(spans, written if ms > 0 else looked, 0), log_begin)

    def _take(self, spans: list[Stamped], log_begin: int) -> None:
        found = _within(spans, log_begin)
        if found == self.spans:
            return
        self.spans = found
        try:
            text = json.dumps({"spans": found}, separators=(",", ":")).encode()
            self._disk.replace(self._path, line_of(text))
        except OSError as error:  # the next process takes store times as they are
            logger.error("clock steps: %s cannot be written: %s", self._path, error)


def ahead_of(spans: tuple[Stamped, ...], physical: int) -> int:
    """Return `ahead_ms` of the span that a physical offset lies in; 0 before the first."""
    at = bisect_right(spans, physical, key=lambda one: one.begin)
    return spans[at - 1].ahead_ms if at else 0


def _set_by(spans: Iterable[Stamped], ms: int, log_begin: int) -> list[Stamped]:
    found = [Stamped(begin, ahead_ms + ms) for begin, ahead_ms in spans]
    if not found or found[0].begin > log_begin:
        found.insert(0, Stamped(log_begin, ms))
    return found


def _stamped(spans: Iterable[Stamped], begin: int, ahead_ms: int) -> list[Stamped]:
    before = [one for one in spans if one.begin < begin]
    if (before[-1].ahead_ms if before else 0) != ahead_ms:
        before.append(Stamped(begin, ahead_ms))
    return before


def _within(spans: list[Stamped], log_begin: int) -> tuple[Stamped, ...]:
    """Return the spans without those before the log's beginning, and without those that repeat the one before."""
    found: list[Stamped] = []
    for one in spans:
        if found and one.begin <= log_begin:
            found.pop()  # it ends at the log's beginning, or before
        if (found[-1].ahead_ms if found else 0) != one.ahead_ms:
            found.append(one)
    while len(found) > MOST_SPANS:
        found[:2] = [Stamped(found[0].begin, max(found[0].ahead_ms, found[1].ahead_ms))]
    return tuple(found)
