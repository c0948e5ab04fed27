"""The same day run again: facts are replaced and not doubled, and good facts stay if less of the log is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_reports.facts import keeping
from spark_reports.facts.tables import TABLES
from spark_reports.run.plan import Plan
from spark_reports.run.progress import ProgressFile
from spark_reports.run.work import Work
from spark_reports.snapshot import GroupFacts, QueueEnds
from tests.spark_reports.facts.made import DAY_MS, HOUR_MS, MadeDeliveries, MadeStore, snapshot_of, who

DAY = "2023-11-15"
END = DAY_MS + 24 * HOUR_MS
LATE = END + 60 * HOUR_MS


class Runs:
    """A store, and runs over it like the worker's, in this process."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.store = MadeStore(place)
        for n in range(100):
            self.store.put("T", 0, DAY_MS + n * 1000, b"x" * 100)
        ring = MadeDeliveries(place / "ring")
        ring.start(0, DAY_MS)
        ring.batch(self.store.end, DAY_MS + 200_000, [(who("g", "T"), 0, 100, DAY_MS + 200_000)])
        ring.stop()
        self._count = 0

    def run(self, engine: str, samples: int = 120, **different: Any) -> dict[str, Any]:
        """Run once; return the reports as data, by name."""
        self._count += 1
        directory = self.place / f"run-{self._count}"
        directory.mkdir()
        names = ("group", "hour_ms", "samples", "p95_ms", "max_ms", "over_ms", "rebalances")
        row = ("g", DAY_MS, samples, 5, 9, 0, 0)
        (directory / "lag.jsonl").write_text(json.dumps(dict(zip(names, row, strict=True))) + "\n" if samples else "")
        scratch = directory / "scratch"
        scratch.mkdir()
        plan = Plan(str(self._count), engine, "local[2]", 512, str(self.place / "facts"), str(scratch))
        snapshot = snapshot_of(self.store, self.place / "ring", **different)
        with ProgressFile(directory / "progress.json") as progress:
            Work(directory, plan, snapshot, progress).run()
        return {path.stem: json.loads(path.read_bytes()) for path in (directory / "reports").glob("*.json")}

    def kept(self) -> dict[str, list[Any]]:
        return dict(keeping.read(self.place / "facts", [DAY])[DAY])


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.fixture(params=["python", "spark"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "spark":
        spark = request.getfixturevalue("spark")
        monkeypatch.setattr("spark_reports.run.session.open_session", lambda plan: (spark, {}))
        monkeypatch.setattr("spark_reports.run.session.close", lambda spark: None)
    return str(request.param)


def tile(document: dict[str, Any], key: str) -> Any:
    return next(one["value"] for one in document["tiles"] if one["key"] == key)


def notes(document: dict[str, Any]) -> set[str]:
    return {one["key"] for one in document["notes"]}


def test_twice_is_once(runs: Runs, engine: str) -> None:
    first = runs.run(engine)
    kept = runs.kept()
    assert runs.run(engine) == first
    assert runs.kept() == kept
    assert sum(row[3] for row in kept["traffic"]) == 100
    assert (tile(first["digest"], "messages"), tile(first["latency"], "delivered")) == (100, 100)
    assert keeping.days(runs.place / "facts") == [DAY]


def test_after_half_of_it_was_deleted(runs: Runs, engine: str) -> None:
    group = GroupFacts("g", "", (), 0, None, 60_000)
    queues = QueueEnds("%DLQ%g", 0, 0, 5)
    first = runs.run(engine, groups=(group,), queues=(queues,))
    kept = runs.kept()
    for path in runs.store.files()[:2]:
        path.unlink()
    later = QueueEnds("%DLQ%g", 0, 4, 5)
    again = runs.run(engine, samples=0, t0_ms=LATE, groups=(), queues=(later,))
    for report, key in (
        ("digest", "messages"), ("digest", "worst_behind_ms"), ("latency", "delivered"), ("latency", "slowest_p95"),
    ):  # fmt: skip
        assert tile(again[report], key) == tile(first[report], key) is not None, (report, key)
    assert {"earlier_run", "made_late"} <= notes(again["digest"])
    assert not {"earlier_run", "made_late"} & notes(first["digest"])
    assert tile(again["failures"], "kept_dead_letters") == 1, "what is kept is of its own moment"
    now = runs.kept()
    told = [("earlier run", "lag", 0, 0), ("earlier run", "messages", 0, 0)]
    assert now.pop("findings") == sorted([*kept.pop("findings"), *told])
    assert now == kept, "what later days compare themselves with"
    # And again, with the other way of counting.
    runs.run("python", samples=0, t0_ms=LATE + 1)
    assert runs.kept() == {**kept, "findings": runs.kept()["findings"]}


def test_the_day_that_was_half_counted_is_replaced(runs: Runs, engine: str) -> None:
    noon = DAY_MS + 50_000
    part = runs.run(engine, t0_ms=noon, to_ms=noon)
    assert tile(part["digest"], "messages") == 50
    assert "unfinished_day" in notes(part["digest"])
    whole = runs.run(engine)
    assert tile(whole["digest"], "messages") == 100
    assert not {"unfinished_day", "earlier_run"} & notes(whole["digest"])


def test_plain_python_keeps_parquet_too_and_turns_older_days_into_it(runs: Runs) -> None:
    keeping.write(runs.place / "facts", "2023-11-14", {table.name: [] for table in TABLES})
    runs.run("python")
    facts = runs.place / "facts"
    assert list((facts / "plain").iterdir()) == []
    for day in ("2023-11-14", DAY):
        assert (facts / "traffic" / f"day={day}" / keeping.FILE).exists()
    assert sum(row[3] for row in runs.kept()["traffic"]) == 100
