"""Masters, slaves and members of a set that reach each other by TLS."""

import shutil
import socket
import ssl
from contextlib import closing

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from appliance.engine.errors import ConnectError
from appliance.engine.replication.places import MAX_SILENT
from tests.support.engine import RunningEngine, send_fields
from tests.support.ha import PlayedSlave
from tests.support.ports import reserve_port
from tests.support.set_of_brokers import SMALL, wait_same
from tests.support.tls import Authority, TlsPeer, client_context, is_closed, make_pair
from tests.support.waiting import wait_for


class Site:
    """A master and its slaves."""

    def __init__(self, directory) -> None:
        self.directory = directory
        self.files = make_pair(directory)
        self.ha_port = reserve_port()
        self.started: list[RunningEngine] = []

    def begin(self, name: str, mode: str, files, broker=None, **store) -> RunningEngine:
        options = {"broker_name": "broker-a", "tls_mode": mode}
        if mode != "disabled":
            options |= {"tls_cert_file": str(files[0]), "tls_key_file": str(files[1])}
        running = RunningEngine(self.directory / name, broker=options | (broker or {}), store=SMALL | store)
        self.started.append(running)
        return running

    def master(self, mode: str = "enforcing", files=None, broker=None, **store) -> RunningEngine:
        return self.begin("master", mode, files or self.files, broker, **{"ha_listen_port": self.ha_port} | store)

    def slave(self, master, mode: str = "enforcing", files=None, broker=None, **store) -> RunningEngine:
        namesrvs = (str(master.engine.namesrv_address),)
        broker = {"broker_id": 1, "namesrv_addrs": namesrvs, "slave_read_enable": True} | (broker or {})
        return self.begin("slave", mode, files or self.files, broker, **{"broker_role": "SLAVE"} | store)

    def peer(self, running: RunningEngine) -> TlsPeer:
        running.peers.append(TlsPeer(str(running.engine.broker_address)))
        return running.peers[-1]

    def send(self, running: RunningEngine, count: int, begin: int = 0) -> None:
        with closing(self.peer(running)) as peer:
            for n in range(begin, begin + count):
                assert peer.ask(310, send_fields("Orders", n % 4), b"%d " % n * 3000).code == 0


@pytest.fixture
def site(tmp_path, impatient):
    made = Site(tmp_path)
    yield made
    for one in reversed(made.started):
        if one.engine.loop.alive:
            one.stop()


def test_a_slave_copies_log_and_tables_by_tls(site):
    master = site.master()
    site.send(master, 200)
    slave = site.slave(master)
    wait_same(master, slave)
    site.send(master, 100, 200)
    wait_same(master, slave)
    wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the topic")
    (link,) = master.engine.broker.replication.slaves
    wait_for(lambda: master.engine.broker.replication.slaves[0].acknowledged == link.sent, "its report")
    # A slave that comes back queries the master for its last record, and has it sent again.
    site.started.remove(slave)
    slave.stop()
    site.send(master, 10, 300)
    again = site.slave(master)
    wait_same(master, again)
    assert again.engine.broker.follower.follower.agrees


def test_a_sync_master_waits_for_a_slave_by_tls(site):
    master = site.master(broker_role="SYNC_MASTER", slave_timeout_ms=60_000)
    slave = site.slave(master)
    site.send(master, 5)  # answered 0 only when the slave has them
    assert slave.engine.broker.store.log.written == master.engine.broker.store.log.written > 0


def test_a_master_that_takes_tls_only_turns_plain_slaves_away_and_says_so(site, caplog):
    master = site.master()
    site.send(master, 2)
    slave = PlayedSlave(site.ha_port)  # as Apache's
    slave.report(0)
    assert slave.is_closed()
    wait_for(lambda: master.engine.broker.replication.seen.strangers(), "it is noted")
    (stranger,) = master.engine.broker.replication.seen.strangers()
    assert stranger.host == "127.0.0.1"
    assert "speaks no TLS" in stranger.why
    wait_for(lambda: "turned away" in caplog.text, "it is logged")  # behind the note
    assert "Apache's slaves cannot follow" in caplog.text


def test_both_come_in_where_tls_is_permitted(site):
    master = site.master("permissive")
    site.send(master, 20)
    written = master.engine.broker.store.log.written
    plain = PlayedSlave(site.ha_port)
    plain.report(0)
    log = plain.copy_to(written)
    over_tls = PlayedSlave(site.ha_port)
    over_tls.sock = client_context().wrap_socket(over_tls.sock)
    over_tls.report(0)
    assert over_tls.copy_to(written) == log
    over_tls.report(written)
    master.put("Orders", b"and more")
    end = master.engine.broker.store.log.written
    assert over_tls.copy_to(end) == plain.copy_to(end)
    assert len(master.engine.broker.replication.slaves) == 2


def test_a_plain_slave_may_be_silent_and_slow_where_tls_is_permitted(site):
    """A peer that is silent for five seconds before its first report, as Apache's slaves are."""
    master = site.master("permissive")
    site.send(master, 30)
    slave = PlayedSlave(site.ha_port)
    slave.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        slave.receive(1)
    slave.sock.settimeout(60)
    for byte in bytes(8):  # the report comes in pieces
        slave.sock.sendall(bytes((byte,)))
    written = master.engine.broker.store.log.written
    name = site.directory / "master" / "store" / "commitlog" / f"{0:020d}"
    assert slave.copy_to(written) == name.read_bytes()[:written]


