"""The client of asyncio against a real broker: the same core, with awaited calls. Nothing is lost by cancellations,
and a close that is awaited leaves nothing behind."""

import asyncio
import functools
import gc
import os
import re
import signal
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from appliance.client import (
    Closed,
    CloseReport,
    Decision,
    ForkedError,
    InvalidMessage,
    InvalidOption,
    Message,
    NoNameServer,
    NoRoute,
    NotConnected,
    Reject,
    RequestRefused,
    Retry,
    SendResult,
    SendTimeout,
    Suspend,
    TooMuchInFlight,
    aio,
)
from appliance.client.shells.tasks import TaskBell, TaskWorker
from tests.support.directories import shared_directory
from tests.support.ports import reserve_port
from tests.support.waiting import wait_in_loop

pytest_plugins = ("appliance.pytest_rocketbox",)

#: A deadline long enough that only a hang misses it.
PATIENT = 60.0
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = "messageDelayLevel=1s 1s 1s 1s\ntransactionTimeOut=100\ntransactionCheckInterval=200\n"


def in_loop(test):
    """Run a coroutine function as a test. It fails if it leaves a task behind, or a thread of a client."""

    async def alone(*arguments, **options):
        await asyncio.wait_for(test(*arguments, **options), 2 * PATIENT)
        await asyncio.sleep(0)  # tasks that were cancelled end in the loop's next turn
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left

    @functools.wraps(test)
    def run(*arguments, **options):
        asyncio.run(alone(*arguments, **options), debug=True)

    return run


@pytest.fixture(scope="module")
def box(request):
    """A server with short delays, that checks transactions early."""
    from appliance.pytest_rocketbox import RocketBox  # pytest loads it as a plugin first

    directory = shared_directory(request, "box")
    (directory / "broker.conf").write_text(SETTINGS)
    port = reserve_port()
    ports = ("--broker-port", str(port), "--namesrv-port", str(port + 2))
    server = RocketBox(directory, "-c", str(directory / "broker.conf"), *ports)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def troubled(box):
    """The same server for tests that pause it, or stop it and start it again."""
    yield box
    box.resume()


@pytest.fixture
def client(box):
    """A client that was made before the loop runs; a test closes it by `async with`."""
    return aio.Client(box.namesrv, timeout=PATIENT)


async def queues_of(client, topic):
    """The topic's queues, once the name server knows it: that is a moment after its first message."""
    while True:
        try:
            return await client.reader().queues(topic)
        except NoRoute:
            await asyncio.sleep(0.01)


async def taken(consumer, count):
    found = []
    while len(found) < count:
        found += await consumer.poll(PATIENT)
    return found


class Seen:
    """A handler that notes what it was given. hold: it waits for `go` before the end of these texts."""

    def __init__(self, *hold):
        self.texts, self.done = [], []
        self.go, self.holds = asyncio.Event(), asyncio.Event()
        self._hold = hold

    async def __call__(self, message):
        self.texts.append(message.text)
        if message.text in self._hold:
            self.holds.set()
            await self.go.wait()
        self.done.append(message.text)


# --- sends


@in_loop
async def test_a_message_comes_as_it_was_sent_and_no_thread_is_made(client, box, rocketmq_topic, rocketmq_group):
    before = set(threading.enumerate())
    body = bytes(range(256)) * 40
    async with client:
        sent = await client.producer().send(rocketmq_topic, body, tags="paid", keys=["k1"], shard="order-1001")
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic, "paid")
        message = await anext(consumer)
        assert (message.body, message.message_id, message.queue) == (body, sent.message_id, sent.queue)
        assert set(threading.enumerate()) <= before
        assert client.producer() is client.producer()
        assert consumer.assignment()
    assert await client.close() == CloseReport()
    async with aio.Client(box.namesrv, timeout=PATIENT) as again:
        consumer = again.pull_consumer(rocketmq_group).subscribe(rocketmq_topic)
        assert await consumer.committed(sent.queue) == sent.queue_offset + 1


