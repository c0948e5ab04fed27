"""examples/python runs as a user runs it: with a broker, and without one."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.ports import reserve_port

pytest_plugins = ("appliance.pytest_rocketbox",)

ROOT = Path(__file__).resolve().parents[2]


def environment():
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


def run(nameserver, *arguments, program="orders.py"):
    return subprocess.run(
        [sys.executable, ROOT / "examples/python" / program, nameserver, *arguments],
        env=environment(),
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


def test_orders_are_billed_until_the_service_is_told_to_stop(rocketbox):
    producer = rocketbox.client(timeout=60)
    with producer:
        for key, options in (("order-1", {}), ("order-2", {"properties": {"paid": "later"}}), ((), {})):
            producer.producer().send("orders", "an order", tags="paid", keys=[key] if key else [], **options)
    with subprocess.Popen(
        [sys.executable, ROOT / "examples/python/billing.py", rocketbox.namesrv],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as service:
        patience = threading.Timer(120, service.kill)  # then nothing comes any more
        patience.start()
        try:
            lines = set()
            while not {"billed order-1, attempt 1\n", "billed order-2, attempt 2\n"} <= lines:
                line = service.stdout.readline()
                assert line, service.stderr.read()
                lines.add(line)
            service.send_signal(signal.SIGTERM)
            assert service.wait(60) == 0
        finally:
            patience.cancel()
            service.kill()


def test_orders_that_are_saved_are_told_and_others_are_not(rocketbox, consumed, tmp_path):
    database = tmp_path / "orders.db"
    for _ in range(2):
        ran = run(rocketbox.namesrv, str(database), program="transactions.py")
        assert ran.returncode == 0, ran.stderr
        first, second, third = ran.stdout.splitlines()
        assert (first, third) == ("saved and told: 10", "saved and told: 30")
        assert second.startswith("not saved, and not told: CHECK constraint failed")
    with closing(sqlite3.connect(database)) as orders:
        saved = dict(orders.execute("SELECT id, price FROM orders"))
    told = consumed("paid-orders", 4, timeout=60)
    assert {message.keys[0]: message.text for message in told} == {key: f"paid {price}" for key, price in saved.items()}


def test_many_are_stored_and_a_reminder_is_taken_back(rocketbox, consumed):
    ran = run(rocketbox.namesrv, program="many.py")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["stored 1000", "a reminder was sent and taken back"]
    assert len(consumed("measurements", 1000, timeout=60)) == 1000


@pytest.mark.parametrize("program", ["orders.py", "transactions.py", "many.py", "billing.py"])
def test_without_a_server_it_says_what_to_do(program, tmp_path):
    more = [str(tmp_path / "orders.db")] if program == "transactions.py" else []
    ran = run(f"127.0.0.1:{reserve_port()}", *more, program=program)
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert "Connection refused" in line
    assert "`rocketbox serve` starts one" in line


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
