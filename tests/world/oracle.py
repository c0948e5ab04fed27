"""Rules that must hold, in plain words. The oracle sees clients' answers, and nothing of how the broker works.

1. A message that was acknowledged is shown at its (topic, queue, offset), byte for byte, until its topic was deleted or
   its log file went by the rules of retention. A message that was shown once stays as it was shown.
2. No (topic, queue, offset) is given to two messages, not even by a topic that was made again.
3. Nothing is shown that was never sent, or was deleted, taken back or rolled back. Nothing is shown twice.
4. A message that waits (for a delay, a time, a decision) comes once: not before its time, and not much later. A clock
   that is set or runs wrong may make it later by as much, also while the machine stands still; what is sent within a
   second of a step, before the machine stands still, may wait its time again after that. One that runs fast may
   make it earlier by as much; one that is set forward only just before a kill, at a master before its slave takes its
   place, or if the message names a time of day; one that is set twice within a second before a restart. One that runs
   slowly and is set as the message is sent may make it earlier by what it loses in a second. After a kill messages that
   had come in the last two seconds may come again.
5. A group's offset is the one committed last; after a kill one that was committed in the last seconds before; and
   never beyond the end of its queue.
6. A search by time leads to the first message that is not older. While messages bear times that are yet to come, a
   search for about now finds them before it.
7. The broker starts again, ends when asked, answers everything, and logs no exception.
8. A message that a consumer sent back comes again to its group after the wait of its level, with one retry more;
   beyond the limit it becomes a dead letter, once.
9. A queue that is consumed in order belongs to one consumer of a group at a time: for a minute, until it gives it back,
   or until the broker starts anew.
10. A filter lets through exactly what fits: tags and SQL92 expressions. A query for a key finds all messages that have
   it, and nothing else. A pull that waits is answered when a message comes.
11. With flushes now and then, a loss of power takes the log's end only: what came in the last two seconds, or since
    syncs take long or the machine stands still.
12. A slave's log is its master's, byte for byte, and comes to its end when they can reach each other. A message that a
    sync master acknowledged is on its slave's disk, and stays there when the slave loses its power.
13. When a sync or a write of the log failed, nothing more is acknowledged until a restart; nothing that was is lost.
14. A broadcast consumer gets all from the place on that it keeps itself, once and in order; its group has no offset.
    One that lags behind the beginning of a queue goes on there.
15. A client id belongs to its group until the last client with it has gone, and so do the queues that it has in order.
    A client that went on asking while the machine stood still has not gone.
16. A log file goes when all in it is as old as `fileReservedTime`, or when the disk is too full, then whatever waits in
    it. Who reads meanwhile gets messages whole.
17. A backup starts elsewhere. It has the topics, what was shown up to its end of the log, byte for byte, nothing else,
    and offsets as a kill would have left them.
18. What a purge took is not shown again, whatever dies, is cut off or is copied; what came behind it stays. A purge
    that was not answered was done, or was not.
19. What waits for a topic that was deleted does not come into the next one of its name.
20. A slave that is made the master by hand has what it copied: all messages, topics and queues. Messages that waited
    and came in the last seconds before may come again, and those stored before the clock was set just before a kill.
21. A user of the wire sends and pulls at most what its quotas allow, with one second's worth and one message on top.
    Its sends wait for at most a second and are then refused, and keep their order; its pulls are held, never refused.
    Other clients do not wait. With a quota of requests work of clients is never refused; of connections those that came
    first stay.
22. A user may do what its entries said when a change was last acknowledged, and nothing else; a change without an
    answer was done, or was not. A slave has its master's users, and keeps them when it is made the master.
23. A topic has the schema that it was given last, also after a kill and at a slave that is made the master; one that
    was deleted leaves none to the next of its name.
24. A dead letter that is sent again comes to its group once for each time, as at its first try, whatever dies, and
    whoever sends messages that look like its copy.
25. A message that an administrator delivers before its time comes at once, and not again; one that is dropped does not
    come. Another one with its topic, key and time goes on waiting.
26. A group's filter is the one that its client told last, whatever that client's clock shows.
27. Beside a client that takes all that it gets others get a queue in order.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from appliance.engine.access.book import Account
from appliance.engine.protocol.record import Record
from tests.world.threads import LOOK_S, Moved, WallClock

#: After its time a message has to be there within so many seconds.
LATE_S = 10.0
#: Messages that came so shortly before a kill may come again: progress is saved each second, and a save may be under
#: way.
AGAIN_S = 2.5
#: Offsets are saved every five seconds.
OFFSETS_SAVED_S = 7.0
#: Without syncs in between a loss of power takes at most the messages of these seconds.
ASYNC_LOSS_S = 2.0
#: Seconds for which a queue consumed in order stays its consumer's.
LEASE_S = 60.0
#: So long messages are kept (`fileReservedTime`); more than any step of the clock.
RESERVED_S = 3 * 3600.0
#: When a message was stored is known as well as this.
_STORED_S = 60.0
NEAR_MS = 60_000
AHEAD_MS = 1000


class Violation(AssertionError):
    """A promise was broken. rule: which one, in a few words that stay the same while a failure is shrunk."""

    def __init__(self, rule: str, detail: str = "") -> None:
        super().__init__(f"{rule}: {detail}" if detail else rule)
        self.rule = rule


class Place(NamedTuple):
    topic: str
    queue: int
    offset: int


@dataclass(eq=False)
class Message:
    """A message that was sent. act: number of the act that sent it. kind: plain, delay, timer or half; for the copy of
    one that a consumer sent back, retry or dead; of a dead letter that is sent again, replay. retries: how often it was
    sent back.

    state: unknown (no answer came), acknowledged, refused. sent_at, due_s: on the monotonic clock; due_s is 0 for what
    does not wait. physical: of the record that was answered. fate: of a message that waits: "", recalled, rolled
    back, maybe (a recall had no answer), committed. arrived: when it was shown, each time.
    """

    act: int
    topic: str
    body: bytes
    kind: str
    properties: dict[str, str]
    sent_at: float
    due_s: float = 0.0
    acknowledged_at: float = 0.0
    retries: int = 0
    state: str = "unknown"
    physical: int = -1
    half_offset: int = -1
    handle: str = ""
    unique: str = ""
    fate: str = ""
    #: Its topic was deleted: of a plain one for good; one that waits may come to the next topic of that name, or not.
    deleted: bool = False
    may_be_lost: bool = False
    #: From then on it may come: an administrator delivered it, or tried to.
    early_from: float = math.inf
    #: It waited for its topic when that was deleted for good.
    outlived: bool = False
    #: How far the wall clock had moved when it was sent.
    moved: Moved = Moved()
    #: Of a timer: it is due at a time of day, not after a delay.
    names_time: bool = False
    doubled: bool = False
    #: Number of the broker's checks of the transaction, and the time when it was decided.
    asked: int = 0
    decided_at: float = 0.0
    arrived: list[float] = field(default_factory=list)
    place: Place | None = None

    @property
    def waits(self) -> bool:
        return self.kind != "plain"


class Shown(NamedTuple):
    """A record as clients saw it."""

    message: Message
    digest: bytes
    stored_ms: int
    physical: int


def digest_of(record: Record) -> bytes:
    """Return a digest of all that the producer set."""
    text = b"%d %b %b" % (record.flag, record.properties.encode("utf-8", "surrogateescape"), record.body)
    return hashlib.blake2b(text, digest_size=8).digest()


class Commits:
    """Offsets that a group may have for a queue."""

    def __init__(self) -> None:
        self.last: tuple[int, float] | None = None
        self.saved: list[tuple[int, float]] = []  # older ones that a kill may bring back
        self.unsure = False

    mixed = False
    #: The content of the file is unknown, or (unknown) also the broker's offset.
    tainted = False
    unknown = False
    #: Since an administrator moved it: where to, and what was committed since, which counts or not.
    loose: set[int] | None = None
    #: An administrator's move to an unknown place may hold the offset. While it does, commits are left out.
    astray = False

    def moved(self, offset: int) -> None:
        """An administrator moved it, for good."""
        self.saved, self.unsure, self.mixed, self.may_be_none, self.unknown = [], False, False, False, False
        self.tainted = self.astray = False
        self.last, self.loose = (offset, -math.inf), {offset}

    def commit(self, offset: int, now: float) -> None:
        self.unknown = self.astray
        if self.loose is not None:
            self.loose.add(offset)
        if self.last is not None:
            self.saved.append(self.last)
        self.last = (offset, now)

    def doubt(self) -> None:
        """Forget all that was committed: the broker's offset is unknown, and so is what the file holds. Only
        an offset that is committed or seen later can be in the file for certain."""
        self.last, self.saved = None, []
        self.tainted = self.unknown = True
        self.astray = self.astray or self.loose is not None

    def killed(self, now: float) -> None:
        """Any that may have been the last when the file was saved: those since then, and the one before."""
        if self.tainted:
            # What was committed before an earlier kill may be gone since then, however long ago that was.
            lost = self.unknown or self.astray or self.last is None
            self.tainted = lost or self.last[1] >= now - OFFSETS_SAVED_S  # type: ignore[index]
            self.unknown = self.tainted
        every = [*self.saved, *([self.last] if self.last else [])]
        if self.unsure or self.mixed:  # not looked at since the last kill, or behind a commit only
            self.saved, self.unsure = every, True
            return
        recent = [one for one in every if one[1] >= now - OFFSETS_SAVED_S]
        older = [one for one in every if one[1] < now - OFFSETS_SAVED_S]
        self.saved = older[-1:] + recent
        self.unsure = True
        self.may_be_none = not older

    may_be_none = True
    #: Beginning of the queue when the broker became the master: an offset before it may have been moved there.
    begun_at = -1

    def allowed(self) -> set[int]:
        """Return the offsets that may be answered; empty if they are unknown."""
        if self.unknown:
            return set()
        found = {self.last[0]} if self.last else set()
        if self.loose is not None:
            found |= self.loose
        if self.unsure:
            found |= {offset for offset, _ in self.saved}
            if self.may_be_none:
                found.add(-1)
        if any(0 <= offset < self.begun_at for offset in found):
            found.add(self.begun_at)
        return found

    def seen(self, offset: int, now: float) -> None:
        if self.astray:  # a move that still holds the offset holds this one
            self.astray, self.loose = False, {offset}
        if self.unknown:
            self.unknown, self.unsure, self.saved = False, False, []
            self.last = None if offset < 0 else (offset, now)
        elif self.unsure and self.last is not None and self.last[0] == offset and self.last[1] >= 0:
            self.unsure, self.mixed = False, True
        elif self.unsure:
            self.saved, self.unsure, self.mixed = [], False, False
            self.last = None if offset < 0 else (offset, now)


class Oracle:
    """wall: the clock that the broker's messages are stamped by."""

    def __init__(self, wall: WallClock) -> None:
        self._wall = wall
        #: (topic, body) -> messages: one, but of those that were sent back.
        self._messages: dict[tuple[str, bytes], list[Message]] = {}
        self.messages: list[Message] = []
        #: Messages that must be shown: (topic, queue) -> offset -> message.
        self.expected: dict[tuple[str, int], dict[int, Message]] = {}
        self.shown: dict[tuple[str, int], dict[int, Shown]] = {}
        self.given: dict[Place, Message] = {}
        #: Place -> physical offset of the record that was shown there, also of a topic that was deleted since.
        self._lies: dict[Place, int] = {}
        #: Queues of the topics that there are; None for an unknown one.
        self.topics: dict[str, int] = {}
        self.unsure: set[str] = set()
        #: Topics of which a change could not be saved: what a start finds of them is open.
        self.doubtful: set[str] = set()
        #: (group, topic, queue) that an administrator moved: what is committed may count or not.
        self.moved: set[tuple[str, str, int]] = set()
        #: Topic -> when a send or a retry made it.
        self.made_by_send: dict[str, float] = {}
        self.commits: dict[tuple[str, str, int], Commits] = {}
        #: (group, topic, queue) -> who consumes it in order, and until when.
        self.leases: dict[tuple[str, str, int], tuple[str, float]] = {}
        #: While the broker syncs now and then only, a loss of power takes what came last.
        self.is_async = False
        #: From here on no sync succeeded: the log refuses until a restart.
        self.disk_failed = False
        self.failed_at = math.inf
        self.min_physical = 0
        self.killed_at: list[float] = []
        #: For each kill, the time up to which all that had come was saved.
        self._saved_at: list[float] = []
        #: Since then the disk fails, or is too slow to save in time.
        self.trouble_since = math.inf
        #: Since then syncs take long, or no thread runs that would do one.
        self.unsynced_since = math.inf
        self.started_at = 0.0
        #: (where the log ended, when), rising.
        self._log_ends: list[tuple[int, float]] = []
        #: When the broker's last life ended.
        self.ended_at = 0.0
        #: No step of the clock came between then and when a slave was made the master.
        self._promoted_at = -math.inf
        self.disk_was_full = False
        #: (who, topic, queue) -> where a broadcast consumer is.
        self.own_places: dict[tuple[str, str, int], int] = {}
        self._lost_power_at = -1.0
        #: Until then files go before their time, and messages waiting in them are stored again; a kill may leave both.
        self.full_until = -math.inf
        #: Physical offset where the last record begins that was acknowledged since the last look.
        self.acknowledged_end = -1
        #: The same, of all that a master acknowledged that waits for its slave: the slave has it on its disk.
        self.on_slave = -1
        #: A master that waits for its slave shows nothing until then.
        self.flows_since = -math.inf
        #: Acknowledged, and not shown yet.
        self._awaited: list[Message] = []
        #: (topic, queue) -> physical offset of the last record that a purge took.
        self.purged_to: dict[tuple[str, int], int] = {}
        #: (topic, queue) -> offset up to which a purge that had no answer may have been done.
        self._purging: dict[tuple[str, int], int] = {}
        #: Message -> when the broker said that it is too late to take it back.
        self.too_late: dict[int, tuple[Message, float]] = {}
        #: Topic -> names of the schemas that it may have, "" for none; one after a change was acknowledged.
        self.schemas: dict[str, set[str]] = {}
        #: The accounts that the user whose rights change may have; one after a change was acknowledged.
        self.rights: set[Account] = {Account("limited", gone=True)}

    # --- sends

    def sent(self, message: Message) -> None:
        message.moved = self._wall.moved
        self._messages.setdefault((message.topic, message.body), []).append(message)
        self.messages.append(message)

    def copied(self, message: Message, now: float) -> None:
        """One that was sent back is to come."""
        message.state, message.acknowledged_at = "acknowledged", now
        self._awaited.append(message)

    def acknowledged(self, message: Message, queue: int, offset: int, physical: int, now: float = 0.0) -> None:
        message.state, message.physical, message.acknowledged_at = "acknowledged", physical, now
        self.acknowledged_end = max(self.acknowledged_end, physical)
        if message.waits:
            message.half_offset = offset
            self._awaited.append(message)
            return
        self._give(message, Place(message.topic, queue, offset))

    def _give(self, message: Message, place: Place) -> None:
        other = self.given.get(place)
        if other is not None and other is not message:
            raise Violation("a place was given twice", f"{place} to act {other.act} and to act {message.act}")
        if message.place is not None and message.place != place and not message.waits:
            raise Violation("a message was stored twice", f"act {message.act} at {message.place} and {place}")
        self.given[place] = message
        message.place = place
        if not message.deleted:
            self.expected.setdefault(place[:2], {})[place.offset] = message

    def named(self, topic: str, body: bytes) -> list[Message]:
        """Messages that were sent with this body."""
        return self._messages.get((topic, body), [])

    # --- topics

    def deleted(self, topic: str, sure: bool) -> None:
        """Note that a topic was deleted or, if not `sure`, that it may have been."""
        for message in self.messages:
            if message.topic != topic:
                continue
            if message.waits and not message.arrived:
                message.may_be_lost = True
                message.outlived = message.outlived or sure
            elif sure:
                message.deleted = True
            else:
                message.may_be_lost = True
        for key in [key for key in self.expected if key[0] == topic]:
            if sure:
                del self.expected[key]
                self.shown.pop(key, None)
            else:
                for message in self.expected.pop(key).values():
                    message.may_be_lost = True
                self.shown.pop(key, None)
        for commit in [commit for commit in self.commits if commit[1] == topic]:
            if sure:
                del self.commits[commit]
            else:
                self.offset_in_doubt(commit)
        if sure:
            self.topics.pop(topic, None)
        if topic in self.schemas:
            self.schemas[topic] = {""} if sure else self.schemas[topic] | {""}

    def purge_begins(self, topic: str, ends: dict[int, int]) -> None:
        """A purge is asked for. ends: of the queues, behind all that is shown."""
        for queue, end in ends.items():
            self._purging[topic, queue] = max(end, self._purging.get((topic, queue), 0))

    def purged(self, topic: str, queue: int, first: int) -> None:
        """A queue begins at `first` since it was purged."""
        key = (topic, queue)
        expected, shown = self.expected.get(key, {}), self.shown.get(key, {})
        for offset in [offset for offset in expected if offset < first]:
            del expected[offset]
        for offset in [offset for offset in shown if offset < first]:
            self.purged_to[key] = max(self.purged_to.get(key, -1), shown.pop(offset).physical)
        self._purging.pop(key, None)

    def _was_purged(self, key: tuple[str, int], low: int) -> None:
        """The queue begins at `low`, which decides what became of a purge without an answer."""
        end = self._purging.get(key)
        expected = self.expected.get(key, {})
        if end is not None and any(offset < min(low, end) for offset in expected):
            self.purged(*key, min(low, end))

    def offset_in_doubt(self, key: tuple[str, str, int]) -> None:
        """Neither a group's offset of a queue is known, nor what its file holds. key: group, topic, queue."""
        self.commits.setdefault(key, Commits()).doubt()

    def narrowed(self, topic: str) -> None:
        """Note that the topic has fewer queues: messages that wait for the others cannot be read."""
        for message in self.messages:
            if message.topic == topic and message.waits and not message.arrived:
                message.may_be_lost = True

    # --- what is shown

    def record(self, topic: str, queue: int, record: Record, now: float) -> None:
        """A consumer was given this."""
        offset = record.queue_offset
        place, key = Place(topic, queue, offset), (topic, queue)
        if record.physical_offset <= self.purged_to.get(key, -1):
            raise Violation("a purged message is shown again", f"{record.body[:60]!r} at {place}")
        if record.topic != topic or record.queue_id != queue:
            raise Violation("a record of another queue is shown", f"{record.topic}-{record.queue_id} at {place}")
        same = self._messages.get((topic, record.body))
        if same is None:
            raise Violation("a message is shown that was never sent", f"{record.body[:60]!r} at {place}")
        expected = self.expected.get(key, {}).get(offset)
        came = self._came_at(record.physical_offset, now)
        # Copies that are seen late, after a restart, differ by when they were written.
        message = expected if expected in same else self._which(same, record, place, came)
        if expected is not None and expected is not message:
            raise Violation(
                "another message is shown at a place", f"act {message.act} at {place}, where act {expected.act} is"
            )
        digest = digest_of(record)
        before = self.shown.get(key, {}).get(offset)
        if before is not None:
            if before.digest != digest or before.stored_ms != record.store_time_ms:
                raise Violation("a message changes once it was shown", f"act {message.act} at {place}")
            return
        if expected is None:
            self._first_seen(message, place, came)
        self._judge_properties(message, record)
        self.shown.setdefault(key, {})[offset] = Shown(message, digest, record.store_time_ms, record.physical_offset)
        self._lies[place] = record.physical_offset

    def _which(self, same: list[Message], record: Record, place: Place, now: float) -> Message:
        """Return the one of several copies of a message that is shown there first."""
        fitting = [one for one in same if one.retries == record.reconsume_times]
        if not fitting:
            raise Violation(
                "a message is shown with another number of retries", f"{record.reconsume_times}, {record.body[:60]!r}"
            )
        if self.given.get(place) in fitting:
            return self.given[place]

        def rank(one: Message) -> tuple[int, float]:
            due_s = min(one.due_s, one.early_from)
            if not one.waits and one.place is not None:  # it is elsewhere
                return 4, one.due_s
            if not one.arrived and one.state != "refused" and due_s - self._forward_s(one) <= now + 0.005:
                return (1 if one.may_be_lost or one.state == "unknown" else 0), one.due_s
            return (2 if self._may_repeat(one) else 4 if one.arrived else 3), one.due_s

        return min(fitting, key=rank)

    def _may_repeat(self, message: Message) -> bool:
        """True if it had come so shortly before a kill that it may come again."""
        return message.doubled or any(
            since - 0.001 <= first <= killed + 0.001
            for killed, since in zip(self.killed_at, self._saved_at, strict=True)
            for first in message.arrived
        )

    def log_ends(self, physical: int, now: float) -> None:
        """The log ends there now."""
        if not self._log_ends or physical > self._log_ends[-1][0]:
            self._log_ends.append((physical, now))

    def started(self, log_end: int, now: float) -> None:
        """Begin a life. The previous life's last writes came at its end at the latest, or are gone."""
        self.started_at = now
        self.leases.clear()
        if self.is_async and (self._lost_power_at == self.ended_at or self.disk_failed):
            self._cut(log_end, min(self.ended_at, self.failed_at, self.unsynced_since) - ASYNC_LOSS_S)
        self.disk_failed, self.failed_at, self.trouble_since = False, math.inf, math.inf
        self.unsynced_since = math.inf
        while self._log_ends and self._log_ends[-1][0] >= log_end:
            self._log_ends.pop()
        self._log_ends.append((log_end, self.ended_at))

    def _cut(self, log_end: int, since: float) -> None:
        """Mark messages behind the new end. They were not promised if they came after `since`; others are a
        violation."""
        for message in self.messages:
            if message.state == "acknowledged" and message.physical >= log_end:
                if message.acknowledged_at < since:
                    raise Violation(
                        "a loss of power took what was written long before",
                        f"act {message.act}, acknowledged {self.ended_at - message.acknowledged_at:.1f} s before",
                    )
                message.state, message.may_be_lost = "unknown", True
                if message.place is not None:
                    self.given.pop(message.place, None)
                    message.place = None
            if message.kind in ("retry", "dead", "replay") and message.acknowledged_at >= since:
                message.may_be_lost = True
            if message.fate not in ("", "maybe"):  # the mark or the decision may be lost
                message.fate = "maybe"
        self.purged_to = {key: min(place, log_end - 1) for key, place in self.purged_to.items()}
        for key, shown in self.shown.items():
            for offset in [offset for offset, one in shown.items() if one.physical >= log_end]:
                message = shown.pop(offset).message
                message.arrived, message.place = [], None
                self.expected.get(key, {}).pop(offset, None)
                self.given.pop(Place(*key, offset), None)
        for place in [place for place, physical in self._lies.items() if physical >= log_end]:
            del self._lies[place]
            # A deletion without an answer hides it from `shown`, and may have noted no end of its queue.
            if (given := self.given.get(place)) is not None and not given.deleted:
                del self.given[place]
                given.arrived, given.place = [], None
        for key, messages in self.expected.items():
            for offset in [offset for offset, one in messages.items() if one.may_be_lost and not one.arrived]:
                messages.pop(offset).place = None
                self.given.pop(Place(*key, offset), None)
        for commits in self.commits.values():  # those beyond an end are cut
            commits.doubt()
        for topic, made_at in self.made_by_send.items():
            if made_at >= since:
                self.unsure.add(topic)

    def _came_at(self, physical: int, now: float) -> float:
        """When a record was written, or a little later: a queue that was hidden shows its messages late."""
        at = bisect.bisect_right(self._log_ends, (physical, math.inf))
        return self._log_ends[at][1] if at < len(self._log_ends) else now

    def _first_seen(self, message: Message, place: Place, came: float) -> None:
        if message.topic != place.topic:
            raise Violation("a message is shown in another topic", f"act {message.act} at {place}")
        if message.deleted and not message.waits:
            raise Violation("a deleted message comes back", f"act {message.act} at {place}")
        if message.state == "refused":
            raise Violation("a refused message is shown", f"act {message.act} at {place}")
        if message.waits:
            self._arrives(message, place, came)
        elif message.may_be_lost and message.place == place:
            pass  # the deletion of unknown end was not done
        elif message.place is not None and message.place != place:
            raise Violation("a message is shown twice", f"act {message.act} at {message.place} and {place}")
        self._give(message, place)

    def _arrives(self, message: Message, place: Place, now: float) -> None:
        name = f"act {message.act} ({message.kind}) at {place}"
        if message.place == place and not message.deleted:
            return
        if message.fate == "recalled":
            raise Violation("a message comes that was taken back", name)
        if message.fate == "rolled back":
            raise Violation("a message comes that was rolled back", name)
        if message.outlived and not message.arrived:
            raise Violation("a message comes that waited for a topic that was deleted", name)
        if message.kind in ("dead", "replay") and message.arrived:
            raise Violation("a dead letter comes twice", f"{name}, first at {message.place}")
        if message.kind == "half" and message.fate == "":
            raise Violation("a half message comes without a decision", name)
        same = self._messages[message.topic, message.body]  # copies of one message are alike
        if message.arrived and not any(self._may_repeat(one) for one in same if one.retries == message.retries):
            raise Violation("a message that waited comes twice", f"{name}, first at {message.place}")
        early = min(message.due_s, message.early_from) - now - self._forward_s(message)
        if message.due_s and early > 0.005:
            raise Violation("a message comes before its time", f"{name}, {early:.3f} s early")
        message.arrived.append(now)
        message.deleted = False

    @staticmethod
    def _judge_properties(message: Message, record: Record) -> None:
        found = dict(pair.split("\x01", 1) for pair in record.properties.split("\x02") if "\x01" in pair)
        for name, value in message.properties.items():
            if found.get(name) != value:
                raise Violation(
                    "a property is another one", f"act {message.act}: {name}={found.get(name)!r}, sent {value!r}"
                )

    def whole(self, topic: str, queue: int, low: int, high: int, offsets: set[int]) -> None:
        """All that a queue shows was read: it spans [low, high), and messages lie at `offsets`."""
        self._was_purged((topic, queue), low)
        for offset, message in self.expected.get((topic, queue), {}).items():
            if offset in offsets:
                continue
            if message.may_be_lost and message.deleted is False and not message.waits:
                continue
            where = "before its beginning" if offset < low else "behind its end" if offset >= high else "inside it"
            raise Violation(
                "an acknowledged message is missing",
                f"act {message.act} at {Place(topic, queue, offset)}, {where} [{low}, {high})",
            )

    def retire(self, log_begin: int, now: float) -> None:
        """The log begins there now: what lay before may be gone."""
        if log_begin == self.min_physical:
            return
        self.min_physical = log_begin
        self.excuse_replays()
        for key, messages in self.expected.items():
            shown = self.shown.get(key, {})
            for offset in [
                offset
                for offset, message in messages.items()
                if (shown[offset].physical if offset in shown else message.physical) < log_begin
                and (offset in shown or not message.waits)
            ]:
                message = messages.pop(offset)
                one = shown.pop(offset, None)
                # It may have been delivered twice: what counts is when this record was written.
                written_at = self._came_at(one.physical if one else message.physical, now)
                age = now - max(message.sent_at, message.acknowledged_at, written_at)
                if not self.disk_was_full and age < RESERVED_S - self._wall.moved.either_way / 1000 - _STORED_S:
                    raise Violation(
                        "a log file goes though the disk has room and nothing is old",
                        f"{log_begin}: act {message.act} is {age:.0f} s old",
                    )

    def grew_old(self, now: float) -> None:
        """Note that half messages have become so old that the broker may never check them."""
        for message in self.messages:
            if message.kind == "half" and message.fate == "" and now - message.sent_at > RESERVED_S / 2:
                message.may_be_lost = True

    # --- time

    def _forward_s(self, message: Message) -> float:
        """Return how far the clock went forward since it was sent, if that may make it come early.

        Of a time of day the message may be due by the new clock. One that runs fast looks like one that is corrected
        little by little.
        """
        twice = self._set_twice_ms(message)
        if message.names_time:
            return (self._wall.moved.forward - message.moved.forward + twice) / 1000
        ran_ahead = self._wall.moved.ran_ahead - message.moved.ran_ahead
        unseen = sum(ms for when, ms in self._unseen_steps() if ms > 0 and when >= message.sent_at)
        return (ran_ahead + self._wall.lost_at_a_step(message.sent_at) + unseen + twice) / 1000

    def _set_twice_ms(self, message: Message) -> float:
        """Return by how many ms, either way, the clock was set twice within a second, about when it was sent or later,
        in an earlier life: this one knows their sum only."""
        steps = [(when, ms) for when, ms in self._wall.steps if ms]
        return sum(
            abs(first) + abs(second)
            for (before, first), (after, second) in itertools.pairwise(steps)
            if after - before <= LOOK_S and message.sent_at - LOOK_S <= after <= self.started_at
        )

    def _unseen_steps(self) -> list[tuple[float, int]]:
        """Return (when, by how many ms) the clock was set, if the next life does not know: one that was killed soon
        after may not have noted it, and a slave that is made the master was not told. Of two steps between two looks
        the next life knows their sum, and not what was stored between them."""
        lives = list(zip(self.killed_at, self._saved_at, strict=True))
        steps = [(when, ms) for when, ms in self._wall.steps if ms]
        return [
            (when, ms)
            for index, (when, ms) in enumerate(steps)
            if when <= self._promoted_at
            or any(since <= when <= killed for killed, since in lives)
            or (index and when - steps[index - 1][0] <= LOOK_S and when <= self.started_at)
        ]

    def killed(self, now: float, lost_power: bool = False) -> None:
        self.killed_at.append(now)
        self._saved_at.append(min(now, self.trouble_since) - AGAIN_S)
        if lost_power:
            self._lost_power_at = now
        if now <= self.full_until + AGAIN_S:
            self.may_double()
        self.ended_at = now
        for commits in self.commits.values():
            commits.killed(min(now, self.trouble_since))

    def promoted(self, since: float) -> None:
        """The master is another broker now, which may not know of what came after `since`."""
        self.on_slave = self.acknowledged_end = -1
        self.excuse_replays()  # a slave has no jobs
        unseen = max((when for when, _ in self._unseen_steps()), default=-math.inf)
        for message in self.messages:
            came_late = not message.arrived or message.arrived[-1] >= since
            if message.waits and (came_late or message.sent_at < unseen):
                message.doubled = True
        self._promoted_at = since

    def excuse_replays(self) -> None:
        """A job may pause for long, or not find its dead letters."""
        for message in self._awaited:
            if message.kind == "replay":
                message.may_be_lost = True

    def may_double(self) -> None:
        """A life ended that may have stored copies of what waits, and cannot say that they count."""
        for message in self.messages:
            if message.waits and not message.arrived:
                message.doubled = True

    def _latest(self, message: Message) -> float:
        """Return when a message that waits has to have come."""
        delay = max(0.0, message.due_s - message.sent_at) if message.kind != "half" else 0.0
        moved_s = (self._wall.moved.either_way - message.moved.either_way) / 1000
        beside_a_step = any(ms and abs(when - message.sent_at) <= LOOK_S for when, ms in self._wall.steps)
        flows = self.flows_since + (delay if beside_a_step and self.flows_since > message.sent_at else 0.0)
        return max(message.due_s, self.started_at + delay, flows) + LATE_S + moved_s

    def _came_for_another(self, message: Message, now: float) -> bool:
        """True if a copy that is alike was taken for this one, and may still come: then it is waited for instead."""
        for other in self._messages[message.topic, message.body]:
            if other.retries == message.retries and other.waits and other.arrived and now <= self._latest(other):
                message.arrived, other.arrived = other.arrived, []
                self._awaited.append(other)
                return True
        return False

    def waits_until(self) -> float:
        """Return when the last of what waits is due, were it recalled or rolled back, too; 0.0 if nothing waits."""
        found = [
            max(one.due_s, self.started_at + max(0.0, one.due_s - one.sent_at))
            for one in self.messages
            if one.waits and not one.arrived and one.state != "refused"
        ]
        return max([*found, self.flows_since])

    def late(self, now: float) -> None:
        """Raises Violation for what should have come by now."""
        self._awaited = [one for one in self._awaited if not one.arrived and not one.may_be_lost]
        if self.disk_failed:
            return
        for message in list(self._awaited):
            if message.fate not in ("", "committed") or (message.kind == "half" and message.fate == ""):
                continue
            if now > self._latest(message) and not self._came_for_another(message, now):
                raise Violation(
                    "a message that waited does not come",
                    f"act {message.act} ({message.kind}), due {now - message.due_s:.1f} s ago",
                )

    def too_late_claims(self, now: float) -> None:
        if self.disk_failed:
            return
        for act, (message, at) in list(self.too_late.items()):
            if message.arrived or message.may_be_lost or message.fate:
                del self.too_late[act]
            elif now > max(at, self.flows_since) + LATE_S:
                raise Violation(
                    "a message is called delivered that was not",
                    f"act {message.act}, {now - at:.1f} s ago, due in {message.due_s - now:.1f} s",
                )

    # --- searches

    def search(
        self, topic: str, queue: int, span: tuple[int, int], asked_ms: int, between: tuple[int, int], found: int
    ) -> None:
        """Judge the offset to which a search for a time leads. Every record of the queue has been shown.

        span: the first offset, and the one behind the last. between: readings of the wall clock before and after it.
        Raises Violation.
        """
        low, high = span
        shown = self.shown.get((topic, queue), {})
        wanted = {self._searched(shown, span, asked_ms, now_ms) for now_ms in between}
        # An entry whose message is gone leads to the next one.
        if not any(
            low <= found <= place and not any(offset in shown for offset in range(found, place)) for place in wanted
        ):
            times = [shown[offset].stored_ms - between[1] for offset in range(low, high) if offset in shown]
            raise Violation(
                "a search by time leads elsewhere",
                f"{topic}-{queue}, {asked_ms - between[1]} ms from now: {found}, not {wanted}; stored {times}",
            )

    @staticmethod
    def _searched(shown: dict[int, Shown], span: tuple[int, int], asked_ms: int, now_ms: int) -> int:
        near = abs(asked_ms - now_ms) < NEAR_MS
        for offset in range(*span):
            if offset not in shown:
                continue
            stored = shown[offset].stored_ms
            if near and stored > now_ms + AHEAD_MS:
                continue
            if stored >= asked_ms:
                return offset
        return span[1]

    def figures(self) -> dict[str, Any]:
        kinds: dict[str, int] = {}
        for message in self.messages:
            kinds[message.kind] = kinds.get(message.kind, 0) + 1
        return {"messages": kinds, "kills": len(self.killed_at), "log begins": self.min_physical}
