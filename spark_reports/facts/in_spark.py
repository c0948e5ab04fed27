"""Counts the facts of a day by Spark: one pass over the log into narrow messages, and everything else from those.

    log --rocketbox--> narrow --> SCRATCH/messages, Parquet --> traffic, retries, dead letters, latency, contents

Executors read and write files of the scratch directory: on a cluster it lies where all of them see it, as the store
does.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ..snapshot import Snapshot
from ..source import findings
from . import answers_file, transforms
from .day_files import DayFiles, day_files
from .delivered import Delivered, read_delivered, waits_of
from .findings import finding_rows
from .from_snapshot import rows_from_snapshot
from .hours import stretches
from .one_file import Range
from .tables import DEAD_LETTERS, FINDINGS, LATENCY, RETRIES, TABLES, TRAFFIC, Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Names in the scratch directory.
MESSAGES, ANSWERS, UNREAD = "messages", "answers", "unread"


def count(
    spark: SparkSession,
    snapshot: Snapshot,
    run_dir: Path,
    scratch_dir: Path | None = None,
    partition_rows: int | None = None,
) -> dict[str, DataFrame | list[Row]]:
    """Return all tables; as rows those that Spark need not count. When this returns the log has been read: the frames
    read the narrow messages in `scratch_dir` (by default `run_dir`), and are valid until that is deleted. Raises
    OSError when the log's directory or the deliveries cannot be read, and whatever Spark raises.

    partition_rows: most messages of one task; by default the data source decides."""
    from ..source.data_source import RocketBoxDataSource

    files = day_files(snapshot)
    delivered = read_delivered(snapshot, files.begin)
    scratch = scratch_dir or run_dir
    for name in (MESSAGES, ANSWERS, UNREAD):
        shutil.rmtree(scratch / name, ignore_errors=True)
    (scratch / ANSWERS).mkdir(parents=True)
    answers_file.save(delivered.queues, scratch / ANSWERS, waits_of(snapshot, delivered))
    spark.dataSource.register(RocketBoxDataSource)
    rows = log_rows(spark, snapshot, scratch, partition_rows)
    transforms.narrow(rows, snapshot.from_ms, snapshot.to_ms).write.parquet(str(scratch / MESSAGES))
    messages = spark.read.parquet(str(scratch / MESSAGES))
    hours = stretches(snapshot.from_ms, snapshot.to_ms, snapshot.zone)
    found: dict[str, DataFrame | list[Row]] = {
        **rows_from_snapshot(snapshot, run_dir),
        TRAFFIC.name: transforms.traffic(messages, hours),
        RETRIES.name: transforms.retries(messages, hours),
        DEAD_LETTERS.name: transforms.dead_letters(messages, hours),
        LATENCY.name: transforms.latency(messages, str(scratch / ANSWERS), snapshot.to_ms),
        **transforms.contents(messages),
        FINDINGS.name: finding_rows(
            files, [*files.gaps, *_unread(scratch, files)], delivered, _lowest(messages, files, delivered)
        ),
    }
    return {table.name: found[table.name] for table in TABLES}


def log_rows(spark: SparkSession, snapshot: Snapshot, scratch: Path, partition_rows: int | None) -> DataFrame:
    options = {
        "store": snapshot.store_dir,
        "from": snapshot.from_ms,
        "to": snapshot.to_ms,
        "until": snapshot.log_end,
        "timesAscend": "true" if snapshot.ascends_from <= snapshot.log_min else "false",
        "includeSystem": "true",
        "failOnDataLoss": "false",
        "findings": scratch / UNREAD,
    }
    if partition_rows is not None:
        options["maxRowsPerPartition"] = partition_rows
    return spark.read.format("rocketbox").options(**{name: str(value) for name, value in options.items()}).load()


def _lowest(messages: DataFrame, files: DayFiles, delivered: Delivered) -> int | None:
    """Return the physical offset of the day's first message, None without one; a lower one if that makes no
    difference."""
    from pyspark.sql import functions as F

    if delivered.complete_from is not None and delivered.complete_from <= files.begin:
        return files.begin
    (lowest,) = messages.agg(F.min("physical_offset")).head() or (None,)
    return lowest


def _unread(scratch: Path, files: DayFiles) -> list[Range]:
    """Return the ranges of the day's part of the log that executors could not read."""
    found = []
    for one in findings.read(scratch / UNREAD):
        begin, end = max(one.begin, files.begin), min(one.end, files.end)
        if not one.place and begin < end and one.kind != findings.WHOLE:
            found.append(Range(one.kind, begin, end))
    return found
