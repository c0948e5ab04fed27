"""Combines reads of the log that lie near each other into one.

Each read releases the GIL, and while remoting-io is busy it takes a while to get it back. So due messages do not take a
read each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ...store.log.commit_log import CommitLog

#: Most bytes of one read; largest gap between two records in one read; longer records are read by themselves.
_MOST_BYTES, _GAP_BYTES, _LONG_BYTES = 256 * 1024, 8 * 1024, 32 * 1024


class SpanReader:
    """Belongs to one thread. Memory: the records that are expected at a time, with the gaps between them."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._data: list[bytes | None] = []

    def expect(self, places: Iterable[tuple[int, int]]) -> None:
        """Announce the next records to read: physical offset and size of each. Data read before is dropped."""
        self._begins, self._ends = [], []
        for physical, size in sorted(places):
            if not 0 < size <= _LONG_BYTES:
                continue
            end = physical + size
            if self._begins and physical <= self._ends[-1] + _GAP_BYTES and end - self._begins[-1] <= _MOST_BYTES:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(physical)
                self._ends.append(end)
        self._data = [None] * len(self._begins)

    def read(self, physical: int, size: int) -> bytes:
        """Return the same as `CommitLog.read`. Raises OSError."""
        at = bisect_right(self._begins, physical) - 1
        if at < 0 or physical + size > self._ends[at]:
            return self._log.read(physical, size)
        data = self._data[at]
        if data is None:
            data = self._data[at] = self._log.read(self._begins[at], self._ends[at] - self._begins[at])
        begin = physical - self._begins[at]
        # The data is short where a log file ends.
        return data[begin : begin + size] if begin + size <= len(data) else self._log.read(physical, size)
