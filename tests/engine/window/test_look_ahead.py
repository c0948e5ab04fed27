"""Queues are measured before a list needs them, each once; the list shows what a first look would show."""

from __future__ import annotations

import shutil
import time

import pytest

from appliance.engine.window.figures import look_ahead, measures
from appliance.engine.window.messages.queue_reader import QueueReader
from tests.support.waiting import wait_for


def look_ahead_of(running):
    """Look ahead until there is nothing more to do; return the number of steps."""
    for number in range(1, 1000):
        if not running.window.look_ahead.step():
            return number
    raise AssertionError("there is always more to measure")


def wait_written(running):
    """Wait until all entries are in queue files, and none of them in memory."""
    store = running.engine.broker.store
    wait_for(lambda: all(q.max_offset == q.tail_base for q in store.queues.all()), "the queue files")


def fill(running, topics):
    for n in range(topics):
        for queue in range(4):
            running.put(f"T{n}", b"x" * (100 + n), queue=queue)


def test_a_list_reads_no_file_that_was_looked_at_ahead(running):
    fill(running, 5)
    wait_written(running)
    look_ahead_of(running)
    parts = running.window._parts
    for queues in parts.sampler.index.by_topic().values():
        assert parts.topics._measures.are_known(queues)
    shutil.rmtree(running.data_dir / "store" / "consumequeue" / "T3")
    rows = {row.name: row for row in running.window.topics.page().rows}
    assert sum(row.bytes for row in rows.values()) == running.engine.broker.store.published
    assert all(row.oldest_at_ms and not row.bytes_estimated for row in rows.values())


def test_a_step_measures_some_queues_and_goes_on_with_topics_that_came(running, monkeypatch):
    monkeypatch.setattr(look_ahead, "STEP_QUEUES", 4)
    fill(running, 3)
    wait_written(running)
    measured = running.window._parts.topics._measures
    assert running.window.look_ahead.step()
    assert measured.count == 4
    assert look_ahead_of(running) >= 2
    assert measured.count == 12
    assert not running.window.look_ahead.step()
    running.put("Late", b"x")
    look_ahead_of(running)
    assert measured.count == 13


def test_it_ends_at_half_of_what_is_remembered(running, monkeypatch):
    monkeypatch.setattr(look_ahead, "MOST_QUEUES", 8)
    fill(running, 5)
    assert look_ahead_of(running) < 20
    assert running.window._parts.topics._measures.count == 8
    assert sum(row.bytes for row in running.window.topics.page().rows) == running.engine.broker.store.published


def test_what_has_changed_since_is_shown_as_it_is(running):
    fill(running, 2)
    wait_written(running)
    look_ahead_of(running)
    time.sleep(0.002)
    running.put("T1", b"y" * 1000, b"z", queue=2)
    rows = {row.name: row for row in running.window.topics.page().rows}
    assert (rows["T1"].messages, rows["T1"].bytes_estimated) == (6, False)
    assert sum(row.bytes for row in rows.values()) == running.engine.broker.store.published


@pytest.mark.parametrize("written", [False, True], ids=["in memory", "in files"])
def test_of_a_queue_that_grew_only_what_is_new_is_read(running, monkeypatch, written):
    running.put("Grows", *[b"x" * 50] * 20)
    assert running.window.topics.page().rows[0].bytes == running.engine.broker.store.published
    running.put("Grows", b"y" * 70, b"z")
    if written:
        wait_written(running)
    asked = []
    reader = measures.QueueReader
    plain = reader.raw_entries
    monkeypatch.setattr(reader, "raw_entries", lambda *args: asked.append(args[2:]) or plain(*args))
    row = running.window.topics.page().rows[0]
    assert (row.bytes, row.bytes_estimated) == (running.engine.broker.store.published, False)
    assert asked == [(20, 2)]


def test_the_oldest_message_of_a_topic_is_the_first_in_the_log_whichever_queue_has_it(running):
    for queue in (3, 0, 2):
        running.put("Orders", b"x", queue=queue)
        time.sleep(0.003)
    oldest = [queue.oldest_at_ms for queue in running.window.topics.queue_rows("Orders")]
    assert oldest[3] < oldest[0] < oldest[2]
    queues = running.window._parts.sampler.index.of("Orders")
    for some in (queues, queues[::-1], queues[1:] + queues[:1]):
        fresh = measures.Measures()
        with QueueReader(running.engine.broker.store) as reader:
            assert fresh.oldest_at_ms(reader, some) == oldest[3]
            assert fresh.known_oldest(some) == (True, oldest[3])