@in_loop
async def test_sends_of_one_turn_leave_together_and_are_stored_once(client, rocketmq_topic, rocketmq_group):
    async with client:
        producer = client.producer(max_in_flight=50)
        await producer.send(rocketmq_topic, "first")
        sent = await asyncio.gather(*(producer.send(rocketmq_topic, str(number)) for number in range(200)))
        assert len({one.message_id for one in sent}) == 200
        assert await producer.flush() == 0
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        texts = [message.text for message in await taken(consumer, 201)]
        assert sorted(texts) == sorted(["first", *map(str, range(200))])


async def numbered(count):
    for number in range(count):
        yield Message("T", str(number))


@in_loop
async def test_many_come_back_in_order_from_sources_of_both_kinds(client, rocketmq_topic):
    async with client:
        producer = client.producer()
        most = 0

        def messages():
            nonlocal most
            for number in range(40):
                most = max(most, producer.in_flight)
                yield Message(rocketmq_topic, str(number) if number != 5 else "", shard=1)

        outcomes = [outcome async for outcome in producer.send_many(messages(), window=8)]
        assert isinstance(outcomes.pop(5), InvalidMessage)
        assert [one.queue_offset for one in outcomes] == list(range(39))
        assert most <= 8
        assert len([one async for one in producer.send_many(numbered(20))]) == 20
        with pytest.raises(InvalidOption, match="window"):
            producer.send_many([], window=0)


@in_loop
async def test_messages_that_linger_are_stored_together(rocketbox, rocketmq_topic, consumed):
    async with aio.Client(rocketbox.namesrv, timeout=PATIENT) as client:
        await client.producer(linger=0.05).send(rocketmq_topic, "first")
        producer = client.producer("flushed", linger=30)
        sends = asyncio.gather(*[producer.send(rocketmq_topic, str(number)) for number in range(40)])
        while producer.in_flight < 40:
            await asyncio.sleep(0)
        assert await producer.flush(PATIENT / 3) == 0
        sent = await sends
        assert len({one.queue for one in sent}) == 1
        assert [one.queue_offset - sent[0].queue_offset for one in sent] == list(range(40))
        waits = client.producer("waits", linger=30)
        pending = [await waits.submit(rocketmq_topic, str(number)) for number in range(40, 43)]
        assert await waits.flush(PATIENT / 3) == 0
        assert all(one.result().message_id for one in pending)
        many = [one async for one in waits.send_many(Message(rocketmq_topic, str(n)) for n in range(43, 60))]
        assert all(isinstance(one, SendResult) for one in many)


@in_loop
async def test_many_that_are_not_taken_to_the_end_wait_for_what_is_in_flight(client, rocketmq_topic):
    async with client:
        producer = client.producer()
        sending = producer.send_many((Message(rocketmq_topic, str(number)) for number in range(9)), window=4)
        assert isinstance(await anext(sending), SendResult)
        await sending.aclose()
        assert producer.in_flight == 0


@in_loop
async def test_batches_one_way_and_chosen_queues(client, rocketmq_topic, rocketmq_group):
    async with client:
        producer = client.producer()
        first = await producer.send(rocketmq_topic, "chosen", select=lambda queues: queues[2])
        assert first.queue.queue_id == 2
        places = await producer.send_batch([Message(rocketmq_topic, bytes(3 << 20)) for _ in range(2)])
        assert places[1].queue_offset == places[0].queue_offset + 1
        await producer.send_oneway(rocketmq_topic, "and away", queue=first.queue)
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        assert len(await taken(consumer, 4)) == 4
        with pytest.raises(InvalidMessage):
            await producer.send(rocketmq_topic, "")
        sent = await producer.send(rocketmq_topic, "later", delay=3600)
        await producer.recall(sent)
        with pytest.raises(InvalidOption, match="recall_handle"):
            await producer.recall(first)


