"""What handlers raise and return, the threads that call them, and wrong calls, without a broker."""

import contextlib
import fcntl
import itertools
import logging
import os
import signal
import socket
import threading
import time

import pytest

from appliance.client import (
    Client,
    CloseReport,
    ForkedError,
    InvalidMessage,
    InvalidOption,
    Message,
    NoNameServer,
    Retry,
)
from appliance.client.acts import finish
from appliance.client.core import quick
from appliance.client.core.handling import DONE, Outcome
from appliance.client.core.parcels import FULL_BYTES
from appliance.client.core.push_group import Batch, PushHeld
from appliance.client.core.send_plan import Sending
from appliance.client.core.steps import Sleep
from appliance.client.message import MessageQueue, ReceivedMessage, SendResult
from appliance.client.shells import threads
from appliance.client.shells.worker import Worker
from appliance.client.shells.workers import Workers
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import MAGIC_V1, Record, decode_record, encode_record
from tests.support.interrupted import interrupted
from tests.support.waiting import wait_for

QUEUE = MessageQueue("T", "a", 0)
HOST = ("127.0.0.1", 10911)
PATIENT = 60.0


def handled(handler):
    """The outcome of a handler that is given one message, and that message."""
    host = encode_host(*HOST)
    fields = Record(0, MAGIC_V1, 0, 0, 0, 7, 700, 0, 1, HOST, 1, HOST, 0, 0, b"x", "T", "UNIQ_KEY\x01u")
    message = ReceivedMessage(decode_record(encode_record(fields, host, host)), QUEUE)
    with Client("127.0.0.1:1") as client:
        consumer = client.push_consumer("g")
        consumer.subscribe("T", handler=handler)
        return finish(consumer._handling(Batch(PushHeld(QUEUE), [message], 0.0))), message


@pytest.mark.parametrize(("ms", "year"), [(7, 1970), (-62135596800001, 1), (1 << 62, 9999), (-(1 << 63), 1)])
def test_whatever_time_a_producer_says_a_handler_can_read_it(ms: int, year: int) -> None:
    host = encode_host(*HOST)
    fields = Record(0, MAGIC_V1, 0, 0, 0, 7, 700, 0, ms, HOST, 1, HOST, 0, 0, b"x", "T", "")
    message = ReceivedMessage(decode_record(encode_record(fields, host, host)), QUEUE)
    assert message.born_at.year == year
    assert message.stored_at.timestamp() == 0.001


class SaysNothing(Retry):
    def __init__(self):
        """Leaves out what Retry sets."""


@pytest.mark.parametrize(
    "error", [Retry(after="soon"), Retry(messages=7), SaysNothing(), SystemExit(), KeyboardInterrupt()]
)
def test_whatever_is_raised_the_message_comes_again(error):
    def handler(message):
        raise error

    outcome, message = handled(handler)
    assert outcome == Outcome([message])


class Late:
    async def __call__(self, message):
        """Never done."""


def generator(message):
    yield message


@pytest.mark.parametrize("handler", [generator, lambda message: Late()(message)])
@pytest.mark.filterwarnings("ignore:coroutine")
def test_work_that_is_only_begun_is_not_done(handler):
    outcome, message = handled(handler)
    assert outcome == Outcome([message])


def test_a_handler_that_returns_is_done():
    assert handled(lambda message: message.text)[0] is DONE


class UsesTheClient(logging.Handler):
    """A handler of logs that needs the client's lock, as one that sends them does."""

    def __init__(self, client):
        super().__init__()
        self._lock = client._session.shell.lock
        self.found_free = {}

    def emit(self, record):
        free = self.found_free[record.getMessage()] = self._lock.acquire(blocking=False)
        if free:
            self._lock.release()


def test_what_the_core_notes_is_logged_without_its_lock():
    log = logging.getLogger("rocketbox.client")
    with Client("127.0.0.1:1") as client:
        session = client._session
        handler = UsesTheClient(client)

        def procedure():
            session.core._note("of a procedure")
            yield Sleep(0.0)
            session.core._note("of its end")
            return 7

        log.addHandler(handler)
        try:
            assert session.shell.wait(procedure()) == 7
            session.note("of a face")
        finally:
            log.removeHandler(handler)
    assert handler.found_free == {"of a procedure": True, "of its end": True, "of a face": True}


