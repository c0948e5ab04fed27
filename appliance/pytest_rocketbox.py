"""A pytest plugin: a real broker for the tests of programs that use RocketMQ, in whatever language they are.

    pytest_plugins = ["appliance.pytest_rocketbox"]    # in the top conftest.py; or -p appliance.pytest_rocketbox

    def test_paid_orders_are_billed(rocketmq_topic, produce, consumed, billing_service):
        produce(rocketmq_topic, b'{"id": 17}', tags="paid")
        assert consumed("invoices", 1)[0].json()["order"] == 17

The server is a separate process, `rocketbox serve --test`, one for each process of pytest. It starts when a test first
uses it, and ends with its standard input: so also when pytest is killed. docs/python.md lists the fixtures.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from datetime import datetime

    from .client import Client, MessageQueue, ReceivedMessage, SendResult

#: Longest start and stop, on a machine that is busy otherwise.
_START_S = 90.0
_STOP_S = 30.0
#: Time for which `consumed` waits for messages, and between two looks.
_CONSUME_S = 5.0
#: Longest time for an answer, and for a name server to learn of a new topic, on a machine that is busy otherwise.
_PATIENCE_S = 60.0
#: Time for a group to commit: clients do it every 5 s.
_IDLE_S = 30.0
_LOOK_S = 0.01
_LOG_LINES = 40
_SERVER: pytest.StashKey[RocketBox] = pytest.StashKey()
_names = itertools.count(1)


class ServerFailed(RuntimeError):
    """The server did not start, or did not end as it should; the text has the end of its log."""


class RocketBox:
    """A broker and name server: `rocketbox serve --test` on a directory that stays until `remove`."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        """arguments: further ones for `rocketbox serve`."""
        self._directory = directory
        self._arguments = arguments
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: dict[str, Any] = {}

    @property
    def namesrv(self) -> str:
        """host:port of the name server."""
        return str(self._ready["namesrv"])

    @property
    def broker(self) -> str:
        """host:port of the broker."""
        return str(self._ready["broker"])

    @property
    def pid(self) -> int:
        return int(self._ready["pid"])

    def client(self, **options: Any) -> Client:
        """Return a new client of it; the caller closes it."""
        from .client import Client

        return Client(self.namesrv, **options)

    def log(self, lines: int = _LOG_LINES) -> str:
        """Return the last lines of the server's log."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def start(self) -> None:
        """Start it, on the ports of before if it ran; returns when it accepts connections. Raises ServerFailed."""
        command = [
            sys.executable,
            "-m",
            "appliance.main",
            "serve",
            "--test",
            "--data-dir",
            str(self._directory / "data"),
        ]
        for option, role in (("--broker-port", "broker"), ("--namesrv-port", "namesrv")):
            if self._ready:
                command += [option, self._ready[role].rpartition(":")[2]]
        command += self._arguments
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
        found = (str(Path(__file__).resolve().parents[1]), environment.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, found))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        line = self._first_line()
        if not line:
            self.kill()
            raise ServerFailed(f"rocketbox serve --test did not start:\n{self.log()}")
        self._ready = json.loads(line)

    def _first_line(self) -> bytes:
        """Return the line that it prints when it is ready; b"" if it ended, or printed none in time."""
        assert self._process is not None, "it was just started"
        out = self._process.stdout
        assert out is not None, "its output is a pipe"
        line = b""
        deadline = time.monotonic() + _START_S
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(out.fileno(), 65536) if ready else b""
            if not piece:
                return b""
            line += piece
        return line

    def stop(self) -> None:
        """Send SIGTERM; acknowledged messages are kept for `start`. Raises ServerFailed unless it ends with status
        0."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"SIGTERM did not end the server within {_STOP_S:g} s:\n{self.log()}") from None
        self._forget()
        if status:
            raise ServerFailed(f"the server ended with status {status}:\n{self.log()}")

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _forget(self) -> None:
        process, self._process = self._process, None
        for pipe in (process.stdin, process.stdout) if process else ():
            if pipe is not None:
                pipe.close()

    def restart(self) -> None:
        """Stop it, unless it was stopped or killed, and start it on the same ports and directory."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Send SIGSTOP: it accepts connections, and answers nothing until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)
        if hasattr(os, "waitid"):  # until then one of its threads may still answer
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def remove(self) -> None:
        """Remove its directory."""
        shutil.rmtree(self._directory, ignore_errors=True)


