"""The admin client (mqadmin's library) creates, lists, reads and deletes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.agents import Agent, ClientFailed
from tests.clients.conftest import JAVA, Target, create_topic, wait_for_clients
from tests.clients.messages import plain

pytestmark = pytest.mark.parametrize("agent", JAVA, indirect=True)


def test_a_topic_is_created_changed_listed_and_deleted(agent: Agent, target: Target, topic: str) -> None:
    def ask(command: str, **arguments: object) -> object:
        return agent.do(f"admin.{command}", namesrv=target.namesrv, broker=target.broker, topic=topic, **arguments)

    create_topic(agent, target, topic, read_queues=5, write_queues=3)
    assert ask("topic") == {"topic": topic, "read_queues": 5, "write_queues": 3, "perm": 6, "order": False}
    assert topic in ask("all_topics")
    [queue] = ask("route")["queues"]
    assert (queue["read_queues"], queue["write_queues"], queue["perm"]) == (5, 3, 6)

    ask("create_topic", read_queues=6, write_queues=6, perm=4, order=False)
    changed = {"read_queues": 6, "write_queues": 6, "perm": 4}
    assert ask("topic") == {"topic": topic, "order": False} | changed
    wait_for_clients(lambda: changed.items() <= ask("route")["queues"][0].items(), "the route shows the change")
    with agent.producer(target.namesrv) as producer, pytest.raises(ClientFailed):
        producer.send(topic, plain(1))  # not writable

    ask("delete_topic")
    wait_for_clients(lambda: topic not in ask("topics"), "the topic is gone from the name server")
    assert topic not in ask("all_topics")
    with pytest.raises(ClientFailed) as unknown:
        ask("route")
    assert unknown.value.code == 17


@pytest.mark.own
def test_a_topic_made_again_goes_on_behind_what_was_deleted(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    """So whoever has an old offset steps over nothing; Apache begins at 0 again (docs/compatibility.md)."""
    topic = new_topic(queues=1)
    with agent.producer(target.namesrv) as producer:
        producer.send(topic, plain(5))
        agent.do("admin.delete_topic", namesrv=target.namesrv, broker=target.broker, topic=topic)
        create_topic(agent, target, topic, queues=1)
        assert [ack["queue_offset"] for ack in producer.send(topic, plain(2))] == [5, 6]


def test_create_topic_by_key_uses_every_broker_of_the_key(agent: Agent, target: Target, topic: str) -> None:
    agent.do("admin.create_topic_by_key", namesrv=target.namesrv, key="TBW102", topic=topic, queues=3)
    wait_for_clients(lambda: topic in agent.do("admin.topics", namesrv=target.namesrv), f"{topic} is routed")
    [queue] = agent.do("admin.route", namesrv=target.namesrv, topic=topic)["queues"]
    assert (queue["read_queues"], queue["write_queues"]) == (3, 3)


def test_the_route_and_the_cluster_name_the_broker(agent: Agent, target: Target, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    [broker] = agent.do("admin.route", namesrv=target.namesrv, topic=topic)["brokers"]
    assert broker["addresses"] == {"0": target.broker}
    cluster = agent.do("admin.cluster", namesrv=target.namesrv)
    assert broker["name"] in cluster["clusters"][broker["cluster"]]
    assert cluster["brokers"][broker["name"]] == {"0": target.broker}


def test_a_group_is_created_changed_listed_and_deleted(agent: Agent, target: Target, group: str) -> None:
    def ask(command: str, **arguments: object) -> object:
        return agent.do(f"admin.{command}", namesrv=target.namesrv, broker=target.broker, group=group, **arguments)

    ask("create_group", retries=3, retry_queues=2)
    assert ask("group") == {"group": group, "retries": 3, "retry_queues": 2, "broadcast": True}
    assert group in ask("groups")
    ask("create_group", retries=5, retry_queues=1, no_broadcast=True)
    assert ask("group") == {"group": group, "retries": 5, "retry_queues": 1, "broadcast": False}
    ask("delete_group")
    assert group not in ask("groups")


def test_a_consumer_creates_its_group(agent: Agent, target: Target, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(queues=1)
    with agent.push(target.namesrv, topic, group) as consumer:
        consumer.wait_for_queues(1)
        assert group in agent.do("admin.groups", namesrv=target.namesrv, broker=target.broker)
        assert f"%RETRY%{group}" in agent.do("admin.all_topics", namesrv=target.namesrv, broker=target.broker)


def test_configuration_and_runtime_are_readable(agent: Agent, target: Target) -> None:
    config = agent.do("admin.broker_config", namesrv=target.namesrv, broker=target.broker)
    assert config["brokerClusterName"] == "DefaultCluster"
    assert config["listenPort"] == target.broker.rpartition(":")[2]
    assert config["autoCreateTopicEnable"] == "true"
    runtime = agent.do("admin.runtime", namesrv=target.namesrv, broker=target.broker)
    assert {"bootTimestamp", "brokerVersionDesc", "putTps", "msgPutTotalTodayNow"} <= runtime.keys()


def test_offsets_are_readable_through_the_admin_client(
    agent: Agent, target: Target, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(queues=1)
    with agent.producer(target.namesrv) as producer:
        [ack, *_] = producer.send(topic, plain(3))
    queue = {"topic": topic, "broker": ack["broker"], "queue_id": 0}
    found = agent.do("admin.offsets", namesrv=target.namesrv, queue=queue, timestamp_ms=0)
    assert (found["min"], found["max"], found["at"]) == (0, 3, 0)
    assert found["earliest_ms"] > 0


def test_key_values_are_kept_by_the_name_server(agent: Agent, target: Target, topic: str) -> None:
    asking = {"namesrv": target.namesrv, "namespace": "tests", "key": topic}
    agent.do("admin.put_kv", value="a value, 值", **asking)
    assert agent.do("admin.get_kv", **asking) == "a value, 值"
