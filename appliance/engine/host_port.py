"""Addresses as text: "10.0.0.5:9876" and "[::1]:9876", made and read in one place."""

from __future__ import annotations

import ipaddress

#: What to bind to in order to listen on all addresses.
EVERYWHERE = ("0.0.0.0", "::", "")


def cannot_reach(host: str, bind: str) -> bool:
    """Whether clients that are told `host` find nobody there, as far as the texts tell: one of the two is of this
    machine only, and the other is not it. Other addresses may be translated on the way, and names lead anywhere."""
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
    """A host as it is written before a port: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


def join_host_port(host: str, port: int) -> str:
    return f"{bracketed(host)}:{port}"


def split_host_port(address: str) -> tuple[str, int]:
    """(host without brackets, port). Raises ValueError for anything that is not host:port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def host_of(address: str | None) -> str:
    """The host without brackets; "" when there is no address."""
    return split_host_port(address)[0] if address else ""


def local_host(bind: str) -> str:
    """The host with which this machine reaches a port that is bound to `bind`."""
    return "127.0.0.1" if bind in EVERYWHERE else bind
