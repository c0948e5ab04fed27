"""Values as the cells of a CSV that somebody opens in a spreadsheet."""

from __future__ import annotations

# The wide forms count where people write Chinese or Japanese.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def cell(value: object) -> str:
    """A spreadsheet would run a text that begins like a formula; nothing for what is not known."""
    if value is None:
        return ""
    text = str(value)
    return "'" + text if isinstance(value, str) and text[:1] in _FORMULA else text
