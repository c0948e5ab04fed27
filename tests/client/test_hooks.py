"""Hooks around sends and handlers, by threads and by asyncio: each call that begins ends, whatever becomes of it."""

import asyncio
from dataclasses import replace

import pytest

from appliance.client import Client, Hook, InvalidMessage, InvalidOption, Message, NoNameServer, Refused, aio
from tests.support.ports import reserve_port
from tests.support.waiting import wait_for, wait_in_loop

pytest_plugins = ("appliance.pytest_rocketbox",)

PATIENT = 60.0


class Forbidden(Exception):
    pass


class Audit(Hook):
    def __init__(self, name="audit", log=None):
        self.name = name
        self.log = [] if log is None else log

    def before_send(self, call):
        call.state[self] = len(self.log)
        self.log.append((self.name, "sends", call.message.body))
        if call.message.body == "forbidden":
            raise Forbidden(call.message.topic)
        call.message = replace(call.message, properties={**call.message.properties, self.name: "was here"})

    def after_send(self, call, result, error):
        assert self in call.state
        assert result is None or result.message_id == call.message_id
        self.log.append((self.name, "sent" if result else type(error).__name__, call.message.body))

    def before_consume(self, call):
        call.state[self] = True
        self.log.append((self.name, "handles", [message.text for message in call.messages]))

    def after_consume(self, call, error):
        assert call.state[self]
        self.log.append((self.name, type(error).__name__, [message.text for message in call.messages]))


class Broken(Hook):
    def after_send(self, call, result, error):
        raise ZeroDivisionError

    def after_consume(self, call, error):
        raise ZeroDivisionError


def by_threads(namesrv, hooks, act):
    with Client(namesrv, hooks=hooks, timeout=PATIENT) as client:
        return act(client.producer())


def by_asyncio(namesrv, hooks, act):
    async def work():
        async with aio.Client(namesrv, hooks=hooks, timeout=PATIENT) as client:
            return await act(client.producer())

    return asyncio.run(work())


def test_sends_of_every_kind(rocketbox, rocketmq_topic, consumed):
    log = []
    with rocketbox.client(hooks=[Audit("a", log), Broken(), Audit("b", log)], timeout=PATIENT) as client:
        producer = client.producer()
        producer.send(rocketmq_topic, "send")
        producer.flush(PATIENT)
        assert log == [("a", "sends", "send"), ("b", "sends", "send"), ("b", "sent", "send"), ("a", "sent", "send")]
        producer.submit(rocketmq_topic, "submit", callback=lambda result: log.append("called back")).result()
        list(producer.send_many([Message(rocketmq_topic, "many")]))
        producer.send_batch([Message(rocketmq_topic, "first"), Message(rocketmq_topic, "second")])
        producer.send_oneway(rocketmq_topic, "oneway")
    ends = [entry[1:] for entry in log if entry[0] == "a" and entry[1] != "sends"]
    assert sorted(ends, key=str) == sorted(
        [("sent", body) for body in ("send", "submit", "many", "first", "second")] + [("NoneType", "oneway")], key=str
    )
    assert log.index("called back") > log.index(("a", "sent", "submit"))
    messages = consumed(rocketmq_topic, 6, timeout=PATIENT)
    assert all(message.properties["a"] == message.properties["b"] == "was here" for message in messages)


def test_a_hook_forbids_and_those_before_it_see_the_end(rocketbox, rocketmq_topic, consumed):
    class Counting(Hook):
        ends = 0

        def after_send(self, call, result, error):
            self.ends += isinstance(error, Forbidden)

    first, last = Counting(), Counting()
    with Client(rocketbox.namesrv, hooks=[first, Audit(), last], timeout=PATIENT) as client:
        with pytest.raises(Forbidden):
            client.producer().send(rocketmq_topic, "forbidden")
        with pytest.raises(Forbidden):
            client.producer().send_oneway(rocketmq_topic, "forbidden")
        with pytest.raises(Forbidden):
            client.producer().send_batch([Message(rocketmq_topic, "good"), Message(rocketmq_topic, "forbidden")])
    assert (first.ends, last.ends) == (4, 1)  # the last one saw the good message, which went down with the batch
    with pytest.raises(Forbidden):
        by_asyncio(rocketbox.namesrv, [Audit()], lambda producer: producer.send(rocketmq_topic, "forbidden"))
    consumed.none(rocketmq_topic)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (Message("T", ""), InvalidMessage),
        (Message("SCHEDULE_TOPIC_XXXX", "x"), (InvalidMessage, Refused)),
        (Message("T", "x", delay_level=3, delay=5), InvalidMessage),
    ],
    ids=["body", "topic", "delay"],
)
def test_a_send_that_fails_ends(rocketbox, message, error):
    audit = Audit()
    with Client(rocketbox.namesrv, hooks=[audit], timeout=PATIENT) as client:
        with pytest.raises(error) as raised:
            client.producer().send(message)
        client.producer().flush(PATIENT)
        assert [entry[1] for entry in audit.log] == ["sends", raised.type.__name__]
        audit.log.clear()
        with pytest.raises(error) as raised:
            client.producer().send_batch([message, Message(message.topic, "y")])
        begun = [entry for entry in audit.log if entry[1] == "sends"]
        assert [entry[1] for entry in audit.log] == ["sends"] * len(begun) + [raised.type.__name__] * len(begun)
    audit.log.clear()
    with pytest.raises(error):
        by_asyncio(rocketbox.namesrv, [audit], lambda producer: producer.send(message))
    assert [entry[1] for entry in audit.log] == ["sends", raised.type.__name__]


