"""Pages of rows that the console itself has, as the pager below a table shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from .engine_pages import PAGE_SIZE


@dataclass(frozen=True, slots=True)
class RowPage:
    """A page of rows, of the same shape as the window's pages. total: rows in all; page: counted from 1; pages: at
    least one."""

    rows: tuple[Any, ...]
    total: int
    page: int
    pages: int


def page_of(rows: QuerySet[Any] | Sequence[Any], number: int) -> RowPage:
    """Return one page; the last one if `number` is larger."""
    total = rows.count() if isinstance(rows, QuerySet) else len(rows)
    pages = max(1, -(-total // PAGE_SIZE))
    number = min(max(1, number), pages)
    return RowPage(tuple(rows[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]), total, number, pages)
