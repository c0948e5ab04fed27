"""A queue whose files lack entries: the store's answers meanwhile, and the queue after it was rebuilt."""

import logging
import shutil

import pytest

from appliance.engine.errors import QueueBroken
from appliance.engine.store.queues.consume_queue import ENTRY, HOLE_SIZE
from appliance.engine.store.queues.flush_queues import TopicDeletion
from appliance.engine.store.queues.queue_repair import QueueRepair
from appliance.engine.store.retention.clean_queues import QueueTrimmer
from appliance.engine.store.time_search import Boundary, TimeSearch
from tests.support.directories import shared_directory
from tests.support.store import StoreUnderTest

COUNT = 20


class Damaged(StoreUnderTest):
    """COUNT messages of T-0, a second apart, each followed by one of another queue; then records and queue files are
    lost, and the queues rebuilt."""

    def fill(self):
        self.open()
        self.begin_ms = self.scheduler.wall_ms
        self.places = []
        for i in range(COUNT):
            self.scheduler.wall_ms = self.begin_ms + i * 1000
            self.places.append(self.put("T", 0, b"%d" % i))
            self.tick()
            self.write("Other", 0, b"x")
        self.wait_recovery_position()
        self.stop()
        return self

    def copy(self, filled):
        """Copy the files and places of a store that was filled before."""
        shutil.copytree(filled.directory, self.directory, dirs_exist_ok=True)
        self.begin_ms, self.places = filled.begin_ms, filled.places
        self.scheduler.wall_ms = filled.scheduler.wall_ms

    def lose(self, *numbers):
        """Damage these messages' records, delete all queue files, start, and wait until the queues are built anew."""
        with open(self.directory / "store" / "commitlog" / f"{0:020d}", "r+b") as log:
            for number in numbers:
                log.seek(self.places[number] + 4)
                log.write(b"\xff" * 60)
        shutil.rmtree(self.directory / "store" / "consumequeue")
        self.open()
        self.wait_whole()
        self.queue = self.store.find_queue("T", 0)
        assert self.queue.max_offset == COUNT
        return self


def trimmer_of(store):
    return QueueTrimmer(store.log, store.queues, store.records, store._flush_queues, lambda seconds: True)


@pytest.fixture(scope="module")
def filled(request):
    return Damaged(shared_directory(request, "filled")).fill()


@pytest.fixture
def store(tmp_path, filled):
    store = Damaged(tmp_path)
    store.copy(filled)
    yield store
    store.stop()


def check_times(store, kept):
    """Check that a search for each message's time passes over no kept message, and repeats none."""
    search = TimeSearch(store.store.queues, store.store.records)
    for wanted in range(COUNT):
        found = search.offset_at("T", 0, store.begin_ms + wanted * 1000, Boundary.LOWER)
        passed_over = [i for i in kept if wanted <= i < found]
        got_again = [i for i in kept if found <= i < wanted]
        assert (passed_over, got_again) == ([], []), f"{wanted} led to {found}"
    search.close()


@pytest.mark.parametrize(
    "lost", [range(5, 20), range(15), range(5, 15), (19,), (0,)], ids=["end", "front", "middle", "last", "first"]
)
def test_what_damage_took_from_a_queue_does_not_lead_a_search_by_time_astray(store, lost):
    """Holes at a queue's end once counted as older than all: a reset to a time passed over the messages before them."""
    store.lose(*lost)
    kept = [i for i in range(COUNT) if i not in lost]
    assert [int(body) for body in store.bodies("T", 0)] == kept
    check_times(store, kept)
    search = TimeSearch(store.store.queues, store.store.records)
    for wanted in range(COUNT):
        found = search.offset_at("T", 0, store.begin_ms + wanted * 1000, Boundary.UPPER)
        assert found == store.queue.min_offset or not [i for i in kept if wanted < i <= found]
    assert search.earliest_time("T", 0) == store.begin_ms + kept[0] * 1000
    search.close()


def test_a_record_that_nobody_can_read_does_not_lead_a_search_by_time_astray(store):
    """The record was damaged after its entry was written: the time in its bytes is meaningless."""
    store.open()
    for number in range(8, 13):
        with open(store.directory / "store" / "commitlog" / f"{0:020d}", "r+b") as log:
            log.seek(store.places[number] + 4)
            log.write(b"\0" * 70)
    check_times(store, [i for i in range(COUNT) if not 8 <= i < 13])


