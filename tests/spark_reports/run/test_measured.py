"""The lag of groups from the console's history: every row of the table LAG."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.console.history.file import DAY_MS, FINE_MS, HOUR_MS, NAME
from appliance.console.history.recorder import Recorder
from appliance.engine.window.figures.measurements import Measurement
from spark_reports.run.measured import write_incidents, write_lag
from spark_reports.snapshot import GroupFacts, Snapshot
from tests.support.clock import FakeClock

#: A day in UTC.
DAY = 1_800_000_000_000 // DAY_MS * DAY_MS
MINUTE_MS = 60_000


class Restless(FakeClock):
    def wait(self, gate, seconds):
        return False


def snapshot_of(*groups: str, zone: str = "UTC", from_ms: int = DAY, to_ms: int = DAY + DAY_MS, limit_ms=MINUTE_MS):
    return Snapshot(
        t0_ms=to_ms, day="2027-01-15", zone=zone, from_ms=from_ms, to_ms=to_ms, store_dir="", deliveries_dir="",
        log_min=0, log_end=0, retention_ms=0, disk_total=0, disk_free=0, store_bytes=0,
        groups=tuple(GroupFacts(name, "", (), None, None, limit_ms) for name in groups),
    )  # fmt: skip


def measure(directory: Path, samples: list[tuple[int, dict[str, tuple[float | None, float | None]]]]) -> None:
    """Write a history with these samples: (time, group -> (ms behind, rebalances))."""
    now: dict[str, tuple[float | None, float | None]] = {}
    clock = Restless(samples[0][0])

    def figures():
        for group, (behind, rebalances) in now.items():
            yield [
                Measurement("group_lag_ms", group, behind),
                Measurement("group_rebalances", group, rebalances),
                Measurement("group_lag", group, 1),
            ]

    recorder = Recorder(directory, figures, clock)
    recorder._open()
    for at_ms, values in samples:
        now.clear()
        now.update(values)
        recorder.sample(at_ms)
    recorder._close()


def rows(directory: Path, snapshot: Snapshot) -> list[tuple]:
    write_lag(directory / "lag.jsonl", directory, snapshot)
    lines = (directory / "lag.jsonl").read_text().splitlines()
    return [tuple(json.loads(line).values()) for line in lines]


def test_samples_of_an_hour_become_a_row(tmp_path):
    behind = [0.0] * 18 + [90_000.0, 120_000.0]
    measure(
        tmp_path,
        [
            *((DAY + n * FINE_MS, {"billing": (value, 0.0), "other": (1.0, 1.0)}) for n, value in enumerate(behind)),
            (DAY + HOUR_MS, {"billing": (60_000.0, 2.0)}),
            (DAY + HOUR_MS + FINE_MS, {"billing": (None, 3.0)}),
            (DAY + DAY_MS, {"billing": (5.0, 5.0)}),
        ],
    )
    assert rows(tmp_path, snapshot_of("billing")) == [
        ("billing", DAY, 20, 89_990, 120_000, 2 * FINE_MS, 0),
        ("billing", DAY + HOUR_MS, 1, 60_000, 60_000, 0, 5),
        ("other", DAY, 20, 1, 1, 0, 20),
    ]


def test_a_group_that_was_deleted_within_the_day_was_behind_until_then(tmp_path):
    """And one that was deleted before has no rows: nothing was measured of it."""
    measure(
        tmp_path,
        [
            (DAY - FINE_MS, {"long-gone": (0.0, 0.0), "renamed": (0.0, 0.0)}),
            (DAY + HOUR_MS, {"renamed": (5.0 * HOUR_MS, 1.0)}),
            (DAY + 2 * HOUR_MS, {"billing": (0.0, 0.0)}),
        ],
    )
    assert rows(tmp_path, snapshot_of("billing")) == [
        ("billing", DAY + 2 * HOUR_MS, 1, 0, 0, 0, 0),
        ("renamed", DAY + HOUR_MS, 1, 5 * HOUR_MS, 5 * HOUR_MS, 0, 1),
    ]


def test_a_group_that_was_never_behind_has_rows_too(tmp_path):
    measure(tmp_path, [(DAY + n * FINE_MS, {"billing": (0.0, 0.0)}) for n in range(3)])
    assert rows(tmp_path, snapshot_of("billing", "unknown")) == [("billing", DAY, 3, 0, 0, 0, 0)]


@pytest.mark.parametrize(
    ("zone", "from_ms", "hours"),
    [
        # Hours of this clock begin in the middle of those of UTC.
        ("Asia/Kolkata", DAY - 19_800_000, [DAY - 1_800_000, DAY + 1_800_000]),
        ("UTC", DAY, [DAY, DAY + HOUR_MS]),
    ],
)
def test_hours_are_those_of_the_clock_in_the_zone(tmp_path, zone, from_ms, hours):
    measure(tmp_path, [(DAY, {"b": (1.0, 0.0)}), (DAY + HOUR_MS, {"b": (2.0, 0.0)})])
    snapshot = snapshot_of("b", zone=zone, from_ms=from_ms, to_ms=from_ms + DAY_MS)
    assert [(row[1], row[4]) for row in rows(tmp_path, snapshot)] == [(hours[0], 1), (hours[1], 2)]


def test_without_a_history_or_with_a_damaged_one_there_are_no_rows(tmp_path, capsys):
    assert rows(tmp_path, snapshot_of("billing")) == []
    (tmp_path / NAME).write_bytes(b"no database" * 1000)
    assert rows(tmp_path, snapshot_of("billing")) == []
    assert "cannot be read" in capsys.readouterr().out


def test_a_history_of_which_one_row_is_damaged(tmp_path, capsys):
    measure(tmp_path, [(DAY, {"billing": (1000.0, None)})])
    with sqlite3.connect(tmp_path / NAME) as db:
        assert db.execute("UPDATE fine SET data = x'0102'").rowcount
    db.close()
    assert rows(tmp_path, snapshot_of("billing")) == []
    assert "cannot be read" in capsys.readouterr().out


def incidents(directory: Path, snapshot: Snapshot) -> list[tuple]:
    write_incidents(directory / "incidents.jsonl", directory, snapshot)
    lines = (directory / "incidents.jsonl").read_text().splitlines()
    return [tuple(json.loads(line).values()) for line in lines]


def count(directory: Path, samples: list[tuple[int, dict[str, float]]]) -> None:
    """Write a history of the broker's own figures: (time, name -> value)."""
    now: dict[str, float] = {}

    def figures():
        names = ("refused_sends", "forced_deletions", "starts", "role_changes", "lag")
        yield [Measurement(name, "", now.get(name, 0.0)) for name in names]

    recorder = Recorder(directory, figures, Restless(samples[0][0]))
    recorder._open()
    for at_ms, values in samples:
        now.clear()
        now.update(values)
        recorder.sample(at_ms)
    recorder._close()


