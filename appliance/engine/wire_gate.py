"""The gate for administration over the wire (D22), before the handlers of every port's dispatcher.

It watches the codes of kind ADMIN (`protocol/request_kinds.py`): a peer without permission is refused with
NO_PERMISSION, and the request, its sender, the state before and after, and the result go to `wire_audit`. All other
codes, and every hot one, pass no gate: a send or a pull costs nothing more. Acts of this process itself call the
processors, not the dispatcher's table; the console's audit log has them under the user's name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .clock import Clock
from .config_file import parse_properties
from .errors import RefusedRequest
from .protocol.codes import ResponseCode
from .protocol.command import RemotingCommand, Witness
from .protocol.message_id import decode_host
from .protocol.request_kinds import ADMIN, kind_of
from .wire_act import DONE, FAILED, REFUSED, WireAct
from .wire_audit import WireAudit

if TYPE_CHECKING:
    from .remoting.connection import Connection

logger = logging.getLogger(__name__)

#: Values of the option for administration over the wire, see `command_line`.
LOOPBACK, ALL, OFF = "loopback", "all", "off"

_LOOPBACK_V6 = bytes(15) + b"\x01"
_MAPPED_V4 = bytes(10) + b"\xff\xff"

#: Names in an entry, and characters of each, at most: a name of the protocol has at most 255.
MAX_NAMES = 32
MAX_TEXT = 512
MAX_TARGET = 512
#: Characters of each state, before and after, at most; a topic's settings take 200.
MAX_STATE_CHARS = 4096
#: A longer body of a refused request is not looked into.
SMALL_BODY_BYTES = 4096
#: No handler takes a longer properties text (25, 318).
MAX_PROPERTIES_BYTES = 256 * 1024


def is_loopback(born_host: bytes) -> bool:
    """True if a peer's address (see `message_id.encode_host`) is in 127.0.0.0/8, ::1 or ::ffff:127.0.0.0/104."""
    if len(born_host) == 8:
        return born_host[0] == 127
    return born_host[:16] == _LOOPBACK_V6 or (born_host[:12] == _MAPPED_V4 and born_host[12] == 127)


def plain(text: str, limit: int = MAX_TEXT) -> str:
    """Return a peer's text so that a log may show it: control characters, half surrogates and the like as \\uXXXX."""
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in cut)[:limit]
    return cut if len(text) <= limit else f"{cut[: limit - 1]}…"


#: Field of an act with access control: the user of the request.
BY_USER = "byUser"
Names = tuple[str, ...]
State = dict[str, Any]


def _nothing(names: Names) -> State:
    return {}


@dataclass(frozen=True, slots=True)
class Act:
    """The audit log's description of one request code. All functions run in the handler's own thread, but `names` of a
    short request that is refused runs on the I/O thread.

    action: `<noun>.<verb>`, as in the console if it has the same act. names: returns the names of the things concerned.
    state: returns their present state: field -> value, or name -> fields for several names; called before and after.
    told, answered: fields of the request and of the answer that are recorded as they are.
    """

    action: str
    names: Callable[[RemotingCommand], Names]
    state: Callable[[Names], State] = _nothing
    told: Names = ()
    answered: Names = ()


