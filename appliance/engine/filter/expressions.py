"""The types of expression that a consumer may filter by, and the maker of filters for each. What takes more than some
microseconds to make, a pool makes first.

The language SQL92 is loaded when the first expression comes: most brokers never get one. Loading takes as long as many
expressions do, so until then none is quick.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from .message_filter import QUICK_CHARS, MessageFilter
from .tags import tag_filter

SQL92 = "SQL92"
#: Types that mean tags; None and "" come from clients that do not name a type.
TAG_TYPES: frozenset[str | None] = frozenset((None, "", "TAG"))


#: The module of the language, once it is loaded in full, and that of long tag expressions.
_loaded: ModuleType | None = None
_long_tags: ModuleType | None = None


def _sql() -> ModuleType:
    global _loaded
    if _loaded is None:
        from . import sql_filter

        _loaded = sql_filter
    return _loaded


def _sql92_filter(expression: str | None, peer: bytes | None) -> MessageFilter:
    """Return the filter of an SQL92 expression. Refuses as `make_filter`."""
    sql = _sql()
    try:
        made: MessageFilter = sql.sql_filter(expression, peer)
        return made
    except sql.SqlError as error:
        raise RefusedRequest(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None


def _tag_filter(expression: str | None, peer: bytes | None) -> MessageFilter:
    """Return the filter of a tag expression. Refuses with 2 as `make_filter`."""
    global _long_tags
    if expression is None or len(expression) <= QUICK_CHARS:
        return tag_filter(expression)
    if _long_tags is None:
        from . import long_tags

        _long_tags = long_tags
    made: MessageFilter = _long_tags.long_tag_filter(expression, peer)
    return made


#: Type -> function that makes a filter of an expression.
FILTERS: dict[str | None, Callable[[str | None, bytes | None], MessageFilter]] = {
    **dict.fromkeys(TAG_TYPES, _tag_filter),
    SQL92: _sql92_filter,
}


class NotCompiled(Exception):
    """Making the filter of an expression may take long: `make_filter` is to be called in a pool first."""

    def __init__(self, kind: str | None, expression: str) -> None:
        super().__init__(kind)
        self.kind = kind
        self.expression = expression


def make_filter(kind: str | None, expression: str | None, peer: bytes | None = None) -> MessageFilter:
    """Return the filter of an expression, however long that takes. peer: the connection that brings it. Refuses with 1
    an unknown type, with 23 what does not compile, with 2 while too many are in use, or too many of this peer's."""
    make = FILTERS.get(kind)
    if make is None:
        raise not_supported(kind)
    return make(expression, peer)


def quick_filter(kind: str | None, expression: str | None, peer: bytes | None = None) -> MessageFilter:
    """Do the same as `make_filter`, for the I/O thread. Raises NotCompiled for a text that is new and long, or the
    first of all."""
    text = expression or ""
    if (kind == SQL92 and not is_quick(text)) or (
        len(text) > QUICK_CHARS and kind in TAG_TYPES and not _are_known_tags(text)
    ):
        raise NotCompiled(kind, text)
    return make_filter(kind, expression, peer)


def _are_known_tags(expression: str) -> bool:
    """True if the filter of a long tag expression is known already."""
    return _long_tags is not None and _long_tags.known_tag_filter(expression) is not None


def is_quick(expression: str) -> bool:
    """True if an SQL92 expression is known already, or so short that it takes next to nothing."""
    return is_quick_to_make(len(expression)) or is_known(expression)


def is_quick_to_make(chars: int) -> bool:
    """True if new SQL92 expressions of this many characters take next to nothing."""
    return chars <= QUICK_CHARS and _loaded is not None


def is_known(expression: str) -> bool:
    """True if an SQL92 expression was compiled lately, or found to be wrong."""
    sql = _loaded
    if sql is None:
        return False
    try:
        return sql.known_filter(expression) is not None
    except sql.SqlError:
        return True


def not_supported(expression_type: str | None) -> RefusedRequest:
    """Return the refusal of a type that is not in the table."""
    return RefusedRequest(
        ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {expression_type}"
    )
