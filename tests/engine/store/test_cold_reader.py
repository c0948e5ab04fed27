"""Entries that the pool reads for a pull."""

import os
import socket
from collections.abc import Mapping

import pytest

from appliance.engine.disk import _cached_pages
from appliance.engine.filter.message_filter import EVERYTHING, MessageFilter
from appliance.engine.protocol.record import decode_record
from appliance.engine.store import cold_reader
from appliance.engine.store.results import GetStatus
from tests.support.store import StoreUnderTest


@pytest.fixture
def store(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    yield store
    store.stop()


def test_descriptors_are_bounded_however_many_queues_are_read(store, monkeypatch):
    monkeypatch.setattr(cold_reader, "_DESCRIPTORS", 5)
    for queue_id in range(12):
        store.write("T", queue_id, b"%d" % queue_id)
    store.wait_recovery_position()
    reader = store.store.new_cold_reader()
    for queue_id in [*range(12), *range(12)]:
        queue = store.store.find_queue("T", queue_id)
        entries = reader.entries(queue, 0, 32)
        result = store.store.get(queue, 0, 32, EVERYTHING, entries)
        assert (result.status, result.message_count) == (GetStatus.FOUND, 1)
        assert len(reader._files._open) <= 5
    reader.close()
    assert not reader._files._open


def test_what_was_read_goes_on_into_the_tail(store):
    """An entry read from the page cache does so, too."""
    store.write("T", 0, *[b"%d" % i for i in range(10)])
    store.wait_recovery_position()
    queue = store.store.find_queue("T", 0)
    entries = store.cold_reader.entries(queue, 4, 32)
    assert len(entries) == 6 * 20
    queue.tail_base = 8  # as if the last two had not been written when the answer is made
    queue.tail[:] = entries[4 * 20 :]
    result = store.store.get(queue, 4, 32, EVERYTHING, entries[: 4 * 20])
    assert (result.message_count, result.next_offset) == (6, 10)
    queue.tail_base = 10
    del queue.tail[:]


def test_a_queue_that_is_being_built_anew_has_no_entries_now(store):
    store.write("T", 0, b"a", b"b")
    store.wait_recovery_position()
    queue = store.store.find_queue("T", 0)
    queue.broken = True
    entries = store.cold_reader.entries(queue, 0, 32)
    assert entries == b""
    queue.broken = False  # whole again before the answer is made
    result = store.store.get(queue, 0, 32, EVERYTHING, entries)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 0)
    assert not queue.broken, "nothing read is no reason to build it anew"
    assert store.bodies("T", 0) == [b"a", b"b"]


class OfColour(MessageFilter):
    """Looks at a property, as a filter of SQL92 will."""

    def __init__(self, codes=None) -> None:
        super().__init__(codes, reads_records=True)

    def matches(self, properties: Mapping[str, str]) -> bool:
        return properties.get("colour") == "blue"


@pytest.mark.parametrize("written", [True, False], ids=["in files", "in the tail"])
def test_a_filter_may_look_at_what_records_say(store, written):
    """This happens in the pool; the loop reads only the last few records, which have just come."""
    for number, colour in enumerate([b"red", b"blue", b"blue", b"red", b"blue", b"none"]):
        store.put("T", 0, b"%d" % number, b"colour\x01%s\x02" % colour)
        store.tick()
    if written:
        store.wait_recovery_position()
    queue = store.store.find_queue("T", 0)

    def bodies(wanted, offset=0, count=32):
        now = store.store.get(queue, offset, count, wanted)
        entries = store.cold_reader.entries(queue, offset, count, wanted)
        result = store.store.get(queue, offset, count, wanted, entries)
        assert now == (None if written else result), "on the loop"
        found = [decode_record(store.store.log.read(physical, size)) for physical, size in result.runs[:1]]
        return result.status, result.message_count, result.next_offset, [record.body for record in found]

    assert bodies(OfColour()) == (GetStatus.FOUND, 3, 6, [b"1"])
    assert bodies(OfColour(), count=2) == (GetStatus.FOUND, 2, 4, [b"1"]), "further entries were looked through"
    assert bodies(OfColour(frozenset((0,)))) == (GetStatus.FOUND, 3, 6, [b"1"]), "their tag code"
    assert bodies(OfColour(frozenset((1,)))) == (GetStatus.NO_MATCHED_MESSAGE, 0, 6, []), "entries speak first"
    assert bodies(OfColour(), offset=5) == (GetStatus.NO_MATCHED_MESSAGE, 0, 6, [])
    assert store.store.get(queue, 6, 32, OfColour()).status == GetStatus.OFFSET_OVERFLOW_ONE


def test_what_was_just_written_may_go_from_the_page_cache_to_the_socket(store):
    """This holds on tmpfs, too: cachestat(2) sees its pages, though reads that never wait do not work there."""
    log = store.store.log
    physical = store.put("T", 0, b"x" * 20_000)
    store.tick()
    segment = log.segment_at(physical)
    known = _cached_pages(segment.fd, 0, 1) >= 0
    place = log.resident(physical, 20_000)
    assert place == ((segment.fd, physical - segment.start) if known else None)
    if place is not None:
        left, right = socket.socketpair()
        with left, right:
            sent = os.sendfile(left.fileno(), *place, 20_000)
            assert sent > 0
            assert right.recv(sent, socket.MSG_WAITALL) == log.read(physical, sent)
