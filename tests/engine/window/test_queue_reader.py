"""Reading queues while remoting-io and the flush thread work on them."""

import pytest

from appliance.engine.window.messages.queue_reader import QueueReader
from tests.support.engine import send_fields


@pytest.fixture
def store(running):
    """Ten messages of 1, 2 ... 10 bytes in one queue, their entries in the tail."""
    store = running.engine.broker.store
    store._flush_queues.stop()
    peer = running.peer()
    for n in range(1, 11):
        assert peer.ask(310, send_fields("Orders"), b"x" * n).code == 0
    assert len(store.find_queue("Orders", 0).tail) == 200
    return store


def sizes(store, offset):
    with QueueReader(store) as reader:
        found = reader.record(store.find_queue("Orders", 0), offset)
    return None if found is None else len(found[0].body)


def test_a_tail_caught_while_it_is_trimmed_gives_no_wrong_entry(store):
    queue = store.find_queue("Orders", 0)
    entries = bytes(queue.tail)
    del queue.tail[:60]  # the first step of trim(); the base moves a moment later
    with QueueReader(store) as reader:
        assert reader.raw_entries(queue, 4, 1) == b""
        queue.tail_base = 3
        assert reader.raw_entries(queue, 4, 1) == entries[80:100]
    assert sizes(store, 4) == 5


def test_a_record_must_say_the_offset_it_was_looked_up_by(store):
    queue = store.find_queue("Orders", 0)
    queue.tail[0:20] = queue.tail[20:40]  # the entry of message 1 stands for message 0
    assert sizes(store, 0) is None
    with QueueReader(store) as reader:
        assert reader.stored_at_ms(queue, 0) is None
        assert reader.stored_at_ms(queue, 1) > 0
    assert sizes(store, 1) == 2


def test_nothing_unpublished_is_read(store):
    queue = store.find_queue("Orders", 0)
    queue.max_offset = 7  # the last three wait for their sync
    with QueueReader(store) as reader:
        assert len(reader.entries(queue, 5, 100)) == 2
        assert reader.record(queue, 7) is None


def test_a_disk_that_fails_is_a_message_that_cannot_be_shown(store, monkeypatch):
    def fail(*args):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(store.log, "read", fail)
    assert sizes(store, 0) is None
    monkeypatch.undo()
    assert sizes(store, 0) == 1