def no_more_threads(thread):
    raise RuntimeError("can't start new thread")


def test_the_threads_that_are_there_do_the_work_if_there_are_no_more(monkeypatch):
    done, both = [], threading.Event()

    def work(task):
        done.append(task)
        if len(done) == 2:
            both.set()

    workers = Workers("w", 4, work)
    workers.start()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more_threads)
        workers.put(1)
        workers.put(2)
        assert both.wait(PATIENT)
    assert workers.end(time.monotonic() + PATIENT) == ()


def test_a_client_that_got_no_thread_begins_when_there_is_one(monkeypatch):
    with Client("127.0.0.1:1") as client:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_more_threads)
            with pytest.raises(RuntimeError):
                client.producer().send("T", "x")
        with pytest.raises(NoNameServer):
            client.producer().send("T", "x")
        assert client.producer().in_flight == 0
        assert len(client._session.shell._timers) == 2  # heartbeats and routes


def test_a_consumer_that_gets_no_thread_is_no_member(monkeypatch):
    with Client("127.0.0.1:1") as client:
        consumer = client.push_consumer("g")
        consumer.subscribe("T", handler=print)
        client._session.begin()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_more_threads)
            with pytest.raises(RuntimeError):
                consumer.start()
        assert not client._session.core.groups


def test_a_worker_that_got_no_thread_asks_again(monkeypatch):
    lock, done = threading.Lock(), []
    worker = Worker("w", lock)
    with monkeypatch.context() as patch, lock:
        patch.setattr(threading.Thread, "start", no_more_threads)
        with pytest.raises(RuntimeError):
            worker.put_locked(lambda: done.append(1))
    with lock:
        worker.put_locked(lambda: done.append(2))
    assert worker.join(PATIENT)
    assert done == [1, 2]


# --- wrong calls


@pytest.mark.parametrize("make", ["push_consumer", "pull_consumer"])
def test_a_group_has_no_second_member_before_the_first_has_left(make):
    with Client("127.0.0.1:1") as client:
        first = getattr(client, make)("g")
        client._session.core.groups["g"] = first._core  # as if it had begun
        first._core.is_stopping = first._core.is_closed = True
        with pytest.raises(InvalidOption, match="already"):
            client.push_consumer("g")
        del client._session.core.groups["g"]
        client.push_consumer("g")


@pytest.mark.parametrize("body", [17, None, ["x"], "\ud800"])
def test_what_is_no_body_is_not_sent_as_one(body):
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidMessage, match="A body is"):
        client.producer().send(Message("T", body))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tags": 5}, "tags is one tag"),
        ({"shard": 1.5}, "A shard is a text or a number"),
        ({"shard": b"x"}, "A shard is a text or a number"),
        ({"timeout": "3"}, "timeout is seconds"),
        ({"timeout": -1}, "timeout is seconds"),
        ({"queue": "T/0"}, "queue is a MessageQueue"),
        ({"delay": "5"}, "A delay is 0 seconds or more"),
        ({"delay_level": "3"}, "A delay level is"),
        ({"at": "tomorrow"}, "at is a datetime"),
    ],
)
def test_an_option_of_another_kind_is_said_before_anything_is_done(options, why):
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidMessage, match=why):
        client.producer().send("T", "x", **options)


@pytest.mark.parametrize("topic", [None, 5, b"T"])
def test_what_is_no_topic_and_no_message_is_said(topic):
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidMessage, match="A send is given a topic"):
        client.producer().send(topic, "x")


def test_a_fork_does_not_touch_what_is_its_parents():
    with Client("127.0.0.1:1") as client:
        push, pull, producer = client.push_consumer("g"), client.pull_consumer("h"), client.producer()
        client._session.pid += 1
        for call in (push.pause, push.resume, push.assignment, pull.assignment, producer.flush):
            with pytest.raises(ForkedError):
                call()


