"""The trust of commands in the console on their machine: the file that is served, and nothing else."""

from __future__ import annotations

import ssl

from .engine.errors import StartError
from .engine.regular_file import open_regular
from .engine.tls import certificate


def trusting(certificate_file: str) -> ssl.SSLContext:
    """Return a context for connections to a server that serves this file. Raises StartError if it cannot be read.

    The first certificate of the file is trusted, none of those that signed it, and none of the system's. The name is
    not compared, since commands connect to 127.0.0.1 and the certificate is for clients: whoever has its key is the
    server. Nor is its end, or an expired certificate would have containers restart a broker that serves.
    """
    try:
        with open_regular(certificate_file) as file:
            first = certificate.FIRST_CERTIFICATE.search(file.read(1 << 20).decode("ascii", "replace"))
        if first is None:
            raise StartError(f"{certificate_file} has no certificate in PEM form.")
        return certificate.trusting(first.group())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise StartError(f"The certificate in {certificate_file} cannot be used: {why}.") from None
