"""Op messages that still count, as runs: many are kept as one."""

from __future__ import annotations

from collections import deque

import msgspec

#: Op messages in a run.
TOGETHER = 64


class _Run(msgspec.Struct, gc=False):
    """first: the offset of its first op message. highest: the highest half that one of them lists."""

    first: int
    highest: int
    count: int = 1


class OpRuns:
    """Offsets come in their order."""

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()
        #: Op messages that count.
        self.count = 0

    def note(self, offset: int, highest: int) -> None:
        """An op message that lists halves up to `highest`."""
        self.count += 1
        last = self._runs[-1] if self._runs else None
        if last is None or last.count >= TOGETHER:
            self._runs.append(_Run(offset, highest))
        else:
            last.highest = max(last.highest, highest)
            last.count += 1

    def put_before(self, earlier: OpRuns) -> None:
        """Those are older than all of these."""
        runs, self._runs = self._runs, earlier._runs
        self._runs += runs
        self.count += earlier.count

    def pass_below(self, half: int) -> None:
        """No half below is open: what lists only such ones does not count."""
        runs = self._runs
        while runs and runs[0].highest < half:
            self.count -= runs.popleft().count

    @property
    def first(self) -> int | None:
        """The offset of the oldest one that counts."""
        return self._runs[0].first if self._runs else None

    def highest_of_older_half(self) -> int:
        """The highest half that the older half of the runs lists; -1 without any."""
        count = (len(self._runs) + 1) // 2
        return max((self._runs[index].highest for index in range(count)), default=-1)