@in_loop
async def test_a_send_that_nobody_waits_for_any_more_is_stored_and_counted(troubled, rocketmq_topic):
    async with aio.Client(troubled.namesrv, timeout=PATIENT) as client:
        producer = client.producer(max_in_flight=1)
        place = (await producer.send(rocketmq_topic, "0")).queue
        assert place in await queues_of(client, rocketmq_topic)
        troubled.pause()
        sending = asyncio.create_task(producer.send(rocketmq_topic, "1", queue=place))
        await wait_in_loop(lambda: producer.in_flight == 1, "the send")
        waiting = asyncio.create_task(producer.send(rocketmq_topic, "2", queue=place))
        with pytest.raises(TooMuchInFlight):
            await producer.submit(rocketmq_topic, "3", queue=place, timeout=0.01)
        for task in (sending, waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert producer.in_flight == 1
        troubled.resume()
        assert await producer.flush(PATIENT) == 0
        assert await client.reader().max_offset(place) == 2, "the one that was sent, not the one that waited"


@in_loop
async def test_servers_that_go_away_are_said_and_found_again(troubled, rocketmq_topic):
    async with aio.Client(f"127.0.0.1:{reserve_port()}", timeout=PATIENT) as nowhere:
        with pytest.raises(NoNameServer, match="Connection refused"):
            await nowhere.producer().send("T", "x")
    async with aio.Client("no-such-host.invalid:1", timeout=PATIENT) as nobody:
        with pytest.raises(NoNameServer, match="is not known"):
            await nobody.producer().send("T", "x")
    async with aio.Client(troubled.namesrv, timeout=PATIENT) as client:
        place = (await client.producer().send(rocketmq_topic, "0")).queue
        troubled.pause()
        with pytest.raises(SendTimeout) as late:
            await client.producer().send(rocketmq_topic, "1", queue=place, timeout=0.05)
        assert late.value.maybe_stored
        lost = await client.producer().submit(rocketmq_topic, "2", queue=place)
        troubled.kill()
        with pytest.raises(NotConnected) as gone:
            await lost
        assert gone.value.maybe_stored
        await asyncio.to_thread(troubled.start)
        await client.producer().send(rocketmq_topic, "3")
    with pytest.raises(Closed):
        await client.producer().send(rocketmq_topic, "4")


# --- transactions


@in_loop
async def test_transactions_end_as_their_blocks_and_checks_say(client, rocketmq_topic, rocketmq_group):
    asked = []

    async def check(message):
        asked.append(message.text)
        if message.text != "left open":  # its block takes longer than the broker waits
            return Decision.UNKNOWN
        if asked.count("left open") == 1:
            raise RuntimeError("not now")
        return Decision.COMMIT

    async with client:
        producer = client.transactional_producer(rocketmq_group, check=check)
        async with producer.transaction(rocketmq_topic, "committed", shard=1) as kept:
            assert kept.result.message_id
        async with producer.transaction(rocketmq_topic, "rolled back", shard=1) as gone:
            await gone.rollback()
            with pytest.raises(InvalidOption, match="once"):
                await gone.commit()
        with pytest.raises(asyncio.CancelledError):
            async with producer.transaction(rocketmq_topic, "left open", shard=1):
                raise asyncio.CancelledError
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        assert [message.text for message in await taken(consumer, 2)] == ["committed", "left open"]
        assert asked.count("left open") >= 2
        client.producer("plain")
        with pytest.raises(InvalidOption, match="without a check"):
            client.transactional_producer("plain", check=check)


@in_loop
async def test_a_plain_check_is_called_in_a_thread(client, rocketmq_topic, rocketmq_group):
    where = []

    def check(message):
        where.append(threading.current_thread())
        return Decision.COMMIT

    async with client:
        producer = client.transactional_producer(rocketmq_group, check=check)
        await client.producer().send(rocketmq_topic, "makes it")
        await producer.start(rocketmq_topic)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(rocketmq_topic, "left open"):
                raise ZeroDivisionError
        await wait_in_loop(lambda: where, "the check")
    assert where[0] is not threading.main_thread()


@in_loop
async def test_a_check_that_raises_a_cancellation_does_not_keep_the_next_one_waiting():
    worker, called = TaskWorker("checks"), asyncio.Event()

    async def cancelled():
        raise asyncio.CancelledError

    async def next_one():
        called.set()

    worker.put_locked(cancelled)
    worker.put_locked(next_one)
    await called.wait()
    assert await worker.join(PATIENT)


# --- pulling


@in_loop
async def test_a_cancelled_poll_takes_nothing(client, rocketmq_topic, rocketmq_group, monkeypatch):
    async with client:
        producer = client.producer()
        await producer.send(rocketmq_topic, "0", shard=1)
        consumer = client.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic)
        begun, start = [], consumer._core.start
        monkeypatch.setattr(consumer._core, "start", lambda: begun.append(1) or start())
        joining = asyncio.create_task(consumer.poll(PATIENT))
        await asyncio.sleep(0)
        joining.cancel()  # the consumer joins nevertheless, and once
        assert [message.text for message in await consumer.poll(PATIENT)] == ["0"]
        assert begun == [1]
        texts, cancelled = [], 0
        for number in range(1, 20):
            waiting = asyncio.create_task(consumer.poll(PATIENT))
            await asyncio.sleep(0)
            waiting.cancel()
            await producer.send(rocketmq_topic, str(number), shard=1)
            try:
                texts += [message.text for message in await waiting]
            except asyncio.CancelledError:
                cancelled += 1
        assert cancelled
        while len(texts) < 19:
            texts += [message.text for message in await consumer.poll(PATIENT)]
        assert texts == [str(number) for number in range(1, 20)]
        assert await consumer.poll(0.0) == []


