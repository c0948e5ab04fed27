"""The client's log: what goes wrong and mends itself. A sentence that repeats is one line a minute, with a count."""

from __future__ import annotations

import logging
import threading
import time

logger = logging.getLogger("rocketbox.client")
logger.addHandler(logging.NullHandler())

_QUIET_S = 60.0
#: Different sentences that are remembered.
_KEPT = 256


class Notes:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Sentence -> (when it may be said again, how often it was not said).
        self._said: dict[str, tuple[float, int]] = {}

    def note(self, text: str) -> None:
        """Log a sentence, unless it was said in the last minute."""
        now = time.monotonic()
        with self._lock:
            until, held_back = self._said.get(text, (0.0, 0))
            if now < until:
                self._said[text] = (until, held_back + 1)
                return
            if len(self._said) >= _KEPT:
                self._said.clear()
            self._said[text] = (now + _QUIET_S, 0)
        logger.warning("%s%s", text, f" (and {held_back} times more)" if held_back else "")

    def flush(self) -> None:
        """Say how often sentences were held back."""
        with self._lock:
            left = [(text, count) for text, (_, count) in self._said.items() if count]
            self._said.clear()
        for text, count in left:
            logger.warning("%s (and %d times more)", text, count)
