"""Requests that wait for a reply, with a real broker: each requester gets the reply to its own request, or an error
that says what became of it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from appliance.client import InvalidMessage, Refused, RequestTimeout, aio
from appliance.client.core.request_reply import Question, of_request, take_reply
from appliance.client.errors import BadAnswer
from appliance.client.shells.threads import ThreadBell
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.properties import encode_properties
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

PATIENT = 60.0


@pytest.fixture
def client(rocketbox):
    with rocketbox.client(timeout=PATIENT) as client:
        yield client


@pytest.fixture
def listener(rocketbox, produce, rocketmq_topic, rocketmq_group):
    """Another client, whose consumer replies to what it gets, from the test's begin on."""
    produce(rocketmq_topic, "no request")  # makes the topic
    failed = []
    with rocketbox.client(timeout=PATIENT) as client:
        consumer = client.push_consumer(rocketmq_group, start="first")

        @consumer.subscribe(rocketmq_topic)
        def reply(message):
            try:
                client.producer().reply(message, f"re: {message.text}", keys=["k"])
            except InvalidMessage as error:
                failed.append(str(error))

        consumer.start()
        wait_for(lambda: failed, "the message that is no request")
        assert "asks for no reply" in failed[0]
        yield client


def test_each_requester_gets_its_own_reply(client, listener, rocketmq_topic):
    producer = client.producer()
    with ThreadPoolExecutor(8) as threads:
        asked = [str(number) for number in range(24)] + ["long " * 2000]
        replies = list(threads.map(lambda text: producer.request(rocketmq_topic, text, tags="quote"), asked))
    assert [reply.text for reply in replies] == [f"re: {text}" for text in asked]
    assert replies[0].properties["MSG_TYPE"] == "reply"
    assert (replies[0].keys, replies[0].topic) == (["k"], listener.producer().send(replies[0].topic, "x").queue.topic)
    assert not client._session.core.questions
    assert producer.flush() == 0


def test_tasks_request_and_reply_as_well(rocketbox, listener, rocketmq_topic, rocketmq_group):
    async def ask():
        both = [aio.Client(rocketbox.namesrv, timeout=PATIENT) for _ in range(2)]
        async with both[0] as client, both[1] as other:
            requests = (client.producer().request(rocketmq_topic, str(number)) for number in range(24))
            replies = [reply.text for reply in await asyncio.gather(*requests)]
            await other.producer().send(f"{rocketmq_topic}-tasks", "makes it", tags="none")
            consumer = other.push_consumer(f"{rocketmq_group}-tasks", start="first")

            @consumer.subscribe(f"{rocketmq_topic}-tasks", tags="asks")
            async def reply(message):
                await other.producer().reply(message, f"a task's: {message.text}")

            await consumer.start()
            task = await client.producer().request(f"{rocketmq_topic}-tasks", "x", tags="asks")
            waiting = asyncio.create_task(client.producer().request(rocketmq_topic, "cancelled"))
            while not client._session.core.questions:
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait((waiting,))
            assert not client._session.core.questions
            return [*replies, task.text]

    assert asyncio.run(ask()) == [*(f"re: {number}" for number in range(24)), "a task's: x"]


class Impatient(ThreadBell):
    def wait_for(self, predicate, timeout):
        return super().wait_for(predicate, min(timeout, 0.1))


def test_a_request_without_a_reply_is_stored_and_says_so(client, consumed, rocketbox, rocketmq_topic):
    producer, session = client.producer("asks"), client._session
    session.bell = Impatient  # its reply alone is late, however long the send takes
    with pytest.raises(RequestTimeout, match="The request is stored"):
        producer.request(rocketmq_topic, "anybody?")
    assert not client._session.core.questions
    (request,) = consumed(rocketmq_topic, 1, timeout=PATIENT)
    with rocketbox.client(timeout=PATIENT) as other:
        replier = other.producer("replies")
        assert replier.reply(request, "too late, and no harm").queue_offset >= 0
        client.close()
        with pytest.raises(Refused, match="push reply message fail") as gone:
            replier.reply(request, "to nobody")
    assert gone.value.code == 1


@pytest.mark.parametrize("options", [{"delay": 1}, {"delay_level": 1}])
def test_a_request_waits_for_nothing_but_its_reply(client, rocketmq_topic, options):
    with pytest.raises(InvalidMessage, match="no delay"):
        client.producer().request(rocketmq_topic, "x", **options)


def push(**changed):
    fields = {
        "topic": "C_REPLY_TOPIC", "queueId": "0", "sysFlag": "0", "flag": "0", "bornTimestamp": "1",
        "storeTimestamp": "2", "reconsumeTimes": "0", "bornHost": "/127.0.0.1:5", "storeHost": "127.0.0.1:6",
        "properties": encode_properties(of_request("id", "me", 3.0)),
    }  # fmt: skip
    return RemotingCommand(326, ext_fields=fields | changed, body=b"reply")


def test_a_pushed_reply_is_its_requesters():
    woken = []
    question = Question(lambda: woken.append(1))
    assert not take_reply({"other": question}, "b:1", push())
    assert take_reply({"id": question}, "b:1", push())
    second = push()
    second.body = b"another group's"
    assert not take_reply({"id": question}, "b:1", second)
    assert question.reply.body == b"reply"
    assert woken == [1]


@pytest.mark.parametrize("changed", [{"bornHost": "x"}, {"storeHost": ""}, {"queueId": "z"}, {"sysFlag": ""}])
def test_a_pushed_reply_that_cannot_be_read_wakes_nobody(changed):
    question = Question(lambda: pytest.fail("it was woken"))
    with pytest.raises(BadAnswer):
        take_reply({"id": question}, "b:1", push(**changed))
    assert question.reply is None
