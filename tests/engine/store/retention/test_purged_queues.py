"""Purged queues: what is hidden stays hidden over restarts, kills and rebuilt queues, and nothing else ever is."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from appliance.engine.disk import Disk
from appliance.engine.store.paths import StorePaths
from appliance.engine.store.queues.consume_queue import ENTRY, HOLE_SIZE
from appliance.engine.store.results import GetStatus
from appliance.engine.store.retention import purged_queues
from appliance.engine.store.retention.clean_service import CleanService
from appliance.engine.store.retention.purged_queues import (
    NAME,
    PurgedQueues,
    behind_place,
    decode,
    encode,
    not_purged,
)
from appliance.engine.store_tools.offline_store import find_store
from appliance.engine.store_tools.problems import Problems
from appliance.engine.store_tools.verification import verify
from tests.support.store import StoreUnderTest
from tests.support.waiting import wait_for


@pytest.fixture
def store(tmp_path):
    under_test = StoreUnderTest(tmp_path).open()
    under_test.write("T", 0, *(b"%d" % number for number in range(10)))
    under_test.write("T", 1, b"other queue")
    under_test.write("U", 0, b"other topic")
    alive = [under_test]
    yield alive
    alive[0].stop()


def purge(under_test, offset, topic="T", queue_id=0):
    """Purge a queue up to an offset."""
    store = under_test.store
    queue = store.find_queue(topic, queue_id)
    physical = ENTRY.unpack(store.queues.read_entries(queue, offset - 1, 1))[0]
    store.cleaner.purge({topic: {queue_id: physical + 1}})


def again(alive, how):
    """Stop or kill the store, and open it again; `rebuilt`: without its queues."""
    before = alive[0]
    before.stop() if how == "stopped" else before.die()
    if how == "rebuilt":
        shutil.rmtree(before.directory / "store" / "consumequeue")
    if how == "without a position":
        (before.directory / "rocketbox" / "recovery-position").unlink()
    alive[0] = StoreUnderTest(before.directory).open()
    alive[0].wait_whole()
    return alive[0]


def test_a_purged_queue_begins_behind_what_was_purged(store):
    purge(store[0], 7)
    queue = store[0].store.find_queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (7, 10)
    result = store[0].get(queue, 0, 32)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 7)
    assert store[0].bodies("T", 0) == [b"7", b"8", b"9"]
    assert store[0].bodies("T", 1) == [b"other queue"]
    assert store[0].bodies("U", 0) == [b"other topic"]


@pytest.mark.parametrize("how", ["stopped", "killed", "rebuilt", "without a position"])
def test_it_does_so_after_a_restart(store, how):
    purge(store[0], 7)
    after = again(store, how)
    assert after.bodies("T", 0) == [b"7", b"8", b"9"]
    assert after.bodies("T", 1) == [b"other queue"]
    after.write("T", 0, b"later")
    assert after.bodies("T", 0) == [b"7", b"8", b"9", b"later"]


@pytest.mark.parametrize("how", ["killed", "rebuilt", "without a position"])
def test_recovery_alone_hides_it_before_the_first_read(store, monkeypatch, how):
    purge(store[0], 7)
    monkeypatch.setattr(CleanService, "start", lambda self: self._prepare())
    assert again(store, how).store.find_queue("T", 0).min_offset == 7
    monkeypatch.undo()


def test_notes_of_queues_with_one_and_two_digits_are_read_again(store):
    places = {"T": {2: 5, 10: 7, 11: 8, 100: 9}}
    assert decode(encode(places)) == places


def test_a_queue_that_is_purged_whole_goes_on_at_its_offset(store):
    purge(store[0], 10)
    after = again(store, "killed")
    queue = after.store.find_queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (10, 10)
    after.write("T", 0, b"later")
    assert after.bodies("T", 0) == [b"later"]
    assert queue.max_offset == 11


def test_a_purge_is_durable_before_it_is_acknowledged_and_not_without_its_note(store, monkeypatch):
    def full(path, data):
        raise OSError(28, "no room", str(path))

    monkeypatch.setattr(store[0].store.files.purged_queues._disk, "replace", full)
    with pytest.raises(OSError, match="no room"):
        purge(store[0], 7)
    monkeypatch.undo()
    assert store[0].bodies("T", 0) == [b"%d" % number for number in range(10)]
    assert len(again(store, "killed").bodies("T", 0)) == 10


def test_messages_that_come_to_the_place_of_lost_ones_are_shown(store):
    """A power cut may take purged messages with it; then the note is limited to the log's end."""
    purge(store[0], 10)
    own = store[0].store.files.purged_queues
    end = store[0].store.log.written
    store[0].store.cleaner.purge({"T": {0: end + 1000, 1: end + 1000}})
    after = again(store, "killed")
    assert after.store.files.purged_queues.places["T"] == {0: after.store.log.written, 1: after.store.log.written}
    assert own is not after.store.files.purged_queues
    after.write("T", 0, b"new")
    after.write("T", 1, b"new, too")
    assert after.bodies("T", 0) == [b"new"]
    assert after.bodies("T", 1) == [b"new, too"]


