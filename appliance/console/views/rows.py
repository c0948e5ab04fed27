"""Pages of rows of our own database, as the pager below a table shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from .window import PAGE_SIZE


@dataclass(frozen=True, slots=True)
class RowPage:
    """As the window's pages: total rows, 1-based page, at least one page."""

    rows: tuple[Any, ...]
    total: int
    page: int
    pages: int


def page_of(rows: QuerySet[Any], number: int) -> RowPage:
    """One page, the last one when there are not so many."""
    total = rows.count()
    pages = max(1, -(-total // PAGE_SIZE))
    number = min(max(1, number), pages)
    return RowPage(tuple(rows[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]), total, number, pages)
