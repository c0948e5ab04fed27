"""Steps of the clocks that stamped the log: how far this broker's wall clock is ahead of the one that stamped a record.

    0 ............. | begin ........ | begin ......... the log's end
      ahead: 0        ahead: +1 h      ahead: 0
                      a leader whose   this broker leads
                      clock is an
                      hour behind

A store time and what follows from it, such as when a delayed message is due, is read on this broker's clock by adding
what it is ahead there. When this clock is set, it is ahead of all stamps so far by as much more; so nothing waits
shorter or longer for it, and no file is older or younger. A step while no process runs is not seen.

Kept in `DATA/rocketbox/clock-steps`, which is there once a clock differed: one line with a CRC (`crc_lines.py`),
`{"spans": [[begin, ahead_ms], ...]}`. A damaged file is as good as none: the wall clock counts then.
"""

from __future__ import annotations

import json
import logging
import threading
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

from ..crc_lines import line_of, text_of
from ..named_tuple import NamedTuple
from .disk import Disk

logger = logging.getLogger(__name__)

NAME = "clock-steps"
#: A difference of the two clocks that is more than slewing and rounding: so much, and so much of the time that passed.
STEP_MS = 20.0
SLEW = 0.001
#: Spans kept; of more the two oldest become one, which is late rather than early.
MOST_SPANS = 512
_MOST_BYTES = 1 << 20


def is_step(jump_ms: float, passed_ms: float) -> bool:
    """Whether a difference of the wall clock and a steady one since the last look is one that somebody made."""
    return abs(jump_ms) > STEP_MS + passed_ms * SLEW


class Stamped(NamedTuple):
    """Records from `begin` on, a physical offset, were stamped by a clock that this broker's is ahead of by so much."""

    begin: int
    ahead_ms: int


class ClockSteps:
    """Written by one thread at a time: that of delayed messages where the broker appends, else the one that asks the
    leader. Read by any: the spans are replaced whole."""

    def __init__(self, path: Path, disk: Disk) -> None:
        # Constant after construction.
        self._path = path
        self._disk = disk
        #: Guards changes.
        self._lock = threading.Lock()
        #: Ascending; before the first one the clocks agree.
        self.spans: tuple[Stamped, ...] = ()

    def load(self, begin: int, end: int) -> None:
        """Read what an earlier life knew of a log that begins and ends there. Raises OSError."""
        try:
            fd = self._disk.open(self._path, read_only=True)
        except FileNotFoundError:
            return
        try:
            size = self._disk.size(fd)
            data = self._disk.pread(fd, min(size, _MOST_BYTES), 0)
        finally:
            self._disk.close(fd)
        try:
            text = text_of(data.removesuffix(b"\n"))
            if text is None:
                raise ValueError("its checksum does not match")
            found = sorted(Stamped(int(at), int(ahead_ms)) for at, ahead_ms in json.loads(text)["spans"])
        except (ValueError, TypeError, KeyError) as error:
            logger.error("clock steps: %s is damaged, store times count as they are: %s", self._path, error)
            return
        # What lay behind the end was cut off.
        self.spans = _within([one for one in found if one.begin <= end], begin)

    def ahead_ms(self, physical: int) -> int:
        """By how much this broker's wall clock is ahead of the one that stamped the record there. Any thread."""
        return ahead_of(self.spans, physical)

    def stamped(self, begin: int, ahead_ms: int, log_begin: int = 0) -> None:
        """From `begin` on records are stamped by a clock that this one is ahead of by so much."""
        with self._lock:
            self._take(_stamped(self.spans, begin, ahead_ms), log_begin)

    def set_by(self, ms: int, log_begin: int = 0) -> None:
        """This broker's clock was set: it is ahead of all that was stamped so far by as much more."""
        with self._lock:
            self._take(_set_by(self.spans, ms, log_begin), log_begin)

    def set_while_appending(self, ms: int, looked: int, written: int, log_begin: int = 0) -> None:
        """The same, of a broker that stamps records itself. looked, written: what lies between was stamped before it
        was set or after; it counts as what makes it later, as nothing may come early.

        Saved in one: the first half alone says that all that is yet to come is stamped by the old clock.
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
        except OSError as error:  # the next life takes store times as they are
            logger.error("clock steps: %s cannot be written: %s", self._path, error)


def ahead_of(spans: tuple[Stamped, ...], physical: int) -> int:
    """What spans say of a physical offset."""
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
    """Without what is before the log's begin, and what says the same as the one before it."""
    found: list[Stamped] = []
    for one in spans:
        if found and one.begin <= log_begin:
            found.pop()  # it ends where the log begins, or before
        if (found[-1].ahead_ms if found else 0) != one.ahead_ms:
            found.append(one)
    while len(found) > MOST_SPANS:
        found[:2] = [Stamped(found[0].begin, max(found[0].ahead_ms, found[1].ahead_ms))]
    return tuple(found)
