"""A read of a time range, and one with any filters, finds the same rows as a read of everything, whatever a store's
clocks did."""

from __future__ import annotations

import operator
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from appliance.engine.disk import Disk
from appliance.engine.protocol.record import STORE_TIME_AT
from appliance.engine.store.retention.deleted_topics import DeletedTopics, Deletion
from appliance.engine.store.time_order import NAME
from appliance.engine.store_tools.offline_store import find_store
from spark_reports.source import plan, times
from spark_reports.source.findings import Finding
from tests.spark_reports.source.stores import SEGMENT, fill, log_paths, read, stopped
from tests.support.effort import effort
from tests.support.golden import extract_store, store_names
from tests.support.offline import change
from tests.support.store import StoreUnderTest

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Lower the limits, so that bisections and cuts happen within the small files of these stores."""
    monkeypatch.setattr(times, "NEAR_BYTES", 2000)
    monkeypatch.setattr(plan, "LEAST_BYTES", 8 << 10)


def stepping(directory: Path, back: bool) -> StoreUnderTest:
    """Make a store of three files whose clock was set one hour on and one hour back. back: store times go back with the
    clock, as Apache's do."""
    under = StoreUnderTest(directory).open()
    for step_ms in (0, HOUR_MS, -HOUR_MS):
        under.scheduler.wall_ms += step_ms
        if back:
            under.store.store_ms = 0
        fill(under, 120, ("orders", "refunds"))
    return under


def ours(directory: Path) -> Path:
    return stopped(directory, 400, ("orders", "refunds"))


def ours_stepped(directory: Path) -> Path:
    stepping(directory, False).stop()
    return directory


def taken_over(directory: Path) -> Path:
    """Make a store whose first half Apache wrote."""
    stepping(directory, True).stop()
    (directory / "rocketbox" / NAME).unlink()
    under = StoreUnderTest(directory).open()
    under.scheduler.wall_ms += DAY_MS
    fill(under, 300)
    under.stop()
    return directory


def gone_on(directory: Path) -> Path:
    """Make a store with which Apache went on, and which RocketBox has not opened since."""
    under = StoreUnderTest(directory).open()
    fill(under, 150)
    under.wait_recovery_position()
    kept = (directory / "rocketbox" / "recovery-position").read_bytes()
    under.scheduler.wall_ms -= HOUR_MS
    under.store.store_ms = 0
    fill(under, 300)
    under.stop()
    (directory / "rocketbox" / "recovery-position").write_bytes(kept)
    return directory


def apaches(directory: Path) -> Path:
    extract_store("5.3.3", "mixed", directory)
    return directory / "store"


def set_at(store: Path, row: dict, ms: int) -> None:
    """Add `ms` to a message's store time, as if the broker's clock had been set for it."""
    at = row["physical_offset"]
    start, path = max((int(one.name), one) for one in (store / "commitlog").iterdir() if int(one.name) <= at)
    assert not row["sys_flag"] & 0x10
    stored = (row["store_ts"] - EPOCH) // MS + ms
    change(path, at - start + STORE_TIME_AT, stored.to_bytes(8, "big"))


