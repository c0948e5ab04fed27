"""Servers of a store for leadership, as a cluster on loopback: the parts that etcd's and ZooKeeper's share.

A server dies with the thread that started it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Self, TypeVar

from tests.support.standstill import stop_process
from tests.support.waiting import wait_for

START_TIMEOUT_S = 90.0


class StoreServerError(RuntimeError):
    """A server did not start; the message holds what it last said."""


class StoreServer:
    """One server. It has what it keeps in `directory`/data."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """host:port of the clients' side."""
        raise NotImplementedError

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def command(self) -> Sequence[str]:
        """Make the server's files. Return the command that runs it."""
        raise NotImplementedError

    def serves(self) -> bool:
        raise NotImplementedError

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns at once; `StoreCluster.wait_until_ready` waits."""
        assert not self.running
        self.directory.mkdir(parents=True, exist_ok=True)
        command = self.command()
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL, also of one that is paused."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: hands leadership over."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: its sockets stay open and answer nothing."""
        stop_process(self.pid)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def require_running(self) -> None:
        """Raises StoreServerError when it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            said = self._log.read_text(errors="replace")[-3000:]
            raise StoreServerError(f"{self.name} exited {self._process.returncode}:\n{said}")

    def forget(self) -> None:
        """It is killed and loses what it had."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.directory / "said.log"

    def _end(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


Server = TypeVar("Server", bound=StoreServer)


class StoreCluster(Generic[Server]):
    """Some servers that keep one store. scheme: of the URL that `haStore` takes."""

    scheme: str
    members: list[Server]

    @property
    def url(self) -> str:
        """The cluster's address, as `haStore` takes it."""
        return f"{self.scheme}://{','.join(member.address for member in self.members)}"

    def start(self) -> None:
        for member in self.members:
            if not member.running:
                member.start()
        self.wait_until_ready()

    def wait_until_ready(self, seconds: float = START_TIMEOUT_S) -> None:
        """Returns when every member that runs serves."""

        def serves(member: Server) -> bool:
            member.require_running()
            return member.serves()

        for member in self.members:
            if member.running:
                wait_for(lambda member=member: serves(member), f"{member.name} serves", seconds, every=0.02)

    def leader(self, seconds: float = START_TIMEOUT_S) -> Server:
        """The member that leads now."""
        return wait_for(self._leader, f"a leader of {self.scheme}", seconds, every=0.02)

    def _leader(self) -> Server | None:
        raise NotImplementedError

    def wipe(self) -> None:
        """All members are killed and lose what they had; `start` makes a new cluster."""
        for member in self.members:
            member.forget()

    def stop(self) -> None:
        self.wipe()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
