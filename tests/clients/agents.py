"""Official clients in processes of their own, told what to do over a pipe.

An `Agent` is one process (Java, Go, C++ or Python, see the directories here): commands are JSON lines on its stdin,
answers and events JSON lines on its stdout. Every wait here has a deadline, and its failure says what had come until
then.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

from tests.clients import programs
from tests.clients.messages import Message
from tests.support.standstill import stop_process

Json = dict[str, Any]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

#: Long: clients have timeouts of their own, of 30 s for each pull of the C++ client's, and none may be stopped while it
#: is at work.
ANSWER_TIMEOUT_S = 600.0
_NUMBERS = itertools.count(1)


class ClientFailed(Exception):
    """A command failed in the client. `code` is the broker's response code, where the client shows one."""

    def __init__(self, command: str, error: Json) -> None:
        super().__init__(f"{command}: {error['type']} (code {error['code']}): {error['message']}\n{error['stack']}")
        self.code: int | None = error["code"]


class Agent:
    """One client process. Safe to use from several threads."""

    def __init__(self, name: str, command: Sequence[str], scratch: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.log_path = scratch / "stderr.log"
        self._answers: dict[int, Future[Any]] = {}
        self._events: dict[str, list[Json]] = {}
        self._changed = threading.Condition()  # guards the two tables and the end of the process
        self._ended = False
        self._stopping: list[Future[Any]] = []
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=scratch, env=environment
            )
        self._reader = threading.Thread(target=self._read, name=f"agent-{name}", daemon=True)
        self._reader.start()

    @property
    def is_java(self) -> bool:
        return self.name.startswith("java")

    @property
    def has_flags(self) -> bool:
        """True if it sends a message's flag."""
        return self.name != "python"

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, command: str, **arguments: Any) -> Future[Any]:
        """Send a command; its answer is the future's result, its failure ClientFailed."""
        number = next(_NUMBERS)
        future: Future[Any] = Future()
        with self._changed:
            if self._ended:
                raise AssertionError(f"the {self.name} agent has ended:\n{self.said()}")
            self._answers[number] = future
        line = json.dumps({"id": number, "do": command, **arguments}).encode() + b"\n"
        assert self._process.stdin is not None
        with self._changed:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        return future

    def do(self, command: str, **arguments: Any) -> Any:
        """Send a command and wait for its answer."""
        future = self.begin(command, **arguments)
        try:
            return future.result(ANSWER_TIMEOUT_S)
        except FutureTimeout:
            raise AssertionError(
                f"{self.name}: no answer to {command} in {ANSWER_TIMEOUT_S:.0f} s\n{self.said()}"
            ) from None
        except ClientFailed as failed:
            raise failed from None

    def events(self, of: str) -> list[Json]:
        """A copy of what consumer `of` has said so far."""
        with self._changed:
            return list(self._events.get(of, ()))

    def wait_for(self, of: str, enough: Callable[[list[Json]], bool], what: str, timeout_s: float) -> list[Json]:
        """Wait until `enough(events)`; the failure names `what` was awaited and sums up what came."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not enough(self._events.get(of, [])):
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    came = [_short(event) for event in self._events.get(of, [])]
                    why = "the agent ended" if self._ended else f"not within {timeout_s:.0f} s"
                    raise AssertionError(
                        f"{self.name} {of}: {what}: {why}. Came {len(came)}: {came[-20:]}\n{self.said()}"
                    )
                self._changed.wait(left)
            return list(self._events.get(of, ()))

    def said(self, lines: int = 15) -> str:
        """The end of the process's stderr; nothing when the test's directories have gone."""
        try:
            text = self.log_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def close(self) -> None:
        """End the process; kill it when it does not go. Raises what stopping a producer raised."""
        try:
            for stopping in self._stopping:
                stopping.result(ANSWER_TIMEOUT_S)
        finally:
            self._end()

    def kill(self) -> None:
        """SIGKILL: nothing is stopped, unlocked or signed off."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """SIGSTOP: its connections stay open, and it does nothing until `thaw`."""
        stop_process(self._process.pid)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _end(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(60)

    # What tests speak of.

    @contextlib.contextmanager
    def producer(self, namesrv: str, group: str = "producers", **arguments: Any) -> Iterator[Producer]:
        """A started producer, stopped at the end of the block."""
        name = f"producer-{next(_NUMBERS)}"
        self.do("producer.start", name=name, group=group, namesrv=namesrv, **arguments)
        producer = Producer(self, name)
        try:
            yield producer
        finally:
            # Not waited for: 5.x spends 3 s in it, joining a thread. close() sees that it went well.
            if not producer.abandoned:
                self._stopping.append(self.begin("producer.stop", name=name))

    @contextlib.contextmanager
    def push(
        self, namesrv: str, topic: str, group: str, start: str = "CONSUME_FROM_FIRST_OFFSET", **arguments: Any
    ) -> Iterator[PushConsumer]:
        """A started push consumer, stopped at the end of the block unless the block did."""
        name = f"consumer-{next(_NUMBERS)}"
        values = {"name": name, "namesrv": namesrv, "topic": topic, "group": group, "from": start, "instance": name}
        self.do("push.start", **(values | arguments))
        consumer = PushConsumer(self, name, topic)
        try:
            yield consumer
        finally:
            consumer.stop()

    @contextlib.contextmanager
    def client(self, kind: str, **arguments: Any) -> Iterator[Client]:
        """A client of another kind ("pull", "lite"), addressed by name."""
        name = f"{kind}-{next(_NUMBERS)}"
        self.do(f"{kind}.start", name=name, **arguments)
        try:
            yield Client(self, kind, name)
        finally:
            self.do(f"{kind}.stop", name=name)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = json.loads(raw)
            with self._changed:
                if "event" in line:
                    self._events.setdefault(line["of"], []).append(line)
                    self._changed.notify_all()
                    continue
                future = self._answers.pop(line["id"])
            if "error" in line:
                future.set_exception(ClientFailed(self.name, line["error"]))
            else:
                future.set_result(line["ok"])
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            waiting = list(self._answers.values())
            self._answers.clear()
        for future in waiting:
            future.set_exception(AssertionError(f"the {self.name} agent ended:\n{self.said()}"))


class Client:
    """A named client inside an agent; `client("pull", ...)` runs the command kind.pull."""

    def __init__(self, agent: Agent, kind: str, name: str) -> None:
        self._agent, self._kind, self._name = agent, kind, name

    @property
    def name(self) -> str:
        return self._name

    def __call__(self, command: str, **arguments: Any) -> Any:
        return self._agent.do(f"{self._kind}.{command}", name=self._name, **arguments)


class Producer:
    """A started producer."""

    def __init__(self, agent: Agent, name: str) -> None:
        self._agent, self._name = agent, name
        self.abandoned = False
        self._begun: list[Future[Any]] = []

    def abandon(self) -> None:
        """Do not stop it: its process is gone."""
        self.abandoned = True

    def send(self, topic: str, messages: Sequence[Message], how: str = "sync", **arguments: Any) -> list[Json]:
        """Send all, in order; the results as the client gave them (none for one-way, one for a batch)."""
        answer = self._agent.do(
            "producer.send",
            name=self._name,
            topic=topic,
            how=how,
            messages=[m.as_json() for m in messages],
            **arguments,
        )
        return list(answer["results"])

    def begin_transaction(self, topic: str, message: Message) -> None:
        """Send a message in a transaction whose local branch may never end, without waiting for the answer."""
        self._begun.append(
            self._agent.begin(
                "producer.send", name=self._name, topic=topic, how="transaction", messages=[message.as_json()]
            )
        )

    @property
    def executed(self) -> list[Json]:
        """The messages whose local branch it was given to run, in order."""
        return self._said("executed")

    @property
    def checked(self) -> list[Json]:
        """The messages that the broker asked it about, in order."""
        return self._said("checked")

    def wait_for_executed(self, count: int, timeout_s: float = 60.0) -> list[Json]:
        """ClientFailed when a transaction could not be begun."""

        def enough(_: list[Json]) -> bool:
            for one in self._begun:
                if one.done():
                    one.result()
            return len(self.executed) >= count

        self._agent.wait_for(self._name, enough, f"{count} local branches", timeout_s)
        return self.executed

    def wait_for_checks(self, message: Message, count: int = 1, timeout_s: float = 60.0) -> list[Json]:
        """Wait until the broker has asked `count` times about this message; all that it asked about it."""
        what = f"{count} questions about a transaction"
        self._agent.wait_for(self._name, lambda _: len(self.checks_of(message)) >= count, what, timeout_s)
        return self.checks_of(message)

    def checks_of(self, message: Message) -> list[Json]:
        return [one for one in self.checked if one["body_sha256"] == message.sha256]

    def _said(self, kind: str) -> list[Json]:
        return [event["message"] for event in self._agent.events(self._name) if event["event"] == kind]

    def recall(self, topic: str, handle: str) -> str:
        """Take back a message with a time (Java 5.x only); the unique key that the broker answers with."""
        answer = self._agent.do("producer.recall", name=self._name, topic=topic, handle=handle)
        return str(answer["unique_key"])


class PushConsumer:
    """A started push consumer and what it has received."""

    def __init__(self, agent: Agent, name: str, topic: str) -> None:
        self.name, self._agent, self._topic = name, agent, topic
        self._stopped = False

    @property
    def received(self) -> list[Json]:
        """The messages so far, in the order the listener saw them."""
        return [event["message"] for event in self._agent.events(self.name) if event["event"] == "message"]

    def wait_for(self, count: int, timeout_s: float = 60.0) -> list[Json]:
        """Wait until `count` messages are here."""
        self._agent.wait_for(self.name, lambda _: len(self.received) >= count, f"{count} messages", timeout_s)
        return self.received

    def wait_for_each(self, messages: Sequence[Message], timeout_s: float = 90.0) -> list[Json]:
        """Wait until these messages are here; the deliveries, one each: more is a failure. Others may come as well."""
        bodies = {message.sha256 for message in messages}
        came = [one for one in self.wait_for_all(messages, timeout_s) if one["body_sha256"] in bodies]
        assert len(came) == len(bodies), "one came twice"
        return came

    def wait_for_all(self, messages: Sequence[Message], timeout_s: float) -> list[Json]:
        """Wait until these messages are here; all deliveries so far, others too."""
        bodies = {message.sha256 for message in messages}

        def are_here(_: object) -> bool:
            return bodies <= {one["body_sha256"] for one in self.received}

        self._agent.wait_for(self.name, are_here, f"each of {len(bodies)}", timeout_s)
        return self.received

    @property
    def allocations(self) -> list[Json]:
        """Its allocations so far, of each topic, in order."""
        return [event for event in self._agent.events(self.name) if event["event"] == "allocated"]

    def queues(self) -> set[int] | None:
        """The queue ids of the topic it was allocated last; None before the first rebalance."""
        mine = [one for one in self.allocations if one["topic"] == self._topic]
        return {queue["queue_id"] for queue in mine[-1]["queues"]} if mine else None

    def wait_for_queues(self, count: int, timeout_s: float = 18.0) -> set[int]:
        """Wait until it holds `count` queues. The default is shorter than the client's own rebalance timer of 20 s:
        what comes within it came because the broker said so."""
        self._agent.wait_for(
            self.name, lambda _: len(self.queues() or ()) == count, f"an allocation of {count} queues", timeout_s
        )
        return self.queues() or set()

    def rebalance(self) -> None:
        """Have a Java consumer rebalance now."""
        self._agent.do("push.rebalance", name=self.name)

    def subscribe(self, **arguments: Any) -> None:
        """Have a Java consumer subscribe its topic otherwise: `expression` or `sql`."""
        self._agent.do("push.subscribe", name=self.name, topic=self._topic, **arguments)

    def abandon(self) -> None:
        """Do not stop it: its process is gone, or goes with it."""
        self._stopped = True

    def stop(self) -> None:
        """Stop it, once; all it received is here afterwards."""
        if not self._stopped:
            self._stopped = True
            self._agent.do("push.stop", name=self.name)


def _short(event: Json) -> str:
    if event["event"] == "message":
        message = event["message"]
        return f"{message['queue_id']}:{message['queue_offset']}"
    if event["event"] != "allocated":
        return f"{event['event']} {event['message']['body_sha256'][:8]}"
    return f"{event['event']} {event['topic']} {[queue['queue_id'] for queue in event['queues']]}"


def start_java(
    version: str, codec: str, scratch: Path, tls: bool = False, certificate: tuple[Path, Path] | None = None
) -> Agent:
    """The Java agent with the client of `version`; codec "json" or "rocketmq" is that of its requests. tls: it speaks
    nothing else. certificate: with its key in PKCS#8, which it shows then."""

    scratch.mkdir(parents=True, exist_ok=True)
    command = [
        programs.java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData",
        f"-Duser.home={scratch}", f"-Djava.io.tmpdir={scratch}",
        f"-Drocketmq.client.localOffsetStoreDir={scratch / 'offsets'}",
        "-cp", *programs.java_agent(version),
    ]  # fmt: skip
    if codec == "rocketmq":
        command.insert(1, "-Drocketmq.serialize.type=ROCKETMQ")
    if tls:
        command.insert(1, "-Dtls.enable=true")
    if certificate is not None:
        settings = scratch / "tls.properties"
        names = ("tls.client.certPath", "tls.client.keyPath")
        lines = ["tls.test.mode.enable=false", *map("{}={}".format, names, certificate)]
        settings.write_text("\n".join(lines) + "\n")
        command.insert(1, f"-Dtls.config.file={settings}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NAMESRV_", "JAVA_TOOL"))}
    name = f"java-{version}" + ("" if codec == "json" else f"-{codec}")
    return Agent(name, command, scratch, environment | {"HOME": str(scratch)})


def start_go(scratch: Path) -> Agent:
    """The Go agent."""

    scratch.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}
    environment |= {"HOME": str(scratch), "ROCKETMQ_GO_LOG_LEVEL": "warn"}
    return Agent("go", programs.go_agent(), scratch, environment)


def start_cpp(scratch: Path) -> Agent:
    """The C++ agent."""

    scratch.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}
    environment |= {"HOME": str(scratch), "PYTHONPATH": str(programs.cpp_client())}
    return Agent("cpp", programs.cpp_agent(), scratch, environment)


def start_python(scratch: Path, *more_on_path: Path, pure: bool = False) -> Agent:
    """The agent of the project's own Python client. more_on_path: what else it may import. pure: no compiled part."""

    scratch.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}
    environment |= {"HOME": str(scratch), "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *more_on_path)))}
    if pure:
        environment |= {"ROCKETBOX_PURE": "1"}
    return Agent("python", [sys.executable, str(HERE / "python" / "agent.py")], scratch, environment)
