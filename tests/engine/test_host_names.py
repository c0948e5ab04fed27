"""A host name as the address for clients: routes contain it; records, which only have room for an address, hold one."""

import json
import socket

import pytest

from appliance.engine import engine as engine_module
from appliance.engine.config import BrokerConfig
from appliance.engine.host_port import join_host_port, split_host_port
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.message_id import decode_offset_id
from appliance.engine.remoting.client import RemotingClient
from tests.support.engine import RunningEngine, send_fields
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


def test_slaves_are_told_the_address_that_is_theirs(started):
    running = started(broker={"ha_advertise": "ha.example.org"})
    assert running.engine.ha_address.startswith("ha.example.org:")
    assert BrokerConfig().ha_advertise == ""
