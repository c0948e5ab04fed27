"""Messages to send, and the comparison with what came back."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

TAGS = ("apples", "pears", "plums")


@dataclass(frozen=True)
class Message:
    """A message that a test gives to a producer."""

    body: bytes
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    order: str | None = None  # hash selectors keep equal ones in one queue
    delay: int = 0  # delay level
    timer: dict[str, int] = field(default_factory=dict)  # TIMER_DELAY_MS, TIMER_DELAY_SEC or TIMER_DELIVER_MS

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    def as_json(self) -> Json:
        json: Json = {"body": base64.b64encode(self.body).decode(), "properties": self.properties, "flag": self.flag}
        if self.tags is not None:
            json["tags"] = self.tags
        if self.keys:
            json["keys"] = list(self.keys)
        if self.order is not None:
            json["order"] = self.order
        if self.delay:
            json["delay"] = self.delay
        if self.timer:
            json["timer"] = self.timer
        return json


def plain(count: int, seed: int = 0, size_bytes: int = 100) -> list[Message]:
    """`count` different messages of random bytes."""
    chance = random.Random(seed)
    return [Message(chance.randbytes(size_bytes)) for _ in range(count)]


def rich(count: int, seed: int = 0, flags: bool = True) -> list[Message]:
    """Messages with tags, one or two keys, user properties beyond ASCII, flags, and bodies of many sizes.

    4,096 bytes is where the clients begin to compress. flags: False for a client that sends none.
    """
    chance = random.Random(seed)
    sizes = (1, 2, 63, 1024, 4095, 4096, 10_000)
    return [
        Message(
            body=chance.randbytes(sizes[number % len(sizes)]),
            tags=TAGS[number % len(TAGS)],
            keys=(f"order-{number}",) + (("second",) if number % 2 else ()),
            properties={"number": str(number), "città": "Zürich 用户 🚀", "empty-looking": " x "},
            flag=number if flags else 0,
        )
        for number in range(count)
    ]


def assert_same(sent: Message, received: Json) -> None:
    """Body byte for byte (by SHA-256), tags, keys, user properties and flag are what was sent."""
    where = f"queue {received['queue_id']} offset {received['queue_offset']}"
    assert received["body_bytes"] == len(sent.body), where
    assert received["body_sha256"] == sent.sha256, f"{where}: the body was altered"
    assert received["tags"] == sent.tags, where
    assert received["keys"] == (" ".join(sent.keys) or None), where
    assert received["flag"] == sent.flag, where
    assert {name: received["properties"].get(name) for name in sent.properties} == sent.properties, where


def assert_delivered(sent: Sequence[Message], acknowledged: Sequence[Json], received: Iterable[Json]) -> None:
    """Each message came exactly once, from the queue and offset that was acknowledged, with its ids and content."""
    by_place = by_queue_and_offset(received)
    assert len(sent) == len(acknowledged)
    for message, ack in zip(sent, acknowledged, strict=True):
        assert ack.get("status") == "SEND_OK", ack
        place = (ack["queue_id"], ack["queue_offset"])
        assert place in by_place, f"acknowledged at {place}, not delivered; delivered {sorted(by_place)}"
        came = by_place.pop(place)
        assert came["msg_id"] == ack["msg_id"], place
        assert came["offset_msg_id"] == ack["offset_msg_id"], place
        assert_same(message, came)
    assert not by_place, f"delivered but never acknowledged: {sorted(by_place)}"


def assert_each_once(sent: Sequence[Message], received: Iterable[Json]) -> None:
    """Each message came exactly once, wherever it was stored; for sends that tell no place."""
    by_place = by_queue_and_offset(received)
    waiting = {message.sha256: message for message in sent}
    assert len(waiting) == len(sent), "bodies to send must differ"
    for place, came in by_place.items():
        assert came["body_sha256"] in waiting, f"{place} was sent by no one, or came twice"
        assert_same(waiting.pop(came["body_sha256"]), came)
    assert not waiting, f"{len(waiting)} of {len(sent)} messages did not come"


def assert_handed_over(
    sent: Sequence[Message], acknowledged: Sequence[Json], first: Sequence[Json], second: Sequence[Json], repeats: int
) -> None:
    """Between two members that follow each other every message came, unaltered, and hardly one twice.

    repeats: how many messages of a queue may come again. Messages that the first member's listener had just seen when
    it was stopped, before the client noted them as done, are delivered to the second as well: at least once is the
    promise.
    """
    before, after = by_queue_and_offset(first), by_queue_and_offset(second)
    again: dict[int, int] = {}
    for queue_id, _ in before.keys() & after.keys():
        again[queue_id] = again.get(queue_id, 0) + 1
    assert max(again.values(), default=0) <= repeats, f"delivered again, by queue: {again}"
    assert_delivered(sent, acknowledged, (after | before).values())


def by_queue_and_offset(received: Iterable[Json]) -> dict[tuple[int, int], Json]:
    """The messages by place. Fails when one place came twice."""
    table: dict[tuple[int, int], Json] = {}
    for message in received:
        place = (message["queue_id"], message["queue_offset"])
        assert place not in table, f"queue {place[0]} offset {place[1]} was delivered twice"
        table[place] = message
    return table


def assert_dense(places: Iterable[tuple[int, int]]) -> None:
    """The offsets of each queue are 0, 1, 2 ... without a gap or a double."""
    queues: dict[int, list[int]] = {}
    for queue_id, offset in places:
        queues.setdefault(queue_id, []).append(offset)
    for queue_id, offsets in queues.items():
        assert sorted(offsets) == list(range(len(offsets))), f"queue {queue_id}: {sorted(offsets)}"


def assert_in_order(received: Iterable[Json]) -> None:
    """Each queue was seen in order and without a gap."""
    queues: dict[int, list[int]] = {}
    for queue_id, offset in places(received):
        queues.setdefault(queue_id, []).append(offset)
    for queue_id, seen in queues.items():
        assert seen == list(range(seen[0], seen[0] + len(seen))), f"queue {queue_id} out of order: {seen}"


def places(messages: Iterable[Json]) -> list[tuple[int, int]]:
    """(queue id, queue offset) of acknowledgements or of received messages, in their order."""
    return [(message["queue_id"], message["queue_offset"]) for message in messages]


def java_hash(text: str) -> int:
    """Java's String.hashCode, signed 32 bits (UTF-16 code units)."""
    value = 0
    units = text.encode("utf-16-be")
    for index in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[index : index + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
