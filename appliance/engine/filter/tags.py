"""Tag expressions: "A || B" and the hashes queue entries carry.

Source: RocketMQ `FilterAPI.buildSubscriptionData`: split at `||`, trim, drop empties; `*` or nothing means all.
"""

from __future__ import annotations

from functools import lru_cache

from ..protocol.properties import java_hash
from .message_filter import EVERYTHING, QUICK_CHARS, MessageFilter

ALL = "*"


def parse_tags(expression: str | None) -> list[str]:
    """Return the tags that an expression names; empty when it means all."""
    if not expression or expression == ALL:
        return []
    return [tag for part in expression.split("||") if (tag := part.strip())]


def codes_of(expression: str | None) -> frozenset[int] | None:
    """Return the hashes of the tags that an expression names; None if it means all."""
    tags = parse_tags(expression)
    return frozenset(map(java_hash, tags)) if tags else None


@lru_cache(maxsize=1024)
def _short_filter(expression: str | None) -> MessageFilter:
    codes = codes_of(expression)
    return EVERYTHING if codes is None else MessageFilter(codes)


def tag_filter(expression: str | None) -> MessageFilter:
    """Return the filter of messages whose tag has one of the hashes. They collide: the client compares the text.

    Short expressions are remembered. A long one is made each time: for the filters of peers see `make_filter`.
    """
    if expression is not None and len(expression) > QUICK_CHARS:
        return _short_filter.__wrapped__(expression)
    return _short_filter(expression)
