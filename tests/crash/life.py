"""One life of a store on a recording disk, driven by a seed and without threads, and what must be true of the next.

The driver plays all threads: it ends ticks, syncs the log, flushes queues, prepares files, deletes topics, stops, and
lets ticks end while a sync is under way.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

from appliance.engine.errors import StartError, StoreBroken
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import Record, decode_record
from appliance.engine.store.message_store import MessageStore, StoreSettings
from appliance.engine.store.paths import StorePaths
from appliance.engine.store.queues.consume_queue import unpack_entries
from appliance.engine.store.queues.flush_queues import TopicDeletion
from appliance.engine.store.results import GetStatus
from tests.crash.recording_disk import Image, RecordingDisk
from tests.support.batches import put_batch
from tests.support.store import BORN, STORE_HOST

Queue = tuple[str, int]
TOPICS = ("A", "B")
QUEUES = 2
BORN_IPV6 = encode_host("fd00::1", 5000)
STORE_HOST_IPV6 = encode_host("fd00::2", 10911)


class Now:
    """The part of the event loop the store uses; there is one thread."""

    wall_ms = 1_700_000_000_000

    def call_soon(self, callback: Callable[[], None]) -> None:
        callback()

    def new_wake_fd(self) -> None:
        """Return None: nothing sleeps."""


#: Tables whose changes are marked before they are made: a kill may come between.
_BETWEEN = ("offsets", "settled", "transaction")

#: In the place of a message that expired.
GONE = b""


class Recovered(dict[Queue, list[bytes]]):
    """Bodies of each queue, GONE for those before its minimum offset.

    places: the physical offsets of the same, -1 for GONE. log_begin: the log's minimum offset. configs: (table, name)
    -> its value, None where there is none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[Queue, list[int]] = {}
        self.log_begin = 0
        self.configs: dict[tuple[str, str], object] = {}


class Expected:
    """State that a store may and must have after a crash. Bodies are in queue order; `promised` of them must exist."""

    def __init__(self) -> None:
        self.bodies: dict[Queue, list[bytes]] = {}
        self.places: dict[Queue, list[int]] = {}
        #: Log files that end at or below may be deleted.
        self.expired = 0
        self.promised: dict[Queue, int] = {}
        #: Messages that a reader saw. A killed process keeps all of them; a power cut in async flush may take some.
        self.published: dict[Queue, int] = {}
        #: Topics whose deletion was asked for and not acknowledged: all of it may be there, or nothing.
        self.deleting: set[str] = set()
        #: (table, name) -> what was acknowledged of it, or was there at the start, and what became of it since.
        self.configs: dict[tuple[str, str], list[object]] = {}
        #: True if a kill leaves the last of these. False while a recovery from a power cut is under way, and after a
        #: failed sync.
        self.exact = True
        #: True if the journal or the tables' files could be made durable.
        self.kept = True

    def copy(self) -> Expected:
        other = Expected()
        other.__dict__.update({name: _copy(value) for name, value in self.__dict__.items()})
        return other

    def follow(self, event: tuple) -> None:
        """Take in one mark of a life."""
        kind, topic = event[0], event[1]
        if kind == "put":
            self.bodies.setdefault((topic, event[2]), []).append(event[3])
            self.places.setdefault((topic, event[2]), []).append(event[4])
        elif kind == "expired":
            self.expired = topic
        elif kind == "promised":
            self.promised[topic, event[2]] = event[3]
            values = self.configs.get(("topics", topic), [])
            # No message is acknowledged in a topic that may be lost.
            if values and values[-1] is not None and self.kept:
                self.configs["topics", topic] = [value for value in values if value is not None]
        elif kind == "changed":
            self.configs.setdefault((topic, event[2]), [None]).append(event[3])
        elif kind == "unkept":
            self.kept = False
        elif kind == "kept":
            for key, values in self.configs.items():
                if key[0] == topic:
                    del values[:-1]
        elif kind == "published":
            self.published[topic, event[2]] = event[3]
        elif kind == "recovered":  # by a kill and a start; what failed before may be there or not
            judge(self, event[2], killed=True)
            self.__dict__.update(Expected.all_of(event[2]).__dict__)
        elif kind == "deleting":
            self.deleting.add(topic)
        elif kind == "deleted":
            self.deleting.discard(topic)
            for queue in [queue for queue in self.bodies if queue[0] == topic]:
                # Its offsets are not given away again.
                self.bodies[queue] = [GONE] * len(self.bodies[queue])
                self.places[queue] = [-1] * len(self.bodies[queue])
                self.promised.pop(queue, None)
                self.published.pop(queue, None)

    @classmethod
    def all_of(cls, recovered: Recovered) -> Expected:
        """Return expectations by which nothing that a recovery showed may be lost later."""
        expected = cls()
        expected.configs = {name: [value] for name, value in recovered.configs.items()}
        expected.bodies = {queue: list(bodies) for queue, bodies in recovered.items()}
        expected.places = {queue: list(places) for queue, places in recovered.places.items()}
        expected.expired = recovered.log_begin
        expected.promised = {queue: len(bodies) for queue, bodies in recovered.items()}
        expected.published = dict(expected.promised)
        return expected


