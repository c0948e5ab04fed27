"""One server of each back end behind a relay, with the faults that tests want."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Protocol

from kazoo.client import KazooClient

from appliance.engine.failover.leader_store import LeaderStore
from appliance.engine.failover.stores import open_store
from appliance.engine.failover.stores.access import Access
from tests.support.etcd import Etcd
from tests.support.memory_store import MemoryCluster, MemoryStore
from tests.support.tcp_relay import TcpRelay
from tests.support.zookeeper import ZooKeeper


class Bed(Protocol):
    def open(self, timeout_s: float = 2.0, cluster: str = "") -> LeaderStore:
        """Open a store through the relay."""

    def set_down(self, down: bool) -> None: ...

    def set_slow(self, seconds: float) -> None: ...

    def lose_reply_of(self, value: bytes) -> None:
        """Have the server do the swap and lose its answer. len(value) % 3 == 0."""

    def heal(self) -> None: ...

    def delete(self, key: str) -> None: ...

    def wipe(self) -> None:
        """Restart the server at the same address, empty."""

    def close(self) -> None: ...


class MemoryBed:
    def __init__(self) -> None:
        self._cluster = MemoryCluster()

    def open(self, timeout_s: float = 2.0, cluster: str = "") -> LeaderStore:
        return MemoryStore(self._cluster, timeout_s, cluster)

    def set_down(self, down: bool) -> None:
        self._cluster.down = down

    def set_slow(self, seconds: float) -> None:
        self._cluster.delay_s = seconds

    def lose_reply_of(self, value: bytes) -> None:
        self._cluster.lose_reply_of = value

    def heal(self) -> None:
        self._cluster.down, self._cluster.delay_s, self._cluster.lose_reply_of = False, 0.0, None

    def delete(self, key: str) -> None:
        self._cluster.remove(key)

    def wipe(self) -> None:
        self._cluster.wipe()

    def close(self) -> None: ...


class _Relayed:
    def __init__(self, scheme: str, address: str) -> None:
        self._scheme = scheme
        self._relay = TcpRelay(address)

    def open(self, timeout_s: float = 2.0, cluster: str = "") -> LeaderStore:
        url = f"{self._scheme}://{self._relay.address}"
        return open_store(url, Access(timeout_s=timeout_s, cluster=cluster))

    def set_down(self, down: bool) -> None:
        self._relay.refuse = down

    def set_slow(self, seconds: float) -> None:
        self._relay.delay_s = seconds

    def lose_reply_of(self, value: bytes) -> None:
        self._relay.swallow_after = (value, base64.b64encode(value))

    def heal(self) -> None:
        self._relay.refuse, self._relay.delay_s, self._relay.swallow_after = False, 0.0, ()


class EtcdBed(_Relayed):
    def __init__(self, directory: Path) -> None:
        self.etcd = Etcd(directory)
        self.etcd.start()
        super().__init__("etcd", self.etcd.members[0].address)

    def delete(self, key: str) -> None:
        self.etcd.members[0].ask("kv/deleterange", {"key": base64.b64encode(key.encode()).decode()})

    def wipe(self) -> None:
        self.etcd.wipe()
        self.etcd.start()

    def close(self) -> None:
        self._relay.close()
        self.etcd.stop()


class ZooKeeperBed(_Relayed):
    def __init__(self, directory: Path) -> None:
        self.zookeeper = ZooKeeper(directory)
        self.zookeeper.start()
        super().__init__("zookeeper", self.zookeeper.members[0].address)

    def delete(self, key: str) -> None:
        client = KazooClient(self.zookeeper.members[0].address)
        client.start()
        client.delete(key)
        client.stop()
        client.close()

    def wipe(self) -> None:
        self.zookeeper.wipe()
        self.zookeeper.start()

    def close(self) -> None:
        self._relay.close()
        self.zookeeper.stop()
