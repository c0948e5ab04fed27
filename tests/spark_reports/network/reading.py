"""Reading over the network without Spark: the reader itself, in this process."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_reports.source.network.reader import NetworkReader
from spark_reports.source.options import parse
from spark_reports.source.schema import arrow_schema


def reader(name_servers: str, **options: Any) -> NetworkReader:
    given = {"brokers": name_servers, **{name.rstrip("_"): str(value) for name, value in options.items()}}
    return NetworkReader(parse(given))


def read(name_servers: str, **options: Any) -> pa.Table:
    """Read everything; return all rows, in the order of the tasks."""
    made = reader(name_servers, **options)
    batches = [batch for partition in made.partitions() for batch in made.read(partition)]
    return pa.Table.from_batches(batches, schema=arrow_schema(options.get("columns") == "body"))


def offsets(table: pa.Table) -> dict[tuple[str, int], list[int]]:
    """Return (topic, queue) -> queue offsets, in the order in which they came."""
    found: dict[tuple[str, int], list[int]] = {}
    for row in table.select(["topic", "queue_id", "queue_offset"]).to_pylist():
        found.setdefault((row["topic"], row["queue_id"]), []).append(row["queue_offset"])
    return found
