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
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.ports import reserve_port
from tests.support.store_servers import StoreCluster, StoreServer, StoreServerError

BINARY = "etcd"
QUOTA_BYTES = 64 * 1024 * 1024
ASK_TIMEOUT_S = 2.0


class Tls(NamedTuple):
    """Paths of PEM files; clients have to show a certificate of the same authority."""

    ca: Path
    cert: Path
    key: Path


class EtcdMember(StoreServer):
    """One server. prefix: what its command begins with ("ip", "netns", "exec", ...)."""

    def __init__(self, name: str, directory: Path, host: str, prefix: Sequence[str] = ()) -> None:
        super().__init__(f"etcd {name}", directory)
        self.host = host
        self.client_port = reserve_port()
        self.peer_port = self.client_port + 1
        self.flags: list[str] = []
        self.tls: Tls | None = None
        self._prefix = tuple(prefix)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.client_port}"

    @property
    def peer_url(self) -> str:
        return f"http://{self.host}:{self.peer_port}"

    def command(self) -> Sequence[str]:
        return [*self._prefix, "setpriv", "--pdeathsig", "KILL", "--", BINARY, *self.flags]

    def serves(self) -> bool:
        """True if the server answers a read that needs the majority."""
        try:
            self.ask("kv/range", {"key": "AA=="})
        except OSError as error:
            # With access control on, it takes no strangers: then it has a leader, too.
            return "user name is empty" in str(error)
        return True

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


class Etcd(StoreCluster[EtcdMember]):
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
            raise StoreServerError("etcd is not on PATH: Debian's package is etcd-server")
        self.scheme = "etcds" if tls else "etcd"
        self.members = [
            EtcdMember(
                f"m{at}",
                directory / f"m{at}",
                hosts[at] if hosts else "127.0.0.1",
                prefixes[at] if prefixes else (),
            )
            for at in range(members)
        ]
        everyone = ",".join(f"m{at}={member.peer_url}" for at, member in enumerate(self.members))
        for at, member in enumerate(self.members):
            url = f"{'https' if tls else 'http'}://{member.address}"
            member.tls = tls
            member.flags = [
                f"--name=m{at}",
                f"--data-dir={member.data}",
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

    def followers(self) -> list[EtcdMember]:
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def keep(self, copy: Path) -> None:
        """Stops all members, copies what they have on disk to a new directory, and starts them again."""
        for member in self.members:
            member.stop()
            shutil.copytree(member.data, copy / member.directory.name)
        self.start()

    def put_back(self, copy: Path) -> None:
        """The cluster as it was kept, as an operator does who restores a backup."""
        self.wipe()
        for member in self.members:
            shutil.copytree(copy / member.directory.name, member.data)
        self.start()

    def _leader(self) -> EtcdMember | None:
        """By what a majority of all members says of it."""
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