def test_a_fork_ends_without_its_parents_locks_and_connections():
    with Client("127.0.0.1:1") as client:
        pull = client.pull_consumer("h")
        pull._beginning = pull._iterates = True  # as if it had begun
        client._session.pid += 1
        with client._session.lock, client._session.shell.lock:  # by threads that the fork does not have
            with pull:
                """Its end leaves no group."""
            assert client.close() == CloseReport()
        assert not client._session.shell.is_running


def test_a_signal_that_comes_while_bytes_leave_loses_and_doubles_none():
    own, other = socket.socketpair()
    before = signal.signal(signal.SIGIO, signal.default_int_handler)
    try:
        with Client("127.0.0.1:1") as client, own, other:
            own.setblocking(False)
            fcntl.fcntl(other, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(other, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)  # the system signals that bytes came
            one = threads._Link("127.0.0.1:1", client._session.shell)
            one._sock = own
            frames = [bytes([65 + number]) * size for number, size in enumerate((10, 1 << 20, 300, 20))]
            received = bytearray()
            for frame in frames:
                with one._lock, pytest.raises(KeyboardInterrupt):
                    one._send(frame), time.sleep(PATIENT)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        received += other.recv(1 << 20)
            assert len(one._unsent) > 0
            assert received + one._unsent == b"".join(frames)
    finally:
        signal.signal(signal.SIGIO, before)


@pytest.mark.parametrize("is_launched", [False, True])
def test_a_send_that_a_signal_ends_is_in_flight_only_once_it_left(monkeypatch, is_launched):
    class Ended:
        """A link on which a signal's handler raises."""

        @staticmethod
        def launch(flight, stop, born_ms, may_wait):
            if is_launched:
                quick.Flights().launch(flight, stop, born_ms, 1)
            raise KeyboardInterrupt

    with Client("127.0.0.1:1") as client:
        producer = client.producer("g")
        stop = quick.Stop("g", QUEUE, "127.0.0.1:2", False)
        monkeypatch.setattr(producer._fleet, "stop", lambda *_: stop)
        monkeypatch.setattr(client._session.core, "producers", {"g"})
        monkeypatch.setattr(producer, "launch", producer.quickly)
        monkeypatch.setattr(client._session.shell, "open_link", lambda _: Ended)
        with pytest.raises(KeyboardInterrupt):
            producer.send("T", "x")
        assert producer.in_flight == is_launched
        monkeypatch.undo()
        if is_launched:
            producer._landed(1)


def is_sent(pending):
    try:
        return pending is not None and pending.result(PATIENT) is not None
    except KeyboardInterrupt:
        return pytest.fail("the thread that was interrupted has to be told")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"callback": True},
        {"shard": 1, "delay_level": 1},
        {"delay_level": 1},
        {"delay_level": 1, "callback": True},
    ],
    ids=["quick", "slow", "behind its shard", "alone", "told"],
)
def test_a_signal_loses_and_doubles_no_message_of_a_producer_that_lingers(monkeypatch, options):
    half = bytes(FULL_BYTES // 2)
    sent = []

    def send(_sending, envelope, deadline):
        yield Sleep(0.0)
        sent.append(envelope)
        return SendResult(envelope.message_id, "", QUEUE, len(sent), None, None, "")

    monkeypatch.setattr(Sending, "send", send)
    told: list[object] = []
    if "callback" in options:
        options = options | {"callback": told.append}
    with Client("127.0.0.1:1") as client:
        producer = client.producer("g", linger=0.001, compress=None)
        producer.send("T", "first")
        for behind in itertools.count():
            del sent[:]
            other = producer.submit("T", half, shard=options.get("shard"))
            found = interrupted(lambda: producer.submit("T", half, **options), behind)
            assert other.result(PATIENT).queue == QUEUE
            wait_for(lambda: not producer.in_flight, "nothing is in flight", PATIENT)
            assert len(sent) == 2 or (len(sent) == 1 and not is_sent(found))
            if is_sent(found):
                break
        assert behind > 20
        assert all(isinstance(one, SendResult) for one in told)
