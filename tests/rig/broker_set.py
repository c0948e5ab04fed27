"""A set of brokers and name servers as processes, with all of their connections through a relay.

    with BrokerSet(tmp_path, Kind.PLAIN) as brokers:
        brokers.create_topic("T", 4)
        brokers.nodes["b1"].kill()
        brokers.relay.fault("b2", "b1", hold=True)

Kind.PLAIN: brokers without fail-over: b1 is a SYNC_MASTER, b2 its slave, and b1 always leads.
Kind.FAILOVER: members of a set with three etcd servers; any may lead. Kind.ASYNCHRONOUS: such a set whose leader
acknowledges without waiting for followers.
Members connect to each other through the relay, and so do clients; tests may bypass it (`direct`). Each broker has a
disk and a wall clock that can be disturbed.
"""

from __future__ import annotations

import base64
import enum
import json
import os
import random
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests.rig.relay import Relay
from tests.support.etcd import Etcd
from tests.support.faults import Faults
from tests.support.peer import Peer
from tests.support.ports import reserve_port
from tests.support.server import Server
from tests.support.waiting import wait_for

NAME = "broker-set"
PREFIX = "/rig"
FILE_MIB = 4
CREATE_TOPIC, RUNTIME_INFO = 17, 28
#: Longest time that a member needs to recover, on a machine that is busy with other work.
RECOVER_S = 90.0


class Kind(enum.Enum):
    PLAIN = "plain"
    FAILOVER = "failover"
    ASYNCHRONOUS = "asynchronous"

    @property
    def elects(self) -> bool:
        return self is not Kind.PLAIN


class Node:
    """A process of the set: a broker or a name server. direct: "host:port" behind the relay."""

    def __init__(self, name: str, server: Server, relay: Relay, direct: str, address: str, faults: Faults) -> None:
        self.name, self.server, self.direct, self.address, self.faults = name, server, direct, address, faults
        self._relay = relay
        self.frozen = False
        #: True if the test ended it.
        self.down = True

    @property
    def data_dir(self) -> Path:
        return self.server.data_dir

    @property
    def commitlog(self) -> Path:
        return self.data_dir / "store" / "commitlog"

    def start(self) -> None:
        """Start the process; return when it takes connections."""
        self.launch()
        self.server.wait_until_ready(RECOVER_S)

    def launch(self, *arguments: str) -> None:
        """Start the process; return when it exists. arguments: more arguments, for this start only."""
        self.down = False
        self.server.launch(*arguments)
        self._relay.name_process(self.server.started_pid, self.name)

    @property
    def running(self) -> bool:
        return self.server.running

    def kill(self) -> None:
        """Send SIGKILL, also to a frozen process, and wait for its end."""
        self.frozen, self.down = False, True
        self.server.kill()

    def begin_kill(self) -> None:
        """Send SIGKILL without waiting; the caller calls `kill` next."""
        self.down = True
        self.server.signal_kill()

    def begin_stop(self) -> None:
        """Send SIGTERM if the process runs."""
        self.down = True
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Send SIGTERM and wait. Raises ServerError unless the process ends well."""
        self.down = True
        self.server.stop()

    def freeze(self) -> None:
        """Send SIGSTOP: connections stay open, and the kernel even accepts new ones."""
        self.frozen = self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.frozen = False
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> bool:
        """Send a signal if the process runs; return whether it does."""
        if not self.running:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.server.started_pid, number)
        return True

    def peer(self) -> Peer:
        """Return a connection past the relay, which no network fault disturbs."""
        return Peer(self.direct)

    def log_end(self) -> int:
        """Return the physical offset of the log's end; raises as the function `log_end` does."""
        return log_end(self.direct)


def log_end(address: str) -> int:
    """Return the end of a broker's log, as its runtime info has it. Raises OSError, ConnectionError, KeyError or
    ValueError while the broker does not answer."""
    peer = Peer(address)
    try:
        return int(json.loads(peer.ask(RUNTIME_INFO).body)["table"]["commitLogMaxOffset"])
    finally:
        peer.close()


