"""Failures of a thread that tries again and again: the same failure is logged only once."""

from __future__ import annotations


class SaidOnce:
    """Remembers the last failure. Owned by the thread that tries."""

    def __init__(self) -> None:
        self._said = ""

    def is_new(self, error: Exception) -> bool:
        """True if the last try did not fail in the same words: then it is worth a line of the log."""
        text, before = str(error) or repr(error), self._said
        self._said = text
        return text != before

    def went_well(self) -> None:
        """Note that a try succeeded: the next failure is new, even in the same words."""
        self._said = ""
