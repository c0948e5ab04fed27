"""Topic -> the queues each broker has of it, and the mappings of static topics.

The entries are tuples and are replaced whole: any thread may read a topic while one thread (`pool-namesrv`) changes the
table.

Invariants, for that one thread: `_counts[broker]` is the number of topics with an entry of that broker, and is never 0;
no topic has an empty tuple; a mapping belongs to a broker's queues that are in the table; `_mapping_bytes[broker]` is
the sum of the texts of its mappings, and is never 0.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping

from ..protocol.names import PERM_READ, PERM_WRITE
from .bounds import MOST_ENTRIES, MOST_MAPPING_BYTES, PART_OF_217, refuse
from .register_body import MAX_TOPICS, TopicShape
from .route_data import QueueData

#: Most entries that topics of the same shape share. When there are more, sharing begins again with none.
MOST_ALIKE = 1024


class TopicTable:
    """RouteInfoManager's topicQueueTable and topicQueueMappingInfoTable."""

    def __init__(self) -> None:
        # Written by one thread; the values are frozen.
        self._queues: dict[str, tuple[QueueData, ...]] = {}
        self._mappings: dict[str, dict[str, bytes]] = {}
        # Most topics have the same shape: (broker name, shape) -> the entry of a topic that only this broker has.
        self._alike: dict[tuple[str, TopicShape], tuple[QueueData, ...]] = {}
        # Broker name -> number of topics with queues of it; -> bytes of its mappings.
        self._counts: dict[str, int] = {}
        self._mapping_bytes: dict[str, int] = {}
        #: Grows whenever queues are removed: a broker's table that was applied before is no longer complete here.
        self.removals = 0

    # --- any thread

    def __len__(self) -> int:
        return len(self._queues)

    def queues(self, topic: str) -> tuple[QueueData, ...]:
        """One entry for each broker name; empty when the topic is not known."""
        return self._queues.get(topic, ())

    def mapping(self, topic: str) -> dict[str, bytes]:
        """Broker name -> TopicQueueMappingInfo as JSON, for a static topic."""
        return self._mappings.get(topic, {})

    def items(self) -> list[tuple[str, tuple[QueueData, ...]]]:
        """A copy, made by one C call."""
        return list(self._queues.items())

    # --- the writing thread

    @property
    def counts(self) -> Mapping[str, int]:
        """Broker name -> number of its topics."""
        return self._counts

    @property
    def mapping_bytes(self) -> Mapping[str, int]:
        """Broker name -> bytes of its mappings."""
        return self._mapping_bytes

    def check_room_of_217(self, broker_name: str, topic: str) -> None:
        """Refuse with 1 another topic added by 217, whose sender need not be the broker, if there are too many."""
        if any(data.broker_name == broker_name for data in self.queues(topic)):
            return
        count, total = self._counts.get(broker_name, 0), sum(self._counts.values())
        if count >= MAX_TOPICS // PART_OF_217 or total >= MOST_ENTRIES // PART_OF_217:
            raise refuse("there are too many topics for another one that no broker registers")

    def check_room(self, broker_name: str, shapes: Collection[str], room: int = MOST_ENTRIES) -> None:
        """Refuse with 1 topics that would make the table too large. Changes nothing. room: how many more topics the
        registering connection may have."""
        count, total = self._counts.get(broker_name, 0), sum(self._counts.values())
        if count + len(shapes) > MAX_TOPICS or len(shapes) > room or total + len(shapes) > MOST_ENTRIES:
            new = sum(all(data.broker_name != broker_name for data in self._queues.get(topic, ())) for topic in shapes)
            if count + new > MAX_TOPICS:
                raise refuse(f"the broker would have {count + new} topics, at most {MAX_TOPICS} are taken")
            if new > room:
                raise refuse(
                    f"all brokers together would have {total + new} topics, at most {MOST_ENTRIES} are taken, and of "
                    "one address no more than it leaves free"
                )

    def check_room_of_mappings(self, broker_name: str, mappings: dict[str, bytes], room: int) -> None:
        """Refuse with 1 mappings that would make the table too large. Changes nothing. room: how many more bytes the
        registering connection may have."""
        old = sum(len(self.mapping(topic).get(broker_name, b"")) for topic in mappings)
        if sum(map(len, mappings.values())) - old > room:
            raise refuse(
                f"mappings of static topics may take {MOST_MAPPING_BYTES} bytes, those of one address as much as it "
                "leaves free"
            )

    def put(self, broker_name: str, shapes: dict[str, TopicShape], *, replace: bool, mask: int = ~0) -> None:
        """Add the queues of topics that this broker did not have; with `replace`, those of the others too.

        mask: permission bits that may be set.
        """
        table = self._queues
        made = self._alike
        if len(made) > MOST_ALIKE:
            made.clear()
        for topic, shape in shapes.items():
            others = table.get(topic, ())
            at = next((n for n, data in enumerate(others) if data.broker_name == broker_name), -1)
            if at >= 0 and not replace:
                continue
            if mask != ~0:
                shape = shape._replace(perm=shape.perm & mask)
            if at >= 0 and others[at].shape == shape:
                continue
            alone = made.get((broker_name, shape))
            if alone is None:
                alone = made[broker_name, shape] = (QueueData(broker_name, shape),)
            if at < 0:
                table[topic] = others + alone if others else alone
                self._counts[broker_name] = self._counts.get(broker_name, 0) + 1
            else:
                table[topic] = others[:at] + alone + others[at + 1 :]

    def put_mappings(self, broker_name: str, mappings: dict[str, bytes], topics: Container[str] = ()) -> None:
        """Keep the mappings of topics that this broker has, and only as long as it has them.

        topics: those of the table that the broker sent. If it has no others, that table was whole, and a mapping that
        came without it is gone. Apache may send a whole table in parts, with all mappings in the last one only.
        """
        if broker_name in self._mapping_bytes:
            own = [topic for topic, _, _ in self._of_broker(broker_name)]
            if all(topic in topics for topic in own):
                for topic in own:
                    if topic not in mappings:
                        self._drop_mapping(topic, broker_name)
        for topic, mapping in mappings.items():
            if any(data.broker_name == broker_name for data in self.queues(topic)):
                self._drop_mapping(topic, broker_name)
                self._mapping_bytes[broker_name] = self._mapping_bytes.get(broker_name, 0) + len(mapping)
                self._mappings[topic] = self.mapping(topic) | {broker_name: mapping}

    def _drop_mapping(self, topic: str, broker_name: str) -> None:
        known = self.mapping(topic)
        if broker_name not in known:
            return
        left = self._mapping_bytes[broker_name] - len(known[broker_name])
        assert left >= 0, "every mapping was counted when it was added"
        if left:
            self._mapping_bytes[broker_name] = left
        else:
            del self._mapping_bytes[broker_name]
        others = {name: text for name, text in known.items() if name != broker_name}
        if others:
            self._mappings[topic] = others
        else:
            del self._mappings[topic]

    def remove(self, topic: str, broker_name: str) -> None:
        """Remove one broker's queues of a topic; the topic goes with the last broker that has it."""
        queues = self._queues.get(topic, ())
        left = tuple(data for data in queues if data.broker_name != broker_name)
        if len(left) == len(queues):
            return
        self.removals += 1
        self._counts[broker_name] -= 1
        assert self._counts[broker_name] >= 0, "every entry was counted when it was added"
        if not self._counts[broker_name]:
            del self._counts[broker_name]
        self._drop_mapping(topic, broker_name)
        if left:
            self._queues[topic] = left
        else:
            del self._queues[topic]

    def remove_broker(self, broker_name: str, keep: Container[str] = ()) -> None:
        """Remove the queues of a broker from all topics but those to keep."""
        for topic, _, _ in self._of_broker(broker_name):
            if topic not in keep:
                self.remove(topic, broker_name)

    def change_perm(self, broker_name: str, *, wipe_write: bool) -> int:
        """Clear the write bit in every topic of a broker, or make each exactly readable and writable.

        Returns the number of the broker's topics.
        """
        count = 0
        made: dict[TopicShape, QueueData] = {}
        for topic, queues, at in self._of_broker(broker_name):
            count += 1
            shape = queues[at].shape
            perm = shape.perm & ~PERM_WRITE if wipe_write else PERM_READ | PERM_WRITE
            if shape.perm != perm:
                changed = made.get(shape)
                if changed is None:
                    changed = made[shape] = QueueData(broker_name, shape._replace(perm=perm))
                self._queues[topic] = (*queues[:at], changed, *queues[at + 1 :])
        return count

    def _of_broker(self, broker_name: str) -> Iterator[tuple[str, tuple[QueueData, ...], int]]:
        """(topic, its entries, the index of this broker's) for each topic that the broker has."""
        for topic, queues in self.items():
            for at, data in enumerate(queues):
                if data.broker_name == broker_name:
                    yield topic, queues, at
                    break
