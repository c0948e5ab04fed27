"""The parts of access control in one process: one book, one gate on all its ports, one processor."""

from __future__ import annotations

import ipaddress
import logging

from ..clock import Clock
from ..config import EngineConfig, parse_first_user, parse_networks
from ..errors import RefusedRequest, StartError
from ..host_port import resolved
from ..remoting.event_loop import EventLoop
from ..remoting.server import RemotingServer
from .book import Book
from .brake import Brake
from .gate import ENFORCE, AccessGate
from .policies import Network
from .quotas import Quotas
from .requests import AccessProcessor

logger = logging.getLogger(__name__)

FILE = "access.journal"
#: Delay before the connections of a user who lost a right are closed: users who change their own account get the
#: answer.
_GRACE_S = 0.2


class Access:
    """The parts of access control. Made when `accessControl` is not off."""

    def __init__(
        self, config: EngineConfig, advertised: str, clock: Clock, loop: EventLoop, server: RemotingServer
    ) -> None:
        """advertised: the host under which others reach this process. Raises StartError, with nothing left open."""
        # Constant after construction.
        self._loop = loop
        self._server = server
        _check_alone(config)
        path = config.data_dir / "rocketbox" / FILE
        try:
            self.book = Book(path)
        except OSError as error:
            raise StartError(f"Users cannot be kept in {path}: {error.strerror or error}.") from None
        try:
            self._make_first(config)
        except BaseException:
            self.book.close()
            raise
        self.book.on_less = self._hang_up
        enforces = config.broker.access_control == ENFORCE
        #: None in report mode, in which nothing is refused.
        self.brake = Brake(loop, self.book, default_quotas(config)) if enforces else None
        if self.brake is not None:
            self.book.on_change = self.brake.changed
            server.on_close(self.brake.leave)
        self.gate = AccessGate(
            self.book,
            clock,
            config.broker.cluster_name,
            enforces=enforces,
            anonymous_routes=config.broker.namesrv_anonymous_routes,
            brokers=(
                *parse_networks(config.broker.namesrv_broker_addresses),
                *_own_networks(config.bind),
                *_own_networks(advertised),
            ),
            brake=self.brake,
        )
        self.processor = AccessProcessor(self.book)

    def take_options(self, config: EngineConfig) -> None:
        """Use these options from now on. Any thread."""
        if self.brake is not None:
            self.brake.change_defaults(default_quotas(config))

    def _make_first(self, config: EngineConfig) -> None:
        if self.book.has_super():
            return
        given = config.broker.init_authentication_user
        if not given:
            if config.broker.access_control == ENFORCE:
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
        they held are judged anew. Any thread."""

        def close() -> None:
            for conn in [conn for conn in self._server.connections.values() if name in conn.principals]:
                conn.close()

        def soon() -> None:
            self._loop.call_later(_GRACE_S, close)

        self._loop.call_soon(soon)

    def close(self) -> None:
        """Close the book: changes are refused from now on."""
        self.book.close()


def default_quotas(config: EngineConfig) -> Quotas:
    """Return the quotas of users who have none of their own; 0 for no limit."""
    broker = config.broker
    return Quotas(
        broker.user_send_bytes_per_second,
        broker.user_pull_bytes_per_second,
        broker.user_requests_per_second,
        broker.user_connections,
    )


def _check_alone(config: EngineConfig) -> None:
    """Raise StartError if a broker would have to sign its requests to others, which it cannot do yet."""
    if config.store.ha_store or config.store.broker_role == "SLAVE":
        raise StartError(
            "accessControl does not go with haStore or brokerRole=SLAVE yet: members of a set do not sign what they "
            "ask each other."
        )


def _own_networks(host: str) -> tuple[Network, ...]:
    """Return the addresses of this process, as its own name server sees it."""
    return tuple(ipaddress.ip_network(address) for address in resolved(host))
