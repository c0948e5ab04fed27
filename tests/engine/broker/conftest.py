"""A broker's tables and processors without sockets: requests go in, answers come out, and the test moves the clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker.clients import ClientManager
from appliance.engine.broker.filters.consumer_filters import ConsumerFilters
from appliance.engine.broker.group_service import SubscriptionGroupService
from appliance.engine.broker.groups import SubscriptionGroupManager
from appliance.engine.broker.offsets import ConsumerOffsetManager
from appliance.engine.broker.processors.admin_broker import AdminBrokerProcessor
from appliance.engine.broker.processors.admin_groups import AdminGroupsProcessor
from appliance.engine.broker.processors.admin_topics import AdminTopicsProcessor
from appliance.engine.broker.processors.client import ClientProcessor
from appliance.engine.broker.processors.consumer import ConsumerProcessor
from appliance.engine.broker.queue_locks import RebalanceLockManager
from appliance.engine.broker.topic_service import TopicService
from appliance.engine.broker.topics import TopicConfigManager
from appliance.engine.config import BrokerConfig, EngineConfig
from appliance.engine.config_journal import ConfigJournal
from appliance.engine.disk import Disk
from appliance.engine.protocol.command import FLAG_ONEWAY, RemotingCommand
from appliance.engine.remoting.dispatcher import Dispatcher
from tests.support.clock import FakeClock
from tests.support.engine import Peer
from tests.support.fakes import FakeConnection, InlinePool


class FakeStore:
    """A store as processors use it. `hot`: queues whose first message is in memory; `error`: raised by calls."""

    def __init__(self) -> None:
        self.min_offsets: dict[tuple[str, int], int] = {}
        self.hot: set[tuple[str, int]] = set()
        self.deleted: list[str] = []
        self.error: Exception | None = None

    def young_offset(self, topic: str, queue_id: int) -> int:
        if self.error is not None:
            raise self.error
        return self.min_offsets.get((topic, queue_id), 0) if (topic, queue_id) in self.hot else -1

    def find_queue(self, topic: str, queue_id: int) -> object | None:
        return (topic, queue_id) if (topic, queue_id) in self.min_offsets else None

    def has_queues(self, topic: str) -> bool:
        return any(topic == of for of, _ in self.min_offsets)

    def delete_topic(self, topic: str) -> None:
        if self.error is not None:
            raise self.error
        self.deleted.append(topic)


class FakeNameServers:
    """Remembers what was registered."""

    def __init__(self) -> None:
        self.registered: list[str] = []

    def register_topics(self, changed: Any, seconds: float = 0.0) -> dict[str, bool]:
        self.registered += [config.topic_name for config in changed]
        return {}


class FakeStats:
    """A store's figures."""

    def runtime_info(self) -> dict[str, str]:
        return {"putTps": "1.0 2.0 3.0", "brokerVersion": "479"}


class BrokerDesk:
    """The tables of one directory and the processors that answer from them."""

    def __init__(self, directory: Path, clock: FakeClock, journal_disk: Any = None, **options: Any) -> None:
        self.clock = clock
        self.directory = directory
        config_dir = directory / "store" / "config"
        config_dir.mkdir(parents=True, exist_ok=True)
        self.config_dir = config_dir
        self.config = replace(BrokerConfig(broker_name="broker-a"), **options)
        self.journal = ConfigJournal(directory / "rocketbox" / "config.journal", journal_disk)
        self.topics = TopicConfigManager(config_dir / "topics.json", self.config, self.journal, clock)
        self.groups = SubscriptionGroupManager(config_dir / "subscriptionGroup.json", self.config, self.journal, clock)
        self.offsets = ConsumerOffsetManager(config_dir / "consumerOffset.json", 5000, clock)
        self.filters = ConsumerFilters(config_dir / "consumerFilter.json", self.config, clock)
        self.clients = ClientManager(self.config, self.groups, clock, lambda call: call(), self.filters)
        self.locks = RebalanceLockManager(clock)
        self.store = FakeStore()
        self.name_servers = FakeNameServers()
        self.topic_service = TopicService(self.topics, self.offsets, self.store, self.name_servers)
        self.group_service = SubscriptionGroupService(self.groups, self.offsets, self.topic_service)
        engine = EngineConfig(data_dir=directory, broker=self.config)
        #: Calls to run in the next ticks.
        self.later: list[Callable[[], None]] = []
        self.dispatcher = Dispatcher({"admin": InlinePool(), "query": InlinePool()})  # type: ignore[dict-item]
        for processor in (
            ClientProcessor(
                self.clients,
                self.groups,
                self.topics,
                self.later.append,
                InlinePool(),  # type: ignore[arg-type]
                self.config,
            ),
            ConsumerProcessor(self.store, self.topics, self.groups, self.offsets, self.locks),  # type: ignore[arg-type]
            AdminTopicsProcessor(self.topics, self.topic_service),
            AdminGroupsProcessor(self.groups, self.group_service),
            AdminBrokerProcessor(engine, FakeStats(), "127.0.0.1:20911", clock),
        ):
            processor.register(self.dispatcher)
        self.peer = FakeConnection()
        self.journal.start()

    def ask(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: Any = b"",
        peer: FakeConnection | None = None,
        version: int = 479,
        flag: int = 0,
    ) -> RemotingCommand:
        """Return the answer to one request. body: bytes, or a value to send as JSON."""
        peer = peer or self.peer
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = RemotingCommand(code, opaque=7, flag=flag, version=version, ext_fields=ext, body=raw)
        before = len(peer.answers)
        self.dispatcher.dispatch_request(peer, request)  # type: ignore[arg-type]
        while self.later:
            self.later.pop(0)()
        if flag & FLAG_ONEWAY:
            assert len(peer.answers) == before
            return RemotingCommand(-1)
        assert len(peer.answers) == before + 1, "exactly one answer"
        return peer.answers[-1]

    def heartbeat(self, peer: FakeConnection, client_id: str = "c@1", **body: Any) -> RemotingCommand:
        return self.ask(34, body={"clientID": client_id, **body}, peer=peer)

    def stop(self) -> None:
        """Stop in an orderly way."""
        for table in (self.offsets, self.topics, self.groups):
            table.stop()
        self.journal.stop()


def subscription(topic: str, expression: str = "*", version: int = 1, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "subString": expression, "subVersion": version, **more}


def consumer(group: str, *topics: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    """An entry of a heartbeat's consumerDataSet."""
    wanted = [subscription(topic) if isinstance(topic, str) else topic for topic in topics]
    return {"groupName": group, "subscriptionDataSet": wanted, **more}


class ForgetfulDisk(Disk):
    """A journal's disk that loses everything but the synced bytes at a power cut."""

    path: Path
    synced = b""

    def open(self, path: Path, create: bool = False, read_only: bool = False) -> int:
        self.path = path
        return super().open(path, create, read_only)

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        self.synced = self.path.read_bytes()

    def power_cut(self) -> None:
        self.path.write_bytes(self.synced)


@pytest.fixture
def peer(engine):
    """A connection to the broker of the module's own `engine`."""
    peer = Peer(engine.broker_address)
    yield peer
    peer.close()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def open_desk(tmp_path, clock):
    """Open the broker on the same directory, as often as it is called; options are fields of BrokerConfig."""
    desks = []

    def open_(journal_disk=None, **options):
        desk = BrokerDesk(tmp_path, clock, journal_disk, **options)
        desks.append(desk)
        return desk

    yield open_
    for desk in desks:
        desk.journal.stop()


@pytest.fixture
def desk(open_desk):
    return open_desk()
