"""Tag expressions: "A || B" and the hashes queue entries carry.

Source: RocketMQ `FilterAPI.buildSubscriptionData`: split at `||`, trim, drop empties; `*` or nothing means all.
"""

from __future__ import annotations

from functools import lru_cache

from ..protocol.properties import java_hash
from .message_filter import EVERYTHING, MessageFilter

ALL = "*"


def parse_tags(expression: str | None) -> list[str]:
    """Return the tags that an expression names; empty when it means all."""
    if not expression or expression == ALL:
        return []
    return [tag for part in expression.split("||") if (tag := part.strip())]


#: Expressions remembered; one may have 32,767 characters.
@lru_cache(maxsize=1024)
def tag_filter(expression: str | None) -> MessageFilter:
    """Return the filter of messages whose tag has one of the hashes. They collide: the client compares the text."""
    tags = parse_tags(expression)
    return MessageFilter(frozenset(map(java_hash, tags))) if tags else EVERYTHING
