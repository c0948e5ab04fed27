"""Certificates for tests, and peers that speak TLS."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.peer import Peer

#: More than the kernel buffers for a peer that it gives little, on both sides together.
LARGE = 9 << 20


def make_pair(
    directory: Path,
    name: str = "server",
    password: bytes | None = None,
    days: int = 36_500,
    curve: ec.EllipticCurve | None = None,
    also: Sequence[str] = (),
) -> tuple[Path, Path]:
    """Write a self-signed certificate, valid for `days` from 2020 on, and its key; return their paths. also: names and
    addresses of the server, as those who check them want."""
    key = ec.generate_private_key(curve or ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begin = datetime.datetime(2020, 1, 1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days))
    )
    if also:
        found: list[x509.GeneralName] = []
        for one in also:
            is_number = one.replace(".", "").isdigit()
            found.append(x509.IPAddress(ipaddress.ip_address(one)) if is_number else x509.DNSName(one))
        builder = builder.add_extension(x509.SubjectAlternativeName(found), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    kept = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    paths = directory / f"{name}.pem", directory / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, kept))
    return paths


class Authority:
    """Signs certificates of clients. path: its own certificate."""

    def __init__(self, directory: Path, name: str = "authority", signer: Authority | None = None) -> None:
        """signer: signs it; None: it is a root."""
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        may_sign = x509.BasicConstraints(ca=True, path_length=None)
        own = (signer or self)._built(self._name, self._key, 36_500, may_sign)
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def _built(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        begin = datetime.datetime(2020, 1, 1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + datetime.timedelta(days))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def signed(
        self, *names: str, days: int = 36_500, purpose: x509.ObjectIdentifier | None = None
    ) -> tuple[Path, Path]:
        """Sign a client's certificate with these common names; return the paths of it and of its key (PKCS#8)."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
        uses = () if purpose is None else (x509.ExtendedKeyUsage([purpose]),)
        made = self._built(subject, key, days, *uses)
        stem = f"client-{made.serial_number}"
        paths = self._directory / f"{stem}.pem", self._directory / f"{stem}.key"
        paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8
        paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        return paths

    def revoked(self, *certificates: Path, days: int = 36_500) -> bytes:
        """Return a list, valid for `days` from 2020 on, of these certificates that are revoked."""
        begin = datetime.datetime(2020, 1, 1)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name).last_update(begin)
        builder = builder.next_update(begin + datetime.timedelta(days))
        for path in certificates:
            number = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
            one = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(begin)
            builder = builder.add_revoked_certificate(one.build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def context(self, *names: str, version: ssl.TLSVersion | None = None, **options: Any) -> ssl.SSLContext:
        """A client's context with a new certificate; options: as `signed`."""
        context = client_context(version)
        context.load_cert_chain(*self.signed(*names, **options))
        return context


def client_context(version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """A context that trusts every server, as RocketMQ's clients do. version: the only one; None: any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


class TlsPeer(Peer):
    """A `Peer` over TLS. context: default one of `client_context`."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None, **options: Any) -> None:
        super().__init__(address)
        try:
            self.sock: ssl.SSLSocket = (context or client_context()).wrap_socket(self.sock, **options)
        except BaseException:
            self.sock.close()
            raise


def raw(address: str) -> socket.socket:
    """A connection that says nothing."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def is_closed(sock: socket.socket) -> bool:
    """True once the server has closed the connection; what it sends before does not matter."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass
    return True
