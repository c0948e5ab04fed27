"""Addresses as text: "10.0.0.5:9876" and "[::1]:9876", made and read in one place.

Addresses that a user writes, in a setting or on a page, go through `parse_host` and `parse_host_port`: an accepted
address can be resolved, connected to and advertised to clients; a refused one goes no further.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from typing import Any

#: Values of `bind` that listen on all addresses.
EVERYWHERE = ("0.0.0.0", "::", "")
#: Time-out of the resolver.
RESOLVE_LIMIT_S = 2.0
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\.?\Z")


def parse_host(text: str) -> str:
    """Return an IP address or a host name that a user wrote, without blanks and brackets around it; an address in its
    usual form. Raises ValueError, whose text follows the setting's name: "must be ..."."""
    host = text.strip()
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    if re.fullmatch(r"(\[[^]]*\]|[^:]+):[0-9]*", host):
        raise ValueError(f"must be an address or a host name without a port, not {_shown(text)}")
    # Digits and dots alone are a mistyped address: resolvers read "10.1" as 10.0.0.1.
    if not _HOST_NAME.match(host) or not host.strip("0123456789."):
        raise ValueError(f"must be an IP address or a host name, not {_shown(text)}")
    return host


def parse_host_port(text: str) -> str:
    """Return host:port that a user wrote in the form of `join_host_port`; an IPv6 address needs its brackets. Raises
    ValueError as `parse_host`."""
    host, port = split_host_port(text.strip())
    if not port or (":" in host and not text.strip().startswith("[")):
        raise ValueError(f"must be host:port, not {_shown(text)}")
    return join_host_port(parse_host(host), port)


def parse_told_host(text: str) -> str:
    """As `parse_host`, for an address that is advertised to clients: 0.0.0.0 and :: are refused."""
    host = parse_host(text)
    address = _ip(host)
    if address is not None and address.is_unspecified:
        raise ValueError(f"must be what clients can connect to, not {_shown(text)}")
    return host


def parse_advertised(text: str) -> tuple[str, int]:
    """As `parse_told_host`, for an address that may name a port, too: return (host, port), 0 without one."""
    found = re.fullmatch(r"\s*(\[[^]]*\]|[^][:]+):([0-9]{1,5})\s*", text)
    if found is None:
        return parse_told_host(text), 0
    port = int(found[2])
    if not 0 < port <= 65_535:
        raise ValueError(f"must have a port between 1 and 65535, or none, not {_shown(text)}")
    return parse_told_host(found[1]), port


def is_host(text: str) -> bool:
    """True if this text can be advertised to clients as an address."""
    try:
        parse_told_host(text)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}...")


def resolved(host: str, limit_s: float = RESOLVE_LIMIT_S) -> tuple[str, ...]:
    """Resolve a host on this machine; return its addresses, IPv4 first. An address is returned as it is. Empty if there
    are none, or if the resolver does not answer in time."""
    if _ip(host) is not None:
        return (host.strip("[]"),)
    found: list[str] = []

    def look_up() -> None:
        try:
            answers = socket.getaddrinfo(for_resolver(host), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return
        found.extend(dict.fromkeys(str(answer[4][0]).partition("%")[0] for answer in answers))

    thread = threading.Thread(target=look_up, name="resolve-address", daemon=True)
    thread.start()
    thread.join(limit_s)
    return tuple(sorted(found, key=lambda address: ":" in address))


def for_resolver(host: str) -> Any:
    """Return a host for `getaddrinfo`: bytes if it is ASCII, because for text that function loads the IDNA codec, which
    is made for all languages."""
    return host.encode() if host.isascii() else host


def cannot_reach(host: str, bind: str) -> bool:
    """True if clients cannot connect to `host`, judging by the texts: one of `host` and `bind` is this machine's only,
    and the other is not the same. Other addresses may be translated on the way, and names may lead anywhere."""
    if bind in EVERYWHERE or host == bind:
        return False
    told, ours = _ip(host), _ip("127.0.0.1" if bind == "localhost" else bind)
    if ours is None:
        return False
    if told is None:
        return ours.is_loopback and host.rstrip(".").lower() != "localhost"
    return told != ours and (told.is_loopback or ours.is_loopback)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def bracketed(host: str) -> str:
    """Return a host as it is written before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def join_host_port(host: str, port: int) -> str:
    return f"{bracketed(host)}:{port}"


def split_host_port(address: str) -> tuple[str, int]:
    """Return (host without brackets, port). Raises ValueError for anything that is not host:port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def host_of(address: str | None) -> str:
    """Return the host without brackets; "" without an address."""
    return split_host_port(address)[0] if address else ""


def local_host(bind: str) -> str:
    """Return the host with which this machine reaches a port that is bound to `bind`."""
    return "127.0.0.1" if bind in EVERYWHERE else bind
