"""A host name as the address for clients: routes contain it; records, which only have room for an address, hold one."""

import json
import socket
import threading

import pytest

from appliance.engine import engine as engine_module
from appliance.engine.config import BrokerConfig
from appliance.engine.host_port import join_host_port, split_host_port
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.message_id import decode_offset_id
from appliance.engine.remoting.client import RemotingClient
from tests.support.engine import RunningEngine, send_fields
from tests.support.ports import reserve_port
from tests.support.waiting import wait_for

ROUTE, SEND = 105, 310


@pytest.fixture
def started(tmp_path):
    engines = []

    def start(**options):
        engines.append(RunningEngine(tmp_path / f"data-{len(engines)}", **options))
        return engines[-1]

    yield start
    for engine in engines:
        engine.stop()


def port_of(address: str) -> int:
    return split_host_port(address)[1]


def told_and_held(running: RunningEngine, here: str = "127.0.0.1") -> tuple[str, str]:
    """Return (the host in routes, the address in a message's id)."""
    broker, namesrv = (RemotingClient(join_host_port(here, port_of(one))) for one in running.engine.addresses())
    try:
        answer = broker.invoke_sync(
            RemotingCommand(SEND, ext_fields={k: str(v) for k, v in send_fields("Orders", 0).items()}, body=b"x"), 5000
        )
        assert answer.code == 0, answer
        asked = RemotingCommand(ROUTE, ext_fields={"topic": "Orders"})
        # The new topic is registered with the name server after the answer.
        route = json.loads(wait_for(lambda: namesrv.invoke_sync(asked, 5000).body, "a route"))
    finally:
        broker.close()
        namesrv.close()
    [brokers] = route["brokerDatas"]
    return brokers["brokerAddrs"]["0"].rpartition(":")[0], decode_offset_id(answer.ext_fields["msgId"])[0]


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST"])
def test_a_name_is_told_and_its_address_held(started, name):
    assert told_and_held(started(advertise=name)) == (name, "127.0.0.1")


def test_a_name_without_an_address_is_told_and_the_machines_held(started, monkeypatch):
    found = {"mq.example.org": (), "127.0.0.1": ("127.0.0.1",)}
    monkeypatch.setattr(engine_module, "resolved", found.__getitem__)
    assert told_and_held(started(advertise="mq.example.org")) == ("mq.example.org", "127.0.0.1")


def test_a_name_to_listen_on_is_told_too(started):
    assert told_and_held(started(bind="localhost")) == ("localhost", "127.0.0.1")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_ipv6_address_is_told_in_brackets(started):
    try:
        running = started(bind="::1")
    except Exception as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert told_and_held(running, "::1") == ("[::1]", "::1")


def test_clients_are_told_the_port_that_another_program_maps(started):
    """As `docker run -p 20911:10911`: the port of the route is the one outside, the broker's own stays."""
    own, outside = reserve_port(), reserve_port()
    running = started(advertise="mq.example.org", ports=(own, outside))
    assert running.engine.broker_address == f"mq.example.org:{outside}"
    namesrv = RemotingClient(join_host_port("127.0.0.1", port_of(running.engine.namesrv_address)))
    broker = RemotingClient(join_host_port("127.0.0.1", own))
    try:
        answer = namesrv.invoke_sync(RemotingCommand(ROUTE, ext_fields={"topic": "TBW102"}), 5000)
        [told] = json.loads(answer.body)["brokerDatas"]
        assert told["brokerAddrs"] == {"0": f"mq.example.org:{outside}"}
        assert broker.invoke_sync(RemotingCommand(28), 5000).code == 0, "it listens where it was told to"
    finally:
        broker.close()
        namesrv.close()


def test_the_check_of_an_address_goes_by_the_port_that_clients_are_told(started):
    own, outside = reserve_port(), reserve_port()
    running = started(advertise="127.0.0.1", ports=(own, outside))
    assert running.window.check_address("127.0.0.1").broker.result == "refused"
    with socket.create_server(("127.0.0.1", outside)) as outer:
        thread = threading.Thread(target=pass_on_one, args=(outer, own))
        thread.start()
        found = running.window.check_address("127.0.0.1").broker
        thread.join()
    assert (found.port, found.result) == (outside, "answers")


def pass_on_one(listener: socket.socket, port: int) -> None:
    """Pass on one request and its answer, as a published port does."""
    peer, _ = listener.accept()
    with peer, socket.create_connection(("127.0.0.1", port)) as broker:
        broker.sendall(peer.recv(65_536))
        while piece := broker.recv(65_536):
            peer.sendall(piece)
            if len(piece) < 65_536:
                break


def test_slaves_are_told_the_address_that_is_theirs(started):
    running = started(broker={"ha_advertise": "ha.example.org"})
    assert running.engine.ha_address.startswith("ha.example.org:")
    assert BrokerConfig().ha_advertise == ""