def test_a_queue_whose_purged_messages_a_power_cut_took_shows_the_next_ones(store, monkeypatch):
    """The ledger notes the minimum offset of a purge with the end of a round that began before it."""
    under_test = store[0]
    under_test.wait_recovery_position()
    flush = under_test.store._flush_queues
    queue = under_test.store.find_queue("T", 0)
    note, durable = flush._note, []

    def note_after_a_purge(parts):
        monkeypatch.setattr(flush, "_note", note)
        under_test.store._flush.stop()
        durable.append(under_test.store.log.durable)
        under_test.write("T", 0, b"lost", b"lost, too")
        physical = ENTRY.unpack(under_test.store.queues.read_entries(queue, 12, 1))[0]
        with suppress(TimeoutError):
            under_test.store.cleaner.purge({"T": {0: physical + 1}}, 0.0)
        wait_for(lambda: queue.min_offset == 13, "the purge is not done")
        note(parts)

    monkeypatch.setattr(flush, "_note", note_after_a_purge)
    under_test.write("T", 0, b"durable")
    files = under_test.store.files
    wait_for(lambda: durable and files.recovery_position.position.offset == durable[0], "no position is saved")
    under_test.die()
    with (under_test.directory / "store" / "commitlog" / ("0" * 20)).open("r+b") as log:
        log.seek(durable[0])
        log.write(bytes(1000))
    after = store[0] = StoreUnderTest(under_test.directory).open()
    after.write("T", 0, b"new")
    assert after.bodies("T", 0) == [b"new"]


def test_what_was_purged_is_no_damage(store):
    purge(store[0], 10)
    store[0].stop()
    problems = Problems()
    verify(find_store(store[0].directory), problems)
    assert [one for one in problems.kept if one.level == "damage"] == []
    store[0] = StoreUnderTest(store[0].directory).open()


# --- the file


def notes_in(directory):
    paths = StorePaths(directory / "store", directory / "rocketbox")
    paths.own.mkdir(parents=True, exist_ok=True)
    return PurgedQueues(paths, Disk()), paths.own / NAME


def test_notes_only_move_forward_and_outlive_the_log(tmp_path, monkeypatch):
    """A member that was away may still have the messages. Of notes without another use so many stay."""
    monkeypatch.setattr(purged_queues, "MOST_OLD", 2)
    notes, _ = notes_in(tmp_path)
    notes.remember({"T": {0: 100, 1: 50}}, 0)
    revision = notes.state[0]
    notes.remember({"T": {0: 80}, "U": {3: 500}}, 0)
    assert notes.places == {"T": {0: 100, 1: 50}, "U": {3: 500}}
    assert notes.state[0] != revision
    notes.remember({}, 100)
    assert notes.places == {"T": {0: 100, 1: 50}, "U": {3: 500}}
    notes.remember({"V": {0: 70}}, 100)
    assert notes.places == {"T": {0: 100}, "U": {3: 500}, "V": {0: 70}}
    again, _ = notes_in(tmp_path)
    assert again.load() == notes.places
    assert again.state == notes.state


def test_a_damaged_file_hides_nothing(tmp_path):
    notes, path = notes_in(tmp_path)
    notes.remember({"T": {0: 100}}, 0)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"100", b"900"))
    assert notes_in(tmp_path)[0].load() == {}
    for other in (b"", b"[]", b'{"queues": 3, "crc32": 0}', b"\xff"):
        path.write_bytes(other)
        assert notes_in(tmp_path)[0].load() == {}


def test_the_files_page_shows_what_is_written():
    page = (Path(__file__).parents[4] / "docs/formats/purged-queues.md").read_text()
    assert encode({"T": {0: 12345}}).decode() in page
    assert decode(encode({"T": {0: 12345}})) == {"T": {0: 12345}}


def test_an_entry_that_is_missing_hides_nothing_behind_it():
    entries = [ENTRY.pack(0, HOLE_SIZE, 0), ENTRY.pack(100, 90, 0), bytes(20), b"", ENTRY.pack(300, 90, 0)]
    assert behind_place(entries.__getitem__, 0, 5, 150) == 2
    assert behind_place(entries.__getitem__, 2, 5, 150) == 2
    assert behind_place(entries.__getitem__, 0, 5, 301) == 5
    assert behind_place(entries.__getitem__, 0, 5, 0) in (0, 1)


def test_a_purge_that_was_undone_is_shown_again_once_queues_were_made_from_the_log(store):
    purge(store[0], 3)
    stays = store[0].store.files.purged_queues.places["T"]
    purge(store[0], 7)
    purge(store[0], 1, "U")
    store[0].store.files.purged_queues.undo({"T": stays, "U": {}})
    reopened = again(store, "without a position")
    assert reopened.store.find_queue("T", 0).min_offset == 3
    assert reopened.store.find_queue("U", 0).min_offset == 0


@pytest.mark.parametrize(
    ("theirs", "own", "begin", "found"),
    [
        ({}, {"T": {0: 50}}, 0, {"T": {}}),
        ({"T": {0: 20}}, {"T": {0: 50}}, 0, {"T": {0: 20}}),
        ({"T": {0: 50}}, {"T": {0: 50}}, 0, {}),
        ({"T": {0: 60, 1: 10}}, {"T": {0: 50}}, 0, {}),
        ({}, {"T": {0: 50}}, 50, {}),  # all of it has left the log
    ],
)
def test_a_purge_that_the_leader_does_not_know_is_found(theirs, own, begin, found):
    assert not_purged(theirs, own, begin) == found
