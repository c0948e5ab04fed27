"""The last request of each user that was allowed: what it was, when it came, from where, and if over TLS. Since the
start, in memory.

The gate notes the requests that it admits itself, in report mode those that it would refuse, too; what it refuses is
among the refusals. One whose topic is known only when its record is read (33, 36, 37, 309) is noted then, if its user
may do it, and a heartbeat if all of it is allowed. Of those that its guard lets pass (`guard.pxi`, `pure_guard.py`)
each connection keeps the newest in its grants, as two numbers; they are read when somebody asks, and when it closes. A
client's housekeeping, as heartbeats and commits of offsets, does not hide what it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..clock import Clock
from ..named_tuple import NamedTuple
from ..protocol.codes import RequestCode as Code
from .book import MOST_USERS

if TYPE_CHECKING:
    from ..remoting.connection import Connection

#: Codes that clients send by themselves, all the time.
HOUSEKEEPING = frozenset(
    (
        Code.HEART_BEAT,
        Code.GET_ROUTEINFO_BY_TOPIC,
        Code.GET_CONSUMER_LIST_BY_GROUP,
        Code.QUERY_CONSUMER_OFFSET,
        Code.UPDATE_CONSUMER_OFFSET,
        Code.GET_MAX_OFFSET,
        Code.GET_MIN_OFFSET,
        Code.LOCK_BATCH_MQ,
        Code.UNLOCK_BATCH_MQ,
        Code.CHECK_CLIENT_CONFIG,
        Code.UNREGISTER_CLIENT,
    )
)


class LastRequest(NamedTuple):
    """at: time on the monotonic clock at which it was read. peer: address and port, as in records."""

    code: int
    at: float
    peer: bytes
    tls: bool


class LastRequests:
    """By user. Owned by remoting-io, but for what any thread may call."""

    def __init__(self, clock: Clock, connections: Callable[[], Iterable[Connection]]) -> None:
        """connections: returns those that are open, on any thread."""
        # Constant after construction.
        self._clock = clock
        self._connections = connections
        # Replaced entry by entry; the one that changed last is the last.
        self._found: dict[str, LastRequest] = {}

    def note(self, name: str, code: int, conn: Connection) -> None:
        """Note a request that the gate has admitted."""
        self._take(name, LastRequest(code, conn.last_active, conn.born_host, bool(conn.channel)))

    def leave(self, conn: Connection) -> None:
        """Note what a connection that closed did last."""
        found = _of_guard(conn)
        if found is not None:
            self._take(*found)

    def forget(self, name: str) -> None:
        """Forget a user who was deleted, also in its connections, which close a little later."""
        self._found.pop(name, None)
        for conn in self._connections():
            if conn.grants is not None and conn.grants.name == name.encode():
                conn.grants = None

    def _take(self, name: str, request: LastRequest) -> None:
        if not _replaces(request, self._found.get(name)):
            return
        self._found.pop(name, None)
        self._found[name] = request
        if len(self._found) > MOST_USERS:
            del self._found[next(iter(self._found))]

    def wall_ms(self, request: LastRequest) -> int:
        """Return when a request came, on the wall clock as it goes now. Any thread."""
        return self._clock.wall_ms() - int((self._clock.monotonic() - request.at) * 1000)

    def all(self) -> dict[str, LastRequest]:
        """Return the last request of every user. Any thread."""
        found = dict(self._found)
        for conn in self._connections():
            one = _of_guard(conn)
            if one is not None and _replaces(one[1], found.get(one[0])):
                found[one[0]] = one[1]
        return found


def _replaces(request: LastRequest, known: LastRequest | None) -> bool:
    if known is None:
        return True
    if (request.code in HOUSEKEEPING) != (known.code in HOUSEKEEPING):
        return request.code not in HOUSEKEEPING
    return request.at >= known.at


def _of_guard(conn: Connection) -> tuple[str, LastRequest] | None:
    """Return the newest request of a connection that its guard let pass, and its user."""
    grants = conn.grants
    if grants is None or not grants.last_code:
        return None
    return grants.name.decode(), LastRequest(grants.last_code, grants.last_at, conn.born_host, bool(conn.channel))
