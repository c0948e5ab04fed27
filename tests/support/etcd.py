"""etcd servers of Debian's package `etcd-server`, as a cluster of one or more on loopback: the store for leadership.

    with Etcd(tmp_path / "etcd", members=3) as etcd:
        store = open_store(etcd.url)            # "etcd://127.0.0.1:23451,..."
        etcd.leader().kill()                    # SIGKILL; pause() and resume() are SIGSTOP and SIGCONT
        ...
        for member in etcd.members:
            member.start()                      # on what it has on disk; returns at once

Each member preallocates 64 MB of write-ahead log in its directory. Servers die with the thread that started them.
"""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.ports import reserve_port
from tests.support.standstill import stop_process
from tests.support.waiting import wait_for

BINARY = "etcd"
QUOTA_BYTES = 64 * 1024 * 1024
ASK_TIMEOUT_S = 2.0
START_TIMEOUT_S = 90.0


class EtcdError(RuntimeError):
    """A server did not start; the message holds what it last said."""


class Tls(NamedTuple):
    """Paths of PEM files; clients have to show a certificate of the same authority."""

    ca: Path
    cert: Path
    key: Path


class EtcdMember:
    """One server. prefix: what its command begins with ("ip", "netns", "exec", ...)."""

    def __init__(self, name: str, directory: Path, host: str, prefix: Sequence[str] = ()) -> None:
        self.name = name
        self.directory = directory
        self.host = host
        self.client_port = reserve_port()
        self.peer_port = self.client_port + 1
        self.flags: list[str] = []
        self.tls: Tls | None = None
        self._prefix = tuple(prefix)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.client_port}"

    @property
    def peer_url(self) -> str:
        return f"http://{self.host}:{self.peer_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns at once; `Etcd.wait_until_ready` waits."""
        assert not self.running
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [*self._prefix, "setpriv", "--pdeathsig", "KILL", "--", BINARY, *self.flags]
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
        assert self._process is not None
        stop_process(self._process.pid)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def ask(
        self, path: str, request: Mapping[str, Any] | None = None, timeout_s: float = ASK_TIMEOUT_S, token: str = ""
    ) -> Any:
        """The answer to POST /v3/`path`. token: of `auth/authenticate`. Raises OSError when there is none."""
        context = None
        if self.tls is not None:
            context = ssl.create_default_context(cafile=str(self.tls.ca))
            context.load_cert_chain(self.tls.cert, self.tls.key)
            peer: http.client.HTTPConnection = http.client.HTTPSConnection(
                self.host, self.client_port, timeout=timeout_s, context=context
            )
        else:
            peer = http.client.HTTPConnection(self.host, self.client_port, timeout=timeout_s)
        try:
            peer.request("POST", f"/v3/{path}", json.dumps(request or {}), {"Authorization": token} if token else {})
            answer = peer.getresponse()
            body = answer.read()
        except http.client.HTTPException as error:
            raise OSError(f"{self.address} sent no answer: {error!r}") from None
        finally:
            peer.close()
        if answer.status != 200:
            raise OSError(f"{self.address} answered {answer.status} to {path}: {body[:500].decode(errors='replace')}")
        return json.loads(body)

    def require_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            said = self._log.read_text(errors="replace")[-3000:]
            raise EtcdError(f"etcd {self.name} exited {self._process.returncode}:\n{said}")

    @property
    def _log(self) -> Path:
        return self.directory / "etcd.log"

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Etcd:
    """A cluster. `hosts`, `prefixes`: one of each member, where they are not all on 127.0.0.1 and plain processes.

    heartbeat_ms, election_ms: etcd's defaults. token: part of what its cluster id is made of.
    tls: of the client's side; members speak plainly to each other.
    """

    def __init__(
        self,
        directory: Path,
        members: int = 1,
        *,
        hosts: Sequence[str] | None = None,
        prefixes: Sequence[Sequence[str]] | None = None,
        heartbeat_ms: int = 100,
        election_ms: int = 1000,
        token: str = "tests",
        tls: Tls | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        if shutil.which(BINARY) is None:
            raise EtcdError("etcd is not on PATH: Debian's package is etcd-server")
        self.directory = directory
        self.tls = tls
        self.members = [
            EtcdMember(
                f"m{at}",
                directory / f"m{at}",
                hosts[at] if hosts else "127.0.0.1",
                prefixes[at] if prefixes else (),
            )
            for at in range(members)
        ]
        everyone = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        for member in self.members:
            url = f"{'https' if tls else 'http'}://{member.address}"
            member.tls = tls
            member.flags = [
                f"--name={member.name}",
                f"--data-dir={member.directory / 'data'}",
                f"--listen-client-urls={url}",
                f"--advertise-client-urls={url}",
                f"--listen-peer-urls={member.peer_url}",
                f"--initial-advertise-peer-urls={member.peer_url}",
                f"--initial-cluster={everyone}",
                f"--initial-cluster-token={token}",
                "--initial-cluster-state=new",
                f"--heartbeat-interval={heartbeat_ms}",
                f"--election-timeout={election_ms}",
                f"--quota-backend-bytes={QUOTA_BYTES}",
                "--max-wals=2",
                "--max-snapshots=2",
                "--logger=zap",
                "--log-outputs=stderr",
                "--log-level=warn",
                *flags,
            ]
            if tls:
                member.flags += [
                    f"--cert-file={tls.cert}",
                    f"--key-file={tls.key}",
                    f"--trusted-ca-file={tls.ca}",
                    "--client-cert-auth",
                ]

    @property
    def url(self) -> str:
        """What `haStore` takes."""
        return f"{'etcds' if self.tls else 'etcd'}://{','.join(member.address for member in self.members)}"

    def start(self) -> None:
        for member in self.members:
            if not member.running:
                member.start()
        self.wait_until_ready()

    def wait_until_ready(self, seconds: float = START_TIMEOUT_S) -> None:
        """Returns when every member that runs answers a read that asks the majority."""
        for member in self.members:
            if member.running:
                wait_for(lambda member=member: self._reads(member), f"etcd {member.name} answers", seconds, every=0.02)

    def leader(self, seconds: float = START_TIMEOUT_S) -> EtcdMember:
        """The member that leads now, by what a majority of all members says of it."""
        return wait_for(self._leader, "etcd has a leader", seconds, every=0.02)

    def followers(self) -> list[EtcdMember]:
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def wipe(self) -> None:
        """All members are killed and lose what they had; `start` makes a new cluster, with the same id unless `token`
        is another."""
        for member in self.members:
            member.kill()
            shutil.rmtree(member.directory / "data", ignore_errors=True)

    def keep(self, copy: Path) -> None:
        """Stops all members, copies what they have on disk to a new directory, and starts them again."""
        for member in self.members:
            member.stop()
            shutil.copytree(member.directory / "data", copy / member.name)
        self.start()

    def put_back(self, copy: Path) -> None:
        """The cluster as it was kept, as an operator does who restores a backup."""
        self.wipe()
        for member in self.members:
            shutil.copytree(copy / member.name, member.directory / "data")
        self.start()

    def stop(self) -> None:
        for member in self.members:
            member.kill()
            shutil.rmtree(member.directory / "data", ignore_errors=True)

    def __enter__(self) -> Etcd:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _reads(self, member: EtcdMember) -> bool:
        member.require_running()
        try:
            member.ask("kv/range", {"key": "AA=="})
        except OSError as error:
            # With access control on, it takes no strangers: then it has a leader, too.
            return "user name is empty" in str(error)
        return True

    def _leader(self) -> EtcdMember | None:
        votes: dict[str, int] = {}
        by_id = {}
        for member in self.members:
            if not member.running:
                continue
            try:
                status = member.ask("maintenance/status", timeout_s=0.5)
            except OSError:
                continue
            by_id[status["header"]["member_id"]] = member
            leader = status.get("leader", "0")
            votes[leader] = votes.get(leader, 0) + 1
        for leader, count in votes.items():
            if count > len(self.members) // 2 and leader in by_id:
                return by_id[leader]
        return None
