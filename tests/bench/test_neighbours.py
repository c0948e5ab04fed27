"""The bench of neighbours runs, and its neighbours do work meanwhile."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from bench.neighbours import Sample, table
from bench.servers import ROOT


def test_a_small_run_prints_its_table(tmp_path):
    command = [
        sys.executable, "bench/neighbours.py", "--only", "nothing,python,export", "--rounds", "1", "--seconds", "1",
        "--rate", "500", "--gib", "0.2", "--tries", "1", "--dir", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \|.* \| ([\d.]+) \| [\d.]+ \|$", done.stdout, re.M)
    assert [row[0] for row in rows] == ["nothing", "python", "export"]
    assert float(rows[1][3]) > 0, "the run counted beside the sends"
    assert list(tmp_path.iterdir()) == []


def test_ratios_are_of_the_same_round():
    def of(p99: float) -> Sample:
        return Sample({"p50": 0.1, "p99": p99, "p99.9": p99}, 0.5, 0.1, 0.0)

    options = argparse.Namespace(rounds=3, seconds=8.0, rate=20_000, flush="async")
    samples = {"nothing": [of(1), of(10), of(2)], "spark": [of(1.5), of(10), of(4)]}
    shown = table(options, samples)
    assert "| spark | 0.100 | 4.00 | 4.00 | 1.50 (1.00 to 2.00) |" in shown
