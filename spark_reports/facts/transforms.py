"""The counting by Spark: frames in, frames out. Needs pyspark; nothing here reads or writes.

Messages, as `narrow` makes them of the data source's rows, have the columns

    topic, tags, origin, born_host, unique_key, keys, shard string | queue_id, reconsume_times, body_size, size int
    queue_offset, physical_offset, store_ms, born_ms bigint | is_copy boolean

origin: RETRY_TOPIC; is_copy: made by a replay of dead letters; both only of %RETRY% and %DLQ% topics, of which the keys
are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.engine.broker.replay.provenance import REPLAYED
from appliance.engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from appliance.engine.protocol.properties import RETRY_TOPIC, SHARDING_KEY, UNIQUE_KEY

from .hours import HOUR_MS, Stretch
from .tables import CONTENTS, DEAD_LETTERS, LATENCY, RETRIES, TRAFFIC, Row, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from .contents import Contents

#: Like `provenance_of`: a number of ten digits at most, above 0.
_ABOVE_ZERO = "^(?=[0-9]{1,10}\\z)[0-9]*[1-9]"
_KINDS = {"long": "bigint", "string": "string"}
#: Columns that `latency` uses.
PLACE = ("topic", "queue_id", "queue_offset", "physical_offset", "store_ms", "tags")
#: Columns that `contents` uses.
SENT = (
    "topic", "born_host", "born_ms", "store_ms", "size", "body_size", "queue_id", "queue_offset", "physical_offset",
    "unique_key", "keys", "shard",
)  # fmt: skip
_BATCH_PARTS = 10_000
_PARTS = "kind string, topic string, text string, numbers array<bigint>"


def narrow(rows: DataFrame, from_ms: int, to_ms: int) -> DataFrame:
    """Return the columns that are counted, of the data source's rows that were stored in [from_ms, to_ms)."""
    is_failure = _of(RETRY_PREFIX) | _of(DLQ_PREFIX)
    properties = F.col("properties")
    is_copy = F.coalesce(properties[REPLAYED].rlike(_ABOVE_ZERO), F.lit(False)) & (F.col("reconsume_times") == 0)
    return rows.select(
        "topic",
        "queue_id",
        "queue_offset",
        "physical_offset",
        F.unix_millis("store_ts").alias("store_ms"),
        "size",
        "body_size",
        "reconsume_times",
        "tags",
        F.when(is_failure, F.coalesce(properties[RETRY_TOPIC], F.lit(""))).alias("origin"),
        F.when(is_failure, is_copy).alias("is_copy"),
        "born_host",
        F.unix_millis("born_ts").alias("born_ms"),
        F.when(~is_failure, properties[UNIQUE_KEY]).alias("unique_key"),
        F.when(~is_failure, F.col("keys")).alias("keys"),
        F.when(~is_failure, properties[SHARDING_KEY]).alias("shard"),
    ).where((F.col("store_ms") >= from_ms) & (F.col("store_ms") < to_ms))


def traffic(messages: DataFrame, stretches: Sequence[Stretch]) -> DataFrame:
    sums = [F.sum("size").alias("bytes"), F.sum("body_size").alias("body_bytes")]
    return _counted(TRAFFIC, messages.withColumn("hour_ms", hour_ms(stretches)), *sums)


def retries(messages: DataFrame, stretches: Sequence[Stretch]) -> DataFrame:
    named = _failures(messages, RETRY_PREFIX, stretches).withColumn("depth", F.col("reconsume_times"))
    return _counted(RETRIES, named, F.sum(F.col("is_copy").cast("bigint")).alias("replayed"))


def dead_letters(messages: DataFrame, stretches: Sequence[Stretch]) -> DataFrame:
    return _counted(DEAD_LETTERS, _failures(messages, DLQ_PREFIX, stretches), F.sum("size").alias("bytes"))


