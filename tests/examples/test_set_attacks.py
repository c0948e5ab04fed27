"""A set of two whose leader is stopped and resumed, and whose directory is used twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.peer import send_fields
from tests.support.server import ROOT
from tests.support.set_of_two import SEND, TOPIC, SetOfTwo
from tests.support.standstill import stop_process
from tests.support.waiting import wait_for


@pytest.fixture
def brokers(tmp_path) -> Iterator[SetOfTwo]:
    with SetOfTwo(tmp_path) as running:
        yield running


def verified(data_dir: Path) -> str:
    """Return the findings of `store verify`; "" if there are none."""
    command = [sys.executable, "-m", "appliance.main", "store", "verify", str(data_dir)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else f"{done.returncode}: {done.stdout[-1000:]}{done.stderr[-1000:]}"


def test_a_leader_that_slept_acknowledges_nothing_when_it_wakes(brokers):
    assert brokers.send(1, 30) == [0] * 30
    asleep = brokers.peer(1)
    stop_process(int(brokers.brokers[1].ready["pid"]))
    try:
        # These wait in its sockets until it wakes.
        for number in range(20):
            asleep.send(SEND, send_fields(TOPIC, 0, ""), b"to one that sleeps %d" % number)
        assert brokers.wait_for_sends((2,)) == 2
        assert brokers.send(2, 30) == [0] * 30
        time.sleep(5)  # as long as a machine that swaps, or a virtual one that moves
    finally:
        brokers.brokers[1].signal(signal.SIGCONT)
    codes = []
    try:
        for _ in range(20):
            codes.append(asleep.receive().code)
    except (OSError, EOFError, AssertionError):
        pass
    brokers.hang_up(1)
    brokers.wait_in_sync()
    assert brokers.leader() == 2
    assert 0 not in codes
    found = brokers.bodies_at(2)
    assert [one for one in found if one in brokers.acknowledged] == brokers.acknowledged
    wait_for(lambda: brokers.bodies_at(1) == found, "both to show the same")
    # A second process on a directory that is in use, at another address, ends at once and changes nothing.
    machine = brokers.brokers[2]
    other = machine.file.with_name("other.toml")
    other.write_text(machine.file.read_text().replace(f'"{machine.host}"', f'"{brokers.layout.address(9, 0)[:-2]}"'))
    command = [sys.executable, "-m", "appliance.main", "serve", "-c", str(other)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "in use" in done.stdout + done.stderr
    assert brokers.send(2, 5) == [0] * 5
    for one in brokers.brokers.values():
        one.stop()
    for one in brokers.brokers.values():
        assert verified(one.data_dir / "rocketbox") == ""
