"""The store against a plain model: random steps, a fake disk, crashes; hypothesis shrinks what goes wrong.

The model is a list of bodies for each queue and a number of those that are promised. After every step readers see
exactly the published ones; after a crash what is there begins with what was promised and is a beginning of what was
sent. Beside the seeded lives (test_replayer.py), which try every crash of a run, this looks at every step of one.
"""

from __future__ import annotations

import errno
import os
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from appliance.engine.errors import StoreBroken
from appliance.engine.store.index.index_query import IndexQuery
from appliance.engine.store.queues.flush_queues import TopicDeletion
from appliance.engine.store.results import GetStatus
from tests.crash.crashes import nothing
from tests.crash.life import GONE, Queue, properties_of, unique_key
from tests.crash.replayer import MODES, CrashedDisk
from tests.crash.services_life import ServicesLife
from tests.support.batches import put_batch
from tests.support.effort import TORTURE, effort
from tests.support.store import BORN

pytestmark = pytest.mark.usefixtures("quiet")

QUEUES = st.sampled_from([(topic, queue_id) for topic in ("A", "B") for queue_id in (0, 1)])


class StoreMachine(RuleBasedStateMachine):
    """sent: bodies in order, GONE where they expired. staged, seen, promised: how many of them."""

    def __init__(self) -> None:
        super().__init__()
        self.life: ServicesLife
        self.image = None
        self.number = 0
        self.sent: dict[Queue, list[bytes]] = {}
        self.seen: dict[Queue, int] = {}
        self.promised: dict[Queue, int] = {}
        self.places: dict[Queue, list[int]] = {}

    @initialize(synchronous=st.booleans())
    def start(self, synchronous: bool) -> None:
        self.life = ServicesLife("model", None, synchronous, nothing)
        self.life.open()

    @property
    def store(self):
        return self.life.store

    # --- steps

    @rule(queue=QUEUES, sizes=st.lists(st.integers(1, 900), min_size=1, max_size=4), end=st.booleans())
    def put(self, queue: Queue, sizes: list[int], end: bool) -> None:
        topic, queue_id = queue
        bodies = []
        for size in sizes:
            self.number += 1
            bodies.append(b"%d:" % self.number + b"x" * size)
        field = bytes((len(topic),)) + topic.encode()
        target = self.store.queues.get_or_create(topic, queue_id)
        try:
            if len(bodies) == 1:
                places = [self.store.put(target, field, bodies[0], properties_of(bodies[0]), 0, 0, 0, 1, BORN, 0)]
            else:
                places = put_batch(self.store, target, field, [(b, properties_of(b)) for b in bodies], BORN)
        except StoreBroken:
            return
        self.sent.setdefault(queue, []).extend(bodies)
        self.places.setdefault(queue, []).extend(places)
        if end:
            self.end_tick()

    @rule()
    def end_tick(self) -> None:
        self.store.end_tick()
        self._published()

    @rule()
    def sync(self) -> None:
        self.life._sync()
        self._published()
        if self.store.log.durable == self.store.published:
            self.promised = dict(self.seen)

    def _published(self) -> None:
        """Check what readers see now. In sync flush only durable messages are acknowledged."""
        durable = self.store.log.durable
        for queue in self.sent:
            count = self.store.max_offset(*queue)
            assert self.seen.get(queue, 0) <= count <= len(self.sent[queue])
            self.seen[queue] = count
            if self.life.settings.synchronous:
                assert all(place < durable for place in self.places[queue][:count])
                self.promised[queue] = count

    @rule()
    def flush_queues(self) -> None:
        assert self.store._flush_queues.work(running=False) or self.store.log.durable < self.store.published

    @rule()
    def prepare_file(self) -> None:
        self.life._prepare_file()

    @rule(slices=st.integers(1, 4), checkpoint=st.booleans())
    def index(self, slices: int, checkpoint: bool) -> None:
        index = self.store.index
        index._prepare()
        for _ in range(slices):
            index.work()
        if checkpoint:
            index.checkpoint()

    @rule()
    def seal(self) -> None:
        self.store.blocks.seal_closed()

    @precondition(lambda self: len(self.store.log.segments) > 1)
    @rule()
    def expire(self) -> None:
        self.life._expire()
        begin = self.store.log.min_offset
        for queue, places in self.places.items():
            for i, place in enumerate(places):
                if place < begin:
                    self.sent[queue][i] = GONE

    @rule(topic=st.sampled_from(["A", "B"]))
    def delete_topic(self, topic: str) -> None:
        self.end_tick()
        self.sync()
        deletion = TopicDeletion(topic)
        self.store.forget_topic(deletion)
        assert self.store._flush_queues.delete_topics()
        for queue in [queue for queue in self.sent if queue[0] == topic]:  # its offsets are not given away again
            count = len(self.sent[queue])
            self.sent[queue], self.places[queue] = [GONE] * count, [-1] * count
            self.seen[queue] = self.promised[queue] = count

    @rule(call=st.sampled_from(["pwrite", "fdatasync"]))
    def fail(self, call: str) -> None:
        """The log's next write or sync fails once: from there on nothing is taken, reads go on."""

        def fault(name: str, path: str) -> None:
            if name == call and "/commitlog/" in path:
                self.life._mend()
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        self.life.disk.fault = fault
        self.end_tick()
        self.sync()
        self.life._mend()
        if self.store.log.broken is None:
            return
        before = {("A", 0): 0} | self.seen
        self.put(("A", 0), [10], True)
        self.sync()
        assert {("A", 0): 0} | self.seen == before
        self.readers_see_what_is_published()
        self.crash("all", 0)

    @rule()
    def stop_and_start(self) -> None:
        self.end_tick()
        self.store.stop()
        self.promised = {queue: len(bodies) for queue, bodies in self.sent.items()}
        self._open(self.life.disk, None)

    @rule(mode=st.sampled_from(MODES), seed=st.integers(0, 9))
    def crash(self, mode: str, seed: int) -> None:
        crashed = CrashedDisk(self.image, self.life.disk.kinds)
        for operation in self.life.disk.record:
            crashed.follow(operation)
        if mode == "all" and self.store.log.broken is None:  # a kill takes nothing back that was seen
            self.promised = dict(self.seen)
        self._open(None, crashed.image(mode, random.Random(seed)))

    def _open(self, disk, image) -> None:
        synchronous = self.life.settings.synchronous
        if disk is not None:
            self.life.open()
        else:
            self.image = image
            self.life = ServicesLife("model", image, synchronous, nothing)
            self.life.open()
        found = self.life.recovered()  # also: entries match the log, offsets are dense, keys find their messages
        for queue, bodies in found.items():
            sent = self.sent.get(queue, [])
            assert len(bodies) <= len(sent), f"{queue}: more than was sent"
            for body, put in zip(bodies, sent, strict=False):
                assert GONE in (body, put) or body == put
            for body, place in zip(bodies, self.places[queue], strict=False):
                assert body != GONE or place < found.log_begin
        for queue, count in self.promised.items():
            assert len(found.get(queue, ())) >= count, f"{queue}: {count} promised"
        self.sent = {queue: list(bodies) for queue, bodies in found.items()}
        self.places = {queue: list(places) for queue, places in found.places.items()}
        self.seen = {queue: len(bodies) for queue, bodies in found.items()}
        self.promised = dict(self.seen)

    # --- what is always true

    @invariant()
    def readers_see_what_is_published(self) -> None:
        if not hasattr(self, "life"):
            return
        store = self.store
        assert store.published <= store.log.written
        assert not self.life.settings.synchronous or store.published <= store.log.durable
        for queue, bodies in self.sent.items():
            count = self.seen.get(queue, 0)
            found = store.find_queue(*queue)
            assert store.max_offset(*queue) == count
            low = store.min_offset(*queue)
            if found is None or low >= count:
                continue
            if low:
                assert store.get(found, low - 1, 1).status == GetStatus.OFFSET_TOO_SMALL
            assert store.get(found, count, 1).status == GetStatus.OFFSET_OVERFLOW_ONE
            for offset in {low, (low + count) // 2, count - 1}:
                result = store.get(found, offset, 1)
                assert result.status == GetStatus.FOUND, (queue, offset, result)
                (place, size), *_ = result.runs
                assert bodies[offset] == GONE or bodies[offset] in store.log.read(place, size)

    @precondition(lambda self: bool(self.seen))
    @rule(queue=QUEUES)
    def query(self, queue: Queue) -> None:
        """The newest message a reader sees is found by its key, whatever the index has come to."""
        count = self.seen.get(queue, 0)
        body = self.sent[queue][count - 1] if count else GONE
        if body == GONE:
            return
        self.store.index._prepare()
        query = IndexQuery(self.store.index, self.store.records)
        assert query.catch_up()
        answer = query.find(queue[0], unique_key(body), 10, 0, 1 << 62)
        assert [record.body for record, _ in answer.records] == [body]


def test_the_store_is_what_the_model_says():
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=effort(100, 300, 2_000),
            stateful_step_count=effort(40, 40, 60),
            deadline=None,
            derandomize=not TORTURE,
            suppress_health_check=list(HealthCheck),
        ),
    )
