"""What handlers raise and return, the threads that call them, and wrong calls, without a broker."""

import logging
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
from appliance.client.core.handling import DONE, Outcome
from appliance.client.core.push_group import Batch, PushHeld
from appliance.client.core.steps import Sleep
from appliance.client.message import MessageQueue, ReceivedMessage
from appliance.client.shells.worker import Worker
from appliance.client.shells.workers import Workers
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import MAGIC_V1, Record, decode_record, encode_record

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
