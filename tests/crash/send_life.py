"""A life whose messages come through the broker's send path, hostile ones among them.

What was acknowledged outlives any crash as it was stored, and its queue entry is the one that consumers saw.
"""

from __future__ import annotations

from typing import ClassVar

from appliance.engine.protocol.record import decode_record
from appliance.engine.store.dispatch import entry_tag_code
from appliance.engine.store.queues.consume_queue import ENTRY
from tests.crash.broker_life import BrokerLife
from tests.crash.life import BORN, BORN_IPV6, GONE, QUEUES, TOPICS, Recovered, Violation
from tests.support.sending import Sender, hostile_send


class SendLife(BrokerLife):
    #: body -> (tag code of its entry while the broker ran, the record's bytes). Bodies are unique over all lives.
    stored: ClassVar[dict[bytes, tuple[int, bytes]]] = {}

    def open(self) -> None:
        super().open()
        self._going: set[str] = set()
        self._sender = Sender(self.store, self.tables.topics, self.tables.groups)

    def _is_topic(self, topic: str) -> bool:
        """Nobody can make a topic again while it is deleted."""
        return topic not in self._going and super()._is_topic(topic)

    def _forget_topic(self, topic: str) -> bool:
        self._going.add(topic)
        return super()._forget_topic(topic)

    def _delete(self) -> None:
        super()._delete()
        self._going.clear()

    def _tick(self) -> None:
        for _ in range(self.chance.choice((1, 1, 2, 5))):
            topic, queue_id = self.chance.choice(TOPICS), self.chance.randrange(QUEUES)
            if not self._is_topic(topic):
                continue
            config = self.tables.topics.get(topic)
            if config is None or queue_id >= max(config.read_queue_nums, config.write_queue_nums):
                continue
            bodies = [self._body() for _ in range(self.chance.choice((1, 1, 1, 1, 3)))]
            send = hostile_send(self.chance, topic, queue_id, bodies)
            code, places = self._sender.send(send, BORN if self.chance.random() < 0.8 else BORN_IPV6)
            if code == 14:
                break
            queue = self.store.queues.get_or_create(topic, queue_id)
            for index, (body, place) in enumerate(zip(bodies, places, strict=bool(places))):
                self._remember(queue, index - len(places), body, place)
                self.disk.mark(("put", topic, queue_id, body, place))
        self.store.end_tick()

    def _remember(self, queue, index: int, body: bytes, place: int) -> None:
        """index: of its entry, from the tail's end."""
        physical, size, code = ENTRY.unpack_from(queue.tail, len(queue.tail) + 20 * index)
        assert physical == place
        log = self.store.log
        raw = (
            bytes(log.stage[place - log.stage_base :][:size])
            if place >= log.stage_base
            else self.store.log.read(place, size)
        )
        self.stored[body] = code, raw

    def recovered(self) -> Recovered:
        found = super().recovered()
        for (topic, queue_id), bodies in found.items():
            queue = self.store.find_queue(topic, queue_id)
            for offset, (body, place) in enumerate(zip(bodies, found.places[topic, queue_id], strict=True)):
                if body == GONE:
                    continue
                code, raw = self.stored[body]
                physical, size, now = ENTRY.unpack(self.store.queues.read_entries(queue, offset, 1))
                if (physical, size) != (place, len(raw)) or self.store.log.read(place, size) != raw:
                    raise Violation(f"{topic}-{queue_id} at {offset}: the record at {place} was altered")
                if not now == code == entry_tag_code(decode_record(raw), []):
                    raise Violation(f"{topic}-{queue_id} at {offset}: its entry says {now}, it said {code}")
        return found
