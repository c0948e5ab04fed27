"""The brokers that are measured, with one interface: RocketBox and the two Apaches.

A `Server` starts with an empty store in a scratch directory of its own and takes it away when it stops. Between its
turns it is frozen with SIGSTOP, so that a JVM keeps its compiled code without taking a slice of the other's time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.apache import VERSIONS, ApacheError, ApacheRocketMQ, ask
from tests.support.ports import port_is_free, reserve_port

ROOT = Path(__file__).resolve().parent.parent
ROCKETBOX = "rocketbox"
# RocketBox without its compiled part: the same broker with the pure twin of its hot path.
PURE = "pure"
APACHES = tuple(f"apache-{version}" for version in VERSIONS)
LABELS = (ROCKETBOX, *APACHES)

__all__ = ["APACHES", "LABELS", "PURE", "ROCKETBOX", "TITLES", "ApacheError", "Server", "ServerError", "make_server"]

# What the tables call them.
TITLES = {
    ROCKETBOX: "RocketBox",
    PURE: "RocketBox, pure",
    **{label: label.replace("apache-", "Apache ") for label in APACHES},
}


class ServerError(RuntimeError):
    """A server did not start, or did not do what a bench needs of it."""


class Server(ABC):
    """One broker with its name server. `cpus`: a taskset list or None; `flush`: "async" or "sync"."""

    #: The generator's mode that appends one message a request.
    send_mode = "send"
    #: Whether it is slower until it has compiled its code under load.
    compiles_under_load = False

    def __init__(self, label: str, flush: str, cpus: str | None, scratch_root: Path) -> None:
        self.label = label
        self.flush = flush
        self.cpus = cpus
        self.scratch = Path(tempfile.mkdtemp(prefix=f"bench-{label}-", dir=scratch_root))
        self._frozen = False

    @property
    @abstractmethod
    def broker(self) -> str:
        """host:port of the broker; known once started."""

    @property
    @abstractmethod
    def namesrv(self) -> str:
        """host:port of the name server; known once started."""

    @property
    @abstractmethod
    def pids(self) -> tuple[int, ...]:
        """Every process that belongs to it, the broker's first."""

    @abstractmethod
    def start(self) -> None:
        """Return when it takes sends; raise ServerError (or the starter's own error) when it does not."""

    @abstractmethod
    def time_to_first_ack(self) -> float:
        """Start it; seconds from starting the broker's process to the first acknowledged send. Its ports were free."""

    @abstractmethod
    def _end(self) -> None: ...

    def kill(self) -> None:
        """SIGKILL; its files stay. `time_to_first_ack` starts it again."""
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._end()

    def freeze(self) -> None:
        """Stop it from running at all, sockets and memory kept."""
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        """Let it run again, and give its overdue timers a moment to pass."""
        for pid in self.pids:
            os.kill(pid, signal.SIGCONT)
        self._frozen = False
        time.sleep(0.5)

    def stop(self) -> None:
        """End its processes and remove its files; its ports are free on return."""
        if self._frozen:
            self.thaw()
        try:
            self._end()
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def create_topic(self, topic: str, queues: int) -> None:
        """As an administrator would (request 17): perm 6, the same number of read and write queues."""
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues),
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        answer, _ = ask(self.broker, 17, fields)
        if answer["code"] != 0:
            raise ServerError(f"{self.label} did not create topic {topic}: {answer}")


class ApacheServer(Server):
    """An Apache name server and broker of one version, 512 MB of heap each."""

    compiles_under_load = True

    def __init__(self, label: str, flush: str, cpus: str | None, scratch_root: Path) -> None:
        super().__init__(label, flush, cpus, scratch_root)
        version = label.removeprefix("apache-")
        self._apache = ApacheRocketMQ(version, flush=flush, cpus=cpus, scratch=self.scratch)

    @property
    def broker(self) -> str:
        return self._apache.broker

    @property
    def namesrv(self) -> str:
        return self._apache.namesrv

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(reversed(self._apache.pids))

    def start(self) -> None:
        self._apache.start()

    def time_to_first_ack(self) -> float:
        # The name server is there already: what is timed is the broker alone, in Apache's favour.
        self._apache.namesrv_server.launch()
        self._apache.namesrv_server.wait_until_ready()
        begin = time.monotonic()
        self._apache.broker_server.launch()
        return wait_for_ack(self.broker, self._apache.broker_server.require_running) - begin

    def _end(self) -> None:
        # What it wrote is not needed, and an orderly stop takes up to 20 s.
        self._apache.stop(timeout_s=1.0)


