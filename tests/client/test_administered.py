"""Consumers whom administrators ask how they are, hand a message, or send elsewhere: 220, 221, 307 and 309, through a
broker that passes them on, for threads and for asyncio."""

import asyncio
import contextlib
import threading
from functools import partial

import pytest

from appliance.client import Client, Retry, aio
from appliance.engine.errors import NotFound
from appliance.engine.protocol.codes import RequestCode
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

PATIENT = 60.0
COUNT = 6


@pytest.fixture(scope="module")
def running(request):
    made = RunningEngine(shared_directory(request, "asks"), broker={"use_server_side_reset_offset": False})
    yield made
    made.stop()


@contextlib.contextmanager
def threads(running, group, topic, handler, **options):
    with Client(str(running.engine.namesrv_address), timeout=PATIENT) as client:
        consumer = client.push_consumer(group, start="first", **options)
        consumer.subscribe(topic, handler=handler)
        consumer.start()
        yield client.client_id


@contextlib.contextmanager
def asyncio_tasks(running, group, topic, handler, **options):
    """The same in an event loop of a thread's; the handler is a coroutine function."""
    began, ended, ids = threading.Event(), threading.Event(), []

    async def work():
        async with aio.Client(str(running.engine.namesrv_address), timeout=PATIENT) as client:
            consumer = client.push_consumer(group, start="first", **options)

            async def handle(message):
                await asyncio.to_thread(handler, message)

            consumer.subscribe(topic, handler=handle)
            await consumer.start()
            ids.append(client.client_id)
            began.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=partial(asyncio.run, work()))
    thread.start()
    try:
        assert began.wait(PATIENT)
        yield ids[0]
    finally:
        ended.set()
        thread.join(PATIENT)


both = pytest.mark.parametrize("consumer", [threads, asyncio_tasks], ids=["threads", "asyncio"])
names = iter(range(1000))


@pytest.fixture
def topic(running):
    """A topic with messages in queue 0."""
    name = f"Asked{next(names)}"
    running.put(name, *(b"%d" % number for number in range(COUNT)))
    return name


class Handler:
    """found: bodies, as they came. holds: what the handler waits for before it returns."""

    def __init__(self):
        self.found = []
        self.holds = None
        self.raises = None

    def __call__(self, message):
        self.found.append(int(message.text))
        if self.holds is not None:
            self.holds.wait(PATIENT)
        if self.raises is not None:
            raise self.raises

    def has_all(self, times=1):
        return all(self.found.count(number) >= times for number in range(COUNT))


def test_how_a_consumer_is(running, topic):
    handler = Handler()
    handler.holds = threading.Event()
    with threads(running, f"g-{topic}", topic, handler, workers=3, ordered=True) as client_id:
        wait_for(lambda: handler.found, "the first message")
        info = running.window.asking.running_info(f"g-{topic}", client_id, stack=True)
        handler.holds.set()
        wait_for(handler.has_all, "all messages")
        after = wait_for(
            lambda: next(
                (
                    one
                    for one in [running.window.asking.running_info(f"g-{topic}", client_id)]
                    if {row.topic: row.consumed_rate for row in one.rates}[topic] >= COUNT / 60 - 0.001
                ),
                None,
            ),
            "rates",
        )
    assert info.language == "PYTHON"
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "3"
    assert info.properties["PROP_NAMESERVER_ADDR"] == f"{running.engine.namesrv_address};"
    assert info.started_at_ms > 1_700_000_000_000
    assert info.left_out == 0
    (queue,) = [one for one in info.queues if one.topic == topic and one.queue_id == 0]
    assert (queue.locked, queue.dropped, queue.committed, queue.cached) == (True, False, 0, COUNT - 1)
    assert queue.last_pull_at_ms > 1_700_000_000_000
    assert "Handler.__call__" in info.stack
    assert {row.topic for row in info.subscriptions} == {topic, f"%RETRY%g-{topic}"}
    assert after.stack is None
    (rates,) = [one for one in after.rates if one.topic == topic]
    assert rates.pull_rate > 0
    assert rates.failed == 0