@in_loop
async def test_one_that_is_cancelled_when_the_bell_has_rung_does_not_look_any_more():
    bell, looks = TaskBell(), []
    waiting = asyncio.create_task(bell.wait_for(lambda: looks.append(1) or len(looks) > 1, PATIENT))
    await asyncio.sleep(0)
    bell.ring()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert looks == [1]
    assert not bell._waiting


@in_loop
async def test_room_that_comes_bit_by_bit_is_for_the_one_that_has_waited_longest():
    bell, room, got, looks = TaskBell(), [0], [], [0]

    def enters(name, size):
        looks[0] += 1
        if room[0] < size:
            return False
        room[0] -= size
        got.append(name)
        return True

    sizes = {"a": 1, "cancelled": 1, "b": 2, "c": 1, **dict.fromkeys(map(str, range(100)), 1)}
    waiting = {
        name: asyncio.create_task(bell.wait_for(lambda name=name, size=size: enters(name, size), PATIENT))
        for name, size in sizes.items()
    }
    await asyncio.sleep(0)
    looks[0] = 0
    room[0] = 1
    bell.ring()
    await waiting["a"]
    assert got == ["a"]
    room[0] = 3
    bell.ring()
    waiting["cancelled"].cancel()
    await waiting["b"]
    await waiting["c"]
    assert got == ["a", "b", "c"], "the one that was cancelled wakes the next"
    await asyncio.sleep(0)
    assert looks[0] < 10, "a ring does not wake all"
    room[0] = 100
    bell.ring()
    waiting.pop("cancelled")
    await asyncio.gather(*waiting.values())


@in_loop
async def test_an_iteration_that_is_cancelled_commits_what_was_done(client, box, rocketmq_topic, rocketmq_group):
    handled = asyncio.Event()

    async def consume():
        async with aio.Client(box.namesrv, timeout=PATIENT) as other:
            async for message in other.pull_consumer(rocketmq_group, start="first").subscribe(rocketmq_topic):
                if message.text == "2":
                    handled.set()
                    await asyncio.Event().wait()

    async with client:
        for number in range(4):
            await client.producer().send(rocketmq_topic, str(number), shard=1)
        consuming = asyncio.create_task(consume())
        await handled.wait()
        consuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consuming
        consumer = client.pull_consumer(rocketmq_group).subscribe(rocketmq_topic)
        assert [message.text for message in await taken(consumer, 2)] == ["2", "3"]


@in_loop
async def test_a_consumer_goes_elsewhere_and_rests(client, rocketmq_topic, rocketmq_group):
    async with client:
        sent = await client.producer().send(rocketmq_topic, "0")
        assert sent.queue in await queues_of(client, rocketmq_topic)
        consumer = client.pull_consumer(rocketmq_group, start="last").subscribe(rocketmq_topic)
        await consumer.seek_to_end()
        await consumer.seek_to_begin([sent.queue])
        assert [message.text for message in await consumer.poll(PATIENT)] == ["0"]
        await consumer.pause()
        await consumer.seek_to(datetime(2020, 1, 1, tzinfo=UTC))
        assert await consumer.poll(0.1) == []
        await consumer.resume()
        assert [message.text for message in await consumer.poll(PATIENT)] == ["0"]