@pytest.fixture(scope="session")
def rocketbox(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketBox]:
    """The server of this run."""
    server = RocketBox(tmp_path_factory.mktemp("rocketbox"))
    server.start()
    request.config.stash[_SERVER] = server
    failed = request.session.testsfailed
    yield server
    server.stop()
    if request.session.testsfailed == failed:
        server.remove()


@pytest.fixture(scope="session")
def rocketbox_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RocketBox]]:
    """Starts further servers, `rocketbox_factory("--broker-name", "b")` with arguments of `rocketbox serve`; they end
    with the run."""
    made: list[RocketBox] = []

    def make(*arguments: str) -> RocketBox:
        server = RocketBox(tmp_path_factory.mktemp("rocketbox"), *arguments)
        made.append(server)
        server.start()
        return server

    yield make
    for server in made:
        server.kill()
        server.remove()


@pytest.fixture
def rocketbox_fresh(tmp_path: Path) -> Iterator[RocketBox]:
    """A server for one test, which may stop, kill or pause it."""
    (tmp_path / "rocketbox").mkdir()
    server = RocketBox(tmp_path / "rocketbox")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def rocketbox_env(rocketbox: RocketBox, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set NAMESRV_ADDR for the tested program; return the address."""
    monkeypatch.setenv("NAMESRV_ADDR", rocketbox.namesrv)
    return rocketbox.namesrv


@pytest.fixture(scope="session")
def _rocketmq_client(rocketbox: RocketBox) -> Iterator[Client]:
    with rocketbox.client(timeout=_PATIENCE_S) as client:
        yield client


def _new_name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test has: the test's, with the characters a topic may have, and a number."""
    words = re.sub(r"[^A-Za-z0-9_-]+", "_", request.node.name)[:80]
    return f"{words}-{os.getpid()}-{next(_names)}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rocketmq(queues=4): how many queues the test's `rocketmq_topic` has")


@pytest.fixture
def rocketmq_topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic for this test alone; its first message makes it, with 4 queues. With
    `@pytest.mark.rocketmq(queues=1)` it is made at the server of this run, with so many."""
    topic = _new_name(request)
    marker = request.node.get_closest_marker("rocketmq")
    if marker is not None:
        client: Client = request.getfixturevalue("_rocketmq_client")
        client.admin().create_topic(topic, **{"queues": 4} | marker.kwargs)
        until = time.monotonic() + _PATIENCE_S
        while not _queues(client, topic) and time.monotonic() < until:
            time.sleep(_LOOK_S)
    return topic


@pytest.fixture
def rocketmq_group(request: pytest.FixtureRequest) -> str:
    """The name of a consumer group for this test alone."""
    return _new_name(request)


class Produce:
    """Sends messages: `produce(topic, body, ...)` with the arguments of `Producer.send`; waits for the answer.

    A topic's first message makes it, and the name server learns of it a moment later; `produce` waits for that too,
    so that whoever asks next finds the topic.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: set[str] = set()

    @property
    def topics(self) -> frozenset[str]:
        """Topics that it sent to."""
        return frozenset(self._told)

    def __call__(self, topic: str, body: bytes | str, **options: Any) -> SendResult:
        result = self._client.producer("PYTEST_PRODUCER").send(topic, body, **options)
        if topic not in self._told:
            self._told.add(topic)
            deadline = time.monotonic() + _PATIENCE_S
            while not _queues(self._client, topic) and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
        return result


def _queues(client: Client, topic: str) -> Sequence[MessageQueue]:
    """Return the topic's queues; none while the name server does not know it."""
    from .client import NoRoute

    try:
        return client.reader().queues(topic)
    except NoRoute:
        return ()


@pytest.fixture
def produce(_rocketmq_client: Client) -> Produce:
    return Produce(_rocketmq_client)


