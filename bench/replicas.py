"""Two brokers that hold the same log, behind the interface of one `Server`: clients send to the one that leads.

Our master and slave, our set with fail-over and one etcd, and Apache's master and slave. All are synchronous masters,
and that is tried: after the start the other one is frozen, and then no send may be answered 0.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.servers import APACHES, ROCKETBOX, RocketBoxServer, Server, ServerError, wait_for_ack
from tests.support.apache import ApacheBroker, ApacheNamesrv, ask
from tests.support.etcd import Etcd

NAME = "broker-a"
PREFIX = "/bench"
PAIR, SET = "pair", "set"
#: What the tables call them.
PAIR_TITLES = {
    PAIR: "RocketBox, master and slave",
    SET: "RocketBox, set of two with etcd",
    **{f"pair-{label}": label.replace("apache-", "Apache ") for label in reversed(APACHES)},
}
SETTLE_S = 60.0
#: Shorter than what a set needs to go on without a member.
_FROZEN_SEND_S = 1.0


class Member(RocketBoxServer):
    """One of our brokers, with a name server of its own in the process. namesrv: of another, to register with.

    listens: for slaves, on the port above its own, as a synchronous master does by itself.
    settings: of `[store]` and `[broker]`, as variables of the environment.
    """

    def __init__(
        self,
        flush: str,
        cpus: str | None,
        scratch_root: Path,
        namesrv: str = "",
        *,
        listens: bool = False,
        **settings: object,
    ) -> None:
        super().__init__(ROCKETBOX, flush, cpus, scratch_root)
        self._listens = listens
        self.environment |= {f"ROCKETBOX_{name.upper()}": str(value) for name, value in settings.items()}
        if namesrv:
            self.arguments += ["--namesrv-addr", namesrv]

    @property
    def replication_port(self) -> int:
        return int(self.broker.rpartition(":")[2]) + 1

    def _launch(self, broker_port: int) -> None:
        if self._listens:
            self.environment["ROCKETBOX_STORE_HALISTENPORT"] = str(broker_port + 1)
        super()._launch(broker_port)


class Replicas(Server):
    """Two brokers. `_start_both` fills `_members`; the first leads unless `_leader` knows better."""

    compiles_under_load = True

    def __init__(self, label: str, flush: str, cpus: str | None, scratch_root: Path) -> None:
        super().__init__(label, flush, cpus, scratch_root)
        self._members: list[Any] = []
        self._leads = 0

    @property
    def broker(self) -> str:
        return str(self._address(self._members[self._leads]))

    @property
    def namesrv(self) -> str:
        return str(self._members[0].namesrv)

    @property
    def leader_pids(self) -> tuple[int, ...]:
        return self._pids(self._members[self._leads])

    @property
    def follower_pids(self) -> tuple[int, ...]:
        return self._pids(self._members[1 - self._leads])

    @property
    def other_pids(self) -> tuple[int, ...]:
        """Of what they need besides."""
        return ()

    @property
    def pids(self) -> tuple[int, ...]:
        return (*self.leader_pids, *self.follower_pids, *self.other_pids)

    def start(self) -> None:
        self._start_both()
        self.settle()
        self._require_double()

    def thaw(self) -> None:
        for pid in (*self.other_pids, *self.leader_pids, *self.follower_pids):
            os.kill(pid, signal.SIGCONT)
        self._frozen = False
        self.settle()

    def stop(self) -> None:
        # Nothing has to settle first.
        for pid in self.pids if self._frozen else ():
            os.kill(pid, signal.SIGCONT)
        self._frozen = False
        super().stop()

    def settle(self) -> None:
        """Until both have all that is acknowledged, and a send is."""
        self._leads = self._leader()
        wait_for_ack(self.broker, lambda: None, SETTLE_S)

    def time_to_first_ack(self) -> float:
        raise ServerError("not measured of two")

    def _require_double(self) -> None:
        """Raise ServerError when a send is answered 0 while the other broker cannot hold it."""
        for pid in self.follower_pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            with contextlib.suppress(OSError):
                code = send_one(self.broker, _FROZEN_SEND_S)
                if code == 0:
                    raise ServerError(f"{self.label} acknowledges what one broker has")
        finally:
            for pid in self.follower_pids:
                os.kill(pid, signal.SIGCONT)
        self.settle()

    def _start_both(self) -> None:
        raise NotImplementedError

    def _leader(self) -> int:
        return 0

    def _address(self, member: Any) -> str:
        return str(member.broker)

    def _pids(self, member: Any) -> tuple[int, ...]:
        return tuple(member.pids)

    def _end(self) -> None:
        for member in self._members:
            member.stop()


class Pair(Replicas):
    """A synchronous RocketBox master and its slave."""

    def _start_both(self) -> None:
        master = Member(self.flush, self.cpus, self.scratch, store_brokerRole="SYNC_MASTER")
        self._members.append(master)
        master.start()
        self._members.append(slave_of(master))
        self._members[1].start()


class FailoverSet(Replicas):
    """Two members of a set, and an etcd of one server."""

    def __init__(self, label: str, flush: str, cpus: str | None, scratch_root: Path) -> None:
        super().__init__(label, flush, cpus, scratch_root)
        self.etcd = Etcd(self.scratch / "etcd")

    @property
    def other_pids(self) -> tuple[int, ...]:
        return tuple(member.pid for member in self.etcd.members if member.running)

    def _start_both(self) -> None:
        self.etcd.start()
        settings = {"store_haStore": self.etcd.url, "store_haStorePrefix": PREFIX}
        first = Member(self.flush, self.cpus, self.scratch, **settings)
        first.arguments.append("--ha-bootstrap")
        self._members.append(first)
        first.start()
        second = Member(self.flush, self.cpus, self.scratch, first.namesrv, **settings)
        self._members.append(second)
        second.start()

    def _leader(self) -> int:
        """The place of the leader, once all are in sync."""
        addresses = [member.broker for member in self._members]
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                state = self.state()
                if state and state.get("leader") and len(state["isr"]) == len(addresses):
                    return addresses.index(state["leader"]["addr"])
            time.sleep(0.05)
        raise ServerError(f"the set did not get in sync in {SETTLE_S:.0f} s")

    def state(self) -> dict[str, Any] | None:
        """As etcd has it; raises OSError."""
        key = base64.b64encode(f"{PREFIX}/{NAME}/state".encode()).decode()
        found = self.etcd.members[0].ask("kv/range", {"key": key}).get("kvs")
        state: dict[str, Any] | None = json.loads(base64.b64decode(found[0]["value"])) if found else None
        return state

    def _end(self) -> None:
        super()._end()
        self.etcd.stop()


class ApachePair(Replicas):
    """Apache's synchronous master, its slave and its name server, 512 MB of heap each."""

    def _start_both(self) -> None:
        version = self.label.removeprefix("pair-apache-")
        self._namesrv = ApacheNamesrv(version, cpus=self.cpus, scratch=self._directory("namesrv"))
        self._namesrv.launch()
        self._namesrv.wait_until_ready()
        for number in range(2):
            # 5.x waits for no slave by default.
            config = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2} if number == 0 else {}
            broker = ApacheBroker(
                version, self._namesrv.address, flush=self.flush, broker_id=number, cpus=self.cpus, config=config,
                scratch=self._directory(f"broker-{number}"),
            )  # fmt: skip
            self._members.append(broker)
            broker.launch()
            broker.wait_until_ready()

    def _directory(self, name: str) -> Path:
        directory = self.scratch / name
        directory.mkdir()
        return directory

    @property
    def namesrv(self) -> str:
        return self._namesrv.address

    @property
    def other_pids(self) -> tuple[int, ...]:
        return (self._namesrv.pid,)

    def _address(self, member: Any) -> str:
        return str(member.address)

    def _pids(self, member: Any) -> tuple[int, ...]:
        return (member.pid,)

    def _end(self) -> None:
        for server in (*self._members, self._namesrv):
            server.stop(timeout_s=1.0)


