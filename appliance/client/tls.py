"""`Tls`: how connections to name servers and brokers are encrypted."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .errors import InvalidOption

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class Tls:
    """ca_file: certificates of the authorities that are trusted, PEM; None: those of the system. cert_file, key_file:
    this client's own certificate with its chain, and its key (None: in the same file), for servers that require one.
    key_password: of an encrypted key. server_name: the name in the servers' certificates; None: the host of each
    address. context: of the module ssl, in place of all but server_name.

    Name servers tell the addresses of brokers, mostly as numbers; a certificate then has these, or server_name says
    what it has.
    """

    ca_file: str | os.PathLike[str] | None = None
    cert_file: str | os.PathLike[str] | None = None
    key_file: str | os.PathLike[str] | None = None
    key_password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    context: ssl.SSLContext | None = None

    def make_context(self) -> ssl.SSLContext:
        """Return the context for all connections. Raises InvalidOption if a file cannot be used."""
        import ssl

        if self.context is not None:
            if self.ca_file or self.cert_file or self.key_file or self.key_password:
                raise InvalidOption("Tls has a context, or files in its place, not both.")
            return self.context
        if self.cert_file is None and (self.key_file or self.key_password):
            raise InvalidOption("Tls has a key_file or key_password, but no cert_file.")
        try:
            made = ssl.create_default_context(cafile=None if self.ca_file is None else os.fspath(self.ca_file))
        except (OSError, ssl.SSLError) as error:
            raise InvalidOption(f"The ca_file {os.fspath(self.ca_file or '')!r} {_why(error)}.") from None
        if self.cert_file is not None:
            try:
                # Never asks at the terminal: an encrypted key without its password is an error.
                made.load_cert_chain(self.cert_file, self.key_file, self.key_password or "")
            except (OSError, ssl.SSLError) as error:
                files = " and ".join(repr(os.fspath(one)) for one in (self.cert_file, self.key_file) if one)
                raise InvalidOption(f"The client certificate in {files} {_why(error)}.") from None
        return made


def _why(error: OSError) -> str:
    """Return the reason as the end of a sentence. SSLError is an OSError whose text is for programmers."""
    import ssl

    if isinstance(error, ssl.SSLError):
        return f"cannot be used: {error.reason or 'is it PEM, and the key its own?'}"
    return f"cannot be read: {error.strerror or error}"