def test_how_a_consumer_of_asyncio_is(running, topic):
    handler = Handler()
    handler.raises = Retry(after=3600)
    with asyncio_tasks(running, f"g-{topic}", topic, handler, workers=3) as client_id:
        wait_for(handler.has_all, "all messages")

        def failed():
            info = running.window.asking.running_info(f"g-{topic}", client_id, stack=True)
            return info if {row.topic: row.failed for row in info.rates}[topic] == COUNT else None

        info = wait_for(failed, "figures")
    assert "rocketbox-" in info.stack
    assert "TASK" in info.stack


@both
def test_a_message_is_handled_for_an_administrator(running, topic, consumer):
    handler, group = Handler(), f"g-{topic}"
    ask = running.window.asking.consume_directly
    with consumer(running, group, topic, handler) as client_id:
        wait_for(handler.has_all, "all messages")
        said = ask(group, client_id, f"{topic}/0/3")
        assert (said.result, said.in_order, said.auto_commit, said.remark) == ("CR_SUCCESS", False, True, "")
        assert handler.found.count(3) == 2
        handler.raises = ValueError("no such customer")
        said = ask(group, client_id, f"{topic}/0/4")
        assert said.result == "CR_THROW_EXCEPTION"
        assert "ValueError: no such customer" in said.remark
        handler.raises = Retry(level=1)
        assert ask(group, client_id, f"{topic}/0/4").result == "CR_LATER"
        with pytest.raises(NotFound):
            ask(f"{group}-other", client_id, f"{topic}/0/4")
    assert len(handler.found) == COUNT + 3  # what failed is not sent back


@both
def test_where_a_consumer_is(running, topic, consumer):
    handler, group = Handler(), f"g-{topic}"
    with consumer(running, group, topic, handler) as client_id:
        wait_for(handler.has_all, "all messages")

        def table():
            fields = {"topic": topic, "group": group, "clientAddr": ""}
            answer = running.peer().ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
            assert answer.code == 0, answer
            return (
                f'{{"brokerName":"broker-a","queueId":0,"topic":"{topic}"}}:{COUNT}' in answer.body.decode() and answer
            )

        assert client_id in wait_for(table, "its place").body.decode()


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@both
def test_a_consumer_begins_again_elsewhere_once_its_handler_has_ended(running, topic, consumer, ordered, monkeypatch):
    monkeypatch.setattr("appliance.client.push_consumer._COMMIT_S", 0.3)
    handler, group = Handler(), f"g-{topic}"
    with consumer(running, group, topic, handler, ordered=ordered) as client_id:
        wait_for(handler.has_all, "all messages")

        def committed():
            fields = [{"consumerGroup": group, "topic": topic, "queueId": n} for n in range(queues)]
            answers = [running.peer().ask(RequestCode.QUERY_CONSUMER_OFFSET, one) for one in fields]
            return [answer.ext_fields.get("offset") for answer in answers]

        queues = running.engine.broker.topics.get(topic).write_queue_nums
        wait_for(lambda: committed() == [str(COUNT), *["0"] * (queues - 1)], "its offsets are committed")
        handler.holds = threading.Event()
        running.put(topic, b"99")
        wait_for(lambda: 99 in handler.found, "a message whose handler does not end")
        fields = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
        answer = running.peer().ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        assert answer.code == 0, answer

        def is_let_go():
            queues = running.window.asking.running_info(group, client_id).queues
            return (topic, 0) not in {(queue.topic, queue.queue_id) for queue in queues}

        wait_for(is_let_go, "the queue rests until the handler ends")
        assert all(is_let_go() for _ in range(50))
        assert handler.found.count(0) == 1
        holds, handler.holds = handler.holds, None
        holds.set()
        wait_for(lambda: handler.has_all(2) and handler.found.count(99) == 2, "all messages again")
    assert [handler.found.count(number) for number in (*range(COUNT), 99)] == [2] * (COUNT + 1)
