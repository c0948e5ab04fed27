"""Tries slow steps (delays, retries, locks) with every client at once.

A test marked `at_once` takes a `kind` (of KINDS) and a `stage`. The first such test of a file starts all of them that
the run has selected from that file, each in a thread; every test then reports how its own went. So twenty waits of ten
seconds take ten seconds, and not 200. A test that waits for most of a minute is marked `at_once(early=True)`: it starts
with the first file that has such tests, on the server that all files share.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from appliance.engine import fastjson
from appliance.engine.protocol.record import Record
from tests.clients.agents import Agent, ClientFailed, Json, Producer, PushConsumer
from tests.clients.messages import Message
from tests.support.apache import ask
from tests.support.engine import Peer, pull_fields, records
from tests.support.server import Server
from tests.support.waiting import wait_for

KINDS = ("java-4.9.8", "java-5.3.3", "go", "cpp")
JAVA = KINDS[:2]
JAVA_AND_GO = KINDS[:3]
#: With this project's own client.
KINDS_AND_PYTHON = (*KINDS, "python")
JAVA_GO_AND_PYTHON = (*JAVA_AND_GO, "python")

#: Levels of a server for these tests. 2 and 18 differ from the others; a whole ladder of retries takes 18 s.
LEVELS = "1s 2s" + " 1s" * 15 + " 3s"

#: The C++ client looks for its queues every 10 s, and first only then.
READY_S = 90.0
#: Tests of a file that go on at a time. With sixty, official clients give up requests after 3 s, and send again.
MOST = 20


class Target(Protocol):
    """The server under test."""

    namesrv: str
    broker: str


class Clients:
    """One client process of each kind, started when first asked for. Safe to use from several threads."""

    def __init__(self, start: Callable[[str], Agent]) -> None:
        self._start = start
        self._running: dict[str, Agent] = {}
        self._lock = threading.Lock()

    def __getitem__(self, kind: str) -> Agent:
        with self._lock:
            if kind not in self._running:
                self._running[kind] = self._start(kind)
            return self._running[kind]

    def another(self, kind: str) -> Agent:
        """A process of that kind that the caller may kill and must close."""
        with self._lock:
            return self._start(kind)

    def close(self) -> None:
        for agent in self._running.values():
            agent.close()


class Stage:
    """A kind of client, a server, and names that no other test uses.

    Its C++ client is a process of its own: the library frees twice when two threads start or stop something at once.
    """

    def __init__(self, kind: str, name: str, target: Target, clients: Clients, directory: Path) -> None:
        """directory: of files of its own, which need not exist yet."""
        self.kind, self.target, self._clients = kind, target, clients
        self.directory = directory
        self.topic = name
        self.group = f"g_{name}"
        self._own: list[Agent] = []
        self._open = ExitStack()
        self._producers: dict[tuple[Any, ...], Producer] = {}

    def client(self, kind: str) -> Agent:
        """The client process of that kind."""
        if kind != "cpp":
            return self._clients[kind]
        if not self._own:
            self._own.append(self._clients.another(kind))
        return self._own[0]

    def another(self, kind: str) -> Agent:
        """A process of that kind that the test may kill and must close."""
        return self._clients.another(kind)

    def trade(self, other: Agent) -> Agent:
        """Keep the one of the stage's own C++ process and `other` whose number sorts first, as text. Return the
        other one, which the caller must close."""
        mine = self.client("cpp")
        if str(other.pid) < str(mine.pid):
            self._own[0], other = other, mine
        return other

    @property
    def agent(self) -> Agent:
        """The client process of the stage's kind."""
        return self.client(self.kind)

    def close(self) -> None:
        self._open.close()
        for agent in self._own:
            agent.close()

    @contextmanager
    def on_own_server(self, **options: Any) -> Iterator[tuple[Stage, Server]]:
        """The same kind and names at a server that the test may stop and change. options: as Server takes them."""
        with Server(self.directory / "data", **options) as server:
            stage = Stage(self.kind, self.topic, server, self._clients, self.directory)
            with closing(stage):
                yield stage, server

    def create_topic(self, name: str | None = None, queues: int = 1) -> str:
        """A topic (default: the stage's own) that the name server routes. A client that asked for a topic in vain asks
        again after 30 s only."""
        name = name or self.topic
        fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues}
        settings = {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        header, _ = ask(self.target.broker, 17, {key: str(value) for key, value in (fields | settings).items()})
        assert header["code"] == 0, header
        wait_for(lambda: ask(self.target.namesrv, 105, {"topic": name})[0]["code"] == 0, f"{name} is routed")
        return name

    def create_group(self, name: str | None = None, **settings: Any) -> str:
        """A consumer group (default: the stage's own) with settings as request 200 takes them."""
        name = name or self.group
        header, _ = ask(self.target.broker, 200, {}, json.dumps({"groupName": name, **settings}).encode())
        assert header["code"] == 0, header
        return name

    @contextmanager
    def consumer(self, topic: str | None = None, group: str | None = None, **arguments: Any) -> Iterator[PushConsumer]:
        """A push consumer of the stage's kind that has its queues, those of its retry topic, too.

        agent: another process than the kind's own; namesrv: another name server than the stage's.
        """
        group, topic = group or self.group, topic or self.topic
        agent: Agent = arguments.pop("agent", None) or self.agent
        namesrv = arguments.pop("namesrv", self.target.namesrv)
        namespace = arguments.get("namespace", "")
        self.create_topic("%RETRY%" + (f"{namespace}%{group}" if namespace else group))
        with agent.push(namesrv, topic, group, **arguments) as consumer:
            yield consumer

    def send(
        self,
        messages: Sequence[Message],
        topic: str | None = None,
        kind: str | None = None,
        how: str = "sync",
        **arguments: Any,
    ) -> list[Json]:
        """Send with the stage's kind of client, or another, by a producer of those arguments that stays to the end."""
        which = (kind or self.kind, how, *arguments.items())
        if which not in self._producers:
            self._producers[which] = self._open.enter_context(self.producer(kind, **arguments))
        producer = self._producers[which]
        results: list[Json] = []
        for message in messages:
            results += wait_for(lambda m=message: sent(producer, topic or self.topic, m, how), "a route", every=0.2)
        return results

    def producer(self, kind: str | None = None, **arguments: Any) -> AbstractContextManager[Producer]:
        group = f"p_{self.topic}_{threading.get_ident()}_{time.monotonic_ns()}"
        return self.client(kind or self.kind).producer(self.target.namesrv, group=group, **arguments)

    def stored(self, topic: str, queue: int = 0) -> list[Record]:
        """Return the records of a queue; none if the topic does not exist."""
        with closing(Peer(self.target.broker)) as peer:
            found: list[Record] = []
            while True:
                fields = pull_fields(topic, queue, len(found), consumerGroup=f"readers_{self.topic}")
                answer = peer.ask(11, fields)
                if answer.code != 0:
                    return found
                found += records(answer.body)

    def committed(self, topic: str, group: str | None = None, queue: int = 0) -> int:
        """Return the group's offset as the broker answers it; -1 when it has none."""
        fields = {"consumerGroup": group or self.group, "topic": topic, "queueId": str(queue)}
        header, _ = ask(self.target.broker, 14, fields)
        return int(header["extFields"]["offset"]) if header["code"] == 0 else -1

    def offsets(self) -> dict[str, dict[str, int]]:
        """Offsets that the broker keeps for the stage's names: topic@group -> queue -> offset (request 43)."""
        header, body = ask(self.target.broker, 43, {})
        assert header["code"] == 0, header
        return {name: queues for name, queues in fastjson.loads(body)["offsetTable"].items() if self.topic in name}

    def dead_letters(self, count: int, group: str | None = None, seconds: float = 60.0) -> list[Record]:
        """The group's dead letters once there are `count`."""
        topic = f"%DLQ%{group or self.group}"
        return wait_for(
            lambda: found if len(found := self.stored(topic)) >= count else [],
            f"{count} dead letters in {topic}",
            seconds,
            every=0.1,
            not_yet=(OSError,),
        )


def sent(producer: Producer, topic: str, message: Message, how: str) -> list[Json]:
    """The result of a send; nothing when the C++ client has no route yet: with much going on it does not ask twice."""
    try:
        return producer.send(topic, [message], how=how)
    except ClientFailed as failed:
        if "No route info" not in str(failed):
            raise
        return []


class AllAtOnce:
    """Tests that go on at once, `MOST` of them at a time."""

    def __init__(self, items: Sequence[pytest.Item], target: Target, clients: Clients, directory: Path) -> None:
        self._pool = ThreadPoolExecutor(MOST, thread_name_prefix="at-once")
        self._running: dict[str, Future[None]] = {}
        for number, item in enumerate(items):
            kind = item.callspec.params["kind"]  # type: ignore[attr-defined]
            name = "".join(letter if letter.isalnum() else "_" for letter in item.originalname)[5:50]  # type: ignore[attr-defined]
            name = f"{name}_{number}_{kind.replace('.', '_')}"
            stage = Stage(kind, name, target, clients, directory / name)
            others = {key: value for key, value in item.callspec.params.items() if key != "kind"}  # type: ignore[attr-defined]
            self._running[item.nodeid] = self._pool.submit(self._run, item.obj, kind=kind, stage=stage, **others)  # type: ignore[attr-defined]

    @staticmethod
    def _run(test: Callable[..., None], stage: Stage, **values: Any) -> None:
        with closing(stage):
            test(stage=stage, **values)

    def __contains__(self, item: pytest.Item) -> bool:
        return item.nodeid in self._running

    def outcome(self, item: pytest.Item) -> None:
        """Wait until that test is over; raises what it raised."""
        self._running[item.nodeid].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
