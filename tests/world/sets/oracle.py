"""Rules for a set, in plain words. The oracle sees clients' answers, whichever member gives them.

1. A message that was acknowledged is there after every fail-over, at its place and byte for byte, until its topic was
   deleted or purged. Each later leader shows everything that was shown before.
2. No place is given to two messages, whoever led when. Nothing is shown twice, and nothing that was never sent.
3. A deletion or a purge that was acknowledged holds after a fail-over: nothing of it is shown again. One that was not
   was done, or was not. What waited for a topic that was deleted does not come into the next one of its name.
4. A delayed message comes, and not before its time unless clocks were set; more than once only over a change of leader.
5. When all can reach each other and the store, the set comes together: one member leads, all have its log, byte for
   byte, its topics, and the beginnings and ends of its queues.
6. A member logs no exception, and ends when it is asked to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from appliance.engine.protocol.record import Record
from tests.world.oracle import Place, Violation


@dataclass(eq=False)
class Sent:
    """A message. delay_s: 0 for what does not wait. fate: unknown, acknowledged, deleted (for good), doubtful: it was
    deleted, or not. leads: number of the leaders there had been. arrived: places at which it was shown."""

    act: int
    topic: str
    body: bytes
    sent_at: float
    delay_s: float
    leads: int
    fate: str = "unknown"
    arrived: list[Place] = field(default_factory=list)


class SetOracle:
    """clocks_moved: since then the times of members are not those of the world."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.expected: dict[Place, Sent] = {}
        self.shown: dict[Place, tuple[bytes, int]] = {}
        #: Places of what was deleted or purged for good.
        self._gone: set[Place] = set()
        #: Queues of the topics that there are for certain.
        self.topics: dict[str, int] = {}
        self.leads = 0
        self.clocks_moved = False

    def send(self, message: Sent) -> None:
        self.sent[message.body] = message
        message.leads = self.leads

    def acknowledged(self, message: Sent, place: Place) -> None:
        message.fate = "acknowledged"
        if message.delay_s:
            return
        self._give(message, place)

    def _give(self, message: Sent, place: Place) -> None:
        other = self.expected.get(place)
        if other is not None and other is not message:
            raise Violation("a place was given twice", f"{place} to act {other.act} and to act {message.act}")
        self.expected[place] = message

    def _places_of(self, topic: str, below: dict[int, int] | None) -> list[Place]:
        return [
            place
            for place in self.expected
            if place.topic == topic and (below is None or place.offset < below.get(place.queue, 0))
        ]

    def removed(self, topic: str, sure: bool, below: dict[int, int] | None = None) -> None:
        """A topic was deleted or, below these offsets of its queues, purged. Not sure: perhaps."""
        fate = "deleted" if sure else "doubtful"
        for place in self._places_of(topic, below):
            message = self.expected.pop(place)
            if sure:
                self._gone.add(place)
            # A waiting message may come twice over a change of leader, behind the purged ones.
            message.fate = "doubtful" if message.delay_s and below is not None else fate
        if below is None:
            self.topics.pop(topic, None)
            for message in self.sent.values():
                if message.topic == topic and message.delay_s and not message.arrived:
                    message.fate = "deleted" if message.fate == "deleted" else fate

    def record(self, topic: str, queue: int, record: Record, now: float) -> None:
        """A member showed this."""
        place = Place(topic, queue, record.queue_offset)
        message = self.sent.get(record.body)
        if message is None or message.topic != topic:
            raise Violation("a message is shown that was never sent there", f"{record.body[:60]!r} at {place}")
        name = f"act {message.act} at {place}"
        if message.fate == "deleted" or place in self._gone:
            raise Violation("what was deleted is shown again", name)
        before = self.shown.get(place)
        if before is not None and before != (record.body, record.store_time_ms):
            raise Violation("another message is shown at a place", f"{name}, it was {before[0][:60]!r}")
        if before is None:
            self.shown[place] = (record.body, record.store_time_ms)
            self._arrives(message, place, now, name)
        if message.fate != "doubtful":
            self._give(message, place)

    def _arrives(self, message: Sent, place: Place, now: float, name: str) -> None:
        if message.arrived and (not message.delay_s or self.leads == message.leads):
            raise Violation("a message is shown twice", f"{name} and at {message.arrived}")
        if message.delay_s and not self.clocks_moved and now < message.sent_at + message.delay_s - 0.01:
            raise Violation("a message comes before its time", name)
        message.arrived.append(place)

    def whole(self, topic: str, queue: int, found: set[int], end: int) -> None:
        """A leader showed all of a queue, up to `end`."""
        for place, message in self.expected.items():
            if place[:2] == (topic, queue) and place.offset not in found:
                where = "behind its end" if place.offset >= end else "inside it"
                raise Violation("an acknowledged message is missing", f"act {message.act} at {place}, {where} ({end})")

    def late(self) -> None:
        """All that waits has had its time."""
        for message in self.sent.values():
            if message.delay_s and message.fate == "acknowledged" and not message.arrived:
                raise Violation("a delayed message does not come", f"act {message.act} to {message.topic}")
