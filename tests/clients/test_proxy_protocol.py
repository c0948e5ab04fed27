"""An official Java client through a balancer that sends PROXY headers: the broker sees its own address."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from tests.clients.agents import start_java
from tests.clients.messages import Message
from tests.clients.programs import JAVA_VERSIONS
from tests.support.directories import shared_directory
from tests.support.peer import Peer, pull_fields, records
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.own

#: The addresses of the balancer for clients, and towards the broker; and the one that it gives for all clients.
FRONT, BALANCER, CLIENT = "127.0.0.3", "127.0.0.2", "10.77.0.9"
#: The fields of request 17, without the topic's name.
MADE = {
    "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0, "order": "false",
}  # fmt: skip


class Balancer:
    """Forwards a port of FRONT to the same one of 127.0.0.1, behind a header. client: the address in its headers."""

    def __init__(self, port: int) -> None:
        self.client = CLIENT
        self._port = port
        self._server = socket.create_server((FRONT, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, peer = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._port), 60, source_address=(BALANCER, 0))
                far.sendall(f"PROXY TCP4 {self.client} {FRONT} {peer[1]} {self._port}\r\n".encode())
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    directory = shared_directory(request, "proxied")
    environment = {"ROCKETBOX_BROKER_PROXY_PROTOCOL_FROM": f"10.0.0.0/16;{BALANCER}"}
    with Server(directory / "data", "--advertise", FRONT, environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def balancers(server: Server) -> Iterator[list[Balancer]]:
    both = [Balancer(int(address.rpartition(":")[2])) for address in (server.broker, server.namesrv)]
    yield both
    for one in both:
        one.close()


def test_a_java_client_is_known_by_the_address_that_the_balancer_tells(
    server: Server, balancers: list[Balancer], request: pytest.FixtureRequest
):
    directory = shared_directory(request, "java")
    direct, names = (Peer(f"127.0.0.1:{one.rpartition(':')[2]}") for one in (server.broker, server.namesrv))
    # Before the clients come: one that asked in vain asks again after 30 s only.
    for topic in ("Balanced", "%RETRY%g_balanced"):
        assert direct.ask(17, {**MADE, "topic": topic}).code == 0
        wait_for(lambda topic=topic: names.ask(105, {"topic": topic}).code == 0, f"{topic} is routed")
    with (
        closing(start_java(JAVA_VERSIONS[1], "json", directory / "scratch")) as agent,
        agent.push(server.namesrv, "Balanced", "g_balanced") as consumer,
        agent.producer(server.namesrv, "p_balanced") as producer,
    ):
        sent = producer.send("Balanced", [Message(b"%d" % number) for number in range(8)])
        assert len(consumer.wait_for(8)) == 8
        assert sent
        answer = direct.ask(203, {"consumerGroup": "g_balanced"})
        assert answer.code == 0
        [connection] = json.loads(answer.body)["connectionSet"]
        assert connection["clientAddr"].startswith(f"{CLIENT}:")
        stored = [
            record
            for queue in range(4)
            for record in records(direct.ask(11, pull_fields("Balanced", queue, 0)).body or b"")
        ]
        assert len(stored) == 8
        assert {record.born_host[0] for record in stored} == {CLIENT}
    direct.close()
    names.close()


def test_a_balancer_on_this_machine_lets_nobody_administer_whatever_address_it_tells(
    server: Server, balancers: list[Balancer]
):
    make = {**MADE, "topic": "Made"}
    for told in (CLIENT, "127.0.0.1"):
        balancers[0].client = told
        with closing(Peer(server.broker)) as peer:
            assert peer.ask(17, make).code == 16
    balancers[0].client = CLIENT
    with closing(Peer(f"127.0.0.1:{server.broker.rpartition(':')[2]}")) as direct:
        assert direct.ask(17, make).code == 0
    log = server.data_dir / "rocketbox" / "wire-audit.jsonl"
    wait_for(lambda: log.exists() and CLIENT in log.read_text(), "the audit has the client's address")
