"""Message trace in Apache's format: sends and handlers leave records in a topic, found by the ids of messages."""

import asyncio

import pytest

from appliance.client import Client, InvalidOption, Message, NoRoute, Retry, aio, trace
from appliance.client.core.trace import MOST_CHARACTERS, Handed, Traced, messages_of
from appliance.client.trace import Tracer
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

PATIENT = 60.0
TOPIC = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A busy machine loses no trace: as Java's, one that is not sent within 5 s is lost."""
    monkeypatch.setattr(trace, "_TIMEOUT_S", PATIENT)


def lines(rocketbox, message_id, topic=TOPIC):
    """The records about a message, as lists of fields."""
    with rocketbox.client(timeout=PATIENT) as client:
        reader, found = client.reader(), []
        # The broker makes a topic at its first record, and then registers it.
        for queue in wait_for(lambda: reader.queues(topic), f"the route of {topic}", not_yet=(NoRoute,)):
            offset = reader.min_offset(queue)
            while pulled := reader.pull(queue, offset).messages:
                offset = pulled[-1].queue_offset + 1
                for message in pulled:
                    if message_id in message.keys:
                        records = [text.split("\x01") for text in message.text.split("\x02")[:-1]]
                        found += [fields for fields in records if message_id in fields]
        return found


def test_what_is_sent_and_handled(rocketbox, rocketmq_topic, rocketmq_group):
    with Client(rocketbox.namesrv, trace=True, timeout=PATIENT) as client:
        consumer = client.push_consumer(rocketmq_group, start="first")
        handled = []

        @consumer.subscribe(rocketmq_topic)
        def handle(message):
            handled.append(message)
            raise Retry(level=18)

        consumer.start()
        sent = client.producer("traced").send(rocketmq_topic, "body", tags="apples", keys=["order-1", "o1"])
        wait_for(lambda: handled, "the message")
    pub, before, after = sorted(
        lines(rocketbox, sent.message_id), key=lambda fields: ("Pub", "SubBefore", "SubAfter").index(fields[0])
    )
    assert pub[2:8] == ["DefaultRegion", "traced", rocketmq_topic, sent.message_id, "apples", "order-1 o1"]
    assert pub[8] == rocketbox.broker
    assert pub[9] == "4"
    assert pub[11:] == ["0", sent.offset_id, "true"]
    assert before[3] == rocketmq_group
    assert before[5:] == [sent.message_id, "0", "order-1 o1"]
    assert after[1] == before[4]
    assert after[2] == sent.message_id
    assert after[4:7] == ["false", "order-1 o1", "4"]
    assert after[8] == rocketmq_group


def test_what_a_pull_consumer_gives(rocketbox, rocketmq_topic, rocketmq_group):
    with Client(rocketbox.namesrv, trace=True, timeout=PATIENT) as client:
        sent = [client.producer().send(rocketmq_topic, str(number), shard="one") for number in range(2)]
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        assert [message.message_id for _, message in zip(sent, consumer, strict=False)] == [
            one.message_id for one in sent
        ]
        consumer.close()
    codes = []
    for one in sent:
        (before,), (after,) = (
            [fields for fields in lines(rocketbox, one.message_id) if fields[0] == kind]
            for kind in ("SubBefore", "SubAfter")
        )
        assert (before[3], before[4], before[5]) == (rocketmq_group, after[1], one.message_id)
        codes.append(after[6])
    assert codes == ["0", "2"]  # the second one was not done at the close


def test_asyncio_batches_delays_and_a_topic_of_ones_own(rocketbox, rocketmq_topic):
    async def work():
        async with aio.Client(rocketbox.namesrv, trace="MyTraces", namespace="ns", timeout=PATIENT) as client:
            later = await client.producer().send(rocketmq_topic, "x", delay_level=1)
            several = await client.producer().send_batch([Message(rocketmq_topic, "a"), Message(rocketmq_topic, "b")])
            return [later, *several]

    results = asyncio.run(work())
    kinds = []
    for result in results:
        (pub,) = lines(rocketbox, result.message_id, "MyTraces")
        assert pub[3:5] == ["PYTHON_PRODUCER", rocketmq_topic]
        kinds.append(pub[11])
    assert kinds == ["3", "0", "0"]


def test_records_of_one_topic_travel_together_up_to_javas_size():
    records = [Traced(f"t{number % 2}", f"{number}" * 1000 + "\x02", (f"k{number % 7}",)) for number in range(300)]
    found = list(messages_of(records))
    assert sorted("".join(body for body, _ in found)) == sorted("".join(one.text for one in records))
    assert all(len(body) <= MOST_CHARACTERS for body, _ in found)
    assert len(found) > 2
    assert all(len(keys) <= 7 for _, keys in found)


def test_the_keys_of_records_that_travel_together_fit_into_their_properties():
    """Of a handler's batch of 1024 messages the broker refused the trace."""
    records = [Handed("R" * 32, "g", "t", f"{number:032}", (f"ä{number}",)).after(1, 1, 0) for number in range(1024)]
    sent = list(messages_of(records))
    assert len(sent) == 2
    assert all(len(" ".join(keys).encode()) <= 32_000 for _, keys in sent)
    assert "".join(body for body, _ in sent) == "".join(record.text for record in records)
    assert [key for _, keys in sent for key in keys] == [key for record in records for key in record.keys]


def test_a_topic_that_cannot_be_is_refused():
    with pytest.raises(InvalidOption, match="trace is True"):
        Tracer("no topic!")


def test_traces_that_cannot_be_sent_are_lost_and_bounded(rocketbox, rocketmq_topic):
    with Client(rocketbox.namesrv, trace=True, timeout=PATIENT) as client:
        tracer = client._tracer
        tracer.flush = lambda: None
        for number in range(3000):
            tracer._keep([Traced("t", f"{number}\x02", ())])
        assert len(tracer._calls) == 2048
        assert client.producer().send(rocketmq_topic, "x")
        tracer._calls.clear()
