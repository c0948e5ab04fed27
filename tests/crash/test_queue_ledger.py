"""Crashes of stores that start by the queue ledger, also when queue files got lost and are being built anew."""

import random

import pytest

from appliance.engine.store import recovery
from appliance.engine.store.queues import queue_files
from appliance.engine.store.queues.consume_queue_table import ConsumeQueueTable
from tests.crash.crashes import TIMES, Crashes, least, nothing, run_lives
from tests.crash.life import GONE, Life, Violation
from tests.crash.recording_disk import RecordingDisk
from tests.crash.replayer import MODES, CrashedDisk
from tests.crash.test_found import crash, delete, settle, write

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 3 * TIMES
STEPS = 30
#: Distinct disk images over all seeds and both flush modes.
FLOOR = 2_000


class LosingLife(Life):
    """A life that loses queue files. Files that a start misses are rebuilt before they are read."""

    def actions(self, deletions):
        return [*super().actions(deletions), (0.6, self._lose), (2, self._mend_queues)]

    def _lose(self):
        disk, top = self.disk, self.store.paths.consume_queues
        files = [
            top / topic / queue / name
            for topic in (disk.names(top) if disk.exists(top) else ())
            for queue in disk.names(top / topic)
            for name in disk.names(top / topic / queue)
        ]
        if files and not self.faults:
            victim = self.chance.choice(files)
            disk.unlink(victim)
            if self.chance.random() < 0.5:
                disk.sync_directory(victim.parent)

    def _mend_queues(self):
        repair = self.store._flush_queues.repair
        for _ in range(self.chance.randrange(20)):
            repair.step(0)

    def recovered(self):
        repair = self.store._flush_queues.repair
        for _ in range(100_000):
            if not repair.pending:
                return super().recovered()
            repair._not_before = 0
            repair.step(1)
        raise Violation("the queues are never whole")


def test_lost_queue_files_come_back_whatever_crashes():
    crashes = Crashes(kind=LosingLife)
    run_lives(crashes, "losing life", SEEDS, STEPS)
    assert len(crashes.seen) >= least(FLOOR)


@pytest.mark.parametrize(("faults", "descriptors"), [(False, 1024), (True, 1024), (True, 1)])
def test_files_that_are_synced_together_hold_what_they_promise(monkeypatch, faults, descriptors):
    """With one descriptor files are closed before they are synced, as beyond a thousand queues."""
    monkeypatch.setattr(queue_files, "MANY", 2)
    monkeypatch.setattr(ConsumeQueueTable.new_files, "__defaults__", (descriptors,))
    run_lives(Crashes(), "together", SEEDS // 2, STEPS, faults)


def test_names_and_entries_reach_the_disk_before_the_ledger_counts_on_them(monkeypatch):
    monkeypatch.setattr(queue_files, "MANY", 2)
    monkeypatch.setattr(RecordingDisk, "sync_file_system", lambda self, fd: True)
    with pytest.raises(Violation):
        run_lives(Crashes(), "together", SEEDS, STEPS)


# --- faults put in on purpose


def note_before_sync(life):
    """The ledger and the position say what the queue files will hold after the next sync."""
    service = life.store._flush_queues
    save, sync = service._save_position, service.files.sync
    service.files.sync = lambda: None

    def save_then_sync(current):
        save(current)
        sync()

    service._save_position = save_then_sync


def forget_what_recovery_found(life):
    """The ledger is not told of entries that recovery wrote."""
    life.store.queues.touch = lambda queue: None


@pytest.mark.parametrize("sabotage", [note_before_sync, forget_what_recovery_found])
def test_a_sabotaged_ledger_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage), "sabotaged ledger", 16, 40)


def forget_deletions(life):
    """The ledger is not told of deleted topics."""
    life.store.ledger.drop = lambda topic, queues: None


def after_a_deletion(prepare):
    life = Life("deletion", None, True, prepare)
    life.open()
    write(life, "A", b"old 1", b"old 2", b"old 3")
    settle(life)
    delete(life, "A")
    write(life, "B", b"kept")
    settle(life)
    life.leave()
    life.open()
    assert life.recovered() == {("A", 0): [GONE] * 3, ("B", 0): [b"kept"]}
    return life.store.queues.find("A", 0)


def test_the_ledger_forgets_deleted_topics():
    assert after_a_deletion(nothing) is None
    assert after_a_deletion(forget_deletions) is not None