@in_loop
async def test_a_consumer_that_waits_ends_when_it_is_closed(client, rocketmq_topic, rocketmq_group):
    async with client:
        place = (await client.producer().send(rocketmq_topic, "0")).queue
        assert place in await queues_of(client, rocketmq_topic)
        consumer = client.pull_consumer(rocketmq_group, auto_commit=None, start="first")
        consumer.assign([place])
        waiting = asyncio.create_task(anext(consumer))
        assert (await waiting).text == "0"
        await consumer.commit()
        await consumer.seek(place, 0)
        assert await consumer.committed(place) == 1
        async with consumer:
            assert (await anext(consumer)).text == "0"
            waiting = asyncio.create_task(anext(consumer))
            await asyncio.sleep(0)
        with pytest.raises(StopAsyncIteration):
            await waiting
        with pytest.raises(Closed):
            await consumer.poll()


@in_loop
async def test_a_close_that_was_cancelled_goes_on_and_the_next_waits_for_it(troubled, rocketmq_topic, rocketmq_group):
    async with aio.Client(troubled.namesrv, timeout=PATIENT) as client:
        place = (await client.producer().send(rocketmq_topic, "0")).queue
        assert place in await queues_of(client, rocketmq_topic)
        consumer = client.pull_consumer(rocketmq_group, start="first")
        consumer.assign([place])
        assert (await anext(consumer)).text == "0"
        consumer.done_with_current()
        troubled.pause()
        closing = asyncio.create_task(consumer.close())
        await wait_in_loop(lambda: consumer.is_closed, "the close")
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        assert not closing.done()
        troubled.resume()
        assert await closing == 0
        again = client.pull_consumer(rocketmq_group)
        again.assign([place])
        assert await again.committed(place) == 1


# --- pushing


@in_loop
async def test_handlers_run_side_by_side_and_failures_come_again(client, box, rocketmq_topic, rocketmq_group):
    attempts, together = [], asyncio.Barrier(30)

    async def handler(message):
        if message.attempt == 1:
            await together.wait()
        attempts.append((message.text, message.attempt))
        if message.text == "retry" and message.attempt < 3:
            raise Retry(level=1)
        if message.text == "fails" and message.attempt == 1:
            raise ValueError
        if message.text == "cancels itself" and message.attempt == 1:
            raise asyncio.CancelledError
        if message.text == "reject":
            raise Reject("no such customer")

    async with client:
        texts = ["retry", "fails", "reject", "cancels itself", *map(str, range(26))]
        await asyncio.gather(*(client.producer().send(rocketmq_topic, text) for text in texts))
        consumer = client.push_consumer(rocketmq_group, start="first", workers=30)
        consumer.subscribe(rocketmq_topic, handler=handler)
        await consumer.start()
        wanted = {(text, 1) for text in texts} | {
            ("retry", 2), ("retry", 3), ("fails", 2), ("cancels itself", 2)
        }  # fmt: skip
        await wait_in_loop(lambda: len(attempts) >= len(wanted), "all attempts")
        await wait_in_loop(lambda: not consumer._core.active, "their ends")
        (dead,) = await queues_of(client, f"%DLQ%{rocketmq_group}")
        assert await client.reader().max_offset(dead) == 1
    assert set(attempts) == wanted
    assert len(attempts) == len(wanted)


@in_loop
async def test_members_that_subscribe_to_something_else_are_said_by_both(
    client, box, rocketmq_topic, rocketmq_group, caplog
):
    def says(member, ours, theirs):
        return any(
            f"{rocketmq_topic} with '{theirs}' there and '{ours}' here. The others are {member}" in text
            for text in caplog.messages
        )

    with box.client() as threads:
        await asyncio.to_thread(threads.producer().send, rocketmq_topic, "a topic with queues")
        first = threads.push_consumer(rocketmq_group)
        first.subscribe(rocketmq_topic, tags="a", handler=print)
        await asyncio.to_thread(first.start)
        async with client:
            second = client.push_consumer(rocketmq_group)
            second.subscribe(rocketmq_topic, tags="b", handler=print)
            await second.start()
            assert says(threads.client_id, "b", "a"), caplog.messages
            await wait_in_loop(lambda: says(client.client_id, "a", "b"), "a warning of the first member")


