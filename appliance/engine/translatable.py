"""Marks for English texts that the console translates.

`script/messages` collects the marked texts into the catalogue. It finds them by the names of Django's functions, so the
marks here have the same names; the engine and the reports run without Django.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .named_tuple import NamedTuple


def gettext_noop(text: str) -> str:
    """Return the text as it is."""
    return text


class Plural(NamedTuple):
    """A text in two forms. number: name of the value that chooses between them."""

    one: str
    many: str
    number: str = "count"


ngettext_lazy = Plural


def english(template: str | Sequence[str], values: Mapping[str, Any]) -> str:
    """Return the form for these values. template: a text, or a `Plural`, which JSON turns into a list."""
    if isinstance(template, str):
        return template
    one, many, number = template
    return one if values[number] == 1 else many
