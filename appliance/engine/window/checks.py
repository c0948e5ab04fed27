"""Is it well: checks as sentences with a level, from what the engine knows about itself."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..host_port import host_of
from ..remoting.event_loop import EventLoop
from ..wire_audit import WireAudit
from . import snapshots as s
from .sentences import say
from .system import Addresses

if TYPE_CHECKING:
    from .broker_checks import BrokerChecks


def is_loopback(address: str | None) -> bool:
    """Whether "host:port" leads to this machine only."""
    host = host_of(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Checks:
    """Every health check. Any thread."""

    def __init__(
        self,
        loop: EventLoop,
        wire_audit: WireAudit,
        addresses: Callable[[], Addresses],
        broker: BrokerChecks | None = None,
    ) -> None:
        # Constant after construction.
        self._loop = loop
        self._wire_audit = wire_audit
        self._addresses = addresses
        self._broker = broker

    def including(self, broker: BrokerChecks) -> Checks:
        """The same, and those of the broker."""
        return Checks(self._loop, self._wire_audit, self._addresses, broker)

    def all(self) -> tuple[s.Check, ...]:
        """Every check, the network's first."""
        alive = self._loop.alive
        found = [s.Check("io", "ok" if alive else "failed", say("io_running" if alive else "io_ended"))]
        if self._broker is not None:
            found += self._broker.all()
        if self._wire_audit.failure is not None:
            text = say("wire_audit_failing", reason=self._wire_audit.failure)
            found.append(s.Check("wire_audit", "failed", text))
        addresses = self._addresses()
        address = addresses.broker or addresses.namesrv
        if address is not None:
            here = is_loopback(address)
            code = "advertised_loopback" if here else "advertised"
            found.append(s.Check("address", "warning" if here else "ok", say(code, address=address)))
        return tuple(found)
