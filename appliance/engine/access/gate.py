"""The gate that checks the user of a request and the permissions of that user.

It watches every code, on every port; there is no gate while `accessControl` is off. A request is judged before any
part of it is handled or stored:

    its user        AccessKey, and the signature of one of the user's secrets; if it names no user, the one whose name
                    is in the certificate of the connection (`tlsClientAuth`)
    its connection  over TLS, if its user has to come so
    its resources   those that `asked.py` lists for its code; Super users may do everything

The topic of some requests is known only when their record is read (33, 36, 37): then the handler checks it by
`RemotingCommand.caller`. So does that of heartbeats, which registers what is allowed. In report mode the same is
decided, logged and counted, but the request goes on.

Sends and pulls like one that was admitted on the same connection are checked by the compiled twin (`guard.pxi`), or by
`pure_guard.py`, until a user or a quota changes. Those of users with quotas of a second are checked here.

Requests that are not allowed are refused with 16 (NO_PERMISSION). One text stands for unknown, disabled and wrongly
signed users, so that no client learns which names exist.
"""

from __future__ import annotations

import ipaddress
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..clock import Clock
from ..errors import RefusedRequest
from ..few_lines import SharedLines
from ..hotpath import Guard, Signer
from ..named_tuple import NamedTuple
from ..protocol.codes import NO_ROUTE, RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.member_proof import FOR_USER
from ..protocol.message_id import decode_host
from ..protocol.request_kinds import ADMIN, BROKER, ROUTE_CODES, kind_of
from ..protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, is_signed_by
from ..shares import address_of
from ..wire_gate import plain
from .asked import BY_RECORD, IN_PARTS, SUPER, Asked, asks_of, of_group, of_topic
from .book import Account, Book, User, may_less
from .policies import CLUSTER, GET, PUB, SUB, TOPIC, Address, Network, Verdict
from .pure_guard import GUARDED, PureGuard
from .refusals import DENIED, NO_ENTRY, NO_TLS, NO_USER, NOT_PROVED, NOT_SUPER, Refusal, Refusals
from .supers_in_clear import SupersInClear

if TYPE_CHECKING:
    from ..remoting.connection import Connection
    from .brake import Brake, Meter
    from .last_requests import LastRequests

logger = logging.getLogger(__name__)

#: Held by their broker if they are over a quota, since it learns how much is sent.
PULL_CODES = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))

#: Most secrets of a user whose requests a guard checks.
_GUARDED_SECRETS = 2

#: Apache's words for what entries do not allow.
_WHY = {NO_ENTRY: "no matched policies.", DENIED: "the decision is deny."}

_PROOFS = (ACCESS_KEY, SIGNATURE, "SecurityToken")

_NOT_PROVED = "check signature failed: the user is unknown or disabled, or the secret is another one"
_IN_CLEAR = "this user has to come over TLS, and this connection is in clear: switch TLS on in the client"
_WITHOUT_TLS = "this user has to come over TLS, and this server serves none: its tlsMode is disabled"
_NOT_CERTIFIED = "the user whose name is in the client's certificate is unknown or disabled"
#: Field of the requests by which this process looks if an address leads to it.
_OWN_CHECK = "rocketboxCheck"
_NO_USER = "username cannot be null."  # Apache's words

#: After this many failures of a user from an address within this time, the user's requests from there are refused
#: without a check for the same time.
_FAILURES, _FAILURES_S = 10, 60.0
_MOST_FAILING = 10_000
#: Most lines of the log about refusals, and about those of a user from an address, in this many seconds.
_TOLD, _TOLD_EACH, _TELL_S = 200, 20, 60.0
#: Most resources in the text of one refusal.
_MOST_TOLD = 10
#: Time for which requests in the names of users that do not exist are kept, and most resources of one.
_CLAIMS_KEPT_MS, _MOST_CLAIMED = 86_400_000, 20
_NOBODY = (SigningKey("no user has this one, and it takes as long to check"),)


