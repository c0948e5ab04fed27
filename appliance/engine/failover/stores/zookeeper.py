"""ZooKeeper as the leader store, through kazoo, which speaks its binary protocol and keeps the connection.

A revision is the transaction that made the node and the number of writes since (`czxid.version`): a node that was
deleted and made again counts from 0. A read follows a `sync` on the same connection. The server that does the sync
does not consult a majority, so one that was just deposed may still answer with an old state; `set` with a version
always needs a majority. ZooKeeper clusters have no name: PREFIX/cluster holds one, which the first member makes.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, ConnectionDropped, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from ...host_port import join_host_port
from ..leader_store import Revision, StoreReplaced, StoreUnavailable, SwapConflict
from .access import Access

logger = logging.getLogger(__name__)
# Kazoo warns of each dropped connection; that the store is away is logged by the code that calls it.
_kazoo_logger = logger.getChild("kazoo")
_kazoo_logger.setLevel(logging.ERROR)

#: Requested session time-out; a server grants at least two of its ticks. Only used to notice dead servers.
SESSION_S = 2.0
#: Members of a set are few; RocketBox did not write a longer list.
MAX_KEYS = 1000
#: ZooKeeper itself refuses nodes of more than 1 MiB.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
CLOSE_TIMEOUT_S = 1.0
#: Pause before the next client after one ended (refused password, bytes that are not ZooKeeper's).
RESTART_AFTER_S = 1.0
_NO_KEY = Revision("0")


class ZooKeeperStore:
    """A LeaderStore. One thread calls it; kazoo has three more, and changes to another server by itself."""

    def __init__(self, endpoints: tuple[tuple[str, int], ...], access: Access) -> None:
        self._hosts = ",".join(join_host_port(host, port) for host, port in endpoints)
        self._access = access
        self._cluster = access.cluster
        self._client: KazooClient | None = None
        self._started_at = 0.0
        # Number of changes of the connection's state, counted by kazoo's thread: checks made on one connection do not
        # hold for the next.
        self._connections = 0
        self._live = threading.Event()
        self._checked = -1
        self._zxid = 0
        self._changed = threading.Event()
        self._closed = threading.Event()

    # --- LeaderStore

    def read(self, key: str) -> tuple[bytes | None, Revision]:
        with _said():
            return self._read(self._ready(self._deadline()), key)

    def swap(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        with _said():
            call = self._ready(self._deadline())
            if expected is None or expected == _NO_KEY:
                try:
                    return self._create(call, key, value)
                except NodeExistsError:
                    raise SwapConflict(*self._read(call, key)) from None
            # The version alone does not distinguish a node from one that was made again.
            found, revision = self._read(call, key)
            if revision != expected:
                raise SwapConflict(found, revision)
            try:
                version = int(expected.partition(".")[2])
                return _revision(call.do(call.client.set_async, key, value, version=version))
            except (BadVersionError, NoNodeError):
                raise SwapConflict(*self._read(call, key)) from None

    def wait(self, key: str, seen: Revision, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self._changed.clear()
        if self._closed.is_set():
            return
        try:
            with _said():
                call = self._ready(min(deadline, self._deadline()))
                stat = call.do(call.client.exists_async, key, watch=self._on_change)
                if (_revision(stat) if stat else _NO_KEY) != seen:
                    return
        except StoreUnavailable:
            pass
        self._changed.wait(max(0.0, deadline - time.monotonic()))

    def put(self, key: str, value: bytes) -> None:
        with _said():
            call = self._ready(self._deadline())
            while True:
                try:
                    call.do(call.client.set_async, key, value)
                    return
                except NoNodeError:
                    pass
                with contextlib.suppress(NodeExistsError):
                    self._create(call, key, value)
                    return

    def list(self, prefix: str) -> dict[str, bytes]:
        """See `LeaderStore.list`; returns only keys directly below `prefix`."""
        with _said():
            call = self._ready(self._deadline())
            client, above = call.client, prefix.removesuffix("/")
            try:
                _, names = call.do_both(client.sync_async, client.get_children_async, above)
            except NoNodeError:
                return {}
            if len(names) > MAX_KEYS:
                raise StoreUnavailable(f"ZooKeeper holds more than {MAX_KEYS} keys below {prefix}")
            asked = {f"{above}/{name}": client.get_async(f"{above}/{name}") for name in sorted(names)}
            found = {}
            for key, answer in asked.items():
                with contextlib.suppress(NoNodeError):  # gone meanwhile
                    found[key] = call.wait(answer)[0]
            return found

    def identity(self) -> str:
        with _said():
            call = self._connected(self._deadline())
            found = self._name(call)
            if found is None:
                if self._cluster:
                    raise StoreReplaced(f"ZooKeeper has lost {self._name_key}")
                with contextlib.suppress(NodeExistsError):
                    self._create(call, self._name_key, uuid.uuid4().hex.encode())
                found = self._name(call)
            if found is None:
                raise StoreUnavailable(f"ZooKeeper keeps losing {self._name_key}")
            return found

    def close(self) -> None:
        self._closed.set()
        self._changed.set()
        self._stop()

    # --- connection

    def _deadline(self) -> float:
        return time.monotonic() + self._access.timeout_s

    def _ready(self, deadline: float) -> _Call:
        """Return a call on a connection to the cluster that was seen first. Raises StoreUnavailable."""
        call = self._connected(deadline)
        if self._checked != call.connection:
            found = self._name(call)
            if found is None and not self._cluster:
                with contextlib.suppress(NodeExistsError):
                    self._create(call, self._name_key, uuid.uuid4().hex.encode())
                found = self._name(call)
            if not found or (self._cluster and found != self._cluster):
                raise StoreReplaced(f"ZooKeeper is cluster {found or 'without a name'}, not {self._cluster}")
            self._cluster = found
            self._checked = call.connection
        return call

    def _connected(self, deadline: float) -> _Call:
        if self._closed.is_set():
            raise StoreUnavailable("the leader store was closed")
        client = self._client
        ended = client is not None and client.client_state in ("CLOSED", "AUTH_FAILED")
        if ended and time.monotonic() - self._started_at >= RESTART_AFTER_S:
            self._stop()
            client = None
        if client is None:
            client = self._start()
        # Kazoo queues requests while there is no connection, and sends them even hours later: so none is made.
        if not self._live.wait(max(0.0, deadline - time.monotonic())):
            raise StoreUnavailable(f"ZooKeeper: no connection to {self._hosts} ({client.client_state})")
        return _Call(self, client, deadline)

    def _start(self) -> KazooClient:
        access = self._access
        client = KazooClient(
            hosts=self._hosts,
            timeout=SESSION_S,
            auth_data=[("digest", f"{access.user}:{access.password}")] if access.user else None,
            default_acl=CREATOR_ALL_ACL if access.user else None,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_jitter=0.2, max_delay=1.0),
            logger=_kazoo_logger,
        )
        _bound_answers(client)
        client.add_listener(self._on_state)
        client.start_async()
        self._client = client
        self._started_at = time.monotonic()
        return client

    def _stop(self) -> None:
        """End the client in bounded time: kazoo itself waits 10 s for a server that does not answer."""
        client, self._client = self._client, None
        if client is None:
            return
        client.remove_listener(self._on_state)
        self._live.clear()
        _drop_connection(client)
        ends = threading.Thread(target=_end, args=(client,), name="close-zookeeper", daemon=True)
        ends.start()
        ends.join(CLOSE_TIMEOUT_S)

    def _on_state(self, state: str) -> None:
        """Note a change of the connection. On kazoo's thread, before it connects again."""
        self._connections += 1
        if state == KazooState.CONNECTED:
            self._live.set()
        else:
            self._live.clear()
        self._changed.set()

    def _on_change(self, event: object) -> None:
        """Wake `wait`. On kazoo's thread."""
        self._changed.set()

    # --- calls

    @property
    def _name_key(self) -> str:
        return f"{self._access.prefix}/cluster"

    def _name(self, call: _Call) -> str | None:
        value, _ = self._read(call, self._name_key)
        return None if value is None else value[:64].decode(errors="replace")

    def _read(self, call: _Call, key: str) -> tuple[bytes | None, Revision]:
        try:
            _, (value, stat) = call.do_both(call.client.sync_async, call.client.get_async, key)
        except NoNodeError:
            return None, _NO_KEY
        return value, _revision(stat)

    def _create(self, call: _Call, key: str, value: bytes) -> Revision:
        """Create a node, and the nodes above it. Raises NodeExistsError."""
        try:
            _, stat = call.do(call.client.create_async, key, value, include_data=True)
        except NoNodeError:
            parts = key.split("/")
            for end in range(2, len(parts)):
                with contextlib.suppress(NodeExistsError):
                    call.do(call.client.create_async, "/".join(parts[:end]), b"")
            _, stat = call.do(call.client.create_async, key, value, include_data=True)
        return _revision(stat)


