"""The parts of access control in one process: one book, one gate on all its ports, one processor."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..clock import Clock
from ..config import ENFORCE, EngineConfig, parse_first_user, parse_networks
from ..errors import RefusedRequest, StartError
from ..host_port import resolved
from ..protocol.codes import ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.message_id import decode_host
from ..remoting.connection import Connection
from ..remoting.dispatcher import Dispatcher, Gate, WorkerPool
from ..remoting.event_loop import EventLoop
from ..remoting.server import RemotingServer
from ..wire_act import WireAct
from ..wire_audit import WireAudit
from ..wire_gate import BY_USER
from .book import Book, BookRefusal
from .brake import Brake
from .copies import MembersProcessor, UserCopies
from .gate import AccessGate, GateRules
from .last_requests import LastRequests
from .policies import Network
from .pure_guard import GuardedDispatcher, PureGuard
from .quotas import Quotas
from .requests import AccessProcessor
from .sealing import OPTION, Sealer, sealer_of

if TYPE_CHECKING:
    from ..broker.broker import Broker

logger = logging.getLogger(__name__)

FILE = "access.journal"
#: Delay before the connections of a user who lost a right are closed: users who change their own account get the
#: answer.
_GRACE_S = 0.2


class Access:
    """The parts of access control. Made when `accessControl` is not off."""

    def __init__(
        self,
        config: EngineConfig,
        advertised: str,
        clock: Clock,
        loop: EventLoop,
        server: RemotingServer,
        audit: WireAudit,
        secret: bytes | None = None,
    ) -> None:
        """advertised: the host under which others reach this process. secret: shared with the other brokers of this
        name. Raises StartError, with nothing left open."""
        # Constant after construction.
        self._loop = loop
        self._server = server
        self._clock = clock
        _check_secret(config)
        path = config.data_dir / "rocketbox" / FILE
        try:
            self.book = Book(path, sealer=_sealer(config))
        except OSError as error:
            raise StartError(f"Users cannot be kept in {path}: {error.strerror or error}.") from None
        try:
            if not _copies(config):
                self._make_first(config)
        except BaseException:
            self.book.close()
            raise
        self.book.on_less = self._hang_up
        enforces = config.broker.access_control == ENFORCE
        #: In report mode it only counts.
        self.brake = Brake(loop, self.book, default_quotas(config), counts_only=not enforces)
        #: The last request of each user.
        self.last = LastRequests(clock, lambda: list(server.connections.values()))
        self.book.on_change = self._changed
        server.on_close(self.brake.leave)
        server.on_close(lambda conn: self.gate.leave(conn))
        server.on_close(self.last.leave)
        brokers = parse_networks(config.broker.namesrv_broker_addresses)
        own = (*_own_networks(config.bind), *_own_networks(advertised))
        rules = GateRules(
            config.broker.cluster_name,
            config.broker.namesrv_anonymous_routes,
            (*brokers, *own),
            parse_networks(config.store.ha_slave_addresses),
            own,
            serves_tls=config.broker.tls_mode != "disabled",
        )
        self.gate = AccessGate(self.book, clock, rules, self.brake, self.last, enforces=enforces)
        gives = config.broker.auth_give_secrets
        self.processor = AccessProcessor(self.book, _recording_given(audit, clock) if gives else None)
        self.members: MembersProcessor | None = None
        if secret is not None:
            self.members = members = MembersProcessor(self.book, secret, clock, self._later)
            server.on_close(members.leave)

    def _changed(self, name: str) -> None:
        """Let a changed user's quotas take effect, forget one who is gone, and tell the members. Any thread."""
        self.brake.changed(name)
        if self.book.get(name) is None:
            self._loop.call_soon(lambda: self.last.forget(name))
        if self.members is not None:
            self.members.changed()

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        """Have a function called later on remoting-io. Any thread."""

        def begin() -> None:
            self._loop.call_later(seconds, call)

        self._loop.call_soon(begin)

    def new_dispatcher(self, pools: dict[str, WorkerPool], gates: tuple[Gate, ...]) -> Dispatcher:
        """Return an empty table of one port. gates: with the gate of access control."""
        guard = self.gate.guard
        if isinstance(guard, PureGuard):
            return GuardedDispatcher(pools, gates, self._clock, guard)
        return Dispatcher(pools, gates, self._clock)

    def new_copies(self) -> UserCopies:
        """Return the copying of users from a broker that is followed from now on."""
        return UserCopies(self.book)

    def change_at(self, broker: Callable[[], Broker | None]) -> None:
        """Have users changed where the broker of this process takes messages only, and wait for the members of its set
        that are in sync, or for its slaves. broker: returns it; None while it is being replaced."""

        def begin_change() -> Callable[[], None]:
            here = broker()
            if here is None or not here.role.appends:
                where = "this broker is changing its role" if here is None else here.who_changes()
                raise BookRefusal(
                    "wire_users_elsewhere",
                    f"users and their entries come from another broker, and are changed there: {where}",
                    where=where,
                )

            def wait_for_others() -> None:
                key = "wire_users_unconfirmed"
                try:
                    here.topic_service.tell_members("changed")
                    if not here.role.is_member and self.members is not None:
                        key = "wire_users_not_at_slaves"
                        self.members.wait_for_followers()
                except RefusedRequest as refusal:
                    raise BookRefusal(key, refusal.remark, ResponseCode.SYSTEM_ERROR) from None

            return wait_for_others

        self.book.begin_change = begin_change

    def make_first(self, config: EngineConfig) -> None:
        """Make the first Super user where there is none, on a broker that begins to lead. Any thread that may wait."""
        try:
            self._make_first(config)
        except StartError as error:
            logger.error("access: %s", error)

    def take_options(self, config: EngineConfig) -> None:
        """Use these options from now on. Any thread."""
        enforces = config.broker.access_control == ENFORCE
        self.gate.change(enforces=enforces)
        self.brake.change_mode(counts_only=not enforces)
        self.brake.change_defaults(default_quotas(config))
        self._loop.call_soon(self.gate.hang_up)

    def refusal_of(self, config: EngineConfig) -> str:
        """Return the key of a sentence that refuses these options, or ""."""
        is_open = config.broker.access_control == ENFORCE and not self.book.has_super()
        return "enforce_no_super" if is_open else ""

    def _make_first(self, config: EngineConfig) -> None:
        if self.book.has_super():
            return
        given = config.broker.init_authentication_user
        if not given:
            if config.broker.access_control == ENFORCE and not _copies(config):
                raise StartError(
                    "accessControl=enforce needs a Super user, and there is none yet: say "
                    'initAuthenticationUser={"username":"...","password":"..."} at the first start.'
                )
            logger.warning("access: there is no Super user yet; initAuthenticationUser makes the first one")
            return
        name, secret = parse_first_user(given.plain)
        try:
            if self.book.get(name) is None:
                self.book.create(name, secret, is_super=True)
            else:
                self.book.update(name, secret=secret, is_super=True, is_enabled=True)
        except RefusedRequest as refusal:
            raise StartError(f"initAuthenticationUser is not taken: {refusal.remark}.") from None
        except OSError as error:
            raise StartError(f"The first user cannot be saved: {error.strerror or error}.") from None
        logger.info("access: made the Super user %s", name)

    def _hang_up(self, name: str) -> None:
        """Close the connections of a user who may do less than before: its clients connect again, and the requests that
        they held are judged anew. Those that come from then on stay. Any thread."""

        def begin() -> None:
            there = [conn for conn in self._server.connections.values() if name in conn.principals]
            for conn in there:
                if conn.parked_count:
                    conn.close()  # a message may come for a pull any time
            self._loop.call_later(_GRACE_S, lambda: close(there))

        def close(there: list[Connection]) -> None:
            for conn in there:
                conn.close()

        self._loop.call_soon(begin)

    def close(self) -> None:
        """Close the book: changes are refused from now on."""
        self.book.close()


