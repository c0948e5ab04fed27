"""Op messages that still count, kept in runs of many."""

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
    """The op messages that count. They are added in the order of their offsets."""

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()
        #: Number of op messages that count.
        self.count = 0

    def note(self, offset: int, highest: int) -> None:
        """Add an op message that lists halves up to `highest`."""
        self.count += 1
        last = self._runs[-1] if self._runs else None
        if last is None or last.count >= TOGETHER:
            self._runs.append(_Run(offset, highest))
        else:
            last.highest = max(last.highest, highest)
            last.count += 1

    def put_before(self, earlier: OpRuns) -> None:
        """Put op messages before these, as they are older than all of them."""
        runs, self._runs = self._runs, earlier._runs
        self._runs += runs
        self.count += earlier.count

    def pass_below(self, half: int) -> None:
        """Drop op messages that list only halves below `half`: none of these is open."""
        runs = self._runs
        while runs and runs[0].highest < half:
            self.count -= runs.popleft().count
        assert self.count >= len(runs), "each run has an op message that counts"

    @property
    def first(self) -> int | None:
        """Offset of the oldest op message that counts; None without any."""
        return self._runs[0].first if self._runs else None

    def highest_of_older_half(self) -> int:
        """Return the highest half message that the older half of the runs lists; -1 without any."""
        count = (len(self._runs) + 1) // 2
        return max((self._runs[index].highest for index in range(count)), default=-1)