def test_what_happened_to_the_broker_by_hour(tmp_path):
    down_from, down_to = DAY + HOUR_MS - 2 * FINE_MS, DAY + HOUR_MS + 3 * FINE_MS
    at = [DAY - FINE_MS, *range(DAY, down_from, FINE_MS), *range(down_to, DAY + 2 * HOUR_MS, FINE_MS), DAY + DAY_MS]
    at.remove(DAY + 5 * FINE_MS)  # one missed sample is no time that it did not run
    said = {
        DAY: {"refused_sends": 3.0}, DAY + FINE_MS: {"refused_sends": 4.0, "forced_deletions": 2.0},
        down_to: {"starts": 1.0, "lag": 9.0, "role_changes": 2.0},
        DAY - FINE_MS: {"starts": 1.0}, DAY + DAY_MS: {"refused_sends": 8.0},
    }  # fmt: skip
    count(tmp_path, [(one, said.get(one, {})) for one in at])
    rest = [("down", DAY + hour * HOUR_MS, HOUR_MS) for hour in range(2, 24)]
    assert incidents(tmp_path, snapshot_of()) == [
        ("down", DAY, 2 * FINE_MS), ("down", DAY + HOUR_MS, 3 * FINE_MS), *rest, ("forced_deletions", DAY, 2),
        ("measured", DAY, HOUR_MS - 3 * FINE_MS), ("measured", DAY + HOUR_MS, HOUR_MS - 3 * FINE_MS),
        ("refused_sends", DAY, 7), ("role_changes", DAY + HOUR_MS, 2), ("starts", DAY + HOUR_MS, 1),
    ]  # fmt: skip


def test_time_before_the_first_sample_and_after_the_last_is_not_known(tmp_path):
    count(tmp_path, [(DAY + 2 * HOUR_MS, {}), (DAY + 2 * HOUR_MS + FINE_MS, {})])
    assert incidents(tmp_path, snapshot_of()) == [("measured", DAY + 2 * HOUR_MS, 2 * FINE_MS)]
    assert incidents(tmp_path, snapshot_of(from_ms=DAY + DAY_MS, to_ms=DAY + 2 * DAY_MS)) == []


def test_the_first_start_of_a_new_installation_is_no_event(tmp_path):
    first = DAY + 2 * HOUR_MS
    count(tmp_path, [(first, {"starts": 1.0, "refused_sends": 2.0}), (first + FINE_MS, {"starts": 1.0})])
    assert incidents(tmp_path, snapshot_of()) == [
        ("measured", first, 2 * FINE_MS), ("refused_sends", first, 2), ("starts", first, 1),
    ]  # fmt: skip


def test_without_a_history_nothing_is_known_to_have_happened(tmp_path, capsys):
    assert incidents(tmp_path, snapshot_of()) == []
    (tmp_path / NAME).write_bytes(b"no database" * 1000)
    assert incidents(tmp_path, snapshot_of()) == []
    assert "incidents is empty" in capsys.readouterr().out


def test_what_the_run_imports_of_the_console_knows_no_django():
    code = "import spark_reports.run.measured, sys; sys.exit('django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