@in_loop
async def test_plain_functions_are_handlers_too(client, rocketmq_topic, rocketmq_group):
    found, threads = [], set()

    async with client:
        consumer = client.push_consumer(rocketmq_group, start="first", batch=10)

        @consumer.subscribe(rocketmq_topic)
        def handle(messages):
            threads.add(threading.current_thread())
            found.extend(message.text for message in messages)
            if "stops" in [message.text for message in messages] and messages[0].attempt == 1:
                next(iter(()))

        await client.producer().send_batch([Message(rocketmq_topic, text) for text in ("a", "b", "stops")])
        await consumer.start()
        await wait_in_loop(lambda: found.count("stops") == 2, "the second attempt")
    assert threading.main_thread() not in threads


@in_loop
async def test_plain_functions_that_wait_keep_no_connection_waiting(client, box, rocketmq_topic, rocketmq_group):
    """Names are looked up by the loop's executor."""
    loop, go = asyncio.get_running_loop(), threading.Event()
    with ThreadPoolExecutor(1) as executor:
        loop.set_default_executor(executor)
        held = []

        def handler(message):
            held.append(message)
            go.wait()

        async with client:
            await asyncio.gather(*(client.producer().send(rocketmq_topic, str(number)) for number in range(4)))
            consumer = client.push_consumer(rocketmq_group, start="first")
            consumer.subscribe(rocketmq_topic, handler=handler)
            await consumer.start()
            try:
                await wait_in_loop(lambda: len(held) == 4, "all handlers")
                async with aio.Client(box.namesrv.replace("127.0.0.1", "localhost"), timeout=PATIENT) as other:
                    await other.producer().send(f"{rocketmq_topic}-other", "x")
            finally:
                go.set()


@in_loop
async def test_an_ordered_queue_waits_for_its_message(client, rocketmq_topic, rocketmq_group):
    texts = []

    async def handler(message):
        texts.append(message.text)
        if message.text == "1" and texts.count("1") < 3:
            raise Suspend(0.01)

    async with client:
        for number in range(4):
            await client.producer().send(rocketmq_topic, str(number), shard=1)
        consumer = client.push_consumer(rocketmq_group, start="first", ordered=True)
        consumer.subscribe(rocketmq_topic, handler=handler)
        await consumer.start()
        await wait_in_loop(lambda: len(texts) == 6, "all messages")
    assert texts == ["0", "1", "1", "1", "2", "3"]


@in_loop
async def test_a_broadcasting_consumer_keeps_its_offsets(
    client, box, rocketmq_topic, rocketmq_group, monkeypatch, tmp_path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    async with client:
        for text in ("0", "1"):
            seen = Seen()
            await client.producer().send(rocketmq_topic, text, shard=1)
            consumer = client.push_consumer(rocketmq_group, start="first", broadcast=True)
            consumer.subscribe(rocketmq_topic, handler=seen)
            await consumer.start()
            await wait_in_loop(lambda seen=seen: seen.done, "the message")
            assert await consumer.close() == CloseReport()
            assert seen.done == [text]


# --- the end


@in_loop
async def test_a_cancelled_run_lets_handlers_end_and_commits(client, box, rocketmq_topic, rocketmq_group):
    async with client:
        for number in range(3):
            await client.producer().send(rocketmq_topic, str(number), shard=1)
        seen = Seen("0")
        consumer = client.push_consumer(rocketmq_group, start="first", workers=1)
        consumer.subscribe(rocketmq_topic, handler=seen)
        running = asyncio.create_task(consumer.run())
        await seen.holds.wait()
        running.cancel()
        await wait_in_loop(lambda: consumer.is_closed, "the close")
        assert not running.done()
        seen.go.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (seen.texts, seen.done) == (["0"], ["0"])
        rest = client.pull_consumer(rocketmq_group).subscribe(rocketmq_topic)
        assert [message.text for message in await taken(rest, 2)] == ["1", "2"]


@in_loop
async def test_a_signal_ends_a_run(client, rocketmq_topic, rocketmq_group):
    before = signal.getsignal(signal.SIGUSR1)
    async with client:
        await client.producer().send(rocketmq_topic, "0")
        seen = Seen()
        consumer = client.push_consumer(rocketmq_group, start="first")
        consumer.subscribe(rocketmq_topic, handler=seen)
        running = asyncio.create_task(consumer.run(signals=[signal.SIGUSR1]))
        await wait_in_loop(lambda: seen.done, "the message")
        os.kill(os.getpid(), signal.SIGUSR1)
        assert await running == CloseReport()
    assert signal.getsignal(signal.SIGUSR1) is before


@in_loop
async def test_a_signal_ends_all_runs_and_reaches_handlers_of_the_loop(client, rocketmq_topic, rocketmq_group):
    loop, own = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, own.set)
    async with client:
        await client.producer().send(rocketmq_topic, "0")
        handlers, runs = [Seen(), Seen()], []
        for number, seen in enumerate(handlers):
            consumer = client.push_consumer(f"{rocketmq_group}-{number}", start="first")
            consumer.subscribe(rocketmq_topic, handler=seen)
            runs.append(asyncio.create_task(consumer.run(signals=[signal.SIGUSR1])))
        await wait_in_loop(lambda: all(seen.done for seen in handlers), "the messages")
        os.kill(os.getpid(), signal.SIGUSR1)
        assert await asyncio.gather(*runs) == [CloseReport(), CloseReport()]
        await own.wait()
        own.clear()
        os.kill(os.getpid(), signal.SIGUSR1)
        await own.wait()
    loop.remove_signal_handler(signal.SIGUSR1)


