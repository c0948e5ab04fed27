"""Messages asked for by key, unique id and offset id, by the clients that have such questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.agents import Agent, ClientFailed
from tests.clients.conftest import JAVA, Target
from tests.clients.messages import Message, assert_delivered, assert_same, plain, rich
from tests.support.engine import Peer, records

#: "Aa" and "BB" have the same hash in Java, and so do all keys that differ in these only.
TWINS = (Message(b"one", keys=("twin-Aa",)), Message(b"other", keys=("twin-BB",)))


@pytest.fixture
def ask(agent: Agent, target: Target, topic: str) -> Callable[..., Any]:
    def ask(command: str, **arguments: Any) -> Any:
        return agent.do(f"admin.{command}", namesrv=target.namesrv, topic=topic, **arguments)

    return ask


@pytest.mark.parametrize("agent", [*JAVA, "python"], indirect=True)
def test_messages_are_found_by_key(
    agent: Agent, target: Target, new_topic: Callable[..., str], ask: Callable[..., Any]
) -> None:
    topic, messages = new_topic(), [*rich(40, flags=agent.has_flags), *TWINS]
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, messages)
    [found] = ask("query", key="order-7")
    assert_same(messages[7], found)
    odd = ask("query", key="second", max=64)
    assert_delivered(messages[1:40:2], acks[1:40:2], odd)
    assert [message["physical_offset"] for message in odd] == sorted(message["physical_offset"] for message in odd)
    newest = ask("query", key="second", max=3)
    assert_delivered(messages[35:40:2], acks[35:40:2], newest)
    at = [message["store_at_ms"] for message in odd]
    between = ask("query", key="second", begin=at[4], end=at[9])
    assert {message["physical_offset"] for message in between} == {
        message["physical_offset"] for message in odd if at[4] <= message["store_at_ms"] <= at[9]
    }
    for twin, key in zip(TWINS, ("twin-Aa", "twin-BB"), strict=True):
        [found] = ask("query", key=key)
        assert_same(twin, found)
    with pytest.raises(ClientFailed):
        ask("query", key="order-41")


@pytest.mark.parametrize("agent", [*JAVA, "python"], indirect=True)
def test_a_message_is_found_by_each_of_its_ids(
    agent: Agent, target: Target, new_topic: Callable[..., str], ask: Callable[..., Any]
) -> None:
    topic, messages = new_topic(), plain(5)
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, messages)
    for message, ack in zip(messages, acks, strict=True):
        for name in (ack["msg_id"], ack["offset_msg_id"]):
            assert_delivered([message], [ack], [ask("view", message=name)])
    place = acks[2]["offset_msg_id"]
    for nothing in (place[:-1] + f"{int(place[-1], 16) ^ 1:X}", place[:-4] + "FFFF"):
        with pytest.raises(ClientFailed):
            ask("view", message=nothing)


@pytest.mark.parametrize("agent", ["go"], indirect=True)
def test_messages_of_a_client_without_questions_are_found(
    agent: Agent, target: Target, new_topic: Callable[..., str]
) -> None:
    """The Go client sends ids and keys of its own making, and can ask for none."""
    topic, messages = new_topic(), rich(6)
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, messages)
    peer = Peer(target.broker)
    span = {"topic": topic, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1, "maxNum": 32}
    try:
        for number, ack in enumerate(acks):
            by_id = peer.ask(12, span | {"key": ack["msg_id"], "_UNIQUE_KEY_QUERY": "true"})
            by_key = peer.ask(12, span | {"key": f"order-{number}"})
            by_place = peer.ask(33, {"offset": int(ack["offset_msg_id"][-16:], 16)})
            assert by_id.body == by_key.body == by_place.body
            [record] = records(by_id.body)
            assert (record.queue_id, record.queue_offset) == (ack["queue_id"], ack["queue_offset"])
    finally:
        peer.close()