def _recording_given(audit: WireAudit, clock: Clock) -> Callable[[str, RemotingCommand, Connection], None]:
    """Return what records in the audit log that secrets were given."""
    logger.warning("access: authGiveSecrets is on: Super users get the secrets of users over TLS or on this machine")

    def record(name: str, request: RemotingCommand, conn: Connection) -> None:
        host, port = decode_host(conn.born_host)
        by = {} if request.caller is None else {BY_USER: request.caller.name}
        audit.record(
            WireAct(at_ms=clock.wall_ms(), host=host, port=port, action="wire-user.give", target=name, after=by)
        )

    return record


def default_quotas(config: EngineConfig) -> Quotas:
    """Return the quotas of users who have none of their own; 0 for no limit."""
    broker = config.broker
    return Quotas(
        broker.user_send_bytes_per_second,
        broker.user_pull_bytes_per_second,
        broker.user_requests_per_second,
        broker.user_connections,
    )


def _sealer(config: EngineConfig) -> Sealer | None:
    """Return what seals the secrets at rest; None if they lie in clear text. Raises StartError."""
    file = config.broker.access_key_file
    if not file:
        return None
    sealer = sealer_of(file)
    if sealer is None:
        logger.warning(
            "access: the secrets of users are not sealed, in spite of %s: the package cryptography is not installed; "
            "they lie in clear text in a file of mode 0600",
            OPTION,
        )
    elif config.data_dir.resolve() in Path(file).resolve().parents:
        logger.warning(
            "access: %s=%s lies in the data directory: a backup of it holds the key of the secrets, too", OPTION, file
        )
    return sealer


def _copies(config: EngineConfig) -> bool:
    """True if the users of this process may come from another broker."""
    return "broker" in config.roles and bool(config.store.ha_store or config.store.broker_role == "SLAVE")


def _check_secret(config: EngineConfig) -> None:
    """Raise StartError if a broker could not prove itself to the broker that it follows."""
    if _copies(config) and not config.store.ha_secret_file:
        raise StartError(
            "accessControl with haStore or brokerRole=SLAVE needs haSecretFile: a file with one secret that all "
            "brokers of this name share, by which they know each other."
        )


def _own_networks(host: str) -> tuple[Network, ...]:
    """Return the addresses of this process, as its own name server sees it."""
    return tuple(ipaddress.ip_network(address) for address in resolved(host))
