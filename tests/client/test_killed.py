"""Processes that end in each state of a client, by each signal: no acknowledged message is lost, what was not done
comes again, and what was done does not, where the client could still commit."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from appliance.client import Client, ClientError, Message, NoRoute, Retry, SendResult, aio
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

PATIENT = 60.0
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGKILL]
NAMES = ["SIGTERM", "SIGINT", "SIGKILL"]
#: Messages for a consumer, and the one at which it stays; a producer's, before it says that it is in its state.
MESSAGES, STAYS_AT, SENT = 20, 7, 30
#: Status of a child that a test's own error ended.
_FAILED = 3


class Log:
    """Lines that a process and its forks write, which a kill does not take away."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, body: str = "") -> None:
        os.write(self._file, f"{what} {body}\n".encode())

    def lines(self, what: str) -> list[str]:
        text = os.pread(self._file, os.fstat(self._file).st_size, 0).decode()
        return [line.partition(" ")[2] for line in text.splitlines() if line.startswith(f"{what} ")]


def begin(log: Log, act: Callable[[Client, Log], object], namesrv: str) -> int:
    """Do something by a client in a fork; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 0
    try:
        # What other tests left is not this program's to collect: a finalizer swallows what a signal's handler raises.
        gc.freeze()
        sys.unraisablehook = lambda told: log.note("swallowed", f"{told.exc_value!r} in {told.object!r}")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(int(PATIENT))
        with Client(namesrv, timeout=PATIENT) as client:
            act(client, log)
    except KeyboardInterrupt:
        pass
    except BaseException:
        status = _FAILED
        log.note("failed", traceback.format_exc().replace("\n", " | "))
    finally:
        os._exit(status)


def end(pid: int, log: Log, number: signal.Signals) -> None:
    """Send a signal to a fork once it is in its state, and wait for its end."""
    wait_for(lambda: log.lines("there") or log.lines("failed"), "its state")
    os.kill(pid, number)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -number), (log.lines("failed"), log.lines("swallowed"))


# --- producers


def sends(client: Client, log: Log, topic: str) -> None:
    producer = client.producer()
    for number in itertools.count():
        log.note("given", str(number))
        producer.send(topic, str(number))
        log.note("acknowledged", str(number))
        if number == SENT:
            log.note("there")


def submits(client: Client, log: Log, topic: str, linger: float = 0.0) -> None:
    def told(outcome: SendResult | ClientError, text: str) -> None:
        if not isinstance(outcome, SendResult):
            return
        log.note("acknowledged", text)
        if text == str(SENT):
            log.note("there")

    producer = client.producer(linger=linger, max_in_flight=100)
    producer.send(topic, "first")
    for text in map(str, itertools.count()):
        log.note("given", text)
        producer.submit(topic, text, callback=partial(told, text=text))


def lingers(client: Client, log: Log, topic: str) -> None:
    submits(client, log, topic, linger=0.005)


def submits_in_tasks(client: Client, log: Log, topic: str) -> None:
    async def act() -> None:
        async with aio.Client(servers_of(client), timeout=PATIENT) as own:
            producer = own.producer(max_in_flight=100)
            for text in map(str, itertools.count()):
                log.note("given", text)
                pending = await producer.submit(topic, text)
                pending.add_done_callback(partial(tell, text))
                await asyncio.sleep(0)

    def tell(text: str, pending: asyncio.Future[SendResult]) -> None:
        if not pending.cancelled() and pending.exception() is None:
            log.note("acknowledged", text)
            if text == str(SENT):
                log.note("there")

    asyncio.run(act())


def servers_of(client: Client) -> str:
    return ";".join(client._session.core.directory.servers)


def sends_many(client: Client, log: Log, topic: str) -> None:
    def messages():
        for number in itertools.count():
            log.note("given", str(number))
            yield Message(topic, str(number))

    for number, _ in enumerate(client.producer().send_many(messages(), window=20)):
        log.note("acknowledged", str(number))
        if number == SENT:
            log.note("there")


def sends_batches(client: Client, log: Log, topic: str) -> None:
    for number in itertools.count():
        texts = [f"{number}-{one}" for one in range(5)]
        for text in texts:
            log.note("given", text)
        client.producer().send_batch([Message(topic, text) for text in texts])
        for text in texts:
            log.note("acknowledged", text)
        if number == SENT // 5:
            log.note("there")


def stored(namesrv: str, topic: str) -> Counter[str]:
    """Return the messages of a topic, each with how often it is there."""
    with Client(namesrv, timeout=PATIENT) as client:
        reader, found = client.reader(), Counter[str]()
        for queue in wait_for(lambda: reader.queues(topic), "its route", not_yet=(NoRoute,)):
            last = client.producer().send(topic, "last", queue=queue).queue_offset
            offset = 0
            while offset <= last:
                pulled = reader.pull(queue, offset, wait=1.0)
                found.update(message.text for message in pulled.messages)
                offset = pulled.next_offset
        del found["last"], found["first"]
        return found


@pytest.mark.parametrize("number", SIGNALS, ids=NAMES)
@pytest.mark.parametrize("act", [sends, submits, lingers, sends_many, sends_batches, submits_in_tasks])
def test_what_was_acknowledged_is_stored_once(rocketbox, rocketmq_topic, tmp_path, act, number):
    log = Log(tmp_path / "log")
    end(begin(log, lambda client, log: act(client, log, rocketmq_topic), rocketbox.namesrv), log, number)
    acknowledged, given = log.lines("acknowledged"), log.lines("given")
    found = stored(rocketbox.namesrv, rocketmq_topic)
    assert set(acknowledged) <= set(found) <= set(given)
    assert set(found.values()) == {1}
    if number == signal.SIGINT and act in (submits, lingers, submits_in_tasks):
        assert set(given) - set(found) <= set(given[-1:]), "what the producer had taken was sent"


# --- consumers


def handling(log: Log, text: str, stay: Callable[[], None]) -> None:
    """Do what a handler does: stay at one message, and be done with the others."""
    log.note("begun", text)
    if len(log.lines("begun")) == STAYS_AT + 1:
        stay()
    log.note("done", text)


def handled(log: Log, text: str, stay: Callable[[], None]) -> None:
    """The same for one whose message is done when it returns, which a signal's handler does not interrupt."""
    handling(log, text, stay)
    if len(log.lines("done")) == MESSAGES:
        log.note("there")


