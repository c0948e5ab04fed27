"""Addresses as text: "10.0.0.5:9876" and "[::1]:9876", made and read in one place."""

from __future__ import annotations

#: What to bind to in order to listen on all addresses.
EVERYWHERE = ("0.0.0.0", "::", "")


def bracketed(host: str) -> str:
    """A host as it stands before a port: an IPv6 address has brackets there."""
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
    """Where this machine reaches what listens on `bind`."""
    return "127.0.0.1" if bind in EVERYWHERE else bind