class Failures:
    """(address as `shares.address_of` has it, user) -> recent failed signatures; bounded, the oldest go first. Owned by
    remoting-io."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: OrderedDict[tuple[bytes, str], tuple[int, float]] = OrderedDict()

    def are_too_many(self, address: bytes, name: str) -> bool:
        """True if this user's requests from this address are refused without a check."""
        count, since = self._found.get((address, name), (0, 0.0))
        return count >= _FAILURES and self._clock.monotonic() - since < _FAILURES_S

    def add(self, address: bytes, name: str) -> None:
        now = self._clock.monotonic()
        count, since = self._found.pop((address, name), (0, now))
        if now - since >= _FAILURES_S:
            count, since = 0, now
        count += 1
        self._found[(address, name)] = (count, now if count == _FAILURES else since)
        if len(self._found) > _MOST_FAILING:
            self._found.popitem(last=False)


class Caller:
    """The user of an admitted request: quotas, and checks that only its handler can make.

    allowance: of a pull, None for a user without quotas. on_allowed: called when the handler has found all of the
    request allowed, on its thread.
    """

    __slots__ = ("_address", "_code", "_gate", "_user", "allowance", "on_allowed")

    def __init__(self, gate: AccessGate, user: User, address: Address, code: int, meter: Meter | None) -> None:
        self._gate = gate
        self._user = user
        self._address = address
        self._code = code
        self.allowance = meter
        self.on_allowed: Callable[[], None] | None = None

    def passes(self, request: RemotingCommand, conn: Connection, size: int, proceed: Callable[[], None]) -> bool:
        """True if the request is within the user's quotas; else `proceed` is called when it is, or it is refused. On
        remoting-io."""
        meter = self.allowance
        return meter is None or self._code in PULL_CODES or meter.passes(request, conn, size, self._is_current, proceed)

    def _is_current(self) -> bool:
        """False once the user may do less than when the request was admitted."""
        return self._gate.is_current(self._user)

    @property
    def name(self) -> str:
        return self._user.account.name

    @property
    def told(self) -> str:
        """User and address, as a member that passes the request on tells them (`FOR_USER`)."""
        return f"{self.name} {self._address}"

    @property
    def identity(self) -> Hashable:
        """See `protocol.command.Caller`."""
        return (self.told, self._user.number) if self._gate.enforces else None

    def kept_from_consuming(
        self, named: Iterable[tuple[str, str]], conn: Connection
    ) -> tuple[Set[tuple[str, str]], str]:
        """See `protocol.command.Caller`. On remoting-io."""
        kept_from: Set[tuple[str, str]] = frozenset()
        refusal = ""
        if not self._user.account.is_super:
            kept_from, refusal = self._gate.kept_from_consuming(self._user, named, self._address, self._code, conn)
        if not refusal:
            self.allowed()
        return kept_from, refusal

    def seen(self, kind: str) -> Callable[[str], bool] | None:
        """Return what tells whether a name of this kind, TOPIC or GROUP, is shown to the user; None if all are. Any
        thread."""
        return None if self._user.account.is_super else self._gate.seen(self._user, kind, self._address, self._code)

    def check_topic(self, topic: str, *actions: str) -> None:
        """Refuse with 16 a user who may do none of the actions on the topic. Any thread."""
        user = self._gate.as_now(self._user)  # its record may have been read for long
        if not user.account.is_super:
            self._gate.check(user, of_topic(topic, *actions), self._address, self._code)
        self.allowed()

    def allowed(self) -> None:
        """See `protocol.command.Caller`. Any thread."""
        if self.on_allowed is not None:
            self.on_allowed()


class GateRules(NamedTuple):
    """cluster: name in Cluster: resources. anonymous_routes: name servers also answer requests that are not signed.
    brokers: networks from which brokers register without a signature. slaves: those of Apache's slaves. own: this
    machine's, besides its loopback. serves_tls: the ports take TLS."""

    cluster: str
    anonymous_routes: bool
    brokers: tuple[Network, ...]
    slaves: tuple[Network, ...]
    own: tuple[Network, ...]
    serves_tls: bool