def _copy(value: Any) -> Any:
    """Copy the containers that are changed in place. Values of a table are not."""
    if isinstance(value, dict):
        return {key: list(each) if isinstance(each, list) else each for key, each in value.items()}
    return value.copy() if isinstance(value, set) else value


class Violation(AssertionError):
    """A promise that was broken; the text says which."""


class Life:
    """A store from its start on. `work` runs random steps; what it did is in `disk.record`, with marks between.

    A kind of life says what begins on the open store, what it does and what must hold after a crash: `begin`,
    `actions`, `recovered`.
    """

    #: True if a sabotage replaces one of `begin`'s parts; False if it is applied to the store before that is opened.
    sabotages_parts: ClassVar[bool] = False

    def __init__(
        self,
        seed: str,
        image: Image | None,
        synchronous: bool,
        prepare: Callable[[Life], None],
        faults: bool = False,
    ) -> None:
        """faults: calls of the disk fail now and then."""
        self.chance = random.Random(seed)
        self.seed = seed
        self.disk = RecordingDisk(image)
        self.settings = StoreSettings(
            synchronous=synchronous,
            segment_bytes=4096,
            queue_file_bytes=400,
            max_bytes_in_memory=262_144,
            max_count_in_memory=32,
            max_bytes_on_disk=65_536,
            max_count_on_disk=8,
            max_scan_bytes=16_000,
            memory_bytes=1 << 40,
            delay_levels_ms=[1000],
        )
        self._prepare = prepare
        self._store_host = STORE_HOST if self.chance.random() < 0.8 else STORE_HOST_IPV6
        self.faults = faults
        self._fault_in = -1
        self._count = 0
        self._unsynced: list[tuple[int, Queue, int]] = []
        #: First operation behind recovery: from there on everything a reader sees is promised.
        self.opened_at = 0
        #: Called at the end of a process: they close what `begin` has opened.
        self.closing: list[Callable[[], object]] = []
        self.store: MessageStore

    def open(self) -> None:
        """Recover and be ready to take messages."""
        paths = StorePaths(Path("/store"), Path("/rocketbox"))
        self.store = store = MessageStore(self.settings, paths, self.disk, Now(), self._store_host)
        store.log._allocator.start = lambda: None
        store.on_published = self._published
        if not self.sabotages_parts:
            self._prepare(self)
        store.open()
        try:
            self.begin()
        except (OSError, StartError) as error:
            self.leave()
            raise StartError(str(error)) from error
        if self.sabotages_parts:
            self._prepare(self)
        self.load()
        self.opened_at = len(self.disk.record)

    def begin(self) -> None:
        """Make what works on the open store. Raises OSError, StartError."""

    def load(self) -> None:
        """Have that read what an earlier life left."""

    def _close(self) -> None:
        for close in self.closing:
            close()
        self.closing.clear()

    def leave(self) -> None:
        """Let go of the store as a killed process does."""
        self._close()
        self.store._flush_queues.files.close()
        self.store.let_go()
        self.disk._owed = frozenset()  # it is forgotten

    # --- working

    def work(self, steps: int, deletions: bool = True) -> None:
        actions = self.actions(deletions)
        self.disk.during_sync = self._meanwhile
        for _ in range(steps):
            if self.faults and self.chance.random() < 0.15:
                self._fault_in = self.chance.randrange(6)
                self.disk.fault = self._fail
            self.chance.choices([action for _, action in actions], [weight for weight, _ in actions])[0]()
            if self.store.log.broken is not None:
                self._mend()
                self._restart()
        self._mend()
        self.disk.during_sync = lambda path: None

    def actions(self, deletions: bool) -> list[tuple[float, Callable[[], None]]]:
        """Return the actions that may come next, each with its weight."""
        return [
            (10, self._tick),
            (5, self._sync),
            (3, self._flush_queues),
            (1, self._prepare_file),
            (0.4 if deletions else 0, self._delete),
            (0.3, self._restart),
        ]

    def _fail(self, call: str, path: str) -> None:
        self._fault_in -= 1
        if self._fault_in == -1:
            if call == "fdatasync" or self.chance.random() < 0.3:
                self._mend()
            else:
                self._fault_in = 0  # the next one, too
            raise OSError(errno.EIO if call == "fdatasync" else errno.ENOSPC, f"{call} {path}")

    def _mend(self) -> None:
        self.disk.fault = lambda call, path: None

    def _meanwhile(self, path: str) -> None:
        if "rocketbox" not in path and self.chance.random() < 0.25 and not self.store.log._allocator._making.locked():
            self._tick()

    def _tick(self) -> None:
        for _ in range(self.chance.choice((1, 1, 2, 5))):
            topic, queue_id = self.chance.choice(TOPICS), self.chance.randrange(QUEUES)
            if not self._is_topic(topic):
                continue
            queue = self.store.queues.get_or_create(topic, queue_id)
            bodies = [self._body() for _ in range(self.chance.choice((1, 1, 1, 1, 3)))]
            field = bytes((len(topic),)) + topic.encode()
            born = BORN if self.chance.random() < 0.8 else BORN_IPV6
            try:
                if len(bodies) == 1:
                    places = [self.store.put(queue, field, bodies[0], properties_of(bodies[0]), 0, 0, 0, 1, born, 0)]
                else:
                    members = [(body, properties_of(body)) for body in bodies]
                    places = put_batch(self.store, queue, field, members, born)
            except StoreBroken:
                break
            for body, place in zip(bodies, places, strict=True):
                self.disk.mark(("put", topic, queue_id, body, place))
        self.store.end_tick()

    def _is_topic(self, topic: str) -> bool:
        """True if messages may be sent to the topic."""
        return True

    def _body(self) -> bytes:
        self._count += 1
        body = f"{self.seed}:{self._count}:".encode()
        return body + b"x" * (self.chance.choice((60, 60, 60, 700)) - len(body) % 60)

    def _published(self, tick) -> None:
        """In sync flush what is published is acknowledged; in async flush it is promised once it is durable."""
        for queue, offset in tick.touched.items():
            self.disk.mark(("published", queue.topic, queue.queue_id, offset))
            if self.settings.synchronous:
                self.disk.mark(("promised", queue.topic, queue.queue_id, offset))
            else:
                self._unsynced.append((tick.end, (queue.topic, queue.queue_id), offset))

    def _sync(self) -> None:
        try:
            self.store.log.sync()
        except StoreBroken:
            pass
        self.store._publish_durable()
        self._mark_durable()

    def _mark_durable(self) -> None:
        while self._unsynced and self._unsynced[0][0] <= self.store.log.durable:
            _, (topic, queue_id), offset = self._unsynced.pop(0)
            self.disk.mark(("promised", topic, queue_id, offset))

    def _flush_queues(self) -> None:
        self.store._flush_queues.work(running=False)

    def _prepare_file(self) -> None:
        self.store.log._allocator.make_wanted()

    def _delete(self) -> None:
        deletion = TopicDeletion(self.chance.choice(TOPICS))
        self.store.end_tick()
        self._sync()
        if self.store.log.broken is not None:
            return
        self.disk.mark(("deleting", deletion.topic))
        if not self._forget_topic(deletion.topic):
            return
        self.store.forget_topic(deletion)
        self._unsynced = [entry for entry in self._unsynced if entry[1][0] != deletion.topic]
        during, self.disk.during_sync = self.disk.during_sync, lambda path: None
        if not self.store._flush_queues.delete_topics():
            assert deletion.error is not None
            self._mend()
            assert self.store._flush_queues.delete_topics()
        self.disk.during_sync = during
        self.disk.mark(("deleted", deletion.topic))

    def _forget_topic(self, topic: str) -> bool:
        """Do the steps before the deletion of a topic's queues. Return False if it was refused."""
        return True

    def _stop(self) -> None:
        self.store.end_tick()
        self.store.stop()
        self._close()

    def _restart(self) -> None:
        """A clean stop or a kill, and a start on the same machine."""
        self.disk.during_sync = lambda path: None
        if self.chance.random() < 0.5:
            self._stop()
            self._mark_durable()
        else:
            self.leave()
        opened_at = self.opened_at
        try:
            self.open()
        except StartError:
            self._mend()
            self.open()
        self.opened_at = opened_at
        self._unsynced.clear()
        self.disk.mark(("recovered", "", self.recovered()))
        self.disk.during_sync = self._meanwhile

    # --- judging

    def go_on(self) -> None:
        """After a crash was judged: have what was under way come to its end. Raises Violation."""

    def record_at(self, topic: str, offset: int, queue_id: int = 0) -> tuple[int, int, Record] | None:
        """(physical offset, bytes, record) by a queue offset; None where there is none."""
        queue = self.store.find_queue(topic, queue_id)
        assert queue is not None
        for physical, size, _ in unpack_entries(self.store.queues.read_entries(queue, offset, 1)):
            found = self.store.records.get(physical, size)
            return found and (physical, size, found.record)
        return None

    def records_of(self, topic: str) -> dict[int, tuple[int, int, Record]]:
        """Return the records of the topic's queue 0 by queue offset, as `record_at` returns them."""
        queue = self.store.find_queue(topic, 0)
        if queue is None:
            return {}
        found = {offset: self.record_at(topic, offset) for offset in range(queue.min_offset, queue.max_offset)}
        return {offset: one for offset, one in found.items() if one is not None}

    def finish_repairs(self) -> None:
        """Rebuild, as the broker does in the background, each queue that was found broken since the start."""
        repair = self.store._flush_queues.repair
        while repair.pending:
            repair._not_before = 0
            repair.step(1)

    def recovered(self) -> Recovered:
        """Return what a reader gets from each queue. Raises Violation when it is not whole."""
        found = Recovered()
        for queue in self.store.queues.all():
            name = f"{queue.topic}-{queue.queue_id}"
            bodies = [GONE] * queue.min_offset
            places = [-1] * queue.min_offset
            while len(bodies) < queue.max_offset:
                result = self.store.get(queue, len(bodies), 32)
                if result is None or result.status != GetStatus.FOUND or not result.message_count:
                    raise Violation(f"{name} has a hole at {len(bodies)} of {queue.max_offset}: {result}")
                for offset, size in result.runs:
                    data, at = self.store.log.read(offset, size), 0
                    while at < size:
                        record = decode_record(data, at)
                        place = (record.topic, record.queue_id, record.queue_offset, record.physical_offset)
                        if place != (queue.topic, queue.queue_id, len(bodies), offset + at):
                            raise Violation(f"{name} serves the record {place} at {len(bodies)}")
                        bodies.append(record.body)
                        places.append(record.physical_offset)
                        at += record.size
            if bodies:
                found[queue.topic, queue.queue_id] = bodies
                found.places[queue.topic, queue.queue_id] = places
        for topic, begins in self.store.queues.begins.items():
            for queue_id, begin in begins.items():
                key = topic, queue_id
                if key not in found:
                    found[key], found.places[key] = [GONE] * begin.offset, [-1] * begin.offset
        found.log_begin = self.store.log.min_offset
        return found


