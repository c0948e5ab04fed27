"""The secret of haSecretFile on the port for slaves: who has it gets the log, and others only where they are named."""

import logging
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from appliance.engine.clock import SYSTEM
from appliance.engine.protocol.ha_preamble import Challenge, Opening, Proof, Prove, Reason, Refusal, pack
from appliance.engine.protocol.ha_stream import pack_header
from appliance.engine.protocol.member_proof import LOG_BROKER, LOG_MEMBER, MEMBER, proof
from appliance.engine.replication import slave_link
from appliance.engine.replication.places import MAX_SILENT
from appliance.engine.replication.proving import Challenger, ProofFailed, prove
from appliance.engine.tls import between_brokers
from tests.support.engine import RunningEngine, send_fields
from tests.support.ha import PlayedSlave
from tests.support.members_of_set import Member
from tests.support.ports import reserve_port
from tests.support.set_of_brokers import SMALL, start_slave, wait_same
from tests.support.tls import TlsPeer, is_closed, make_pair
from tests.support.waiting import wait_for

SECRET, OTHER = "0123456789abcdef" * 4, "another secret, of 32 characters."


def secret_file(directory: Path, secret: str) -> str:
    file = directory / f"secret-{secret[:2]}"
    file.write_text(secret)
    file.chmod(0o600)
    return str(file)


