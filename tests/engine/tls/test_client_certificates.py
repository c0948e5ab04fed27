"""Certificates of clients: which are let in, and the users that they stand for."""

from __future__ import annotations

import contextlib
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from appliance.engine.access.book import Book
from appliance.engine.access.policies import checked_entry
from appliance.engine.config import BrokerConfig, EngineConfig, Secret
from appliance.engine.errors import StartError
from appliance.engine.protocol.codes import RequestCode as Code
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, signed_content
from appliance.engine.tls import certificate as certificate_module
from appliance.engine.tls.certificate import Certificate, _shake_hands
from appliance.engine.tls.door import Door
from tests.support.engine import Peer, RunningEngine, send_fields
from tests.support.tls import Authority, TlsPeer, client_context, make_pair
from tests.support.waiting import wait_for

ROOT, ANN = ("root", "the first one's secret"), ("ann", "ann's own secret")
FIRST = Secret(json.dumps({"username": ROOT[0], "password": ROOT[1]}))
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Site:
    """A broker that enforces access control, with TLS and clients' certificates."""

    def __init__(self, directory: Path, client_auth: str) -> None:
        self.authority = Authority(directory)
        certificate, key = make_pair(directory)
        self.ca_file = directory / "clients.pem"
        self.ca_file.write_bytes(self.authority.path.read_bytes())
        broker = {
            "access_control": "enforce", "init_authentication_user": FIRST, "tls_mode": "permissive",
            "tls_cert_file": str(certificate), "tls_key_file": str(key), "tls_client_auth": client_auth,
            "tls_client_ca_file": str(self.ca_file),
        }  # fmt: skip
        self.running = RunningEngine(directory / "data", broker=broker)
        self.address = str(self.running.engine.broker_address)
        for name in ("ann", "bob"):
            self.book.create(name, f"{name}'s own secret")
        self.book.set_entries("ann", (checked_entry("Topic:Orders", ["Pub"], [], "Allow"),), ())

    @property
    def book(self) -> Book:
        assert self.running.engine._access is not None
        return self.running.engine._access.book

    def peer(self, context: ssl.SSLContext | None = None) -> Peer:
        self.running.peers.append(TlsPeer(self.address, context or client_context()))
        return self.running.peers[-1]

    def of(self, *names: str, **options: object) -> Peer:
        return self.peer(self.authority.context(*names, **options))  # type: ignore[arg-type]

    def is_refused(self, context: ssl.SSLContext) -> bool:
        """True if the handshake fails. In TLS 1.3 a client learns that after its own end of it."""
        try:
            self.peer(context).ask(Code.GET_MAX_OFFSET, {"topic": "Orders", "queueId": 0})
        except (ssl.SSLError, ConnectionError):
            return True
        return False


@pytest.fixture
def site(request, tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, getattr(request, "param", "optional"))
    yield made
    made.running.stop()


def send(peer: Peer, topic: str, user: tuple[str, str] | None = None) -> RemotingCommand:
    fields = {name: str(value) for name, value in send_fields(topic).items()}
    if user is not None:
        fields[ACCESS_KEY] = user[0]
        fields[SIGNATURE] = SigningKey(user[1]).sign(signed_content(fields, b"x"))
    return peer.ask(Code.SEND_MESSAGE_V2, fields, b"x")


def test_a_certificate_stands_for_the_user_that_it_names(site):
    for version in VERSIONS:
        ann = site.of("ann", version=version)
        assert send(ann, "Orders").code == 0
        refused = send(ann, "Others")
        assert (refused.code, "User:ann has no permission" in str(refused.remark)) == (16, True)
        assert send(site.of("bob", version=version), "Orders").code == 16
    assert site.of("root").ask(Code.AUTH_LIST_USER).code == 0
    for peer in (site.peer(), site.running.peer(), site.of("nobody"), site.of("ann", "root"), site.of()):
        assert send(peer, "Orders").code == 16
        assert peer.ask(Code.AUTH_LIST_USER).code == 16


def test_a_signature_counts_before_the_certificate(site):
    bob = site.of("bob")
    assert send(bob, "Orders").code == 16
    assert send(bob, "Orders", ANN).code == 0
    assert send(bob, "Orders").code == 16
    # And a wrong one is not made good by the certificate.
    assert send(site.of("ann"), "Orders", (ANN[0], "another secret")).code == 16
    assert send(site.of("ann"), "Others", ROOT).code == 0


def test_a_disabled_users_certificate_is_refused_at_once(site):
    ann, idle = site.of("ann"), site.of("ann")
    assert send(ann, "Orders").code == 0
    site.book.update("ann", is_enabled=False)
    assert ann.receive_all() == []
    assert send(idle, "Orders").code == 16
    assert send(site.of("ann"), "Orders").code == 16
    [row] = [row for row in site.running.window.users.refusals().rows if row.user == "ann"]
    assert (row.reason, row.count) == ("not_proved", 2)


