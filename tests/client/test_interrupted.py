"""Handlers of signals that raise as a client begins something: it begins all the same, once, or ends once."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import socket
import threading
import time
from contextlib import nullcontext
from functools import partial
from multiprocessing import util

import pytest

from appliance.client import Client
from appliance.client.acts import finish
from appliance.client.core import requests
from appliance.client.core.client_core import ClientCore
from appliance.client.core.quick import Flight, Stop
from appliance.client.core.steps import CallFailed, Sleep
from appliance.client.message import MessageQueue
from appliance.client.shells.link import Link
from appliance.client.shells.threads import ThreadBell
from appliance.client.shells.worker import Worker
from appliance.client.shells.workers import Workers
from appliance.client.wire import RemotingCommand, encode_command
from tests.support.interrupted import interrupted
from tests.support.waiting import wait_for

PATIENT = 30.0


def stored(opaque):
    found = RemotingCommand.response(0, ext={"queueId": "3", "msgId": "0A", "queueOffset": "17", "TRACE_ON": "true"})
    found.opaque = opaque
    return encode_command(found)


@pytest.fixture
def client():
    with Client("127.0.0.1:1") as client:
        yield client


def test_what_comes_after_an_interrupted_call_wakes_the_thread(client):
    shell = client._session.shell
    shell.post(lambda: None)
    for behind in itertools.count():
        whole = interrupted(lambda: shell.post(lambda: None), behind)
        ran = threading.Event()
        shell.post(ran.set)
        assert ran.wait(PATIENT), behind
        if whole:
            break
    assert behind > 3


def test_a_wait_that_was_interrupted_leaves_the_lock_free_and_wakes_others():
    lock = threading.Lock()
    bell, also = ThreadBell(lock), ThreadBell(lock)
    for behind in itertools.count():
        asked = itertools.count()
        waits = partial(bell.wait_for, lambda asked=asked: next(asked) == 1, 0.001)
        whole = interrupted(waits, behind, within="")
        assert lock.acquire(timeout=PATIENT), behind
        lock.release()
        rings = threading.Event()
        other = threading.Thread(target=also.wait_for, args=(rings.is_set, None), daemon=True)
        other.start()
        rings.set()
        with lock:
            bell.ring()
            also.ring()
        other.join(PATIENT)
        assert not other.is_alive(), behind
        if whole:
            break
    assert behind > 5


@pytest.mark.parametrize("runs", [False, True], ids=["before-it-runs", "when-it-runs"])
def test_a_client_whose_thread_was_interrupted_as_it_began_has_one_and_ends_it(monkeypatch, runs):
    start, before = threading.Thread.start, set(threading.enumerate())

    def interrupted_start(thread):
        if runs:
            start(thread)
        raise KeyboardInterrupt

    with Client("127.0.0.1:1") as client:
        shell = client._session.shell
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupted_start)
            with pytest.raises(KeyboardInterrupt):
                shell.post(lambda: None)
        for _ in range(3):
            ran = threading.Event()
            assert shell.post(ran.set)
            assert ran.wait(PATIENT)
        wait_for(lambda: len(set(threading.enumerate()) - before) == 1, "one thread")
        assert shell.is_running
    wait_for(lambda: set(threading.enumerate()) <= before, "the end of the thread")


@pytest.mark.parametrize("runs", [False, True], ids=["before-it-runs", "when-it-runs"])
def test_a_worker_whose_thread_was_interrupted_as_it_began_has_one(monkeypatch, runs):
    start, lock, goes_on, done = threading.Thread.start, threading.Lock(), threading.Event(), []
    worker = Worker("interrupted-worker", lock)

    def interrupted_start(thread):
        if runs:
            start(thread)
        raise KeyboardInterrupt

    def first():
        goes_on.wait(PATIENT)
        done.append("first")

    def put(act):
        with lock:
            worker.put_locked(act)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted_start)
        with pytest.raises(KeyboardInterrupt):
            put(first)
    put(partial(done.append, "second"))
    put(partial(done.append, "third"))
    threads = [thread for thread in threading.enumerate() if thread.name == worker.name]
    wait_for(lambda: sum(thread.is_alive() for thread in threads) == 1, "one thread")
    goes_on.set()
    assert worker.join(PATIENT)
    assert done == ["first", "second", "third"]


def test_workers_whose_first_thread_was_interrupted_as_it_began_end_it(monkeypatch):
    start, worked = threading.Thread.start, []
    workers = Workers("interrupted-workers", 1, worked.append)

    def interrupted_start(thread):
        start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted_start)
        with pytest.raises(KeyboardInterrupt):
            workers.start()
    workers.put("task")
    wait_for(lambda: worked == ["task"], "its work")
    (thread,) = [thread for thread in threading.enumerate() if thread.name.startswith("interrupted-workers")]
    assert workers.end(time.monotonic() + PATIENT) == ()
    assert not thread.is_alive()


def test_a_client_that_finds_no_descriptor_says_so_and_works_when_there_is_one(monkeypatch):
    def none_left():
        raise OSError(errno.EMFILE, "Too many open files")

    with Client("127.0.0.1:1") as client:
        shell, ran = client._session.shell, threading.Event()
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socketpair", none_left)
            with pytest.raises(OSError, match="Too many open files"):
                shell.post(lambda: None)
        assert shell.post(ran.set)
        assert ran.wait(PATIENT)


def test_a_procedure_that_a_signal_ends_as_it_is_resumed_ends_once(client, monkeypatch):
    shell, resumes, ends = client._session.shell, [], []
    monkeypatch.setattr(shell, "_sleep", lambda _, resume: not resumes.append(resume))

    def waits():
        yield Sleep(0.0)

    class Interrupted:
        """The lock, which the interrupted thread takes before the one that resumes."""

        def __enter__(self):
            procedure.close()
            ends.append("by the signal")

        def __exit__(self, *_):
            pass

    procedure = waits()
    shell.run(procedure, lambda *_: ends.append("by itself"))
    with monkeypatch.context() as patch:
        patch.setattr(shell, "lock", Interrupted())
        resumes[0](None)
    assert ends == ["by the signal"]


def pulls(client, group):
    return client.pull_consumer(group).subscribe("T")


def pushes(client, group):
    consumer = client.push_consumer(group)
    consumer.subscribe("T")(lambda message: None)
    return consumer


class ALink(Link):
    def _disconnect(self):
        pass


def test_what_was_answered_in_a_read_that_was_interrupted_ends_once(client):
    """As on an event loop, where handlers raise as answers come: nothing waits for ever or stays in flight."""
    session = client._session
    session.begin()
    producers = client.producer("one"), client.producer("two")
    queue = MessageQueue("orders", "broker-a", 3)

    def launch(link, producer, end):
        now = time.monotonic()
        flight = Flight(producer._fleet, queue, "key", "", b"x", None, now, now, now, end)
        with producer._room.lock:
            assert producer._enters(1)
        link._connection.launch(flight, Stop("g", queue, "a:1", False), 5)

    for behind in itertools.count():
        link, ends = ALink("a:1", session.shell, nullcontext()), []
        link._is_open = True
        for number in range(6):
            launch(link, producers[number // 2 % 2], lambda *_, ends=ends, number=number: ends.append(number))
        request = requests.members("g")
        link._connection.call(request, 1e9, lambda _, ends=ends: ends.append(6))
        data = b"".join(stored(number + 1) for number in range(7))
        whole = interrupted(partial(link._received, data), behind)
        if not whole:
            link.fail(CallFailed("lost", "the test ends what was not touched"))
        wait_for(lambda ends=ends: len(ends) >= 7, f"all ends, interrupted behind {behind} calls")
        wait_for(lambda: not any(one.in_flight for one in producers), "nothing in flight")
        assert sorted(ends) == list(range(7)), behind
        assert not any(one._in_flight_bytes for one in producers), behind
        if whole:
            break
    assert behind > 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # generators that are dropped
@pytest.mark.parametrize("make", [pulls, pushes])
def test_a_consumer_whose_start_was_interrupted_starts(client, monkeypatch, make):
    joined = []

    def join(_core, group, *_):
        yield Sleep(0.0)
        joined.append(group)

    monkeypatch.setattr(ClientCore, "join", join)
    client._session.begin()
    for behind in itertools.count():
        consumer = make(client, f"g{behind}")
        whole = interrupted(lambda consumer=consumer: not finish(consumer._starting()), behind)
        again = threading.Thread(target=lambda consumer=consumer: finish(consumer._starting()), daemon=True)
        again.start()
        again.join(PATIENT)
        assert not again.is_alive(), behind
        assert joined == [consumer._core], behind
        del joined[:]
        if whole:
            break
    assert behind > 10


def test_a_process_of_multiprocessing_closes_all_clients_by_one_finalizer(monkeypatch):
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    before = set(util._finalizer_registry)
    for _ in range(3):
        with Client("127.0.0.1:1") as client:
            client._session.begin()
    added = set(util._finalizer_registry) - before
    for key in added:
        del util._finalizer_registry[key]
    assert len(added) <= 1
