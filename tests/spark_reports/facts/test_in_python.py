"""Plain Python counts all stored messages, and reports the parts that it could not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.engine.protocol.properties import RETRY_TOPIC
from appliance.engine.store.dispatch import tag_code
from spark_reports.facts.in_python import count
from spark_reports.snapshot import ClientFacts, GroupFacts, QueueEnds, WaitingFacts

from .made import DAY_MS, HOUR_MS, MadeDeliveries, MadeStore, snapshot_of, who


@pytest.fixture
def store(tmp_path: Path) -> MadeStore:
    return MadeStore(tmp_path)


@pytest.fixture
def ring(tmp_path: Path) -> MadeDeliveries:
    return MadeDeliveries(tmp_path / "deliveries")


def test_messages_of_the_day_are_counted_by_queue_and_hour(store, ring, tmp_path):
    store.put("T", 0, DAY_MS - 1)
    one = store.put("T", 0, DAY_MS, b"abc")
    store.put("T", 1, DAY_MS + 1)
    two = store.put("T", 0, DAY_MS + HOUR_MS - 1, b"")
    store.put("T", 0, DAY_MS + 24 * HOUR_MS)
    facts = count(snapshot_of(store, ring.directory), tmp_path)
    assert facts["traffic"] == [
        ("T", 0, DAY_MS, 2, one.size + two.size, 3),
        ("T", 1, DAY_MS, 1, store.records[2].size, 4),
    ]


def test_what_came_after_t0_is_not_counted(store, ring, tmp_path):
    store.put("T", 0, DAY_MS)
    end = store.end
    store.put("T", 0, DAY_MS)
    facts = count(snapshot_of(store, ring.directory, log_end=end), tmp_path)
    assert [row[3] for row in facts["traffic"]] == [1]
    assert [row[0] for row in facts["findings"]] == ["deliveries begin"]


def test_failures_by_the_topic_they_came_from(store, ring, tmp_path):
    store.put("%RETRY%G", 0, DAY_MS, properties={RETRY_TOPIC: "T"}, reconsume_times=2)
    store.put("%RETRY%G", 0, DAY_MS, properties={RETRY_TOPIC: "T", "ROCKETBOX_REPLAYED": "1"}, reconsume_times=2)
    store.put("%RETRY%G", 0, DAY_MS, properties={RETRY_TOPIC: "T", "ROCKETBOX_REPLAYED": "1"})
    store.put("%RETRY%G", 0, DAY_MS, properties={"ROCKETBOX_REPLAYED": "none"})
    letter = store.put("%DLQ%G", 0, DAY_MS + HOUR_MS, properties={RETRY_TOPIC: "T"}, reconsume_times=16)
    facts = count(snapshot_of(store, ring.directory), tmp_path)
    assert facts["retries"] == [("G", "", 0, DAY_MS, 1, 0), ("G", "T", 0, DAY_MS, 1, 1), ("G", "T", 2, DAY_MS, 2, 0)]
    assert facts["dead_letters"] == [("G", "T", DAY_MS + HOUR_MS, 1, letter.size)]


def test_first_and_last_delivery(store, ring, tmp_path):
    for _ in range(3):
        store.put("T", 0, DAY_MS)
    ring.start(0, DAY_MS)
    ring.batch(store.end, DAY_MS + 9000, [(who("G", "T"), 0, 2, DAY_MS + 3), (who("G", "T"), 1, 1, DAY_MS + 7000)])
    ring.stop()
    facts = count(snapshot_of(store, ring.directory), tmp_path)
    # 3 ms have a bucket of their own, 6998 ms lie in the one up to 7 s or a little more; message 2 was never delivered.
    assert facts["latency"] == [("G", "T", "first", 102, 2), ("G", "T", "last", 102, 1), ("G", "T", "last", 155, 1)]
    assert facts["findings"] == []


def test_only_messages_whose_tag_was_asked_for(store, ring, tmp_path):
    for tag in ("A", "B", "A"):
        store.put("T", 0, DAY_MS, properties={"TAGS": tag})
    ring.start(0, DAY_MS)
    ring.batch(store.end, DAY_MS, [(who("G", "T", codes=[tag_code("A")]), 0, 3, DAY_MS + 1)])
    ring.batch(store.end, DAY_MS, [(who("H", "T", codes="some"), 0, 3, DAY_MS + 1)] * 2)
    ring.stop()
    facts = count(snapshot_of(store, ring.directory), tmp_path)
    assert facts["latency"] == [("G", "T", "first", 100, 2), ("G", "T", "last", 100, 2)]
    assert facts["findings"] == [("deliveries unknown", "H", 2, 0)]


def test_what_was_not_delivered_by_the_days_end(store, ring, tmp_path):
    to_ms = DAY_MS + 24 * HOUR_MS
    for tag in "ABABAB":
        store.put("T", 0, DAY_MS, properties={"TAGS": tag})
        store.put("T", 1, DAY_MS)
    store.put("T", 0, to_ms)
    store.put("S", 0, DAY_MS)
    red = [tag_code("A")]
    ring.start(0, DAY_MS)
    ring.batch(
        store.end, to_ms + 9,
        [
            (who("G", "T"), 0, 2, DAY_MS + 1), (who("G", "T"), 2, 1, to_ms),
            (who("R", "T", codes=red), 0, 3, to_ms - 1), (who("S", "T", codes="some"), 0, 1, DAY_MS),
            (who("S", "T"), 0, 1, to_ms),
        ],
    )  # fmt: skip
    ring.stop()
    waiting = (
        # One message after midnight is no longer waited for, three still are; "B" is none of R's.
        WaitingFacts("G", "T", 0, 3), WaitingFacts("R", "T", 0, 2), WaitingFacts("S", "T", 0, 0),
        # Nothing of these queues was ever delivered; N wants one tag only.
        WaitingFacts("G", "T", 1, 2), WaitingFacts("N", "T", 0, 0, (tag_code("B"),)),
    )  # fmt: skip
    facts = count(snapshot_of(store, ring.directory, waiting=waiting), tmp_path)
    found = {row[0] + " " + row[2]: row[4] for row in facts["latency"] if row[2] not in ("first", "last")}
    assert found == {"G late": 1 + 3 + 4, "G waiting": 3 + 4, "R late": 1, "R waiting": 1, "N late": 3, "N waiting": 3}


def test_deliveries_after_t0_do_not_count_and_lost_ones_are_told(store, ring, tmp_path):
    store.put("T", 0, DAY_MS)
    t0_ms = DAY_MS + 26 * HOUR_MS
    ring.start(0, DAY_MS)
    ring.batch(store.end, t0_ms, [(who("G", "T"), 0, 1, t0_ms)], lost=7)
    ring.batch(store.end, t0_ms + 1, [(who("H", "T"), 0, 1, t0_ms + 1)], lost=(1 << 32) - 1)
    ring.stop()
    facts = count(snapshot_of(store, ring.directory), tmp_path)
    assert {row[0] for row in facts["latency"]} == {"G"}
    assert facts["findings"] == [("deliveries gap", "", 1, 0), ("deliveries lost", "", 7, 0)]


def test_damage_is_told_and_stepped_over(store, ring, tmp_path):
    for _ in range(100):
        store.put("T", 0, DAY_MS)
    damaged = store.records[3]
    store.damage(damaged.physical_offset, b"\xff" * 20)
    last = store.records[-1]
    store.damage(last.physical_offset + 4, b"\0\0\0\0")
    ring.start(0, DAY_MS)
    ring.batch(0, DAY_MS, [(who("G", "T"), 0, 1, DAY_MS)])
    ring.stop()
    facts = count(snapshot_of(store, ring.directory), tmp_path)
    assert [row[3] for row in facts["traffic"]] == [98]
    start = last.physical_offset - last.physical_offset % store.file_bytes
    assert facts["findings"] == [
        ("corrupt", f"{0:020d}", 1, damaged.size),
        ("corrupt", f"{start:020d}", 1, last.size),
    ]


def test_what_a_body_holds_is_no_record(store, ring, tmp_path):
    """Behind damage, a record counts only if its physical offset names the place where it lies."""
    inner = store.put("T", 0, DAY_MS)
    outer = store.put("T", 0, DAY_MS, store.files()[0].read_bytes()[: inner.size])
    store.put("T", 0, DAY_MS)
    store.damage(outer.physical_offset, b"\xff" * 8)
    facts = count(snapshot_of(store, ring.directory), tmp_path)
    assert [row[3] for row in facts["traffic"]] == [2]
    assert ("corrupt", f"{0:020d}", 1, outer.size) in facts["findings"]


def test_files_that_went_are_gaps(store, ring, tmp_path):
    while len(store.files()) < 6:
        store.put("T", 0, DAY_MS)
    snapshot = snapshot_of(store, ring.directory)
    files = store.files()
    files[0].unlink()
    files[2].unlink()
    with open(files[4], "r+b") as file:
        file.truncate(200)
    facts = count(snapshot, tmp_path)
    inside = [one for one in store.records if one.physical_offset // 4096 == 4]
    behind = inside[200 // inside[0].size].physical_offset
    assert facts["findings"] == [
        ("deliveries begin", "", 0, 0),
        ("gap", files[0].name, 1, 4096),
        ("gap", files[2].name, 1, 4096),
        ("gap", files[4].name, 1, 5 * 4096 - behind),
    ]


def test_files_of_other_days_are_not_read(store, ring, tmp_path):
    for day in range(-3, 4):
        files = len(store.files())
        while len(store.files()) < files + 3:
            store.put("T", 0, DAY_MS + day * 24 * HOUR_MS)
    for number in (7, 12):
        store.damage(number * 4096 + 200, b"\xff" * 1000)
    steps: list[tuple[int, int]] = []
    facts = count(snapshot_of(store, ring.directory), tmp_path, lambda done, total: steps.append((done, total)))
    assert facts["findings"] == [("deliveries begin", "", 0, 0)]
    assert steps[-1] == (4 * 4096, 4 * 4096)  # one begins on the day before, and holds the day's first messages


def test_what_the_snapshot_knows(store, ring, tmp_path):
    (tmp_path / "lag.jsonl").write_text(
        '{"group": "G", "hour_ms": 5, "samples": 1, "p95_ms": 2, "max_ms": 3, "over_ms": 4, "rebalances": 0}\n'
    )
    group = GroupFacts("G", "clustering", (ClientFacts("c", "JAVA", "V5"),), None, None, 60_000)
    queues = (QueueEnds("T", 1, 0, 5), QueueEnds("T", 0, 1, 2))
    facts = count(snapshot_of(store, ring.directory, queues=queues, groups=(group,)), tmp_path)
    assert facts["lag"] == [("G", 5, 1, 2, 3, 4, 0)]
    assert facts["queues"] == [("T", 0, 1, 2), ("T", 1, 0, 5)]
    assert facts["groups"] == [("G", 1, -1, -1, 60_000)]
    assert facts["disk"] == [(1000, 400, 300, 0, 72 * HOUR_MS, DAY_MS + 26 * HOUR_MS)]


def test_lag_that_cannot_be_read_is_said(store, ring, tmp_path):
    (tmp_path / "lag.jsonl").write_text('{"group": "G"}\n')
    with pytest.raises(ValueError, match=r"lag\.jsonl cannot be read"):
        count(snapshot_of(store, ring.directory), tmp_path)
