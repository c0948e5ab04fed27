"""A day that is counted again: data deleted in the meantime stays in the facts."""

from __future__ import annotations

from spark_reports.facts import again, in_python, keeping
from spark_reports.facts.tables import TABLES, DayFacts, Row

from .made import DAY_MS, HOUR_MS, MadeDeliveries, MadeStore, snapshot_of, who

TO_MS = DAY_MS + 24 * HOUR_MS
IN_TIME, LATE = TO_MS + 2 * HOUR_MS, TO_MS + 30 * HOUR_MS


def facts(
    messages: int = 5, delivered: int = 4, samples: int = 120, t0_ms: int = IN_TIME, **more: list[Row]
) -> DayFacts:
    found: DayFacts = {table.name: [] for table in TABLES}
    found |= {
        "traffic": [("T", 0, DAY_MS, messages, 1, 1)],
        "retries": [("g", "T", 1, DAY_MS, messages, 0)],
        "latency": [("g", "T", "first", 1, delivered)],
        "lag": [("g", DAY_MS, samples, 1, 1, 0, 0)],
        "queues": [("T", 0, 0, t0_ms)],
        "disk": [(1, 1, 1, 1, 1, t0_ms)],
    }
    return {**found, **more}


def of(found: DayFacts, *names: str) -> list[list[Row]]:
    return [found[name] for name in names]


def test_a_day_that_was_not_counted_before_is_as_it_is():
    assert again.best_of(None, facts(), TO_MS) == facts()


def test_messages_that_are_deleted_by_now_stay_counted_with_all_that_belongs_to_them():
    before, now = facts(5, findings=[("corrupt", "f", 1, 9)]), facts(3, 9, findings=[("log begins", "", 0, 0)])
    best = again.best_of(before, now, TO_MS)
    assert of(best, "traffic", "retries", "latency") == of(before, "traffic", "retries", "latency")
    assert best["findings"] == [("corrupt", "f", 1, 9), ("earlier run", "messages", 0, 0)]


def test_what_is_more_by_now_replaces_what_was():
    before, now = facts(), facts(6, 9, 121, LATE, findings=[("gap", "f", 0, 9)])
    assert again.best_of(before, now, TO_MS) == now


def test_deliveries_and_samples_that_are_forgotten_stay():
    before = facts(findings=[("deliveries lost", "", 7, 0), ("gap", "f", 0, 1)])
    now = facts(5, 2, 0, LATE, findings=[("corrupt", "f", 1, 1), ("deliveries begin", "", 0, 0)])
    best = again.best_of(before, now, TO_MS)
    assert of(best, "latency", "lag") == of(before, "latency", "lag")
    assert best["findings"] == [
        ("corrupt", "f", 1, 1), ("deliveries lost", "", 7, 0), ("earlier run", "deliveries", 0, 0),
        ("earlier run", "lag", 0, 0),
    ]  # fmt: skip
    once_more = again.best_of(best, facts(0, 0, 0, LATE), TO_MS)
    assert of(once_more, "traffic", "latency", "lag") == of(best, "traffic", "latency", "lag")


def test_incidents_that_the_history_has_no_longer_stay():
    before, now = facts(incidents=[("refused_sends", DAY_MS, 3)]), facts(t0_ms=LATE)
    assert again.best_of(before, now, TO_MS)["incidents"] == before["incidents"]
    assert again.best_of(now, before, TO_MS)["incidents"] == before["incidents"]


def test_messages_that_wait_no_longer_are_no_deletion():
    before = facts(latency=[("g", "T", "first", 101, 4), ("g", "T", "late", 0, 9), ("g", "T", "waiting", 0, 9)])
    now = facts(latency=[("g", "T", "first", 101, 4)], t0_ms=LATE)
    assert again.best_of(before, now, TO_MS) == now


def test_half_a_day_is_no_measure_for_the_whole():
    before, now = facts(9, t0_ms=TO_MS - 1), facts(3)
    assert again.best_of(before, now, TO_MS) == now


def test_queues_groups_and_the_disk_are_kept_as_they_were_nearest_to_the_day():
    before, now = facts(), facts(t0_ms=LATE)
    assert again.to_keep(before, now, TO_MS) == before
    assert again.best_of(before, now, TO_MS)["queues"] == now["queues"], "the report is of its own moment"
    assert again.to_keep(now, before, TO_MS) == before
    assert again.to_keep(facts(t0_ms=TO_MS - 1), now, TO_MS) == now
    assert again.to_keep(None, now, TO_MS) == now


def test_rows_of_another_width_are_no_facts(tmp_path):
    keeping.write(tmp_path, "2023-11-15", facts())
    assert keeping.read(tmp_path, ["2023-11-15"])
    keeping.write(tmp_path, "2023-11-15", facts(disk=[(1, 1, 1, 1, 1)]))
    assert keeping.read(tmp_path, ["2023-11-15"]) == {}, "of an older program"


def test_the_first_half_of_a_real_log_is_deleted_between_two_runs(tmp_path):
    store = MadeStore(tmp_path)
    for n in range(100):
        store.put("T", 0, DAY_MS + n * 1000, b"x" * 100)
    ring = MadeDeliveries(tmp_path / "ring")
    ring.start(0, DAY_MS)
    ring.batch(store.end, DAY_MS + 200_000, [(who("g", "T"), 0, 100, DAY_MS + 200_000)])
    ring.stop()
    before = in_python.count(snapshot_of(store, tmp_path / "ring"), tmp_path)
    for path in store.files()[:2]:
        path.unlink()
    now = in_python.count(snapshot_of(store, tmp_path / "ring", t0_ms=LATE), tmp_path)
    assert 0 < sum(row[3] for row in now["traffic"]) < 100
    best = again.best_of(before, now, TO_MS)
    assert best["traffic"] == before["traffic"]
    assert sum(row[3] for row in best["traffic"]) == 100
    assert sum(row[4] for row in best["latency"] if row[2] == "first") == 100