class Consumed:
    """Messages that were stored in topics since the test began; each is returned once. It reads without a consumer
    group, so the tested program gets its messages as well."""

    def __init__(self, client: Client, began: datetime) -> None:
        self._client = client
        self._began = began
        self._at: dict[MessageQueue, int] = {}
        self._left: dict[str, list[ReceivedMessage]] = {}

    def __call__(self, topic: str, count: int = 1, timeout: float = _CONSUME_S) -> list[ReceivedMessage]:
        """Return the next `count` messages of the topic, those of one queue in their order. Fails if they do not arrive
        within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        found = self._left.pop(topic, [])
        while len(found) < count:
            found += self._new(topic)
            if len(found) < count:
                if time.monotonic() >= deadline:
                    self._left[topic] = found
                    pytest.fail(self._missing(topic, count, found, timeout), pytrace=False)
                time.sleep(_LOOK_S)
        self._left[topic] = found[count:]
        return found[:count]

    def none(self, topic: str, within: float = 0.2) -> None:
        """Fail if a message arrives within `within` seconds."""
        deadline = time.monotonic() + within
        while True:
            found = self._left.pop(topic, []) + self._new(topic)
            if found:
                self._left[topic] = found
                pytest.fail(f"{topic} was to stay empty, and has {found}", pytrace=False)
            if time.monotonic() >= deadline:
                return
            time.sleep(_LOOK_S)

    def _new(self, topic: str) -> list[ReceivedMessage]:
        reader = self._client.reader()
        found = []
        for queue in _queues(self._client, topic):
            if queue not in self._at:
                self._at[queue] = reader.offset_at(queue, self._began)
            pulled = reader.pull(queue, self._at[queue])
            self._at[queue] = pulled.next_offset
            found += pulled.messages
        return found

    def _missing(self, topic: str, count: int, found: list[ReceivedMessage], timeout: float) -> str:
        ends = ", ".join(f"{queue}: read to {offset}" for queue, offset in self._at.items() if queue.topic == topic)
        return (
            f"{count} messages were wanted of {topic}, and {len(found)} came within {timeout:g} s: {found}\n"
            f"queues: {ends or 'the topic does not exist'}"
        )


@pytest.fixture
def consumed(_rocketmq_client: Client) -> Consumed:
    from datetime import UTC, datetime, timedelta

    # Stored times are whole milliseconds: messages before this one are not this test's.
    began = datetime.now(UTC) + timedelta(milliseconds=1)
    began = began.replace(microsecond=began.microsecond // 1000 * 1000)
    while datetime.now(UTC) < began:
        time.sleep(0.0002)
    return Consumed(_rocketmq_client, began)


class GroupIdle:
    """Waits until a consumer group is done: `group_idle(group)`, or with topics behind the group."""

    def __init__(self, client: Client, produce: Produce) -> None:
        self._client = client
        self._produce = produce

    def __call__(self, group: str, *topics: str, timeout: float = _IDLE_S) -> None:
        """Wait until the group has committed all messages of these topics, without them of those that `produce` sent
        to in this test, and its retries. Fails after `timeout` seconds. Clients commit some seconds after they are
        done. A message that waits for its next attempt is not looked for: see the broker's `messageDelayLevel`."""
        wanted = topics or tuple(sorted(self._produce.topics))
        if not wanted:
            pytest.fail(f"group_idle({group!r}): produce sent nothing in this test; name the topics", pytrace=False)
        deadline = time.monotonic() + timeout
        while behind := self._behind(group, wanted):
            if time.monotonic() >= deadline:
                pytest.fail(f"group {group} is not done within {timeout:g} s: {', '.join(behind)}", pytrace=False)
            time.sleep(_LOOK_S)

    def _behind(self, group: str, topics: Sequence[str]) -> list[str]:
        """Return a text for each queue whose end the group has not reached."""
        reader, found = self._client.reader(), []
        for topic in (*topics, f"%RETRY%{group}"):
            queues = _queues(self._client, topic)
            if not queues and topic in topics:
                found.append(f"the topic {topic} does not exist")
            for queue in queues:
                committed, end = reader.committed(queue, group), reader.max_offset(queue)
                if end > (committed or 0):
                    found.append(f"{queue}: committed {'nothing' if committed is None else committed} of {end}")
        return found


@pytest.fixture
def group_idle(_rocketmq_client: Client, produce: Produce) -> GroupIdle:
    return GroupIdle(_rocketmq_client, produce)


@pytest.fixture
def dead_letters(consumed: Consumed) -> Callable[..., list[ReceivedMessage]]:
    """Returns the next `count` dead letters of a group since the test began: `dead_letters(group, count=1, timeout=5)`.
    Their `topic` is the group's of dead letters; RETRY_TOPIC among their properties is the message's own."""

    def take(group: str, count: int = 1, timeout: float = _CONSUME_S) -> list[ReceivedMessage]:
        return consumed(f"%DLQ%{group}", count, timeout)

    return take


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the end of the server's log to the report of a test that used the server and failed."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    server = item.config.stash.get(_SERVER, None)
    if report.failed and server is not None and "rocketbox" in getattr(item, "fixturenames", ()):
        report.sections.append(("rocketbox", server.log()))
