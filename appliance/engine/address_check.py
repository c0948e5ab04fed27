"""Checks if an address leads back to this process, before the set-up page advertises that address to clients.

It connects to the broker's and the name server's ports on that host only, and sends the requests of a client. The
address leads here if the answer is the same as on the address that the engine listens on: the broker's start time, to
the millisecond, or the name server's list of brokers.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from .errors import CallTimeout, ConnectError, FrameError
from .host_port import EVERYWHERE, join_host_port, local_host, resolved, split_host_port
from .protocol.codes import RequestCode, ResponseCode
from .protocol.command import RemotingCommand
from .remoting.client import RemotingClient

ANSWER_LIMIT_MS = 1500
#: Paths of a certificate and its key.
Pair = tuple[str, str]
Fields = Mapping[str, str]
# Linux's request for an interface's IPv4 address (linux/sockios.h).
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True)
class PortCheck:
    """The result for one port: "answers" (this process does, after `ms`), "other" (another program answers), "refused",
    "silent", or "bound" (this process listens on `bind` only, and that is another address)."""

    port: int
    result: str
    ms: float | None = None
    bind: str = ""


@dataclass(frozen=True, slots=True)
class AddressCheck:
    """The result for one host. host: as given. addresses: that it resolves to here, empty if to none. loopback: only
    this machine can use it. broker, namesrv: None if that role does not run."""

    host: str
    addresses: tuple[str, ...]
    loopback: bool
    broker: PortCheck | None
    namesrv: PortCheck | None

    @property
    def good(self) -> bool:
        """True if clients reach this process, provided that they resolve the name as it does."""
        ports = [port for port in (self.broker, self.namesrv) if port is not None]
        return bool(self.addresses) and all(port.result == "answers" for port in ports)


def check_address(
    host: str,
    bind: str,
    broker: str | None,
    namesrv: str | None,
    tls: Pair | None = None,
    fields: Fields = MappingProxyType({}),
    own_port: int = 0,
) -> AddressCheck:
    """Try one address. Blocks for up to 5 s, so never on the I/O thread.

    host: one that `is_host` accepts. bind: where the engine listens. broker, namesrv: "host:port" that clients use;
    None for a role that does not run. tls: PEM files of this process's certificate and key, if the ports take nothing
    but TLS. fields: of the requests. own_port: where the broker listens, if clients are told another port.
    """
    addresses = resolved(host)
    loopback = bool(addresses) and all(ipaddress.ip_address(found).is_loopback for found in addresses)
    broker_port = namesrv_port = None
    if broker is not None:
        port = split_host_port(broker)[1]
        mark_of = partial(_broker_mark, tls=tls, fields=fields)
        broker_port = _check_port(host, port, addresses, bind, mark_of, own_port)
    if namesrv is not None:
        port = split_host_port(namesrv)[1]
        namesrv_port = _check_port(host, port, addresses, bind, partial(_namesrv_mark, tls=tls, fields=fields))
    return AddressCheck(host, addresses, loopback, broker_port, namesrv_port)


def own_addresses() -> list[tuple[str, str]]:
    """Return (interface, IPv4 address) pairs of this machine, loopback last; empty if the system has no such call."""
    found = []
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            for _, name in socket.if_nameindex():
                try:
                    answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                except OSError:
                    continue  # an interface without an IPv4 address
                found.append((name, socket.inet_ntoa(answer[20:24])))
    except (ImportError, OSError):
        return []
    return sorted(found, key=lambda one: one[1].startswith("127."))


def _check_port(
    host: str,
    port: int,
    addresses: tuple[str, ...],
    bind: str,
    mark_of: Callable[[str], str | None],
    own_port: int = 0,
) -> PortCheck:
    if not addresses:
        return PortCheck(port, "silent", bind=bind)
    started = time.monotonic()
    try:
        mark = mark_of(join_host_port(host, port))
    except ConnectError:
        return PortCheck(port, "refused" if bind in (*EVERYWHERE, *addresses) else "bound", bind=bind)
    except (CallTimeout, FrameError, OSError, ValueError):
        return PortCheck(port, "silent", bind=bind)
    took_ms = (time.monotonic() - started) * 1000
    try:
        ours = mark_of(join_host_port(local_host(bind), own_port or port))
    except (ConnectError, CallTimeout, FrameError, OSError, ValueError):
        ours = None
    same = mark is not None and mark == ours
    return PortCheck(port, "answers" if same else "other", took_ms if same else None, bind)


#: With access control a broker does not answer unsigned requests, so every such broker counts as this one.
_GUARDED = "it asks who we are"


def _broker_mark(address: str, tls: Pair | None, fields: Fields) -> str | None:
    """Return the broker's start time, to the millisecond, as text."""
    return _found(address, tls, fields, RequestCode.GET_BROKER_RUNTIME_INFO, rb'"bootTimestamp"\s*:\s*"?(\d+)')


def _namesrv_mark(address: str, tls: Pair | None, fields: Fields) -> str | None:
    """Return the name server's whole list of brokers."""
    return _found(address, tls, fields, RequestCode.GET_BROKER_CLUSTER_INFO, rb"(?s)(.+)")


def _found(address: str, tls: Pair | None, fields: Fields, code: int, pattern: bytes) -> str | None:
    client = RemotingClient(address, connect_timeout_ms=ANSWER_LIMIT_MS, tls=tls is not None, pair=tls)
    try:
        answer = client.invoke_sync(RemotingCommand(code, ext_fields=dict(fields)), ANSWER_LIMIT_MS)
    finally:
        client.close()
    if answer.code == ResponseCode.NO_PERMISSION:
        return _GUARDED
    match = re.search(pattern, bytes(answer.body or b"")) if answer.code == 0 else None
    return match.group(1).decode("utf-8", "replace") if match else None
