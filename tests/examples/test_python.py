"""examples/python runs as a user runs it: with a broker, and without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import reserve_port

pytest_plugins = ("appliance.pytest_rocketbox",)

ROOT = Path(__file__).resolve().parents[2]


def run(nameserver):
    return subprocess.run(
        [sys.executable, ROOT / "examples/python/orders.py", nameserver],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_orders_are_sent_and_billed_once_over_two_runs(rocketbox):
    for _ in range(2):
        ran = run(rocketbox.namesrv)
        assert ran.returncode == 0, ran.stderr
        lines = ran.stdout.splitlines()
        assert lines[0] == "sent 3"
        assert sorted(line.split("'")[1] for line in lines[1:]) == ["order 0", "order 1", "order 2"]


def test_without_a_server_it_says_what_to_do():
    ran = run(f"127.0.0.1:{reserve_port()}")
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert "Connection refused" in line
    assert "`rocketbox serve` starts one" in line


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
