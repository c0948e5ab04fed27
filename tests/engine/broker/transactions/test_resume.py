"""A discarded half message that is made a half message again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from appliance.engine.broker.transactions.resume import ResumeDiscarded
from appliance.engine.errors import Conflict, InvalidInput, NotFound, Unavailable
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import decode_record
from tests.engine.broker.transactions.test_transactions import (
    ASIDE,
    COMMIT,
    GROUP,
    HALF,
    ROLL_BACK,
    TOPIC,
    end,
    question,
    send_half,
    stored,
)
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    fast = {"transaction_time_out_ms": 10, "transaction_check_interval_ms": 60, "transaction_check_max": 1}
    found = RunningEngine(tmp_path, broker=fast)
    yield found
    found.stop()


def set_aside_no_more(running):
    """What is resumed is asked about once, and stays a half message however long the test takes."""
    check = running.engine.broker.transactions.check
    settings = check._settings
    check._settings = lambda: settings()._replace(interval_ms=3_600_000)


def test_its_producers_are_asked_from_the_beginning(running):
    producer = running.produce_as("p1", GROUP)
    half = send_half(producer, "K", "x\x01y\x02", b"body")
    question(producer)
    peer = running.peer()
    [aside] = wait_for(lambda: stored(peer, ASIDE), "the discarded one")
    set_aside_no_more(running)
    resume = running.engine.broker.transactions.resume
    done = resume.resume(aside.physical_offset)
    assert (done.half_offset, done.unique_key) == (1, "K")
    asked = question(producer)
    assert asked.ext_fields["tranStateTableOffset"] == "1"
    record = decode_record(asked.body)
    found = decode_properties(record.properties)
    assert (record.topic, record.queue_id, record.body, found["x"]) == (TOPIC, 2, b"body", "y")
    assert found["TRANSACTION_CHECK_TIMES"] == "1"
    again = stored(peer, HALF)[1]
    assert decode_properties(again.properties)["TRANSACTION_CHECK_TIMES"] == "0"
    assert (again.flag, again.born_time_ms, again.physical_offset) == (7, aside.born_time_ms, done.physical_offset)
    # The discarded half stays discarded; the new one is committed.
    assert end(producer, half, COMMIT).code == 1
    new = half | {"tranStateTableOffset": "1", "commitLogOffset": str(done.physical_offset)}
    assert end(producer, new, COMMIT).code == 0
    assert len(stored(peer, TOPIC, 2)) == 1


@pytest.mark.parametrize("restart", [False, True])
def test_it_is_resumed_once(running, restart):
    producer = running.produce_as("p1", GROUP)
    send_half(producer, "K")
    [aside] = wait_for(lambda: stored(running._ours(), ASIDE), "the discarded one")
    running.engine.broker.transactions.resume.resume(aside.physical_offset)
    if restart:
        running.restart()
    with pytest.raises(Conflict, match="resumed before"):
        running.engine.broker.transactions.resume.resume(aside.physical_offset)
    assert len(stored(running.peer(), HALF)) == 2


@pytest.mark.parametrize("restart", [False, True])
def test_both_of_one_key_are_resumed_and_each_once(running, restart):
    """A `Message` that was sent twice: the halves have one key and one birth."""
    producer = running.produce_as("p1", GROUP)
    send_half(producer, "K")
    [first] = wait_for(lambda: stored(running._ours(), ASIDE), "the first discarded one")
    send_half(producer, "K")
    both = wait_for(lambda: len(found := stored(running._ours(), ASIDE)) == 2 and found, "the second one")
    for aside in (first, both[1]):
        running.engine.broker.transactions.resume.resume(aside.physical_offset)
        if restart:
            running.restart()
    assert len(stored(running.peer(), HALF)) == 4
    for aside in both:
        with pytest.raises(Conflict, match="resumed before"):
            running.engine.broker.transactions.resume.resume(aside.physical_offset)


@pytest.mark.parametrize("restart", [False, True])
def test_newer_halves_of_its_key_do_not_hide_that_it_was_resumed(running, restart, monkeypatch):
    """A producer chooses its keys, and each check that puts a half back stores it once more."""
    producer = running.produce_as("p1", GROUP)
    send_half(producer, "K")
    [aside] = wait_for(lambda: stored(running._ours(), ASIDE), "the discarded one")
    done = running.engine.broker.transactions.resume.resume(aside.physical_offset)
    for _ in range(70):
        end(producer, send_half(producer, "K"), ROLL_BACK)
    if restart:
        running.restart()
    resume = running.engine.broker.transactions.resume
    with pytest.raises(Conflict, match="resumed before"):
        resume.resume(aside.physical_offset)
    assert resume._search(resume.find(aside.physical_offset), 60.0) == done.physical_offset
    if restart:
        monkeypatch.setattr("appliance.engine.broker.transactions.resume.FIND_S", -1.0)
        with pytest.raises(Unavailable, match="too many messages"):
            resume.resume(aside.physical_offset)
    assert resume.resumed_as(resume.find(aside.physical_offset)) in (None, done.physical_offset)


def test_nothing_is_resumed_while_the_index_lacks_what_was_resumed_before_the_start(running):
    producer = running.produce_as("p1", GROUP)
    send_half(producer, "K")
    [aside] = wait_for(lambda: stored(running._ours(), ASIDE), "the discarded one")
    resume = running.engine.broker.transactions.resume
    position, resume._remembered_from = resume._remembered_from, 1 << 60
    with pytest.raises(Unavailable, match="not complete"):
        resume.resume(aside.physical_offset)
    resume._remembered_from = position
    assert resume.resume(aside.physical_offset).unique_key == "K"


def test_without_an_index_only_what_was_discarded_since_the_start_is_resumed(tmp_path):
    fast = {"transaction_time_out_ms": 10, "transaction_check_interval_ms": 60, "transaction_check_max": 1}
    running = RunningEngine(tmp_path, broker=fast, store={"message_index_enable": False})
    try:
        producer = running.produce_as("p1", GROUP)
        send_half(producer, "K")
        [aside] = wait_for(lambda: stored(running._ours(), ASIDE), "the discarded one")
        running.engine.broker.transactions.resume.resume(aside.physical_offset)
        with pytest.raises(Conflict, match="resumed before"):
            running.engine.broker.transactions.resume.resume(aside.physical_offset)
        running.restart()
        assert running.engine.broker.transactions._began_at > aside.physical_offset
        with pytest.raises(Unavailable, match="is off"):
            running.engine.broker.transactions.resume.resume(aside.physical_offset)
    finally:
        running.stop()


@pytest.mark.parametrize("deleted_first", [False, True])
def test_one_of_a_deleted_topic_is_not_committed_into_the_next_one(running, deleted_first):
    """Whether it was set aside before its topic was deleted, or after that."""
    peer, producer = running.peer(), running.produce_as("p1", GROUP)
    running.put(TOPIC, b"old")
    half = send_half(producer, "K")

    def delete():
        assert peer.ask(215, {"topic": TOPIC}).code == 0
        running.put(TOPIC, b"new")

    if deleted_first:
        delete()
    [aside] = wait_for(lambda: stored(peer, ASIDE), "the discarded one")
    if not deleted_first:
        delete()
    set_aside_no_more(running)
    done = running.engine.broker.transactions.resume.resume(aside.physical_offset)
    new = half | {"tranStateTableOffset": str(done.half_offset), "commitLogOffset": str(done.physical_offset)}
    answer = end(producer, new, COMMIT)
    assert (answer.code, "was deleted after the half message was sent" in answer.remark) == (1, True)
    assert stored(peer, TOPIC, 2) == []


def test_what_is_no_discarded_one(running):
    half = send_half(running.peer(), "K")
    resume = running.engine.broker.transactions.resume
    with pytest.raises(InvalidInput):
        resume.resume(int(half["commitLogOffset"]))
    with pytest.raises(NotFound):
        resume.resume(1 << 40)


def test_323_over_the_wire(running):
    """An offset id names the discarded half; it works once."""
    producer = running.produce_as("p1", GROUP)
    half = send_half(producer, "K")
    question(producer)
    peer = running.peer()
    [aside] = wait_for(lambda: stored(peer, ASIDE), "the discarded one")
    set_aside_no_more(running)

    def resume(text: str) -> tuple[int, str | None]:
        answer = peer.ask(323, {"msgId": text, "topic": ASIDE})
        return answer.code, answer.remark

    def id_of(physical: int) -> str:
        return "7F00000100002A9F" + f"{physical:016X}"

    assert resume("x") == (1, "msgId is no offset id: 32 or 56 hex digits")
    assert resume(id_of(int(half["commitLogOffset"])))[0] == 1, "a half that is none of those"
    assert resume(id_of(1 << 60))[0] == 1
    assert resume(id_of(aside.physical_offset)) == (0, None)
    assert resume(id_of(aside.physical_offset)) == (1, "the discarded transaction was resumed before")
    asked = question(producer)
    assert asked.ext_fields["tranStateTableOffset"] == "1"
    assert (
        end(
            peer, half | {name: asked.ext_fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}, COMMIT
        ).code
        == 0
    )
    assert len(stored(peer, TOPIC, 2)) == 1


def test_pages_and_tools_that_ask_for_the_first_time_at_once_share_one_lock(running, monkeypatch):
    """They got one each, where Python has no lock of its own for this (from 3.12 on), and resumed one half twice."""
    entered, go_on = threading.Semaphore(0), threading.Event()

    class Slow(ResumeDiscarded):
        def __init__(self, *parts):
            entered.release()
            go_on.wait(60)
            super().__init__(*parts)

    monkeypatch.setattr("appliance.engine.broker.transactions.resume.ResumeDiscarded", Slow)
    transactions = running.engine.broker.transactions
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(lambda: transactions.resume) for _ in range(2)]
        entered.acquire()
        entered.acquire(timeout=0.1)
        go_on.set()
        assert found[0].result() is found[1].result()
