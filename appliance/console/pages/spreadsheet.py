"""Cells of CSVs, safe to open in a spreadsheet."""

from __future__ import annotations

# Spreadsheets for Chinese and Japanese accept the fullwidth forms, too.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def cell(value: object) -> str:
    """Return a value as the text of a cell, "" for None. A text that a spreadsheet would run as a formula gets a quote
    before it."""
    if value is None:
        return ""
    text = str(value)
    return "'" + text if isinstance(value, str) and text[:1] in _FORMULA else text
