"""The check that an address leads back to this process."""

import socket
import threading

import pytest

from appliance.engine.address_check import check_address, own_addresses
from appliance.engine.config import Secret
from appliance.engine.host_port import is_host
from tests.support.directories import shared_directory
from tests.support.engine import start_engine


@pytest.fixture(scope="module")
def engine(request):
    engine = start_engine(shared_directory(request, "data"))
    yield engine
    engine.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_our_own_address_answers_on_both_ports(engine, host):
    check = engine.window.check_address(host)
    assert check.good
    assert check.loopback
    assert "127.0.0.1" in check.addresses
    assert (check.broker.result, check.namesrv.result) == ("answers", "answers")
    assert 0 < check.broker.ms < 1500


def test_an_address_of_this_machine_on_which_nobody_listens_says_where_we_do(engine):
    check = engine.window.check_address("127.0.0.2")
    assert not check.good
    assert (check.broker.result, check.broker.bind) == ("bound", "127.0.0.1")


def test_a_name_that_means_nothing_here_is_not_good(engine):
    check = engine.window.check_address("no-such-host.invalid")
    assert (check.addresses, check.good, check.broker.result) == ((), False, "silent")


def test_somebody_else_on_our_port_is_told_apart(engine, tmp_path):
    other = start_engine(tmp_path / "other")
    try:
        port = int(engine.broker_address.rpartition(":")[2])
        stranger = int(other.broker_address.rpartition(":")[2])
        with socket.socket() as relay:
            relay.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            relay.bind(("127.0.0.2", port))
            relay.listen()
            threading.Thread(target=_relay_one, args=(relay, stranger), daemon=True).start()
            assert engine.window.check_address("127.0.0.2").broker.result == "other"
    finally:
        other.stop()


def _relay_one(listener: socket.socket, port: int) -> None:
    """Pass on one request and its answer."""
    peer, _ = listener.accept()
    with peer, socket.create_connection(("127.0.0.1", port)) as server:
        server.sendall(peer.recv(65_536))
        peer.sendall(server.recv(1 << 20))
        peer.recv(1)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("mq.example.org", True),
        ("10.0.0.1", True),
        ("::1", True),
        ("broker_1", True),
        ("", False),
        ("a b", False),
        ("http://x", False),
        ("x:80", False),
        ("-x", False),
        ("x" * 300, False),
        ("x/../y", False),
    ],
)
def test_what_may_be_tried(text, is_one):
    assert is_host(text) is is_one


def test_this_machine_has_an_address():
    assert any(address.startswith("127.") for _, address in own_addresses())


@pytest.mark.parametrize("mode", ["report", "enforce"])
def test_the_check_of_our_own_address_is_no_refusal_of_a_client(tmp_path, mode, caplog):
    first = Secret('{"username":"root","password":"root has a secret"}')
    engine = start_engine(tmp_path, broker={"access_control": mode, "init_authentication_user": first})
    try:
        assert engine.window.check_address("127.0.0.1").good
        assert (engine.window.users.refusals().rows, "refused" in caplog.text) == ((), False)
        check_address(
            "127.0.0.1", "127.0.0.1", *engine.window.addresses(), fields={"rocketboxCheck": "of another time"}
        )
        assert sum(row.count for row in engine.window.users.refusals().rows) == 2
    finally:
        engine.stop()
