"""Days of facts are kept whole: written beside, renamed, read again, deleted."""

from __future__ import annotations

import errno
import gzip
import json
import os
import zlib
from itertools import count

import pytest

from spark_reports.facts import keeping
from spark_reports.facts.tables import ADDED, CONTENTS, TABLES, DayFacts

DAY = "2026-01-31"
pa = pytest.importorskip("pyarrow")


class Frame:
    """A stand-in for a DataFrame, with the used part of it."""

    def __init__(self, table, rows) -> None:
        self._names, self._rows = [name for name, _ in table.columns], rows

    def toArrow(self):
        columns = list(zip(*self._rows, strict=True)) or [()] * len(self._names)
        return pa.table({name: list(values) for name, values in zip(self._names, columns, strict=True)})


def facts_of(value: int) -> DayFacts:
    """Return facts with rows derived from `value`, so that days differ, and with odd names."""
    return {
        table.name: [
            tuple(f'%"{n},\x01ü{row}' if kind == "string" else value + row for n, (_, kind) in enumerate(table.columns))
            for row in range(2 if table.keys else 1)
        ]
        for table in TABLES
    }


def frames_of(value: int):
    """Return facts as Spark has them: most tables are frames."""
    facts = facts_of(value)
    return {
        table.name: Frame(table, facts[table.name][::-1]) if table.name != "disk" else facts["disk"] for table in TABLES
    }


@pytest.mark.parametrize("make", [facts_of, frames_of])
def test_what_is_written_is_read(make, tmp_path):
    keeping.write(tmp_path / "facts", DAY, make(1))
    assert keeping.read(tmp_path / "facts", ["2026-01-30", DAY]) == {DAY: facts_of(1)}
    assert keeping.days(tmp_path / "facts") == [DAY]


@pytest.mark.parametrize("old", [facts_of, frames_of])
@pytest.mark.parametrize("new", [facts_of, frames_of])
def test_a_day_replaces_the_one_that_was_there(old, new, tmp_path):
    keeping.write(tmp_path, DAY, old(1))
    keeping.write(tmp_path, DAY, new(2))
    assert keeping.read(tmp_path, [DAY]) == {DAY: facts_of(2)}
    parquet = sorted(tmp_path.glob("*/day=*/*"))
    assert len(parquet) == (len(TABLES) if new is frames_of else 0), "what a user's Spark reads is not the old day"


@pytest.mark.parametrize("old", [facts_of, frames_of])
@pytest.mark.parametrize("new", [facts_of, frames_of])
def test_killed_at_any_moment_there_is_one_whole_day(old, new, tmp_path, monkeypatch):
    seen = set()
    for stop in count():
        place = tmp_path / str(stop)
        keeping.write(place, DAY, old(1))
        with monkeypatch.context() as patch:
            calls = dying_at(stop, patch)
            try:
                keeping.write(place, DAY, new(2))
            except Killed:
                pass
        found = keeping.read(place, [DAY])
        assert found in ({DAY: facts_of(1)}, {DAY: facts_of(2)})
        seen.add(found[DAY]["disk"][0][0])
        assert not [name for name in os.listdir(place) if name.startswith(".")]
        again = keeping.read(place, [DAY])
        assert again == found
        if calls() <= stop:
            break
    assert stop > 5
    assert seen == {1, 2}


class Killed(BaseException):
    pass


def test_a_disk_that_becomes_full_leaves_the_old_day_and_gets_its_room_back(tmp_path, monkeypatch) -> None:
    keeping.write(tmp_path, DAY, facts_of(1), as_parquet=True)
    written = count()

    def full(path: object) -> None:
        if next(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keeping, "_sync_file", full)
    with pytest.raises(OSError, match="No space"):
        keeping.write(tmp_path, DAY, facts_of(2), as_parquet=True)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    assert keeping.read(tmp_path, [DAY]) == {DAY: facts_of(1)}


def dying_at(stop: int, patch: pytest.MonkeyPatch):
    """Let every call that changes a directory fail from call number `stop` on."""
    number = count()
    called = [0]

    def dying(function):
        def call(*args, **options):
            called[0] = next(number) + 1
            if called[0] > stop:
                raise Killed
            return function(*args, **options)

        return call

    for name in ("rename", "replace", "mkdir", "fsync", "fdatasync", "unlink", "rmdir"):
        patch.setattr(os, name, dying(getattr(os, name)))
    return lambda: called[0]


@pytest.mark.parametrize("make", [facts_of, frames_of])
def test_traffic_is_by_topic_but_of_the_last_day(make, tmp_path):
    for day in ("2026-01-30", DAY):
        keeping.write(tmp_path, day, make(10))
    found = keeping.read(tmp_path, [DAY, "2026-01-30"])
    assert found[DAY] == facts_of(10)
    first, second = facts_of(10)["traffic"]
    assert found["2026-01-30"] == {
        **facts_of(10),
        "traffic": [(one[0], -1, -1, *one[3:]) for one in (first, second)],
    }
    keeping.write(tmp_path, "2026-01-30", {**make(10), "traffic": [("T", 0, 5, 1, 2, 3), ("T", 1, 6, 10, 20, 30)]})
    assert keeping.read(tmp_path, ["2026-01-30", DAY])["2026-01-30"]["traffic"] == [("T", -1, -1, 11, 22, 33)]


