"""The check of usual requests in the pure twin: the reference of `hotpath/guard.pxi`.

`AccessGate` admits the first request of a user for a resource on a connection, and tells it here (`learn`). Requests
for the same resource go the hot way as long as no user and no quota has changed, each with its own signature. All
others become commands, and the gate finds out why.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..clock import Clock
from ..protocol.codes import RequestCode
from ..protocol.command import MAX_HEADER_BYTES
from ..protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, signed_names
from ..remoting.dispatcher import HOT_PREFIX_BYTES, Dispatcher, Gate, WorkerPool, hot_prefix
from .book import Book

if TYPE_CHECKING:
    from ..remoting.connection import Connection

#: Longest header, most resources kept for a connection, and bytes of a resource's names; as in the compiled twin.
_HEADER_BYTES, _MOST_GRANTED, _NAMES_BYTES = 65_536, 64, 596
#: Most orders of fields that are remembered, and most fields of one; a client has one for each kind of request.
_MOST_ORDERS, _MOST_NAMES = 256, 64

#: Fields of the requests that are checked: topic, and group of a pull.
GUARDED: dict[int, tuple[str, str | None]] = {
    RequestCode.SEND_MESSAGE: ("topic", None),
    RequestCode.SEND_MESSAGE_V2: ("b", None),
    RequestCode.SEND_BATCH_MESSAGE: ("b", None),
    RequestCode.PULL_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: ("topic", "consumerGroup"),
}


class _Signed(msgspec.Struct, gc=False):
    """A header, as far as a signature covers it."""

    extFields: dict[str, str]


_decode: Callable[[memoryview], _Signed] = msgspec.json.Decoder(_Signed).decode


class _Grants:
    """The admitted resources of one connection. keys: None if the certificate of the connection stands for the user.
    last_code, last_at: of the newest request that passed, 0 before the first one; for `last_requests.py`."""

    __slots__ = ("allowed", "book_generation", "generation", "keys", "last_at", "last_code", "name")

    def __init__(self, book_generation: int, generation: int, name: bytes, keys: tuple[SigningKey, ...] | None) -> None:
        self.book_generation, self.generation = book_generation, generation
        self.name, self.keys = name, keys
        self.allowed: set[tuple[bytes | None, bytes]] = set()
        self.last_code, self.last_at = 0, 0.0


class PureGuard:
    """The pure twin of `Guard` in guard.pxi. Owned by remoting-io. passed: number of requests that went the hot way."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._generation = 0
        self.passed = 0
        # Names of fields as a client writes them -> those that are signed, in their order.
        self._orders: dict[tuple[str, ...], list[str]] = {}

    def forget(self) -> None:
        """Have the gate admit everything anew: a user has a quota now."""
        self._generation += 1

    def learn(
        self,
        conn: Connection,
        book_generation: int,
        name: bytes,
        keys: tuple[SigningKey, ...] | None,
        group: bytes | None,
        topic: bytes,
    ) -> None:
        """Keep that a request was admitted. book_generation: of before the gate looked at the user. group: None for a
        send."""
        if len(topic) + len(group or b"") > _NAMES_BYTES:
            return
        grants: _Grants | None = conn.grants
        if (
            grants is None
            or grants.book_generation != book_generation
            or grants.generation != self._generation
            or grants.name != name
            or grants.keys is not keys
            or len(grants.allowed) >= _MOST_GRANTED
        ):
            grants = conn.grants = _Grants(book_generation, self._generation, name, keys)
        grants.allowed.add((group, topic))

    def passes(self, conn: Connection, code: int, header: memoryview, body: memoryview) -> bool:
        """True if the gate would admit the request."""
        grants: _Grants | None = conn.grants
        if (
            grants is None
            or grants.book_generation != self._book.generation
            or grants.generation != self._generation
            or len(header) > _HEADER_BYTES
        ):
            return False
        try:
            fields = _decode(header).extFields
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        topic_field, group_field = GUARDED[code]
        group = None if group_field is None else fields.get(group_field, "").encode()
        if (group, fields.get(topic_field, "").encode()) not in grants.allowed:
            return False
        name = fields.get(ACCESS_KEY)
        if not name:
            if grants.keys is not None:
                return False
        elif grants.keys is None or name.encode() != grants.name or not self._is_signed(grants.keys, fields, body):
            return False
        self.passed += 1
        grants.last_code, grants.last_at = code, conn.last_active
        return True

    def _is_signed(self, keys: tuple[SigningKey, ...], fields: dict[str, str], body: memoryview) -> bool:
        """True if a key has signed all fields; the gate looks at those of which clients leave some out."""
        given = fields.get(SIGNATURE, "").encode()
        names = tuple(fields)
        order = self._orders.get(names)
        if order is None:
            order = signed_names(names)
            if len(self._orders) < _MOST_ORDERS and len(names) <= _MOST_NAMES:
                self._orders[names] = order
        content = "".join(map(fields.__getitem__, order)).encode() + body
        matches = False
        for key in keys:
            matches |= hmac.compare_digest(key.sign(content).encode(), given)
        return matches


class GuardedDispatcher(Dispatcher):
    """A dispatcher whose requests go the hot way if the guard lets them pass."""

    def __init__(
        self, pools: dict[str, WorkerPool], gates: tuple[Gate, ...], clock: Clock | None, guard: PureGuard
    ) -> None:
        super().__init__(pools, gates, clock)
        self._pure_guard = guard
        self._codes = {hot_prefix(code): code for code in GUARDED}

    def _is_hot(self, code: int) -> bool:
        gates = self._gates_before(code)
        return not gates or (code in GUARDED and len(gates) == 1 and gates[0].guard is self._pure_guard)

    def _empty(self) -> Dispatcher:
        return GuardedDispatcher(self._pools, self._gates, self._clock, self._pure_guard)

    def dispatch(self, conn: Connection, view: memoryview, header: int, end: int, meta: int) -> None:
        prefix = bytes(view[header : header + HOT_PREFIX_BYTES])
        body = header + (meta & 0xFFFFFF)
        if (
            prefix in self._hot
            and meta < 0x1000000
            and body <= min(end, header + MAX_HEADER_BYTES)
            and not self._pure_guard.passes(conn, self._codes[prefix], view[header:body], view[body:end])
        ):
            self._dispatch_cold(conn, view, header, end, meta)
        else:
            super().dispatch(conn, view, header, end, meta)