def apaches_ahead(directory: Path) -> Path:
    """Make a store in which a file's first message is a day late, and one in the middle of the log a day early."""
    store = apaches(directory)
    rows = read(store, includeSystem=True).rows
    third = sorted(int(one.name) for one in (store / "commitlog").iterdir())[2]
    set_at(store, next(row for row in rows if row["physical_offset"] >= third), DAY_MS)
    set_at(store, rows[len(rows) // 2], -DAY_MS)
    return store


def odd(directory: Path) -> Path:
    """Make a store of odd bodies and names, in two topics of which one was made anew, and with every system topic."""
    under = StoreUnderTest(directory).open()
    topics = ("orders", "a|b-_%c", "%RETRY%orders", "%DLQ%a", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
    for number, body in enumerate((b"", b"\0", b"\0" * 4096, b"\xda\xa3\x20\xa7" * 9, b"x" * 20_000) * 24):
        under.scheduler.wall_ms += number % 3 - 1
        under.put(topics[number % 6], number % 5, body, b"")
        under.tick()
    fill(under, 200, ("orders", "refunds"))
    under.stop()
    shutil.rmtree(directory / "store" / "consumequeue" / "refunds")
    store = find_store(directory)
    DeletedTopics(store.paths, Disk()).remember([Deletion("refunds", store.log.end, {})], 0)
    store.close()
    under = StoreUnderTest(directory).open()
    fill(under, 40, ("refunds", "orders"))
    under.stop()
    return directory


def apaches_torn(directory: Path) -> Path:
    extract_store("4.9.8", "torn", directory)
    return directory / "store"


def apaches_killed(directory: Path) -> Path:
    extract_store("5.3.3", "killed", directory)
    return directory / "store"


STORES = (ours, ours_stepped, taken_over, gone_on, apaches, apaches_ahead)


@pytest.mark.parametrize("make", STORES, ids=lambda make: make.__name__)
def test_a_time_range_finds_what_reading_all_finds(tmp_path, make):
    store = make(tmp_path / "data")
    whole = read(store)
    stored = [(row["store_ts"] - EPOCH) // MS for row in whole.rows]
    assert len(stored) > 300
    chance = random.Random(7)
    pairs = [sorted(chance.sample(stored, 2)) for _ in range(3)]
    for low, high in [(min(stored), min(stored) + 1), (max(stored), max(stored) + 1), *pairs]:
        wanted = [row for row, ms in zip(whole.rows, stored, strict=True) if low <= ms < high]
        assert read(store, from_=low, to=high).rows == wanted, (low, high)
        pushed = [GreaterThanOrEqual(("store_ts",), EPOCH + low * MS), LessThan(("store_ts",), EPOCH + high * MS)]
        assert read(store, pushed).rows == wanted, (low, high)
        by_topic = [EqualTo(("topic",), wanted[0]["topic"]), *pushed]
        assert read(store, by_topic).rows == [row for row in wanted if row["topic"] == wanted[0]["topic"]]
        if high == pairs[0][1]:
            edge = [GreaterThan(("store_ts",), EPOCH + low * MS), LessThanOrEqual(("store_ts",), EPOCH + high * MS)]
            assert read(store, edge).rows == [r for r, ms in zip(whole.rows, stored, strict=True) if low < ms <= high]


COMPARED = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
LIKE = {StringStartsWith: str.startswith, StringEndsWith: str.endswith, StringContains: str.__contains__}
#: The columns by which less is read, twice; and others, of which two may be null.
COLUMNS = ("topic", "queue_id", "queue_offset", "store_ts") * 2 + ("body_size", "physical_offset", "tags", "keys")
#: The ends of each type.
ENDS = {
    "queue_id": (-(1 << 31), (1 << 31) - 1), "body_size": (-(1 << 31), (1 << 31) - 1),
    "queue_offset": (-(1 << 63), (1 << 63) - 1), "physical_offset": (-(1 << 63), (1 << 63) - 1),
    "store_ts": (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
}  # fmt: skip

Passes = Callable[[dict[str, Any]], bool]


def any_value(chance: random.Random, column: str, rows: list[dict[str, Any]]) -> Any:
    """Return a value of a column, or one beside it."""
    value = chance.choice(rows)[column]
    if column in ENDS and chance.random() < 0.1:
        return chance.choice(ENDS[column])
    if column in ("topic", "tags", "keys"):
        return chance.choice((value or "A", value or "A", "nowhere", "%RETRY%orders", "SCHEDULE_TOPIC_XXXX", "", "ü"))
    if column == "store_ts":
        return value + chance.choice((0, 0, 1, -1, 1000, -DAY_MS * 1000)) * timedelta(microseconds=1)
    return value + chance.choice((0, 0, 0, 1, -1, 1 << 20))


def any_filter(chance: random.Random, rows: list[dict[str, Any]]) -> tuple[Filter, Passes]:
    """Return a filter as Spark pushes it, and whether a row passes it: a comparison with null is not true. rows: where
    its values come from, mostly."""
    column = chance.choice(COLUMNS)
    value = any_value(chance, column, rows)
    kind = chance.choice((*COMPARED, EqualNullSafe, In, IsNotNull, IsNull, Not, StringStartsWith, GetProperty))
    if kind is In:
        values = (*(any_value(chance, column, rows) for _ in range(chance.randrange(3))), value, None)
        return In((column,), values), lambda row: row[column] is not None and row[column] in values
    if kind is EqualNullSafe:
        known = chance.choice((value, value, None))
        return EqualNullSafe((column,), known), lambda row: row[column] == known
    if kind is IsNotNull:
        return IsNotNull((column,)), lambda row: row[column] is not None
    if kind is IsNull:
        return IsNull((column,)), lambda row: row[column] is None
    if kind is Not:
        return Not(EqualTo((column,), value)), lambda row: row[column] is not None and row[column] != value
    if kind is StringStartsWith:
        like, part = chance.choice(tuple(LIKE)), chance.choice(rows)["topic"][: chance.randrange(3)]
        return like(("topic",), part), lambda row: LIKE[like](row["topic"], part)
    if kind is GetProperty:  # a key that is called as a column is
        name = chance.choice(("TAGS", "topic"))
        return EqualTo(("properties", name), "t1"), lambda row: dict(row["properties"]).get(name) == "t1"
    return kind((column,), value), lambda row: row[column] is not None and COMPARED[kind](row[column], value)


class GetProperty:
    """Stands for a filter of a property, which Spark names by a path."""


def golden(version: str, name: str) -> Callable[[Path], Path]:
    def make(directory: Path) -> Path:
        extract_store(version, name, directory)
        return directory / "store"

    make.__name__ = f"{version} {name}"
    return make


GOLDEN = [pytest.param(golden(*one), marks=pytest.mark.nightly) for one in store_names()]


@pytest.mark.parametrize("make", [*STORES, odd, apaches_torn, apaches_killed, *GOLDEN], ids=lambda make: make.__name__)
def test_any_filters_find_what_they_find_without_being_pushed_down(tmp_path, make):
    """Rows are compared after the filters, which Spark applies again."""
    store = make(tmp_path / "data")
    chance = random.Random(make.__name__)
    given = [{"includeSystem": system} for system in (False, True)]
    given += [{"topicPattern": "[oS].*|.*%.*", "includeSystem": True}, {"maxRowsPerPartition": 7}]
    whole = [read(store, **options).rows for options in given]
    assert len(whole[1]) >= 20
    for number in range(effort(12, 300, 5000)):
        options, rows = given[number % 4], whole[number % 4]
        chosen = [any_filter(chance, whole[1]) for _ in range(chance.randrange(1, 4))]
        filters = [one for one, _ in chosen]

        def passing(found: list[dict[str, Any]], chosen: list[tuple[Filter, Passes]] = chosen) -> list[dict[str, Any]]:
            return [row for row in found if all(passes(row) for _, passes in chosen)]

        assert passing(read(store, filters, **options).rows) == passing(rows), (options, filters)


def test_what_is_read_whole_is_told_and_fails_nothing(tmp_path):
    store = apaches(tmp_path / "data")
    rows = read(store, includeSystem=True).rows
    found = read(store, from_=2_000_000_000_000)
    begin, end = rows[0]["physical_offset"], rows[-1]["physical_offset"] + rows[-1]["size"]
    assert (found.rows, found.found) == ([], [Finding("whole", begin, end)])
    assert read(store).found == []


def test_only_what_is_not_known_to_ascend_is_read_whole(tmp_path):
    data = taken_over(tmp_path / "data")
    rows = read(data).rows
    before = next(row for row in rows if row["store_ts"] > rows[0]["store_ts"] + DAY_MS * MS / 2)
    last = rows[-1]["store_ts"]
    found = read(data, from_=last.isoformat())
    assert found.found == [Finding("whole", 0, before["physical_offset"])]
    assert found.bytes_read < before["physical_offset"] + 8192


def test_who_knows_that_times_ascend_may_say_so(tmp_path):
    store = apaches(tmp_path / "data")
    whole = read(store)
    last = whole.rows[-1]["store_ts"]
    found = read(store, from_=last.isoformat(), timesAscend=True)
    assert found.rows == [row for row in whole.rows if row["store_ts"] >= last]
    assert found.bytes_read < whole.bytes_read / 3
    assert found.found == []


def test_a_time_range_begins_and_ends_near_its_messages(tmp_path):
    data = ours(tmp_path / "data")
    whole = read(data)
    rows = whole.rows[200:210]
    found = read(data, from_=rows[0]["store_ts"].isoformat(), to=(rows[-1]["store_ts"] + MS).isoformat())
    assert found.rows == rows
    assert found.bytes_read < SEGMENT / 8


def test_a_file_in_which_a_large_queue_ends_is_cut_as_others_are(tmp_path):
    """Behind that queue's end, the cuts come from other queues."""
    under = StoreUnderTest(tmp_path / "data", segment_bytes=1 << 20).open()
    fill(under, 60, ("hello",), queues=1, size=20)
    fill(under, 40, ("big",), queues=8, size=4000)
    under.stop()
    found = read(tmp_path / "data")
    sizes = [one.part.end - one.part.begin for one in found.partitions]
    assert len(found.rows) == 100
    assert len(sizes) > 8
    assert max(sizes) < 2 * (sum(sizes) / len(sizes))


@pytest.mark.parametrize("phases", ["few many", "many few many"])
def test_where_the_large_queues_have_no_messages_the_cuts_come_from_small_ones(tmp_path, phases):
    """A night of few large messages, before or between many small ones of more queues than are asked first."""
    under = StoreUnderTest(tmp_path / "data", segment_bytes=2 << 20).open()
    for phase in phases.split():
        if phase == "few":
            fill(under, 160, ("few",), queues=2, size=4000)
        else:
            fill(under, 1000, ("many",), queues=12, size=100)
    under.stop()
    found = read(tmp_path / "data")
    sizes = [one.part.end - one.part.begin for one in found.partitions]
    assert len(found.rows) == 160 + 1000 * phases.count("many")
    assert max(sizes) < 2 * (sum(sizes) / len(sizes))


def test_a_stream_from_a_time_begins_where_it_may(tmp_path):
    from spark_reports.source.options import parse
    from spark_reports.source.stream import FilesStreamReader

    data = ours(tmp_path / "data")
    rows = read(data).rows
    begins = FilesStreamReader(parse({"store": str(data), "from": rows[200]["store_ts"].isoformat()})).initialOffset()
    assert rows[180]["physical_offset"] < begins["position"] <= rows[200]["physical_offset"]
    store = apaches(tmp_path / "apache")
    begins = FilesStreamReader(parse({"store": str(store), "from": "2033-01-01"})).initialOffset()
    assert begins == {"position": int(log_paths(tmp_path / "apache")[0].name)}
