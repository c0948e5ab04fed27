"""Whether an address leads back to this process: what the set-up page asks before clients are told it.

Connects to the broker's and the name server's own ports on the host in question and to no other, and asks what a
client would ask. An answer is ours when it carries the start time that our own listening address gives.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from .errors import CallTimeout, ConnectError, FrameError
from .host_port import EVERYWHERE, join_host_port, local_host, split_host_port
from .protocol.codes import RequestCode
from .protocol.command import RemotingCommand
from .remoting.client import RemotingClient

RESOLVE_LIMIT_S = 2.0
ANSWER_LIMIT_MS = 1500
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})?)*\.?\Z")
# Linux's request for an interface's IPv4 address (linux/sockios.h).
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True)
class PortCheck:
    """One port. result: "answers" (by us, after `ms`), "other" (somebody else), "refused", "silent", "bound" (we listen
    on `bind` only, which that address is not) or "not run"."""

    port: int
    result: str
    ms: float | None = None
    bind: str = ""


@dataclass(frozen=True, slots=True)
class AddressCheck:
    """host: as asked. addresses: what it resolves to here, empty when it does not. broker, namesrv: None when that role
    does not run. loopback: only this machine can use it."""

    host: str
    addresses: tuple[str, ...]
    loopback: bool
    broker: PortCheck | None
    namesrv: PortCheck | None

    @property
    def good(self) -> bool:
        """Whether clients that resolve the name as we do will reach us."""
        ports = [port for port in (self.broker, self.namesrv) if port is not None]
        return bool(self.addresses) and all(port.result == "answers" for port in ports)


def is_host(text: str) -> bool:
    """Whether a text is an IP address or could be a host name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST_NAME.match(text) is not None
    return True


def check_address(host: str, bind: str, broker: str | None, namesrv: str | None) -> AddressCheck:
    """Try one address. Blocks for 5 s at most; never on the I/O thread.

    host: must be one (`is_host`). bind: where the engine listens. broker, namesrv: "host:port" that clients are told;
    None for a role that does not run.
    """
    addresses = _resolved(host)
    loopback = bool(addresses) and all(ipaddress.ip_address(found).is_loopback for found in addresses)
    broker_port = namesrv_port = None
    if broker is not None:
        port = split_host_port(broker)[1]
        broker_port = _check_port(host, port, addresses, bind, _broker_mark)
    if namesrv is not None:
        port = split_host_port(namesrv)[1]
        namesrv_port = _check_port(host, port, addresses, bind, _namesrv_mark)
    return AddressCheck(host, addresses, loopback, broker_port, namesrv_port)


def own_addresses() -> list[tuple[str, str]]:
    """(interface, IPv4 address) of this machine, loopback last; empty where the system cannot be asked this way."""
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


def _resolved(host: str) -> tuple[str, ...]:
    """What the name means here; a resolver that hangs is left behind after two seconds."""
    found: list[str] = []

    def resolve() -> None:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        found.extend(dict.fromkeys(str(answer[4][0]).partition("%")[0] for answer in answers))

    thread = threading.Thread(target=resolve, name="resolve-address", daemon=True)
    thread.start()
    thread.join(RESOLVE_LIMIT_S)
    return tuple(found)


def _check_port(
    host: str, port: int, addresses: tuple[str, ...], bind: str, mark_of: Callable[[str], str | None]
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
        ours = mark_of(join_host_port(local_host(bind), port))
    except (ConnectError, CallTimeout, FrameError, OSError, ValueError):
        ours = None
    same = mark is not None and mark == ours
    return PortCheck(port, "answers" if same else "other", took_ms if same else None, bind)


def _broker_mark(address: str) -> str | None:
    """The broker's start time, to the millisecond."""
    return _found(address, RequestCode.GET_BROKER_RUNTIME_INFO, rb'"bootTimestamp"\s*:\s*"?(\d+)')


def _namesrv_mark(address: str) -> str | None:
    """The name server's list of brokers, whole."""
    return _found(address, RequestCode.GET_BROKER_CLUSTER_INFO, rb"(?s)(.+)")


def _found(address: str, code: int, pattern: bytes) -> str | None:
    client = RemotingClient(address, connect_timeout_ms=ANSWER_LIMIT_MS)
    try:
        answer = client.invoke_sync(RemotingCommand(code), ANSWER_LIMIT_MS)
    finally:
        client.close()
    match = re.search(pattern, bytes(answer.body or b"")) if answer.code == 0 else None
    return match.group(1).decode("utf-8", "replace") if match else None
