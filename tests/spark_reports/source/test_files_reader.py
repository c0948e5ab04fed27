"""The parts of a store's files that are read, their partitions, and the parts that are left out."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from appliance.engine.config_journal import encode_entry
from appliance.engine.disk import Disk
from appliance.engine.store.retention.deleted_topics import DeletedTopics, Deletion
from appliance.engine.store_tools.offline_store import find_store
from spark_reports.source import plan
from spark_reports.source.findings import DataLoss, Finding
from spark_reports.source.latest import LatestReader
from spark_reports.source.options import OptionError, parse
from tests.spark_reports.source.stores import SEGMENT, START_MS, STEP_MS, Read, fill, log_paths, read, stopped
from tests.support.directories import shared_directory
from tests.support.offline import change
from tests.support.store import StoreUnderTest


@pytest.fixture(scope="module")
def kept(request):
    """A store of eleven files that no test changes: 1491 messages of two topics, and 9 of a third among them."""
    return stopped(shared_directory(request, "kept") / "data", 1500, ("orders", "refunds"), rare=9)


@pytest.fixture
def own(kept, tmp_path):
    """A copy of `kept` that a test may damage."""
    return shutil.copytree(kept, tmp_path / "data", ignore=shutil.ignore_patterns("findings"))


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(plan, "LEAST_BYTES", 8 << 10)
    monkeypatch.setattr(plan, "MOST_BYTES", 16 << 10)


def test_all_messages_come_once(kept, small_parts):
    whole = read(kept)
    assert len(whole.partitions) > 3 * len(log_paths(kept))
    assert [row["physical_offset"] for row in whole.rows] == sorted(row["physical_offset"] for row in whole.rows)
    assert len(whole.rows) == 1500
    assert len(set(whole.numbers)) == 1500
    assert whole.found == []


def test_a_store_may_be_named_in_three_ways(kept):
    counts = [len(read(kept).rows), len(read(kept, store=kept / "store").rows)]
    assert counts == [1500, 1500]
    with pytest.raises(OptionError, match="no directory"):
        read(kept, store=kept / "nowhere")
    with pytest.raises(OptionError, match="no directory commitlog"):
        read(kept, store=kept / "rocketbox")


@pytest.mark.parametrize("most", [1, 7, 100])
def test_no_partition_has_more_rows_than_it_may(kept, most):
    found = read(kept, maxRowsPerPartition=most, topic="orders,rare")
    sizes = [sum(batch.num_rows for batch in batches) for batches in found.batches]
    assert max(sizes) <= most
    assert sum(sizes) == sum(row["topic"] != "refunds" for row in read(kept).rows)


def test_a_rare_topic_is_read_by_its_entries(kept):
    whole, rare = read(kept), read(kept, topic="rare")
    assert rare.rows == [row for row in whole.rows if row["topic"] == "rare"]
    assert len(rare.rows) == 9
    assert rare.bytes_read < whole.bytes_read / 50
    # A topic with most of the log's messages is read from the whole log.
    assert read(kept, topic="orders").bytes_read == whole.bytes_read


def test_a_topic_without_messages_costs_nothing(own):
    none = read(own, topic="nothing", failOnMissingTopic=False)
    assert (none.rows, none.bytes_read) == ([], 0)
    (own / "store" / "config").mkdir(exist_ok=True)
    (own / "store" / "config" / "topics.json").write_text('{"topicConfigTable": {"saved": {}}}')
    made = {"table": "topics", "name": "made", "value": {}, "version": {}}
    (own / "rocketbox" / "config.journal").write_bytes(encode_entry(made))
    assert read(own, topic="saved,made").rows == []


def test_a_topic_that_the_store_does_not_know_is_an_error(kept):
    with pytest.raises(OptionError, match=r"has no topic order; did you mean orders\? With the option failOnMissing"):
        read(kept, topic="orders,order")
    assert read(kept, topic="rare,order", failOnMissingTopic=False).rows == read(kept, topic="rare").rows
    from spark_reports.source.stream import FilesStreamReader

    with pytest.raises(OptionError, match="has no topic order"):
        FilesStreamReader(parse({"store": str(kept), "topic": "order"})).initialOffset()


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_a_queue_that_the_store_does_not_have_is_an_error(own, option):
    """One that is only configured has no messages yet, and is there."""
    named = {option: '{"orders": {"3": 5}}'}
    with pytest.raises(OptionError, match=f"{option} names orders, queue 3, which is not there to read"):
        read(own, [EqualTo(("topic",), "refunds")], **named)
    whole = read(own).rows
    assert read(own, **named, failOnMissingTopic=False).rows == whole
    wider = {"table": "topics", "name": "orders", "value": {"readQueueNums": 4, "writeQueueNums": 4}, "version": {}}
    (own / "rocketbox" / "config.journal").write_bytes(encode_entry(wider))
    assert read(own, **named).rows == whole
    with pytest.raises(OptionError, match="names orders, queue 4, which"):
        read(own, **{option: '{"orders": {"4": 5}}'})


def test_a_pattern_is_of_whole_names(kept):
    whole, rare = read(kept), read(kept, topicPattern="ra.*|refunds?")
    assert rare.rows == [row for row in whole.rows if row["topic"] != "orders"]
    assert read(kept, topicPattern="are").rows == []
    few = read(kept, topicPattern="r.r.")
    assert (few.rows, few.bytes_read < whole.bytes_read / 50) == (read(kept, topic="rare").rows, True)
    assert read(kept, [EqualTo(("topic",), "orders")], topicPattern="r.*").rows == []


def test_rows_tell_where_they_were_born_and_stored(kept):
    row = read(kept).rows[0]
    assert (row["broker"], row["born_host"], row["store_host"]) == (None, "10.0.0.1:5000", "127.0.0.1:10911")


def at(number: float) -> datetime:
    """Return the time at which message `number` was stored."""
    return datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(milliseconds=STEP_MS * (number + 1))


def test_times_leave_files_out(kept):
    whole = read(kept)
    found = read(kept, from_=at(700).isoformat(), to=START_MS + STEP_MS * 801)
    assert found.rows == whole.rows[700:800]
    assert found.bytes_read <= 3 * SEGMENT < whole.bytes_read


def test_offsets_of_queues_are_bounds(kept):
    whole = read(kept)
    found = read(
        kept, topic="orders", startingOffsets='{"orders": {"0": 10, "1": -1}}', endingOffsets='{"orders": {"0": 12}}'
    )
    kept_rows = [
        row
        for row in whole.rows
        if row["topic"] == "orders"
        and (row["queue_id"] == 2 or (row["queue_id"] == 0 and row["queue_offset"] in (10, 11)))
    ]
    assert found.rows == kept_rows
    assert read(kept, startingOffsets="latest").rows == []
    assert read(kept, endingOffsets="earliest").rows == []


MICRO = timedelta(microseconds=1)
FILTERS = {
    "topic": ([EqualTo(("topic",), "rare")], lambda row: row["topic"] == "rare"),
    "topics": ([In(("topic",), ("rare", "none"))], lambda row: row["topic"] == "rare"),
    "no such topic": ([EqualTo(("topic",), "none")], lambda row: False),
    "queue": (
        [EqualTo(("queue_id",), 0), EqualTo(("topic",), "rare")],
        lambda row: row["topic"] == "rare" and row["queue_id"] == 0,
    ),
    "offsets": (
        [EqualTo(("topic",), "orders"), GreaterThan(("queue_offset",), 10), LessThanOrEqual(("queue_offset",), 12)],
        lambda row: row["topic"] == "orders" and row["queue_offset"] in (11, 12),
    ),
    "times": (
        [GreaterThan(("store_ts",), at(700)), LessThan(("store_ts",), at(710))],
        lambda row: at(700) < row["store_ts"] < at(710),
    ),
    "finer times": (
        [
            GreaterThanOrEqual(("store_ts",), at(700) + timedelta(microseconds=1)),
            LessThanOrEqual(("store_ts",), at(710)),
        ],
        lambda row: at(700) < row["store_ts"] <= at(710),
    ),
    "one time": ([EqualTo(("store_ts",), at(5))], lambda row: row["store_ts"] == at(5)),
    "others": (
        [StringStartsWith(("topic",), "ra"), IsNotNull(("topic",)), Not(EqualTo(("topic",), "orders"))],
        lambda row: row["topic"] == "rare",
    ),
    "bodies": ([GreaterThan(("body_size",), 400)], lambda row: row["body_size"] > 400),
}
#: Filters that do not narrow down where messages lie.
ALL_IS_READ = ("others", "bodies")


@pytest.mark.parametrize("name", FILTERS)
def test_filters_read_less_and_find_the_same(kept, name, small_parts):
    filters, passes = FILTERS[name]
    whole, found = read(kept), read(kept, filters)
    assert [row for row in found.rows if passes(row)] == [row for row in whole.rows if passes(row)]
    if name in ALL_IS_READ:
        assert found.bytes_read == whole.bytes_read
    else:
        assert found.bytes_read < whole.bytes_read / 3


def test_a_filter_does_not_bring_system_topics_in(tmp_path):
    under = StoreUnderTest(tmp_path / "data").open()
    fill(under, 30, ("orders", "rmq_sys_wheel_timer"))
    under.stop()
    assert read(tmp_path / "data", [EqualTo(("topic",), "rmq_sys_wheel_timer")]).rows == []
    assert len(read(tmp_path / "data", topic="rmq_sys_wheel_timer").rows) == 15
    assert len(read(tmp_path / "data", includeSystem=True).rows) == 30


@pytest.mark.parametrize("whose", ["ours", "another's"])
def test_what_a_deleted_topic_left_in_the_log_is_found_in_every_way(tmp_path, whose):
    """The deleted topic has no queues that lead there; RocketBox remembers that the log may hold its messages."""
    data = stopped(tmp_path / "data", 400, rare=6)
    shutil.rmtree(data / "store" / "consumequeue" / "rare")
    if whose == "ours":
        store = find_store(data)
        DeletedTopics(store.paths, Disk()).remember([Deletion("rare", store.log.end, {})], 0)
        store.close()
    else:
        shutil.rmtree(data / "rocketbox")
    named = [row for row in read(data).rows if row["topic"] == "rare"]
    assert len(named) == 6
    assert [row for row in read(data, [EqualTo(("topic",), "rare")]).rows if row["topic"] == "rare"] == named
    assert read(data, topic="rare", failOnMissingTopic=whose == "ours").rows == named
    assert read(data, [EqualTo(("queue_id",), 7)]).bytes_read == read(data).bytes_read


# --- what cannot be read


def test_a_file_that_goes_during_the_run_is_a_gap(own):
    whole = read(own)
    planned = Read(own, failOnDataLoss=False)
    log_paths(own)[0].unlink()
    planned.run()
    assert planned.found == [Finding("gap", 0, SEGMENT)]
    assert planned.rows == [row for row in whole.rows if row["physical_offset"] >= SEGMENT]
    planned = Read(own)
    log_paths(own)[0].unlink()
    with pytest.raises(DataLoss, match=r"has been deleted\. With the option failOnDataLoss=false"):
        planned.run()


def test_a_file_that_is_missing_in_between_is_a_gap(own):
    log_paths(own)[2].unlink()
    with pytest.raises(DataLoss, match="no file for"):
        read(own)
    assert read(own, failOnDataLoss=False).found == [Finding("gap", 2 * SEGMENT, 3 * SEGMENT)]


def test_what_was_snapped_and_is_gone_is_a_gap(own):
    end = (len(log_paths(own)) + 1) * SEGMENT
    with pytest.raises(DataLoss, match="The log ends at"):
        read(own, until=end)
    found = read(own, until=end, failOnDataLoss=False)
    assert sum(one.end - one.begin for one in found.found) == end - max(
        r["physical_offset"] + r["size"] for r in found.rows
    )


def test_a_file_that_is_cut_off_is_a_gap(own):
    whole = read(own)
    planned = Read(own, failOnDataLoss=False)
    cut = whole.rows[40]["physical_offset"] + 10
    os.truncate(log_paths(own)[0], cut)
    planned.run()
    assert planned.found == [Finding("gap", whole.rows[40]["physical_offset"], SEGMENT)]
    assert planned.rows == [
        r for r in whole.rows if r["physical_offset"] + r["size"] <= cut or r["physical_offset"] >= SEGMENT
    ]


@pytest.mark.parametrize(
    "harm", [(4, b"\0\0\0\0"), (0, b"\0\1\0\0"), (0, b"\0\0\0\x60"), (28, b"\1"), (12, b"\xff"), (84, b"\x7f")]
)
def test_a_damaged_record_is_counted_and_its_neighbours_are_read(own, harm, small_parts):
    whole = read(own)
    victim = whole.rows[41]
    change(log_paths(own)[0], victim["physical_offset"] + harm[0], harm[1])
    with pytest.raises(DataLoss, match=f"damaged at {victim['physical_offset']}"):
        read(own)
    found = read(own, failOnDataLoss=False)
    assert found.found == [Finding("corrupt", victim["physical_offset"], victim["physical_offset"] + victim["size"])]
    assert found.rows == [row for row in whole.rows if row is not victim]


def test_a_body_that_changed_is_counted_where_bodies_are_read(own):
    whole = read(own, columns="body")
    victim = whole.rows[41]
    change(log_paths(own)[0], victim["physical_offset"] + 100, b"!")
    assert len(read(own).rows) == 1500
    found = read(own, columns="body", failOnDataLoss=False)
    assert found.found == [Finding("corrupt", victim["physical_offset"], victim["physical_offset"] + victim["size"])]
    assert found.rows == [row for row in whole.rows if row is not victim]


def test_a_damaged_message_of_a_rare_topic_is_counted(own):
    victim = read(own, topic="rare").rows[3]
    path = log_paths(own)[victim["physical_offset"] // SEGMENT]
    change(path, victim["physical_offset"] % SEGMENT + 4, b"\0\0\0\0")
    found = read(own, topic="rare", failOnDataLoss=False)
    assert len(found.rows) == 8
    assert found.found == [Finding("corrupt", victim["physical_offset"], victim["physical_offset"] + victim["size"])]


def test_a_start_that_was_deleted_is_a_gap(own):
    log_paths(own)[0].unlink()
    first = min(row["queue_offset"] for row in read(own, topic="orders").rows if row["queue_id"] == 0)
    assert first > 3
    with pytest.raises(DataLoss, match=f"messages 3 to {first - 1} were deleted"):
        read(own, topic="orders", startingOffsets='{"orders": {"0": 3}}')
    found = read(own, topic="orders", startingOffsets='{"orders": {"0": 3}}', failOnDataLoss=False)
    assert found.found == [Finding("gap", 3, first, "orders-0")]


# --- a store that is being written


def test_a_long_record_is_read_whole(tmp_path):
    under = StoreUnderTest(tmp_path / "data", segment_bytes=32 << 20).open()
    bodies = [b"a" * 10, b"b" * (12 << 20), b"c" * 20]
    for body in bodies:
        under.put("orders", 0, body)
        under.tick()
    under.stop()
    assert [row["body"] for row in read(tmp_path / "data", columns="body").rows] == bodies


def test_a_killed_store_ends_behind_its_last_whole_record(tmp_path):
    under = StoreUnderTest(tmp_path / "data").open()
    fill(under, 50)
    under.die()
    assert len(read(tmp_path / "data").rows) == 50


def test_a_store_without_queues_is_read_by_its_log(own):
    whole = read(own)
    shutil.rmtree(own / "store" / "consumequeue")
    shutil.rmtree(own / "rocketbox")
    assert read(own).rows == whole.rows


def test_an_end_behind_the_log_is_missing_not_damaged(kept):
    """The last file is longer than its records."""
    whole = read(kept)
    end = max(row["physical_offset"] + row["size"] for row in whole.rows)
    assert read(kept, until=end).numbers == whole.numbers
    with pytest.raises(DataLoss, match=f"The log ends at {end}, and {end + 200} was asked for"):
        read(kept, until=end + 200)
    found = read(kept, endingOffsets=json.dumps({"position": end + 200}), failOnDataLoss=False)
    assert (found.numbers, [(one.kind, one.begin, one.end) for one in found.found]) == (
        whole.numbers, [("gap", end, end + 200)],
    )  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"topic": "orders"}])
def test_a_batch_goes_on_where_the_rows_of_another_one_end(kept, options):
    """Also at the end of a file, where the next message is in the next one."""
    whole = read(kept).rows
    last = max(
        at for at in range(700) if whole[at]["physical_offset"] // SEGMENT < whole[at + 1]["physical_offset"] // SEGMENT
    )
    for at in (last, last + 1):
        begin = whole[at]["physical_offset"] + whole[at]["size"]
        rest = read(kept, startingOffsets=json.dumps({"position": begin}), **options)
        assert rest.rows == [row for row in whole[at + 1 :] if row["topic"] == options.get("topic", row["topic"])]
        assert rest.found == []


def latest(directory, **options) -> str:
    reader = LatestReader(parse({"store": str(directory), "columns": "latest", **options}))
    (batch,) = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert batch.schema.names == ["offsets"]
    return batch.to_pylist()[0]["offsets"]


def test_batches_one_after_the_other_read_each_message_once(tmp_path):
    """Also while the broker writes: each ends at what was the latest before it."""
    under = StoreUnderTest(tmp_path / "data").open()
    begin, numbers, counts = {}, [], []
    for count in (40, 0, 25):
        fill(under, count, ("orders", "refunds"))
        under.wait_recovery_position()
        end = latest(tmp_path / "data")
        fill(under, 3, ("orders", "refunds"))
        found = read(tmp_path / "data", **begin, endingOffsets=end)
        counts.append(len(found.rows))
        numbers += [row["physical_offset"] for row in found.rows]
        begin = {"startingOffsets": end}
    under.stop()
    assert counts == [40, 3, 28]
    whole = [row["physical_offset"] for row in read(tmp_path / "data").rows]
    assert numbers == whole[:71]
    assert numbers + [row["physical_offset"] for row in read(tmp_path / "data", **begin).rows] == whole
    with pytest.raises(OptionError, match="has no topic order"):
        latest(tmp_path / "data", topic="order")


def test_until_is_where_it_ends(kept):
    whole = read(kept)
    found = read(kept, until=json.dumps({"log_end": whole.rows[500]["physical_offset"]}))
    assert found.rows == whole.rows[:500]
