"""The certificate of this process: two PEM files, checked at the start, and loaded again when they change."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import ssl

from ..errors import StartError

logger = logging.getLogger(__name__)

#: Longest PEM file that is read for the fingerprint.
_MOST_BYTES = 1 << 20
_FIRST_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class Certificate:
    """The context of new TLS connections. `context` is replaced whole, by the one thread that calls `look`."""

    def __init__(self, certificate_file: str, key_file: str) -> None:
        """Raises StartError if the pair cannot be loaded."""
        # Constant after construction.
        self._files = certificate_file, key_file
        # Owned by the thread that calls `look`.
        self._seen = self._stamps()
        try:
            self.context, self.fingerprint = _load(certificate_file, key_file)
        except ValueError as error:
            raise StartError(f"TLS cannot be served: {error}.") from None
        logger.info("tls: serving the certificate in %s, SHA-256 %s", certificate_file, self.fingerprint)

    def look(self) -> bool:
        """Load the pair again if a file has changed since the last look; True if a new pair is in use.

        If the new pair does not load, the old one stays, and the log says why. Connections keep the pair that they
        began with.
        """
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        self._seen = stamps
        try:
            self.context, self.fingerprint = _load(*self._files)
        except ValueError as error:
            logger.error("tls: the changed certificate is not used, the one before it stays: %s", error)
            return False
        logger.info("tls: serving the changed certificate in %s, SHA-256 %s", self._files[0], self.fingerprint)
        return True

    def _stamps(self) -> list[tuple[int, ...]]:
        found = []
        for path in self._files:
            try:
                stat = os.stat(path)
                found.append((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))
            except OSError as error:
                found.append((error.errno or -1,))
        return found


class _NeedsPassword(Exception):
    """The key is encrypted."""


def _refuse_password() -> bytes:
    """Refuse an encrypted key. Otherwise OpenSSL would ask for the password at the terminal."""
    raise _NeedsPassword


def _load(certificate_file: str, key_file: str) -> tuple[ssl.SSLContext, str]:
    """Return the context and the certificate's fingerprint. Raises ValueError with the reason."""
    text = _read("tlsCertFile", certificate_file)
    _read("tlsKeyFile", key_file)
    first = _FIRST_CERTIFICATE.search(text)
    if first is None:
        raise ValueError(f"tlsCertFile={certificate_file} has no certificate in PEM form")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # In TLS 1.2 a peer could have handshake after handshake made on the thread that serves everybody's connections.
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(certificate_file, key_file, _refuse_password)
        der = ssl.PEM_cert_to_DER_cert(first.group())
    except _NeedsPassword:
        raise ValueError(f"the key in tlsKeyFile={key_file} needs a password; store it without one") from None
    except (OSError, ValueError) as error:
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"the key in tlsKeyFile={key_file} does not belong to {certificate_file}") from None
        raise ValueError(f"{certificate_file} and {key_file} are no pair in PEM form ({error})") from None
    digest = hashlib.sha256(der).hexdigest().upper()
    return context, ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def _read(name: str, path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise ValueError(f"{name}={path} cannot be read: {error.strerror}") from None