def test_a_slave_does_not_follow_a_master_with_another_certificate(site):
    master = site.master()
    site.send(master, 3)
    other = make_pair(site.directory, "other")
    slave = site.slave(master, files=other)
    follower = slave.engine.broker.follower.follower
    wait_for(lambda: "certificate verify failed" in follower.status.why_not, "it says why")
    assert slave.engine.broker.store.log.written == 0
    with pytest.raises(ConnectError, match="certificate verify failed"):
        follower.ask(str(master.engine.broker_address), 21, {})  # nor are requests sent to it


def read_log(sock: ssl.SSLSocket) -> bytes:
    sock.sendall(bytes(8))
    return sock.recv(1)


def test_certificates_of_one_authority_are_enough(site):
    authority = Authority(site.directory)
    strangers = Authority(site.directory, "strangers")
    one, two, bad = authority.signed("one"), authority.signed("two"), strangers.signed("bad")
    asks = {"tls_client_auth": "required", "tls_client_ca_file": str(authority.path)}
    master = site.master(files=one, broker=asks)
    context = client_context()
    context.load_cert_chain(*one)
    with closing(TlsPeer(str(master.engine.broker_address), context)) as peer:
        for n in range(20):
            assert peer.ask(310, send_fields("Orders", n % 4), b"x").code == 0
    slave = site.slave(master, files=two, broker=asks)
    wait_same(master, slave)
    # A slave without a certificate, or with another authority's, gets nothing.
    for pair in (None, bad):
        context = client_context()
        if pair is not None:
            context.load_cert_chain(*pair)
        with socket.create_connection(("127.0.0.1", site.ha_port), timeout=60) as sock, pytest.raises(ssl.SSLError):
            read_log(context.wrap_socket(sock))


def test_one_with_a_certificate_of_the_authority_is_not_followed_without_the_secret(site):
    """It may be a client, which has only got itself into the middle."""
    authority = Authority(site.directory)
    trusts = {"tls_client_ca_file": str(authority.path)}
    secret = site.directory / "secret"
    secret.write_text("0123456789abcdef" * 4)
    secret.chmod(0o600)
    one, two = authority.signed("one"), authority.signed("two")
    master = site.master(files=one, broker=trusts)
    site.send(master, 3)
    slave = site.slave(master, files=two, broker=trusts, ha_secret_file=str(secret))
    wait_for(lambda: "proves no secret" in slave.engine.broker.follower.follower.status.why_not, "it says why")
    assert slave.engine.broker.store.log.written == 0
    # With this broker's own certificate it has the key as well.
    site.started.remove(slave)
    slave.stop()
    same = site.slave(master, files=one, broker=trusts, ha_secret_file=str(secret))
    wait_same(master, same)


def test_the_certificate_for_another_purpose_is_no_masters(site):
    authority = Authority(site.directory)
    good, client = authority.signed("good"), authority.signed("ann", purpose=ExtendedKeyUsageOID.CLIENT_AUTH)
    trusts = {"tls_client_ca_file": str(authority.path)}
    master = site.master(files=client, broker=trusts)
    slave = site.slave(master, files=good, broker=trusts)
    follower = slave.engine.broker.follower.follower
    wait_for(lambda: "unsuitable certificate purpose" in follower.status.why_not, "it says why")


def test_half_open_handshakes_are_as_few_as_silent_connections(site):
    master = site.master()
    site.send(master, 3)
    sockets = [socket.create_connection(("127.0.0.1", site.ha_port), timeout=60) for _ in range(3 * MAX_SILENT)]
    for sock in sockets:
        sock.sendall(b"\x16\x03\x01\x02\x00")  # the head of a hello, and nothing else
    server = master.engine.broker.replication
    wait_for(lambda: len(server.slaves) == MAX_SILENT, "the bound")
    assert all(is_closed(sock) for sock in sockets[:-MAX_SILENT])
    slave = site.slave(master)  # comes in nevertheless
    wait_same(master, slave)
    for sock in sockets:
        sock.close()
    wait_for(lambda: len(server.slaves) == 1, "the others to go")


def test_garbage_after_the_first_byte_ends_the_connection(site):
    master = site.master("permissive")
    with socket.create_connection(("127.0.0.1", site.ha_port), timeout=60) as sock:
        sock.sendall(b"\x16" + b"garbage" * 20)
        assert is_closed(sock)  # perhaps after an alert
    wait_for(lambda: master.engine.broker.replication.seen.strangers(), "it is noted")
    master.put("Orders", b"goes on")


def test_a_pair_that_is_replaced_is_used_for_the_next_connection(site):
    master = site.master()
    site.send(master, 3)
    slave = site.slave(master)
    wait_same(master, slave)
    for path in make_pair(site.directory, "newer"):
        shutil.copy(path, site.directory / f"server{path.suffix}")
    for one in (master, slave):
        assert one.engine.certificate.look()
    master.engine.broker.replication._links[0].request_stop()
    site.send(master, 3, 3)
    wait_same(master, slave)
