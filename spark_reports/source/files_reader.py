"""Reads a store's files as a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from . import findings
from .bare_errors import bare
from .filters import narrowed
from .findings import Ledger
from .options import Options
from .plan import Plan, WantedPartition, check_offsets, wanted_of
from .push_down import PushesFilters
from .store_view import StoreView

if TYPE_CHECKING:
    import pyarrow as pa


@bare("partitions", "read")
class FilesReader(PushesFilters, DataSourceReader):
    """Made in the driver, pickled with its state then, and used by each executor."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._filters: tuple[Filter, ...] = ()

    def take_filters(self, filters: Iterable[Filter]) -> None:
        self._filters = tuple(filters)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        view = StoreView(options.store or "")
        try:
            if options.fail_on_missing_topic:
                view.check_topics(options.topics)
            check_offsets(view, options)
            wanted = narrowed(wanted_of(options, view), self._filters)
            ledger = Ledger(options.fail_on_data_loss)
            found = Plan(view, options, ledger).partitions(wanted)
        finally:
            view.close()
        if options.findings is not None:
            findings.write(options.findings, "plan", ledger.found, 0, 0)
        return [WantedPartition(one, wanted) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from .file_task import FileTask

        if isinstance(partition, WantedPartition):
            task = FileTask(partition.part, partition.wanted, self._options.fail_on_data_loss)
            yield from task.batches(self._options.findings)
