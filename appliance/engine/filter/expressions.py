"""The types of expression that a consumer may filter by, and what makes a filter of each."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from .message_filter import MessageFilter
from .tags import tag_filter

#: Type -> what makes a filter of an expression. None, "": of clients that do not say.
FILTERS: dict[str | None, Callable[[str | None], MessageFilter]] = {None: tag_filter, "": tag_filter, "TAG": tag_filter}


def not_supported(expression_type: str | None) -> RefusedRequest:
    """For a type that is not in the table."""
    return RefusedRequest(
        ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {expression_type}"
    )
