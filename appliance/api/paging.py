"""Cursors of lists. A cursor contains the begin of the next page and the query it belongs to; it is not secret."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, Any

from django.http import HttpRequest
from msgspec import json
from ninja import Query

from ..engine.cursors import decode_cursor, encode_cursor, whole
from ..engine.errors import InvalidInput
from .auth import accessible, has_pattern
from .times import Moment

Limit = Annotated[int, Query(50, ge=1, le=500, description="Items per page.")]
Cursor = Annotated[str | None, Query(None, max_length=4096, description="The next_cursor of the previous page.")]
BodyChars = Annotated[
    int | None,
    Query(
        None,
        ge=1,
        le=1000,
        description=(
            "Adds the beginning of each body as `glance`, decoded by the topic's schema if it has one. Needs the right "
            "to read bodies, and is in the audit log."
        ),
    ),
]
From = Annotated[Moment | None, Query(None, alias="from", description="Not before this time.")]
To = Annotated[Moment | None, Query(None, alias="to", description="Not after this time.")]

#: Largest number of a cursor: what is computed with it fits into the database, and into a cursor again.
_MOST = 1 << 53


def page_number(cursor: str | None, question: object) -> int:
    """The page a cursor of `next_page` asks for; 1 without one. InvalidInput when it is of another question."""
    return 1 if cursor is None else max(1, decode_position(cursor, question))


def decode_position(cursor: str, question: object) -> int:
    """The number a cursor of `encode_position` carries."""
    try:
        number, digest = decode_cursor(cursor, tuple[int, str])
    except ValueError:
        raise InvalidInput("cursor", "this page link is no longer valid: start again without a cursor") from None
    if digest != _digest(question) or abs(number) > _MOST:
        raise InvalidInput("cursor", "this page link belongs to another filter, sort or limit")
    return number


def tail_place(cursor: str) -> tuple[int, int]:
    """The place in the log, and the count of matched messages, that a cursor of a tail carries."""
    try:
        place, matched = decode_cursor(cursor, tuple[int, int])
    except ValueError:
        place = matched = -1
    if min(place, matched) < 0 or max(place, matched) > _MOST:
        raise InvalidInput("cursor", "this is no cursor of a tail: start again without one")
    return place, matched


def encode_position(number: int, question: object) -> str:
    """A cursor that carries a number."""
    return encode_cursor((number, _digest(question)))


def _digest(question: object) -> str:
    return hashlib.sha256(json.encode(question)).hexdigest()[:8]


def table(
    request: HttpRequest,
    ask: Callable[[int, int], Any],
    cursor: str | None,
    limit: int,
    question: tuple[object, ...],
    name: str = "",
    kind: str = "",
) -> dict[str, Any]:
    """{"items", "next_cursor", "total"} of a table of the window's.

    ask(page, page_size) -> a `snapshots.Page`. name: the attribute of its rows that is the name of a topic or group, if
    one is; kind: which of the two, as in `auth.accessible`. A caller with a pattern sees the rows it may access, and no
    count of others: then the whole table is read.
    """
    question = (*question, limit)
    number = page_number(cursor, question)
    if name and has_pattern(request):
        return rows_page(accessible(request, whole(ask).rows, name, kind), number, limit, question)
    page = ask(number, limit)
    rows = page.rows if page.page == number else ()
    more = page.page < page.pages and page.page == number
    return {"items": rows, "total": page.total, "next_cursor": encode_position(number + 1, question) if more else None}


def rows_page(rows: list[Any], number: int, limit: int, question: tuple[object, ...]) -> dict[str, Any]:
    """{"items", "next_cursor", "total"} of rows that are all at hand."""
    shown = rows[(number - 1) * limit : number * limit]
    more = number * limit < len(rows)
    return {"items": shown, "total": len(rows), "next_cursor": encode_position(number + 1, question) if more else None}
