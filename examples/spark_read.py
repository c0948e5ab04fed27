"""Reads a store with Spark: messages per topic, their sizes, and who wrote in the last hour. The broker may be running;
it is not asked, and not disturbed. Apache RocketMQ's own stores can be read as well.

    .venv/bin/python examples/spark_read.py data        # after `script/server --reports`
    .venv/bin/python examples/spark_read.py /root/store --topic orders,refunds --master spark://host:7077
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import timedelta

from spark_reports import machine


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What is in a store, by Spark.")
    parser.add_argument("store", help="a data directory of RocketBox, or Apache's storePathRootDir")
    parser.add_argument("--topic", help="topics, by commas; all but the system's without it")
    parser.add_argument("--master", default="local[2]", help="where Spark runs (%(default)s: here, with two cores)")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if not os.path.isdir(given.store):
        sys.exit(f"There is no directory {given.store}.")
    missing = machine.what_is_missing(memory_bytes=1 << 30)
    if missing:
        sys.exit("\n".join(map(str, missing)))
    # The Java that was found, and this Python for Spark's workers, which would take any python3.
    os.environ.update(machine.environment())
    if given.master.startswith("local"):
        # Else Spark's driver listens on the machine's address, where programs of others may use it.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    from spark_reports import RocketBoxDataSource

    spark = (
        SparkSession.builder.master(given.master)
        .appName("spark_read")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        # A filter on topic, queue or time then leaves out whole files.
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .getOrCreate()
    )
    spark.dataSource.register(RocketBoxDataSource)
    reader = spark.read.format("rocketbox").option("store", os.path.abspath(given.store))
    if given.topic:
        reader = reader.option("topic", given.topic)
    messages = reader.load()

    print("Messages by topic, and sizes of their bodies")
    topics = messages.groupBy("topic").agg(
        f.count("*").alias("messages"),
        f.expr("percentile_approx(body_size, 0.5, 1000)").alias("median_bytes"),
        f.expr("percentile_approx(body_size, 0.95, 1000)").alias("p95_bytes"),
        f.max("body_size").alias("largest_bytes"),
        f.min("store_ts").alias("first"),
        f.max("store_ts").alias("last"),
    )
    topics.orderBy(f.desc("messages"), "topic").show(50, truncate=False)

    last = messages.agg(f.max("store_ts").cast("timestamp_ntz").alias("at")).first()
    if last is None or last.at is None:
        print("There are no messages.")
    else:
        since = (last.at - timedelta(hours=1)).isoformat()
        print(f"Keys of the last hour, from {since}Z on")
        recent = reader.option("from", since).load()
        # A message may have several, with spaces between them.
        keys = recent.where("keys IS NOT NULL").select(
            "topic", f.explode(f.split("keys", " ")).alias("key"), "store_ts"
        )
        keys = keys.where("key != ''")
        busiest = keys.groupBy("topic", "key").agg(f.count("*").alias("messages"), f.max("store_ts").alias("last"))
        busiest.orderBy(f.desc("messages"), "topic", "key").show(20, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
