"""The stream over files: the meaning of its offsets, without Spark; and with it, queries that stop and start again."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from appliance.engine.store_tools.offline_store import OfflineStore
from spark_reports.source import findings
from spark_reports.source.findings import DataLoss, Finding
from spark_reports.source.options import OptionError, parse
from spark_reports.source.queue_entries import Queue, Queues
from spark_reports.source.store_view import StoreView
from spark_reports.source.stream import FilesStreamReader
from tests.spark_reports.source.stores import START_MS, STEP_MS, fill, log_paths, read, stopped
from tests.support.directories import shared_directory
from tests.support.store import StoreUnderTest


def stream(directory, **options) -> FilesStreamReader:
    return FilesStreamReader(parse({"store": str(directory), **{name: str(value) for name, value in options.items()}}))


def rows_between(reader: FilesStreamReader, start, end) -> list[dict]:
    found = []
    for partition in pickle.loads(pickle.dumps(reader.partitions(start, end))):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            found += batch.to_pylist()
    return found


def drained(reader: FilesStreamReader, offset=None) -> tuple[list[list[dict]], dict]:
    """Read everything as a query does; return (its batches, its last offset)."""
    offset = reader.initialOffset() if offset is None else offset
    batches = []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        batches.append(rows_between(reader, offset, end))
        assert len(batches) < 10_000
        offset = end
    return batches, offset


@pytest.fixture(scope="module")
def kept(request):
    return stopped(shared_directory(request, "kept") / "data", 600, ("orders", "refunds"), rare=6)


@pytest.mark.parametrize("most", [1, 50, 599, 600, 10_000])
def test_batches_have_as_many_rows_as_they_may_and_all_come_once(kept, most):
    batches, _ = drained(stream(kept, maxRowsPerTrigger=most))
    assert [len(batch) for batch in batches] == [most] * (600 // most) + [600 % most] * (600 % most > 0)
    assert list(chain.from_iterable(batches)) == read(kept).rows


@pytest.mark.parametrize("most", [1, 200, 5_000, 1 << 30])
def test_batches_have_as_many_bytes_as_they_may_or_one_message(kept, most):
    reader = stream(kept, maxBytesPerTrigger=most)
    offset, found = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        batch = rows_between(reader, offset, end)
        size = end["position"] - offset["position"]
        assert len(batch) == 1 or (batch and size <= most)
        found += batch
        offset = end
    assert found == read(kept).rows
    assert reader.reportLatestOffset() == offset


def test_bytes_between_wanted_messages_count_too(kept):
    batches, _ = drained(stream(kept, maxBytesPerTrigger=1, topic="rare"))
    assert [len(batch) for batch in batches] == [1] * 6
    batches, _ = drained(stream(kept, maxBytesPerTrigger=1 << 30, topic="rare"))
    assert [len(batch) for batch in batches] == [6]


def test_only_wanted_messages_count(kept):
    batches, _ = drained(stream(kept, maxRowsPerTrigger=4, topic="rare"))
    assert [len(batch) for batch in batches] == [4, 2]


def test_all_that_is_available_is_read_whatever_the_limit_of_the_options(kept):
    reader = stream(kept, maxRowsPerTrigger=4)
    start = reader.initialOffset()
    assert len(rows_between(reader, start, reader.latestOffset(start, ReadAllAvailable()))) == 600


def test_a_batch_is_read_again_as_it_was(kept):
    reader = stream(kept)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(123))
    assert rows_between(reader, start, end) == rows_between(stream(kept), start, end)


def test_it_begins_where_it_is_told(kept):
    whole = read(kept).rows
    assert drained(stream(kept, startingOffsets="latest"))[0] == []
    (batch,), _ = drained(stream(kept, startingOffsets='{"orders": {"0": 90}}', topic="orders"))
    assert [row["queue_offset"] for row in batch if row["queue_id"] == 0] == list(range(90, len([
        row for row in whole if row["topic"] == "orders" and row["queue_id"] == 0
    ])))  # fmt: skip
    middle = whole[300]["store_ts"]
    (batch,), _ = drained(stream(kept, **{"from": middle.isoformat()}))
    assert batch == whole[300:]


def test_latest_of_a_queue_is_found_out_once(tmp_path):
    under = StoreUnderTest(tmp_path / "data").open()
    fill(under, 30)
    under.wait_recovery_position()
    reader = stream(tmp_path / "data", startingOffsets='{"orders": {"0": -1}}')
    start = reader.initialOffset()
    assert start["starts"] == {"orders": {"0": 10}}
    fill(under, 30)
    under.stop()
    batches, _ = drained(stream(tmp_path / "data", startingOffsets='{"orders": {"0": -1}}'), start)
    assert sum(len(batch) for batch in batches) == 20 + 30


def test_now_is_when_the_query_started(tmp_path):
    under = StoreUnderTest(tmp_path / "data").open()
    fill(under, 50)
    under.stop()
    reader = stream(tmp_path / "data", maxRowsPerTrigger=20)
    reader.prepareForTriggerAvailableNow()
    under.open()
    fill(under, 50)
    under.stop()
    batches, offset = drained(reader)
    assert [len(batch) for batch in batches] == [20, 20, 10]
    batches, _ = drained(stream(tmp_path / "data"), offset)
    assert [len(batch) for batch in batches] == [50]


def test_a_log_that_lost_its_end_is_said(tmp_path, monkeypatch):
    under = StoreUnderTest(tmp_path / "data").open()
    fill(under, 50)
    under.stop()
    _, offset = drained(stream(tmp_path / "data"))
    shutil.rmtree(tmp_path / "data")
    stopped(tmp_path / "data", 20)
    said = f"The log of {tmp_path}/data ends at .*, and the stream had read it to .*: the log lost its end"
    with pytest.raises(DataLoss, match=said):
        stream(tmp_path / "data").latestOffset(offset, ReadAllAvailable())
    end = stream(tmp_path / "data", failOnDataLoss="false").latestOffset(offset, ReadAllAvailable())
    assert end["position"] < offset["position"]
    # A broker has the log that was cut. Until it has written that far again, nothing is where messages were read.
    under = StoreUnderTest(tmp_path / "data").open()
    monkeypatch.setattr(OfflineStore, "lock_holder", lambda store: os.getpid())
    with pytest.raises(DataLoss, match=said):
        stream(tmp_path / "data").latestOffset(offset, ReadAllAvailable())
    under.stop()
    # A broker that has just started writes the entries of what is there later.
    monkeypatch.setattr(StoreView, "is_written", lambda view, place: place == end["position"])
    assert stream(tmp_path / "data").latestOffset(offset, ReadAllAvailable()) == offset


def test_a_log_that_was_written_anew_to_the_same_place_is_said(tmp_path):
    """Its messages have the same sizes, so one begins at each place that the stream was at."""
    data = stopped(tmp_path / "data", 50)
    begin = stream(data).initialOffset()
    middle = stream(data).latestOffset(begin, ReadMaxRows(30))
    end = stream(data).latestOffset(middle, ReadAllAvailable())
    shutil.copytree(data, tmp_path / "kept")
    shutil.rmtree(data)
    under = StoreUnderTest(data).open()
    under.scheduler.wall_ms += 1
    fill(under, 50)
    fill(under, 50)
    under.stop()
    behind = {"position": stream(data).reportLatestOffset()["position"]}
    for offset, place in ((middle, middle["position"]), (end, read(data).rows[49]["physical_offset"])):
        for look in (
            lambda offset: stream(data).latestOffset(offset, ReadAllAvailable()),
            lambda offset: stream(data).partitions(offset, behind),
            lambda offset: stream(data).partitions(begin, offset),
            lambda offset: drained(stream(data, startingOffsets=json.dumps(offset))),
            lambda offset: read(data, startingOffsets=json.dumps(offset)),
            lambda offset: read(data, endingOffsets=json.dumps(offset)),
        ):
            with pytest.raises(DataLoss, match=f"message at {place} of {data} is not the one .* was written anew"):
                look(offset)
        lenient = stream(data, failOnDataLoss="false", findings=tmp_path / "found")
        batches, _ = drained(lenient, offset)
        assert list(chain.from_iterable(batches)) == [
            row for row in read(data).rows if row["physical_offset"] >= offset["position"]
        ]
        assert Finding("gap", place, max(place + 1, offset["position"])) in findings.read(tmp_path / "found")
    # What was lost behind the place was not read.
    under = StoreUnderTest(tmp_path / "kept").open()
    under.scheduler.wall_ms += 90_000
    fill(under, 50)
    under.stop()
    for offset, count in ((middle, 70), (end, 50)):
        batches, _ = drained(stream(tmp_path / "kept"), offset)
        assert sum(map(len, batches)) == count


def test_messages_that_were_deleted_before_they_were_read_are_said(tmp_path, kept):
    data = shutil.copytree(kept, tmp_path / "data")
    start = stream(data).initialOffset()
    log_paths(data)[0].unlink()
    end = stream(data).latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLoss, match="no file for"):
        stream(data).partitions(start, end)
    found = rows_between(stream(data, failOnDataLoss="false"), start, end)
    assert found == [row for row in read(kept).rows if row["physical_offset"] >= 64 * 1024]


@pytest.mark.parametrize("ends", ["earliest", '{"orders": {"0": -1}}'])
def test_an_end_that_a_restart_would_move_is_refused(ends):
    with pytest.raises(OptionError, match=r"numbers from 0 on.*availableNow"):
        stream("/nowhere", endingOffsets=ends)


def test_it_reads_to_the_end_it_is_given_and_stands_still(tmp_path):
    """The end is in the middle of the log, or comes later; so do other queues."""
    under = StoreUnderTest(tmp_path / "data").open()
    fill(under, 60, ("orders", "refunds"), queues=2)
    under.wait_recovery_position()
    ends = {"topic": "orders", "endingOffsets": '{"orders": {"0": 10, "1": 20}}'}
    (first,), offset = drained(stream(tmp_path / "data", **ends))
    assert sorted(row["queue_offset"] for row in first if row["queue_id"] == 0) == list(range(10))
    assert [row["queue_offset"] for row in first if row["queue_id"] == 1] == list(range(15))
    fill(under, 60, ("orders", "refunds"), queues=2)
    under.wait_recovery_position()
    (second,), offset = drained(stream(tmp_path / "data", **ends), offset)
    assert [(row["queue_id"], row["queue_offset"]) for row in second] == [(1, number) for number in range(15, 20)]
    fill(under, 4, ("refunds", "orders"), queues=2)
    under.wait_recovery_position()
    assert drained(stream(tmp_path / "data", **ends), offset) == ([], offset)
    fill(under, 1, ("orders",), queues=1)
    under.put("orders", 2, b"a new queue has no end", b"")
    under.tick()
    under.stop()
    (third,), _ = drained(stream(tmp_path / "data", **ends), offset)
    assert [(row["queue_id"], row["queue_offset"]) for row in third] == [(2, 0)]


@pytest.mark.parametrize("goes_on", [False, True])
def test_an_end_of_a_queue_that_is_not_there_is_an_error(kept, goes_on):
    """Also where a query that was there before is given that end."""
    reader = stream(kept, endingOffsets='{"orders": {"0": 10, "9": 10}}')
    with pytest.raises(OptionError, match="endingOffsets names orders, queue 9, which is not there to read"):
        drained(reader, stream(kept).initialOffset() if goes_on else None)


def test_it_reads_to_the_time_it_is_given_and_stands_still(tmp_path):
    under = StoreUnderTest(tmp_path / "data").open()
    fill(under, 400)
    under.wait_recovery_position()
    to = START_MS + 380 * STEP_MS
    batches, offset = drained(stream(tmp_path / "data", to=to, maxRowsPerTrigger=100))
    rows = list(chain.from_iterable(batches))
    assert rows == [row for row in read(tmp_path / "data").rows if row["store_ts"].timestamp() * 1000 < to]
    assert 370 < len(rows) < 390
    fill(under, 50)
    under.wait_recovery_position()
    assert drained(stream(tmp_path / "data", to=to), offset) == ([], offset)
    under.stop()
    assert drained(stream(tmp_path / "data", to=to), offset) == ([], offset)


@pytest.mark.parametrize("option", ["endingOffsets", "until"])
def test_behind_the_end_that_it_is_given_it_stands_still(kept, option):
    """Its checkpoint may be further, from a run without that end: nothing is lost, and nothing is read again."""
    places = [row["physical_offset"] for row in read(kept, topic="orders").rows]
    given = json.dumps({"position": places[5]}) if option == "endingOffsets" else places[5]
    offset = {"position": places[9]}
    for lossy in ("true", "false"):
        reader = stream(kept, failOnDataLoss=lossy, **{option: given})
        reader.prepareForTriggerAvailableNow()
        assert reader.latestOffset(offset, ReadAllAvailable()) == offset


def test_a_batch_takes_the_offsets_of_a_stream_as_its_bounds(kept):
    reader = stream(kept)
    low = reader.latestOffset(reader.initialOffset(), ReadMaxRows(150))
    high = reader.latestOffset(low, ReadMaxRows(200))
    found = read(kept, startingOffsets=json.dumps(low), endingOffsets=json.dumps(high))
    assert found.rows == read(kept).rows[150:350]
    batches, end = drained(stream(kept, startingOffsets=json.dumps(low), endingOffsets=json.dumps(high)))
    assert (batches, end) == ([found.rows], high)


def test_offsets_within_a_message_are_refused(kept):
    inside = read(kept).rows[9]["physical_offset"] + 1
    for name, value in (("startingOffsets", f'{{"position": {inside}}}'), ("until", str(inside))):
        with pytest.raises(OptionError, match=f"The option {name}: {inside} is within a message"):
            read(kept, **{name: value})
        with pytest.raises(OptionError, match=f"The option {name}: {inside} is within a message"):
            stream(kept, **{name: value}).initialOffset()
    begin = {"position": 0}
    with pytest.raises(OptionError, match=f"The option until: {inside} is within a message"):
        stream(kept, until=inside).latestOffset(begin, ReadAllAvailable())
    end = stream(kept).latestOffset(begin, ReadAllAvailable())
    for there in ({"position": inside}, {**end, "position": inside}):
        for plan in (
            lambda at: stream(kept).latestOffset(at, ReadAllAvailable()),
            lambda at: stream(kept).partitions(at, end),
        ):
            with pytest.raises(
                OptionError, match=f"at {inside}, which is now within a message of {kept}: the log lost its end, .* or"
            ):
                plan(there)
    with pytest.raises(OptionError, match=f"checkpoint is at {inside}"):
        stream(kept).partitions(begin, {"position": inside})
    with pytest.raises(OptionError, match="has no topic order; did you mean orders"):
        stream(kept, startingOffsets='{"order": {"0": 1}}').initialOffset()


def test_entries_that_a_broker_has_not_written_yet_are_not_missed(tmp_path, monkeypatch):
    """It writes one queue's file after another: here the view reads `rare` before its round, and the others behind."""
    under = StoreUnderTest(tmp_path / "data").open()
    fill(under, 2, ("rare",), queues=1)
    under.wait_recovery_position()
    position = tmp_path / "data" / "rocketbox" / "recovery-position"
    before = position.read_bytes()
    fill(under, 3, ("rare",), queues=1)
    fill(under, 200)
    under.wait_recovery_position()
    position.write_bytes(before)
    read_all = Queues.all

    def early(queues: Queues) -> list[Queue]:
        return [replace(one, end=2) if one.topic == "rare" else one for one in read_all(queues)]

    monkeypatch.setattr(Queues, "all", early)
    # The store is open in this process, which its lock does not show to itself.
    monkeypatch.setattr(OfflineStore, "lock_holder", lambda store: os.getpid())
    (batch,), _ = drained(stream(tmp_path / "data", topic="rare"))
    assert [row["queue_offset"] for row in batch] == [0, 1, 2, 3, 4]
    under.stop()


