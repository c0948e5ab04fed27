"""Limits log lines that strangers can cause, to a few in a time, and those of what fails again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable


class FewLines:
    """`most` lines in `seconds`. Belongs to one thread.

    log: writes a line, as `Logger.info` does; False if it left the line out and counts it. monotonic: seconds that
    never go back. left_out: told behind a line, with the number of those left out before it.
    """

    def __init__(
        self,
        log: Callable[..., object],
        most: int,
        seconds: float,
        monotonic: Callable[[], float],
        left_out: str = " (%d more were not told of)",
    ) -> None:
        self._log = log
        self._most = most
        self._seconds = seconds
        self._monotonic = monotonic
        self._told_left_out = left_out
        self._written: list[float] = []
        #: Lines that were left out since the last one that was written.
        self.left_out = 0

    def log(self, text: str, *arguments: object) -> bool:
        """Write a line, or count it as left out. False if it is left out."""
        now = self._monotonic()
        self._written = [at for at in self._written if now - at < self._seconds]
        if len(self._written) >= self._most:
            self.left_out += 1
            return False
        if self.left_out:
            text += self._told_left_out
            arguments += (self.left_out,)
        if self._log(text, *arguments) is False:
            return False
        self._written.append(now)
        self.left_out = 0
        return True


class OncePerReason:
    """A line for each new reason for which what is tried again and again fails. Belongs to one thread.

    log: writes a line, as `Logger.error` does.
    """

    def __init__(self, log: Callable[..., object]) -> None:
        self._log = log
        self._reason = ""

    def failed(self, text: str, reason: object) -> None:
        """Write a line, whose text has one %s for the reason, unless the last try failed for it, too."""
        if str(reason) != self._reason:
            self._log(text, reason)
        self._reason = str(reason)

    def went_well(self) -> None:
        """Have the next reason told, whatever it is."""
        self._reason = ""


class SharedLines:
    """`most` lines in `seconds` of all, `most_each` of one, so that one who causes many does not hide the others.
    Each line that is left out is counted behind a later one: of the same, or of all. Belongs to one thread, or to the
    lock of its owner."""

    def __init__(
        self, log: Callable[..., None], most: int, most_each: int, seconds: float, monotonic: Callable[[], float]
    ) -> None:
        self._all = FewLines(log, most, seconds, monotonic)
        self._most = most
        self._terms = most_each, seconds, monotonic, " (%d more of the same were not told of)"
        # The one that was heard last is the last.
        self._each: OrderedDict[Hashable, FewLines] = OrderedDict()

    def log(self, whose: Hashable, text: str, *arguments: object) -> None:
        """Write a line that `whose` caused, or count it as left out."""
        lines = self._each.pop(whose, None) or FewLines(self._all.log, *self._terms)
        self._each[whose] = lines
        if len(self._each) > self._most:
            self._all.left_out += self._each.popitem(last=False)[1].left_out
        lines.log(text, *arguments)
