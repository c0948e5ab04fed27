"""Official clients, and mqadmin of both versions, against a broker that requires signed requests."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.clients import mqadmin
from tests.clients.agents import Agent, ClientFailed
from tests.clients.conftest import start
from tests.clients.messages import Message
from tests.clients.programs import JAVA_VERSIONS
from tests.support.directories import shared_directory
from tests.support.server import Server

pytestmark = pytest.mark.own

ROOT = {"access_key": "root", "secret_key": "the first one's secret"}
ANN = {"access_key": "ann", "secret_key": "ann's own secret"}
FIRST = json.dumps({"username": ROOT["access_key"], "password": ROOT["secret_key"]})


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    environment = {"ROCKETBOX_BROKER_ACCESS_CONTROL": "enforce", "ROCKETBOX_BROKER_INIT_AUTHENTICATION_USER": FIRST}
    with Server(shared_directory(request, "guarded") / "data", environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def administrator(request: pytest.FixtureRequest, server: Server) -> Iterator[Agent]:
    """mqadmin of the newest version, and a user who may send and read Orders."""
    agent = start(f"java-{JAVA_VERSIONS[-1]}", request)
    with ExitStack() as stack:
        stack.callback(agent.close)
        for line in (
            "updateTopic -b BROKER -t Orders -r 4 -w 4",
            "updateTopic -b BROKER -t Secret -r 4 -w 4",
            'createUser -b BROKER -u ann -p "ann\'s own secret" -t Normal',
            "createAcl -b BROKER -s User:ann -r Topic:Orders,Group:orders* -a Pub,Sub -d Allow",
        ):
            printed = mqadmin.run(agent, server.namesrv, line.replace("BROKER", server.broker), **ROOT)
            assert "success" in printed, printed
        yield agent


@pytest.mark.usefixtures("administrator")
@pytest.mark.parametrize("agent", [f"java-{version}" for version in JAVA_VERSIONS], indirect=True)
def test_who_signs_and_may_sends_and_consumes(agent: Agent, server: Server):
    group = f"orders-{agent.name.replace('.', '_')}"
    with (
        agent.push(server.namesrv, "Orders", group, **ANN) as consumer,
        agent.producer(server.namesrv, **ANN) as producer,
    ):
        producer.send("Orders", [Message(b"%d" % number) for number in range(8)])
        assert len(consumer.wait_for(8)) >= 8


@pytest.mark.usefixtures("administrator")
@pytest.mark.parametrize("agent", [f"java-{version}" for version in JAVA_VERSIONS], indirect=True)
@pytest.mark.parametrize(
    ("topic", "credentials"),
    [
        ("Secret", ANN),
        ("Orders", ANN | {"secret_key": "not ann's secret"}),
        ("Orders", {}),
        ("Orders", {"access_key": "nobody", "secret_key": "of nobody"}),
    ],
    ids=["topic", "secret", "unsigned", "unknown"],
)
def test_who_may_not_is_told_so(agent: Agent, server: Server, topic: str, credentials: dict[str, str]):
    with (
        agent.producer(server.namesrv, f"denied-{topic}", retries=0, **credentials) as producer,
        pytest.raises(ClientFailed) as caught,
    ):
        producer.send(topic, [Message(b"x")])
    assert caught.value.code == 16, caught.value


@pytest.mark.parametrize("agent", [*(f"java-{version}" for version in JAVA_VERSIONS), "go", "cpp"], indirect=True)
def test_a_client_with_one_forbidden_group_consumes_for_its_other_ones(
    agent: Agent, server: Server, administrator: Agent
):
    version = agent.name.replace(".", "_")
    # One client of the broker, with one heartbeat for all of its groups.
    shared = ANN | {"instance": f"shared-{version}"}
    # Go signs its questions for routes: a topic on which it may do nothing is not there, and it does not start.
    topic = "Orders" if agent.name == "go" else "Secret"
    with (
        agent.push(server.namesrv, topic, f"others-{version}", **shared) as forbidden,
        agent.push(server.namesrv, "Orders", f"orders-beside-{version}", **shared) as consumer,
        agent.producer(server.namesrv, f"beside-{version}", **ANN) as producer,
    ):
        messages = [Message(f"{version} {number}".encode()) for number in range(8)]
        producer.send("Orders", messages)
        consumer.wait_for_each(messages)
        assert forbidden.received == []
        for group, told in ((f"others-{version}", "not online"), (f"orders-beside-{version}", "ConsumeType:")):
            line = f"consumerConnection -g {group} -b {server.broker}"
            assert told in mqadmin.run(administrator, server.namesrv, line, **ROOT)


def test_a_client_over_its_quotas_is_slowed_down_and_loses_nothing(administrator: Agent, server: Server):
    def limit(**options: int) -> None:
        for name, value in options.items():
            line = f"updateBrokerConfig -b {server.broker} -k {name} -v {value}"
            assert "success" in mqadmin.run(administrator, server.namesrv, line, **ROOT)

    noise = random.Random(7)  # not to be compressed by the client
    messages = [Message(noise.randbytes(4000)) for _ in range(12)]
    refused, last = Message(b"y"), Message(b"z")
    with (
        administrator.push(server.namesrv, "Orders", "orders-slow", **ANN) as consumer,
        administrator.producer(server.namesrv, "slow", retries=0, **ANN) as producer,
    ):
        limit(userSendBytesPerSecond=20_000, userPullBytesPerSecond=20_000)
        begun = time.monotonic()
        producer.send("Orders", messages)  # of two and a half seconds, one is saved up
        assert time.monotonic() - begun > 1
        producer.send("Orders", [Message(noise.randbytes(200_000))])  # of ten seconds
        with pytest.raises(ClientFailed) as caught:
            producer.send("Orders", [refused])
        assert caught.value.code == 2, caught.value
        limit(userSendBytesPerSecond=0)
        producer.send("Orders", [last])
        consumer.wait_for_each([*messages, last])  # among those of other tests
        assert refused.sha256 not in {message["body_sha256"] for message in consumer.received}
        limit(userPullBytesPerSecond=0)


def test_mqadmin_shows_users_and_entries_and_no_secret(administrator: Agent, server: Server):
    def run(line: str, **credentials: str) -> str:
        return mqadmin.run(administrator, server.namesrv, line.replace("BROKER", server.broker), **credentials)

    users = mqadmin.rows(run("listUser -b BROKER", **ROOT))
    assert [row[0] for row in users] == ["ann", "root"]
    assert "secret" not in run("getUser -b BROKER -u ann", **ROOT)
    printed = run("getAcl -b BROKER -s User:ann", **ROOT)
    assert mqadmin.form(printed) == mqadmin.form(
        mqadmin.recorded("5.3.3", "getAcl")
        .replace("goldenuser", "ann")
        .replace("AclTopicPub", "Orders")
        .replace("CG_AclGood", "orders*")
    )
    assert "16" in run("listUser -b BROKER", **ANN)
    assert "16" in run("updateTopic -b BROKER -t Orders -r 8 -w 8")


def test_mqadmin_copies_users_and_entries_from_where_secrets_are_given(
    administrator: Agent, server: Server, request: pytest.FixtureRequest
):
    def run(broker: str, line: str) -> str:
        return mqadmin.run(administrator, server.namesrv, line.replace("BROKER", broker), **ROOT)

    carl = {"access_key": "carl", "secret_key": "carl's own secret"}
    environment = {
        "ROCKETBOX_BROKER_ACCESS_CONTROL": "enforce",
        "ROCKETBOX_BROKER_INIT_AUTHENTICATION_USER": FIRST,
        "ROCKETBOX_BROKER_AUTH_GIVE_SECRETS": "true",
    }
    with Server(shared_directory(request, "giving") / "data", environment=environment) as giving:
        assert "success" in run(giving.broker, 'createUser -b BROKER -u carl -p "carl\'s own secret" -t Normal')
        assert "success" in run(giving.broker, "createAcl -b BROKER -s User:carl -r Topic:Orders -a Pub -d Allow")
        copied = run(server.broker, f"copyUser -f {giving.broker} -t BROKER -u carl")
        assert "copy user of carl" in copied, copied
        assert "User:carl" in run(server.broker, f"copyAcl -f {giving.broker} -t BROKER -s User:carl")
    with administrator.producer(server.namesrv, "copied", retries=0, **carl) as producer:
        producer.send("Orders", [Message(b"x")])
