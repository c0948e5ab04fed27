"""The layout of a set of two with its store, running, and what a test asks of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from appliance.engine.failover.leader_store import StoreUnavailable
from appliance.engine.failover.set_state import SetState, decode_state
from appliance.engine.failover.stores import open_store
from tests.support.layouts import Layout, Machine, route_of
from tests.support.peer import Peer, pull_fields, records, send_fields
from tests.support.waiting import wait_for

SEND, PULL = 310, 11
TOPIC = "Orders"
SET = "broker-a"


class SetOfTwo:
    """Three machines: brokers on 1 and 2, etcd and a name server on each. peer_class: of clients."""

    peer_class = Peer
    #: A leader on a machine with other work may be silent for longer than the 2 s of a synchronous set.
    patience: ClassVar = {"ROCKETBOX_STORE_HA_ELECT_AFTER": "5000"}

    def __init__(self, directory: Path, **environment: str) -> None:
        """environment: settings beside the files', as ROCKETBOX_... variables."""
        self.layout = Layout("set-of-two", directory)
        self.layout.environment = self.patience | environment
        self.brokers: dict[int, Machine] = {}
        #: Bodies that were answered 0, in the order in which they were sent.
        self.acknowledged: list[bytes] = []
        self._peers: dict[int, Peer] = {}
        self._sent = 0

    def __enter__(self) -> SetOfTwo:
        self.layout.__enter__()
        try:
            for number in (1, 2, 3):
                self.layout.launch(f"etcd-{number}.yml")
            endpoints = ",".join(self.layout.address(number, 2379) for number in (1, 2, 3))
            self._store = open_store(f"etcd://{endpoints}")
            wait_for(self._answers, "the store to answer", every=0.05)
            self.layout.start("machine-3.toml")
            self.brokers[1] = self.layout.start("machine-1.toml", "--ha-bootstrap")
            wait_for(lambda: self.takes_sends(1), "the first one to lead")
            self.brokers[2] = self.layout.start("machine-2.toml")
            self.wait_in_sync()
        except BaseException as error:
            self.layout.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        for peer in self._peers.values():
            peer.close()
        self.layout.__exit__(kind, error, None)

    # --- the set

    @property
    def stores(self) -> list[Machine]:
        """The etcd of each machine."""
        return [one for one in self.layout.machines if one.file.suffix == ".yml"]

    def _answers(self) -> bool:
        try:
            self._store.read("/rocketbox/none")
        except StoreUnavailable:
            return False
        return True

    def state(self) -> SetState | None:
        """The set's key; None without one. It waits for the store, which is given half a second for each answer."""

        def read() -> list[bytes | None]:
            return [self._store.read(f"/rocketbox/{SET}/state")[0]]

        [value] = wait_for(read, "the store to answer", not_yet=(StoreUnavailable,))
        return None if value is None else decode_state(value)

    def leader(self) -> int:
        """The machine that leads by the key; 0 while none does."""
        state = self.state()
        if state is None or state.leader is None:
            return 0
        return int(state.leader.addr.partition(":")[0].rpartition(".")[2])

    def wait_in_sync(self, seconds: float = 60) -> SetState:
        """Until both are."""
        return wait_for(
            lambda: (state := self.state()) and state.leader and len(state.isr) == 2 and state,
            "both to be in sync", seconds, every=0.05,
        )  # fmt: skip

    def wait_led_by(self, number: int, seconds: float = 60) -> None:
        wait_for(lambda: self.leader() == number, f"machine {number} to lead", seconds)

    # --- clients

    def broker(self, number: int) -> str:
        return self.layout.address(number, 10911)

    def peer(self, number: int) -> Peer:
        if number not in self._peers:
            self._peers[number] = self.peer_class(self.broker(number))
        return self._peers[number]

    def hang_up(self, number: int) -> None:
        peer = self._peers.pop(number, None)
        if peer is not None:
            peer.close()

    def send(self, number: int, count: int = 1) -> list[int]:
        """Send messages with numbered bodies, one after the other. Return their codes, -1 for none. Messages that are
        answered 0 are remembered."""
        codes = []
        for _ in range(count):
            self._sent += 1
            body = b"message %d" % self._sent
            try:
                code = self.peer(number).ask(SEND, send_fields(TOPIC, 0, ""), body).code
            except OSError:
                self.hang_up(number)
                code = -1
            if code == 0:
                self.acknowledged.append(body)
            codes.append(code)
        return codes

    def takes_sends(self, number: int) -> bool:
        return self.send(number) == [0]

    def wait_for_sends(self, numbers: Iterable[int]) -> int:
        """The machine that answers the next 0."""
        return wait_for(lambda: next((one for one in numbers if self.takes_sends(one)), 0), "somebody to take sends")

    def bodies_at(self, number: int) -> list[bytes]:
        """All that a consumer finds there, in order; [] while pulls are refused."""
        found: list[bytes] = []
        peer = self.peer_class(self.broker(number))
        try:
            while True:
                answer = peer.ask(PULL, pull_fields(TOPIC, 0, len(found)))
                if answer.code != 0:
                    return found
                found += [one.body for one in records(answer.body)]
        finally:
            peer.close()

    def wait_route(self, namesrv: int, leader: int, seconds: float = 60) -> None:
        """Until a name server tells clients that a machine leads."""
        wait_for(
            lambda: route_of(self.layout.address(namesrv, 9876), TOPIC).get(SET, {}).get("0") == self.broker(leader),
            f"name server {namesrv} to say that machine {leader} leads", seconds,
        )  # fmt: skip

    def log_of(self, number: int) -> bytes:
        """The commit log's files as they are, one behind the other."""
        directory = self.brokers[number].data_dir / "rocketbox/store/commitlog"
        return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
