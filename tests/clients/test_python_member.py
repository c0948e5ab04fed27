"""mqadmin of both versions at a consumer of the Python client, as at one of Java's, and at its traces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from appliance.client import Client, ReceivedMessage
from tests.clients import mqadmin
from tests.clients.agents import Agent
from tests.clients.conftest import JAVA, Target, newest_first
from tests.support.waiting import wait_for

PATIENT = 60.0


@pytest.mark.parametrize("agent", newest_first(*JAVA), indirect=True)
def test_mqadmin_looks_at_a_python_consumer_and_hands_it_a_message(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic, found = new_topic(queues=2), []

    def run(line: str) -> str:
        return mqadmin.run(agent, target.namesrv, line)

    def handle(message: ReceivedMessage) -> None:
        found.append(message.message_id)

    with Client(target.namesrv, trace=True, timeout=PATIENT) as client:
        consumer = client.push_consumer(group, start="first")
        consumer.subscribe(topic, handler=handle)
        consumer.start()
        sent = client.producer().send(topic, "x", tags="apples", keys=["order-1"])
        wait_for(lambda: found, "the message")
        printed = run(f"consumerStatus -g {group} -i {client.client_id} -s")
        for part in ("#Consumer Properties#", "PROP_CONSUMEORDERLY", "#Consumer Offset#", "#Consumer RT&TPS#"):
            assert part in printed, printed
        assert topic in printed.partition("#Consumer Offset#")[2]
        assert "test_python_member" in printed or "rocketbox-client" in printed.partition("#Consumer jstack#")[2], (
            printed
        )
        line = f"queryMsgById -i {sent.offset_id} -g {group} -d {client.client_id}"
        printed = run(line + ("" if "4.9" in agent.name else f" -t {topic}"))
        assert "CR_SUCCESS" in printed, printed
        wait_for(lambda: found.count(sent.message_id) == 2, "the message, a second time")
    printed = run(f"queryMsgTraceById -i {sent.message_id}")
    assert "Pub" in printed, printed
    assert group in printed, printed
