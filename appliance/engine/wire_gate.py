"""The gate for administration over the wire (D22), put around handlers where dispatch tables are filled.

A handler of kind ADMIN (`protocol/request_kinds.py`) is wrapped once: who may not is refused with NO_PERMISSION, and
what was asked, by whom, what was before and after and how it ended goes to `wire_audit`. All other handlers, and every
hot one, are added as they are: a send or a pull costs nothing more. What this process does itself calls the processors
and not the table; it is in the console's audit log under the name of whoever asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from .clock import Clock
from .errors import RefusedRequest
from .protocol.codes import ResponseCode
from .protocol.command import RemotingCommand
from .protocol.message_id import decode_host
from .protocol.request_kinds import ADMIN, kind_of
from .remoting.dispatcher import Dispatcher, Handler, WorkerPool
from .wire_act import DONE, FAILED, REFUSED, WireAct
from .wire_audit import WireAudit

if TYPE_CHECKING:
    from .remoting.connection import Connection

logger = logging.getLogger(__name__)

#: Who may administer over the wire; an option, see `command_line`.
LOOPBACK, ALL, OFF = "loopback", "all", "off"
WireAdmin = Literal["loopback", "all", "off"]

_LOOPBACK_V6 = bytes(15) + b"\x01"
_MAPPED_V4 = bytes(10) + b"\xff\xff"

#: An entry names so many things, in so many characters each: a name of the protocol has at most 255.
MAX_NAMES = 32
MAX_TEXT = 512
MAX_TARGET = 512
#: Of each side, before and after; a topic's settings take 200.
MAX_STATE_CHARS = 4096
#: A longer body of somebody who is refused is not looked into.
SMALL_BODY_BYTES = 4096


def is_loopback(born_host: bytes) -> bool:
    """Whether a peer's address (see `message_id.encode_host`) is 127.0.0.0/8, ::1 or ::ffff:127.0.0.0/104."""
    if len(born_host) == 8:
        return born_host[0] == 127
    return born_host[:16] == _LOOPBACK_V6 or (born_host[:12] == _MAPPED_V4 and born_host[12] == 127)


def plain(text: str, limit: int = MAX_TEXT) -> str:
    """A peer's text as a log may show it: control characters, half surrogates and the like written as \\uXXXX."""
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in cut)[:limit]
    return cut if len(text) <= limit else f"{cut[: limit - 1]}…"


Names = tuple[str, ...]
State = dict[str, Any]


def _nothing(names: Names) -> State:
    return {}


@dataclass(frozen=True, slots=True)
class Act:
    """How one request code looks in the audit log. All functions run in the handler's own thread.

    action: `<noun>.<verb>`, the console's words where it has the same act. names: what the request is about. state: of
    these names, now: field -> value, or name -> fields when there are several; asked before and after. told, answered:
    fields of the request and of the answer that are noted as they are.
    """

    action: str
    names: Callable[[RemotingCommand], Names]
    state: Callable[[Names], State] = _nothing
    told: Names = ()
    answered: Names = ()


