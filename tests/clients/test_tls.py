"""Official Java clients and mqadmin of both versions over TLS, and without it where it is required."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.clients import mqadmin
from tests.clients.agents import Agent, ClientFailed, start_java
from tests.clients.messages import Message
from tests.clients.programs import JAVA_VERSIONS
from tests.support.directories import shared_directory
from tests.support.server import Server
from tests.support.tls import Authority, make_pair

pytestmark = pytest.mark.own

#: One message for each way that an answer leaves the server: copied, and from the page cache.
BODIES = [b"%d" % number for number in range(8)] + [bytes(range(256)) * 4000]


OLD, NEW = JAVA_VERSIONS
#: Mode, version and codec; the others at night.
EVERY = [
    pytest.param(mode, (version, codec), id=f"{mode}-{version}-{codec}", marks=() if at_once else pytest.mark.nightly)
    for version, codec, mode, at_once in (
        (OLD, "json", "permissive", True),
        (OLD, "json", "enforcing", False),
        (OLD, "rocketmq", "enforcing", False),
        (NEW, "json", "enforcing", False),
        (NEW, "rocketmq", "enforcing", True),
        (NEW, "rocketmq", "permissive", False),
    )
]


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest) -> Iterator[dict[str, Server]]:
    """One server for each mode."""
    directory = shared_directory(request, "tls")
    certificate, key = make_pair(directory)
    with ExitStack() as stack:
        running = {}
        for mode in ("permissive", "enforcing"):
            environment = {
                "ROCKETBOX_BROKER_TLS_MODE": mode,
                "ROCKETBOX_BROKER_TLS_CERT_FILE": str(certificate),
                "ROCKETBOX_BROKER_TLS_KEY_FILE": str(key),
            }
            running[mode] = stack.enter_context(Server(directory / mode, environment=environment))
        yield running


@pytest.fixture(scope="module")
def agent(request: pytest.FixtureRequest) -> Iterator[Agent]:
    """A client that speaks TLS."""
    version, codec = request.param
    with closing(start_java(version, codec, shared_directory(request, "java") / "scratch", tls=True)) as agent:
        yield agent


@pytest.mark.parametrize(("mode", "agent"), EVERY, indirect=["agent"])
def test_a_java_client_sends_and_consumes_over_tls(servers: dict[str, Server], agent: Agent, mode: str):
    server = servers[mode]
    topic = "Over" + agent.name.replace(".", "_").replace("-", "_")
    printed = mqadmin.run(agent, server.namesrv, f"updateTopic -b {server.broker} -t {topic} -r 4 -w 4")
    assert "success" in printed, printed
    with (
        agent.push(server.namesrv, topic, f"g_{topic}") as consumer,
        agent.producer(server.namesrv, f"p_{topic}") as producer,
    ):
        producer.send(topic, [Message(body) for body in BODIES])
        assert len(consumer.wait_for(len(BODIES))) == len(BODIES)


@pytest.mark.parametrize(
    "version", [pytest.param(OLD, marks=pytest.mark.nightly), NEW]
)  # the settings are the same since 4.9
def test_a_java_client_is_the_user_of_its_certificate(request: pytest.FixtureRequest, version: str):
    directory = shared_directory(request, f"certified-{version}")
    authority, (certificate, key) = Authority(directory), make_pair(directory)
    environment = {
        "ROCKETBOX_BROKER_TLS_MODE": "enforcing",
        "ROCKETBOX_BROKER_TLS_CERT_FILE": str(certificate),
        "ROCKETBOX_BROKER_TLS_KEY_FILE": str(key),
        "ROCKETBOX_BROKER_TLS_CLIENT_AUTH": "required",
        "ROCKETBOX_BROKER_TLS_CLIENT_CA_FILE": str(authority.path),
        "ROCKETBOX_BROKER_ACCESS_CONTROL": "enforce",
        "ROCKETBOX_BROKER_INIT_AUTHENTICATION_USER": '{"username": "root", "password": "the first one\'s secret"}',
    }
    with ExitStack() as stack:
        server = stack.enter_context(Server(directory / "data", environment=environment))

        def java(name: str) -> Agent:
            scratch = directory / f"java-{name}"
            agent = start_java(version, "json", scratch, tls=True, certificate=authority.signed(name))
            return stack.enter_context(closing(agent))

        root, ann = java("root"), java("ann")
        for line in (
            "updateTopic -b BROKER -t Orders -r 4 -w 4",
            "updateTopic -b BROKER -t Secret -r 4 -w 4",
            *(
                ('createUser -b BROKER -u ann -p "ann\'s own secret" -t Normal',
                 "createAcl -b BROKER -s User:ann -r Topic:Orders,Group:orders* -a Pub,Sub -d Allow")
                if version == NEW
                else ()
            ),
        ):  # fmt: skip
            printed = mqadmin.run(root, server.namesrv, line.replace("BROKER", server.broker))
            assert "success" in printed, printed
        with root.push(server.namesrv, "Orders", "orders-root") as consumer, root.producer(server.namesrv) as producer:
            producer.send("Orders", [Message(body) for body in BODIES])
            assert len(consumer.wait_for(len(BODIES))) == len(BODIES)
        with ann.producer(server.namesrv, "ann", retries=0) as producer:
            if version == NEW:
                producer.send("Orders", [Message(b"x")])
            with pytest.raises(ClientFailed):
                producer.send("Secret", [Message(b"x")])


def test_a_java_client_without_tls_is_served_only_where_that_is_permitted(
    servers: dict[str, Server], request: pytest.FixtureRequest
):
    directory = shared_directory(request, "java")
    with closing(start_java(NEW, "json", directory / "scratch")) as plain:
        with plain.producer(servers["permissive"].namesrv, "permitted") as producer:
            producer.send("Plain", [Message(b"x")])
        with (
            plain.producer(servers["enforcing"].namesrv, "refused", retries=0) as producer,
            pytest.raises(ClientFailed),
        ):
            producer.send("Plain", [Message(b"x")])


def test_java_clients_with_tls_and_without_it_exchange_messages_on_one_port(
    servers: dict[str, Server], request: pytest.FixtureRequest
):
    """Upstream's TlsMixIT and TlsMix2IT: only the producer, or only the consumer, speaks TLS."""
    server = servers["permissive"]
    with (
        closing(start_java(NEW, "json", shared_directory(request, "mix") / "tls", tls=True)) as tls,
        closing(start_java(OLD, "json", shared_directory(request, "mix") / "plain")) as plain,
    ):
        for topic, sender, receiver in (("MixOne", tls, plain), ("MixTwo", plain, tls)):
            printed = mqadmin.run(tls, server.namesrv, f"updateTopic -b {server.broker} -t {topic} -r 4 -w 4")
            assert "success" in printed, printed
            with (
                receiver.push(server.namesrv, topic, f"g_{topic}") as consumer,
                sender.producer(server.namesrv, f"p_{topic}") as producer,
            ):
                producer.send(topic, [Message(body) for body in BODIES])
                assert len(consumer.wait_for(len(BODIES))) == len(BODIES)