@in_loop
async def test_a_handler_that_outlasts_the_close_is_cancelled_and_gets_its_message_again(
    client, box, rocketmq_topic, rocketmq_group
):
    async with client:
        await client.producer().send(rocketmq_topic, "0")
        seen = Seen("0")
        consumer = client.push_consumer(rocketmq_group, start="first")
        consumer.subscribe(rocketmq_topic, handler=seen)
        await consumer.start()
        await seen.holds.wait()
        report = await consumer.close(timeout=0.0)
        assert report == CloseReport(still_running=(f"rocketbox-{rocketmq_group}-0",))
        again = Seen()
        other = client.push_consumer(rocketmq_group)
        other.subscribe(rocketmq_topic, handler=again)
        await other.start()
        await wait_in_loop(lambda: again.done, "the message again")
    assert seen.done == []


@in_loop
async def test_a_handler_may_close_its_consumer(client, rocketmq_topic, rocketmq_group):
    reports = []
    async with client:
        await client.producer().send(rocketmq_topic, "0")
        consumer = client.push_consumer(rocketmq_group, start="first")

        @consumer.subscribe(rocketmq_topic)
        async def handler(message):
            reports.append(await consumer.close())

        await consumer.run(signals=())
        await wait_in_loop(lambda: reports, "its end")
    assert reports[0].still_running == (f"rocketbox-{rocketmq_group}-0",)


@in_loop
async def test_a_cancelled_close_ends_everything_at_once(troubled, rocketmq_topic, rocketmq_group):
    client = aio.Client(troubled.namesrv, timeout=PATIENT)
    place = (await client.producer().send(rocketmq_topic, "0")).queue
    seen = Seen("0")
    consumer = client.push_consumer(rocketmq_group, start="first")
    consumer.subscribe(rocketmq_topic, handler=seen)
    await consumer.start()
    await seen.holds.wait()
    troubled.pause()
    pending = await client.producer().submit(rocketmq_topic, "1", queue=place)
    closing = asyncio.create_task(client.close())
    await wait_in_loop(lambda: consumer.is_closed, "the close")
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(NotConnected) as lost:
        await pending
    assert lost.value.maybe_stored
    with pytest.raises(Closed):
        await client.producer().send(rocketmq_topic, "2")
    assert seen.done == []
    await wait_in_loop(lambda: len(asyncio.all_tasks()) == 2, "the handler's end")
    troubled.resume()