def latency(messages: DataFrame, answers_dir: str, to_ms: int) -> DataFrame:
    """Count delivery times, and what was not delivered by the day's end `to_ms`. answers_dir: written by
    `answers_file.save`; every executor reads it there."""
    counted = messages.select(*PLACE).mapInArrow(
        partial(_histograms, answers_dir, to_ms),
        "group string, topic string, which string, bucket bigint, messages bigint",
    )
    return exact(LATENCY, counted.groupBy(*LATENCY.keys).agg(F.sum("messages").alias("messages")))


def _histograms(answers_dir: str, to_ms: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count delivery times in an executor: one batch of rows for each partition."""
    from .answers_file import Saved
    from .delivery_times import Histograms, larger

    found = Histograms(Saved(answers_dir), to_ms)
    for batch in larger(batches):
        found.take(batch)
    yield found.rows()


def contents(messages: DataFrame) -> dict[str, list[Row]]:
    """Count what producers sent: each task its part, and then one task merges the parts."""

    parts = messages.where(~_of(RETRY_PREFIX) & ~_of(DLQ_PREFIX)).select(*SENT).mapInArrow(_sent, _PARTS)
    # One task, so that what the driver gets has a bound.
    merged = parts.repartition(1).mapInArrow(_merged, "name string, row string").toArrow()
    found: dict[str, list[Row]] = {table.name: [] for table in CONTENTS}
    for name, row in zip(*(column.to_pylist() for column in merged.columns), strict=True):
        found[name].append(tuple(json.loads(row)))
    return found


def _sent(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the contents of a partition in an executor."""
    from .contents import Contents

    found = Contents()
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for topic, host, *others in zip(*columns, strict=True):
            found.take(topic, host.rpartition(":")[0].strip("[]"), *others)
    yield from _batches(found)


def _merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge parts; one batch of (table, row as JSON)."""
    import pyarrow as pa

    from .contents import Contents

    found = Contents()
    for batch in batches:
        for part in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found.merge(part)
    rows = [(name, json.dumps(row)) for name, rows in found.rows().items() for row in rows]
    names, texts = zip(*rows, strict=True) if rows else ((), ())
    yield pa.RecordBatch.from_arrays(
        [pa.array(names, pa.string()), pa.array(texts, pa.string())], names=["name", "row"]
    )


def _batches(found: Contents) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    types = (pa.string(), pa.string(), pa.string(), pa.list_(pa.int64()))
    parts = found.parts()
    while some := list(islice(parts, _BATCH_PARTS)):
        arrays = [pa.array(values, kind) for values, kind in zip(zip(*some, strict=True), types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=["kind", "topic", "text", "numbers"])


def hour_ms(stretches: Sequence[Stretch]) -> Column:
    """Return the begin of the clock's hour in which a message was stored."""
    offset = F.lit(stretches[0].offset_ms)
    for one in stretches[1:]:
        offset = F.when(F.col("store_ms") >= one.from_ms, F.lit(one.offset_ms)).otherwise(offset)
    return F.col("store_ms") - F.pmod(F.col("store_ms") + offset, F.lit(HOUR_MS))


def exact(table: Table, frame: DataFrame) -> DataFrame:
    """Select the table's columns, in its order and with its types."""
    return frame.select(*(F.col(name).cast(_KINDS[kind]).alias(name) for name, kind in table.columns))


def _counted(table: Table, messages: DataFrame, *sums: Column) -> DataFrame:
    return exact(table, messages.groupBy(*table.keys).agg(F.count("*").alias("messages"), *sums))


def _failures(messages: DataFrame, prefix: str, stretches: Sequence[Stretch]) -> DataFrame:
    """Return the messages of topics with this prefix; `group` is the rest of the topic's name, `topic` the origin."""
    return (
        messages.where(_of(prefix))
        .withColumn("hour_ms", hour_ms(stretches))
        .withColumn("group", F.substring("topic", len(prefix) + 1, 1 << 20))
        .withColumn("topic", F.col("origin"))
    )


def _of(prefix: str) -> Column:
    return F.col("topic").startswith(prefix)
