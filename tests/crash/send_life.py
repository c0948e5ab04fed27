"""A life whose messages come through the broker's send path, hostile ones among them.

An acknowledged message outlives any crash as it was stored, and its queue entry is the one that consumers saw.
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
    #: (body, place) -> (tag code of its entry while the broker ran, the record's bytes). Bodies are unique over all
    #: lives, but for copies: lives that follow one another from the same image may put different ones at one place.
    stored: ClassVar[dict[tuple[bytes, int], set[tuple[int, bytes]]]] = {}

    def begin(self) -> None:
        super().begin()
        self._going: set[str] = set()
        self._sender = Sender(self.store, self.tables.topics, self.tables.groups)

    def _is_topic(self, topic: str) -> bool:
        """A topic cannot be made again while it is deleted."""
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
        self.stored.setdefault((body, place), set()).add((code, raw))

    def recovered(self) -> Recovered:
        found = super().recovered()
        for (topic, queue_id), bodies in found.items():
            queue = self.store.find_queue(topic, queue_id)
            for offset, (body, place) in enumerate(zip(bodies, found.places[topic, queue_id], strict=True)):
                if body == GONE:
                    continue
                physical, size, now = ENTRY.unpack(self.store.queues.read_entries(queue, offset, 1))
                raw, known = self.store.log.read(place, size), self.stored[body, place]
                if physical != place or raw not in [stored for _, stored in known]:
                    raise Violation(f"{topic}-{queue_id} at {offset}: the record at {place} was altered")
                if (now, raw) not in known or now != entry_tag_code(decode_record(raw), self.settings.delay_levels_ms):
                    raise Violation(f"{topic}-{queue_id} at {offset}: its entry says {now}, not one of {known}")
        return found


class SendBackLife(SendLife):
    """The same, and consumers send messages back: copies wait in the schedule topic, or are dead letters at once.

    A copy that was acknowledged is there after any crash, beside the message itself.
    """

    def begin(self) -> None:
        super().begin()
        #: Physical offsets of messages and copies that this start put.
        self._places: list[int] = []

    def _remember(self, queue, index: int, body: bytes, place: int) -> None:
        super()._remember(queue, index, body, place)
        self._places.append(place)

    def _tick(self) -> None:
        for _ in range(self.chance.choice((0, 1, 1, 3))):
            self._send_back()
        super()._tick()

    def _send_back(self) -> None:
        place = self.chance.choice([*self._places[-20:], 0])
        fields = {
            "offset": str(place), "group": self.chance.choice(("Back", "Back", "Again")), "originTopic": "A",
            "delayLevel": str(self.chance.choice((-1, 0, 0, 1, 99))),
        }  # fmt: skip
        if self.chance.random() < 0.5:
            fields["maxReconsumeTimes"] = str(self.chance.choice((0, 1, 3)))
        code, places = self._sender.send_back(fields)
        if not places:
            assert code in (1, 16), code
            return
        queue, physical = self._sender.last_touched()
        assert [physical] == places
        log = self.store.log
        size = ENTRY.unpack_from(queue.tail, len(queue.tail) - 20)[1]
        place = places[0]
        at = place - log.stage_base
        raw = bytes(log.stage[at : at + size]) if at >= 0 else log.read(place, size)
        body = decode_record(raw).body
        self._remember(queue, -1, body, place)
        self.disk.mark(("put", queue.topic, queue.queue_id, body, place))
