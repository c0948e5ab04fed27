"""The transforms on small frames: every row of their results."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_reports.facts.contents import Contents
from spark_reports.facts.delivered import Answers, Wait, Who
from spark_reports.facts.hours import Stretch
from spark_reports.facts.tables import DEAD_LETTERS, LATENCY, RETRIES, TRAFFIC

pytest.importorskip("pyspark")

from spark_reports.facts import answers_file, transforms

NOON_MS = 1_700_049_600_000
HOUR_MS = 3_600_000
#: The day ends early here.
END_MS = NOON_MS + 9000
HOURS = (Stretch(NOON_MS, 0), Stretch(NOON_MS + 2 * HOUR_MS, HOUR_MS // 2))
MESSAGE = (
    "topic string, queue_id int, queue_offset bigint, physical_offset bigint, store_ms bigint, size int, "
    "body_size int, reconsume_times int, tags string, origin string, is_copy boolean, "
    "born_host string, born_ms bigint, unique_key string, keys string, shard string"
)


def messages(spark: Any, *rows: dict[str, Any]) -> Any:
    """Return a frame of messages; columns that a row does not name have a usual value."""
    usual = {
        "topic": "T", "queue_id": 0, "queue_offset": 0, "physical_offset": 0, "store_ms": NOON_MS, "size": 100,
        "body_size": 10, "reconsume_times": 0, "tags": None, "origin": None, "is_copy": None,
        "born_host": "10.0.0.1:5000", "born_ms": NOON_MS - 7, "unique_key": None, "keys": None, "shard": None,
    }  # fmt: skip
    return spark.createDataFrame([tuple((usual | row).values()) for row in rows], MESSAGE)


def whole(frame: Any, table: Any) -> list[tuple[Any, ...]]:
    """Assert that the frame has the table's columns; return its rows, sorted."""
    assert [(name, kind) for name, kind in frame.dtypes] == [
        (name, {"long": "bigint"}.get(kind, kind)) for name, kind in table.columns
    ]
    return sorted(tuple(row) for row in frame.collect())


def test_narrow_takes_what_is_counted_of_a_days_rows(spark: Any) -> None:
    def row(topic: str, ms: int, properties: dict[str, str], times: int = 0) -> tuple[Any, ...]:
        born, store = (datetime.fromtimestamp(at / 1000, UTC) for at in (ms - 7, ms))
        return topic, 1, 2, 3, store, 100, 10, times, "A", properties, "k", "10.0.0.1:5000", born, "more"

    rows = spark.createDataFrame(
        [
            row("T", NOON_MS - 1, {}),
            row("T", NOON_MS, {"RETRY_TOPIC": "X", "ROCKETBOX_REPLAYED": "1", "UNIQ_KEY": "1", "__SHARDINGKEY": "s"}),
            row("%RETRY%G", NOON_MS + 1, {"RETRY_TOPIC": "X", "ROCKETBOX_REPLAYED": "2"}),
            row("%RETRY%G", NOON_MS + 2, {"ROCKETBOX_REPLAYED": "2"}, 1),
            row("%DLQ%G", NOON_MS + 3, {"RETRY_TOPIC": "X", "ROCKETBOX_REPLAYED": "0"}),
            row("T", NOON_MS + 4, {}),
        ],
        "topic string, queue_id int, queue_offset bigint, physical_offset bigint, store_ts timestamp, size int, "
        "body_size int, reconsume_times int, tags string, properties map<string,string>, keys string, "
        "born_host string, born_ts timestamp, more string",
    )
    found = transforms.narrow(rows, NOON_MS, NOON_MS + 4)
    assert found.schema.simpleString().removeprefix("struct<").removesuffix(">") == MESSAGE.replace(", ", ",").replace(
        " ", ":"
    )
    assert sorted(tuple(one) for one in found.collect()) == [
        (
            "%DLQ%G",
            1,
            2,
            3,
            NOON_MS + 3,
            100,
            10,
            0,
            "A",
            "X",
            False,
            "10.0.0.1:5000",
            NOON_MS + 3 - 7,
            None,
            None,
            None,
        ),
        (
            "%RETRY%G",
            1,
            2,
            3,
            NOON_MS + 1,
            100,
            10,
            0,
            "A",
            "X",
            True,
            "10.0.0.1:5000",
            NOON_MS + 1 - 7,
            None,
            None,
            None,
        ),
        (
            "%RETRY%G",
            1,
            2,
            3,
            NOON_MS + 2,
            100,
            10,
            1,
            "A",
            "",
            False,
            "10.0.0.1:5000",
            NOON_MS + 2 - 7,
            None,
            None,
            None,
        ),
        ("T", 1, 2, 3, NOON_MS, 100, 10, 0, "A", None, None, "10.0.0.1:5000", NOON_MS - 7, "1", "k", "s"),
    ]


