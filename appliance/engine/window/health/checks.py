"""Health checks of the process: each is a sentence with a level, made from the engine's own state."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...host_port import cannot_reach, host_of
from ...remoting.event_loop import EventLoop
from ...wire_audit import WireAudit
from ..process.system import Addresses
from ..sentences import say
from .certificates import Served, certificate_findings
from .finding import Finding, degraded, failed, fine

if TYPE_CHECKING:
    from .broker_checks import BrokerChecks


def is_loopback(address: str | None) -> bool:
    """True if "host:port" leads to this machine only."""
    return _means_this_machine(host_of(address))


def _means_this_machine(host: str) -> bool:
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
        bind: str,
        certificates: Mapping[str, Served],
        broker: BrokerChecks | None = None,
    ) -> None:
        """certificates: by the name of their check; looked at again each time."""
        # Constant after construction.
        self._loop = loop
        self._wire_audit = wire_audit
        self._addresses = addresses
        self._bind = bind
        self._certificates = certificates
        self._broker = broker

    def including(self, broker: BrokerChecks) -> Checks:
        """Return the same checks together with the broker's."""
        return Checks(self._loop, self._wire_audit, self._addresses, self._bind, self._certificates, broker)

    def all(self) -> tuple[Finding, ...]:
        """Run every check, the network's first."""
        alive = self._loop.alive
        found = [fine("io", say("io_running")) if alive else failed("io", say("io_ended"))]
        if self._broker is not None:
            found += self._broker.all()
        if self._wire_audit.failure is not None:
            found.append(failed("wire_audit", say("wire_audit_failing", reason=self._wire_audit.failure)))
        addresses = self._addresses()
        address = addresses.broker or addresses.namesrv
        if address is not None:
            found.append(_address_check(address, self._bind))
        found += certificate_findings(self._certificates)
        return tuple(found)


def _address_check(address: str, bind: str) -> Finding:
    """Check that the address that is advertised to clients leads here."""
    host = host_of(address)
    if cannot_reach(host, bind):
        return degraded("address", say("advertised_elsewhere", address=address, bind=bind, host=host))
    if is_loopback(address):
        # A loopback address is intended if the server listens on loopback only.
        judged = fine if _means_this_machine(bind) else degraded
        return judged("address", say("advertised_loopback", address=address))
    return fine("address", say("advertised", address=address))
