"""Keeps the newest lines of this process's log in memory, for the page that shows them."""

from __future__ import annotations

import itertools
import logging
from collections import deque

from ...errors import InvalidInput
from ...log_lines import text_of
from ..refusals import require_within
from ..sentences import say
from .system_snapshots import LogLine

#: Records kept, and characters kept of one.
KEPT = 10_000
LINE_CHARACTERS = 2_000


class LogRing(logging.Handler):
    """A handler of the root logger. It keeps KEPT lines at most, so a flood of lines takes bounded memory."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._lines: deque[tuple[int, LogLine]] = deque(maxlen=KEPT)
        self._numbers = itertools.count(1)

    def install(self) -> None:
        logging.getLogger().addHandler(self)

    def remove(self) -> None:
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record. Called by the logging thread under the handler's lock."""
        try:
            text = text_of(record)
        except Exception:
            self.handleError(record)
            return
        line = LogLine(
            next(self._numbers),
            int(record.created * 1000),
            record.levelname,
            record.name,
            record.threadName or "",
            text[:LINE_CHARACTERS],
        )
        self._lines.append((record.levelno, line))

    def lines(self, level: str = "DEBUG", q: str = "", after: int = 0, limit: int = 200) -> tuple[LogLine, ...]:
        """Return the newest lines of this process's log that match, oldest first.

        level: this one and worse. q: part of the text or the logger's name. after: only lines with a larger number.
        limit: 1 to 10,000.
        """
        least = logging.getLevelNamesMapping().get(level.upper())
        if least is None:
            raise InvalidInput("level", say("one_of", field="level", choices="DEBUG, INFO, WARNING, ERROR, CRITICAL"))
        require_within("limit", limit, 1, KEPT)
        needle = q.strip().lower()
        found: list[LogLine] = []
        for number, line in reversed(list(self._lines)):
            if line.number <= after or len(found) == limit:
                break
            if number >= least and (not needle or needle in line.text.lower() or needle in line.logger.lower()):
                found.append(line)
        return tuple(reversed(found))
