"""Streams over brokers: their begin, the size of a step, messages that come meanwhile, and restarts of either side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from appliance.engine.protocol.codes import RequestCode
from spark_reports import RocketBoxDataSource
from spark_reports.source import findings
from spark_reports.source.findings import DataLoss
from spark_reports.source.latest import LatestReader
from spark_reports.source.network.access import Access
from spark_reports.source.network.plan import share
from spark_reports.source.network.reader import NetworkReader
from spark_reports.source.network.routes import NameServers, Queue
from spark_reports.source.network.stream import NetworkStreamReader, offsets_of, place
from spark_reports.source.options import OptionError, parse
from tests.spark_reports.network.servers import START_MS, one_queue
from tests.support.directories import shared_directory
from tests.support.peer import Peer, send_fields
from tests.support.server import Server
from tests.support.waiting import wait_for


def stream(name_servers: str, **options: Any) -> NetworkStreamReader:
    given = {"brokers": name_servers, **{name.rstrip("_"): str(value) for name, value in options.items()}}
    return NetworkStreamReader(parse(given))


def rows_of(reader: NetworkStreamReader, start: dict, end: dict) -> list[tuple[str, int, int]]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    columns = ("topic", "queue_id", "queue_offset")
    return [tuple(row[name] for name in columns) for batch in batches for row in batch.to_pylist()]


def put(broker: str, topic: str, *bodies: str, queue: int = 0) -> None:
    peer = Peer(broker)
    try:
        for body in bodies:
            assert peer.ask(310, send_fields(topic, queue), body.encode()).code == 0
    finally:
        peer.close()


def test_steps_share_what_they_may_read():
    queues = [Queue("b", "t", number) for number in range(4)]
    for most in (1, 2, 3, 7, 100, 1109, 1110, 5000):
        backlog = dict(zip(queues, (1000, 100, 10, 0), strict=True))
        found = share(backlog, most)
        assert sum(found.values()) == min(most, 1110)
        assert all(0 <= found[queue] <= backlog[queue] for queue in queues)
    assert share(dict(zip(queues, (1000, 100, 10, 0), strict=True)), 111) == dict(
        zip(queues, (100, 10, 1, 0), strict=True)
    )


def test_a_place_is_the_same_text_for_the_same_offsets():
    one = {Queue("b", "t", 10): 1, Queue("a", "u", 2): 2, Queue("b", "t", 9): 3}
    assert json.dumps(place(one)) == '{"a": {"u": {"2": 2}}, "b": {"t": {"9": 3, "10": 1}}}'
    assert offsets_of(json.loads(json.dumps(place(one)))) == one


def test_steps_are_no_longer_than_allowed_and_end_at_what_was_there():
    with one_queue(end=100) as (script, server):
        reader = stream(server.address, topic="Orders", maxRowsPerTrigger=30)
        assert reader.getDefaultReadLimit() == ReadMaxRows(30)
        reader.prepareForTriggerAvailableNow()
        script.end = 150
        at, seen, steps = reader.initialOffset(), [], 0
        while (then := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            found = rows_of(reader, at, then)
            assert len(found) <= 30
            assert found == rows_of(reader, at, then), "read again, it is the same"
            seen += found
            at, steps = then, steps + 1
        assert seen == [("Orders", 0, offset) for offset in range(100)]
        assert steps == 4
        assert reader.partitions(at, at) == []
        # The next run continues from there.
        reader = stream(server.address, topic="Orders")
        assert reader.getDefaultReadLimit() == ReadAllAvailable()
        assert rows_of(reader, at, reader.latestOffset(at, ReadAllAvailable())) == [
            ("Orders", 0, offset) for offset in range(100, 150)
        ]


@pytest.mark.parametrize("most", [1, 2_999, 45_000, 1 << 40])
def test_steps_have_as_many_bytes_of_the_log_as_they_may_or_one_message(most):
    """`stored` puts a message at each thousandth byte; the two queues lie side by side."""
    with one_queue(first=10, end=110) as (script, server):
        script.queues = 2
        reader = stream(server.address, topic="Orders", maxBytesPerTrigger=most)
        assert reader.getDefaultReadLimit() == ReadMaxBytes(most)
        at, sizes = reader.initialOffset(), []
        while (then := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            before, after = offsets_of(at), offsets_of(then)
            sizes.append(sum(after.values()) - sum(before.values()))
            at = then
        assert at == {"broker-a": {"Orders": {"0": 110, "1": 110}}}
        assert sum(sizes) == 200
        assert sizes[0] == (1 if most == 1 else min(200, 2 * max(1, -(-(most - 200) // 1000))))
        if most == 45_000:
            pulls = sum(one.code == RequestCode.PULL_MESSAGE for one in server.asked)
            assert pulls < 100, "for a step of 90 messages there are some 30 pulls"
        # The first messages have been deleted, or all of them: a task says so.
        for first in (60, 110):
            script.first = first
            start = {"broker-a": {"Orders": {"0": 10, "1": 10}}}
            then = offsets_of(reader.latestOffset(start, ReadMaxBytes(2_500)))
            assert set(then.values()) == {min(first + 3, 110)}
            # One message alone takes the place behind what is gone, not one offset of it at a time.
            then = offsets_of(reader.latestOffset(start, ReadMaxBytes(1)))
            assert sorted(then.values()) == ([10, 61] if first == 60 else [110, 110])


def test_where_it_begins():
    with one_queue(first=20, end=100) as (_, server):

        def begins(**options: Any) -> Any:
            return stream(server.address, topic="Orders", **options).initialOffset()["broker-a"]["Orders"]["0"]

        assert begins() == 20
        assert begins(startingOffsets="latest") == 100
        assert begins(startingOffsets='{"Orders":{"0":55}}') == 55
        assert begins(startingOffsets='{"broker-a":{"Orders":{"0":56}}}') == 56
        with pytest.raises(OptionError, match="names Orders, queue 0 of broker-b, which is not there to read"):
            begins(startingOffsets='{"broker-a":{"Orders":{"0":56}},"broker-b":{"Orders":{"0":56}}}')
        with pytest.raises(OptionError, match=r"numbers from 0 on.*availableNow"):
            stream(server.address, topic="Orders", endingOffsets='{"Orders":{"0":-1}}')


@pytest.mark.parametrize("named", ['{"Orders":{"1":5}}', '{"broker-b":{"Orders":{"0":5}}}'])
def test_an_end_of_a_queue_that_is_not_there_is_an_error(named):
    """Except if it was there before, as of a broker that is away."""
    with one_queue(end=100) as (_, server):
        reader = stream(server.address, topic="Orders", endingOffsets=named)
        begin = reader.initialOffset()
        with pytest.raises(OptionError, match=r"names Orders, queue \d.*, which is not there to read"):
            reader.latestOffset(begin, ReadAllAvailable())
        batch = NetworkReader(parse({"brokers": server.address, "topic": "Orders", "endingOffsets": named}))
        batch.take_filters([EqualTo(("topic",), "Orders")])
        with pytest.raises(OptionError, match=r"names Orders, queue \d.*, which is not there to read"):
            batch.partitions()
        reader.latestOffset(begin | {"broker-b": {"Orders": {"0": 3, "1": 3}}}, ReadAllAvailable())


@pytest.mark.parametrize("ends", [{"endingOffsets": '{"broker-a":{"Orders":{"0":120}}}'}, {"to": START_MS + 120}])
def test_where_it_ends(ends):
    """Also if the end is still to come."""
    with one_queue(end=100) as (script, server):
        reader = stream(server.address, topic="Orders", **ends)
        at = reader.latestOffset(begin := reader.initialOffset(), ReadAllAvailable())
        assert [row[2] for row in rows_of(reader, begin, at)] == list(range(100))
        script.end = 150
        then = reader.latestOffset(at, ReadMaxRows(1000))
        assert [row[2] for row in rows_of(reader, at, then)] == list(range(100, 120))
        reader = stream(server.address, topic="Orders", **ends)
        script.end = 200
        # Spark asks no partitions of a batch without messages.
        last = reader.latestOffset(then, ReadAllAvailable())
        assert rows_of(reader, then, last) == []
        assert reader.latestOffset(last, ReadAllAvailable()) == last


def test_a_batch_takes_the_offsets_of_a_stream_as_its_bounds():
    with one_queue(end=100) as (_, server):
        given = {"brokers": server.address, "topic": "Orders"}
        bounds = {name: json.dumps(place({Queue("broker-a", "Orders", 0): offset}))
                  for name, offset in (("startingOffsets", 30), ("endingOffsets", 33))}  # fmt: skip
        reader = NetworkReader(parse(given | bounds))
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        assert [row["queue_offset"] for row in rows] == [30, 31, 32]
        with pytest.raises(OptionError, match="endingOffsets names Orders, queue 7, which is not there"):
            NetworkReader(parse(given | {"endingOffsets": '{"Orders":{"7":1}}'})).partitions()


def bounds(start: dict[str, int], end: dict[str, int]) -> dict[str, str]:
    """Return options of a batch from one place to another. start, end: broker name -> offset of its queue."""
    return {
        name: json.dumps(place({Queue(broker, "Orders", 0): offset for broker, offset in offsets.items()}))
        for name, offsets in (("startingOffsets", start), ("endingOffsets", end))
    }


def test_a_batch_that_cannot_reach_its_end_does_not_leave_the_rest_to_nobody(tmp_path):
    """A slave that is behind answers for its master, or the master lost its newest messages: the next batch begins at
    the end that was asked for."""
    with one_queue(end=90) as (_, server):
        given = {"brokers": server.address, "topic": "Orders"} | bounds({"broker-a": 30}, {"broker-a": 100})
        with pytest.raises(DataLoss, match=r"10 messages of Orders, queue 0 of broker-a .* offsets 90 to 99: .* at 90"):
            NetworkReader(parse(given)).partitions()
        counted = {"failOnDataLoss": "false", "findings": str(tmp_path)}
        reader = NetworkReader(parse(given | counted))
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        assert [row["queue_offset"] for row in rows] == list(range(30, 90))
        assert findings.read(tmp_path) == [("gap", 90, 100, "broker-a/Orders-0")]


def test_a_batch_does_not_end_without_a_queue_that_was_begun():
    """Its broker was away when the end was taken, and is back: the next batch would begin at its first message."""
    with one_queue(end=100) as (script, server):
        script.queues = 2
        given = {"brokers": server.address, "startingOffsets": '{"broker-a":{"Orders":{"0":30}}}', "topic": "Orders",
                 "endingOffsets": '{"broker-a":{"Orders":{"1":5}}}'}  # fmt: skip
        with pytest.raises(
            OptionError, match="endingOffsets does not name Orders, queue 0 of broker-a, which starting"
        ):
            NetworkReader(parse(given)).partitions()
        parts = NetworkReader(parse(given | {"failOnMissingTopic": "false"})).partitions()
        assert [(one.queue.queue_id, one.start, one.end) for part in parts for one in part.ranges] == [(1, 0, 5)]


def test_batches_one_after_the_other_read_each_message_once(engine):
    """Also of a topic that comes between the end of a batch and its plan."""
    namesrv = engine.engine.namesrv_address
    names, begin, counts = NameServers(Access((namesrv,))), {}, []

    def batch(**bounds: str) -> list[bytes]:
        reader = NetworkReader(parse({"brokers": namesrv, "columns": "body", **bounds}))
        return [body for part in reader.partitions() for one in reader.read(part) for body in one["body"].to_pylist()]

    seen: list[bytes] = []
    for number, topic in enumerate(("First", "Second", "Third")):
        engine.put(topic, b"%d a" % number, b"%d b" % number)
        wait_for(lambda topic=topic: topic in names.topics(), "the name server knows it")
        latest = LatestReader(parse({"brokers": namesrv, "columns": "latest"}))
        (end,) = [
            row for part in latest.partitions() for one in latest.read(part) for row in one["offsets"].to_pylist()
        ]
        late = f"Late{number}"
        engine.put(late, b"%d late" % number)
        engine.put(topic, b"%d more" % number)
        wait_for(lambda late=late: late in names.topics(), "the name server knows it")
        found = batch(**begin, endingOffsets=end)
        counts.append(len(found))
        seen += found
        begin = {"startingOffsets": end}
    assert counts == [2, 4, 4]
    seen += batch(**begin)
    assert sorted(seen) == sorted(
        b"%d %b" % (number, what) for number in range(3) for what in (b"a", b"b", b"late", b"more")
    )
    for most, steps in ((1, 12), (1 << 30, 1)):
        reader, counts, rows = stream(namesrv, maxBytesPerTrigger=most), [], set()
        at = reader.initialOffset()
        while (then := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            found = rows_of(reader, at, then)
            counts.append(len(found))
            rows |= set(found)
            at = then
        assert (len(counts), sum(counts), len(rows)) == (steps, 12, 12)


def test_a_queue_that_an_end_by_broker_does_not_name_came_later():
    with one_queue(end=100) as (script, server):
        script.queues = 2
        reader = stream(server.address, topic="Orders", endingOffsets='{"broker-a":{"Orders":{"0":40}}}')
        found = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        assert found == {"broker-a": {"Orders": {"0": 40, "1": 0}}}


def test_a_queue_that_is_shorter_than_what_was_read_is_a_loss():
    with one_queue(end=100) as (script, server):
        reader = stream(server.address, topic="Orders")
        at = place({Queue("broker-a", "Orders", 0): 200})
        with pytest.raises(DataLoss, match="ends Orders, queue 0 of broker-a at offset 100, and it was read to 200"):
            reader.latestOffset(at, ReadAllAvailable())
        assert stream(server.address, topic="Orders", failOnDataLoss="false").latestOffset(at, ReadAllAvailable()) == at
        # A slave that is behind catches up.
        script.addresses = {"1": server.address}
        assert reader.latestOffset(at, ReadAllAvailable()) == at


def test_a_broker_that_is_not_routed_any_more_keeps_its_place():
    with one_queue(end=100) as (_, server):
        at = {"broker-a": {"Orders": {"0": 100}}, "broker-b": {"Orders": {"0": 7}}}
        assert stream(server.address, topic="Orders").latestOffset(at, ReadAllAvailable()) == at


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(shared_directory(request, "server") / "data") as running:
        yield running


def routed(server: Server, *topics: str) -> None:
    """Wait until the name server knows the topics: it is told of a new one behind the answer to its first send."""
    names = NameServers(Access((server.namesrv,)))
    wait_for(lambda: set(topics) <= set(names.topics()), "the name server knows them")


def run(spark, server: Server, into: Path, **options: Any) -> list[Any]:
    """Run once over all available messages; return the rows of all runs into that directory so far."""
    rows = spark.readStream.format("rocketbox").options(brokers=server.namesrv, **options).load()
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(into / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(into / "rows"))
    )
    assert query.awaitTermination(600)
    assert query.exception() is None
    columns = ("topic", "queue_id", "queue_offset")
    return sorted(tuple(row) for row in spark.read.parquet(str(into / "rows")).select(*columns).collect())


def test_runs_over_what_is_available_read_each_message_once(spark, server, tmp_path):
    """Also if the broker was restarted in between, queues and topics were added, and steps are small."""
    spark.dataSource.register(RocketBoxDataSource)
    options = {"maxRowsPerTrigger": "40"}
    for queue in range(2):
        put(server.broker, "First", *map(str, range(50)), queue=queue)
    routed(server, "First")
    expected = [("First", queue, offset) for queue in range(2) for offset in range(50)]
    assert run(spark, server, tmp_path, **options) == expected
    assert run(spark, server, tmp_path, **options) == expected
    server.stop()
    server.restart()
    put(server.broker, "First", "more", queue=0)
    put(server.broker, "First", "new", "new", queue=3)
    put(server.broker, "Second", *map(str, range(5)))
    routed(server, "First", "Second")
    expected += [("First", 0, 50), ("First", 3, 0), ("First", 3, 1), *(("Second", 0, offset) for offset in range(5))]
    assert run(spark, server, tmp_path, **options) == sorted(expected)


def test_a_stream_goes_on_while_the_broker_is_killed_and_comes_back(spark, server, tmp_path):
    spark.dataSource.register(RocketBoxDataSource)
    put(server.broker, "Going", *map(str, range(20)))
    routed(server, "Going")
    rows = spark.readStream.format("rocketbox").options(brokers=server.namesrv, topic="Going").load()
    query = rows.writeStream.format("memory").queryName("going").trigger(processingTime="300 milliseconds").start()
    try:

        def seen() -> list[int]:
            return sorted(row.queue_offset for row in spark.sql("SELECT queue_offset FROM going").collect())

        wait_for(lambda: seen() == list(range(20)), "the first messages", every=0.2)
        server.kill()
        server.restart()
        put(server.broker, "Going", *map(str, range(20)))
        wait_for(lambda: len(seen()) >= 40, "those behind the restart", every=0.2)
        assert seen() == list(range(40))
        assert query.isActive
    finally:
        query.stop()