@pytest.mark.parametrize("by", ["threads", "asyncio"])
def test_a_send_that_reaches_no_server_ends(by):
    audit, nobody = Audit(), f"127.0.0.1:{reserve_port()}"
    with pytest.raises(NoNameServer):
        (by_asyncio if by == "asyncio" else by_threads)(nobody, [audit], lambda producer: producer.send("T", "x"))
    assert [entry[1] for entry in audit.log] == ["sends", "NoNameServer"]


def test_around_handlers(rocketbox, rocketmq_topic, rocketmq_group):
    audit = Audit()
    with Client(rocketbox.namesrv, hooks=[audit, Broken()], timeout=PATIENT) as client:
        consumer = client.push_consumer(rocketmq_group, start="first", workers=1)
        found = []

        @consumer.subscribe(rocketmq_topic)
        def handle(message):
            found.append(message.text)
            if message.text == "bad":
                raise Forbidden("handler")

        consumer.start()
        client.producer().send(rocketmq_topic, "good")
        wait_for(lambda: len(found) == 1, "the message")
        client.producer().send(rocketmq_topic, "bad")
        wait_for(lambda: ("audit", "Forbidden", ["bad"]) in audit.log, "the end of the call")
    assert ("audit", "NoneType", ["good"]) in audit.log
    assert audit.log.index(("audit", "handles", ["bad"])) < audit.log.index(("audit", "Forbidden", ["bad"]))


def test_around_handlers_and_sends_of_asyncio(rocketbox, rocketmq_topic, rocketmq_group):
    audit = Audit()

    async def work():
        async with aio.Client(rocketbox.namesrv, hooks=[audit], timeout=PATIENT) as client:
            consumer = client.push_consumer(rocketmq_group, start="first")

            @consumer.subscribe(rocketmq_topic)
            async def handle(message):
                assert message.properties["audit"] == "was here"

            await consumer.start()
            await client.producer().send(rocketmq_topic, "x")
            await wait_in_loop(lambda: ("audit", "NoneType", ["x"]) in audit.log, "the end of the call")
            assert ("audit", "sent", "x") in audit.log

    asyncio.run(work())


def test_what_is_no_hook_is_refused():
    with pytest.raises(InvalidOption, match="instances of Hook"):
        Client("127.0.0.1:1", hooks=[print])


# --- pull consumers


def test_a_pull_consumers_hooks_see_what_is_taken_until_it_is_done(rocketbox, rocketmq_topic, rocketmq_group, produce):
    for text in ("0", "1", "2"):
        produce(rocketmq_topic, text, shard="one")
    audit = Audit()
    with rocketbox.client(timeout=PATIENT, hooks=[audit]) as client:
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        assert next(iter(consumer)).text == "0"
        assert audit.log == [("audit", "handles", ["0"])]
        assert next(iter(consumer)).text == "1"
        assert audit.log[1:] == [("audit", "NoneType", ["0"]), ("audit", "handles", ["1"])]
        consumer.commit()
        assert audit.log[3:] == [("audit", "NoneType", ["1"])]
        found = []
        wait_for(lambda: found.extend(consumer.poll(1.0)) or found, "the last message")
        consumer.close()
        assert audit.log[4:] == [("audit", "handles", ["2"]), ("audit", "Closed", ["2"])]


def test_what_ends_a_block_ends_a_pull_consumers_call(rocketbox, rocketmq_topic, rocketmq_group, produce):
    produce(rocketmq_topic, "0")
    audit = Audit()
    with rocketbox.client(timeout=PATIENT, hooks=[audit]) as client:

        def fail():
            with client.pull_consumer(rocketmq_group, start="first") as consumer:
                for _ in consumer.subscribe(rocketmq_topic):
                    raise Forbidden

        with pytest.raises(Forbidden):
            fail()
        with client.pull_consumer(rocketmq_group, start="first") as consumer:
            for _ in consumer.subscribe(rocketmq_topic):
                break
    assert [what for _, what, _ in audit.log] == ["handles", "Forbidden", "handles", "NoneType"]


def test_a_pull_consumers_hooks_by_asyncio(rocketbox, rocketmq_topic, rocketmq_group, produce):
    produce(rocketmq_topic, "0")
    audit = Audit()

    async def act():
        async with aio.Client(rocketbox.namesrv, hooks=[Refusing(), audit], timeout=PATIENT) as client:
            async for _ in client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic):
                break

    asyncio.run(act())
    assert audit.log == []  # the first hook's error is logged, and the message is given all the same

    async def again():
        async with aio.Client(rocketbox.namesrv, hooks=[audit], timeout=PATIENT) as client:
            consumer = client.pull_consumer(f"{rocketmq_group}-2", start="first")
            async for _ in consumer.subscribe(rocketmq_topic):
                break

    asyncio.run(again())
    assert [what for _, what, _ in audit.log] == ["handles", "NoneType"]


class Refusing(Hook):
    def before_consume(self, call):
        raise Forbidden