class WireGate:
    """A gate of the dispatcher. Constant after construction."""

    guard = None

    def __init__(self, policy: str, audit: WireAudit, clock: Clock, acts: Mapping[int, Act]) -> None:
        """acts: the Act of each ADMIN code of a port."""
        self._policy = policy
        self._audit = audit
        self._clock = clock
        self._acts = acts

    def watches(self, code: int) -> bool:
        """True if a request code changes the broker or the name server. Raises LookupError for a code that is not
        classified, or is ADMIN and has no Act."""
        return kind_of(code) == ADMIN and self._acts[code] is not None

    def admit(self, request: RemotingCommand, conn: Connection) -> Witness:
        act = self._acts[request.code]
        if not self.takes_from(conn.born_host, conn.relayed):
            self.record(act, request, _few_names(act, request), conn.born_host, {}, {}, REFUSED)
            raise RefusedRequest(ResponseCode.NO_PERMISSION, self._reason(conn.born_host))
        return _Witness(self, act, conn.born_host)

    def takes_from(self, born_host: bytes, relayed: bool = False) -> bool:
        """relayed: the address is from a balancer's header, and never counts as this machine's."""
        return self._policy == ALL or (self._policy == LOOPBACK and is_loopback(born_host) and not relayed)

    def _reason(self, born_host: bytes) -> str:
        if self._policy == OFF:
            return (
                "Requests that change the broker or the name server are not taken over this port (--wire-admin off): "
                "use the console, or start RocketBox with --wire-admin loopback."
            )
        return (
            "Requests that change the broker or the name server are taken from this machine's loopback address only, "
            f"and yours is {decode_host(born_host)[0]}: run the tool there against 127.0.0.1 (mqadmin: -n and -b; "
            "with -c or without a broker it goes to the address for clients), use the console, or start "
            "RocketBox with --wire-admin all."
        )

    def record(
        self,
        act: Act,
        request: RemotingCommand,
        names: Names,
        born_host: bytes,
        before: State,
        after: State,
        result: str,
    ) -> None:
        """Record an entry. before, after: whole states; fields that are equal in both are left out."""
        host, port = decode_host(born_host)
        if result == DONE:
            changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            before, after = ({name: side[name] for name in changed if name in side} for side in (before, after))
        else:
            before = {}
        after |= {name: request.ext_fields[name] for name in act.told if name in request.ext_fields}
        if request.caller is not None and (before or after):
            after[BY_USER] = request.caller.name
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


class _Witness:
    """Records the result of an admitted request, with the state before and after."""

    __slots__ = ("_act", "_before", "_born_host", "_gate", "_names")

    def __init__(self, gate: WireGate, act: Act, born_host: bytes) -> None:
        self._gate = gate
        self._act = act
        self._born_host = born_host
        self._names: Names | None = None
        self._before: State = {}

    def begins(self, request: RemotingCommand) -> None:
        self._names = _names(self._act, request)
        self._before = self._act.state(self._names) if self._names else {}

    def answered(self, request: RemotingCommand, response: RemotingCommand) -> None:
        act, names = self._act, self._names
        if names is None:  # it never began: another gate refused it, or its pool is full
            names = _few_names(act, request)
        after: State = {"reason": response.remark} if response.code else self._state(names)
        after |= {name: response.ext_fields[name] for name in act.answered if name in response.ext_fields}
        result = _RESULTS.get(response.code, REFUSED)
        self._gate.record(act, request, names, self._born_host, self._before, after, result)

    def _state(self, names: Names) -> State:
        try:
            return self._act.state(names) if names else {}
        except Exception:  # the request was carried out, and its answer must not fail
            logger.exception("wire gate: the outcome cannot be determined action=%s", self._act.action)
            return {}


_RESULTS = {ResponseCode.SUCCESS: DONE, ResponseCode.SYSTEM_ERROR: FAILED}


def _names(act: Act, request: RemotingCommand) -> Names:
    """Return the names that a request concerns; empty if it is malformed, which its handler refuses."""
    try:
        return act.names(request)
    except (RefusedRequest, ValueError):
        return ()


def option_names(request: RemotingCommand) -> Names:
    """Return the keys of a properties text; none of one that is too long for its handler."""
    if len(request.body) > MAX_PROPERTIES_BYTES:
        return ()
    return tuple(name for name, _ in parse_properties(request.body.decode()))


def _few_names(act: Act, request: RemotingCommand) -> Names:
    """Return the names of a request that is not handled: on the I/O thread, so a long body is not looked into."""
    return _names(act, request) if len(request.body) <= SMALL_BODY_BYTES else ()


def _joined(names: Names) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" … +{more}" if more > 0 else "")


def bounded(value: Any, room: list[int] | None = None) -> Any:
    """Return a JSON value with tables and texts cut to size; the key "…" has the number of a table's missing members.

    room: characters that are left for the whole value, counted down here.
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
