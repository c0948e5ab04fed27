"""The rows of transactions and timers run, very short, and count no errors."""

from __future__ import annotations

import json

import pytest

from appliance.engine.hotpath import COMPILED
from bench import run


@pytest.mark.parametrize(
    ("row", "figures"),
    [
        ("transaction", ("transaction", "transaction-p99")),
        ("timer", ("timer-p50", "timer-p99")),
        ("timer-pending", ("timer-pending-rss", "timer-pending-start")),
        ("open-halves", ("open-halves-round", "open-halves-rss")),
    ],
)
def test_a_short_run_of_a_row(tmp_path, capsys, monkeypatch, row, figures):
    monkeypatch.setattr("bench.backlogs.SETTLE_S", 0.1)
    monkeypatch.setattr("bench.rows.SETTLE_S", 0.1)
    twin = "rocketbox" if COMPILED else "pure"
    status = run.main(
        [
            *("--rows", row, "--servers", twin, "--seconds", "0.3", "--warm-up", "0.2", "--rounds", "1"),
            *("--no-calibration", "--pin", "none", "--pending-timers", "500", "--open-halves", "500"),
            *("--dir", str(tmp_path), "--json", str(tmp_path / "out.json")),
        ]
    )
    assert status == 0, capsys.readouterr().err
    [sample] = json.loads((tmp_path / "out.json").read_text())["rows"][row][twin]
    assert sample["values"].keys() == set(figures)
    assert sample["errors"] == 0