def test_the_audit_names_the_user(site):
    topic = {"topic": "Made", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
             "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
    assert site.of("root").ask(Code.UPDATE_AND_CREATE_TOPIC, topic).code == 0
    audit = site.running.engine.wire_audit

    def act():
        return next((act for act in audit.after("", 0)[1] if act.target == "Made"), None)

    assert wait_for(act, "the entry").after["byUser"] == "root"


@pytest.mark.parametrize("site", ["optional", "required"], indirect=True)
@pytest.mark.parametrize("version", VERSIONS)
def test_certificates_of_others_are_refused_in_the_handshake(site, version, tmp_path):
    assert send(site.of("ann", version=version), "Orders").code == 0
    stranger = Authority(tmp_path, "stranger")
    assert site.is_refused(stranger.context("ann", version=version))
    assert site.is_refused(site.authority.context("ann", version=version, days=1))  # it has expired
    server = site.authority.context("ann", version=version, purpose=ExtendedKeyUsageOID.SERVER_AUTH)
    assert site.is_refused(server)
    own = client_context(version)
    own.load_cert_chain(*make_pair(tmp_path, "ann"))
    assert site.is_refused(own)
    without = site.is_refused(client_context(version))
    assert without == (site.running.engine.config.broker.tls_client_auth == "required")


def shake_hands(serving: ssl.SSLContext, asking: ssl.SSLContext, session: ssl.SSLSession | None = None):
    """Return both ends of a connection, (client's, server's), as if one message came after the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, session=session)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server) * 3:
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return client, server


def test_a_resumed_session_does_not_outlive_its_certificate(tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    served = Certificate(*map(str, make_pair(tmp_path)), "optional", str(authority.path))
    asking = authority.context("ann", version=ssl.TLSVersion.TLSv1_2)
    client, server = shake_hands(served.context, asking)
    assert (server.session_reused, served.name_in(server)) == (False, "ann")
    _, again = shake_hands(served.context, asking, client.session)
    assert (again.session_reused, served.name_in(again)) == (True, "ann")
    later = time.time() + 200 * 365 * 86_400
    monkeypatch.setattr(certificate_module.time, "time", lambda: later)
    with pytest.raises(ssl.SSLError, match="has expired"):
        served.name_in(again)


@pytest.mark.parametrize("file", ["as it was", "torn", "gone"])
def test_sessions_end_where_a_list_of_the_revoked_may_run_out(tmp_path, monkeypatch, file):
    """Also while the list that took its place cannot be loaded."""
    authority = Authority(tmp_path)
    crl = tmp_path / "revoked.pem"
    crl.write_bytes(authority.revoked())
    served = Certificate(*map(str, authority.signed("broker")), "optional", str(authority.path), str(crl))
    asking = authority.context("ann", version=ssl.TLSVersion.TLSv1_2)
    ends = [shake_hands(served.context, asking)]
    session = ends[0][0].session
    assert not served.look()
    ends.append(shake_hands(served.context, asking, session))
    assert ends[-1][1].session_reused
    if file == "torn":
        crl.write_bytes(authority.revoked()[:-40])
    elif file == "gone":
        crl.unlink()
    assert not served.look()
    ends.append(shake_hands(served.context, asking, session))
    assert ends[-1][1].session_reused
    monkeypatch.setattr(certificate_module, "_SESSIONS_S", 0.0)
    assert not served.look()
    assert (served.failure is None) == (file == "as it was")
    ends.append(shake_hands(served.context, asking, session))
    assert (ends[-1][1].session_reused, served.name_in(ends[-1][1])) == (False, "ann")


@pytest.mark.parametrize("given", [["root"], ["root", "between"], ["between", "root"]])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_of_a_revoked_authority_below_the_root_is_refused(tmp_path, version, given):
    root = Authority(tmp_path, "root")
    between = Authority(tmp_path, "between", signer=root)
    crl = tmp_path / "revoked.pem"
    crl.write_bytes(root.revoked() + between.revoked())
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(b"".join((tmp_path / f"{name}.pem").read_bytes() for name in given))
    served = Certificate(*map(str, root.signed("broker")), "required", str(authorities), str(crl))
    chain, key = between.signed("ann")
    chain.write_bytes(chain.read_bytes() + between.path.read_bytes())
    asking = client_context(version)
    asking.load_cert_chain(chain, key)
    assert served.name_in(shake_hands(served.context, asking)[1]) == "ann"
    crl.write_bytes(root.revoked(between.path) + between.revoked())
    assert served.look()
    with pytest.raises(ssl.SSLError, match="revoked"):
        shake_hands(served.context, asking)


def test_an_authority_below_a_root_is_trusted_without_the_roots_list(tmp_path):
    between = Authority(tmp_path, "between", signer=Authority(tmp_path, "root"))
    crl = tmp_path / "revoked.pem"
    crl.write_bytes(between.revoked())
    served = Certificate(*map(str, between.signed("broker")), "required", str(between.path), str(crl))
    assert served.name_in(shake_hands(served.context, between.context("ann"))[1]) == "ann"


def test_other_authorities_are_taken_over_without_a_restart(site, tmp_path):
    other = Authority(tmp_path, "other")
    door = site.running.engine._door
    before = site.of("ann")
    site.ca_file.write_text("this is no certificate")
    assert not door.certificate.look()  # the ones before stay
    assert send(site.of("ann"), "Orders").code == 0
    site.ca_file.write_bytes(other.path.read_bytes())
    assert door.certificate.look()
    assert send(site.peer(other.context("ann")), "Orders").code == 0
    assert site.is_refused(site.authority.context("ann"))
    assert send(before, "Orders").code == 0  # it keeps what it began with


def test_the_brokers_own_certificate_is_let_in_and_stands_for_nobody(tmp_path):
    authority = Authority(tmp_path)
    certificate, key = make_pair(tmp_path, "root")  # the name of a Super user
    broker = {
        "access_control": "enforce", "init_authentication_user": FIRST, "tls_mode": "enforcing",
        "tls_cert_file": str(certificate), "tls_key_file": str(key), "tls_client_auth": "required",
        "tls_client_ca_file": str(authority.path),
    }  # fmt: skip
    running = RunningEngine(tmp_path / "data", broker=broker)
    try:
        # It registers with it, at its own name server.
        status = running.engine.broker.registration.status
        assert status[str(running.engine.namesrv_address)]
        assert running.window.check_address("127.0.0.1").good
        own = client_context()
        own.load_cert_chain(certificate, key)
        peer = TlsPeer(str(running.engine.broker_address), own)
        running.peers.append(peer)
        assert peer.ask(Code.AUTH_LIST_USER).code == 16
    finally:
        running.stop()


def test_a_pair_that_only_servers_may_show_does_not_go_with_required(tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.signed("server", purpose=ExtendedKeyUsageOID.SERVER_AUTH)
    files = str(certificate), str(key)
    Certificate(*files, "optional", str(authority.path))
    with pytest.raises(StartError, match="the broker registers with it"):
        Certificate(*files, "required", str(authority.path))


def test_settings_that_check_nothing_are_refused(tmp_path, rigs):
    with pytest.raises(StartError, match="tlsClientAuth=required needs TLS"):
        EngineConfig(data_dir=tmp_path, broker=BrokerConfig(tls_client_auth="required")).check()
    rig = rigs()
    certificate, key = rig.files
    bad = tmp_path / "bad.pem"
    bad.write_text("-----BEGIN CERTIFICATE-----\nbad\n-----END CERTIFICATE-----\n")
    for file, told in (("", "needs tlsClientCaFile"), (str(tmp_path / "none"), "cannot be read"),
                       (str(key), "has no certificate"), (str(bad), "cannot be used")):  # fmt: skip
        options = BrokerConfig(
            tls_mode="permissive", tls_cert_file=str(certificate), tls_key_file=str(key),
            tls_client_auth="optional", tls_client_ca_file=file,
        )  # fmt: skip
        with pytest.raises(StartError, match=told):
            Door(options, rig.server, rig.loop.clock)


def test_a_revoked_certificate_is_refused_from_the_next_look_on(tmp_path):
    authority = Authority(tmp_path)
    own, revoked, good = authority.signed("broker"), authority.signed("ann"), authority.signed("ann")
    crl = tmp_path / "revoked.pem"
    crl.write_bytes(authority.revoked())

    def shakes(client: tuple[Path, Path]) -> bool:
        context = client_context()
        context.load_cert_chain(*client)
        try:
            _shake_hands(certificate.context, context, to_the_end=True)
        except ssl.SSLError:
            return False
        return True

    certificate = Certificate(*map(str, own), "optional", str(authority.path), str(crl))
    assert (shakes(good), shakes(revoked)) == (True, True)
    crl.write_bytes(authority.revoked(revoked[0]))
    assert certificate.look()
    assert (shakes(good), shakes(revoked)) == (True, False)
    # A list that has run out refuses all, rather than letting in those who were revoked since: the one before it stays.
    crl.write_bytes(authority.revoked(days=1))
    assert not certificate.look()
    assert "expired" in str(certificate.failure)
    assert (shakes(good), shakes(revoked)) == (True, False)


def test_a_list_of_revoked_certificates_that_cannot_be_used_refuses_the_start(tmp_path):
    authority = Authority(tmp_path)
    own = tuple(map(str, authority.signed("broker")))
    crl = tmp_path / "revoked.pem"
    for text, why in ((b"", "has no list"), (authority.path.read_bytes(), "has no list")):
        crl.write_bytes(text)
        with pytest.raises(StartError, match=why):
            Certificate(*own, "optional", str(authority.path), str(crl))
    # A certificate in it would be taken for an authority that may sign those of clients.
    stranger = Authority(tmp_path, "stranger")
    crl.write_bytes(authority.revoked() + stranger.revoked() + stranger.path.read_bytes())
    with pytest.raises(StartError, match="holds certificates, too"):
        Certificate(*own, "optional", str(authority.path), str(crl))
    crl.write_bytes(authority.revoked())
    other = tuple(map(str, make_pair(tmp_path, "self-signed")))
    with pytest.raises(StartError, match=r"tlsClientCrlFile needs a certificate in .* that clients may show, too"):
        Certificate(*other, "optional", str(authority.path), str(crl))
