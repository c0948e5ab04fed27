"""run.py prints its tables from a real, very short run."""

from __future__ import annotations

import json

from appliance.engine.hotpath import COMPILED
from bench import run


def test_a_short_run_prints_three_tables(tmp_path, capsys):
    twin = "rocketbox" if COMPILED else "pure"
    status = run.main(
        [
            *("--rows", "batch,pull-1", "--servers", f"{twin},rig", "--seconds", "1.5", "--warm-up", "0.5"),
            *("--rounds", "1", "--no-calibration", "--pin", "none"),
            *("--dir", str(tmp_path), "--json", str(tmp_path / "out.json")),
        ]
    )
    assert status == 0
    _, figures, latencies, cpu = capsys.readouterr().out.strip().split("\n\n")
    for table in (figures, latencies, cpu):
        widths = {line.count("|") for line in table.splitlines()}
        assert len(widths) == 1, table
        assert len(table.splitlines()) == 2 + 2
    assert "batches of 32" in figures
    assert all(line.endswith("| 0/0 |") for line in figures.splitlines()[2:]), figures
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    for key in ("batch", "pull-1"):
        for label in (twin, "rig"):
            (sample,) = rows[key][label]
            assert sample["cpu_ms"] > 0
            assert sample["generator_cores"] > 0
            assert sample["values"][key] > 0
    both = rows["batch"]["rig"][0]
    assert both["raw"]["connections"] == 4, "one generator of two has half of the connections"
    assert both["raw"]["rate"] == both["values"]["batch"]


def test_the_column_of_a_twin_that_does_not_run_stays_empty(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("bench.servers.RocketBoxServer.runs_compiled", lambda server: server.label == "pure")
    options = ("--rows", "send-1-async", "--servers", "rocketbox,pure", "--seconds", "0.1", "--rounds", "1")
    status = run.main([*options, "--no-calibration", "--pin", "none", "--dir", str(tmp_path)])
    assert status == 1
    said = capsys.readouterr()
    assert "| sync send, 1 connection, async flush | msg/s |  |  |" in said.out
    assert "the compiled part is not there" in said.err
    assert "in spite of ROCKETBOX_PURE" in said.err
    assert list(tmp_path.iterdir()) == []


def test_rows_are_named_whole_or_by_how_they_begin():
    assert [row.key for row in run.chosen_rows("pull-16")] == ["pull-16"]
    assert [row.key for row in run.chosen_rows("latency,pull-1")] == ["pull-1", "latency-async", "latency-sync"]
    assert len(run.chosen_rows("goals")) == len(run.GOALS)
