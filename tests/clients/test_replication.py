"""The official Java client reads a slave whose master is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.agents import Agent
from tests.clients.conftest import JAVA
from tests.clients.messages import assert_delivered, rich
from tests.support.apache import ApacheBroker
from tests.support.engine import RunningEngine
from tests.support.engine_process import EngineProcess
from tests.support.peer import Peer
from tests.support.ports import reserve_port
from tests.support.set_of_brokers import SMALL, start_slave
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.own, pytest.mark.parametrize("agent", JAVA[-1:], indirect=True)]


def asked(address: str, code: int, fields: dict[str, str] | None = None) -> dict:
    peer = Peer(address)
    try:
        answer = peer.ask(code, fields or {})
        return json.loads(answer.body) if answer.code == 0 and answer.body else {}
    finally:
        peer.close()


@pytest.mark.parametrize("slave_of", ["rocketbox", pytest.param("apache-5.3.3", marks=pytest.mark.nightly)])
def test_java_consumes_from_the_slave_of_a_dead_master(agent: Agent, tmp_path: Path, slave_of: str) -> None:
    namesrv = RunningEngine(tmp_path / "namesrv")
    routes = namesrv.engine.namesrv_address
    broker = {"broker_name": "set", "namesrv_addrs": [routes]}
    master = EngineProcess(tmp_path / "master", broker=broker, store=SMALL | {"ha_listen_port": reserve_port()})
    slave: RunningEngine | ApacheBroker | None = None
    try:
        master.start()
        peer = master.peer()
        made = {"topic": "Read", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
        assert peer.ask(17, made).code == 0
        if slave_of == "rocketbox":
            slave = start_slave(tmp_path / "slave", routes, name="set")
            address = slave.engine.broker_address
        else:
            sizes = {"mappedFileSizeCommitLog": SMALL["mapped_file_size_commit_log"], "diskMaxUsedSpaceRatio": 95}
            config = {**sizes, "maxMessageSize": SMALL["max_message_size"], "slaveReadEnable": True}
            slave = ApacheBroker("5.3.3", routes, broker_name="set", broker_id=1, config=config)
            slave.__enter__()
            address = slave.address
        messages = rich(60)
        with agent.producer(routes) as producer:
            acks = producer.send("Read", messages)
        end = asked(master.broker, 28)["table"]["commitLogMaxOffset"]
        wait_for(
            lambda: asked(address, 28)["table"]["commitLogMaxOffset"] == end,
            "the slave to have it",
            not_yet=(KeyError, ValueError),  # Apache answers 28 with less for a moment after its start
        )
        wait_for(lambda: "Read" in asked(address, 21)["topicConfigTable"], "its tables", 90)
        peer.close()
        master.kill()
        wait_for(
            lambda: list(asked(routes, 105, {"topic": "Read", "acceptStandardJsonOnly": "true"})["brokerDatas"][0]
                         ["brokerAddrs"].values()) == [address],
            "the route to name the slave alone",
        )  # fmt: skip
        with agent.push(routes, "Read", "Readers") as consumer:
            assert_delivered(messages, acks, consumer.wait_for(60, 60))
    finally:
        if isinstance(slave, RunningEngine):
            slave.stop()
        elif slave is not None:
            slave.__exit__()
        master.kill()
        namesrv.stop()
