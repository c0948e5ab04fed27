"""The bench of delivery events runs, and prints a row for each twin and size."""

from __future__ import annotations

import re
import subprocess
import sys

from bench.servers import ROOT


def test_a_small_run_prints_its_rows():
    command = [sys.executable, "bench/delivery_events.py", "--rounds", "1", "--pulls", "32"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(compiled|pure) +(\d+) +(\d+\.\d\d) +(\d+\.\d\d)$", done.stdout, re.M)
    assert [(twin, size) for twin, size, _, _ in rows] == [
        ("compiled", "1"), ("compiled", "32"), ("pure", "1"), ("pure", "32"),
    ], done.stdout  # fmt: skip
    assert all(float(off) > 0 and float(on) > 0 for _, _, off, on in rows)
