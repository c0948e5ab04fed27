"""Names of topics, as records say them."""

from __future__ import annotations

import re

#: What no topic's name holds, being a directory's.
_NO_NAME = re.compile(r"[\x00-\x1f\x7f/]")


def topic_of(raw: bytes) -> str | None:
    """A topic's name; None when it can be none."""
    try:
        topic = raw.decode()
    except UnicodeDecodeError:
        return None
    return topic if may_be(topic) else None


def may_be(topic: str) -> bool:
    """Whether a topic can have this name."""
    return topic not in ("", ".", "..") and _NO_NAME.search(topic) is None
