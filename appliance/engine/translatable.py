"""Marks for English texts that the console translates.

`script/messages` collects the marked texts into the catalogue. It finds them by the names of Django's functions, so the
marks here have the same names; the engine and the reports run without Django.
"""

from __future__ import annotations


def gettext_noop(text: str) -> str:
    """Return the text as it is."""
    return text
