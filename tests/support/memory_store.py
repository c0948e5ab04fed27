"""A leader store in memory, with faults: the shape of `LeaderStore`, for tests that ask no server.

cluster = MemoryCluster()
store = MemoryStore(cluster)
cluster.down = True                 # StoreUnavailable
cluster.delay_s = 2.0               # longer than a store's time-out: the same, after the time-out
cluster.lose_reply_of = b"value"    # a swap of it is done, and its writer hears nothing
"""

from __future__ import annotations

import threading
import time
import uuid

from appliance.engine.failover.leader_store import Revision, StoreReplaced, StoreUnavailable, SwapConflict

NO_KEY = Revision("0")
#: Limit as ZooKeeper's; etcd takes half as much again.
MAX_VALUE_BYTES = 1024 * 1024


class MemoryCluster:
    """State that several stores share."""

    def __init__(self) -> None:
        self.down = False
        self.delay_s = 0.0
        self.lose_reply_of: bytes | None = None
        self.changed = threading.Condition()
        self.wipe()

    def wipe(self) -> None:
        with self.changed:
            self.name = uuid.uuid4().hex
            self.revision = 1
            self.keys: dict[str, tuple[bytes, Revision]] = {}

    def found(self, key: str) -> tuple[bytes | None, Revision]:
        return self.keys.get(key, (None, NO_KEY))

    def write(self, key: str, value: bytes) -> Revision:
        """With `changed` held."""
        if len(value) > MAX_VALUE_BYTES:
            raise StoreUnavailable("the value is too large")
        self.revision += 1
        revision = Revision(str(self.revision))
        self.keys[key] = (value, revision)
        self.changed.notify_all()
        return revision

    def remove(self, key: str) -> None:
        with self.changed:
            self.revision += 1
            self.keys.pop(key, None)
            self.changed.notify_all()


class MemoryStore:
    """A LeaderStore. timeout_s: of each call, by the real clock."""

    def __init__(self, cluster: MemoryCluster, timeout_s: float = 0.5, expected_cluster: str = "") -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._name = expected_cluster
        self._closed = False

    def read(self, key: str) -> tuple[bytes | None, Revision]:
        self._reach()
        with self._cluster.changed:
            return self._cluster.found(key)

    def swap(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        self._reach()
        cluster = self._cluster
        with cluster.changed:
            found, revision = cluster.found(key)
            if revision != (expected or NO_KEY):
                raise SwapConflict(found, revision)
            revision = cluster.write(key, value)
        if cluster.lose_reply_of == value:
            cluster.lose_reply_of = None
            raise StoreUnavailable("the answer was lost")
        return revision

    def wait(self, key: str, seen: Revision, timeout_s: float) -> None:
        cluster = self._cluster
        with cluster.changed:
            cluster.changed.wait_for(
                lambda: self._closed or (not cluster.down and cluster.found(key)[1] != seen), timeout_s
            )

    def put(self, key: str, value: bytes) -> None:
        self._reach()
        with self._cluster.changed:
            self._cluster.write(key, value)

    def list(self, prefix: str) -> dict[str, bytes]:
        self._reach()
        with self._cluster.changed:
            return {key: value for key, (value, _) in self._cluster.keys.items() if key.startswith(prefix)}

    def identity(self) -> str:
        self._reach(believe=True)
        return self._cluster.name

    def close(self) -> None:
        self._closed = True
        with self._cluster.changed:
            self._cluster.changed.notify_all()

    def _reach(self, believe: bool = False) -> None:
        cluster = self._cluster
        if self._closed:
            raise StoreUnavailable("the leader store was closed")
        if cluster.delay_s:
            time.sleep(min(cluster.delay_s, self._timeout_s))
        if cluster.down or cluster.delay_s >= self._timeout_s:
            raise StoreUnavailable("the store is down")
        if not believe:
            if self._name not in ("", cluster.name):
                raise StoreReplaced("another cluster answers")
            self._name = cluster.name
