"""Addresses, credentials, TLS: how servers are found, and which error each mistake gives."""

from __future__ import annotations

import datetime
import ipaddress
import pickle
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from spark_reports.source.network.access import Access, Credentials, addresses
from spark_reports.source.network.errors import Unreachable
from spark_reports.source.options import OptionError, parse
from tests.spark_reports.network.reading import read, reader
from tests.spark_reports.network.servers import OneQueue, Scripted


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:9876", ("a:9876",)),
        ("a:9876;b:1", ("a:9876", "b:1")),
        (" a:9876 , b ;; a:9876 ", ("a:9876", "b:9876")),
        ("mq.example.org", ("mq.example.org:9876",)),
        ("[::1]:9876;[fe80::1%eth0]", ("[::1]:9876", "[fe80::1%eth0]:9876")),
        ("10.0.0.1:65535", ("10.0.0.1:65535",)),
    ],
)
def test_addresses(text, found):
    assert addresses(text) == found


@pytest.mark.parametrize(
    "text", ["", " ; ", "a:", "a:x", "a:0", "a:65536", ":9876", "::1", "http://a:9876", "a b:1", "[]:9876", "a:٣"]
)
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match="brokers"):
        addresses(text)


def test_an_address_that_is_none_is_told_before_anything_is_read():
    with pytest.raises(OptionError, match="The option brokers: 'a:x' has no port"):
        reader("a:x")


def test_the_signature_is_apaches():
    """The signed content is the values in the order of their names, and the body, as in the clients' AclClientRPCHook.
    The expected signature was made with Java's own Mac."""
    signed = Credentials("RocketMQ", "12345678").sign({"topic": "Orders", "queueId": "3", "a": "ü"}, b"body")
    assert signed["AccessKey"] == "RocketMQ"
    assert signed["Signature"] == "cV/ev11V+odJnKoIpq2ow8H8P98="
    assert list(signed) == ["topic", "queueId", "a", "AccessKey", "Signature"]


def test_the_secret_is_in_no_text():
    options = parse({"brokers": "127.0.0.1:1", "accessKey": "reader", "secretKey": "the-secret"})
    access = Access(("127.0.0.1:1",), Credentials("reader", "the-secret"))
    made = reader("127.0.0.1:1", accessKey="reader", secretKey="the-secret")
    for thing in (options, access, access.credentials, made):
        assert "the-secret" not in repr(thing) + str(thing)
    assert pickle.loads(pickle.dumps(access)) == access


def authority_and_certificate(place: Path) -> tuple[Path, Path]:
    """Make (an authority's certificate, a server's certificate for localhost and 127.0.0.1 with its key)."""
    now = datetime.datetime.now(datetime.UTC)

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    def begun(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    def pem(certificate: x509.Certificate) -> bytes:
        return certificate.public_bytes(serialization.Encoding.PEM)

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    identity = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        begun("authority", authority_key)
        .add_extension(x509.BasicConstraints(True, None), True)
        .add_extension(usage, True)
        .add_extension(identity, False)
        .sign(authority_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        begun("server", key).add_extension(names, False).add_extension(by, False).sign(authority_key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (place / "ca.pem").write_bytes(pem(authority))
    (place / "server.pem").write_bytes(pem(certificate) + secret)
    return place / "ca.pem", place / "server.pem"


class Encrypted(Scripted):
    """A server that speaks TLS only."""

    certificate: Path

    def _serve(self, sock):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        try:
            super()._serve(context.wrap_socket(sock, server_side=True))
        except OSError:
            sock.close()


def test_tls_with_a_certificate_of_an_authority(tmp_path, monkeypatch):
    authority, certificate = authority_and_certificate(tmp_path)
    monkeypatch.setattr(Encrypted, "certificate", certificate, raising=False)
    script = OneQueue()
    with Encrypted(script) as server:
        script.addresses = {"0": server.address}
        table = read(server.address, topic="Orders", useTls="true", tlsCaFile=authority)
        assert table["queue_offset"].to_pylist() == list(range(100))
        by_name = server.address.replace("127.0.0.1", "localhost")
        assert reader(by_name, topic="Orders", useTls="true", tlsCaFile=authority).partitions()
        with pytest.raises(Unreachable, match=f"{server.address} cannot be reached by TLS: .*certificate"):
            read(server.address, topic="Orders", useTls="true")
        with pytest.raises(Unreachable, match=f"{server.address} "):
            reader(server.address, topic="Orders").partitions()


def test_tls_to_a_server_without_it(monkeypatch):
    monkeypatch.setattr("spark_reports.source.network.connection.CONNECT_S", 0.5)
    script = OneQueue()
    with Scripted(script) as server:
        script.addresses = {"0": server.address}
        with pytest.raises(Unreachable, match=f"{server.address} cannot be reached by TLS"):
            read(server.address, topic="Orders", useTls="true")


def test_a_file_of_authorities_that_is_not_there(tmp_path):
    with pytest.raises(OptionError, match=r"The option tlsCaFile: .*nothing.pem cannot be read"):
        reader("a:1", useTls="true", tlsCaFile=tmp_path / "nothing.pem")
    (tmp_path / "text.pem").write_text("no certificate")
    with pytest.raises(OptionError, match=r"The option tlsCaFile: .*text.pem holds no certificate"):
        reader("a:1", useTls="true", tlsCaFile=tmp_path / "text.pem")