def test_what_is_damaged_is_not_there(tmp_path, caplog):
    keeping.write(tmp_path, DAY, facts_of(1))
    keeping.write(tmp_path, "2026-02-01", frames_of(1))
    keeping.write(tmp_path, "2026-02-02", facts_of(2))
    path = tmp_path / "plain" / f"{DAY}.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    (tmp_path / "traffic" / "day=2026-02-01" / "facts.parquet").write_bytes(b"PAR1")
    assert list(keeping.read(tmp_path, [DAY, "2026-02-01", "2026-02-02"])) == ["2026-02-02"]
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("make", [facts_of, frames_of])
def test_a_day_of_an_older_version_lacks_the_tables_that_came_later(make, tmp_path):
    older = {name: rows for name, rows in make(1).items() if name not in ADDED}
    keeping.write(tmp_path, DAY, {**older, **{name: [] for name in ADDED}})
    for name in ADDED:
        for path in tmp_path.glob(f"{name}/day=*/*"):
            path.unlink()
    wanted = {name: rows for name, rows in facts_of(1).items() if name not in ADDED}
    assert keeping.read(tmp_path, [DAY]) == {DAY: wanted}
    keeping.to_parquet(tmp_path)
    assert keeping.read(tmp_path, [DAY]) == {DAY: wanted}
    assert not list(tmp_path.glob("plain/*"))


def test_the_newest_days_are_kept(tmp_path):
    for day in range(1, 6):
        keeping.write(tmp_path, f"2026-01-0{day}", (facts_of if day % 2 else frames_of)(day))
    (tmp_path / "plain" / "mine.txt").write_text("")
    assert keeping.prune(tmp_path, 2, "2026-01-01") == []
    assert keeping.prune(tmp_path, 2, "2026-01-03") == ["2026-01-01"], "later ones do not push out the day in hand"
    assert keeping.prune(tmp_path, 2) == ["2026-01-02", "2026-01-03"]
    assert keeping.days(tmp_path) == ["2026-01-04", "2026-01-05"]
    assert keeping.prune(tmp_path, 2) == keeping.prune(tmp_path, 0) == []
    assert (tmp_path / "plain" / "mine.txt").exists()


def test_no_day_no_facts(tmp_path):
    assert keeping.read(tmp_path / "none", [DAY]) == {}
    assert keeping.days(tmp_path / "none") == keeping.prune(tmp_path / "none", 3) == []
    with pytest.raises(ValueError, match="no day"):
        keeping.write(tmp_path, "../../etc", facts_of(1))


def test_a_users_own_spark_reads_them(tmp_path, spark):
    keeping.write(tmp_path, DAY, frames_of(1))
    keeping.write(tmp_path, "2026-02-01", frames_of(5))
    frame = spark.read.parquet(str(tmp_path / "queues"))
    found = {(str(row["day"]), row["queue_id"]) for row in frame.collect()}
    assert found == {(DAY, 1), (DAY, 2), ("2026-02-01", 5), ("2026-02-01", 6)}


def test_days_in_plain_lines_become_parquet_and_a_damaged_one_stays(tmp_path) -> None:
    for number, day in enumerate(("2026-01-29", "2026-01-30", DAY)):
        keeping.write(tmp_path, day, facts_of(number))
    before = keeping.read(tmp_path, [DAY])
    damaged = tmp_path / "plain" / "2026-01-29.jsonl.gz"
    damaged.write_bytes(damaged.read_bytes()[:40])
    keeping.to_parquet(tmp_path)
    assert [path.name for path in (tmp_path / "plain").iterdir()] == [damaged.name]
    assert (tmp_path / "traffic" / f"day={DAY}" / keeping.FILE).exists()
    assert keeping.read(tmp_path, [DAY]) == before
    assert keeping.days(tmp_path) == ["2026-01-29", "2026-01-30", DAY]


def test_no_kind_of_damage_to_a_day_in_lines_ends_a_run(tmp_path) -> None:
    """The bits of compressed data, and values of another kind than their columns have."""
    for number, day in enumerate(("2026-01-28", "2026-01-29", "2026-01-30")):
        keeping.write(tmp_path, day, facts_of(number))
    bits, kinds = (tmp_path / "plain" / f"{day}.jsonl.gz" for day in ("2026-01-28", "2026-01-29"))
    whole = bits.read_bytes()
    bits.write_bytes(whole[:20] + bytes([whole[20] ^ 0xFF]) + whole[21:])
    with pytest.raises(zlib.error):
        gzip.decompress(bits.read_bytes())
    width = len(TABLES[0].columns)
    kinds.write_bytes(gzip.compress(json.dumps([TABLES[0].name, ["x"] * width]).encode()))
    keeping.to_parquet(tmp_path)
    assert sorted((tmp_path / "plain").iterdir()) == [bits, kinds]
    assert (tmp_path / "traffic" / "day=2026-01-30" / keeping.FILE).exists()
    assert list(keeping.read(tmp_path, ["2026-01-28", "2026-01-30"])) == ["2026-01-30"]


