"""Spark's facts are plain Python's, row by row."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from spark_reports.facts import in_python
from spark_reports.facts.delivered import Delivered, read_delivered
from spark_reports.snapshot import Snapshot

from .made import DAY_MS, MadeDeliveries, MadeStore, rows_of, snapshot_of
from .test_delivered import scribble


@pytest.mark.parametrize("seed", range(3))
def test_the_same_rows(seed: int, tmp_path: Path, spark) -> None:
    from spark_reports.facts import in_spark

    store, ring = MadeStore(tmp_path), MadeDeliveries(tmp_path / "deliveries")
    scribble(random.Random(seed), store, ring)
    snapshot = snapshot_of(store, ring.directory, from_ms=DAY_MS + 300)
    assert rows_of(in_spark.count(spark, snapshot, tmp_path)) == in_python.count(snapshot, tmp_path)


def test_a_store_without_messages(tmp_path: Path, spark) -> None:
    from spark_reports.facts import in_spark

    store, ring = MadeStore(tmp_path), MadeDeliveries(tmp_path / "deliveries")
    snapshot = snapshot_of(store, ring.directory)
    found = rows_of(in_spark.count(spark, snapshot, tmp_path, tmp_path / "scratch"))
    assert found == in_python.count(snapshot, tmp_path)
    assert [name for name, rows in found.items() if rows] == ["disk"]


def harm_and_read(files: list[Path], snapshot: Snapshot, lowest: int) -> Delivered:
    files[1].unlink()
    files[2].unlink()
    with open(files[4], "r+b") as file:
        file.truncate(1500)
    return read_delivered(snapshot, lowest)


def test_files_that_go_while_it_is_read(tmp_path: Path, spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of counting had listed the files before they went."""
    from spark_reports.facts import in_spark

    counted = []
    for name, way in (("spark", in_spark), ("python", in_python)):
        place = tmp_path / name
        store, ring = MadeStore(place), MadeDeliveries(place / "deliveries")
        while len(store.files()) < 7:
            store.put("T", 0, DAY_MS)
        snapshot = snapshot_of(store, ring.directory)
        monkeypatch.setattr(way, "read_delivered", partial(harm_and_read, store.files()))
        counted.append(way.count(spark, snapshot, place) if way is in_spark else way.count(snapshot, place))
    found = rows_of(counted[0])
    assert found == counted[1]
    kinds = [row[:3] for row in found["findings"] if row[0] != "deliveries begin"]
    assert kinds == [("gap", f"{4096 * number:020d}", 1) for number in (1, 2, 4)]


def test_spark_finds_the_format_without_registering_it(tmp_path: Path, spark) -> None:
    """A new session has only the formats that Spark found by itself."""
    store = MadeStore(tmp_path)
    store.put("T", 0, DAY_MS)
    new = spark.newSession()
    assert new.read.format("rocketbox").option("store", str(store.directory)).load().count() == 1
