"""Limits log lines that strangers can cause to a few in a time; the next line has the number of those left out."""

from __future__ import annotations

from collections.abc import Callable


class FewLines:
    """`most` lines in `seconds`. Belongs to one thread.

    log: writes a line, as `Logger.info` does. monotonic: seconds that never go back.
    """

    def __init__(self, log: Callable[..., None], most: int, seconds: float, monotonic: Callable[[], float]) -> None:
        self._log = log
        self._most = most
        self._seconds = seconds
        self._monotonic = monotonic
        self._written: list[float] = []
        self._left_out = 0

    def log(self, text: str, *arguments: object) -> None:
        """Write a line, or count it as left out."""
        now = self._monotonic()
        self._written = [at for at in self._written if now - at < self._seconds]
        if len(self._written) >= self._most:
            self._left_out += 1
            return
        self._written.append(now)
        if self._left_out:
            text += " (%d more were not told of)"
            arguments += (self._left_out,)
            self._left_out = 0
        self._log(text, *arguments)