class Site:
    """A master with a secret; `slave` begins one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = secret_file(directory, SECRET)
        self.port = reserve_port()
        self.started: list[RunningEngine] = []

    def begin_master(self, secret: str = SECRET, broker: dict | None = None, **store) -> RunningEngine:
        if secret:
            store["ha_secret_file"] = secret_file(self.directory, secret)
        options = {"broker_name": "broker-a"} | (broker or {})
        store = SMALL | {"ha_listen_port": self.port} | store
        self.started.append(RunningEngine(self.directory / "master", broker=options, store=store))
        return self.started[-1]

    def begin_slave(self, master: RunningEngine, secret: str = SECRET, **store) -> RunningEngine:
        if secret:
            store["ha_secret_file"] = secret_file(self.directory, secret)
        self.started.append(start_slave(self.directory / "slave", master.engine.namesrv_address, **store))
        return self.started[-1]


@pytest.fixture
def site(tmp_path, impatient):
    made = Site(tmp_path)
    yield made
    for one in reversed(made.started):
        one.stop()


def strangers(master: RunningEngine) -> list[str]:
    return [one.why for one in master.engine.broker.replication.seen.strangers()]


def why_not(slave: RunningEngine) -> str:
    return slave.engine.broker.follower.follower.status.why_not


def ask(slave: PlayedSlave, said) -> Challenge | Proof | Refusal:
    slave.sock.sendall(pack(said))
    opening = Opening()
    answer = None
    while answer is None:
        answer = opening.feed(slave.receive(8))
    return answer


def test_a_slave_with_the_secret_follows_and_needs_no_address(site, caplog):
    master = site.begin_master()
    master.put("Orders", *[b"x"] * 20)
    slave = site.begin_slave(master)
    wait_same(master, slave)
    assert "has not proved" not in caplog.text
    assert "proves no secret" not in caplog.text


def test_no_one_gets_the_log_by_reaching_the_port(site):
    master = site.begin_master()
    master.put("Orders", b"x")
    for first in (bytes(8), b"\x00" * 16, b"GET / HTTP/1.1\r\n\r\n"):
        slave = PlayedSlave(site.port)
        slave.sock.sendall(first)
        assert slave.is_closed()
    wait_for(lambda: strangers(master), "it is noted")
    assert "has not proved the secret" in strangers(master)[0]


def test_a_slave_of_apache_is_served_where_it_is_named_with_a_warning(site, caplog):
    master = site.begin_master(ha_slave_addresses="127.0.0.1")
    master.put("Orders", b"x")
    slave = PlayedSlave(site.port)
    slave.report(0)
    slave.copy_to(master.engine.broker.store.log.written)
    assert "has not proved the secret" in caplog.text
    elsewhere = PlayedSlave(site.port, source="127.0.0.2")
    elsewhere.report(0)
    assert elsewhere.is_closed()


def test_another_secret_is_refused_by_either_side(site):
    master = site.begin_master()
    master.put("Orders", b"x")
    slave = site.begin_slave(master, OTHER)
    wait_for(lambda: "another secret" in why_not(slave), "the slave says so")
    wait_for(lambda: any("another secret" in why for why in strangers(master)), "the master notes it")
    assert slave.engine.broker.store.log.written == 0


def test_a_proof_is_good_for_one_connection_and_for_this_port_only(site):
    site.begin_master()
    key = SECRET.encode()
    first = PlayedSlave(site.port)
    theirs = ask(first, Prove("mine")).nonce
    good = Proof(proof(key, LOG_MEMBER, "mine", f"{theirs} "))
    other = PlayedSlave(site.port)
    ask(other, Prove("mine"))
    assert ask(other, good).reason == Reason.OTHER_SECRET
    assert other.is_closed()
    assert ask(PlayedSlave(site.port), good).reason == Reason.OTHER_SECRET  # it was asked nothing
    third = PlayedSlave(site.port)
    of_brokers_port = proof(key, MEMBER, "mine", ask(third, Prove("mine")).nonce + " ")
    assert ask(third, Proof(of_brokers_port)).reason == Reason.OTHER_SECRET
    assert ask(first, good) == Proof(proof(key, LOG_BROKER, "mine", f"{theirs} "))
    first.report(0)
    assert first.frame()[0] == 0


def test_a_master_without_a_secret_is_followed_with_a_warning(site, caplog):
    master = site.begin_master("")
    master.put("Orders", *[b"x"] * 5)
    slave = site.begin_slave(master)
    wait_same(master, slave)
    assert "proves no secret, and is followed without" in caplog.text


@pytest.mark.parametrize("answer", [None, b"", pack_header(-5, 0)], ids=["silence", "it closes", "a heartbeat"])
def test_apaches_masters_and_older_versions_are_told_by_their_answer(answer):
    near, far = socket.socketpair()
    near.setblocking(False)

    def wait(sock, events, seconds):
        if answer is None:
            raise TimeoutError
        far.sendall(answer)
        if not answer:
            far.shutdown(socket.SHUT_WR)

    assert not prove(near, wait, SECRET.encode(), b"", SYSTEM)
    near.close()
    far.close()


def test_strangers_do_not_fill_the_log(site, caplog):
    """Any host that reaches the port may connect, as often as it likes."""
    master = site.begin_master()
    server = master.engine.broker.replication
    with caplog.at_level(logging.INFO):
        for first in (b"", b"\x00" * 16, pack(Prove("mine")), pack(Prove("mine")) * 2) * 5:
            slave = PlayedSlave(site.port)
            slave.sock.sendall(first)
            slave.sock.shutdown(socket.SHUT_WR)
            assert slave.is_closed() or slave.is_closed()  # behind a challenge
        wait_for(lambda: not server.slaves, "all to be gone")
    assert sum("replication:" in line for line in caplog.text.splitlines()) < 3


def test_a_proof_is_begun_once(site, caplog):
    master = site.begin_master()
    slave = PlayedSlave(site.port)
    slave.sock.sendall(pack(Prove("mine")) * 2000)
    with suppress(ConnectionResetError):
        while slave.sock.recv(65536):
            pass
    wait_for(lambda: "begins a second proof" in "".join(strangers(master)), "it is noted")
    assert "died of an exception" not in caplog.text


def test_those_that_prove_nothing_are_few_and_end_soon(site, monkeypatch):
    monkeypatch.setattr(slave_link, "PROVES_S", 0.3)
    master = site.begin_master(ha_slave_addresses="127.0.0.2")
    master.put("Orders", b"x")
    named = PlayedSlave(site.port, source="127.0.0.2")  # silent, and not the one that gives way
    sockets = [socket.create_connection(("127.0.0.1", site.port), timeout=60) for _ in range(3 * MAX_SILENT)]
    for sock in sockets:
        assert sock.recv(1) == b""
    named.report(0)
    assert named.frame()
    slave = site.begin_slave(master)
    wait_same(master, slave)


def test_a_handshake_takes_no_longer_than_the_proof_may(site, monkeypatch):
    monkeypatch.setattr(slave_link, "PROVES_S", 0.3)
    monkeypatch.setattr(between_brokers, "DEADLINE_S", 600.0)
    certificate, key = (str(path) for path in make_pair(site.directory))
    site.begin_master(broker={"tls_mode": "enforcing", "tls_cert_file": certificate, "tls_key_file": key})
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00")
        assert is_closed(sock)


def test_over_tls_a_proof_covers_the_certificate(tmp_path):
    """One that passes the bytes on between two others shows a certificate of its own, and is found out."""
    near, far = socket.socketpair()
    for end in (near, far):
        end.setblocking(False)
    challenger = Challenger(SECRET.encode(), b"the certificate there")

    def wait(sock, events, seconds):
        opening = Opening()
        said = opening.feed(far.recv(4096))
        far.sendall(pack(challenger.answer(said)))

    with pytest.raises(ProofFailed, match="another secret"):
        prove(near, wait, SECRET.encode(), b"the certificate here", SYSTEM)
    challenger = Challenger(SECRET.encode(), b"the same")
    assert prove(near, wait, SECRET.encode(), b"the same", SYSTEM)
    assert challenger.is_proved
    near.close()
    far.close()


def test_a_master_that_cannot_prove_it_is_not_followed():
    """One that takes any proof, and cannot make its own."""
    near, far = socket.socketpair()
    near.setblocking(False)

    def answers(said):
        return Challenge("any") if isinstance(said, Prove) else Proof("a" * 64)

    def wait(sock, events, seconds):
        far.sendall(pack(answers(Opening().feed(far.recv(4096)))))

    with pytest.raises(ProofFailed, match="has not proved"):
        prove(near, wait, SECRET.encode(), b"", SYSTEM)
    near.close()
    far.close()


@pytest.mark.parametrize("mode", ["disabled", "enforcing"])
def test_members_of_a_set_prove_it_with_no_address_named(tmp_path, mode):
    files = [str(path) for path in make_pair(tmp_path)]
    broker = {"tls_mode": mode}
    if mode != "disabled":
        broker |= {"tls_cert_file": files[0], "tls_key_file": files[1]}
    members = [
        Member(tmp_path / f"{n}", n, broker=broker, ha_secret_file=secret_file(tmp_path, SECRET)) for n in (1, 2)
    ]
    stranger = Member(tmp_path / "3", 3, broker=broker)
    try:
        first, second = members
        first.lead(1)
        first.take_in(second)
        peer = first.peer() if mode == "disabled" else TlsPeer(str(first.engine.broker_address))
        assert peer.ask(310, send_fields("Orders"), b"x").code == 0
        peer.close()
        wait_for(lambda: second.store.log.written == first.store.log.written > 0, "the log")
        stranger.files.see(1)
        stranger.brokers.follow(first.leader, 1)
        wait_for(lambda: "has not proved the secret" in stranger.brokers.stream().why, "the reason")
    finally:
        for one in (stranger, *reversed(members)):
            one.engine.stop()
