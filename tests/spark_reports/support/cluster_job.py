"""The job that tests submit to the cluster: it reads, and prints its results as one line of JSON."""

import json
import sys

from pyspark.sql import SparkSession, functions

from spark_reports import RocketBoxDataSource


def where(_):
    """Return the path from which a task's Python imports the data source."""
    import spark_reports

    return spark_reports.__file__


options = json.loads(sys.argv[1])
spark = SparkSession.builder.appName("reading").getOrCreate()
spark.dataSource.register(RocketBoxDataSource)
context = spark.sparkContext
context.setJobGroup("reading", "reading")
rows = spark.read.format("rocketbox").options(**options).load()
found = rows.groupBy("topic", "queue_id").agg(
    functions.count("*").alias("rows"),
    functions.min("queue_offset").alias("first"),
    functions.max("queue_offset").alias("last"),
    functions.count_distinct("queue_offset").alias("distinct"),
    functions.sum(functions.crc32("body")).alias("bodies"),
)
queues = sorted(tuple(row) for row in found.collect())
tracker = context.statusTracker()
stages = [stage for job in tracker.getJobIdsForGroup("reading") for stage in tracker.getJobInfo(job).stageIds]
failed = sum(info.numFailedTasks for stage in stages if (info := tracker.getStageInfo(stage)))
places = context.parallelize(range(4), 4).map(where).distinct().collect()
print(json.dumps({"queues": queues, "failed": failed, "places": places}))
spark.stop()