# --- while it is written

WRITER = """
import sys, time
from pathlib import Path
from tests.spark_reports.source.stores import fill
from tests.support.store import StoreUnderTest
under = StoreUnderTest(Path(sys.argv[1]), synchronous=sys.argv[2] == "sync").open()
print("open", flush=True)
for number in range(200):
    fill(under, 20, ("orders", "refunds"))
    if number % 40 == 39:
        sys.stdin.readline()  # once more something was read
if sys.argv[3] == "stop":
    under.stop()
else:
    print("written", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("flush", "way"), [("async", "stop"), ("sync", "stop"), ("async", "kill")])
def test_a_store_that_is_being_written_is_read_once_and_whole(tmp_path, flush, way):
    data = tmp_path / "data"
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", WRITER, str(data), flush, way]
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 1, "text": True}
    with subprocess.Popen(command, cwd=root, **piped) as writer:
        try:
            assert writer.stdout.readline() == "open\n"
            reader = stream(data, maxRowsPerTrigger=700)
            offset = reader.initialOffset()
            batches, while_open = [], 0
            while writer.poll() is None:
                more, offset = drained(reader, offset)
                batches += more
                while_open += len(more)
                if more:
                    with contextlib.suppress(BrokenPipeError):
                        writer.stdin.write("\n")
                if way == "kill" and while_open > 5:
                    writer.send_signal(signal.SIGKILL)
                    writer.wait()
        finally:
            writer.kill()
    more, _ = drained(reader, offset)
    rows = list(chain.from_iterable(batches + more))
    assert while_open > 3, "it was read while it was written"
    assert rows == read(data).rows
    assert len(rows) == 4000 if way == "stop" else len(rows) > 100
    assert len({row["physical_offset"] for row in rows}) == len(rows)


# --- with Spark


def run(spark, source, directory, name, **options):
    """Run one query over everything there; its checkpoint and its output stay in the directory."""
    query = (
        source.selectExpr("topic", "queue_id", "queue_offset", "physical_offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / f"{name}-checkpoint"))
        .option("path", str(directory / name))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(600), "AvailableNow has an end"
    return query


def test_a_query_goes_on_from_its_checkpoint(spark, tmp_path):
    from spark_reports import RocketBoxDataSource

    spark.dataSource.register(RocketBoxDataSource)
    data = tmp_path / "data"
    under = StoreUnderTest(data).open()
    fill(under, 250)
    under.stop()

    def once():
        reader = spark.readStream.format("rocketbox").option("store", str(data)).option("maxRowsPerTrigger", "100")
        query = run(spark, reader.load(), tmp_path, "out")
        return [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]

    assert once() == [100, 100, 50]
    assert once() == []
    under.open()
    fill(under, 120)
    under.stop()
    assert once() == [100, 20]
    places = [row.physical_offset for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert len(places) == 370
    assert sorted(places) == [row["physical_offset"] for row in read(data).rows]
