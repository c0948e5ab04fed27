"""`columns=latest`: one row with the end of what there is now, in the form of a stream's offset.

A batch that takes it as `endingOffsets` ends there, however often Spark plans it, and the next one begins there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .bare_errors import bare
from .options import OptionError, Options
from .store_view import StoreView

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class LatestPartition(InputPartition):
    """offsets: as JSON."""

    offsets: str


@bare("partitions", "read")
class LatestReader(DataSourceReader):
    """Reads the newest offsets of a store or of brokers. The driver looks, a task hands the row over."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        found = _of_brokers(self._options) if self._options.brokers else _of_store(self._options)
        return [LatestPartition(json.dumps(found))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if isinstance(partition, LatestPartition):
            yield pa.RecordBatch.from_pydict({"offsets": [partition.offsets]})


def _of_store(options: Options) -> dict[str, Any]:
    view = StoreView(options.store or "")
    try:
        if options.fail_on_missing_topic:
            view.check_topics(options.topics)
        return view.offset_of(view.end)
    finally:
        view.close()


def _of_brokers(options: Options) -> dict[str, Any]:
    from .network.asked import access_of, route_of
    from .network.offsets import OffsetReader
    from .network.stream import place

    access = access_of(options)
    route = route_of(access, options)
    if not route.queues:
        raise OptionError("There is no topic to read yet, so there are no offsets to go on from.")
    return place(OffsetReader(access, route.brokers).end(route.queues))
