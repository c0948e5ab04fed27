"""The certificate of this process: two PEM files, checked at the start, and loaded again when they change."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import ssl
import time
from pathlib import Path
from typing import Protocol

from ..errors import StartError
from ..named_tuple import NamedTuple
from ..regular_file import open_regular

logger = logging.getLogger(__name__)

#: Longest PEM file of a certificate or a key, and of authorities or their lists: OpenSSL reads a file to its end.
_MOST_BYTES, _MOST_AUTHORITIES_BYTES = 1 << 20, 64 << 20
#: Longest time for which sessions of a context are resumed where lists of revoked certificates count.
_SESSIONS_S = 60.0
#: X509_V_FLAGNO_CHECK_TIME of OpenSSL (x509_vfy.h), which Python has no name for.
_NO_CHECK_TIME = 0x200000
FIRST_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


_DAY_S = 86_400


def channel_of(der: bytes) -> bytes:
    """Return the digest of a certificate in DER form."""
    return hashlib.sha256(der).digest()


class Pair(NamedTuple):
    """A certificate with its key, which TLS can be served with.

    fingerprint: SHA-256 of the DER form, as "AB:CD:...". begin_s, end_s: when it is valid, as seconds since the epoch;
    None if that is not known, since `refusal` says why clients that check certificates refuse it at any time.
    """

    context: ssl.SSLContext
    der: bytes
    fingerprint: str
    begin_s: float | None
    end_s: float | None
    refusal: str

    @property
    def channel(self) -> bytes:
        """Digest of the certificate, which proofs of a secret on its connections cover."""
        return channel_of(self.der)

    def days_left_at(self, now_s: float) -> int | None:
        """Return the whole days until its end, negative after it; None if that is not known."""
        return None if self.end_s is None else int((self.end_s - now_s) // _DAY_S)

    def refusal_at(self, now_s: float) -> str:
        """Return why clients that check certificates refuse it now; "" if they need not."""
        if self.end_s is not None and self.end_s < now_s:
            return "certificate has expired"
        if self.begin_s is not None and self.begin_s > now_s:
            return "certificate is not yet valid"
        return self.refusal


_CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Certificate:
    """The context of new TLS connections. `pair` is replaced whole, by the one thread that calls `look`."""

    def __init__(
        self,
        certificate_file: str,
        key_file: str,
        client_auth: str = "none",
        client_ca_file: str = "",
        client_crl_file: str = "",
    ) -> None:
        """client_auth: "none", "optional" or "required": certificates of clients, signed by an authority in
        client_ca_file. client_crl_file: lists of those that the authorities have revoked, or empty. Raises StartError
        if a file cannot be loaded."""
        # Constant after construction.
        self._files = certificate_file, key_file
        self._clients = _CLIENT_AUTH[client_auth]
        self._client_ca_file, self._client_crl_file = client_ca_file, client_crl_file
        # Owned by the thread that calls `look`; any thread may read the last two.
        self._loaded_at = 0.0
        #: The content of the files of the pair in use, where lists of revoked certificates count; else empty.
        self._contents: tuple[bytes, ...] = ()
        self._seen = self._stamps()
        #: The reason for which the files, as they are now, are not used; None if they are.
        self.failure: str | None = None
        try:
            self.pair = self._take()
        except ValueError as error:
            raise StartError(f"TLS cannot be served: {error}.") from None

    @property
    def file(self) -> str:
        """The certificate's path."""
        return self._files[0]

    @property
    def context(self) -> ssl.SSLContext:
        return self.pair.context

    @property
    def fingerprint(self) -> str:
        return self.pair.fingerprint

    def look(self) -> bool:
        """Load the pair again if a file has changed since the last look; True if a new pair is in use.

        If the new pair does not load, the old one stays, and the log says why. Connections keep the pair that they
        began with.
        """
        stamps = self._stamps()
        if stamps == self._seen:
            self._end_sessions()
            return False
        self._seen = stamps
        try:
            self.pair = self._take()
        except ValueError as error:
            self.failure = str(error)
            logger.error("tls: the changed certificate is not used, the one before it stays: %s", error)
            self._end_sessions()
            return False
        self.failure = None
        return True

    def _end_sessions(self) -> None:
        """Make the context again, now and then, where lists of revoked certificates count: TLS 1.2 resumes the sessions
        of a context without a look at the list, which may have run out since they began. It is made of what was loaded,
        whatever the files are now."""
        if not self._contents or time.monotonic() - self._loaded_at < _SESSIONS_S:
            return
        try:
            self.pair = self._of_contents(self._contents)
        except (OSError, ValueError) as error:
            logger.error("tls: sessions of TLS 1.2 are still resumed without a look at tlsClientCrlFile: %s", error)

    def _load(self) -> Pair:
        """Return the pair of files, with what is checked of clients. Raises ValueError."""
        pair = self._read(*self._files, self._client_ca_file, self._client_crl_file)
        if self._client_crl_file and self._clients != ssl.CERT_NONE:
            try:
                contents = tuple(
                    Path(path).read_bytes() for path in (*self._files, self._client_ca_file, self._client_crl_file)
                )
                pair = self._of_contents(contents)
            except (OSError, ValueError) as error:
                raise ValueError(f"a file is changing just now ({error})") from None
            self._contents = contents
        return pair

    def _of_contents(self, contents: tuple[bytes, ...]) -> Pair:
        """Return the pair of what the files held. Raises ValueError, and OSError without memory for it."""
        paths = []
        try:
            for content in contents:  # OpenSSL loads files only
                paths.append(f"/proc/self/fd/{os.memfd_create('rocketbox-tls')}")
                Path(paths[-1]).write_bytes(content)
            return self._read(*paths)
        finally:
            for path in paths:
                os.close(int(path.rpartition("/")[2]))

    def _read(self, certificate_file: str, key_file: str, ca_file: str, crl_file: str) -> Pair:
        """Raises ValueError."""
        pair = read_pair(certificate_file, key_file)
        if self._clients != ssl.CERT_NONE:
            _check_clients(pair, self._clients, ca_file)
            if crl_file:
                _check_revoked(pair.context, crl_file)
        self._loaded_at = time.monotonic()
        return pair

    def _take(self) -> Pair:
        """Raises ValueError."""
        pair = self._load()
        if self._clients == ssl.CERT_REQUIRED or self._client_crl_file:
            self._check_own(pair.context)
        logger.info("tls: serving the certificate in %s, SHA-256 %s", self.file, pair.fingerprint)
        # It is served anyway: RocketMQ's clients check no certificate by default.
        if refusal := pair.refusal_at(time.time()):
            logger.warning("tls: clients that check certificates refuse this one: %s", refusal)
        elif pair.end_s is not None:
            logger.info("tls: it is valid until %s", time.strftime("%b %e %H:%M:%S %Y GMT", time.gmtime(pair.end_s)))
        return pair

    def _check_own(self, context: ssl.SSLContext) -> None:
        """Raise ValueError if this broker could not register at its own name server, which requires a certificate."""
        client = trusting(None)
        client.load_cert_chain(*self._files)
        try:
            _shake_hands(context, client, to_the_end=True)
        except ssl.SSLCertVerificationError as error:
            raise ValueError(
                f"{'tlsClientCrlFile' if self._client_crl_file else 'tlsClientAuth=required'} needs a certificate in "
                f"{self._files[0]} that clients may show, too, because the broker registers with it "
                f"({error.verify_message})"
            ) from None
        except ssl.SSLError:
            pass  # of the pair itself, see `_validity`

    def name_in(self, tls: ssl.SSLObject) -> str:
        """Return the name that the peer's certificate has: the one common name (CN) of its subject. Empty without a
        certificate, if it has no or several common names, and for the broker's own, which stands for no user. Raises
        SSLError for one that has expired since a session was begun with it."""
        if tls.getpeercert(True) == self.pair.der:
            return ""
        found = tls.getpeercert() or {}
        end = found.get("notAfter")
        # Without tickets TLS 1.2 still resumes by session id, for two hours, and the library does not look again.
        if tls.session_reused and isinstance(end, str) and ssl.cert_time_to_seconds(end) < time.time():
            raise ssl.SSLError("certificate has expired")
        subject: tuple[tuple[tuple[str, str], ...], ...] = found.get("subject", ())  # type: ignore[assignment]
        names = [value for part in subject for kind, value in part if kind == "commonName"]
        return names[0] if len(names) == 1 else ""

    def _stamps(self) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for path in (*self._files, self._client_ca_file, self._client_crl_file):
            try:
                stat = os.stat(path)
                found.append((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))
            except OSError as error:
                found.append((error.errno or -1,))
        return found


