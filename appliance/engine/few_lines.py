"""Limits log lines that strangers can cause to a few in a time; the next line has the number of those left out."""

from __future__ import annotations

from collections.abc import Callable


class FewLines:
    """`most` lines in `seconds`. Belongs to one thread. monotonic: seconds that never go back."""

    def __init__(self, most: int, seconds: float, monotonic: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._monotonic = monotonic
        self._written: list[float] = []
        self._left_out = 0

    def left_out(self) -> int | None:
        """Return None if no line may be written now, else the number of lines left out before this one."""
        now = self._monotonic()
        self._written = [at for at in self._written if now - at < self._seconds]
        if len(self._written) >= self._most:
            self._left_out += 1
            return None
        self._written.append(now)
        left_out, self._left_out = self._left_out, 0
        return left_out
