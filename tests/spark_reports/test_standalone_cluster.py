"""A real standalone cluster reads over the network and from a shared path, and survives the loss of a worker."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark_reports.support.cluster import Cluster
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

JOB = Path(__file__).with_name("support") / "cluster_job.py"
QUEUES, ROWS = 4, 500
BODIES = [[f"{queue}-{row}-".encode() * 50 for row in range(ROWS)] for queue in range(QUEUES)]
#: Results of every job: topic, queue, rows, first offset, last offset, different offsets, sum of the bodies' CRCs.
WHOLE = [
    ["Orders", queue, ROWS, 0, ROWS - 1, ROWS, sum(zlib.crc32(body) for body in BODIES[queue])]
    for queue in range(QUEUES)
]


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[RunningEngine]:
    running = RunningEngine(shared_directory(request, "engine"))
    try:
        for queue in range(QUEUES):
            running.put("Orders", *BODIES[queue], queue=queue)
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(shared_directory(request, "cluster")) as running:
        yield running


def connections_to(address: str | None) -> int:
    """Return the number of connections that a broker on the loopback has."""
    assert address is not None
    port = f":{int(address.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(port) and row[3] == "01" for row in rows)


def test_executors_without_the_files_read_over_the_network(cluster, engine):
    found = cluster.run(JOB, brokers=engine.engine.namesrv_address, topic="Orders", columns="body")
    assert found["queues"] == WHOLE
    # The workers had RocketBox from the zip that came with the job: their own Python has none.
    assert found["places"]
    assert all("rocketbox.zip" in place for place in found["places"])


def test_executors_read_a_shared_path(cluster, engine):
    found = cluster.run(JOB, store=str(engine.data_dir), topic="Orders", columns="body")
    assert found["queues"] == WHOLE


def test_a_worker_dies_in_the_middle_and_the_result_is_whole(cluster, engine):
    address = engine.engine.broker_address
    before = connections_to(address)
    # Slow enough that the worker is killed in the middle of its read.
    slowly = {"maxBytesPerSecond": "20000", "maxRowsPerPartition": "250"}
    with cluster.submitted(JOB, brokers=engine.engine.namesrv_address, topic="Orders", columns="body", **slowly) as job:
        wait_for(lambda: connections_to(address) >= before + 2, "both workers read", 180)
        time.sleep(1)
        cluster.workers[0].kill()
        found = job.result()
    cluster.another_worker()
    assert found["queues"] == WHOLE
    assert found["failed"] >= 1
