"""tests/support/ports.py: no two test runs get the same port."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.engine import engine
from tests.support import ports

ROOT = Path(__file__).parents[1]
HOLDS = """
import sys
from pathlib import Path
from tests.support import ports
ports.lock_file = lambda: Path(sys.argv[1])
ports.FIRST, ports.END = int(sys.argv[2]), int(sys.argv[3])
print(*(ports.reserve_port() for _ in range(int(sys.argv[4]))), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Ten blocks of ports within a range that this process holds, and a file of locks that no other run uses."""
    found = [ports.reserve_port() for _ in range(10)]
    while found[-1] - found[-10] != 45:
        found.append(ports.reserve_port())
    first = found[-10] - 2
    monkeypatch.setattr(ports, "FIRST", first)
    monkeypatch.setattr(ports, "END", first + 50)
    monkeypatch.setattr(ports, "lock_file", lambda: tmp_path / "locks")
    monkeypatch.setattr(ports, "_own", set())
    monkeypatch.setattr(ports, "_file", None)
    yield tmp_path / "locks"
    if ports._file is not None:
        os.close(ports._file)


class Other:
    """Another process that has reserved ports."""

    def __init__(self, locks, count):
        command = [sys.executable, "-c", HOLDS, str(locks), str(ports.FIRST), str(ports.END), str(count)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ports(self):
        return [int(text) for text in self.process.stdout.readline().split()]

    def end(self, kill=False):
        if kill:
            self.process.kill()
        self.process.communicate()


def test_two_processes_never_get_the_same_one(alone):
    other = Other(alone, 4)
    try:
        theirs = other.ports()
        assert len(set(theirs)) == 4
        ours = {ports.reserve_port() for _ in range(6)}
        assert len(ours | set(theirs)) == 10
        with pytest.raises(ports.NoPort):
            ports.reserve_port()
    finally:
        other.end()


def test_what_a_killed_process_had_is_free_again(alone):
    other = Other(alone, 10)
    assert len(other.ports()) == 10
    with pytest.raises(ports.NoPort):
        ports.reserve_port()
    other.end(kill=True)
    assert ports.reserve_port()


def test_a_block_in_which_somebody_listens_is_passed_over_and_not_kept(alone):
    taken = ports.FIRST + 5 * 3 + 4
    with socket.create_server(("0.0.0.0", taken)):
        got = {ports.reserve_port() for _ in range(9)}
        assert all(abs(port - taken) > 2 for port in got)
        with pytest.raises(ports.NoPort):
            ports.reserve_port()
    other = Other(alone, 1)
    assert other.ports() == [ports.FIRST + 5 * 3 + 2]
    other.end()


def test_a_child_does_not_let_go_of_what_its_parent_has(alone):
    mine = {ports.reserve_port() for _ in range(10)}
    subprocess.run(["true"], check=True)  # it closes what it inherited
    other = Other(alone, 1)
    assert other.ports() == []  # it raised
    other.end()
    assert len(mine) == 10


def test_nobody_takes_ports_of_the_kernels_range():
    begin = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert begin >= ports.END


def test_an_engine_picks_no_port_that_a_test_may_reserve():
    assert engine._PICKED_PORTS.start > ports.END + engine.VIP_DISTANCE
