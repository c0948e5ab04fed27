"""The console's bench runs and requests pages that exist, and the broker opens its store without repairs."""

from __future__ import annotations

import re
import subprocess
import sys

from bench.servers import ROOT


def test_a_small_run_prints_its_three_tables(tmp_path):
    command = [
        sys.executable, "bench/console.py", "--rounds", "1", "--seconds", "1", "--looks", "1", "--topics", "30",
        "--groups", "10", "--viewers", "3", "--rate", "1000", "--dir", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = re.search(r"RSS of arbiter and worker, three pages answered \| MB \| ([\d.]+)", done.stdout)
    assert found
    assert float(found[1]) <= 120, "the promise of an empty store"
    found = re.search(r"RSS with the API loaded, too \| MB \| ([\d.]+)", done.stdout)
    assert found
    assert float(found[1]) <= 130  # measured 119; a guard against growth, on any machine
    pages = re.findall(r"^\| `(\S+?)` \|", done.stdout, re.M)
    for page in (
        "/",
        "/topics/orders-0015-created/",
        "/groups/billing-0005-workers/",
        "/system/audit/",
        "/api/v1/topics",
        "/dead-letters/",
        "/dead-letters/billing-0005-workers/",
        "/api/v1/groups/billing-0005-workers/dead-letters",
    ):
        assert page in pages, "seen and answered with 200"
    assert any(page.startswith("/replays/") and "progress" in page for page in pages), pages
    refused = re.findall(r"^\| `(\S+ \(\d+\))` \|", done.stdout, re.M)
    assert not refused
    assert re.search(r"^\| p99\.9 \| [\d.]+ \| [\d.]+ \|", done.stdout, re.M)
    assert list(tmp_path.iterdir()) == []
