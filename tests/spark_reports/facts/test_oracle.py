"""Random stores with all oddities: Spark's facts equal plain Python's, row by row, however the work is split."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from appliance.engine.broker.deliveries.event_format import Definition
from appliance.engine.store.dispatch import tag_code
from spark_reports.facts import in_python
from spark_reports.snapshot import QueueEnds, Snapshot, WaitingFacts
from tests.support.effort import NIGHTLY, effort

from .made import MadeDeliveries, MadeStore, another_file, rows_of, snapshot_of, who

#: A usual day; days of 23 and 25 hours, with the change of the clock at night or at midnight, by an hour or half of it.
DAYS = (
    ("UTC", "2026-03-01"), ("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25"),
    ("Australia/Lord_Howe", "2026-04-05"), ("Asia/Kolkata", "2026-01-01"), ("America/Sao_Paulo", "2018-11-04"),
    ("America/Havana", "2026-11-01"), ("Asia/Kathmandu", "1986-01-01"),
)  # fmt: skip
TOPICS = ("T", "T", "%RETRY%G", "%DLQ%G", "%RETRY%H", "RMQ_SYS_TRANS_HALF_TOPIC", "ü-名", "long" * 40)
PROPERTIES = (
    {}, {"TAGS": "A"}, {"TAGS": "B", "KEYS": "k1 k2"}, {"TAGS": "ü名😀"}, {"RETRY_TOPIC": "T"},
    {"RETRY_TOPIC": "T", "ROCKETBOX_REPLAYED": "1"}, {"ROCKETBOX_REPLAYED": "0"}, {"ROCKETBOX_REPLAYED": "00010"},
    {"ROCKETBOX_REPLAYED": "12345678901"}, {"ROCKETBOX_REPLAYED": "1\n"}, {"ROCKETBOX_REPLAYED": "١"},
    {"RETRY_TOPIC": ""}, {"UNIQ_KEY": "A1", "KEYS": "k1"}, {"UNIQ_KEY": "ü2", "__SHARDINGKEY": "s"},
)  # fmt: skip
CODES = (None, None, (tag_code("A"),), (0, tag_code("B")), (tag_code("ü名😀"),), (), "some")

LATER_MS = (0, 0, 0, 1, 700, 299_999, 1_800_000, 3_599_999, 12_345_678)
AFTER_MS = (-80_000, -1, 0, 1, 2, 5, 700, 86_400_000)
harm = st.lists(st.tuples(st.sampled_from(("record", "tail", "file", "cut", "lie")), st.floats(0, 0.999)), max_size=3)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@settings(
    max_examples=effort(3, 10, 200),
    deadline=None,
    derandomize=not NIGHTLY,
    phases=[Phase.explicit, Phase.generate] + [Phase.shrink] * NIGHTLY,
    suppress_health_check=list(HealthCheck),
)
@given(
    day=st.sampled_from(DAYS),
    seed=st.integers(0, (1 << 32) - 1),
    harm=harm,
    t0=st.sampled_from((0.7, 1, 1)),
    rows=st.sampled_from((None, 3, 50)),
)
def test_spark_counts_as_plain_python(
    day: tuple[str, str], seed: int, harm: list[Any], t0: float, rows: int | None, spark: Any
) -> None:
    from spark_reports.facts import in_spark

    place = Path(tempfile.mkdtemp())
    try:
        snapshot = told(place, *day, random.Random(seed), t0)
        hurt(snapshot, harm)
        expected = in_python.count(snapshot, place)
        assert rows_of(in_spark.count(spark, snapshot, place, partition_rows=rows)) == expected
    finally:
        shutil.rmtree(place)


def told(place: Path, zone: str, day: str, chance: random.Random, t0: float) -> Snapshot:
    """Make a store and its deliveries, from two hours before the day to some time after it. t0: the share of the log
    that was there at the snapshot."""
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    end = begin + timedelta(days=1)  # the same time of the clock
    from_ms, to_ms = (int(one.astimezone(UTC).timestamp() * 1000) for one in (begin, end))
    store, ring = MadeStore(place, 4096), MadeDeliveries(place / "deliveries")
    now_ms = from_ms - 7_200_000
    ring.start(0, now_ms)
    while now_ms < to_ms + 3_600_000:
        for _ in range(chance.randrange(12)):
            now_ms += chance.choice(LATER_MS) if chance.random() < 0.15 else chance.randrange(60_000)
            topic, queue_id, body = chance.choice(TOPICS), chance.randrange(3), b"b" * chance.randrange(300)
            store.put(topic, queue_id, now_ms, body, chance.choice(PROPERTIES), chance.choice((0, 0, 1, 3, 16)))
        published = max(0, store.end - chance.choice((0, 0, 0, 0, 300, 3000)))
        event = chance.random()
        if event < 0.05:
            another_file(ring)
        elif event < 0.08:
            ring.stop()
            ring.start(published, now_ms)
        elif event < 0.1:
            store.begin_anew("T")
        ring.batch(
            published, now_ms, list(answers(chance, store, now_ms)), chance.choice((0,) * 30 + (5, (1 << 32) - 1))
        )
    ring.stop()
    ends = [one.physical_offset + one.size for one in store.records]
    return snapshot_of(
        store, ring.directory, day=day, zone=zone, from_ms=from_ms, to_ms=to_ms, t0_ms=to_ms + 3_600_000,
        log_end=ends[int((len(ends) - 1) * t0)], queues=(QueueEnds("T", 0, 0, 5),),
        waiting=tuple(
            WaitingFacts(group, topic, queue_id, chance.randrange(40), chance.choice(CODES[:-1]))
            for group in "GHN" for topic in ("T", "ü-名") for queue_id in range(3) if chance.random() < 0.5
        ),
    )  # fmt: skip


def answers(chance: random.Random, store: MadeStore, now_ms: int) -> Iterator[tuple[Definition, int, int, int]]:
    """Yield some answers, mostly with messages stored lately."""
    for _ in range(chance.randrange(6)):
        topic, queue_id = chance.choice(TOPICS[:4]), chance.randrange(3)
        first = max(0, store.next_offset(topic, queue_id) - chance.randrange(12)) if chance.random() < 0.8 else 0
        group, codes = chance.choice("GH"), chance.choice(CODES)
        count = chance.choice((0, 1, 3, 8, 8, 65_535))
        yield who(group, topic, queue_id, codes), first, count, now_ms + chance.choice(AFTER_MS)


def hurt(snapshot: Snapshot, harm: list[tuple[str, float]]) -> None:
    """Harm the snapshot's files as disks and retention do."""
    for what, where in harm:
        files = sorted((Path(snapshot.store_dir) / "commitlog").iterdir())
        if not files:
            return
        path = files[int(len(files) * where)]
        size = path.stat().st_size
        if what == "file":
            path.unlink()
        elif what == "cut":
            os.truncate(path, int(size * where))
        elif what == "lie":  # a record elsewhere
            data = path.read_bytes()
            path.write_bytes(data[:100] + data[:200] + data[300:])
        else:
            with open(path, "r+b") as file:
                file.seek(int(size * where))
                file.write(b"\xda\xa3\x20\xa7" + b"\xff" * (30 if what == "record" else size))
                file.truncate(size)
