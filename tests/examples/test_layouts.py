"""The files of examples/layouts work as they describe; each is started unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from appliance.command_line import load
from tests.support.layouts import FILES, Layout, route_of
from tests.support.peer import Peer, pull_fields, records, send_fields
from tests.support.waiting import wait_for

SEND = 310
PULL = 11
TEMPLATE = "TBW102"


def send(address: str, *bodies: bytes) -> None:
    """Send to a topic that the first send creates with 4 queues; each send must be acknowledged with 0."""
    peer = Peer(address)
    try:
        for body in bodies:
            answer = peer.ask(SEND, send_fields("Orders", 0, ""), body)
            assert answer.code == 0, answer
    finally:
        peer.close()


def wait_for_slave(master: str) -> None:
    """Until a synchronous master has one: it is at the name server before, and sends are answered otherwise then."""
    peer = Peer(master)
    try:
        wait_for(lambda: peer.ask(SEND, send_fields("Probes", 0, ""), b"probe").code == 0, "the slave to follow")
    finally:
        peer.close()


def bodies_at(address: str) -> list[bytes]:
    """Return the bodies that a consumer pulls from the topic there; [] if the pull is refused."""
    peer = Peer(address)
    try:
        answer = peer.ask(PULL, pull_fields("Orders", 0, 0))
    finally:
        peer.close()
    return [one.body for one in records(answer.body)] if answer.code == 0 else []


@pytest.mark.parametrize("file", sorted(FILES.rglob("*.toml")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_says_nothing_without_effect_and_nothing_to_be_warned_of(file):
    assert load(["-c", str(file)], {})[1].notices == ()


@pytest.fixture
def layout(request, tmp_path) -> Iterator[Layout]:
    with Layout(request.param, tmp_path) as running:
        yield running


@pytest.mark.parametrize("layout", ["one-box"], indirect=True)
def test_one_box(layout):
    machine = layout.start("rocketbox.toml")
    send(layout.address(1, 10911), b"one")
    wait_for(lambda: bodies_at(layout.address(1, 10911)) == [b"one"], "the message to be read")
    [name] = wait_for(lambda: route_of(layout.address(1, 9876), TEMPLATE), "the broker to register")
    orders = {name: {"0": layout.address(1, 10911)}}
    wait_for(lambda: route_of(layout.address(1, 9876), "Orders") == orders, "the name server to hear of the topic")
    machine.stop()


@pytest.mark.parametrize("layout", ["master-and-slave"], indirect=True)
def test_a_master_and_its_slave(layout):
    """Both name servers list both; acknowledged messages are read from the slave when the master is gone."""
    master, slave = layout.start("machine-1.toml"), layout.start("machine-2.toml")
    both = {"broker-a": {"0": layout.address(1, 10911), "1": layout.address(2, 10911)}}
    for number in (1, 2):
        wait_for(
            lambda number=number: route_of(layout.address(number, 9876), TEMPLATE) == both,
            f"name server {number} to know master and slave",
        )  # fmt: skip
    slave_address = layout.address(2, 10911)
    wait_for_slave(layout.address(1, 10911))
    send(layout.address(1, 10911), *(b"%d" % n for n in range(20)))
    wanted = [b"%d" % n for n in range(20)]
    wait_for(lambda: bodies_at(slave_address) == wanted, "the slave to serve what was acknowledged")
    master.kill()
    # The name server of the master's machine is gone with it; clients have the addresses of both.
    wait_for(
        lambda: route_of(layout.address(2, 9876), TEMPLATE) == {"broker-a": {"1": slave_address}},
        "the other name server to notice",
    )
    assert bodies_at(slave_address) == wanted
    master.launch()
    master.wait_until_ready()
    wait_for_slave(layout.address(1, 10911))
    send(layout.address(1, 10911), b"again")
    wait_for(lambda: bodies_at(slave_address) == [*wanted, b"again"], "the slave to follow again")
    slave.stop()
    master.stop()
