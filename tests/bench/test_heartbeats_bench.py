"""The bench of heartbeats runs, and a broker accepts its heartbeats."""

from __future__ import annotations

import re
import subprocess
import sys

from bench.servers import ROOT


def test_a_small_run_prints_its_row(tmp_path):
    command = [
        sys.executable, "bench/heartbeats.py", "--groups", "5", "--clients", "4", "--period", "0.5", "--seconds", "1",
        "--warm-up", "0.5", "--servers", "rocketbox", "--dir", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    row = re.search(r"^\| rocketbox \| 20 \| (\d+) \| (\d+) \|", done.stdout, re.M)
    assert row, done.stdout
    assert 30 <= int(row[1]) <= 45, "40 a second"
    assert int(row[2]) == 0, "all are answered with 0"
    assert list(tmp_path.iterdir()) == []
