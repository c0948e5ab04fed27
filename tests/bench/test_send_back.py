"""The bench of messages sent back runs, and its table shows the answers."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_small_run_prints_its_table(tmp_path, flush):
    options = ["--only", "rocketbox", "--rounds", "1", "--seconds", "0.3", "--rate", "200", "--pin", "none"]
    done = subprocess.run(
        [sys.executable, "bench/send_back.py", *options, "--flush", flush, "--dir", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| RocketBox")]
    answered = float(row.split("|")[5].replace(",", ""))
    assert 100 < answered < 300
