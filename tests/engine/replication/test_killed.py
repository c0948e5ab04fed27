"""SIGKILL of either side under load: the slave's log is the master's, with all that a sync master acknowledged."""

import itertools
import json
import threading
import time
from pathlib import Path

import pytest

from appliance.engine.errors import RocketBoxError
from tests.support.effort import effort
from tests.support.engine import RunningEngine, send_fields
from tests.support.engine_process import EngineProcess, Refused
from tests.support.peer import Peer
from tests.support.ports import reserve_port
from tests.support.set_of_brokers import SMALL
from tests.support.waiting import wait_for

WAITS = "WAIT\x01true\x02"


def log_bytes(data_dir: Path) -> bytes:
    """Return all bytes of its log's files, without the zeros behind its end."""
    files = sorted((data_dir / "store" / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files).rstrip(b"\0")


class Load(threading.Thread):
    """Sends until stopped; keeps the messages that were answered with 0."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.acknowledged: list[bytes] = []
        self.over = False

    def run(self) -> None:
        try:
            peer = Peer(self.address)
            for n in itertools.count():
                if self.over:
                    return
                body = b"%s-%d-" % (self.name.encode(), n) * 100
                if peer.ask(310, send_fields("Orders", n % 4, WAITS), body).code == 0:
                    self.acknowledged.append(body)
        except (OSError, RocketBoxError):
            return  # the broker is dead


@pytest.fixture
def rig(tmp_path):
    """A name server that lives, and a master and a slave that are killed."""
    namesrv = RunningEngine(tmp_path / "namesrv")
    known = {"namesrv_addrs": [namesrv.engine.namesrv_address]}
    port = reserve_port()
    master = EngineProcess(
        tmp_path / "master",
        broker=known | {"broker_name": "set"},
        store=SMALL | {"broker_role": "SYNC_MASTER", "ha_listen_port": port, "slave_timeout_ms": 10_000},
    )
    slave = EngineProcess(
        tmp_path / "slave",
        broker=known | {"broker_name": "set", "broker_id": 1, "slave_read_enable": True},
        store=SMALL | {"broker_role": "SLAVE", "ha_master_address": f"127.0.0.1:{port}"},
    )
    yield master, slave
    for one in (slave, master):
        one.kill()
    namesrv.stop()


def end_of(process: EngineProcess) -> int:

    peer = process.peer()
    try:
        return int(json.loads(peer.ask(28, {}).body)["table"]["commitLogMaxOffset"])
    finally:
        peer.close()


def test_either_side_killed_again_and_again_under_load(rig):
    master, slave = rig
    master.start()
    slave.start()
    acknowledged: list[bytes] = []
    for round_ in range(effort(4, 12, 100)):
        loads = [Load(master.broker) for _ in range(4)]
        for load in loads:
            load.start()
        wait_for(lambda: sum(len(one.acknowledged) for one in loads) > 40, "acknowledgements")  # noqa: B023
        time.sleep(0.05 * (round_ % 6))
        victim = (master, slave)[round_ % 2]
        victim.kill()
        for load in loads:
            load.over = True
        if victim is master:
            for load in loads:
                load.join(60)
            # The slave alone has all acknowledged messages.
            acknowledged += [body for one in loads for body in one.acknowledged]
            held = log_bytes(slave.data_dir)
            assert not [body for body in acknowledged if body not in held]
            victim.start()
        else:
            victim.start()
            for load in loads:
                load.join(60)
            acknowledged += [body for one in loads for body in one.acknowledged]
    wait_for(lambda: end_of(master) == end_of(slave), "the same end", not_yet=(OSError, Refused))
    assert slave.stop() == master.stop() == 0
    ours, theirs = log_bytes(slave.data_dir), log_bytes(master.data_dir)
    assert ours == theirs
    assert not [body for body in acknowledged if body not in ours]