def sync_without_writing_again(life):
    """After a failed sync, sync the same bytes again without a second write."""
    files = life.store._flush_queues.files
    write, seen = files.write, set()

    def write_once(topic, queue_id, offset, entries):
        key = (topic, queue_id, offset, bytes(entries))
        if key not in seen:
            seen.add(key)
            write(topic, queue_id, offset, entries)

    files.write = write_once


def after_a_failed_sync(prepare):
    life = Life("failed sync", None, True, prepare)
    life.open()
    write(life, "A", b"1", b"2")
    life._sync()
    failed = []

    def fault(call, path):
        if call == "fdatasync" and "consumequeue" in path and not failed:
            failed.append(path)
            raise OSError(5, "Input/output error")

    life.disk.fault = fault
    assert not life.store._flush_queues.work(running=False)
    assert failed
    assert life.store._flush_queues.work(running=False)
    following = Life("after", crash(life, "none"), True, nothing)
    following.open()
    return following.recovered()


def test_after_a_failed_sync_entries_are_written_again_from_memory():
    """The kernel has dropped them (D6): a second sync of the same file says nothing about them."""
    assert after_a_failed_sync(nothing) == {("A", 0): [b"1", b"2"]}
    with pytest.raises(Violation):
        after_a_failed_sync(sync_without_writing_again)


def after_a_dead_mans_names():
    """A process made a queue's directory, could not sync its name and died; the next one writes there."""
    life = Life("names", None, True, nothing)
    life.open()
    write(life, "A", b"1")
    life._sync()

    def fault(call, path):
        if call == "sync_directory" and path.endswith("consumequeue/A"):
            raise OSError(5, "Input/output error")

    life.disk.fault = fault
    assert not life.store._flush_queues.work(running=False)
    life.disk.fault = lambda call, path: None
    life.leave()
    life.open()
    write(life, "A", b"2")
    settle(life)
    following = Life("after", crash(life, "none"), True, nothing)
    following.open()
    return following.recovered()


def test_names_a_dead_process_left_are_synced_before_the_ledger_counts_on_them(monkeypatch):
    assert after_a_dead_mans_names() == {("A", 0): [b"1", b"2"]}
    monkeypatch.setattr(recovery._Recovery, "_sync_names", lambda self: None)
    with pytest.raises(Violation):
        after_a_dead_mans_names()


# --- a rebuild that is cut off


def a_large_queue():
    """Return (life, bodies): one queue whose file takes several sectors and has been deleted; a start by the ledger."""
    life = LosingLife("large", None, True, lambda life: None)
    life.settings = life.settings._replace(queue_file_bytes=4000)
    life.open()
    bodies = [b"%d" % n for n in range(190)]
    queue = life.store.queues.get_or_create("T", 0)
    for body in bodies:
        life.store.put(queue, b"\1T", body, b"", 0, 0, 0, 1, bytes(8), 0)
        life.store.end_tick()
    life._sync()
    assert life.store._flush_queues.work(running=False)
    life.store.stop()
    disk = life.disk
    disk.unlink(life.store.paths.queue_dir("T", 0) / ("0" * 20))
    disk.sync_directory(life.store.paths.queue_dir("T", 0))
    return life, bodies


def rebuild_and_crash(prepare):
    """What each crash while the file is built anew leaves, after the next start has mended it."""
    life, bodies = a_large_queue()
    begin = len(life.disk.record)
    life._prepare = prepare
    life.open()
    assert not life.store.ledger.void, "the start was by the ledger"
    assert life.recovered() == {("T", 0): bodies}
    assert life.store._flush_queues.work(running=False)
    crashed, chance = CrashedDisk(None, life.disk.kinds), random.Random("rebuild")
    for index, operation in enumerate(life.disk.record):
        crashed.follow(operation)
        if index < begin:
            continue
        for mode in MODES + ("torn", "some") * 20 if operation[0] == "write" else MODES:
            following = LosingLife("after", crashed.image(mode, chance), True, lambda life: None)
            following.settings = life.settings
            following.open()
            yield following.recovered() == {("T", 0): bodies}


def test_a_rebuild_that_is_cut_off_begins_again():
    assert all(rebuild_and_crash(lambda life: None))


def test_without_the_note_that_it_is_under_way_a_torn_rebuild_passes_for_whole():
    """So the note is what the test above relies on."""

    def no_note(life):
        note = life.store.ledger.note

        def as_whole(queue, end):
            broken, queue.broken = queue.broken, False
            note(queue, end)
            queue.broken = broken

        life.store.ledger.note = as_whole

    with pytest.raises(Violation):
        list(rebuild_and_crash(no_note))
