"""Sorts tables and cuts them into pages, for every list of the window."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..cursors import PART_SIZE, WHOLE
from ..errors import InvalidInput
from .refusals import require_within
from .sentences import say
from .snapshots import Page

MAX_PAGE_SIZE = 500
#: Time limit for the reads of a list that is sorted by a figure that has to be read, in ms.
SORT_BUDGET_MS = 80.0
T = TypeVar("T")


def sorted_by(rows: Iterable[T], sort: str, keys: dict[str, Callable[[T], Any]]) -> list[T]:
    """Return the rows sorted by the key `sort`, with "-" before it the largest first. Rows whose key is None come last.

    Raises InvalidInput with the field "sort" for an unknown key.
    """
    down = sort.startswith("-")
    key = keys.get(sort.lstrip("-") if down else sort)
    if key is None:
        raise InvalidInput("sort", say("cannot_sort", key=repr(sort[:64]), choices=", ".join(keys)))
    keyed = [(key(row), row) for row in rows]
    known = [pair for pair in keyed if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=down)
    return [row for _, row in known] + [row for value, row in keyed if value is None]


def page_of(rows: list[T], page: int, page_size: int, show: Callable[[T], Any] = lambda row: row) -> Page:
    """Return a page of the rows, each as `show` makes it. A page beyond the last one becomes the last one."""
    if page_size not in (PART_SIZE, WHOLE):
        require_within("page_size", page_size, 1, MAX_PAGE_SIZE)
    pages = max(1, -(-len(rows) // page_size))
    page = min(max(1, page), pages)
    shown = rows[(page - 1) * page_size : page * page_size]
    return Page(tuple(map(show, shown)), len(rows), page, pages, page_size)
