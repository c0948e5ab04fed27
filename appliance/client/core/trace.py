"""Records of RocketMQ's message trace, and the messages that carry them. PURE.

A record ends with the character 2, its fields are separated by 1. Source: RocketMQ 5.3.3 `TraceDataEncoder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
#: Most characters of one trace message, as Java's.
MOST_CHARACTERS = 118_000
#: Most bytes of its keys: brokers take 32767 of all properties.
MOST_KEYS_BYTES = 32_000

#: Ordinals of Java's MessageType, and codes of how a handler ended.
NORMAL, HALF, DELAYED = 0, 1, 3
DONE, RAISED, AGAIN = 0, 2, 4


@dataclass(frozen=True, slots=True)
class Traced:
    """One record. topic: of its message; records of one topic travel together. keys: by which the trace is found: the
    message's id, and its own keys."""

    topic: str
    text: str
    keys: tuple[str, ...]


class Sent(NamedTuple):
    """A message that was sent, or was not."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str
    keys: tuple[str, ...]
    store_host: str
    body_bytes: int
    cost_ms: int
    kind: int
    offset_id: str
    succeeded: bool

    def traced(self) -> Traced:
        fields = ("Pub", *self[:6], " ".join(self.keys), *self[7:12], _truth(self.succeeded))
        return Traced(self.topic, _record(fields), (self.message_id, *self.keys))


class Handed(NamedTuple):
    """A message that a handler gets."""

    request_id: str
    group: str
    topic: str
    message_id: str
    keys: tuple[str, ...]

    def before(self, time_ms: int, region: str, retries: int) -> Traced:
        words = " ".join(self.keys)
        fields = ("SubBefore", time_ms, region, self.group, self.request_id, self.message_id, retries, words)
        return Traced(self.topic, _record(fields), (self.message_id, *self.keys))

    def after(self, time_ms: int, cost_ms: int, code: int) -> Traced:
        succeeded, words = _truth(code == DONE), " ".join(self.keys)
        fields = ("SubAfter", self.request_id, self.message_id, cost_ms, succeeded, words, code, time_ms, self.group)
        return Traced(self.topic, _record(fields), (self.message_id, *self.keys))


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _record(fields: Iterable[object]) -> str:
    return "\x01".join(str(field).replace("\x01", "").replace("\x02", "") for field in fields) + "\x02"


def messages_of(records: Iterable[Traced]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (body, keys) of the messages that carry these records, those of one topic together."""
    by_topic: dict[str, list[Traced]] = {}
    for record in records:
        by_topic.setdefault(record.topic, []).append(record)
    for together in by_topic.values():
        texts: list[str] = []
        keys: dict[str, None] = {}
        size = keys_bytes = 0
        for record in together:
            more = dict.fromkeys(key for key in record.keys if key not in keys)
            more_bytes = _bytes_of(more)
            if texts and (size + len(record.text) > MOST_CHARACTERS or keys_bytes + more_bytes > MOST_KEYS_BYTES):
                yield "".join(texts), tuple(keys)
                texts, keys, size, keys_bytes = [], {}, 0, 0
                more = dict.fromkeys(record.keys)
                more_bytes = _bytes_of(more)
            texts.append(record.text)
            keys |= more
            size += len(record.text)
            keys_bytes += more_bytes
        if texts:
            yield "".join(texts), tuple(keys)


def _bytes_of(keys: Iterable[str]) -> int:
    return sum(len(key.encode(errors="replace")) + 1 for key in keys)
