"""Filters of long tag expressions. Loaded with the first one: most brokers never get any.

A filter has an object for each tag, so that an expression of 32 KB takes up to a megabyte, and a client may bring as
many as it likes. So each is made once as long as it is in use or was made lately, and counts for the peer that brought
it, as with SQL92 (`shelf.py`).
"""

from __future__ import annotations

from .message_filter import MessageFilter
from .shelf import Shelf, shelf_of
from .tags import codes_of


class TagFilter(MessageFilter):
    """Lets the messages through whose tag has one of the hashes."""

    __slots__ = ("__weakref__",)
    lasts = False


#: A filter takes up to 30 bytes for each character: 250 MB in the worst case, all of them together.
_shelves: tuple[Shelf[TagFilter], ...] = (Shelf(4000, 64, 1024, 1), Shelf(1 << 30, 16, 128, 1))


def known_tag_filter(expression: str) -> TagFilter | None:
    """Return the filter if it is there; None if it would have to be made."""
    return shelf_of(_shelves, expression).in_use.get(expression)


def long_tag_filter(expression: str, peer: bytes | None) -> TagFilter:
    """Return the filter of an expression. peer: the connection that brings it, see `Shares`. Raises
    TooManyExpressions."""
    found = known_tag_filter(expression)
    if found is None:
        found = TagFilter(codes_of(expression))
        shelf_of(_shelves, expression).keep(expression, found, peer)
    return found