def slave_of(master: Member, **settings: object) -> Member:
    """An empty slave that is not started yet."""
    return Member(
        master.flush, master.cpus, master.scratch.parent, master.namesrv,
        store_brokerRole="SLAVE", broker_brokerId=1,
        store_haMasterAddress=f"127.0.0.1:{master.replication_port}", **settings,
    )  # fmt: skip


def make_replicas(label: str, flush: str, cpus: str | None, scratch_root: Path) -> Replicas:
    """Not started yet."""
    kind = {PAIR: Pair, SET: FailoverSet}.get(label, ApachePair)
    return kind(label, flush, cpus, scratch_root)


def send_one(broker: str, timeout_s: float) -> int:
    """The answer's code to one message; raises OSError when there is none in time. The topic creates itself."""
    fields = {
        "a": "BenchGroup", "b": "FirstTopic", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0", "i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false", "n": NAME,
    }  # fmt: skip
    answer, _ = ask(broker, 310, fields, b"x" * 1024, timeout_s)
    return int(answer["code"])


def log_end(broker: str) -> int:
    """Physical offset up to which a broker shows its log; raises OSError while it does not answer."""
    _, body = ask(broker, 28, {}, timeout_s=5)
    return int(json.loads(body)["table"]["commitLogMaxOffset"])


def thread_shares(before: dict[int, float], after: dict[int, float], seconds: float) -> list[float]:
    """CPUs that each thread used, the busiest first."""
    return sorted(((spent - before.get(tid, 0.0)) / seconds for tid, spent in after.items()), reverse=True)


def thread_cpu(pids: Sequence[int]) -> dict[int, float]:
    """Seconds of user and system time by thread."""
    found = {}
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # it has just ended
                after_name = (task / "stat").read_text().rpartition(")")[2].split()
                found[int(task.name)] = (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
    return found
