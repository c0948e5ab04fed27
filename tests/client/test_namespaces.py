"""A client with a namespace: brokers see the prefix, users do not, and others outside of it get nothing."""

import asyncio

import pytest

from appliance.client import Client, InvalidOption, Message, MessageQueue, Reject, aio, allocation
from appliance.client.core.names import with_namespace, without_namespace
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

PATIENT = 60.0
SPACE = "MQ_INST_1"


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("orders", "ns%orders"),
        ("%RETRY%billing", "%RETRY%ns%billing"),
        ("%DLQ%billing", "%DLQ%ns%billing"),
        ("TBW102", "TBW102"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("", ""),
    ],
)
def test_names_at_brokers_and_back(name, full):
    assert with_namespace("ns", name) == with_namespace("ns", full) == full
    assert without_namespace("ns", full) == name
    assert with_namespace("", name) == without_namespace("", name) == name
    assert without_namespace("other", full) == full


@pytest.fixture
def inside(rocketbox):
    with Client(rocketbox.namesrv, namespace=SPACE, timeout=PATIENT) as client:
        yield client


def test_every_kind_of_send_arrives_inside_and_nothing_outside(inside, rocketmq_topic, consumed):
    producer = inside.producer()
    sent = producer.send(rocketmq_topic, "0", shard="s")
    producer.send(rocketmq_topic, "1", queue=sent.queue)
    producer.send(rocketmq_topic, "2", select=lambda queues: queues[0])
    producer.send_batch([Message(rocketmq_topic, "3"), Message(rocketmq_topic, "4")])
    producer.send_oneway(rocketmq_topic, "5")
    found = consumed(f"{SPACE}%{rocketmq_topic}", 6, timeout=PATIENT)
    assert sorted(message.text for message in found) == list("012345")
    assert {message.properties["INSTANCE_ID"] for message in found} == {SPACE}
    consumed.none(rocketmq_topic)
    reader = inside.reader()
    queues = reader.queues(rocketmq_topic)
    assert {queue.topic for queue in queues} == {f"{SPACE}%{rocketmq_topic}"}
    pulled = [message for queue in queues for message in reader.pull(queue, 0).messages]
    assert {message.topic for message in pulled} == {rocketmq_topic}


def test_a_reader_asks_for_the_offset_of_the_group_inside(inside, rocketmq_topic, rocketmq_group):
    sent = inside.producer().send(rocketmq_topic, "0")
    polling = inside.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
    assert len(polling.poll(PATIENT)) == 1
    polling.poll(0)  # so it is done with the first
    polling.commit()
    assert inside.reader().committed(sent.queue, rocketmq_group) == sent.queue_offset + 1


def test_consumers_see_the_names_of_users_also_of_what_comes_again(inside, rocketmq_topic, rocketmq_group):
    found = []
    consumer = inside.push_consumer(rocketmq_group, start="first", ordered=True)

    @consumer.subscribe(rocketmq_topic)
    def handle(message):
        found.append((message.topic, message.attempt))
        if message.text == "bad":
            raise Reject("no good")
        if message.attempt == 1:
            raise ValueError

    consumer.start()
    inside.producer().send(rocketmq_topic, "good", shard="s")
    inside.producer().send(rocketmq_topic, "bad", shard="s")
    wait_for(lambda: len(found) == 3, "three attempts")
    assert found == [(rocketmq_topic, 1), (rocketmq_topic, 2), (rocketmq_topic, 1)]
    consumer.close()
    polling = inside.pull_consumer(f"{rocketmq_group}-2", start="first").subscribe(rocketmq_topic)
    polled = []
    wait_for(lambda: polled.extend(polling.poll(1.0)) or len(polled) == 2, "both messages")
    assert {message.topic for message in polled} == {rocketmq_topic}
    polling.seek(polled[0].queue, 0)
    assert polling.committed(polled[0].queue) is None or polling.committed(polled[0].queue) >= 0


def test_a_concurrent_handler_gets_its_message_again_by_its_own_topic(inside, rocketmq_topic, rocketmq_group):
    found = []
    consumer = inside.push_consumer(rocketmq_group, start="first", max_attempts=1)

    @consumer.subscribe(rocketmq_topic)
    def handle(message):
        found.append(message.topic)
        raise ValueError

    consumer.start()
    inside.producer().send(rocketmq_topic, "x")
    reader = inside.reader()

    def is_dead():
        try:
            queues = reader.queues(f"%DLQ%{rocketmq_group}")
        except Exception:
            return None
        return [one for queue in queues for one in reader.pull(queue, 0).messages]

    (dead,) = wait_for(is_dead, "its dead letter")
    assert found == [rocketmq_topic]
    assert dead.properties["RETRY_TOPIC"] == f"{SPACE}%{rocketmq_topic}"


@pytest.mark.parametrize("kind", ["pull_consumer", "push_consumer"])
def test_a_list_of_queues_is_shared_by_their_names_inside(inside, kind, rocketmq_topic, rocketmq_group):
    sent = inside.producer().send(rocketmq_topic, "x")
    own = MessageQueue(rocketmq_topic, sent.queue.broker_name, sent.queue.queue_id)
    consumer = getattr(inside, kind)(rocketmq_group, start="first", allocation=allocation.fixed([own]))
    found = []
    if kind == "push_consumer":
        consumer.subscribe(rocketmq_topic, handler=found.append)
        consumer.start()
        wait_for(lambda: found, "its message")
    else:
        found = consumer.subscribe(rocketmq_topic).poll(PATIENT)
    assert [message.text for message in found] == ["x"]


def test_asyncio_and_requests(rocketbox, rocketmq_topic, rocketmq_group):
    async def work():
        async with (
            aio.Client(rocketbox.namesrv, namespace=SPACE, timeout=PATIENT) as asking,
            aio.Client(rocketbox.namesrv, namespace=SPACE, timeout=PATIENT) as replying,
        ):
            consumer = replying.push_consumer(rocketmq_group, start="first")

            @consumer.subscribe(rocketmq_topic)
            async def handle(message):
                assert message.topic == rocketmq_topic
                await replying.producer().reply(message, "1.08")

            await consumer.start()
            return (await asking.producer().request(rocketmq_topic, "EURUSD", timeout=PATIENT)).text

    assert asyncio.run(work()) == "1.08"


@pytest.mark.parametrize("namespace", ["a b", "a%b", "x" * 300])
def test_what_is_no_namespace_is_refused(namespace):
    with pytest.raises(InvalidOption, match="namespace has letters"):
        Client("127.0.0.1:1", namespace=namespace)