class BrokerSet:
    """`kind`: see above. members: brokers. flush: "sync" or "async"."""

    def __init__(
        self,
        scratch: Path,
        kind: Kind,
        members: int = 2,
        *,
        flush: str = "sync",
        settings: dict[str, str] | None = None,
        etcd_flags: dict[str, Any] | None = None,
        name_servers: int = 2,
        module: str = "appliance.main",
    ) -> None:
        """settings: more variables of every broker's environment. module: run as broker in place of the product."""
        self.scratch, self.kind = scratch, kind
        self._stack = ExitStack()
        self._net = random.randrange(1, 250)
        self._members, self._flush, self._settings = members, flush, dict(settings or {})
        self._name_servers, self._module = name_servers, module
        self.etcd = Etcd(scratch / "etcd", 3, **(etcd_flags or {})) if kind.elects else None
        self.nodes: dict[str, Node] = {}
        self.namesrvs: dict[str, Node] = {}

    def start(self) -> None:
        self.relay = self._stack.enter_context(Relay())
        store_url = self._start_etcd()
        for number in range(1, self._name_servers + 1):
            port = reserve_port()
            node = self._node(f"ns{number}", 100 + number, port, "namesrv", {}, namesrv_port=port)
            self.namesrvs[node.name] = node
        routes = ";".join(node.address for node in self.namesrvs.values())
        ports = [reserve_port() for _ in range(self._members)]
        for number, port in enumerate(ports, 1):
            variables = self._variables(number, port, routes, store_url)
            node = self._node(f"b{number}", number, port, "broker", variables, broker_port=port)
            self.nodes[node.name] = node
        for node in [*self.namesrvs.values(), *self.nodes.values()]:
            makes_it = node.name == "b1" and self.kind.elects
            node.launch(*(["--ha-bootstrap"] if makes_it else []))
        for node in [*self.namesrvs.values(), *self.nodes.values()]:
            node.server.wait_until_ready(RECOVER_S)

    def _start_etcd(self) -> str:
        if self.etcd is None:
            return ""
        self._stack.enter_context(self.etcd)
        addresses = []
        for number, member in enumerate(self.etcd.members, 1):
            self.relay.route(
                f"e{number}", (f"127.91.{self._net}.{200 + number}", member.client_port),
                (member.host, member.client_port),
            )  # fmt: skip
            addresses.append(f"127.91.{self._net}.{200 + number}:{member.client_port}")
        return "etcd://" + ",".join(addresses)

    def _node(self, name: str, host: int, port: int, role: str, variables: dict[str, str], **ports: int) -> Node:
        inside, outside = f"127.90.{self._net}.{host}", f"127.91.{self._net}.{host}"
        directory = self.scratch / name
        directory.mkdir(parents=True)
        faults = Faults(directory)
        arguments = ["--bind", inside, "--advertise", outside]
        self.relay.route(name, (outside, port), (inside, port))
        if role == "broker":
            arguments += ["--broker-name", NAME, "--flush", self._flush]
            self.relay.route(name, (outside, port + 1), (inside, port + 1))
        server = Server(
            directory / "data",
            *arguments,
            roles=role,
            module=self._module if role == "broker" else "appliance.main",
            environment=variables | faults.environment,
            log_file_mib=FILE_MIB if role == "broker" else None,
            **ports,
        )
        self._stack.callback(server.kill)
        return Node(name, server, self.relay, f"{inside}:{port}", f"{outside}:{port}", faults)

    def _variables(self, number: int, port: int, routes: str, store_url: str) -> dict[str, str]:
        variables = {
            "ROCKETBOX_BROKER_NAMESRVADDR": routes,
            "ROCKETBOX_BROKER_SLAVEREADENABLE": "true",
            "ROCKETBOX_STORE_HALISTENPORT": str(port + 1),
            "ROCKETBOX_STORE_MAXMESSAGESIZE": "65536",
            # So that a drain needs few pulls.
            "ROCKETBOX_STORE_MAXTRANSFERBYTESONMESSAGEINMEMORY": str(4 << 20),
            "ROCKETBOX_STORE_MAXTRANSFERCOUNTONMESSAGEINMEMORY": "1000",
            "ROCKETBOX_STORE_MAXTRANSFERBYTESONMESSAGEINDISK": str(4 << 20),
            "ROCKETBOX_STORE_MAXTRANSFERCOUNTONMESSAGEINDISK": "1000",
            "ROCKETBOX_STORE_MAXHASHSLOTNUM": "5000",
            "ROCKETBOX_STORE_MAXINDEXNUM": "20000",
        }
        if self.kind is Kind.ASYNCHRONOUS:
            variables["ROCKETBOX_STORE_BROKERROLE"] = "ASYNC_MASTER"
        if self.kind.elects:
            variables |= {"ROCKETBOX_STORE_HASTORE": store_url, "ROCKETBOX_STORE_HASTOREPREFIX": PREFIX}
        elif number == 1:
            variables |= {
                "ROCKETBOX_STORE_BROKERROLE": "SYNC_MASTER",
                "ROCKETBOX_STORE_INSYNCREPLICAS": str(self._members),
            }
        else:
            variables |= {"ROCKETBOX_STORE_BROKERROLE": "SLAVE", "ROCKETBOX_BROKER_BROKERID": str(number - 1)}
        return variables | self._settings

    # Queries and actions.

    @property
    def clients(self) -> dict[str, str]:
        """Broker name -> address that clients use, through the relay."""
        return {name: node.address for name, node in self.nodes.items()}

    @property
    def namesrv(self) -> str:
        return ";".join(node.address for node in self.namesrvs.values())

    def state(self) -> dict[str, Any] | None:
        """Return the set's state in etcd; None if there is none. Raises OSError when no etcd member answers."""
        assert self.etcd is not None
        key = base64.b64encode(f"{PREFIX}/{NAME}/state".encode()).decode()
        failed: OSError = OSError("no etcd member runs")
        for member in self.etcd.members:
            if not member.running:
                continue
            try:
                found = member.ask("kv/range", {"key": key}).get("kvs")
            except OSError as error:
                failed = error
                continue
            state: dict[str, Any] | None = json.loads(base64.b64decode(found[0]["value"])) if found else None
            return state
        raise failed

    def leader(self) -> Node | None:
        """Return the leader that etcd names, b1 in a plain set; None while there is none or etcd does not answer."""
        if self.kind is Kind.PLAIN:
            return self.nodes["b1"]
        try:
            state = self.state()
        except OSError:
            return None
        if not state or not state.get("leader"):
            return None
        return next((node for node in self.nodes.values() if node.address == state["leader"]["addr"]), None)

    def wait_in_sync(self, seconds: float = RECOVER_S) -> None:
        """Wait until every member is in sync; return at once in a plain set."""

        def all_in_sync() -> bool:
            state = self.state()
            return bool(state and state.get("leader")) and len(state["isr"]) == len(self.nodes)

        if self.kind.elects:
            wait_for(all_in_sync, "all members to be in sync", seconds, every=0.05, not_yet=(OSError,))

    def create_topic(self, topic: str, queues: int, seconds: float = RECOVER_S) -> None:
        """Create the topic on the leader; wait for one if there is none."""
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues,
                  "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip

        def created() -> bool:
            node = self.leader()
            if node is None:
                return False
            peer = node.peer()
            try:
                return peer.ask(CREATE_TOPIC, fields).code == 0
            finally:
                peer.close()

        wait_for(created, f"{topic} is created", seconds, every=0.05, not_yet=(OSError,))

    def heal(self, chance: random.Random | None = None) -> None:
        """End every fault and start every process that is down; brokers may still be catching up. Raises
        AssertionError when a process has ended that no test stopped."""
        self.relay.heal(reset=chance is not None and chance.random() < 0.5)
        for member in self.etcd.members if self.etcd else ():
            if member.running:
                member.resume()
            else:
                member.start()
        for node in [*self.namesrvs.values(), *self.nodes.values()]:
            node.faults.disarm()
            node.faults.move_clock(0)
            if node.frozen:
                node.thaw()
            if not node.running:
                assert node.down, f"{node.name} ended by itself"
                node.kill()
                node.launch()
        for node in [*self.namesrvs.values(), *self.nodes.values()]:
            node.server.wait_until_ready(RECOVER_S)

    def restart_all(self) -> None:
        """Send SIGTERM to all brokers at once, then start all of them."""
        for node in self.nodes.values():
            node.begin_stop()
        for node in self.nodes.values():
            node.stop()
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.server.wait_until_ready(RECOVER_S)

    def said(self, lines: int = 60) -> str:
        """Return the last lines of each broker's log."""
        found = []
        for node in self.nodes.values():
            text = node.server.log_path.read_text(errors="replace") if node.server.log_path.exists() else ""
            found.append(f"--- {node.name}\n" + "\n".join(text.splitlines()[-lines:]))
        return "\n".join(found)

    def close(self) -> None:
        for node in self.nodes.values():
            if node.frozen:
                node.thaw()
        self._stack.close()

    def __enter__(self) -> BrokerSet:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
