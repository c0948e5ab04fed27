"""The receivers of notices, with their secrets."""

from __future__ import annotations

from ...engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail server, how to connect to it, and the mail's addresses. security: "none", "starttls" or "tls"."""

    host: str
    port: int
    security: str
    sender: str
    recipients: tuple[str, ...]
    user: str = ""
    password: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """A channel's kind and the data to send to it; `mail` only for the kind "mail"."""

    kind: str
    url: str = ""
    secret: str = ""
    mail: Mail | None = None
