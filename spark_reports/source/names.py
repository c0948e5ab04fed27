"""Names of topics, as records contain them."""

from __future__ import annotations

import re

#: Characters that no topic's name has, since it is a directory's name.
_NO_NAME = re.compile(r"[\x00-\x1f\x7f/]")


def topic_of(raw: bytes) -> str | None:
    """Decode a topic's name; None if it cannot be one."""
    try:
        topic = raw.decode()
    except UnicodeDecodeError:
        return None
    return topic if may_be(topic) else None


def may_be(topic: str) -> bool:
    """True if a topic can have this name."""
    return topic not in ("", ".", "..") and _NO_NAME.search(topic) is None
