"""The offsets that the options startingOffsets and endingOffsets name, in each form that they may have.

{"orders": {"0": 12, "1": -1}}                  by topic and queue
{"broker-a": {"orders": {"0": 12, "1": -1}}}    by broker too: the offset of a stream over brokers
{"position": 4711, "witness": [4500, 17000]}    a place in the log: the offset of a stream of files
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

EARLIEST, LATEST = -2, -1

#: (broker, topic, queue id); broker "" stands for any.
Place = tuple[str, str, int]


@dataclass(frozen=True)
class NamedOffsets:
    """Pickles. everywhere: EARLIEST or LATEST for queues that are not named, None for the option's default. queues:
    next offsets, EARLIEST or LATEST. position: a physical offset, of a store only. witness: see StoreView."""

    everywhere: int | None = None
    queues: Mapping[Place, int] = field(default_factory=dict)
    position: int | None = None
    witness: tuple[int, int] | None = None

    def of(self, topic: str, queue_id: int, broker: str = "") -> int | None:
        """Return the offset for a queue, None for the option's default."""
        found = self.queues.get((broker, topic, queue_id))
        return self.queues.get(("", topic, queue_id), self.everywhere) if found is None else found

    @property
    def topics(self) -> set[str]:
        return {topic for _, topic, _ in self.queues}

    @property
    def has_brokers(self) -> bool:
        return any(broker for broker, _, _ in self.queues)

    @property
    def has_end_of_now(self) -> bool:
        """True if an offset is EARLIEST or LATEST, which a stream that is started again would find elsewhere."""
        return self.everywhere is not None or any(offset < 0 for offset in self.queues.values())


def parse(text: str) -> NamedOffsets | None:
    """Parse `earliest`, `latest` or JSON; None if it is none of these."""
    if text in ("earliest", "latest"):
        return NamedOffsets(LATEST if text == "latest" else EARLIEST)
    try:
        found = json.loads(text)
        if type(found.get("position")) is int:
            return _of_files(found)
        return NamedOffsets(queues=dict(_queues(found)))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None


def _of_files(found: dict[str, Any]) -> NamedOffsets:
    position, starts, witness = found.pop("position"), found.pop("starts", {}), found.pop("witness", None)
    if found or not 0 <= position < 1 << 63:
        raise ValueError
    if witness is not None:
        place, ms = witness
        if type(place) is not int or type(ms) is not int or not 0 <= place <= position:
            raise ValueError
        witness = place, ms
    return NamedOffsets(queues=dict(_of_topics("", starts)), position=position, witness=witness)


def _queues(found: dict[str, Any]) -> Iterator[tuple[Place, int]]:
    for name, inner in found.items():
        if inner and all(isinstance(one, dict) for one in inner.values()):
            if not name:
                raise ValueError
            yield from _of_topics(name, inner)
        else:
            yield from _of_topics("", {name: inner})


def _of_topics(broker: str, topics: dict[str, Any]) -> Iterator[tuple[Place, int]]:
    for topic, queues in topics.items():
        for queue_id, offset in queues.items():
            key = int(queue_id)
            if (
                str(key) != queue_id
                or not topic
                or not 0 <= key < 1 << 31
                or type(offset) is not int
                or not EARLIEST <= offset < 1 << 63
            ):
                raise ValueError
            yield (broker, topic, key), offset
