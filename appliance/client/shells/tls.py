"""TLS between frames and a socket that does not wait, and the words for its errors. Imported by clients with TLS."""

from __future__ import annotations

import ssl
from contextlib import suppress

from .shell import TlsSettings

_READ_BYTES = 256 * 1024
#: Reasons of OpenSSL for bytes that are no TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF")
CLOSED_EARLY = "it closed the connection in the TLS handshake: does it speak TLS at this port?"


class TlsStream:
    """Guarded by the lock of its link: OpenSSL does not take two threads at once."""

    def __init__(self, settings: TlsSettings, host: str) -> None:
        self._received = ssl.MemoryBIO()
        self._output = ssl.MemoryBIO()
        self._tls = settings.context.wrap_bio(
            self._received, self._output, server_hostname=settings.server_name or host
        )
        #: Plain bytes that TLS does not take just now.
        self._plain = b""
        self.is_ready = False

    def begin(self) -> bytes:
        """Return the first bytes of the handshake. Raises ssl.SSLError."""
        self._shake()
        return self.take_output()

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.is_ready = True

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Take received bytes; return (the plain ones in them, bytes to send). Raises ssl.SSLError: there may be
        output."""
        self._received.write(data)
        if not self.is_ready:
            self._shake()
        plain = []
        if self.is_ready:
            try:
                while piece := self._tls.read(_READ_BYTES):
                    plain.append(piece)
            except ssl.SSLWantReadError:
                pass
            self._write(b"")
        return b"".join(plain), self.take_output()

    def encrypt(self, data: bytes) -> bytes:
        """Return plain bytes as they are sent."""
        with suppress(ssl.SSLError):  # the next read raises it, too
            self._write(data)
        return self.take_output()

    def _write(self, data: bytes) -> None:
        left = memoryview(self._plain + data if self._plain else data)
        try:
            while left:
                left = left[self._tls.write(left) :]
        except ssl.SSLWantReadError:
            pass  # it goes on with what the server sends next
        self._plain = bytes(left)

    def take_output(self) -> bytes:
        """Return the bytes to send, each only once."""
        return self._output.read()


def is_of_tls(error: Exception) -> bool:
    """True if an error of connecting comes from the handshake, and not from the connection before it."""
    return isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError | ValueError)


def words(error: Exception, shaking: bool) -> str:
    """Return the reason as a sentence's end, with advice. shaking: it happened in the handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted: {error.verify_message.rstrip('.')}. Tls(ca_file=...) says who is "
            "trusted, and server_name=... the name in the certificate"
        )
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if isinstance(error, ssl.SSLZeroReturnError):
        return "it closed the connection"
    if "CERTIFICATE_REQUIRED" in reason or reason.startswith("TLSV13_ALERT_MISSING"):
        return "it requires a certificate of this client: Tls(cert_file=..., key_file=...)"
    if "ALERT_UNKNOWN_CA" in reason or "ALERT_BAD_CERTIFICATE" in reason or "ALERT_CERTIFICATE" in reason:
        return f"it does not accept this client's certificate ({reason})"
    if shaking and any(sign in reason for sign in _NO_TLS):
        return "it does not speak TLS at this port"
    if shaking and isinstance(error, ConnectionError):
        return CLOSED_EARLY
    return f"TLS failed: {reason or error}"
