"""What stands beside the brokers: NATS JetStream, Redis, and a C server that only parses and replies.

They are optional: `why_absent` says what is missing here. None of them is a RocketMQ broker; what of a row they can be
held against is said in the rows and in bench/README.md.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.build import build
from bench.servers import Server, ServerError
from tests.support.ports import port_is_free, reserve_port

NATS, REDIS, RIG = "nats", "redis", "rig"
NATS_VERSION = "2.15.2"


class OneProcess(Server):
    """A server that is one process on one port."""

    def __init__(self, label: str, flush: str, cpus: str | None, scratch_root: Path) -> None:
        super().__init__(label, flush, cpus, scratch_root)
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._log = self.scratch / "server.log"

    @property
    def broker(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def namesrv(self) -> str:
        raise ServerError(f"{self.label} has no name server")

    @property
    def pids(self) -> tuple[int, ...]:
        if self._process is None:
            raise ServerError("not started")
        return (self._process.pid,)

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether it answers; OSError counts as no."""
        raise NotImplementedError

    def start(self) -> None:
        self._port = reserve_port()
        command = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        command += ["taskset", "-c", self.cpus] if self.cpus is not None else []
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*command, *self.command()], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.scratch
            )
        deadline = time.monotonic() + 30
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = "\n".join(self._log.read_text(errors="replace").splitlines()[-25:])
                raise ServerError(f"{self.label} did not start\n{said}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            return self.is_ready()
        except OSError:
            return False

    def time_to_first_ack(self) -> float:
        raise ServerError(f"the start of {self.label} is not measured")

    def _end(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        # What it wrote is not needed.
        self._process.kill()
        self._process.wait()
        deadline = time.monotonic() + 10
        while not port_is_free(self._port) and time.monotonic() < deadline:
            time.sleep(0.02)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=30)


class NatsServer(OneProcess):
    """One nats-server with JetStream: a topic is a stream of one subject in the file store, without replicas.

    Synchronous flush is `sync_interval: always`: an acknowledged message is on disk. Asynchronous is its default of two
    minutes, and what it writes is in the page cache, as with an asynchronous flush here.
    """

    send_mode = "nats"

    def command(self) -> Sequence[str]:
        configuration = self.scratch / "nats.conf"
        sync = "sync_interval: always" if self.flush == "sync" else ""
        configuration.write_text(
            f"listen: 127.0.0.1:{self._port}\n"
            f'jetstream {{ store_dir: "{self.scratch / "jetstream"}", max_file_store: 1TB, {sync} }}\n'
        )
        return [str(nats_program()), "--config", str(configuration)]

    def is_ready(self) -> bool:
        return "error" not in self._ask("$JS.API.INFO", "")

    def create_topic(self, topic: str, queues: int) -> None:
        configuration = {
            "name": topic, "subjects": [topic], "storage": "file", "retention": "limits", "discard": "old",
            "num_replicas": 1, "max_msgs": -1, "max_bytes": -1, "max_age": 0,
        }  # fmt: skip
        answer = self._ask(f"$JS.API.STREAM.CREATE.{topic}", json.dumps(configuration))
        if "error" in answer:
            raise ServerError(f"{self.label} did not create stream {topic}: {answer}")

    def _ask(self, subject: str, payload: str) -> dict[str, Any]:
        """One request of the JetStream API."""
        with self.connect() as connection, connection.makefile("rb") as stream:
            greeting = 'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
            request = f"SUB _ASK 1\r\nPUB {subject} _ASK {len(payload)}\r\n{payload}\r\n"
            connection.sendall((greeting + request).encode())
            while line := stream.readline():
                if line.startswith((b"-ERR", b"HMSG ")):
                    return {"error": line.decode()}
                if line.startswith(b"MSG "):
                    answer: dict[str, Any] = json.loads(stream.read(int(line.split()[-1])))
                    return answer
        raise OSError(f"{self.label} closed the connection")


class RedisServer(OneProcess):
    """One Redis whose append-only file is on: `appendfsync always` for a synchronous flush, else `everysec`.

    A topic is a stream for each of its queues. All of them are also held in memory, so a new topic empties it first.
    """

    send_mode = "redis"

    def command(self) -> Sequence[str]:
        return [
            "redis-server", "--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(self.scratch),
            "--appendonly", "yes", "--appendfsync", "always" if self.flush == "sync" else "everysec",
            "--save", "", "--auto-aof-rewrite-percentage", "0",
        ]  # fmt: skip

    def is_ready(self) -> bool:
        return self._ask("PING") == b"+PONG\r\n"

    def create_topic(self, topic: str, queues: int) -> None:
        if self._ask("FLUSHALL SYNC") != b"+OK\r\n":
            raise ServerError(f"{self.label} did not empty itself")

    def _ask(self, command: str) -> bytes:
        with self.connect() as connection, connection.makefile("rb") as stream:
            connection.sendall(command.encode() + b"\r\n")
            return stream.readline()


class RigServer(OneProcess):
    """`calibrate serve`: parses a request, copies its body and replies; it keeps no log and syncs nothing.

    How far a broker is from it is how far it is from doing nothing.
    """

    def command(self) -> Sequence[str]:
        return [str(build("calibrate")), "serve", "--port", str(self._port)]

    def is_ready(self) -> bool:
        self.connect().close()
        return True

    def create_topic(self, topic: str, queues: int) -> None:
        """It takes any."""


def nats_program() -> Path:
    """Where nats-server is, or would be put: $NATS_SERVER, the user's cache, or PATH."""
    if given := os.environ.get("NATS_SERVER"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cached = Path(base) / "rocketbox" / f"nats-server-{NATS_VERSION}" / "nats-server"
    found = None if cached.exists() else shutil.which("nats-server")
    return Path(found) if found else cached


def install_nats() -> str:
    """Build the pinned nats-server into the user's cache with Go; why not, or nothing when it is there."""
    program = nats_program()
    if program.exists():
        return ""
    if shutil.which("go") is None:
        return f"nats-server is not on PATH, and there is no go to build {NATS_VERSION} with"
    program.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["go", "install", f"github.com/nats-io/nats-server/v2@v{NATS_VERSION}"],
        env=os.environ | {"GOBIN": str(program.parent)}, capture_output=True, text=True,
    )  # fmt: skip
    return (
        "" if done.returncode == 0 else f"nats-server {NATS_VERSION} could not be built: {done.stderr.strip()[-300:]}"
    )


def why_absent(label: str) -> str:
    """Why a server cannot be measured here; empty when it can."""
    if label == NATS:
        return install_nats()
    if label == REDIS and shutil.which("redis-server") is None:
        return "redis-server is not on PATH (Debian: apt-get install redis-server)"
    return ""


def version(label: str) -> str:
    """What an installed one calls itself."""
    if label == NATS:
        said = subprocess.run([nats_program(), "--version"], capture_output=True, text=True).stdout
        return said.strip().removeprefix("nats-server: ")
    if label == REDIS:
        said = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout
        return next((word.removeprefix("v=") for word in said.split() if word.startswith("v=")), "")
    return ""