def test_a_queue_whose_end_was_lost_keeps_the_rest_when_older_messages_expire(store):
    """A queue without its first entry and with a filler as its last one once counted as empty."""
    store.lose(*range(5, 20))
    trimmer = trimmer_of(store.store)
    begin = store.places[2]
    monkey = pytest.MonkeyPatch()
    monkey.setattr(type(store.store.log), "min_offset", property(lambda log: begin))
    try:
        trimmer.follow_log(0.0)
    finally:
        monkey.undo()
        trimmer.close()
    assert store.queue.min_offset == 2
    entries = store.store.queues.read_entries(store.queue, 5, 15)
    assert all(entry == (store.places[4], HOLE_SIZE, 0) for entry in ENTRY.iter_unpack(entries))


@pytest.mark.parametrize("lost", [(), (0, 1, 2), (5, 6), (18, 19)])
def test_a_queue_built_anew_is_as_young_as_it_was(store, lost):
    """Messages that damage took from its beginning have not expired: a new group must not skip the rest."""
    store.lose(*lost)
    assert store.store.young_offset("T", 0) == (3 if 0 in lost else 0)


def test_a_queue_that_lost_messages_to_age_is_not_young(store, monkeypatch):
    store.open()
    queue = store.store.find_queue("T", 0)
    assert store.store.young_offset("T", 0) == 0
    monkeypatch.setattr(QueueTrimmer, "follow_log", lambda *args: 0)  # of the cleaner, which would follow it
    queue.min_offset = 3
    monkeypatch.setattr(type(store.store.log), "min_offset", property(lambda log: 1000))
    assert store.store.young_offset("T", 0) == -1
    queue.min_offset = 0
    assert store.store.young_offset("T", 0) == 0, "others lost some, this queue did not"


def test_queues_that_are_empty_unknown_or_larger_than_memory_are_not_young(store):
    store.open()
    store.store.queues.get_or_create("Empty", 0)
    assert store.store.young_offset("Empty", 0) == -1
    assert store.store.young_offset("Unknown", 0) == -1
    assert store.store.young_offset("T", -1) == -1
    store.store.settings = store.store.settings._replace(memory_bytes=100)
    assert store.store.young_offset("T", 0) == -1


def test_nobody_says_whether_a_broken_queue_is_young(store, monkeypatch):
    held = [True]
    real = QueueRepair.step
    monkeypatch.setattr(QueueRepair, "step", lambda repair, *args: True if held else real(repair, *args))
    shutil.rmtree(store.directory / "store" / "consumequeue")
    store.open()
    for _ in range(2):  # the reader that finds it, and the next one
        with pytest.raises(QueueBroken):
            store.store.young_offset("T", 0)
    assert store.store.find_queue("T", 0).broken
    held.clear()
    store.wait_whole()
    assert store.store.young_offset("T", 0) == 0


def test_the_cleaner_hides_nothing_of_a_queue_that_broke_under_it(store, monkeypatch):
    """Entries that the cleaner could not read once counted as gone, while the queue was rebuilt under it."""
    store.open()
    queue = store.store.find_queue("T", 0)
    monkeypatch.setattr(store.store.queues, "on_broken", lambda queue: None)  # as if rebuilt in no time
    trimmer = trimmer_of(store.store)
    monkeypatch.setattr(trimmer._files, "read", lambda *args: b"")
    trimmer.follow_log(0.0)
    monkeypatch.setattr(trimmer._times._files, "read", lambda *args: b"")
    trimmer.follow_times({"T": store.begin_ms + 5000}, (), 0.0)
    assert queue.min_offset == 0
    monkeypatch.undo()
    trimmer.follow_times({"T": store.begin_ms + 5000}, (), 0.0)
    assert queue.min_offset == 5
    trimmer.close()


def test_the_files_of_a_deleted_queue_are_missed_by_nobody(store, caplog):
    """A reader that comes too late does not cause a rebuild."""
    store.open()
    queue = store.store.find_queue("T", 0)
    deletion = TopicDeletion("T")
    store.store.forget_topic(deletion)
    store.store._flush_queues.wait_deleted(deletion)
    search = TimeSearch(store.store.queues, store.store.records)
    with caplog.at_level(logging.ERROR):
        assert search.entries(queue, 0, 5) == b""
        assert search.offset_at("T", 0, store.begin_ms, Boundary.LOWER) == 0
        store.store.queues.on_broken(queue)
    assert not queue.broken
    assert not caplog.records
    search.close()
