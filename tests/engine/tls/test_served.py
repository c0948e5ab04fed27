"""The whole server over TLS, in both twins: sends, pulls of every size and kind, the VIP port and the name server."""

import pytest

from appliance.engine.hotpath import COMPILED
from tests.support.directories import shared_directory
from tests.support.peer import Peer, pull_fields, records, send_fields
from tests.support.server import Server
from tests.support.tls import TlsPeer, is_closed, make_pair, raw
from tests.support.waiting import wait_for

TWINS = ["pure", pytest.param("compiled", marks=pytest.mark.skipif(not COMPILED, reason="nothing was compiled"))]
CREATE_TOPIC, ROUTE = 17, 105
BODIES = [b"x" * size for size in (1, 100, 5_000, 9_000, 70_000, 1_000_000, 4_000_000)]


@pytest.fixture(scope="module", params=TWINS)
def server(request):
    directory = shared_directory(request, "tls")
    certificate, key = make_pair(directory)
    environment = {
        "ROCKETBOX_PURE": "1" if request.param == "pure" else "0",
        "ROCKETBOX_BROKER_TLS_MODE": "enforcing",
        "ROCKETBOX_BROKER_TLS_CERT_FILE": str(certificate),
        "ROCKETBOX_BROKER_TLS_KEY_FILE": str(key),
        "ROCKETBOX_STORE_MESSAGE_INDEX_ENABLE": "false",
    }
    with Server(directory / "data", "--flush", "async", environment=environment, log_file_mib=64) as running:
        yield running


@pytest.fixture
def peer(server):
    peer = TlsPeer(server.broker)
    yield peer
    peer.close()


@pytest.mark.parametrize("codec", [0, 1])
def test_messages_of_every_size_are_stored_and_pulled_whole(server, peer, codec):
    topic = f"Sizes{codec}"
    for body in BODIES:
        assert peer.ask(310, send_fields(topic), body, codec=codec).code == 0
    for offset, body in enumerate(BODIES):
        answer = peer.ask(11, pull_fields(topic, 0, offset, maxMsgNums=1), codec=codec)
        assert answer.code == 0
        assert records(answer.body)[0].body == body


def test_pipelined_sends_and_pulls_keep_their_order(peer):
    sent = [peer.send(310, send_fields("Many", 0), b"%d" % number * 300) for number in range(2000)]
    assert [peer.receive().opaque for _ in sent] == sent
    asked = [peer.send(11, pull_fields("Many", 0, offset, maxMsgNums=32)) for offset in range(0, 2000, 10)]
    for number, opaque in enumerate(asked):
        answer = peer.receive()
        assert (answer.opaque, answer.code) == (opaque, 0)
        assert records(answer.body)[0].body == b"%d" % (number * 10) * 300


def test_a_held_pull_is_woken_by_a_send(server, peer):
    assert peer.ask(310, send_fields("Woken"), b"first").code == 0
    for size in (10, 50_000):
        offset = 1 if size == 10 else 2
        held = peer.send(11, pull_fields("Woken", 0, offset, sysFlag=6, suspendTimeoutMillis=30_000))
        other = TlsPeer(server.broker)
        assert other.ask(310, send_fields("Woken"), b"y" * size).code == 0
        other.close()
        answer = peer.receive()
        assert (answer.opaque, answer.code) == (held, 0)
        assert records(answer.body)[0].body == b"y" * size


def test_the_broker_is_registered_and_every_port_speaks_tls(server, peer):
    assert peer.ask(310, send_fields("Routed"), b"x").code == 0
    host, _, port = server.broker.rpartition(":")
    vip = TlsPeer(f"{host}:{int(port) - 2}")
    assert vip.ask(310, send_fields("Routed"), b"x").code == 0
    vip.close()
    names = TlsPeer(server.namesrv)
    wait_for(lambda: names.ask(ROUTE, {"topic": "Routed"}).code == 0, "the topic is routed")
    names.close()


def test_no_port_takes_a_plain_connection(server):
    host, _, port = server.broker.rpartition(":")
    for address in (server.broker, f"{host}:{int(port) - 2}", server.namesrv):
        peer = Peer(address)
        peer.send(ROUTE, {"topic": "TBW102"})
        assert peer.is_closed()
        peer.close()
        with raw(address) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert is_closed(sock)
