"""Queue entries on their way into files: when, in which order, and the state after a failure."""

import errno
import threading

import pytest

from appliance.engine.disk import Disk
from appliance.engine.store.queues.flush_queues import TopicDeletion
from tests.crash.crashes import nothing
from tests.crash.life import Life
from tests.support.store import StoreUnderTest
from tests.support.waiting import wait_for


class QueueDisk(Disk):
    """Fails calls on consume queue files that `failing` names."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self._queue_fds: set[int] = set()

    def open(self, path, create=False, read_only=False):
        fd = super().open(path, create, read_only)
        (self._queue_fds.add if "consumequeue" in str(path) else self._queue_fds.discard)(fd)
        return fd

    def _check(self, call, fd):
        if call in self.failing and fd in self._queue_fds:
            raise OSError(errno.EIO, "Input/output error")

    def pwrite(self, fd, data, position):
        self._check("pwrite", fd)
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd):
        self._check("fdatasync", fd)
        super().fdatasync(fd)


@pytest.fixture
def life():
    life = Life("queues", None, True, nothing)
    life.open()
    return life


def test_a_round_ends_while_messages_keep_coming(life):
    life._tick()
    life._sync()
    ticks = []

    def meanwhile(path):
        if "consumequeue" in path:
            ticks.append(path)
            assert len(ticks) < 1000, "the round never ends"
            life._tick()
            life._sync()

    life.disk.during_sync = meanwhile
    published = life.store.published
    life._flush_queues()
    assert ticks
    assert life.store.files.recovery_position.position.offset == published


def test_an_entry_is_written_once_its_record_is_durable():
    life = Life("async", None, False, nothing)
    life.open()
    life._tick()
    assert not life.store._flush_queues.work(running=False), "the log is not synced"
    assert not life.disk.exists(life.store.paths.consume_queues)
    life._sync()
    assert life.store._flush_queues.work(running=False)
    assert life.disk.names(life.store.paths.consume_queues)


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_what_a_queue_file_refused_is_written_again(tmp_path, call):
    disk = QueueDisk()
    store = StoreUnderTest(tmp_path, disk=disk).open()
    disk.failing.add(call)
    bodies = [b"%d" % i for i in range(150)]
    store.write("T", 0, *bodies)
    service = store.store._flush_queues
    wait_for(lambda: service.failure, "the failure never shows")
    assert store.store.find_queue("T", 0).tail_base == 0, "what is not synced stays in memory"
    assert store.store.files.recovery_position.position is None
    disk.failing.clear()
    store.wait_recovery_position()
    assert service.failure is None
    assert store.bodies("T", 0) == bodies
    store.die()
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == bodies
    store.stop()


def test_a_stop_that_cannot_write_queue_files_leaves_no_position(tmp_path):
    disk = QueueDisk()
    store = StoreUnderTest(tmp_path, disk=disk).open()
    disk.failing.add("pwrite")
    store.write("T", 0, b"a", b"b")
    wait_for(lambda: store.store._flush_queues.failure, "the failure never shows")
    store.stop()
    assert (tmp_path / "store" / "abort").exists()
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == [b"a", b"b"]
    store.stop()


def test_a_new_topic_waits_for_the_files_of_the_deleted_one_to_go(life):
    queue = ("A", 0)
    while len(life.store.queues.all()) < 4:
        life._tick()
    life._sync()
    life._flush_queues()
    life.store.forget_topic(deletion := TopicDeletion("A"))
    while life.store.find_queue(*queue) is None:
        life._tick()
    life._sync()
    new = life.recovered()[queue]
    assert not life.store._flush_queues._round(running=False), "a round before the deletion"
    assert life.store._flush_queues.work(running=False)
    assert deletion.done.is_set()
    assert life.recovered()[queue] == new
    life.leave()
    life.open()
    assert life.recovered()[queue] == new


def test_a_topic_that_goes_during_a_round_is_noted_before_the_position_is_saved(life):
    """Otherwise a start would trust the position, miss the topic's queues, and give their offsets again."""
    while life.store.find_queue("A", 0) is None:
        life._tick()
    life._sync()
    deletion = TopicDeletion("A")

    def meanwhile(path):
        if "consumequeue" in path and not deletion.offset:
            life.store.forget_topic(deletion)

    life.disk.during_sync = meanwhile
    assert life.store._flush_queues._round(running=False)
    assert life.store.files.recovery_position.position.offset == life.store.published
    assert deletion.offset
    assert deletion.done.is_set()


def test_a_deletion_that_failed_is_told_and_finished_later(tmp_path):
    class Stubborn(Disk):
        failing = False

        def unlink(self, path):
            if self.failing and "consumequeue" in str(path):
                raise OSError(errno.EIO, "Input/output error")
            super().unlink(path)

    disk = Stubborn()
    store = StoreUnderTest(tmp_path, disk=disk).open()
    store.write("T", 0, b"old 1", b"old 2", b"old 3")
    store.wait_recovery_position()
    disk.failing = True
    with pytest.raises(OSError, match="Input/output"):
        store.store.delete_topic("T")
    store.write("T", 0, b"new")
    disk.failing = False
    store.wait_recovery_position()
    assert store.bodies("T", 0) == [b"new"]
    store.die()
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == [b"new"]
    store.stop()


def test_deletions_behind_one_that_fails_are_told_as_well(tmp_path):
    class Full(Disk):
        failing = False

        def replace(self, path, data, durable=True):
            if self.failing and "deleted-topics" in str(path):
                raise OSError(errno.ENOSPC, "No space left on device")
            super().replace(path, data, durable)

    disk = Full()
    store = StoreUnderTest(tmp_path, disk=disk).open()
    for topic in ("A", "B"):
        store.write(topic, 0, b"old")
    store.wait_recovery_position()
    disk.failing = True
    told = []

    def delete():
        for topic in ("A", "B", "A"):
            with pytest.raises(OSError, match="No space left"):
                store.store.delete_topic(topic)
            told.append(topic)

    thread = threading.Thread(target=delete, daemon=True)
    thread.start()
    try:
        wait_for(lambda: len(told) == 3, "all deletions to be told")
    finally:
        disk.failing = False
        thread.join()
    store.store.delete_topic("B")
    store.wait_recovery_position()
    store.die()
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("A", 0) == store.bodies("B", 0) == []
    store.stop()


def test_deleted_topics_leave_no_weight_on_the_tails(life):
    for _ in range(20):
        life._tick()
    life._sync()
    for topic in ("A", "B"):
        life.store.forget_topic(TopicDeletion(topic))
    assert life.store._tail_bytes == 0
    assert life.store._flush_queues.work(running=False)
    assert life.store.ledger.entries == 0


def test_a_reader_lets_go_of_the_files_of_a_deleted_topic(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    files = store.store.queues.new_files(4)
    store.write("T", 0, b"old 1", b"old 2")
    store.wait_recovery_position()
    assert len(files.read("T", 0, 0, 2)) == 40
    store.store.delete_topic("T")
    store.write("T", 0, b"new")
    store.wait_recovery_position()
    physical = int.from_bytes(files.read("T", 0, 2, 1)[:8], "big")
    assert b"new" in store.store.log.read(physical, 200)
    files.close()
    store.stop()