class _Call:
    """The requests of one call, on one connection and until one deadline."""

    def __init__(self, store: ZooKeeperStore, client: KazooClient, deadline: float) -> None:
        self.client = client
        self.connection = store._connections
        self._store = store
        self._deadline = deadline

    def do(self, method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return self.wait(method(*args, **named))

    def do_both(self, first: Callable[..., Any], second: Callable[..., Any], path: str) -> tuple[Any, Any]:
        """Send two requests, one after the other, on the same connection; return both results."""
        one, other = first(path), second(path)
        return self.wait(one), self.wait(other)

    def wait(self, answer: Any) -> Any:
        """Wait for an answer. Raises StoreUnavailable, and ZooKeeper's errors about nodes."""
        store = self._store
        try:
            found = answer.get(timeout=max(0.0, self._deadline - time.monotonic()))
        except KazooTimeoutError:
            # Change to another server: this one may be stopped while its sockets stay open.
            _drop_connection(self.client)
            raise StoreUnavailable("ZooKeeper: no answer in time") from None
        except (NoNodeError, NodeExistsError, BadVersionError):
            self._look(store)
            raise
        self._look(store)
        return found

    def _look(self, store: ZooKeeperStore) -> None:
        """Check that the connection is the same, and that its server is not behind: each answer has the newest
        transaction that its server has."""
        zxid = self.client.last_zxid
        if store._connections != self.connection or not zxid:
            raise StoreUnavailable("ZooKeeper: the connection changed meanwhile")
        if zxid < store._zxid:
            raise StoreReplaced(f"ZooKeeper answers from transaction {zxid:#x}, and {store._zxid:#x} was seen before")
        store._zxid = zxid


@contextlib.contextmanager
def _said() -> Any:
    """Turn whatever kazoo raises into StoreUnavailable."""
    try:
        yield
    except KazooException as error:
        raise StoreUnavailable(f"ZooKeeper: {type(error).__name__} {error}".rstrip()) from None
    except (OSError, AttributeError, TypeError, ValueError) as error:
        # Raised by a client that ends during a call.
        raise StoreUnavailable(f"ZooKeeper: {error!r}") from None


def _revision(stat: Any) -> Revision:
    return Revision(f"{stat.czxid:x}.{stat.version}")


def _bound_answers(client: KazooClient) -> None:
    """Limit the length of answers: kazoo accepts any length up to 2 GiB, and waits for all of it."""
    connection = client._connection
    read = connection._read

    def read_bounded(length: int, timeout: float) -> Any:
        if not 0 <= length <= MAX_ANSWER_BYTES:
            raise ConnectionDropped(f"an answer of {length} bytes")
        return read(length, timeout)

    connection._read = read_bounded


def _drop_connection(client: KazooClient) -> None:
    """Drop the connection, for which kazoo has no call: it would wait for its session's time-out before it tries
    another server."""
    sock = getattr(getattr(client, "_connection", None), "_socket", None)
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _end(client: KazooClient) -> None:
    try:
        client.stop()
        client.close()
    except Exception as error:
        logger.info("leader store: kazoo did not end cleanly: %r", error)