def read_pair(certificate_file: str, key_file: str) -> Pair:
    """Load a pair of files. Raises ValueError with the reason if TLS cannot be served with it."""
    context, der = _load(certificate_file, key_file)
    begin_s = end_s = None
    refusal = ""
    try:
        begin_s, end_s = _validity(context, der)
    except ssl.SSLCertVerificationError as error:
        refusal = error.verify_message
    except ssl.SSLError as error:  # the key is of a kind that TLS has given up
        raise ValueError(f"no client could shake hands with {certificate_file} ({error})") from None
    digest = hashlib.sha256(der).hexdigest().upper()
    fingerprint = ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))
    return Pair(context, der, fingerprint, begin_s, end_s, refusal)


class _NeedsPassword(Exception):
    """The key is encrypted."""


def _refuse_password() -> bytes:
    """Refuse an encrypted key. Otherwise OpenSSL would ask for the password at the terminal."""
    raise _NeedsPassword


def _load(certificate_file: str, key_file: str) -> tuple[ssl.SSLContext, bytes]:
    """Return the context and the certificate in DER. Raises ValueError with the reason."""
    text = _read("tlsCertFile", certificate_file)
    _read("tlsKeyFile", key_file)
    first = FIRST_CERTIFICATE.search(text)
    if first is None:
        raise ValueError(f"tlsCertFile={certificate_file} has no certificate in PEM form")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # In TLS 1.2 a peer could have handshake after handshake made on the thread that serves all connections.
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
    return context, der


