"""RocketBox's name server with Apache's brokers, and RocketBox's registration with Apache's name servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.engine import fastjson
from appliance.engine.broker.registration import Network, Registration
from appliance.engine.broker.role import RegisteredAs
from appliance.engine.broker.topic_config import TopicConfig
from appliance.engine.broker.topics import TopicConfigManager
from appliance.engine.clock import Clock
from appliance.engine.config import EngineConfig
from appliance.engine.config_journal import ConfigJournal
from appliance.engine.namesrv import processor
from appliance.engine.namesrv.register_body import RegisterBody, read_register_body
from appliance.engine.protocol.codes import RequestCode
from tests.support.apache import VERSIONS, ApacheBroker, ApacheNamesrv, ask
from tests.support.waiting import wait_for

from .conftest import LiveNamesrv

HEAP = "256m"


# --- our broker at Apache's name server


class OurBroker:
    """Topic table and registration of a broker without a port."""

    def __init__(
        self, directory: Path, namesrv: str, broker_id: int = 0, says_good_bye: bool = True, port: int = 0
    ) -> None:
        """port: in its address; 0 for one more than its id."""
        config = EngineConfig(data_dir=directory)
        broker = replace(config.broker, broker_name="broker-ours", broker_id=broker_id)
        config = replace(config, broker=broker)
        directory.mkdir()
        self.journal = ConfigJournal(directory / "journal")
        self.journal.start()
        self.topics = TopicConfigManager(directory / "topics.json", broker, self.journal, Clock())
        self.address = f"127.0.0.1:{port or 1 + broker_id}"
        network = Network(self.address, "127.0.0.1:9", (namesrv,))
        registered_as = RegisteredAs(says_good_bye=says_good_bye)
        self.registration = Registration(broker, network, self.topics, registered_as=registered_as)
        self.registration.start()

    def put(self, config: TopicConfig, seconds: float = 60.0) -> dict[str, bool]:
        self.topics.update(config)
        return self.registration.register_topics([config], seconds)

    def stop(self) -> None:
        self.registration.stop()
        self.journal.stop()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., OurBroker]]:
    started: list[OurBroker] = []

    def start(namesrv: str, broker_id: int = 0, says_good_bye: bool = True, port: int = 0) -> OurBroker:
        started.append(OurBroker(tmp_path / f"broker-{len(started)}", namesrv, broker_id, says_good_bye, port))
        assert started[-1].registration.wait_registered(namesrv, 60)
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


def _clusters(namesrv: str) -> dict[str, Any]:
    document: dict[str, Any] = fastjson.loads(ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO, {})[1])
    return document


def _members(namesrv: str) -> dict[str, str]:
    members: dict[str, str] = _clusters(namesrv)["brokerAddrTable"]["broker-ours"]["brokerAddrs"]
    return members


def _brokers_of(namesrv: str, topic: str) -> list[dict[str, str]]:
    """The addresses by broker id of each broker name in the route of a topic."""
    route = _route(namesrv, topic)
    return [] if route is None else [one["brokerAddrs"] for one in route["brokerDatas"]]


def _route(namesrv: str, topic: str) -> dict[str, Any] | None:
    header, body = ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return fastjson.loads(body) if header["code"] == 0 else None


@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_name_server_takes_our_registration(version: str, start_broker: Callable[..., OurBroker]) -> None:
    with ApacheNamesrv(version, heap=HEAP) as apache:
        broker = start_broker(apache.address)
        # The whole table: every topic from the start is routed to the RocketBox broker.
        for topic in broker.topics.all():
            route = _route(apache.address, topic.topic_name)
            assert route is not None, topic.topic_name
            assert route["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}
            assert route["queueDatas"][0]["perm"] == topic.perm
            assert route["queueDatas"][0]["readQueueNums"] == topic.read_queue_nums
        # Single changes: each is routed when register_topics has returned.
        for reads, attributes in ((3, {"+message.type": "FIFO"}), (5, {})):
            changed = TopicConfig(topic_name="Changed", read_queue_nums=reads, attributes=attributes)
            assert broker.put(changed) == {apache.address: True}
            route = _route(apache.address, "Changed")
            assert route is not None
            assert route["queueDatas"][0]["readQueueNums"] == reads
        # A RocketBox slave gets its master's address.
        slave = start_broker(apache.address, broker_id=1)
        assert slave.registration.master == (broker.address, "127.0.0.1:9")
        addresses = {"0": broker.address, "1": slave.address}
        assert _clusters(apache.address)["brokerAddrTable"]["broker-ours"]["brokerAddrs"] == addresses
        # A good-bye removes the broker from the routes.
        for leaving in (slave, broker):
            leaving.registration.unregister(5.0)
        wait_for(lambda: not _clusters(apache.address)["brokerAddrTable"], "Apache's name server to forget us")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_with_another_address_is_in_the_routes_of_apaches_name_server_by_that_one_alone(
    version: str, start_broker: Callable[..., OurBroker]
) -> None:
    with ApacheNamesrv(version, heap=HEAP) as apache:
        broker = start_broker(apache.address)
        # The last one is an address that it had before.
        for address in ("127.0.0.1:21", "127.0.0.1:22", "127.0.0.1:21"):
            broker.registration.readdress(address)
            assert broker.registration.wait_registered(apache.address, 60)
            assert _brokers_of(apache.address, "TBW102") == [{"0": address}]
            # It handles closed connections one after the other, in this order.
            slave = start_broker(apache.address, broker_id=1, says_good_bye=False)
            slave.registration.unregister(5.0)
            wait_for(lambda: "1" not in _members(apache.address), "the closed connections to be handled")
            assert _brokers_of(apache.address, "TBW102") == [{"0": address}]
            assert broker.put(TopicConfig(topic_name="Later")) == {apache.address: True}
            assert _brokers_of(apache.address, "Later") == [{"0": address}]


def test_a_deposed_leader_that_comes_back_leaves_the_next_one_in_the_routes_of_apaches_name_server(
    start_broker: Callable[..., OurBroker],
) -> None:
    """4.9.7 takes a good-bye of id 0 for one of whoever has it by then."""
    with ApacheNamesrv("4.9.7", heap=HEAP) as apache:
        deposed = start_broker(apache.address, says_good_bye=False)
        leader = start_broker(apache.address, says_good_bye=False, port=3)
        assert _brokers_of(apache.address, "TBW102") == [{"0": leader.address}]
        # It handles closed connections one after the other, in this order.
        slave = start_broker(apache.address, broker_id=1, says_good_bye=False)
        for leaving in (deposed, slave):
            leaving.registration.unregister(5.0)
        wait_for(lambda: "1" not in _members(apache.address), "the closed connections to be handled")
        assert _brokers_of(apache.address, "TBW102") == [{"0": leader.address}]
        back = start_broker(apache.address, broker_id=1, says_good_bye=False, port=1)
        assert back.address == deposed.address
        assert _brokers_of(apache.address, "TBW102") == [{"0": leader.address, "1": back.address}]


@pytest.mark.nightly
def test_apaches_name_server_that_was_killed_is_told_again(start_broker: Callable[..., OurBroker]) -> None:
    with ApacheNamesrv("5.3.3", heap=HEAP) as first:
        broker = start_broker(first.address)
        first.kill()
        broker.put(TopicConfig(topic_name="Meanwhile"), seconds=0.0)
        with ApacheNamesrv("5.3.3", heap=HEAP, port=first.port) as second:
            wait_for(lambda: _route(second.address, "Meanwhile") is not None, "the registration to come again")
            # A change may come first, and the whole table once the name server has asked for it.
            wait_for(lambda: _route(second.address, "TBW102") is not None, "all of the table")


# --- Apache's broker at our name server


@pytest.mark.parametrize(
    "compressed", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["plain", "compressed"]
)
@pytest.mark.parametrize("version", VERSIONS)
def test_our_name_server_takes_apaches_brokers(
    live_namesrv: LiveNamesrv, version: str, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_bytes = set()

    def spy(body: bytes, sender: int, said: bool) -> RegisterBody:
        first_bytes.add(body[:1])
        return read_register_body(body, sender, said)

    monkeypatch.setattr(processor, "read_register_body", spy)
    config = {"compressedRegister": compressed}
    with ApacheBroker(version, live_namesrv.address, broker_name="broker-apache", config=config, heap=HEAP) as apache:
        # wait_until_ready has seen it in the cluster list; its topics came with it.
        assert {"TBW102", "SELF_TEST_TOPIC", "DefaultCluster", "broker-apache"} <= live_namesrv.topics()
        route = live_namesrv.route("TBW102")
        assert route is not None
        assert route["brokerDatas"] == [
            {
                "brokerAddrs": {"0": apache.address},
                "brokerName": "broker-apache",
                "cluster": "DefaultCluster",
                "enableActingMaster": False,
            }
        ]
        assert route["queueDatas"][0]["perm"] == 7
        # A topic created at the broker is routed when the broker has answered.
        fields = {
            "topic": "Created",
            "defaultTopic": "TBW102",
            "readQueueNums": "3",
            "writeQueueNums": "5",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        header, _ = ask(apache.address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        assert header["code"] == 0
        created = live_namesrv.route("Created")
        assert created is not None
        queues = created["queueDatas"][0]
        assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 5, 6)
        # A slave gets its master's address, and both are in the route.
        with ApacheBroker(
            version, live_namesrv.address, broker_name="broker-apache", broker_id=1, config=config, heap=HEAP
        ) as slave:
            route = live_namesrv.route("TBW102")
            assert route is not None
            assert route["brokerDatas"][0]["brokerAddrs"] == {"0": apache.address, "1": slave.address}
            slave.kill()
            wait_for(
                lambda: json.dumps(live_namesrv.route("TBW102")).count(slave.address) == 0,
                "a killed slave to leave the route",
            )
        # A single topic that changed may come plain from a broker that compresses its table.
        assert first_bytes == {b"{"} or (compressed and b"x" in first_bytes and first_bytes <= {b"x", b"{"})
        assert (b"x" in first_bytes) is compressed
        # Killed, not stopped: its connection closes, and all its entries go at once.
        apache.kill()
        wait_for(lambda: live_namesrv.topics() == set(), "a killed broker to leave the routes")
        assert live_namesrv.brokers() == set()
