"""Reads brokers as a stream. Spark keeps the stream's offsets in its checkpoint; brokers do not store them.

An offset is `{broker: {topic: {queue: next offset}}}`. Queues and topics that are created later are read from their
first message. A broker that is away and no longer routed is left out until it is back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..bare_errors import bare
from ..findings import DataLoss
from ..options import Options, check_stream
from .asked import access_of, route_of, rows_of
from .brokers import patiently
from .log_places import within_bytes
from .offsets import OffsetReader, Offsets
from .plan import check_named, share, starts, tasks
from .routes import NameServers, Queue, Route
from .task import NetworkPartition, Task

if TYPE_CHECKING:
    import pyarrow as pa

#: The stream's offset as Spark keeps it.
Place = dict[str, dict[str, dict[str, int]]]


@bare("initialOffset", "latestOffset", "prepareForTriggerAvailableNow", "reportLatestOffset", "partitions", "read")
class NetworkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Pickles: it is sent to the executors with each task."""

    def __init__(self, options: Options) -> None:
        check_stream(options)
        self._options = options
        self._access = access_of(options)
        self._rows = rows_of(options, options.from_ms, options.to_ms)
        self._task = Task(self._access, options.fail_on_data_loss, options.findings)
        #: Ends of the queues when a run with the trigger AvailableNow began; None for a stream that goes on.
        self._target: Offsets | None = None
        #: True once the queues of endingOffsets were looked for, which a query that goes on may have been given anew.
        self._is_checked = False

    def getDefaultReadLimit(self) -> ReadLimit:
        rows, size = self._options.max_rows_per_trigger, self._options.max_bytes_per_trigger
        if size is not None:
            return ReadMaxBytes(size)
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def initialOffset(self) -> Place:
        options = self._options
        route = route_of(self._access, options)
        if options.fail_on_missing_topic:
            check_named("startingOffsets", options.starting_offsets, route.queues)
        reader = OffsetReader(self._access, route.brokers)
        return place(starts(reader, route.queues, options.starting_offsets, options.from_ms))

    def prepareForTriggerAvailableNow(self) -> None:
        reader, route = self._look()
        self._target = reader.end(route.queues)

    def latestOffset(self, start: Place, limit: ReadLimit) -> Place:
        done = offsets_of(start)
        reader, route = self._look()
        if self._options.fail_on_missing_topic and not self._is_checked:
            # A broker that is away now had its queues before.
            check_named("endingOffsets", self._options.ending_offsets, {*route.queues, *done})
            self._is_checked = True
        done |= reader.first(queue for queue in route.queues if queue not in done)
        ends = self._ends(reader, route, done)
        backlog = {queue: ends[queue] - done[queue] for queue in ends if ends[queue] > done[queue]}
        if isinstance(limit, ReadMaxRows):
            backlog = share(backlog, max(1, limit.max_rows))
        elif isinstance(limit, ReadMaxBytes):
            bounds = {queue: (done[queue], ends[queue]) for queue in backlog}
            return place(done | within_bytes(self._access, route.brokers, bounds, limit.max_bytes))
        return place(done | {queue: done[queue] + rows for queue, rows in backlog.items()})

    def reportLatestOffset(self) -> Place:
        reader, route = self._look()
        return place(reader.end(route.queues))

    def partitions(self, start: Place, end: Place) -> list[InputPartition]:
        done, ends = offsets_of(start), offsets_of(end)
        new = [queue for queue in ends if queue not in done]
        if new:
            reader, _ = self._look()
            done |= reader.first(new)
        found = {queue: (done[queue], to) for queue, to in ends.items() if done[queue] < to}
        topics = sorted({queue.topic for queue in found})
        names = NameServers(self._access)
        known = patiently(self._access, lambda: names.routes(topics, must_be_there=False)).brokers if found else {}
        # The task waits for a broker that has gone meanwhile.
        brokers = {queue.broker: known.get(queue.broker, ()) for queue in found}
        ranges = tasks(found, brokers, self._options.max_rows_per_partition)
        return [NetworkPartition(of_task, self._rows) for of_task in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task.read(partition)

    def _look(self) -> tuple[OffsetReader, Route]:
        """Return the routes of now, and a reader of offsets. Name servers may be away for a while, and so may topics,
        since they did exist."""
        route = patiently(self._access, lambda: route_of(self._access, self._options, must_be_there=False))
        return OffsetReader(self._access, route.brokers), route

    def _ends(self, reader: OffsetReader, route: Route, done: Offsets) -> Offsets:
        """Return the offsets up to which queues can be read now, in this run. Raises DataLoss if a master's queue ends
        before `done` and `failOnDataLoss` is set."""
        ends = reader.end(route.queues)
        for queue, behind in ends.items():
            # A slave may be behind its master, and catches up.
            if behind < done[queue] and reader.answered[queue.broker] in route.masters and self._task.fails:
                raise DataLoss(
                    f"{reader.answered[queue.broker]} ends {queue} at offset {behind}, and it was read to "
                    f"{done[queue]} already: the topic was made anew, or the broker lost its newest messages"
                )
        if self._target is not None:
            ends = {queue: min(behind, self._target[queue]) for queue, behind in ends.items() if queue in self._target}
        options = self._options
        if options.to_ms is not None:
            later = reader.not_after(ends, options.to_ms)
            ends = {queue: min(behind, later[queue]) for queue, behind in ends.items()}
        return {queue: self._named_end(queue, behind, done[queue]) for queue, behind in ends.items()}

    def _named_end(self, queue: Queue, behind: int, done: int) -> int:
        """Return the offset, `behind` at most, to which the options read a queue that was read to `done`."""
        ending = self._options.ending_offsets
        end = ending.of(queue.topic, queue.queue_id, queue.broker)
        if end is None:  # By broker, an end is one of all queues: others came later.
            return done if ending.has_brokers else behind
        return min(behind, end)


def place(offsets: Offsets) -> Place:
    """Return offsets in Spark's form, in order, so that the same offsets give the same text."""
    found: Place = {}
    for queue in sorted(offsets):
        found.setdefault(queue.broker, {}).setdefault(queue.topic, {})[str(queue.queue_id)] = offsets[queue]
    return found


def offsets_of(found: Place) -> Offsets:
    return {
        Queue(broker, topic, int(queue_id)): offset
        for broker, topics in found.items()
        for topic, queues in topics.items()
        for queue_id, offset in queues.items()
    }
