"""A sync master and its slave, at most one of them Apache's: every acknowledged message is in the slave's log at any
moment, whichever broker is killed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.rig import checker
from tests.rig.broker_set import CREATE_TOPIC, log_end
from tests.rig.checker import Replica
from tests.rig.drain import log_bytes, log_records
from tests.rig.history import Send, read_history
from tests.rig.raw_load import RawLoad
from tests.support.apache import ApacheBroker
from tests.support.peer import Peer
from tests.support.ports import reserve_port
from tests.support.server import Server
from tests.support.waiting import wait_for

NAME, TOPIC, QUEUES = "mixed", "Mixed", 4
FILE = 4 << 20
SIZE = 65_536


class Broker(Protocol):
    """The common surface of a RocketBox broker and an Apache broker."""

    address: str
    commitlog: Path

    def launch(self) -> None: ...
    def wait_until_ready(self) -> None: ...
    def kill(self) -> None: ...


class Ours:
    def __init__(self, directory: Path, namesrv: str, master: bool) -> None:
        port = reserve_port()
        role = {"ROCKETBOX_STORE_BROKERROLE": "SYNC_MASTER"} if master else {
            "ROCKETBOX_STORE_BROKERROLE": "SLAVE", "ROCKETBOX_BROKER_BROKERID": "1",
        }  # fmt: skip
        self.server = Server(
            directory,
            "--broker-name", NAME, "--namesrv-addr", namesrv,
            roles="broker",
            environment=role | {"ROCKETBOX_STORE_MAXMESSAGESIZE": str(SIZE)},
            log_file_mib=FILE >> 20,
            broker_port=port,
        )  # fmt: skip
        self.address = f"127.0.0.1:{port}"
        self.commitlog = directory / "store" / "commitlog"
        self.launch, self.kill = self.server.launch, self.server.kill
        self.wait_until_ready = self.server.wait_until_ready


class Apaches:
    def __init__(self, namesrv: str, master: bool) -> None:
        config: dict[str, object] = {"mappedFileSizeCommitLog": FILE, "maxMessageSize": SIZE}
        config |= {"diskMaxUsedSpaceRatio": 95, "haSendHeartbeatInterval": 500}
        if master:
            config |= {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
        self.broker = ApacheBroker(
            "5.3.3", namesrv, flush="sync", broker_name=NAME, broker_id=0 if master else 1, config=config
        )
        self.address = self.broker.address
        self.commitlog = self.broker.store_dir / "commitlog"
        self.launch, self.kill = self.broker.launch, self.broker.kill
        self.wait_until_ready = self.broker.wait_until_ready


@contextmanager
def pair(tmp_path: Path, master_of: str, slave_of: str) -> Iterator[tuple[Broker, Broker]]:
    """Run a master and its slave; yield both."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(Server(tmp_path / "namesrv", roles="namesrv", log_file_mib=None)).namesrv
        made: list[Any] = []
        for master, whose in ((True, master_of), (False, slave_of)):
            own = tmp_path / ("master" if master else "slave")
            made.append(Ours(own, namesrv, master) if whose == "rocketbox" else Apaches(namesrv, master))
            stack.callback(made[-1].kill)
            made[-1].launch()
            made[-1].wait_until_ready()
        yield made[0], made[1]


def replica(name: str, broker: Broker, end: int, start: int = 0) -> Replica:
    """Return a replica from the broker's log alone, without pulls: Apache's slave has no topics in its first minute."""
    log = log_bytes(broker.commitlog, start, end)
    held = log_records(log, start, [TOPIC], torn=True)
    return Replica(name, held, held, start, log)


PAIRS = [
    ("rocketbox", "rocketbox"),
    pytest.param("rocketbox", "apache", marks=pytest.mark.nightly),
    pytest.param("apache", "rocketbox", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("master_of", "slave_of"), PAIRS)
def test_what_was_acknowledged_is_in_the_slaves_log(tmp_path: Path, master_of: str, slave_of: str) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with pair(tmp_path, master_of, slave_of) as (master, slave):
        peer = Peer(master.address)
        fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES,
                  "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
        assert peer.ask(CREATE_TOPIC, fields).code == 0
        peer.close()

        def together() -> int:
            return wait_for(
                lambda: log_end(master.address) == log_end(slave.address) and log_end(slave.address),
                "the logs to end together", not_yet=(OSError, KeyError, ValueError),
            )  # fmt: skip

        path = tmp_path / "history"
        load = RawLoad(path, {"master": master.address}, TOPIC, seed=seed, timeout_s=4, special=False)
        try:
            load.wait_for(100, 60)
            time.sleep(chance.uniform(0.3, 1.0))
            slave.kill()
            time.sleep(chance.uniform(0.0, 0.5))
            slave.launch()
            slave.wait_until_ready()
            load.wait_for(300, 60, "after the slave was killed")
            # Every message acknowledged until now is in the slave's log, though the master is down.
            master.kill()
            load.stop()
            alone = replica("slave", slave, log_end(slave.address))
            lost = checker.lost([one for one in read_history([path]) if isinstance(one, Send)], alone)
            assert not lost, f"seed {seed}: {lost}"
            master.launch()
            master.wait_until_ready()
            end = together()
        finally:
            load.close()
        wrong = checker.check(read_history([path]), [replica("master", master, end), replica("slave", slave, end)])
        assert not wrong, f"seed {seed}: " + "\n".join(wrong)
