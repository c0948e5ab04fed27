"""Makes a key and a self-signed certificate, and shows certificates. Needs `cryptography`, which the console brings."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import StartError
from ..file_sync import replace_file
from ..named_tuple import NamedTuple

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, GeneralName

#: Clocks of clients may be slow by this time.
_SLOW = datetime.timedelta(hours=1)
DAY_S = 86_400


class Shown(NamedTuple):
    """A certificate in words. names: host names and addresses that it is for. days_left: whole days until its end,
    negative after it. fingerprint: SHA-256 of the DER form, as "AB:CD:..."."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    begins: str
    ends: str
    days_left: int
    fingerprint: str


def make_pair(certificate: Path, key: Path, names: Sequence[str], days: int) -> None:
    """Write a new key (0600) and its self-signed certificate as PEM, each whole or not at all.

    names: host names and IP addresses, the first is the subject. Raises StartError without the library, and if a file
    cannot be written.
    """
    _need_library()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    private = ec.generate_private_key(ec.SECP256R1())
    # A common name has at most 64 characters (X.520); clients look at the alternative names alone.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(private.public_key())
    use = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLOW)
        .not_valid_after(now + datetime.timedelta(days))
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(use, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(private, hashes.SHA256())
    )
    secret = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        replace_file(key, secret)
        replace_file(
            certificate, made.public_bytes(serialization.Encoding.PEM), prepare=lambda fd: os.fchmod(fd, 0o644)
        )
    except OSError as error:
        raise StartError(f"{certificate} and {key} cannot be written: {error.strerror}.") from None


def show(pem: Path) -> Shown:
    """Return the first certificate of a PEM file. Raises StartError if there is none, and without the library."""
    _need_library()
    from cryptography import x509

    try:
        with open(pem, "rb") as file:
            found = x509.load_pem_x509_certificate(file.read(1 << 20))
    except OSError as error:
        raise StartError(f"{pem} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise StartError(f"{pem} has no certificate in PEM form.") from None
    return _shown(found)


def _shown(found: Certificate) -> Shown:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):  # a certificate that breaks the rules is shown, too
        names = None
    left = found.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return Shown(
        found.subject.rfc4514_string(),
        found.issuer.rfc4514_string(),
        () if names is None else tuple(str(name.value) for name in names),
        found.not_valid_before_utc.strftime("%Y-%m-%d"),
        found.not_valid_after_utc.strftime("%Y-%m-%d"),
        int(left.total_seconds() // DAY_S),
        found.fingerprint(hashes.SHA256()).hex(":").upper(),
    )


def _general_name(name: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _need_library() -> None:
    from importlib.util import find_spec

    if find_spec("cryptography") is None:
        raise StartError(
            "Certificates need the package cryptography, which rocketbox[console] brings; openssl makes them, too."
        )
