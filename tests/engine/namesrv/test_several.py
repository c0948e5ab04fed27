"""Name servers on several machines: a broker registers with all of them, and clients need any one."""

from __future__ import annotations

from tests.support.layouts import route_of
from tests.support.peer import Peer, send_fields
from tests.support.server import Server
from tests.support.waiting import wait_for

SEND = 310
TEMPLATE = "TBW102"


def make(broker: str, topic: str) -> None:
    """Make a topic by its first message."""
    peer = Peer(broker)
    try:
        assert peer.ask(SEND, send_fields(topic, 0, ""), b"x").code == 0
    finally:
        peer.close()


def test_every_name_server_knows_every_broker_and_those_left_learn_what_is_new(tmp_path):
    with (
        Server(tmp_path / "n1", roles="namesrv") as first,
        Server(tmp_path / "n2", roles="namesrv") as second,
        Server(
            tmp_path / "b", "--broker-name", "broker-a", "--namesrv-addr", f"{first.namesrv};{second.namesrv}",
            roles="broker",
        ) as broker,
    ):  # fmt: skip
        here = {"broker-a": {"0": broker.broker}}
        make(broker.broker, "Orders")
        for one in (first, second):
            wait_for(lambda one=one: route_of(one.namesrv, "Orders") == here, "both to know the topic")
        first.kill()
        make(broker.broker, "Invoices")
        wait_for(lambda: route_of(second.namesrv, "Invoices") == here, "the one that is left to know another")
        # It comes back empty, and gets every registration.
        first.start()
        wait_for(lambda: route_of(first.namesrv, "Invoices") == here, "the other one to be told again")
        broker.stop()
        for one in (first, second):
            wait_for(lambda one=one: route_of(one.namesrv, TEMPLATE) == {}, "both to forget the broker")
