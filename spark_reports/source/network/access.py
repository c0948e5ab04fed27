"""Settings by which a task reaches the servers. They are sent to the executors, so they are values, not connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.engine.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, signed_content

#: RocketMQ's port of name servers, for an address without one.
NAME_SERVER_PORT = 9876


@dataclass(frozen=True)
class Credentials:
    """A user of the brokers. Its repr does not contain the secret."""

    access_key: str
    secret_key: str = field(repr=False)

    def sign(self, fields: Mapping[str, str], body: bytes = b"") -> dict[str, str]:
        """Return the fields of a request with the signature that brokers of 4.9 and 5.x check: over the values in the
        order of their names, and the body."""
        signed = {**fields, ACCESS_KEY: self.access_key}
        return {**signed, SIGNATURE: SigningKey(self.secret_key).sign(signed_content(signed, body))}


@dataclass(frozen=True)
class Access:
    """name_servers: host:port of each; the first that answers is used. answer_s: longest wait for one answer.
    patience_s: how long a server that is away is tried again before the read fails. tls_ca: authorities (PEM) for the
    servers' certificates; "" for those that this machine trusts. bytes_per_s: most that one task pulls; 0: no limit."""

    name_servers: tuple[str, ...]
    credentials: Credentials | None = None
    answer_s: float = 15.0
    patience_s: float = 60.0
    tls: bool = False
    tls_ca: str = ""
    bytes_per_s: int = 0


def addresses(text: str) -> tuple[str, ...]:
    """Parse "a:9876;b" into ("a:9876", "b:9876"). Raises ValueError, whose text names the wrong one."""
    found = []
    for piece in text.replace(",", ";").split(";"):
        address = piece.strip()
        if address:
            found.append(_with_port(address))
    if not found:
        raise ValueError("brokers names no server; write host:port of a name server, several with ; between them")
    return tuple(dict.fromkeys(found))


def _with_port(address: str) -> str:
    if address.count(":") > 1 and not address.startswith("["):
        raise ValueError(f"brokers: {address!r} is no host:port; an IPv6 address is written [::1]:9876")
    host, colon, port = address.rpartition(":") if not address.endswith("]") else (address, "", "")
    if not colon:
        host, port = address, str(NAME_SERVER_PORT)
    if not host.strip("[]") or any(sign in host for sign in " /@?#"):
        raise ValueError(f"brokers: {address!r} is no host:port")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ValueError(f"brokers: {address!r} has no port between 1 and 65535")
    return f"{host}:{port}"