def _check_clients(pair: Pair, mode: ssl.VerifyMode, file: str) -> None:
    """Have clients' certificates checked; this broker's own is good as well. Raises ValueError."""
    context = pair.context
    if FIRST_CERTIFICATE.search(_read("tlsClientCaFile", file, _MOST_AUTHORITIES_BYTES)) is None:
        raise ValueError(f"tlsClientCaFile={file} has no certificate in PEM form")
    try:
        context.load_verify_locations(file)
        context.load_verify_locations(cadata=pair.der)
    except (OSError, ValueError) as error:
        raise ValueError(f"tlsClientCaFile={file} cannot be used ({error})") from None
    context.verify_mode = mode
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an authority in the file may be signed by another one
    # A resumed session brings back a certificate without a check of its dates and its authority; see `name_in`.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


def _check_revoked(context: ssl.SSLContext, file: str) -> None:
    """Have certificates refused that are on their authority's list, and those of an authority whose list is not in the
    file or has run out. Raises ValueError."""
    if "-----BEGIN X509 CRL-----" not in _read("tlsClientCrlFile", file, _MOST_AUTHORITIES_BYTES):
        raise ValueError(f"tlsClientCrlFile={file} has no list of revoked certificates in PEM form")
    authorities = context.cert_store_stats()["x509"]
    # An authority whose signer is missing is trusted as if it were a root: the signer's list need not be here. Where
    # none is, each chain goes to its root, and certificates between that and clients' are looked up, too.
    known = context.get_ca_certs()
    names = [one["subject"] for one in known]
    are_whole = all(one["issuer"] in names for one in known)
    try:
        context.load_verify_locations(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"tlsClientCrlFile={file} cannot be used ({error})") from None
    if context.cert_store_stats()["x509"] != authorities:
        raise ValueError(
            f"tlsClientCrlFile={file} holds certificates, too, which would be taken for authorities: they belong in "
            "tlsClientCaFile"
        )
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN if are_whole else ssl.VERIFY_CRL_CHECK_LEAF
    if are_whole:
        context.verify_flags &= ~ssl.VERIFY_X509_PARTIAL_CHAIN


def _validity(context: ssl.SSLContext, der: bytes) -> tuple[float | None, float | None]:
    """Return from when and until when the certificate is valid, as it says itself, in seconds since the epoch. Raises
    SSLCertVerificationError if a client that trusts it refuses it at any time, because it is for other purposes;
    another SSLError if it cannot be used.

    The library shows a certificate only to a client that has checked it, so this is a handshake with ourselves.
    """
    client = _shake_hands(context, trusting(der))
    found = client.getpeercert() or {}
    times = (found.get("notBefore"), found.get("notAfter"))
    begin, end = (ssl.cert_time_to_seconds(said) if isinstance(said, str) else None for said in times)
    return begin, end


class Shown(Protocol):
    """The part of a pair that peers see."""

    @property
    def context(self) -> ssl.SSLContext: ...

    @property
    def der(self) -> bytes: ...


def own_authority(pair: Shown) -> str:
    """Return a certificate that signs itself as PEM, which clients can trust as it is; "" for one that an authority
    has signed."""
    found = _shake_hands(pair.context, trusting(pair.der)).getpeercert() or {}
    return ssl.DER_cert_to_PEM_cert(pair.der) if found and found["issuer"] == found["subject"] else ""


def trusting(certificate: str | bytes | None, at_any_time: bool = True) -> ssl.SSLContext:
    """Return a client's context that trusts this certificate only, for any name; None: any. at_any_time: also before
    and after the times that it names.

    certificate: as PEM, or DER. Raises SSLError if it is neither.
    """
    checking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    checking.check_hostname = False
    if certificate is None:
        checking.verify_mode = ssl.CERT_NONE
    else:
        checking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | (_NO_CHECK_TIME if at_any_time else 0)
        checking.load_verify_locations(cadata=certificate)
    return checking


def _shake_hands(serving: ssl.SSLContext, checking: ssl.SSLContext, to_the_end: bool = False) -> ssl.SSLObject:
    """Have two contexts shake hands in memory; return the client's side. to_the_end: the server looks at the client's
    certificate, too. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = checking.wrap_bio(to_client, to_server)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, *([server] if to_the_end else [])):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    return client


def _read(name: str, path: str, most: int = _MOST_BYTES) -> str:
    """Return a file's text. Raises ValueError if it cannot be read, or is longer."""
    try:
        with open_regular(path) as file:
            data = file.read(most + 1)
    except OSError as error:
        raise ValueError(f"{name}={path} cannot be read: {error.strerror}") from None
    if len(data) > most:
        raise ValueError(f"{name}={path} is longer than {most >> 20} MiB")
    return data.decode("ascii", "replace")
