"""What a thread tries again and again, and says once that it cannot."""

from __future__ import annotations


class SaidOnce:
    """Owned by the thread that tries."""

    def __init__(self) -> None:
        self._said = ""

    def is_new(self, error: Exception) -> bool:
        """True if the last try did not fail in the same words: then it is worth a line of the log."""
        text, before = str(error) or repr(error), self._said
        self._said = text
        return text != before

    def went_well(self) -> None:
        """A try has succeeded: the next failure is new, whatever it says."""
        self._said = ""
