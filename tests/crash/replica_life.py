"""A life that copies a master's log: what it reports is kept, and its log is the master's, up to the end of a record.

The master is a life of its own, over by now; its bytes come in pieces of any size. After a crash the copy goes on where
its log ends, as far as the master's does.
"""

from __future__ import annotations

from collections.abc import Callable

from appliance.engine.errors import StoreBroken
from appliance.engine.store.replica import Incoming, ReplicaAppender
from tests.crash.crashes import nothing
from tests.crash.life import GONE, Queue, Recovered, Violation
from tests.crash.services_life import ServicesLife


class MasterLog:
    """The bytes [begin, end) of a master's log, which ends in the midst of a file."""

    def __init__(self, seed: str, steps: int) -> None:
        life = ServicesLife(f"master of {seed}", None, False, nothing)
        life.open()
        life.work(steps, deletions=False)
        life.store.end_tick()
        log = life.store.log
        self.begin, self.end = log.min_offset, log.written
        self.data = b"".join(
            log.read(segment.start, min(segment.end, self.end) - segment.start)
            for segment in log.segments
            if segment.start < self.end
        )
        assert len(self.data) == self.end - self.begin

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset - self.begin : offset - self.begin + size]


class ReplicaLife(ServicesLife):
    """Marks "put" what was staged, and by each report that what lies below is promised."""

    master: MasterLog

    def begin(self) -> None:
        super().begin()
        self._appender = ReplicaAppender(self.store)
        log = self.store.log
        empty = self.store.last_record_offset < 0 and log.written == log.min_offset
        if empty and log.written != self.master.begin:
            self._appender.begin_at(self.master.begin)
        self._follow()
        #: (end, queue, offset behind it) of records that were appended, and not yet reported.
        self._appended: list[tuple[int, Queue, int]] = []
        self._known: dict[Queue, int] = {
            (queue.topic, queue.queue_id): queue.max_offset for queue in self.store.queues.all()
        }

    def _follow(self) -> None:
        """A new connection: bytes come from the log's end on."""
        self._incoming = Incoming(self.settings.segment_bytes)
        self._at = self.store.log.written
        self._incoming.begin(self._at)

    def actions(self, deletions: bool) -> list[tuple[float, Callable[[], None]]]:
        return [
            (10, self._copy),
            (4, self._sync),
            (4, self._report),
            (3, self._flush_queues),
            (1, self._prepare_file),
            (0.3, self._restart),
            (2, self._index),
            (1, self._seal),
        ]

    def _tick(self) -> None:
        """Copy from the leader, as happens during a sync."""
        self._copy()

    def _copy(self) -> None:
        data = self.master.read(self._at, self.chance.choice((1, 40, 150, 700, 3000, 9000)))
        self._incoming.feed(self._at, memoryview(data))
        self._at += len(data)
        try:
            while (piece := self._incoming.take()) is not None:
                self._appender.append(piece)
                for record in piece.records:
                    queue = (record.topic, record.queue_id)
                    for _ in range(self._known.get(queue, 0), record.queue_offset):
                        self.disk.mark(("put", *queue, GONE, -1))  # expired at the master before it was copied
                    self.disk.mark(("put", *queue, record.body, record.physical_offset))
                    self._known[queue] = record.queue_offset + 1
                    self._appended.append((record.physical_offset + record.size, queue, record.queue_offset + 1))
                if self.chance.random() < 0.7:
                    self.store.end_tick()
            self.store.end_tick()
        except StoreBroken:
            self.store.end_tick()
            self._follow()

    def report(self) -> int:
        """Return the offset that the replica reports to its leader."""
        return self.store.kept()

    def _report(self) -> None:
        """In async flush it is said to be there, as long as the machine stays up."""
        kept = self.report()
        while self._appended and self._appended[0][0] <= kept:
            _, (topic, queue_id), count = self._appended.pop(0)
            self.disk.mark(("published", topic, queue_id, count))
            if self.settings.synchronous:
                self.disk.mark(("promised", topic, queue_id, count))

    # --- judging

    def recovered(self) -> Recovered:
        log, master = self.store.log, self.master
        begin, end = log.min_offset, log.written
        if end > begin and (begin != master.begin or end > master.end):
            raise Violation(f"the copy is [{begin}, {end}), the master's log [{master.begin}, {master.end})")
        for segment in log.segments:
            data = self.disk.pread(segment.fd, segment.end - segment.start, 0)
            here = max(0, min(end, segment.end) - segment.start)
            if data[:here] != master.read(segment.start, here) and end > begin:
                raise Violation(f"the copy of {segment.path.name} is not the master's")
            if data[here:].strip(b"\0"):
                raise Violation(f"{segment.path.name} has bytes behind the log's end at {end}")
        return super().recovered()

    def go_on(self) -> None:
        """It follows to the end of the master's log, and then has all of it."""
        if self.chance.random() > 0.2:
            return
        while self._at < self.master.end:
            self._copy()
        self._sync()
        if self.store.log.written != self.master.end or self.store.log.durable != self.master.end:
            raise Violation(f"the copy ends at {self.store.log.written}, the master's log at {self.master.end}")
        self.recovered()


def replica_of(master: MasterLog) -> type[ReplicaLife]:
    """The kind of life that copies one master's log."""
    return type("ReplicaOfOne", (ReplicaLife,), {"master": master})