class AccessGate:
    """A gate of the dispatcher. `admit` runs on remoting-io."""

    def __init__(
        self,
        book: Book,
        clock: Clock,
        rules: GateRules,
        brake: Brake | None,
        last: LastRequests | None = None,
        *,
        enforces: bool,
    ) -> None:
        """brake: None if quotas do not count. last: None where it is not asked for. enforces: False for report mode."""
        # Constant after construction.
        self._book = book
        self._cluster, self._anonymous_routes, self._brokers, self._slaves, self._own, serves_tls = rules
        self._in_clear = _IN_CLEAR if serves_tls else _WITHOUT_TLS
        self._brake = brake
        self._last = last
        self.in_clear = SupersInClear(book, clock)
        self.guard: Any = PureGuard(book) if Guard is None else Guard(book)
        if brake is not None:
            brake.on_limit = self.guard.forget
        self._failures = Failures(clock)
        # Failures of questions for routes, where all may ask these: clients with a wrong secret repeat
        # them, and are refused nothing.
        self._route_failures = Failures(clock)
        self._clock = clock
        self._lines = SharedLines(logger.warning, _TOLD, _TOLD_EACH, _TELL_S, clock.monotonic)
        # Replaced by `change`.
        self._enforces = enforces
        # Connections with requests that passed in report mode only. Owned by remoting-io.
        self._let_through: set[Connection] = set()
        # Added to and taken from by any thread.
        self._own_checks: set[str] = set()
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._refusals = Refusals()
        # Requests in report mode in the names of users that do not exist.
        self._claims = Refusals()

    @property
    def enforces(self) -> bool:
        return self._enforces

    def change(self, *, enforces: bool) -> None:
        """Enforce from now on, or report only. Any thread; `hang_up` follows."""
        self._enforces = enforces

    def hang_up(self) -> None:
        """Close the connections of which a request has passed in report mode only, if the gate enforces now: pulls that
        are held for them, and the groups that they have named, would outlive the check."""
        if self._enforces:
            for conn in list(self._let_through):
                conn.close()

    def leave(self, conn: Connection) -> None:
        """Forget a connection that closed. On remoting-io."""
        self._let_through.discard(conn)

    def refusals(self) -> list[Refusal]:
        """Return what was refused, or would have been. Any thread."""
        with self._lock:
            return self._refusals.rows()

    def claims(self) -> list[Refusal]:
        """Return what was asked in the last day, in report mode, in the names of users that do not exist: resources and
        actions that it needed. Any thread."""
        since_ms = self._clock.wall_ms() - _CLAIMS_KEPT_MS
        with self._lock:
            return [row for row in self._claims.rows() if row.last_ms >= since_ms]

    @contextmanager
    def own_check(self) -> Iterator[dict[str, str]]:
        """Give fields. While this lasts, requests that have them and no user are answered as all are, and counted and
        logged nowhere. Any thread."""
        mark = secrets.token_hex(16)
        self._own_checks.add(mark)
        try:
            yield {_OWN_CHECK: mark}
        finally:
            self._own_checks.discard(mark)

    def watches(self, code: int) -> bool:
        """True for every code. Raises LookupError for a code that `asked.py` does not list."""
        asks_of(code)
        return True

    def admit(self, request: RemotingCommand, conn: Connection) -> None:
        code = request.code
        if code in ROUTE_CODES and self._anonymous_routes:
            if code == RequestCode.GET_ROUTEINFO_BY_TOPIC and request.ext_fields.get(ACCESS_KEY):
                self._admit_signed_route(request, conn)
            return
        if code == RequestCode.ROCKETBOX_MEMBER:
            return  # a proof itself
        address = _address_of(conn.born_host)
        if conn.session_key:
            self._admit_member(request, conn, address)
            return
        if kind_of(code) == BROKER and self._is_broker(address, conn):
            return
        generation = self._book.generation
        is_certified = not request.ext_fields.get(ACCESS_KEY)
        user = self._user_of(request, conn)
        for name in _PROOFS:  # fields that are relayed to a client must not hold proofs
            request.ext_fields.pop(name, None)
        if user is None:
            self._let_through.add(conn)
            return
        if user.account.is_super and not conn.channel and not self._is_near(address, conn):
            self.in_clear.note(user.account.name, address)
        brake = self._brake
        if user.account.name not in conn.principals:
            if brake is None:
                conn.principals |= {user.account.name}
            else:
                brake.enter(user, conn)
        meter = None if brake is None else brake.meter_of(user)
        is_allowed = self._admit_user(request, user, address, meter)
        if self._last is not None:
            if code in BY_RECORD or code in IN_PARTS:
                assert isinstance(request.caller, Caller)
                request.caller.on_allowed = lambda: conn.post(lambda: self._note_last(user.account.name, code, conn), 0)
            else:
                self._last.note(user.account.name, code, conn)
        if not is_allowed:
            self._let_through.add(conn)
        elif meter is None and code in GUARDED:
            self._tell_guard(request, conn, user, generation, is_certified)

    def _note_last(self, name: str, code: int, conn: Connection) -> None:
        """Note a request that was allowed later. On remoting-io."""
        if self._last is not None and self._book.get(name) is not None:
            self._last.note(name, code, conn)

    def _admit_signed_route(self, request: RemotingCommand, conn: Connection) -> None:
        """Answer a user who has no right on a topic as if there were no such topic. Where routes are told to all, a
        wrong signature is as none; the broker refuses what follows."""
        if not self._enforces:
            return
        user = self._proved(request.ext_fields[ACCESS_KEY], request, conn, self._route_failures)
        if user is None or user.account.is_super:
            return
        address = _address_of(conn.born_host)
        for kind, name, actions in asks_of(request.code)(request, self._cluster):
            if not user.policies.decide(kind, name, actions, address).is_allowed:
                raise _no_route(request)

    def _tell_guard(
        self, request: RemotingCommand, conn: Connection, user: User, generation: int, is_certified: bool
    ) -> None:
        """Let requests like one that was admitted pass. generation: of the book, before the user was read."""
        if len(user.keys) > _GUARDED_SECRETS:
            return
        if user.signer is None and not is_certified:
            user.signer = user.keys if Signer is None else Signer(user.keys)
        fields, name = request.ext_fields, user.account.name.encode()
        topic_field, group_field = GUARDED[request.code]
        group = None if group_field is None else (fields.get(group_field) or "").encode(errors="replace")
        topic = (fields.get(topic_field) or "").encode(errors="replace")
        self.guard.learn(conn, generation, name, None if is_certified else user.signer, group, topic)

    def _is_broker(self, address: Address, conn: Connection) -> bool:
        """True if brokers register from this address without a signature. A balancer's loopback is not this machine."""
        return not (conn.relayed and address.is_loopback) and any(address in network for network in self._brokers)

    def _is_near(self, address: Address, conn: Connection) -> bool:
        """True if the connection comes from this machine."""
        return not conn.relayed and (address.is_loopback or any(address in network for network in self._own))

    def _admit_member(self, request: RemotingCommand, conn: Connection, address: Address) -> None:
        """Admit a request of another broker of this name: what it reads and copies, and what it passes on for a user,
        whom it has authenticated and held to the quotas. Members administer nothing."""
        code = request.code
        if code == RequestCode.ROCKETBOX_USERS:
            return
        if kind_of(code) == ADMIN or asks_of(code) is SUPER:
            self._refuse("", address, code, "members administer nothing", NOT_SUPER)
        name, _, text = (request.ext_fields.pop(FOR_USER, None) or "").partition(" ")
        if not name:
            return
        user = self._book.get(name)
        if user is None or not user.account.is_enabled:
            self._refuse(name, address, code, _NOT_PROVED, NOT_PROVED)
            return
        self._admit_user(request, user, ipaddress.ip_address(text), None)

    def _admit_user(self, request: RemotingCommand, user: User, address: Address, meter: Meter | None) -> bool:
        """Check the permissions of the user of a request; False in report mode for one that would be refused. meter: of
        the user's quotas, None if none count."""
        code = request.code
        request.caller = Caller(self, user, address, code, meter)
        if user.account.is_super:
            return True
        asks = asks_of(code)
        if asks is SUPER:
            self._refuse(user.account.name, address, code, "only a Super user may", NOT_SUPER)
        if code in IN_PARTS:
            return True
        may = True
        try:
            for asked in asks(request, self._cluster):
                may &= self.check(user, asked, address, code)
        except RefusedRequest:
            if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                raise _no_route(request) from None
            raise
        return may

    def as_now(self, user: User) -> User:
        """Return a user as it is now; without any right if it is gone or disabled. Any thread."""
        now = self._book.get(user.account.name)
        return now if now is not None and now.account.is_enabled else User(Account(user.account.name))

    def is_current(self, user: User) -> bool:
        """True if a user may still do all that it might when it was like this. Any thread."""
        now = self._book.get(user.account.name)
        return now is user or (now is not None and not may_less(user.account, now.account))

    def _user_of(self, request: RemotingCommand, conn: Connection) -> User | None:
        """Return the user who signed a request, or whose certificate the connection has. None in report mode for a
        request that would be refused. Requests about users and entries never pass without proof."""
        fields, born_host = request.ext_fields, conn.born_host
        always = asks_of(request.code) is SUPER
        name = fields.get(ACCESS_KEY) or ""
        if not name and conn.certified:
            user = self._book.get(conn.certified)
            if user is not None and user.account.is_enabled:
                return user
            counted = "" if user is None else conn.certified
            address = _address_of(born_host)
            self._refuse(conn.certified, address, request.code, _NOT_CERTIFIED, NOT_PROVED, counted=counted)
            return None
        if not name:
            if fields.get(_OWN_CHECK) in self._own_checks:
                if self._enforces or always:
                    raise RefusedRequest(ResponseCode.NO_PERMISSION, _NO_USER)
                return None
            self._refuse("", _address_of(born_host), request.code, _NO_USER, NO_USER)
            return None
        user = self._proved(name, request, conn, self._failures)
        if user is not None:
            if user.account.requires_tls and not conn.channel:
                self._refuse(name, _address_of(born_host), request.code, self._in_clear, NO_TLS)
                return None
            return user
        is_known = self._book.get(name) is not None
        if not is_known and not self._enforces and not always:
            self._claim(name, request, _address_of(born_host))
        counted = name if is_known else ""
        self._refuse(name, _address_of(born_host), request.code, _NOT_PROVED, NOT_PROVED, counted=counted)
        return None

    def _proved(self, name: str, request: RemotingCommand, conn: Connection, failures: Failures) -> User | None:
        """Return the user whom a request names, if it is enabled and has signed it. failures: counts those that have
        not."""
        user = self._book.get(name)
        # Names that do not exist are too many to count each: they count as one.
        counted = name if user is not None else ""
        host = address_of(conn.born_host)
        # A user who was proved on this connection is not kept out by a neighbour's guesses.
        if name in conn.principals or not failures.are_too_many(host, counted):
            is_signed = is_signed_by(_NOBODY if user is None else user.keys, request.ext_fields, request.body)
            if is_signed and user is not None and user.account.is_enabled:
                return user
            failures.add(host, counted)
        return None

    def _claim(self, name: str, request: RemotingCommand, address: Address) -> None:
        """Note what a request needs that names a user who does not exist: its account may be imported yet."""
        try:
            asked = asks_of(request.code)(request, self._cluster)
        except RefusedRequest:
            return
        now_ms = self._clock.wall_ms()
        with self._lock:
            for one in asked[:_MOST_CLAIMED]:
                self._claims.add(
                    plain(name, 64),
                    _resource(one),
                    tuple(sorted(one.actions)),
                    "",
                    code=request.code,
                    address=str(address),
                    now_ms=now_ms,
                )

    def may_send(self, conn: Connection, topic: str) -> bool:
        """True if a user who has signed on the connection may send to the topic; always in report mode. For what the
        broker sends of its own accord. On remoting-io."""
        if not self._enforces:
            return True
        kind, name, actions = of_topic(topic, PUB)
        address = _address_of(conn.born_host)
        users = (user for user in map(self._book.get, conn.principals) if user is not None and user.account.is_enabled)
        return any(
            user.account.is_super or user.policies.decide(kind, name, actions, address).is_allowed for user in users
        )

    def check(self, user: User, asked: Asked, address: Address, code: int) -> bool:
        """Refuse with 16 a user who may do none of the actions; False in report mode. Any thread."""
        verdict = user.policies.decide(asked.kind, asked.name, asked.actions, address)
        if not verdict.is_allowed:
            text, enforces = self._note_denied(user, asked, verdict, address, code)
            if enforces:
                raise RefusedRequest(ResponseCode.NO_PERMISSION, text)
        return verdict.is_allowed

    def _note_denied(self, user: User, asked: Asked, verdict: Verdict, address: Address, code: int) -> tuple[str, bool]:
        """Count and log that a user may do none of the actions; return the text, and True if it is to be raised."""
        name, reason = user.account.name, NO_ENTRY if verdict.entry is None else DENIED
        text = _no_permission(name, _resource(asked), address, _WHY[reason])
        return text, self._note(name, address, code, text, reason, asked)

    def kept_from_consuming(
        self, user: User, named: Iterable[tuple[str, str]], address: Address, code: int, conn: Connection
    ) -> tuple[Set[tuple[str, str]], str]:
        """See `protocol.command.Caller`. On remoting-io."""
        kept_from = set()
        refused: dict[str, str] = {}  # resource -> Apache's words for the reason
        enforces = True
        for kind, name in dict.fromkeys(named):
            asked = of_topic(name, SUB) if kind == TOPIC else of_group(name, SUB)
            verdict = user.policies.decide(asked.kind, asked.name, asked.actions, address)
            if verdict.is_allowed:
                continue
            kept_from.add((kind, name))
            if _resource(asked) not in refused:
                refused[_resource(asked)] = _WHY[NO_ENTRY if verdict.entry is None else DENIED]
                enforces &= self._note_denied(user, asked, verdict, address, code)[1]
        if not enforces:
            self._let_through.add(conn)
        if not refused or not enforces:
            return frozenset(), ""
        told = [*refused][:_MOST_TOLD]
        if len(refused) > len(told):
            told.append(f"{len(refused) - len(told)} more")
        why = " ".join(dict.fromkeys(refused.values()))
        return kept_from, _no_permission(user.account.name, ", ".join(told), address, why)

    def seen(self, user: User, kind: str, address: Address, code: int) -> Callable[[str], bool] | None:
        """Return what tells whether a name of this kind is shown to a user; None if all are, as in report mode, which
        notes the right that would be missing. Refuses with 16 a user at an address of Apache's slaves: such a slave
        would take a part for the whole, and drop the queues of the topics that are not in it. Any thread."""
        policies, gets = user.policies, frozenset((GET,))
        may_all = policies.decide(CLUSTER, self._cluster, gets, address).is_allowed
        if not may_all and (not self._enforces or any(address in network for network in self._slaves)):
            self.check(user, Asked(CLUSTER, self._cluster, gets), address, code)
        if may_all or not self._enforces:
            return None
        asked = of_topic if kind == TOPIC else of_group

        def is_shown(name: str) -> bool:
            of_kind, real_name, actions = asked(name, GET)
            return policies.decide(of_kind, real_name, actions, address).is_allowed

        return is_shown

    def _refuse(
        self, name: str, address: Address, code: int, why: str, reason: str, counted: str | None = None
    ) -> None:
        """Count and log a refusal, and raise it if the gate enforces, or if only Super users may do it at all."""
        if self._note(name, address, code, why, reason, counted=counted):
            raise RefusedRequest(ResponseCode.NO_PERMISSION, why)

    def _note(
        self,
        name: str,
        address: Address,
        code: int,
        why: str,
        reason: str,
        asked: Asked | None = None,
        counted: str | None = None,
    ) -> bool:
        """Count and log a refusal; True if it is to be raised. reason: as in `refusals.py`. asked: what the user has no
        right to. counted: the user it counts for, if that is not `name`."""
        enforces = self._enforces or reason == NOT_SUPER or asks_of(code) is SUPER
        user = name if counted is None else counted
        resource, actions = ("", ()) if asked is None else (_resource(asked), tuple(sorted(asked.actions)))
        now_ms = self._clock.wall_ms()
        with self._lock:
            self._refusals.add(user, resource, actions, reason, code=code, address=str(address), now_ms=now_ms)
            self._lines.log(
                (address.packed[:8], user),  # of IPv6 its network
                "access: %s user=%r from=%s code=%d: %s",
                "refused" if enforces else "would be refused",
                plain(name, 64),
                address,
                code,
                why,
            )
        return enforces


def _no_route(request: RemotingCommand) -> RefusedRequest:
    """Return the answer about a topic that is not there."""
    return RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE % (request.ext_fields.get("topic") or "null"))


def _no_permission(name: str, resources: str, address: Address, why: str) -> str:
    return f"User:{name} has no permission to access {resources} from {address}, {why}"


def _resource(asked: Asked) -> str:
    return f"{asked.kind}:{plain(asked.name, 255)}"


def _address_of(born_host: bytes) -> Address:
    address = ipaddress.ip_address(decode_host(born_host)[0])
    return getattr(address, "ipv4_mapped", None) or address
