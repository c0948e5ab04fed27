"""Rules for a set, in plain words. The oracle sees clients' answers, whichever member gives them.

1. A message that was acknowledged is there after every fail-over, at its place and byte for byte, until its topic was
   deleted or purged, or its log file went by the rules of retention. Each later leader shows everything that was shown
   before. A leader that stood still while another was elected may show less, until it has read the store, and one
   that is cut off, for a few seconds.
2. No place is given to two messages, whoever led when. Nothing is shown twice, and nothing that was never sent.
3. A deletion or a purge that was acknowledged holds after a fail-over: nothing of it is shown again. One that was not
   was done, or was not. What waited for a topic that was deleted does not come into the next one of its name.
4. A message that waits (for a delay, for a decision) comes, and not before its time unless clocks were set; more than
   once only over a change of leader. One that was taken back or rolled back does not come, whoever leads. A half
   message that was acknowledged can be ended at each later leader.
5. When all can reach each other and the store, the set comes together: one member leads, all have its log, byte for
   byte, its topics, and the beginnings and ends of its queues. The name server's routes name the leader as the only
   master.
6. A member logs no exception, and ends when it is asked to.
7. A group's offset is one that was committed, or to which an administrator moved it: since the set was together last,
   or the one it had then. A move that was acknowledged, and a group that was made, are there after a fail-over. An
   offset never lies beyond the end of its queue.
8. No member is elected that lacks older messages which another member in sync, that has been well, would still show.
9. Users and what they may do are at all members when a change is acknowledged, and after each fail-over as they were
   acknowledged: with the same rights, and without those that were deleted.
10. A topic has the schema that it was given, at all members when the set is together.
11. A leader that stood still while another was elected acknowledges nothing more.
12. An asynchronous set may lose at a fail-over what came since it was together last. All else holds for it, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from appliance.engine.access.book import Account
from appliance.engine.protocol.record import Record
from tests.world.oracle import RESERVED_S, Place, Violation

#: Whose age is known as well as this.
_AGE_S = 120.0


@dataclass(eq=False)
class Sent:
    """A message. kind: plain, delay, timer or half. delay_s: 0 for what has no time. fate: unknown, acknowledged,
    deleted (for good), doubtful: it was deleted or lost, or not. leads: number of the leaders there had been. arrived:
    places at which it was shown. end: of what waits: "", maybe, taken back, committed, rolled back. firm: all members
    have it.
    """

    act: int
    topic: str
    body: bytes
    sent_at: float
    delay_s: float
    leads: int
    kind: str = "plain"
    fate: str = "unknown"
    end: str = ""
    firm: bool = False
    firm_end: bool = False
    half_offset: int = -1
    physical: int = -1
    handle: str = ""
    unique: str = ""
    arrived: list[Place] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return self.kind != "plain"


class SetOracle:
    """clocks_moved: since then the times of members are not those of the world. is_async: what is not firm may be
    lost."""

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
        self.is_async = False
        #: Seconds by which retention may misjudge an age: clocks were set.
        self.age_off_s = 0.0
        #: A member's disk was too full: it may have deleted what is young, and others may have copied its log anew.
        self.was_full = False
        #: (topic, queue) -> offsets that the group may have.
        self.offsets: dict[tuple[str, int], set[int]] = {}
        #: (topic, queue) -> the highest offset at which a queue began at a leader, when it began to lead.
        self._begins: dict[tuple[str, int], int] = {}
        #: Groups that were made.
        self.groups: set[str] = set()
        #: User -> the accounts that there may be; one after a change was acknowledged.
        self.users: dict[str, set[Account]] = {}
        #: Topic -> names of the schemas that it may have, "" for none: since the set was together last.
        self.schemas: dict[str, set[str]] = {}

    def send(self, message: Sent) -> None:
        self.sent[message.body] = message
        message.leads = self.leads

    def acknowledged(self, message: Sent, place: Place) -> None:
        if self.is_async and message.leads != self.leads:  # by a leader that has gone, perhaps
            message.fate = "doubtful"
            return
        message.fate = "acknowledged"
        if not message.waits:
            self._give(message, place)

    def led(self) -> None:
        """Another member leads."""
        self.leads += 1
        if not self.is_async:
            return
        for message in self.sent.values():
            if not message.firm and message.fate == "acknowledged":
                message.fate = "doubtful"
            if message.end not in ("", "maybe") and not message.firm_end:
                message.end = "maybe"
        for place in [place for place, message in self.expected.items() if not message.firm]:
            del self.expected[place]
        firm = {message.body for message in self.expected.values()}
        for place in [place for place, (body, _) in self.shown.items() if body not in firm]:
            message = self.sent[self.shown.pop(place)[0]]
            message.arrived = [one for one in message.arrived if one != place]

    def together(self) -> None:
        """All members have the same log, on their disks."""
        for message in self.expected.values():
            message.firm = True
        for message in self.sent.values():
            message.firm = message.firm or (message.waits and message.fate == "acknowledged")
            message.firm_end = message.firm_end or message.end not in ("", "maybe")

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
        sure = sure and not self.is_async
        fate = "deleted" if sure else "doubtful"
        for place in self._places_of(topic, below):
            message = self.expected.pop(place)
            if sure:
                self._gone.add(place)
            # A waiting message may come twice over a change of leader, behind the purged ones.
            message.fate = "doubtful" if message.waits and below is not None else fate
        if below is None:
            self.topics.pop(topic, None)
            for message in self.sent.values():
                if message.topic == topic and message.waits and not message.arrived:
                    message.fate = "deleted" if message.fate == "deleted" else fate
            for known in (self.offsets, self._begins):
                for key in [key for key in known if key[0] == topic]:
                    del known[key]
            if topic in self.schemas:
                self.schemas[topic] = {""} if sure else self.schemas[topic] | {""}

    def record(self, topic: str, queue: int, record: Record, now: float) -> None:
        """A member showed this."""
        place = Place(topic, queue, record.queue_offset)
        message = self.sent.get(record.body)
        if message is None or message.topic != topic:
            raise Violation("a message is shown that was never sent there", f"{record.body[:60]!r} at {place}")
        name = f"act {message.act} ({message.kind}) at {place}"
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
        if message.arrived and (not message.waits or self.leads == message.leads):
            raise Violation("a message is shown twice", f"{name} and at {message.arrived}")
        if message.kind == "half" and message.end == "":
            raise Violation("a half message comes without a decision", name)
        if message.end in ("taken back", "rolled back"):
            raise Violation(f"a message comes that was {message.end}", name)
        if message.delay_s and not self.clocks_moved and now < message.sent_at + message.delay_s - 0.01:
            raise Violation("a message comes before its time", name)
        message.arrived.append(place)

    def whole(self, member: str, topic: str, queue: int, found: set[int], span: tuple[int, int], now: float) -> None:
        """A leader showed all of a queue, which spans this. Its beginning follows that of the log a moment later."""
        begin, end = max(span[0], min(found, default=span[1])), span[1]
        for place, message in list(self.expected.items()):
            if place[:2] != (topic, queue) or place.offset in found:
                continue
            is_old = now - message.sent_at >= RESERVED_S - self.age_off_s - _AGE_S
            if place.offset < begin and (is_old or self.was_full):
                del self.expected[place]
                message.fate = "doubtful"
                continue
            where = "behind its end" if place.offset >= end else "inside it" if place.offset >= begin else "before it"
            raise Violation(
                "an acknowledged message is missing",
                f"act {message.act} at {place}, {where} ({begin}-{end}) of {member}",
            )

    def waits_until(self) -> float:
        """Return when the last of what waits has to have come; where clocks were set, that of what they do not move."""
        found = [
            message.sent_at + message.delay_s
            for message in self.sent.values()
            if self._comes(message) and not (message.delay_s and self.clocks_moved)
        ]
        return max(found, default=0.0)

    def _comes(self, message: Sent) -> bool:
        """True if it waits, and has to come."""
        decided = message.end == "committed" if message.kind == "half" else message.end == ""
        return message.waits and decided and message.fate == "acknowledged" and not message.arrived

    def may_go_unread(self, now: float) -> None:
        """Log files go: what waited and has come by now may lie in them unread."""
        for message in self.sent.values():
            unread = message.waits and not message.arrived and message.fate == "acknowledged"
            if unread and now >= message.sent_at + message.delay_s:
                message.fate = "doubtful"

    def late(self) -> None:
        """All that waits has had its time. Where clocks were set it may be later by as much."""
        for message in self.sent.values():
            if message.delay_s and self.clocks_moved:
                continue
            if self._comes(message):
                rule = (
                    "a committed message does not come" if message.kind == "half" else "a delayed message does not come"
                )
                raise Violation(rule, f"act {message.act} to {message.topic}")

    def begins(self, topic: str, queue: int, begin: int) -> None:
        """A new leader has a queue from there on."""
        self._begins[topic, queue] = max(begin, self._begins.get((topic, queue), 0))

    def offset(self, topic: str, queue: int, found: int, span: tuple[int, int], member: str) -> None:
        """A leader says where the group is. span: of the queue. A new leader moves it to where the queue begins there;
        a later one may have older messages."""
        allowed, (begin, end) = self.offsets.get((topic, queue)), span
        begin = max(begin, self._begins.get((topic, queue), 0))
        if allowed is not None and found <= begin and any(0 <= one < found for one in allowed):
            allowed.add(found)
        if found > end:
            raise Violation("a group's offset lies beyond the end", f"{topic}-{queue}: {found} of {end} at {member}")
        if allowed is not None and found not in allowed and not self.is_async:
            raise Violation(
                "a group's offset is another one", f"{topic}-{queue}: {found} at {member}, not of {sorted(allowed)}"
            )
