"""A name server without sockets: requests go in, answers come out, and the test moves the clock."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.clock import Clock
from appliance.engine.config import EngineConfig
from appliance.engine.namesrv.namesrv import NameServer
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.remoting.dispatcher import Dispatcher, WorkerPool
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.remoting.server import RemotingServer, listen
from tests.support.clock import FakeClock
from tests.support.fakes import FakeConnection, InlineLoop, InlinePool


class QuietServer:
    """Keeps the listeners for closed connections."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Any], None]] = []

    def on_close(self, listener: Callable[[Any], None]) -> None:
        self.listeners.append(listener)


class Desk:
    """The name server under test, addressed by request code."""

    def __init__(self, data_dir: Path, **namesrv: Any) -> None:
        config = EngineConfig(data_dir=data_dir)
        for name, value in namesrv.items():
            config = _with_namesrv(config, name, value)
        self.config = config
        self.clock = FakeClock()
        self.server = QuietServer()
        self.loop = InlineLoop()
        self.namesrv = NameServer(config, self.loop, self.server, self.clock)  # type: ignore[arg-type]
        self.dispatcher = Dispatcher({"namesrv": InlinePool()})  # type: ignore[dict-item]
        self.namesrv.register(self.dispatcher)
        self.namesrv.start()
        self.peer = FakeConnection()

    def ask(
        self, code: int, body: bytes = b"", *, peer: FakeConnection | None = None, version: int = 479, **ext: object
    ) -> RemotingCommand:
        request = RemotingCommand(code, version=version, ext_fields={k: str(v) for k, v in ext.items()}, body=body)
        return self.send(request, peer)

    def send(self, request: RemotingCommand, peer: FakeConnection | None = None) -> RemotingCommand:
        peer = peer or self.peer
        self.dispatcher.dispatch_request(peer, request)  # type: ignore[arg-type]
        return peer.answers[-1]

    def register(
        self,
        topics: dict[str, dict[str, Any]] | list[str],
        *,
        name: str = "broker-a",
        address: str = "10.0.0.1:10911",
        cluster: str = "DefaultCluster",
        broker_id: int = 0,
        version: tuple[int, int] = (1, 1),
        peer: FakeConnection | None = None,
        **more: object,
    ) -> RemotingCommand:
        body = register_body(topics, version)
        return self.ask(
            RequestCode.REGISTER_BROKER,
            body,
            peer=peer,
            brokerName=name,
            brokerAddr=address,
            clusterName=cluster,
            brokerId=broker_id,
            haServerAddr=address + "2",
            compressed="false",
            bodyCrc32=zlib.crc32(body) & 0x7FFFFFFF,
            **more,
        )

    def route(self, topic: str, **more: object) -> dict[str, Any] | None:
        """Return the route as a client sees it; None for code 17."""
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, **more)
        if answer.code == 17:
            return None
        assert answer.code == 0, answer.remark
        route: dict[str, Any] = json.loads(answer.body)
        return route

    def perms(self, topic: str) -> dict[str, int]:
        """Return broker name -> permission in a topic's route."""
        route = self.route(topic)
        return {} if route is None else {queues["brokerName"]: queues["perm"] for queues in route["queueDatas"]}

    def topics(self) -> set[str]:
        answer = self.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return set(json.loads(answer.body)["topicList"])

    def clusters(self) -> dict[str, Any]:
        info: dict[str, Any] = json.loads(self.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
        return info

    def hang_up(self, peer: FakeConnection) -> None:
        """Close the peer's connection and notify the listeners, as the server would."""
        peer.closed = True
        for listener in self.server.listeners:
            listener(peer)

    def scan(self) -> None:
        """Run the housekeeping timers."""
        for timer in self.loop.timers:
            timer()


class LiveNamesrv:
    """A name server with its own loop and pool on a loopback port; it may be stopped and started again there."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.port = 0
        self.namesrv: NameServer

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        config = EngineConfig(data_dir=self._data_dir)
        sock = listen("127.0.0.1", self.port)
        self.port = sock.getsockname()[1]
        self._loop = EventLoop()
        self.server = RemotingServer(self._loop)
        self._pools: dict[str, WorkerPool] = {}
        self.namesrv = NameServer(config, self._loop, self.server, Clock())
        dispatcher = Dispatcher(self._pools)
        self.namesrv.register(dispatcher)
        self.server.listen(sock, dispatcher)
        self._loop.at_tick_end(self.server.flush_dirty)
        self._loop.start()
        for pool in self._pools.values():
            pool.start()
        self.namesrv.start()

    def stop(self) -> None:
        done = threading.Event()

        def close() -> None:
            self.server.stop_accepting()
            self.server.close_all()
            done.set()

        self._loop.call_soon(close)
        assert done.wait(60)
        for pool in self._pools.values():
            assert pool.stop()
        assert self._loop.stop()
        self.namesrv.stop()
        self._loop.close()

    def topics(self) -> set[str]:
        return set(json.loads(self.namesrv.routes.all_topics())["topicList"])

    def brokers(self) -> set[str]:
        return set(json.loads(self.namesrv.routes.cluster_info())["brokerAddrTable"])

    def route(self, topic: str) -> dict[str, Any] | None:
        body = self.namesrv.routes.route(topic)
        return None if body is None else json.loads(body)


def _with_namesrv(config: EngineConfig, name: str, value: object) -> EngineConfig:
    return replace(config, namesrv=replace(config.namesrv, **{name: value}))


def topic_config(name: str, **changes: object) -> dict[str, Any]:
    return {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": 8,
    } | changes


def register_body(topics: dict[str, dict[str, Any]] | list[str], version: tuple[int, int] = (1, 1)) -> bytes:
    """Return the RegisterBrokerBody of topics; version: (timestamp, counter)."""
    changes = topics if isinstance(topics, dict) else {name: {} for name in topics}
    wrapper = {
        "dataVersion": {"counter": version[1], "stateVersion": 0, "timestamp": version[0]},
        "topicConfigTable": {name: topic_config(name, **change) for name, change in changes.items()},
    }
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}, separators=(",", ":")).encode()


@pytest.fixture
def live_namesrv(tmp_path: Path) -> Iterator[LiveNamesrv]:
    namesrv = LiveNamesrv(tmp_path / "namesrv")
    namesrv.start()
    yield namesrv
    namesrv.stop()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def make_desk(tmp_path: Path) -> Callable[..., Desk]:
    """Make `Desk(**changes of NamesrvConfig)` over one data directory: a second one is the first restarted."""
    return lambda **namesrv: Desk(tmp_path, **namesrv)