def test_contents_of_several_tasks(spark: Any) -> None:
    rows = [
        {"physical_offset": at * 100, "queue_offset": at, "born_host": f"[fd00::{at % 2}]:7",
         "unique_key": f"id{at % 5}",
         "keys": "a b" if at % 3 else None, "shard": "s", "topic": "T" if at % 4 else "%RETRY%G", "body_size": at}
        for at in range(12)
    ]  # fmt: skip
    found = transforms.contents(messages(spark, *rows).repartition(3))
    expected = Contents()
    for row in rows:
        expected.take(
            row["topic"], row["born_host"][1:8], NOON_MS - 7, NOON_MS, 100, row["body_size"], 0, row["queue_offset"],
            row["physical_offset"], row["unique_key"], row["keys"], row["shard"],
        )  # fmt: skip
    assert found == expected.rows()
    assert [row[1:3] for row in found["producers"]] == [("fd00::0", 3), ("fd00::1", 6)]


def test_traffic_by_queue_and_hour_of_the_clock(spark: Any) -> None:
    frame = messages(
        spark,
        {"store_ms": NOON_MS},
        {"store_ms": NOON_MS + HOUR_MS - 1, "size": 1 << 30},
        {"store_ms": NOON_MS + HOUR_MS - 1, "size": 1 << 30, "queue_id": 1},
        {"store_ms": NOON_MS + HOUR_MS - 1, "size": 1 << 30, "queue_id": 1},  # together more than an int
        {"store_ms": NOON_MS + 2 * HOUR_MS},  # the clock shows half past: its hour began half an hour ago
    )
    assert whole(transforms.traffic(frame, HOURS), TRAFFIC) == [
        ("T", 0, NOON_MS, 2, 100 + (1 << 30), 20),
        ("T", 0, NOON_MS + 3 * HOUR_MS // 2, 1, 100, 10),
        ("T", 1, NOON_MS, 2, 1 << 31, 20),
    ]


def test_failures_by_group_and_where_they_come_from(spark: Any) -> None:
    failed = {"origin": "X", "is_copy": False}
    frame = messages(
        spark,
        {},
        {"topic": "%RETRY%G", **failed, "reconsume_times": 1},
        {"topic": "%RETRY%G", **failed, "is_copy": True},
        {"topic": "%RETRY%G", **failed},
        {"topic": "%RETRY%", **failed, "origin": ""},
        {"topic": "%DLQ%G", **failed},
        {"topic": "%DLQ%G%", **failed, "size": 7},
    )
    assert whole(transforms.retries(frame, HOURS), RETRIES) == [
        ("", "", 0, NOON_MS, 1, 0),
        ("G", "X", 0, NOON_MS, 2, 1),
        ("G", "X", 1, NOON_MS, 1, 0),
    ]
    assert whole(transforms.dead_letters(frame, HOURS), DEAD_LETTERS) == [
        ("G", "X", NOON_MS, 1, 100),
        ("G%", "X", NOON_MS, 1, 7),
    ]


def test_latency_whatever_the_partitions(spark: Any, tmp_path: Path) -> None:
    answers = Answers()
    billing, mail = answers.number_of(Who("billing", None)), answers.number_of(Who("mail", (65,)))
    for first, behind, after_ms, who in ((0, 6, 3, billing), (4, 9, 9000, billing), (0, 9, 1, mail)):
        values = (first, behind, NOON_MS + after_ms, 1 << 40, 1 << 40, who)
        for name, value in zip(("first", "behind", "at_ms", "below", "doubtful", "who"), values, strict=True):
            getattr(answers, name).append(value)
    waits = {"billing": Wait(7, None), "mail": Wait(2, (65,)), "late": Wait(3, None), "lost": Wait(6, (65,))}
    answers_file.save({("T", 0): answers}, tmp_path, {("T", 0): waits})
    rows = [{"queue_offset": n, "tags": "A" if n % 2 else None} for n in range(8)] + [{"topic": "other"}]
    expected = [
        ("billing", "T", "first", 102, 6),
        ("billing", "T", "first", 156, 2),
        ("billing", "T", "last", 102, 4),
        ("billing", "T", "last", 156, 4),
        ("billing", "T", "late", 0, 2),
        ("late", "T", "late", 0, 5),
        ("late", "T", "waiting", 0, 5),
        ("lost", "T", "late", 0, 1),
        ("lost", "T", "waiting", 0, 1),
        ("mail", "T", "first", 100, 4),
        ("mail", "T", "last", 100, 4),
    ]
    frame = messages(spark, *rows)
    assert whole(transforms.latency(frame.coalesce(1), str(tmp_path), END_MS), LATENCY) == expected
    assert whole(transforms.latency(frame.repartition(5), str(tmp_path), END_MS), LATENCY) == expected


def test_nothing_in_nothing_out(spark: Any, tmp_path: Path) -> None:
    answers_file.save({}, tmp_path)
    frame = messages(spark, {}).limit(0)
    assert whole(transforms.traffic(frame, HOURS), TRAFFIC) == []
    assert whole(transforms.latency(frame, str(tmp_path), END_MS), LATENCY) == []