class RocketBoxServer(Server):
    """`rocketbox serve` with the engine's two roles; name server and broker are one process."""

    roles = "broker,namesrv"
    compiles_under_load = True  # CPython specialises its bytecode, too

    def __init__(
        self, label: str, flush: str, cpus: str | None, scratch_root: Path, command: Sequence[str] | None = None
    ) -> None:
        super().__init__(label, flush, cpus, scratch_root)
        self._command = list(command or default_command())
        self._process: subprocess.Popen[bytes] | None = None
        self._ready_file = self.scratch / "ready.json"
        self._log = self.scratch / "console.log"
        self._broker = ""
        # What comes to the command line's end, and into its environment.
        self.arguments: list[str] = []
        self.environment: dict[str, str] = {"ROCKETBOX_PURE": "1"} if label == PURE else {}

    @property
    def data_dir(self) -> Path:
        return self.scratch / "data"

    @property
    def broker(self) -> str:
        return self._broker

    @property
    def namesrv(self) -> str:
        return str(json.loads(self._ready_file.read_text())["namesrv"])

    @property
    def pids(self) -> tuple[int, ...]:
        if self._process is None:
            raise ServerError("not started")
        return (self._process.pid, *descendants(self._process.pid))

    def start(self) -> None:
        # Not port 0: after 10,000 connections the kernel's own range is full of closed ones, and three neighbours rare.
        self._launch(broker_port=reserve_port())
        deadline = time.monotonic() + 30
        while not self._ready_file.exists():
            self._require_running()
            if time.monotonic() > deadline:
                raise ServerError(f"RocketBox was not ready in 30 s\n{self._said()}")
            time.sleep(0.01)
        self._broker = json.loads(self._ready_file.read_text())["broker"]

    def runs_compiled(self) -> bool:
        """Whether the compiled part is loaded in one of its processes."""
        return any("/_compiled." in Path(f"/proc/{pid}/maps").read_text() for pid in self.pids)

    def time_to_first_ack(self) -> float:
        # A port chosen here, so that nothing has to be learnt from the ready file.
        port = reserve_port()
        self._broker = f"127.0.0.1:{port}"
        begin = time.monotonic()
        self._launch(broker_port=port)
        return wait_for_ack(self._broker, self._require_running) - begin

    def _launch(self, broker_port: int) -> None:
        command: list[str] = []
        if shutil.which("setpriv"):
            command += ["setpriv", "--pdeathsig", "KILL", "--"]
        if self.cpus is not None:
            command += ["taskset", "-c", self.cpus]
        command += [
            *self._command, "serve", "--data-dir", str(self.data_dir), "--bind", "127.0.0.1",
            "--broker-port", str(broker_port), "--namesrv-port", "0", "--roles", self.roles,
            "--broker-name", "broker-a", "--flush", self.flush, "--ready-file", str(self._ready_file), *self.arguments,
        ]  # fmt: skip
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=with_bytecode() | self.environment,
            )

    def _said(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-25:])

    def _require_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise ServerError(f"RocketBox exited {self._process.returncode}\n{self._said()}")

    def _end(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        port = int(self._broker.rpartition(":")[2] or 0)
        deadline = time.monotonic() + 10
        while port and not port_is_free(port) and time.monotonic() < deadline:
            time.sleep(0.02)


class ConsoleServer(RocketBoxServer):
    """The same with the console around it: an arbiter and the worker in which the engine runs."""

    roles = "broker,namesrv,console"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.arguments += ["--http-port", "0"]
        self._launched_at = 0.0

    @property
    def http(self) -> str:
        """host:port of the console; known once it answers."""
        return str(json.loads(self._ready_file.read_text())["http"])

    def _launch(self, broker_port: int) -> None:
        self._launched_at = time.monotonic()
        super()._launch(broker_port)

    def wait_for_page(self, timeout_s: float = 30.0) -> float:
        """Seconds from the start of the process until a page was answered."""
        deadline = time.monotonic() + timeout_s
        while not self._ready_file.exists():
            self._require_running()
            if time.monotonic() > deadline:
                raise ServerError(f"the console did not answer in {timeout_s:.0f} s\n{self._said()}")
            time.sleep(0.002)
        with urllib.request.urlopen(f"http://{self.http}/login/", timeout=timeout_s) as answer:
            answer.read()
        return time.monotonic() - self._launched_at


def with_bytecode() -> dict[str, str]:
    """The environment, in which a server keeps its modules' bytecode, as an installed one has it: compiling them at
    every start takes three times as long as the start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def default_command() -> list[str]:
    """How RocketBox is run: $ROCKETBOX, or the work tree's own environment, or what is installed."""
    given = os.environ.get("ROCKETBOX")
    if given:
        return shlex.split(given)
    python = ROOT / ".venv" / "bin" / "python"
    if python.exists():
        return [str(python), "-m", "appliance.main"]
    installed = shutil.which("rocketbox")
    if installed is None:
        raise ServerError(
            "no .venv in the work tree and no rocketbox on PATH: run script/server once, or set ROCKETBOX"
        )
    return [installed]


def make_server(label: str, flush: str, cpus: str | None, scratch_root: Path) -> Server:
    """A server that is not started yet."""
    kind = RocketBoxServer if label in (ROCKETBOX, PURE) else ApacheServer
    return kind(label, flush, cpus, scratch_root)


def wait_for_ack(broker: str, still_running: Callable[[], None], timeout_s: float = 60.0) -> float:
    """The monotonic time at which `broker` first acknowledged a send; asks every 2 ms. The topic creates itself."""
    fields = {
        "a": "BenchGroup", "b": "FirstTopic", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0", "i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            answer, _ = ask(broker, 310, fields, b"x" * 1024)
            if answer["code"] == 0 and "msgId" in answer["extFields"]:
                return time.monotonic()
        except OSError:
            still_running()
        if time.monotonic() > deadline:
            raise ServerError(f"{broker} acknowledged nothing in {timeout_s:.0f} s")
        time.sleep(0.002)


def descendants(pid: int) -> tuple[int, ...]:
    """Every living child of `pid` and theirs."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # that thread has just ended
            continue
        for child in children:
            found += [int(child), *descendants(int(child))]
    return tuple(found)


def resident_bytes(pids: Sequence[int]) -> int:
    """Resident memory of the processes together, as the kernel counts it for each (shared pages count in each)."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total


def shared_out_bytes(pids: Sequence[int]) -> int:
    """PSS of the processes together: each shared page counts once, divided among those who share it."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time the processes took so far, to the kernel's tick of 10 ms."""
    total = 0
    for pid in pids:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(after_name[11]) + int(after_name[12])
    return total / os.sysconf("SC_CLK_TCK")
