"""This process's own connections, where its ports take nothing but TLS."""

import threading

import pytest

from appliance.engine.address_check import check_address
from appliance.engine.errors import ConnectError, StartError
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.remoting.client import RemotingClient
from tests.support.engine import start_engine
from tests.support.remoting import ECHO, SLOW
from tests.support.tls import make_pair
from tests.support.waiting import wait_for


@pytest.fixture
def rig(rigs):
    return rigs("enforcing")


@pytest.fixture
def client(rig):
    client = RemotingClient(rig.address, tls=True)
    yield client
    client.close()


def ask(client, code=ECHO, body=b"x"):
    return client.invoke_sync(RemotingCommand(code, body=body), 60_000)


def test_calls_use_one_connection_while_it_stands(rig, client):
    large = bytes(3 << 20)
    assert ask(client).body == b"x"
    assert client.is_connected()
    assert ask(client, body=large).body == large
    (conn,) = rig.server.connections.values()
    conn.close()
    wait_for(lambda: not client.is_connected() or not rig.door.tunnels.count, "the server has closed it")
    try:
        ask(client)
    except ConnectError:  # its last bytes are unread, and look like an answer until then
        assert ask(client).body == b"x"


def test_a_call_that_waits_is_ended_by_another_thread(rig, client):
    ask(client)
    failed = []

    def call():
        try:
            ask(client, SLOW)
        except ConnectError as error:
            failed.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()

    def ended():
        client.hang_up()  # again, since it may not have begun to wait
        return not caller.is_alive()

    wait_for(ended, "the call has ended")
    assert failed


def test_without_tls_it_is_refused(rig):
    client = RemotingClient(rig.address)
    with pytest.raises(ConnectError):
        ask(client)
    client.close()


def test_tls_with_a_port_that_has_none_is_a_refused_connection(tmp_path):
    engine = start_engine(tmp_path)
    try:
        client = RemotingClient(engine.broker_address, tls=True)
        with pytest.raises(ConnectError, match=r"TLS with .* failed"):
            ask(client)
    finally:
        engine.stop()


def test_an_address_is_checked_and_name_servers_are_told_by_tls(tmp_path):
    certificate, key = make_pair(tmp_path)
    options = {"tls_mode": "enforcing", "tls_cert_file": str(certificate), "tls_key_file": str(key)}
    engine = start_engine(tmp_path / "data", broker=options)
    try:
        wait_for(lambda: all(engine.broker.registration.status.values()), "the own name server has the broker")
        assert engine.window.check_address("127.0.0.1").good
        assert not check_address("127.0.0.1", "127.0.0.1", *engine.window.addresses(), tls=None).good
    finally:
        engine.stop()


def test_a_start_without_a_pair_touches_nothing(tmp_path):
    with pytest.raises(StartError, match="tlsMode=enforcing needs tlsCertFile and tlsKeyFile"):
        start_engine(tmp_path / "data", broker={"tls_mode": "enforcing"})
    assert not (tmp_path / "data").exists()
