"""`rocketbox serve` as a real process, for tests that speak to it over sockets.

    with Server(tmp_path / "data") as server:
        client.connect(server.namesrv)      # "127.0.0.1:23456"
        server.kill()                       # SIGKILL
        server.restart()                    # the same data directory, the same ports

The process dies with the thread that started it (PDEATHSIG), so a killed test run leaves none behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.ports import reserve_port
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]

START_TIMEOUT_S = 90.0
# SIGTERM ends it within 10 s: what has not stopped by then ends with status 1. What is there much later hangs.
STOP_TIMEOUT_S = 60.0

#: Whatever the machine's own disk looks like.
ROOMY = {
    "ROCKETBOX_STORE_DISK_MAX_USED_SPACE_RATIO": "95",
    "ROCKETBOX_STORE_DISK_SPACE_CLEAN_FORCIBLY_RATIO": "100",
    "ROCKETBOX_STORE_DISK_SPACE_WARNING_LEVEL_RATIO": "100",
}

LOG_FILE_BYTES = "ROCKETBOX_STORE_MAPPED_FILE_SIZE_COMMIT_LOG"

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def is_running(pid: int) -> bool:
    """True if the process runs; False also for a zombie, which has ended and was not waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class ServerError(RuntimeError):
    """The process did not start or did not end as promised; the message holds what it last said."""


class Server:
    """One `rocketbox serve`, on ports that stay its own while it is away."""

    def __init__(
        self,
        data_dir: Path,
        *arguments: str,
        roles: str = "broker,namesrv",
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        module: str = "appliance.main",
        log_file_mib: int | None = 8,
        broker_port: int = 0,
        namesrv_port: int = 0,
    ) -> None:
        """`arguments`: further command line arguments of `serve`, such as "--flush", "async". `environment`: more of
        it. `prefix`: a command that becomes the one behind it. `module`: what is run. `log_file_mib`: how long a file
        of the commit log is, on disk from its first byte; None: as the product or its configuration file has it.
        `broker_port`, `namesrv_port`: 0 for a reserved one."""
        self.data_dir = data_dir
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self.ready: dict[str, Any] = {}
        self._arguments = arguments
        self._prefix = prefix
        self._module = module
        self._roles = roles
        self._environment = dict(environment or {})
        if log_file_mib is not None:
            self._environment.setdefault(LOG_FILE_BYTES, str(log_file_mib << 20))
        self._process: subprocess.Popen[bytes] | None = None
        reserved = 0 if broker_port and namesrv_port else reserve_port()
        # The reserved block has five ports: the broker listens on N, N - 2 and N + 1.
        self._ports = {"broker": broker_port or reserved, "namesrv": namesrv_port or reserved + 2}

    @property
    def namesrv(self) -> str:
        """host:port of the name server."""
        return str(self.ready["namesrv"])

    @property
    def broker(self) -> str:
        """host:port of the broker."""
        return str(self.ready["broker"])

    @property
    def _ready_file(self) -> Path:
        return self.data_dir.with_name(self.data_dir.name + ".ready")

    @property
    def pid(self) -> int:
        """The process that owns the store."""
        return int(self.ready["pid"])

    @property
    def started_pid(self) -> int:
        """The process that was started; known before it is ready."""
        if self._process is None:
            raise ServerError("not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start, and return once the ready file is there: all roles accept connections.

        Raises ServerError with the end of the process's output when it exits or is not ready in time.
        """
        self.launch()
        self.wait_until_ready(timeout_s)

    def launch(self, *arguments: str) -> None:
        """Start the process and return at once. `arguments`: more of them, for this start."""
        if self.running:
            raise ServerError("already running")
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        ready_file = self._ready_file
        ready_file.unlink(missing_ok=True)
        command = [
            *self._prefix, sys.executable, "-m", self._module, "serve",
            "--ready-file", str(ready_file), "--data-dir", str(self.data_dir), "--roles", self._roles,
            "--broker-port", str(self._ports["broker"]), "--namesrv-port", str(self._ports["namesrv"]),
            *self._arguments, *arguments,
        ]  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=environment | ROOMY | self._environment,
                preexec_fn=_die_with_parent,
            )

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the server is ready, as `start` does. Raises what `start` raises."""
        assert self._process is not None
        ready_file = self._ready_file
        deadline = time.monotonic() + timeout_s
        while not ready_file.exists():
            if self._process.poll() is not None:
                raise ServerError(
                    f"rocketbox serve exited {self._process.returncode} before it was ready:\n{self._said()}"
                )
            if time.monotonic() > deadline:
                self.kill()
                raise ServerError(f"rocketbox serve was not ready in {timeout_s:.0f} s:\n{self._said()}")
            time.sleep(0.01)
        self.ready = json.loads(ready_file.read_text())

    def stop(self) -> None:
        """SIGTERM. Raises ServerError unless the process exits 0, or had not come so far yet that it takes signals."""
        if self._process is None:
            return
        process = self._process
        came_up = self._ready_file.exists()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise ServerError(f"SIGTERM did not end it within {STOP_TIMEOUT_S:.0f} s:\n{self._said()}") from None
        self._process = None
        if process.returncode != 0 and (came_up or process.returncode != -signal.SIGTERM):
            raise ServerError(f"it exited {process.returncode}, not 0:\n{self._said()}")

    def signal_kill(self) -> None:
        """SIGKILL, without waiting; `kill` comes next."""
        if self._process is not None:
            self._process.kill()

    def kill(self) -> None:
        """SIGKILL, at once to the process that was started and, with a console, to its worker, which owns the store;
        returns when they are gone. A worker that is left stops in order, while the next server finds its lock."""
        if self._process is not None:
            worker = self._process.pid
            if self.running and self._ready_file.exists():  # this start's: `ready` may be of the one before
                worker = int(json.loads(self._ready_file.read_text())["pid"])
            self._process.kill()
            if worker != self._process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
                wait_for(lambda: not is_running(worker), "the worker's end")
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Start again on the same data directory and ports; stops the running process first."""
        self.stop()
        self.start()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()  # the test's own failure is the news

    def _said(self, lines: int = 40) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