def pulls(client: Client, log: Log, topic: str, group: str, stay: Callable[[], None]) -> None:
    consumer = client.pull_consumer(group, start="first").subscribe(topic)
    waits = consumer._ready.wait_for

    def wait_for_next(look: Callable[[], bool], timeout: float | None) -> bool:
        def looks() -> bool:
            found = look()
            if not found and len(log.lines("done")) == MESSAGES:
                log.note("there")  # only now is the last one done
            return found

        return waits(looks, timeout)

    consumer._ready.wait_for = wait_for_next  # type: ignore[method-assign]
    for message in consumer:
        handling(log, message.text, stay)


def pushes(client: Client, log: Log, topic: str, group: str, stay: Callable[[], None], ordered: bool = False) -> None:
    consumer = client.push_consumer(group, start="first", workers=1, ordered=ordered)
    consumer.subscribe(topic, handler=lambda message: handled(log, message.text, stay))
    consumer.run()


def pushes_in_order(client: Client, log: Log, topic: str, group: str, stay: Callable[[], None]) -> None:
    pushes(client, log, topic, group, stay, ordered=True)


def pushes_in_tasks(client: Client, log: Log, topic: str, group: str, stay: Callable[[], None]) -> None:
    async def act() -> None:
        async with aio.Client(servers_of(client), timeout=PATIENT) as own:
            consumer = own.push_consumer(group, start="first", workers=1)
            consumer.subscribe(topic, handler=lambda message: handled(log, message.text, stay))
            await consumer.run()

    asyncio.run(act())


def stays_for_ever(log: Log) -> None:
    log.note("there")
    while True:
        time.sleep(PATIENT)


def stays_a_while(log: Log) -> None:
    """Until the signal is there, more or less: the handler ends in the time that its consumer gives it."""
    log.note("there")
    time.sleep(0.2)