def unique_key(body: bytes) -> str:
    return f"{crc32(body):08X}{len(body):08X}"


def properties_of(body: bytes) -> bytes:
    """A unique key, and one that others share."""
    return f"KEYS\x01key{body[-1] % 3}\x02UNIQ_KEY\x01{unique_key(body)}\x02".encode()


def judge(expected: Expected, recovered: Recovered, killed: bool) -> None:
    """Acknowledged is a subset of recovered, recovered is a prefix of what was sent, nothing is altered."""
    for topic in expected.deleting:
        if not any(body != GONE for queue, bodies in recovered.items() if queue[0] == topic for body in bodies):
            expected = expected.copy()
            expected.follow(("deleted", topic))
    if recovered.log_begin > expected.expired:
        raise Violation(f"the log begins at {recovered.log_begin}, {expected.expired} was asked for")
    for queue, bodies in recovered.items():
        sent = expected.bodies.get(queue, [])
        if len(bodies) > len(sent):
            raise Violation(f"{queue} at {len(sent)}: {bodies[len(sent)][:20]!r} was never sent there")
        for i, (body, place) in enumerate(zip(bodies, expected.places[queue], strict=False)):
            if body == GONE and place >= recovered.log_begin:
                raise Violation(f"{queue} at {i}: hidden, though the log has it at {place}")
            if GONE not in (body, sent[i]) and body != sent[i]:
                raise Violation(f"{queue} at {i}: {body[:20]!r} was never sent there")
    for queue, count in (expected.published if killed else expected.promised).items():
        if len(recovered.get(queue, ())) < count:
            raise Violation(f"{queue}: {count} acknowledged, {len(recovered.get(queue, ()))} recovered")
    for key, value in recovered.configs.items():
        values = expected.configs.get(key, [None])
        exact = killed and expected.exact and key[0].partition(" ")[0] not in _BETWEEN
        if value not in (values[-1:] if exact else values):
            raise Violation(f"{key} is {value}, not one of {values}")
