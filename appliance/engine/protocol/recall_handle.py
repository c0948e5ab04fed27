"""The handle with which a producer recalls a message that waits for its time. PURE.

    URL-safe Base64, padded, of   v1 <topic> <broker name> <wall ms> <unique key>

in UTF-8, separated by single blanks. The time is one millisecond after the message's TIMER_OUT_MS.
Source: RocketMQ 5.3.3 `RecallMessageHandle`. Differs: everything behind the fourth blank is the unique key. Apache
takes only its first word, which may be another message's.
"""

from __future__ import annotations

import base64
import re

from ..named_tuple import NamedTuple

#: Accepted by Java's URL decoder: the padding may be left out, but not be wrong.
_BASE64 = re.compile(r"(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}(?:==)?|[A-Za-z0-9_-]{3}=?)?\Z", re.ASCII)
#: Accepted by Java's Long.parseLong; other texts count as -1.
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}\Z", re.ASCII)
_I64 = 1 << 63


class RecallHandle(NamedTuple):
    """Content of a handle. at_ms: -1 if it is no number."""

    topic: str
    broker_name: str
    at_ms: int
    unique_key: str


def encode_recall_handle(topic: str, broker_name: str, out_ms: int, unique_key: str) -> str:
    """Return the handle of a message with this TIMER_OUT_MS."""
    text = f"v1 {topic} {broker_name} {out_ms + 1} {unique_key}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Decode a handle. Raises ValueError if it is invalid or has no key."""
    if not text or _BASE64.match(text) is None:
        raise ValueError("recall handle is invalid")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "replace")
    words = raw.split(" ", 4)
    if words[0] != "v1" or len(words) < 5 or not words[4] or any(letter < " " for letter in words[4]):
        raise ValueError("recall handle is invalid")
    _, topic, broker_name, at, unique_key = words
    at_ms = int(at) if _NUMBER.match(at) is not None else -1
    return RecallHandle(topic, broker_name, at_ms if -_I64 <= at_ms < _I64 else -1, unique_key)