@pytest.mark.parametrize("as_parquet", [False, True])
def test_counts_of_contents_are_read_for_the_last_two_days_alone(tmp_path, as_parquet: bool) -> None:
    days = ["2026-01-28", "2026-01-29", "2026-01-30"]
    for number, day in enumerate(days):
        keeping.write(tmp_path, day, facts_of(number), as_parquet)
    found = keeping.read(tmp_path, days)
    for table in CONTENTS:
        assert [len(found[day][table.name]) for day in days] == [0, 2, 2]
    assert all(found[day]["groups"] for day in days)
    assert keeping.read(tmp_path, [days[0]])[days[0]] == facts_of(0)


@pytest.mark.parametrize("as_parquet", [False, True])
def test_of_earlier_days_the_queues_are_read_that_trends_compare(tmp_path, as_parquet: bool) -> None:
    """Ten thousand topics of a month would take half a gigabyte."""
    idle = [("idle", 0, 0, 7), ("idle", 1, 0, 9)]
    shrunk = [("shrunk", 0, 0, 5)]
    before = [("%DLQ%g", 0, 0, 3), ("busy", 0, 0, 5), ("gone", 0, 0, 5), *idle, *shrunk, ("shrunk", 1, 0, 5)]
    now = [("%DLQ%g", 0, 2, 8), ("busy", 0, 0, 6), ("idle", 0, 3, 7), ("idle", 1, 0, 9), *shrunk]
    for day, queues in (("2026-01-29", before), ("2026-01-30", now)):
        keeping.write(tmp_path, day, {**facts_of(1), "queues": queues}, as_parquet)
    found = keeping.read(tmp_path, ["2026-01-29", "2026-01-30"])
    assert found["2026-01-30"]["queues"] == now
    assert found["2026-01-29"]["queues"] == [("%DLQ%g", 0, 0, 3), *idle]
    assert found["2026-01-29"]["queues"][-1] is found["2026-01-30"]["queues"][3], "one object for both days"
    assert keeping.read(tmp_path, ["2026-01-29", DAY])["2026-01-29"]["queues"] == before, "nothing to compare with"


def test_delivery_times_are_read_of_a_week_and_their_sums_before(tmp_path) -> None:
    rows = [
        ("g", "t", "first", 101, 4),
        ("g", "t", "first", 150, 3),
        ("g", "t", "late", 0, 2),
        ("h", "t", "last", 7, 1),
    ]
    days = [f"2026-01-{day:02}" for day in range(1, keeping.TIMED_DAYS + 2)]
    for day in days:
        keeping.write(tmp_path, day, {**facts_of(1), "latency": rows})
    found = keeping.read(tmp_path, days)
    assert all(found[day]["latency"] == rows for day in days[1:])
    assert found[days[0]]["latency"] == [("g", "t", "first", 0, 7), ("g", "t", "late", 0, 2), ("h", "t", "last", 0, 1)]


@pytest.mark.parametrize(
    "row",
    [
        ["T", 0, 0, "x", 1, 1],
        ["T", 0, 0, None, 1, 1],
        ["T", 0, 0, 1.5, 1, 1],
        [5, 0, 0, 1, 1, 1],
        ["T", 0, 0, 1 << 63, 1, 1],
    ],
)
def test_an_earlier_day_with_values_of_another_kind_ends_no_run(tmp_path, row) -> None:
    for day in ("2026-01-29", "2026-01-30"):
        keeping.write(tmp_path, day, facts_of(1))
    path = tmp_path / "plain" / "2026-01-29.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(["traffic", row]).encode()))
    assert list(keeping.read(tmp_path, ["2026-01-29", "2026-01-30"])) == ["2026-01-30"]
    keeping.to_parquet(tmp_path)
    assert path.exists()


@pytest.mark.parametrize("values", [pa.array([None] * 2, pa.int64()), pa.array([[1]] * 2), pa.array([1.5] * 2)])
def test_an_earlier_day_in_parquet_with_other_values_ends_no_run(tmp_path, values) -> None:
    import pyarrow.parquet as pq

    for day in ("2026-01-29", "2026-01-30"):
        keeping.write(tmp_path, day, facts_of(1), as_parquet=True)
    path = tmp_path / "traffic" / "day=2026-01-29" / keeping.FILE
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.set_column(3, table.schema.names[3], values), path)
    assert list(keeping.read(tmp_path, ["2026-01-29", "2026-01-30"])) == ["2026-01-30"]