class WireGate:
    """One for all ports. Constant after construction."""

    def __init__(self, policy: str, audit: WireAudit, clock: Clock) -> None:
        self._policy = policy
        self._audit = audit
        self._clock = clock

    def table(self, pools: dict[str, WorkerPool], acts: Mapping[int, Act]) -> GuardedDispatcher:
        """A dispatch table that guards what is added to it; acts: how each ADMIN code looks in the log."""
        return GuardedDispatcher(pools, self, acts)

    def admits(self, born_host: bytes) -> bool:
        return self._policy == ALL or (self._policy == LOOPBACK and is_loopback(born_host))

    def _reason(self, born_host: bytes) -> str:
        if self._policy == OFF:
            return (
                "Requests that change the broker or the name server are not taken over this port (--wire-admin off): "
                "use the console, or start RocketBox with --wire-admin loopback."
            )
        return (
            "Requests that change the broker or the name server are taken from this machine's loopback address only, "
            f"and yours is {decode_host(born_host)[0]}: run the tool there against 127.0.0.1 (mqadmin: -n and -b; "
            "what takes -c or no broker goes to the address that clients are told), use the console, or start "
            "RocketBox with --wire-admin all."
        )

    def around(self, act: Act, handler: Handler) -> Handler:
        """The handler, for those who may, with an entry in the log for every request."""

        def guarded(request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
            if not self.admits(conn.born_host):
                names = _names(act, request) if len(request.body) <= SMALL_BODY_BYTES else ()
                self._record(act, request, names, conn.born_host, {}, {}, REFUSED)
                raise RefusedRequest(ResponseCode.NO_PERMISSION, self._reason(conn.born_host))
            names = _names(act, request)
            before = act.state(names) if names else {}

            def ended(response: RemotingCommand) -> None:
                result = _RESULTS.get(response.code, REFUSED)
                after: State = {"reason": response.remark} if response.code else act.state(names) if names else {}
                after |= {name: response.ext_fields[name] for name in act.answered if name in response.ext_fields}
                self._record(act, request, names, conn.born_host, before, after, result)

            try:
                response = handler(request, cast("Connection", _Witness(conn, ended)))
            except RefusedRequest as refusal:
                ended(RemotingCommand.response(refusal.code, refusal.remark))
                raise
            except Exception as error:  # the dispatcher answers and logs it
                ended(RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))
                raise
            if response is not None:
                ended(response)
            return response

        return guarded

    def _record(
        self,
        act: Act,
        request: RemotingCommand,
        names: Names,
        born_host: bytes,
        before: State,
        after: State,
        result: str,
    ) -> None:
        host, port = decode_host(born_host)
        if result == DONE:
            changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            before, after = ({name: side[name] for name in changed if name in side} for side in (before, after))
        else:
            before = {}
        after |= {name: request.ext_fields[name] for name in act.told if name in request.ext_fields}
        self._audit.record(
            WireAct(
                at_ms=self._clock.wall_ms(),
                host=host,
                port=port,
                action=act.action,
                target=plain(_joined(names), MAX_TARGET),
                before=bounded(before) or None,
                after=bounded(after) or None,
                result=result,
            )
        )


_RESULTS = {ResponseCode.SUCCESS: DONE, ResponseCode.SYSTEM_ERROR: FAILED}


def _names(act: Act, request: RemotingCommand) -> Names:
    """None when the request is malformed: its handler says so."""
    try:
        return act.names(request)
    except (RefusedRequest, ValueError):
        return ()


def _joined(names: Names) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" … +{more}" if more > 0 else "")


def bounded(value: Any, room: list[int] | None = None) -> Any:
    """A JSON value whose tables and texts are cut; how much of a table was cut is told under "…".

    room: characters that are left for all of it, counted down here.
    """
    room = [MAX_STATE_CHARS] if room is None else room
    if isinstance(value, dict):
        kept: State = {}
        for key, inner in value.items():
            if len(kept) >= MAX_NAMES or room[0] <= 0:
                kept["…"] = len(value) - len(kept)
                break
            name = plain(str(key))
            room[0] -= len(name)
            kept[name] = bounded(inner, room)
        return kept
    if isinstance(value, (list, tuple)):
        return [bounded(one, room) for one in value[:MAX_NAMES] if room[0] > 0]
    if value is None or isinstance(value, (bool, int, float)):
        room[0] -= 8
        return value
    text = plain(str(value))
    room[0] -= len(text)
    return text


class _Witness:
    """The connection of a guarded request: an answer that comes later is seen on its way out."""

    __slots__ = ("_conn", "_ended")

    def __init__(self, conn: Connection, ended: Callable[[RemotingCommand], None]) -> None:
        self._conn = conn
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        self._ended(response)
        self._conn.respond(request, response)


class GuardedDispatcher(Dispatcher):
    """A dispatch table whose ADMIN handlers stand behind the gate. Copies of it (the VIP port's) hold them so."""

    def __init__(self, pools: dict[str, WorkerPool], gate: WireGate, acts: Mapping[int, Act]) -> None:
        super().__init__(pools)
        self._gate = gate
        self._acts = acts

    def add(self, code: int, handler: Handler, pool: str | None = None) -> None:
        """As Dispatcher.add. Raises LookupError for a code that is not classified, or is ADMIN and has no Act."""
        if kind_of(code) == ADMIN:
            handler = self._gate.around(self._acts[code], handler)
        super().add(code, handler, pool)
