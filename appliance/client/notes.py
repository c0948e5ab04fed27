"""The client's log: warnings of problems that pass by themselves, and news, which are no problems. A repeated sentence
is one line a minute, with a count."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

logger = logging.getLogger("rocketbox.client")
logger.addHandler(logging.NullHandler())

_QUIET_S = 60.0
#: Most different sentences that are remembered.
_KEPT = 256


class Notes:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Sentence -> (time when it may be logged again, number of times it was held back).
        self._said: dict[str, tuple[float, int]] = {}
        #: Levels and lines that `say` logs.
        self.waiting: deque[tuple[int, str]] = deque()

    def note(self, text: str) -> None:
        """Log a sentence, unless it was logged in the last minute."""
        self.keep(text)
        self.say()

    def keep_news(self, text: str) -> None:
        """Keep a sentence about what is no problem."""
        self.keep(text, logging.INFO)

    def keep(self, text: str, level: int = logging.WARNING) -> None:
        """Do the same as `note`, for callers that hold a lock: the next `say` logs it. Handlers of logs are the user's,
        and may use the client."""
        now = time.monotonic()
        with self._lock:
            until, held_back = self._said.get(text, (0.0, 0))
            if now < until:
                self._said[text] = (until, held_back + 1)
                return
            if len(self._said) >= _KEPT:
                self._said.clear()
            self._said[text] = (now + _QUIET_S, 0)
        self.waiting.append((level, text + (f" (and {held_back} times more)" if held_back else "")))

    def say(self) -> None:
        """Log what was kept."""
        while self.waiting:
            try:
                level, line = self.waiting.popleft()
            except IndexError:  # another thread was faster
                return
            logger.log(level, "%s", line)

    def flush(self) -> None:
        """Log how often sentences were held back."""
        with self._lock:
            left = [(text, count) for text, (_, count) in self._said.items() if count]
            self._said.clear()
        for text, count in left:
            logger.warning("%s (and %d times more)", text, count)
