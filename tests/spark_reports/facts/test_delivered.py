"""Delivery times agree with those of the broker's own reader for each message."""

from __future__ import annotations

import random
from bisect import bisect_left
from pathlib import Path

import pytest

from appliance.engine.broker.deliveries.history import DeliveryReader, MessagePlace
from appliance.engine.broker.deliveries.ring import DeliveryRing
from appliance.engine.disk import Disk
from appliance.engine.store.dispatch import properties_tag_code, tag_code
from spark_reports.facts.in_python import count
from spark_reports.facts.tables import FIRST_BUCKET, LATENCY_BOUNDS_MS

from .made import DAY_MS, MadeDeliveries, MadeStore, another_file, snapshot_of, who


@pytest.mark.parametrize("seed", range(30))
def test_as_the_brokers_reader_tells(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    store, ring = MadeStore(tmp_path), MadeDeliveries(tmp_path / "deliveries")
    scribble(chance, store, ring)
    snapshot = snapshot_of(store, ring.directory)
    reader = DeliveryReader(DeliveryRing(ring.directory, Disk()))
    expected: dict[tuple[str, str, str, int], int] = {}
    for one in store.records:
        place = MessagePlace(
            one.topic, one.queue_id, one.queue_offset, one.physical_offset, one.store_time_ms,
            properties_tag_code(one.properties),
        )  # fmt: skip
        (history,) = reader.find([place], budget_s=60)
        if one is store.records[0]:
            whole = history.complete
        times: dict[str, list[int]] = {}
        for found in history.deliveries:
            if found.certain and found.at_ms <= snapshot.t0_ms:
                times.setdefault(found.group, []).append(found.at_ms - one.store_time_ms)
        for group, took in times.items():
            for which, ms in (("first", min(took)), ("last", max(took))):
                key = group, one.topic, which, FIRST_BUCKET + bisect_left(LATENCY_BOUNDS_MS, ms)
                expected[key] = expected.get(key, 0) + 1
    facts = count(snapshot, tmp_path)
    assert facts["latency"] == [(*key, number) for key, number in sorted(expected.items())]
    assert facts["latency"] or seed
    assert ("deliveries begin", "", 0, 0) in facts["findings"] or whole or not facts["traffic"]
    assert ("deliveries begin", "", 0, 0) not in facts["findings"] or not whole


def scribble(chance: random.Random, store: MadeStore, ring: MadeDeliveries) -> None:
    """Write messages and answers in odd orders: answers with messages that are not there yet, of a log that was longer,
    of a topic made again; clocks that go back; a torn file."""
    now_ms, published = DAY_MS, 0
    tags = [None, "A", "B"]
    whos = [
        who(group, topic, queue_id, codes)
        for group in ("G", "H")
        for topic in ("T", "%RETRY%G")
        for queue_id in (0, 1)
        for codes in (None, [tag_code("A")], "some")
    ]
    ring.start(0, now_ms)
    for _ in range(chance.randrange(5, 40)):
        for _ in range(chance.randrange(8)):
            tag = chance.choice(tags)
            store.put(
                chance.choice(["T", "%RETRY%G"]), chance.randrange(2), now_ms, properties={"TAGS": tag} if tag else {}
            )
            now_ms += chance.choice([0, 1, 300, 60_000])
        published = max(0, store.end - chance.choice([0, 0, 0, 200, 1000]))
        if chance.random() < 0.05:
            ring.stop()
            ring.start(chance.choice([published, published // 2]), now_ms)
        if chance.random() < 0.1:
            store.begin_anew("T")
        answers = [
            (
                chance.choice(whos),
                chance.randrange(12),
                chance.randrange(9),
                now_ms + chance.choice([-70_000, -1, 0, 5]),
            )
            for _ in range(chance.randrange(6))
        ]
        ring.batch(published, now_ms, answers)
        if chance.random() < 0.1:
            another_file(ring)
    ring.stop()
    if chance.random() < 0.3:
        min(ring.directory.iterdir()).unlink()
    elif chance.random() < 0.2:
        file = chance.choice(sorted(ring.directory.iterdir()))
        data = file.read_bytes()
        file.write_bytes(data[: chance.randrange(len(data))])


def test_a_file_says_what_a_torn_one_before_it_cannot(tmp_path: Path) -> None:
    """The batch that recorded the loss of the log's end is gone, but the next file's header records it, too."""
    store, ring = MadeStore(tmp_path), MadeDeliveries(tmp_path / "deliveries")
    store.put("T", 0, DAY_MS)
    ring.start(0, DAY_MS)
    ring.batch(store.end, DAY_MS + 1, [(who("G", "T"), 0, 1, DAY_MS + 1)])
    ring.batch(0, DAY_MS + 2, [])
    another_file(ring)
    ring.batch(store.end, DAY_MS + 9, [(who("H", "T"), 0, 1, DAY_MS + 9)])
    ring.stop()
    torn = min(ring.directory.iterdir())
    torn.write_bytes(torn.read_bytes()[:-1])
    facts = count(snapshot_of(store, ring.directory), tmp_path)
    assert {row[0] for row in facts["latency"]} == {"H"}