@in_loop
async def test_a_handler_whose_task_is_cancelled_has_ended(client, rocketmq_topic, rocketmq_group):
    """As when the loop ends: the close that follows does not wait for it."""
    async with client:
        await client.producer().send(rocketmq_topic, "0")
        seen = Seen("0")
        consumer = client.push_consumer(rocketmq_group, start="first", ordered=True)
        consumer.subscribe(rocketmq_topic, handler=seen)
        await consumer.start()
        await seen.holds.wait()
        [task] = [one for one in asyncio.all_tasks() if one.get_name() == f"rocketbox-{rocketmq_group}-0"]
        task.cancel()
        await wait_in_loop(lambda: len(seen.texts) == 2, "the message again")
        [task] = [one for one in asyncio.all_tasks() if one.get_name() == f"rocketbox-{rocketmq_group}-1"]
        closing = asyncio.create_task(consumer.close(timeout=10 * PATIENT))
        await wait_in_loop(lambda: consumer.is_closed, "the close")
        task.cancel()
        assert await closing == CloseReport()


@in_loop
async def test_a_cancelled_close_ends_runs_and_iterations(client, rocketmq_topic, rocketmq_group):
    await client.producer().send(rocketmq_topic, "0")
    seen = Seen("0")
    consumer = client.push_consumer(rocketmq_group, start="first")
    consumer.subscribe(rocketmq_topic, handler=seen)
    running = asyncio.create_task(consumer.run(signals=()))
    await seen.holds.wait()
    puller = client.pull_consumer(f"{rocketmq_group}-pulls", start="first").subscribe(rocketmq_topic)
    assert (await anext(puller)).text == "0"
    waiting = asyncio.create_task(anext(puller, "its end"))
    await wait_in_loop(lambda: puller._ready._waiting, "the iteration")
    closing = asyncio.create_task(client.close())
    await wait_in_loop(lambda: consumer.is_closed, "the close")
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await running
    assert await waiting == "its end"
    assert await puller.close() >= 1, "queues that were not committed"
    assert seen.done == []


@in_loop
async def test_nothing_is_kept_of_a_consumer_that_was_closed():
    async with aio.Client("127.0.0.1:1") as client:
        closed = weakref.ref(client.push_consumer("g"))
        await closed().close()
        client.push_consumer("g")
        gc.collect()
        assert closed() is None


# --- wrong calls


def test_a_client_belongs_to_one_loop_and_process(box, rocketmq_topic):
    client = aio.Client(box.namesrv, timeout=PATIENT)

    async def send():
        return await client.producer().send(rocketmq_topic, "x")

    async def send_and_close():
        await send()
        client._session.pid += 1
        with pytest.raises(ForkedError):
            await send()
        client._session.pid -= 1
        with pytest.raises(InvalidOption, match="another event loop"):
            await asyncio.to_thread(asyncio.run, send())
        for call in (client.producer().flush, client.close):
            with pytest.raises(InvalidOption, match="another event loop"):
                await asyncio.to_thread(asyncio.run, call())
        assert await client.close() == CloseReport()

    asyncio.run(send_and_close())
    with pytest.raises(Closed):
        asyncio.run(send())


@in_loop
async def test_a_consumer_that_cannot_start_says_why(client, rocketmq_topic, rocketmq_group):
    async with client:
        await client.producer().send(rocketmq_topic, "x")
        consumer = client.push_consumer(rocketmq_group)
        with pytest.raises(InvalidOption, match="subscribe"):
            await consumer.start()
        consumer.subscribe(rocketmq_topic, sql="region = = 'US'", handler=Seen())
        with pytest.raises(RequestRefused):
            await consumer.start()
        assert not client._session.core.groups


# --- what the page says


def blocks():
    section = (ROOT / "docs/python.md").read_text().partition("## asyncio\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_the_examples_of_the_page_run(box, rocketmq_topic, rocketmq_group, monkeypatch):
    first, *rest = blocks()
    names = {"127.0.0.1:9876": box.namesrv, '"orders"': f'"{rocketmq_topic}"', '"billing"': f'"{rocketmq_group}"'}
    done = []

    async def charge(order):
        done.append(order)
        if len(done) == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    for block in (first, *rest):
        for name, real in names.items():
            block = block.replace(name, real)
        exec(compile(block, "docs/python.md", "exec"), {"charge": charge})
    assert sorted(done) == [0, 1, 2, 3]
