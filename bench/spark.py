#!/usr/bin/env python3
"""How fast Spark reads a store's files through the data source `rocketbox`, at local[2]. Prints markdown.

    bench/spark.py                                 4 GiB of each size of bodies, then 1 to 8 GiB: 9 GiB of disk
    bench/spark.py --gib 1 --rounds 1 --sizes 1    a quick look

Needs Java and what requirements/reports.txt names. Start-up is not counted: a small store is read first. "all columns":
each row with all its columns reaches Spark (format noop); "by topic": what a report asks, counts and sums by topic.
Seconds of processors are of Java and Python together: where others use the machine, too, they say more than the clock.
Beside it, without Spark: the same columns by the plain loop over the engine's decoder, and by numpy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.filled_log import write_store

GIB = 1 << 30
#: Of the loops without Spark.
SAMPLE_BYTES = 32 << 20
LOOPS = {"meta": False, "body": True}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=4.0, help="of log, for each size of bodies")
    parser.add_argument("--bodies", default="1024,100", help="bytes")
    parser.add_argument("--sizes", default="1,2,4,8", help="GiB of log, to see whether cost is linear; empty for none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default=None, help="where stores are written")
    options = parser.parse_args(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="bench-spark-", dir=options.dir))
    spark = None
    try:
        spark = session(scratch)
        warm_up(spark, scratch / "small")
        for body_bytes in map(int, options.bodies.split(",")):
            print(measure_bodies(spark, scratch / "store", options.gib, body_bytes, options.rounds) + "\n", flush=True)
        if options.sizes:
            sizes = [float(word) for word in options.sizes.split(",")]
            print(measure_sizes(spark, scratch / "store", sizes, options.rounds), flush=True)
    finally:
        if spark is not None:
            spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def session(scratch: Path) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
    from pyspark.sql import SparkSession

    from spark_reports import RocketBoxDataSource

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch / "spark"),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(RocketBoxDataSource)
    return spark


def all_columns(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def by_topic(frame: Any) -> None:
    frame.groupBy("topic").agg({"size": "sum", "body_size": "max", "queue_id": "count"}).collect()


def warm_up(spark: Any, store: Path) -> None:
    write_store(store, 100 << 20, 200)
    for columns in LOOPS:
        for act in (all_columns, by_topic):
            act(frame_of(spark, store, columns))
    shutil.rmtree(store)


def frame_of(spark: Any, store: Path, columns: str) -> Any:
    return spark.read.format("rocketbox").option("store", str(store)).option("columns", columns).load()


def seconds(act: Callable[[], None], rounds: int) -> tuple[float, float]:
    """(wall, of processors) of the median rounds; the second is that of this process and all below it."""
    walls, used = [], []
    for _ in range(rounds):
        begin, begin_used = time.perf_counter(), processor_seconds()
        act()
        walls.append(time.perf_counter() - begin)
        used.append(processor_seconds() - begin_used)
    return median(walls), median(used)


def processor_seconds() -> float:
    """Of this process, its children and theirs: Java and Python's workers, those that have ended among them."""
    times: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        times[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in times.items() if parent in ours} - ours:
        ours |= more
    return sum(times[pid][1] for pid in ours if pid in times) / os.sysconf("SC_CLK_TCK")


def measure_bodies(spark: Any, store: Path, gib: float, body_bytes: int, rounds: int) -> str:
    messages = write_store(store, int(gib * GIB), body_bytes)
    into_cache(store)
    lines = [
        f"Bodies of {body_bytes} bytes: {gib:g} GiB, {messages:,} messages, median of {rounds}",
        "",
        "| columns | query | s | MB/s of log | messages/s | processor s | a core: MB/s, messages/s, times the loop |",
        "|---|---|---|---|---|---|---|",
    ]
    loops = []
    for columns, body in LOOPS.items():
        rate, vectors = loop_rates(store, body)
        loops.append(f"{columns}: plain loop {rate:,.0f} messages/s, numpy {vectors:,.0f} messages/s")
        for act in (all_columns,) if body else (all_columns, by_topic):
            taken, used = seconds(lambda act=act, columns=columns: act(frame_of(spark, store, columns)), rounds)
            lines.append(
                f"| {columns} | {act.__name__.replace('_', ' ')} | {taken:.1f} | {gib * GIB / taken / 1e6:,.0f} | "
                f"{messages / taken:,.0f} | {used:.1f} | {gib * GIB / used / 1e6:,.0f}, {messages / used:,.0f}, "
                f"{messages / used / rate:.1f} |"
            )
    shutil.rmtree(store)
    return "\n".join([*lines, "", "One processor, without Spark: " + "; ".join(loops)])


def measure_sizes(spark: Any, store: Path, sizes: Sequence[float], rounds: int) -> str:
    title = f"Bodies of 1024 bytes, meta, all columns, median of {rounds}"
    lines = [title, "", "| GiB | s | s for each GiB | processor s | for each GiB |", "|---|---|---|---|---|"]
    for gib in sizes:
        write_store(store, int(gib * GIB), 1024)
        into_cache(store)
        taken, used = seconds(lambda: all_columns(frame_of(spark, store, "meta")), rounds)
        lines.append(f"| {gib:g} | {taken:.1f} | {taken / gib:.2f} | {used:.1f} | {used / gib:.2f} |")
        shutil.rmtree(store)
    return "\n".join(lines)


def into_cache(store: Path) -> None:
    """What is measured is reading, not this machine's disk."""
    for path in sorted((store / "commitlog").iterdir()):
        with open(path, "rb", buffering=0) as file:
            while file.read(16 << 20):
                pass


def loop_rates(store: Path, body: bool) -> tuple[float, float]:
    """Messages in a second of one processor: by the plain loop, and by numpy."""
    from appliance.engine.protocol.record import decode_record
    from spark_reports.source.columns import decode, walk
    from spark_reports.source.rows import batch_of, row_of
    from spark_reports.source.wanted import Wanted

    data = min((store / "commitlog").iterdir()).open("rb").read(SAMPLE_BYTES)
    starts, _ = walk(data, 0, len(data))
    wanted = Wanted(body=body)

    def plain() -> None:
        for low in range(0, len(starts), 8192):
            rows = []
            for at in starts[low : low + 8192]:
                record = decode_record(data, at, check_crc=body)
                if wanted.has(record):
                    rows.append(row_of(record, body))
            batch_of(rows, body)

    def vectorised() -> None:
        for low in range(0, len(data), 8 << 20):
            part = data[low : low + (8 << 20)]
            first = part.find(b"\xda\xa3\x20\xa7") - 4
            some, _ = walk(part, first, len(part))
            decode(part, some, wanted)

    return len(starts) / seconds(plain, 3)[1], len(starts) / seconds(vectorised, 3)[1]


if __name__ == "__main__":
    sys.exit(main())
