"""The files of examples/layouts, started as they are: each machine of a layout is an address of this one.

    with Layout("set-of-two", tmp_path) as layout:
        first = layout.start("machine-1.toml")
        first.kill()

In the files 10.0.0.N becomes 127.X.Y.N, and /var/lib a directory of the machine. Sizes of files are smaller than the
defaults, which reserve a gigabyte each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.peer import Peer
from tests.support.ports import reserve_port
from tests.support.server import ROOMY, ROOT, START_TIMEOUT_S, STOP_TIMEOUT_S, ServerError, _die_with_parent

FILES = ROOT / "examples/layouts"
ROUTE = 105
SMALL = {
    "ROCKETBOX_STORE_MAPPED_FILE_SIZE_COMMIT_LOG": str(8 << 20),
    "ROCKETBOX_STORE_MAX_HASH_SLOT_NUM": "5000",
    "ROCKETBOX_STORE_MAX_INDEX_NUM": "20000",
}


class Machine:
    """One `rocketbox serve -c FILE`, or one etcd with its file."""

    def __init__(self, layout: Layout, file: str, *arguments: str) -> None:
        self.file = layout.here(file)
        self.host = layout.host_of(file)
        self.data_dir = layout.directory_of(file)
        self.log_path = self.data_dir.with_name(f"{self.data_dir.name}-{self.file.stem}.log")
        self.ready: dict[str, Any] = {}
        self._ready_file = self.data_dir.with_name(f"{self.data_dir.name}.ready")
        self._arguments = arguments
        self._environment = dict(layout.environment)
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start and return at once."""
        self._ready_file.unlink(missing_ok=True)
        if self.file.suffix == ".yml":
            command = ["etcd", "--config-file", str(self.file)]
        else:
            command = [
                *(sys.executable, "-m", "appliance.main", "serve", "-c", str(self.file)),
                *("--ready-file", str(self._ready_file), *self._arguments),
            ]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=clean | ROOMY | SMALL | self._environment,
                preexec_fn=_die_with_parent,
                start_new_session=True,  # so that all of it can be killed
            )

    def wait_until_ready(self, seconds: float = START_TIMEOUT_S) -> None:
        """ServerError with what it said when it ends before, or takes longer."""
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while not self._ready_file.exists():
            if self._process.poll() is not None:
                raise ServerError(f"{self.file.name} exited {self._process.returncode}:\n{self.said()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.file.name} was not ready in {seconds:.0f} s:\n{self.said()}")
            time.sleep(0.01)
        self.ready = json.loads(self._ready_file.read_text())

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """To the process that has the broker: with a console it is another one than the first."""
        os.kill(int(self.ready["pid"]), number)

    def kill(self) -> None:
        """All processes, at once."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        self.ready = {}

    def stop(self) -> None:
        """SIGTERM; ServerError unless it exits 0 in time."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"{self.file.name} did not end in time:\n{self.said()}") from None
        self._process = None
        self.ready = {}
        if status != 0 and self.file.suffix != ".yml":
            raise ServerError(f"{self.file.name} exited {status}:\n{self.said()}")

    def said(self, lines: int = 60) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


class Layout:
    """The files of one directory, with addresses and directories of this machine."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.machines: list[Machine] = []
        #: More settings, of machines that are started from now on.
        self.environment: dict[str, str] = {}
        #: Tests run side by side, and every layout has the same ports: what is its own is a number.
        own = reserve_port()
        self._net = f"127.{own >> 8}.{own & 255}."

    def address(self, number: int, port: int) -> str:
        return f"{self._net}{number}:{port}"

    def host_of(self, file: str) -> str:
        return f"{self._net}{_machine_of(file)}"

    def directory_of(self, file: str) -> Path:
        directory = self.directory / f"machine-{_machine_of(file)}"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def here(self, file: str) -> Path:
        """The file with this machine's addresses and directories, otherwise as it is."""
        text = (FILES / self.name / file).read_text(encoding="utf-8")
        text = text.replace("10.0.0.", self._net).replace("/var/lib", str(self.directory_of(file)))
        made = self.directory / file
        made.write_text(text, encoding="utf-8")
        return made

    def launch(self, file: str, *arguments: str) -> Machine:
        machine = Machine(self, file, *arguments)
        self.machines.append(machine)
        machine.launch()
        return machine

    def start(self, file: str, *arguments: str) -> Machine:
        machine = self.launch(file, *arguments)
        machine.wait_until_ready()
        return machine

    def __enter__(self) -> Layout:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for machine in reversed(self.machines):
            machine.kill()
        if kind is not None:
            for machine in self.machines:
                if machine.file.suffix != ".yml" and machine.log_path.exists():
                    print(f"--- {machine.log_path.name}\n{machine.said()}")


def _machine_of(file: str) -> str:
    """The last digit in a file's name; the only machine is the first."""
    return next((letter for letter in reversed(file) if letter.isdigit()), "1")


def route_of(namesrv: str, topic: str) -> dict[str, dict[str, str]]:
    """Return brokerName -> brokerId -> address from a name server's route of a topic; empty if it has no route."""
    peer = Peer(namesrv)
    try:
        answer = peer.ask(ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})
    finally:
        peer.close()
    if answer.code != 0:
        return {}
    return {one["brokerName"]: one["brokerAddrs"] for one in json.loads(answer.body)["brokerDatas"]}
