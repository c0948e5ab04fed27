"""Reads brokers as a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from .. import findings
from ..bare_errors import bare
from ..filters import narrowed
from ..findings import Ledger
from ..options import Options
from ..push_down import PushesFilters
from ..wanted import Wanted
from .asked import access_of, route_of, rows_of
from .offsets import OffsetReader
from .plan import between, check_named, check_next, tasks
from .task import NetworkPartition, Task, noted_in

if TYPE_CHECKING:
    import pyarrow as pa


@bare("partitions", "read")
class NetworkReader(PushesFilters, DataSourceReader):
    """Pickles: it is sent to the executors with each task, and connects there."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._task = Task(access_of(options), options.fail_on_data_loss, options.findings)
        self._filters: tuple[Filter, ...] = ()

    def take_filters(self, filters: Iterable[Filter]) -> None:
        self._filters = tuple(filters)

    def partitions(self) -> list[InputPartition]:
        options, access = self._options, self._task.access
        everything = Wanted(
            frozenset(options.topics) or None,
            options.include_system,
            options.topic_pattern,
            from_ms=options.from_ms,
            to_ms=options.to_ms,
        )
        wanted = narrowed(everything, self._filters)
        route = route_of(access, options, has_topic=wanted.has_topic)
        if options.fail_on_missing_topic:
            check_named("startingOffsets", options.starting_offsets, route.queues, wanted.has_topic)
            check_named("endingOffsets", options.ending_offsets, route.queues, wanted.has_topic)
            check_next(options.starting_offsets, options.ending_offsets)
        queues = [q for q in route.queues if wanted.queue_ids is None or q.queue_id in wanted.queue_ids]
        offsets, ledger = OffsetReader(access, route.brokers), Ledger(options.fail_on_data_loss)
        found = between(
            offsets, queues, options.starting_offsets, options.ending_offsets, wanted.from_ms, wanted.to_ms,
            (wanted.from_offset, wanted.to_offset), noted_in(ledger),
        )  # fmt: skip
        if options.findings is not None:
            findings.write(options.findings, "network-plan", ledger.found, 0, 0)
        rows = rows_of(options, wanted.from_ms, wanted.to_ms)
        ranges = tasks(found, route.brokers, options.max_rows_per_partition)
        return [NetworkPartition(of_task, rows) for of_task in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._task.read(partition)