def stays_nowhere(_log: Log) -> None:
    pass


def left_for(namesrv: str, topic: str, group: str) -> tuple[int, list[str]]:
    """Return (how many messages the group's offsets leave, those that another member gets)."""
    with Client(namesrv, timeout=PATIENT) as client:
        reader = client.reader()
        left = sum(reader.max_offset(one) - (reader.committed(one, group) or 0) for one in reader.queues(topic))
        found: list[str] = []
        consumer = client.pull_consumer(group, start="first").subscribe(topic)
        wait_for(lambda: found.extend(one.text for one in consumer.poll(0.5)) or len(found) >= left, "the others")
        return left, found


@pytest.mark.parametrize("number", SIGNALS, ids=NAMES)
@pytest.mark.parametrize(
    ("act", "stay"),
    [
        (pulls, stays_for_ever),
        (pulls, stays_nowhere),
        (pushes, stays_a_while),
        (pushes, stays_nowhere),
        (pushes_in_order, stays_a_while),
        (pushes_in_tasks, stays_a_while),
    ],
    ids=["pull, handling", "pull, waiting", "push, handling", "push, waiting", "ordered, handling", "task, handling"],
)
def test_another_member_gets_what_was_not_done(
    rocketbox, rocketmq_topic, rocketmq_group, produce, tmp_path, act, stay, number
):
    for text in range(MESSAGES):
        produce(rocketmq_topic, str(text))
    log = Log(tmp_path / "log")
    pid = begin(
        log,
        lambda client, log: act(client, log, rocketmq_topic, rocketmq_group, lambda: stay(log)),
        rocketbox.namesrv,
    )
    end(pid, log, number)
    done = log.lines("done")
    left, others = left_for(rocketbox.namesrv, rocketmq_topic, rocketmq_group)
    assert {*done, *others} == set(map(str, range(MESSAGES)))
    assert len(set(done)) == len(done)
    assert len(set(others)) == len(others)
    if number == signal.SIGINT or (number == signal.SIGTERM and act is not pulls):  # then it commits
        assert left == len(others) == MESSAGES - len(done)


@pytest.mark.parametrize("number", SIGNALS, ids=NAMES)
def test_a_second_signal_ends_one_that_waits_for_its_handlers(
    rocketbox, rocketmq_topic, rocketmq_group, produce, tmp_path, number
):
    for text in range(MESSAGES):
        produce(rocketmq_topic, str(text))
    log = Log(tmp_path / "log")
    pid = begin(
        log,
        lambda client, log: pushes(client, log, rocketmq_topic, rocketmq_group, lambda: stays_for_ever(log)),
        rocketbox.namesrv,
    )
    wait_for(lambda: log.lines("there"), "its state")
    os.kill(pid, signal.SIGTERM)
    with contextlib.suppress(ProcessLookupError):
        while not os.waitpid(pid, os.WNOHANG)[0]:
            os.kill(pid, number)
            time.sleep(0.05)
    done, (_, others) = log.lines("done"), left_for(rocketbox.namesrv, rocketmq_topic, rocketmq_group)
    assert {*done, *others} == set(map(str, range(MESSAGES)))
    assert log.lines("begun")[-1] in others


@pytest.mark.parametrize("number", SIGNALS, ids=NAMES)
def test_a_message_on_its_way_back_comes_again(rocketbox, rocketmq_topic, rocketmq_group, produce, tmp_path, number):
    produce(rocketmq_topic, "again")
    log = Log(tmp_path / "log")

    def fails(client: Client, log: Log) -> None:
        def handle(_message: object) -> None:
            log.note("there")
            raise Retry(level=1)

        consumer = client.push_consumer(rocketmq_group, start="first")
        consumer.subscribe(rocketmq_topic, handler=handle)
        consumer.run()

    end(begin(log, fails, rocketbox.namesrv), log, number)
    found: list[str] = []
    with Client(rocketbox.namesrv, timeout=PATIENT) as client:
        consumer = client.push_consumer(rocketmq_group, start="first")
        consumer.subscribe(rocketmq_topic, handler=lambda message: found.append(message.text))
        consumer.start()
        wait_for(lambda: found, "the message")
