"""Figures of a client: messages sent and handled, by topic and group."""

import asyncio

import pytest

from appliance.client import Client, ClientError, Message, TopicStats, aio
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

PATIENT = 60.0


def test_messages_are_counted_once(rocketbox, rocketmq_topic, rocketmq_group):
    with Client(rocketbox.namesrv, timeout=PATIENT) as client:
        producer = client.producer("counted")
        producer.send(rocketmq_topic, "good")
        producer.send_batch([Message(rocketmq_topic, "good"), Message(rocketmq_topic, "bad")])
        with pytest.raises(ClientError):
            producer.send(rocketmq_topic, "x", properties={"": "x"})  # it was never begun
        with pytest.raises(ClientError):
            producer.send("%DLQ%nobody-has-it", "x", delay_level=-1)
        consumer = client.push_consumer(rocketmq_group, start="first", max_attempts=1)

        @consumer.subscribe(rocketmq_topic)
        def handle(message):
            if message.text == "bad":
                raise ValueError

        consumer.start()
        row = TopicStats(rocketmq_topic, rocketmq_group, consumed=2, failed=1)
        wait_for(lambda: row in client.stats(), "all three")
        assert client.stats() == [TopicStats(rocketmq_topic, "counted", sent=3), row]


def test_what_fails_is_counted_with_asyncio(rocketmq_topic):
    async def work():
        async with aio.Client("127.0.0.1:1", timeout=PATIENT) as client:
            with pytest.raises(ClientError):
                await client.producer().send(rocketmq_topic, "x")
            return client.stats()

    assert asyncio.run(work()) == [TopicStats(rocketmq_topic, "PYTHON_PRODUCER", failed_sends=1)]
