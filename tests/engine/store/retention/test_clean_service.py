"""Retention: which files are deleted, which stay, and readers that still use them. The test runs the rounds by hand and
sets clock and disk."""

import errno
import os
import threading
import time

import pytest

from appliance.engine.clock import AgeClock
from appliance.engine.config import StoreConfig, parse_hours
from appliance.engine.disk import Disk, DiskUsage
from appliance.engine.errors import StoreBroken
from appliance.engine.store.results import GetStatus
from appliance.engine.store.retention.clean_queues import Raised
from appliance.engine.store.retention.clean_rules import HOUR_MS, is_cleaning_hour, watermarks
from appliance.engine.store.retention.clean_service import CleanService
from tests.support.clock import FakeClock
from tests.support.store import StoreUnderTest
from tests.support.waiting import wait_for

SEGMENT_BYTES = 4096
GIB = 1 << 30


class Gauge(Disk):
    """A disk as full as the test sets it; each deleted log file frees `freed`."""

    def __init__(self):
        self.used, self.freed = 50, 0
        self.unlinked = []
        self.failing = {}

    def usage(self, path):
        used = int(self.used * GIB)
        return DiskUsage(used, 100 * GIB - used)

    def unlink(self, path):
        if "unlink" in self.failing:
            raise OSError(self.failing["unlink"], os.strerror(self.failing["unlink"]), str(path))
        super().unlink(path)
        if path.parent.name == "commitlog":
            self.unlinked.append(path.name)
            self.used -= self.freed

    def sync_directory(self, path):
        if "sync" in self.failing and path.name == "commitlog":
            raise OSError(self.failing["sync"], os.strerror(self.failing["sync"]), str(path))
        super().sync_directory(path)


class Kept(StoreUnderTest):
    """A store whose cleaner runs when the test calls it."""

    def __init__(self, directory, clock, disk=None):
        super().__init__(directory, segment_bytes=SEGMENT_BYTES, disk=disk or Gauge())
        self.options = StoreConfig(delete_commit_log_files_interval_ms=0, delete_consume_queue_files_interval_ms=0)
        self.clock = clock
        self.alive = True
        self.scheduler.wall_ms = clock.wall_ms()

    def stop(self):
        if self.alive:
            super().stop()
            self.alive = False

    def die(self):
        super().die()
        self.alive = False

    def pass_time(self, ms):
        self.clock.advance(ms)
        self.scheduler.wall_ms = self.clock.wall_ms()

    def fill(self, files, topic="T", queue_id=0):
        """Write messages until so many more files are full and the next one has one."""
        log, begin = self.store.log, len(self.store.log.segments)
        count = 0
        while len(log.segments) < begin + files:
            self.write(topic, queue_id, b"%d" % count * 100)
            count += 1
        return count

    def flushed(self):
        self.wait_recovery_position()
        return self

    def look(self, **options):
        cleaner = self.store.cleaner
        for name, value in options.items():
            object.__setattr__(cleaner.options, name, value)
        cleaner.look()
        return cleaner.status

    @property
    def begin(self):
        return self.store.log.min_offset

    def built_anew(self):
        """Return the findings about rebuilt queues."""
        return [finding for finding in self.store.files.findings() if finding.kind.startswith("queue")]


@pytest.fixture
def clock():
    """A clock at five past four, local time."""
    base = 1_700_000_000_000
    local = time.localtime(base / 1000)
    return FakeClock(base - (local.tm_hour * 3600 + local.tm_min * 60 + local.tm_sec) * 1000 + 4 * HOUR_MS + 300_000)


@pytest.fixture
def store(tmp_path, clock, monkeypatch):

    def start(cleaner):
        cleaner.clock = clock
        cleaner._prepare()

    monkeypatch.setattr(CleanService, "start", start)
    under_test = Kept(tmp_path, clock).open()
    yield under_test
    under_test.stop()


def reopened(store):
    store.die()
    other = Kept(store.directory, store.clock, disk=store.disk)
    other.open()
    other.wait_whole()
    return other


DAYS_3 = 72 * HOUR_MS


# --- age


def test_files_go_at_the_configured_hour_when_they_are_old_enough(store):
    store.fill(3)
    store.flushed()
    store.pass_time(DAYS_3 - HOUR_MS)
    assert store.look().log_files_deleted == 0, "an hour too young"
    store.pass_time(2 * HOUR_MS)  # five past five
    assert store.look().log_files_deleted == 0, "not the hour"
    assert store.store.cleaner.status.log_files_forced == 0
    store.pass_time(23 * HOUR_MS)
    store.write("T", 0, b"today")
    store.flushed()
    assert store.look().log_files_deleted == 3
    assert store.disk.unlinked == [f"{n * SEGMENT_BYTES:020d}" for n in range(3)]
    assert store.begin == 3 * SEGMENT_BYTES
    assert store.bodies("T", 0)[-1] == b"today", "the file being written stays whatever its age"


def test_nothing_goes_by_age_in_the_first_minute(store):
    store.fill(2)
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    store.store.cleaner._started = store.clock.monotonic() - 59
    assert store.look().log_files_deleted == 0
    store.pass_time(2000)
    assert store.look().log_files_deleted == 2


def test_a_request_deletes_expired_files_at_any_hour_and_only_those(store):
    store.fill(2)
    store.pass_time(DAYS_3 + 12 * HOUR_MS)
    store.fill(2)
    store.flushed()
    assert store.look().log_files_deleted == 0
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 2
    assert store.look().log_files_deleted == 2, "the third one's last message is from today"


def test_a_round_takes_so_many_files_and_the_next_one_goes_on(store):
    store.fill(5)
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    assert store.look(delete_file_batch_max=2).log_files_deleted == 2
    assert store.look().log_files_deleted == 4


def test_a_file_that_was_touched_later_is_as_old_as_that(store):
    store.fill(2)
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    newest = store.clock.wall_ms() / 1000 - 3600
    os.utime(store.store.log.segments[0].path, (newest, newest))
    assert store.look().log_files_deleted == 0, "the first one that is not expired ends the round"


def test_reserved_time_and_hours_are_read_at_each_round(store):
    store.fill(2)
    store.flushed().pass_time(5 * HOUR_MS)
    assert store.look().log_files_deleted == 0
    assert store.look(file_reserved_time_hours=4).log_files_deleted == 0
    assert store.look(delete_when="03;09").log_files_deleted == 2


@pytest.mark.parametrize("text", ["", "x", "24", "4;", "-1", "4,5", "٤"])
def test_hours_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match=r"^must be hours from 0 to 23 separated by ';', not "):
        parse_hours(text)


def test_hours_are_local():
    at = 1_700_000_000_000
    assert is_cleaning_hour(f"{time.localtime(at / 1000).tm_hour:02d}", at)
    assert not is_cleaning_hour(str((time.localtime(at / 1000).tm_hour + 1) % 24), at)


# --- what follows the log


def test_queues_begin_where_the_log_begins(store):
    store.write("old", 0, b"a")
    first = store.fill(3)
    store.write("T", 1, b"only here")
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    removed = []
    store.store.on_removed.append(removed.append)
    assert store.look().log_files_deleted == 3
    assert removed == [3 * SEGMENT_BYTES]
    queue = store.store.find_queue("T", 0)
    assert 0 < queue.min_offset < queue.max_offset == first
    physical = [record.physical_offset for record in store.records("T", 0)]
    assert physical[0] >= store.begin
    assert len(physical) == first - queue.min_offset
    result = store.get(queue, 0, 32)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, queue.min_offset)
    assert store.bodies("T", 1) == [b"only here"]


def test_a_queue_with_nothing_left_goes_on_at_its_offset(store):
    store.write("old", 0, *(b"%d" % n for n in range(300)))  # three queue files of 100
    store.fill(1)
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    store.look(delete_file_batch_max=100)
    queue = store.store.find_queue("old", 0)
    assert (queue.min_offset, queue.max_offset) == (300, 300)
    directory = store.store.paths.queue_dir("old", 0)
    assert sorted(path.name for path in directory.iterdir()) == [f"{4000:020d}"]
    store = reopened(store)
    assert store.built_anew() == []
    queue = store.store.find_queue("old", 0)
    assert (queue.min_offset, queue.max_offset) == (300, 300)
    store.write("old", 0, b"new")
    assert [(r.queue_offset, r.body) for r in store.records("old", 0)] == [(300, b"new")]
    store.stop()


def test_a_kill_after_each_step_of_a_deletion_leaves_a_store_that_opens(store):
    """The log file is unlinked and its queue files are not; or its name is back, as after a power cut before the
    directory's sync."""
    count = store.fill(3)
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    first = store.store.log.segments[0].path
    content = first.read_bytes()
    trimmer = store.store.cleaner._trimmer
    trimmer.follow_log = lambda pause: 0  # as if killed before it came to the queues
    store.look(delete_file_batch_max=1)
    assert not first.exists()
    store = reopened(store)
    queue = store.store.find_queue("T", 0)
    assert queue.max_offset == count
    assert len(store.bodies("T", 0)) == count - queue.min_offset
    assert queue.min_offset > 0
    store.die()
    first.write_bytes(content)
    store = Kept(store.directory, store.clock, disk=store.disk).open()
    assert (store.begin, len(store.bodies("T", 0))) == (0, count)
    store.stop()


def test_what_recovery_would_read_is_not_deleted(store, monkeypatch):
    """Queue files that cannot be written hold the recovery position back; the log behind it stays until they can."""
    store.write("T", 0, b"first")
    store.flushed()
    position = store.store.files.recovery_position.position
    flush = store.store._flush_queues
    monkeypatch.setattr(flush, "_write_queues", lambda current, running: False)
    store.fill(3)
    wait_for(lambda: not store.store.log.durable < 3 * SEGMENT_BYTES, "the log is not synced")
    store.pass_time(24 * HOUR_MS + DAYS_3)
    assert store.look().log_files_deleted == 0
    assert store.store.files.recovery_position.position == position
    store.disk.used, store.disk.freed = 95, 3
    assert store.look().log_files_deleted == 0, "nor by force"
    monkeypatch.undo()


def test_files_in_which_messages_wait_stay_until_these_are_stored_once_more(store):
    store.fill(3)
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    asked, kept_from = [], 0

    def keep(end):
        asked.append(end)
        return "messages wait" if end > kept_from else None

    store.store.cleaner.keepers.append(keep)
    assert store.look().log_files_deleted == 0
    assert asked[0] == 3 * SEGMENT_BYTES, "asked for all at once"
    kept_from = 3 * SEGMENT_BYTES
    assert store.look().log_files_deleted == 3


def test_the_first_file_goes_while_what_waits_behind_it_is_still_being_stored(store):
    store.fill(3)
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    store.store.cleaner.keepers.append(lambda end: "messages wait" if end > SEGMENT_BYTES else None)
    assert store.look().log_files_deleted == 1


def test_on_a_full_disk_keepers_are_called_for_the_files_that_it_has_room_for(store):
    store.fill(4)
    store.flushed()
    asked = []
    store.store.cleaner.keepers.append(lambda end: asked.append(end) or "messages wait")
    real = store.disk.usage
    store.store.cleaner._count_forced = lambda usage, stages: 3
    for free, files in ((0, 1), (2 * SEGMENT_BYTES + 1, 2), (GIB, 3)):
        store.disk.usage = lambda path, free=free: real(path)._replace(free_bytes=free)
        asked.clear()
        store.look()
        assert asked[0] == files * SEGMENT_BYTES


def test_a_follower_is_let_go_file_by_file_too(store):
    store.fill(4)
    cleaner = store.store.cleaner
    kept_from = SEGMENT_BYTES
    cleaner.keepers.append(lambda end: "messages wait" if end > kept_from else None)
    assert cleaner.free_for(3 * SEGMENT_BYTES) == 0
    cleaner.look()
    assert cleaner.free_for(3 * SEGMENT_BYTES) == SEGMENT_BYTES
    kept_from = 3 * SEGMENT_BYTES
    cleaner.look()
    assert cleaner.free_for(3 * SEGMENT_BYTES) == 3 * SEGMENT_BYTES


def test_a_log_file_that_is_made_on_a_disk_over_a_stage_is_looked_at_at_once(store, monkeypatch):
    cleaner, woken = store.store.cleaner, []
    monkeypatch.setattr(cleaner, "wakeup", lambda: woken.append(True))
    store.disk.used = 75
    store.fill(2)
    assert not woken
    store.disk.used = 76
    store.fill(2)
    assert woken


def test_a_file_that_fills_while_older_ones_go_is_as_young_as_its_last_message(store):
    """After a start the next file is there, and the one that is written to is as old as what it had before."""
    store.fill(2)
    log = store.store.log
    wait_for(lambda: store.write("T", 0, b"x" * 100) or log._allocator._ready, "the next file is prepared")
    store.flushed().stop()
    other = Kept(store.directory, store.clock, disk=store.disk).open()
    try:
        log = other.store.log
        assert len(log.segments) == 4
        assert log.written < log.segments[2].end
        for segment in log.segments:
            os.utime(segment.path, (other.clock.wall_ms() / 1000,) * 2)
        other.flushed().pass_time(24 * HOUR_MS + DAYS_3)
        end = log.segments[2].end
        young = []

        def keep(wanted):
            while log.written <= end:
                young.append(b"young %d" % len(young))
                other.write("T", 0, young[-1] * 10)
            other.flushed()

        other.store.cleaner.keepers.append(keep)
        assert other.look().log_files_deleted == 2
        assert other.bodies("T", 0)[-len(young) :] == [body * 10 for body in young]
    finally:
        other.stop()


def test_a_file_whose_entries_are_in_no_queue_file_stays(store, monkeypatch):
    """Found by the replayer: after a kill the queue began at 0 again, below its group's committed offset."""
    monkeypatch.setattr(store.store._flush_queues, "_write_queues", lambda current, running: False)
    store.write("front", 0, b"a", b"b")
    store.fill(3)
    wait_for(lambda: not store.store.log.durable < 3 * SEGMENT_BYTES, "the log is not synced")
    assert store.store.files.recovery_position.position is None
    store.pass_time(24 * HOUR_MS + DAYS_3)
    store.look()
    monkeypatch.undo()
    store = reopened(store)
    assert store.store.find_queue("front", 0).max_offset == 2
    store.stop()


def test_a_file_that_cannot_be_deleted_is_tried_again_and_none_goes_before_it(store):
    store.fill(3)
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    store.disk.failing["unlink"] = errno.EPERM
    status = store.look()
    assert "Operation not permitted" in status.failure
    assert status.log_files_deleted == 0
    assert store.store.log.segments[0].start == SEGMENT_BYTES, "the log is without it"
    store.disk.failing.clear()
    store.look()
    assert store.disk.unlinked == [], "not before its time"
    store.pass_time(store.options.redelete_hanged_file_interval_ms)
    status = store.look()
    assert (status.failure, store.disk.unlinked[0]) == (None, f"{0:020d}")
    assert store.disk.unlinked == sorted(store.disk.unlinked)


def test_a_directory_that_is_not_synced_holds_back_the_next_file(store):
    """Otherwise a power cut could bring the first file back and not the second: a log with a gap."""
    store.fill(3)
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    store.disk.failing["sync"] = errno.EIO
    store.look()
    assert store.disk.unlinked == [f"{0:020d}"]
    store.pass_time(store.options.redelete_hanged_file_interval_ms)
    store.look()
    assert store.disk.unlinked == [f"{0:020d}"]
    store.disk.failing.clear()
    store.pass_time(store.options.redelete_hanged_file_interval_ms)
    assert store.look().log_files_deleted == 3


def test_a_reader_of_a_file_that_goes_reads_on(store, monkeypatch):
    store.fill(2)
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    log, disk = store.store.log, store.disk
    expected = log.read(0, 4000)
    entered, go_on, closed, found = threading.Event(), threading.Event(), [], []
    fd = log.segments[0].fd

    def slowly(self, fd, size, position):
        if threading.current_thread().name == "slow reader":
            entered.set()
            go_on.wait(60)
        return os.pread(fd, size, position)

    monkeypatch.setattr(Gauge, "pread", slowly)
    monkeypatch.setattr(Gauge, "close", lambda self, fd: (closed.append(fd), os.close(fd)))
    reader = threading.Thread(target=lambda: found.append(log.read(0, 4000)), name="slow reader")
    reader.start()
    assert entered.wait(60)
    assert store.look().log_files_deleted == 2
    assert disk.unlinked
    assert fd not in closed, "closed under its reader"
    assert log.read(0, 10) == b"", "nobody finds it any more"
    go_on.set()
    reader.join(60)
    assert found == [expected]
    assert closed.count(fd) == 1


def test_queue_files_of_a_topic_made_anew_are_left_alone(store, monkeypatch):
    """The cleaner looked at the old queue before the topic was deleted and made again."""
    store.write("T", 0, *(b"%d" % n for n in range(250)))
    store.flushed()
    old = store.store.find_queue("T", 0)
    store.store.delete_topic("T")
    store.write("T", 0, *(b"new %d" % n for n in range(250)))
    store.flushed()
    old.min_offset = 250
    store.store.cleaner._trimmer._delete_below(old, 2, 0.0)
    assert len(list(store.store.paths.queue_dir("T", 0).iterdir())) == 3


# --- the disk


def test_an_expired_file_goes_at_any_hour_when_the_disk_is_over_its_ratio(store):
    store.fill(1)
    store.pass_time(DAYS_3 + 2 * HOUR_MS)
    store.fill(2)
    store.flushed()
    store.disk.used = 75
    assert store.look().log_files_deleted == 0
    store.disk.used = 75.1
    assert store.look().log_files_deleted == 1


def test_over_the_forced_stage_files_go_before_their_time_as_few_as_will_do(store):
    store.fill(6)
    store.flushed()
    store.store.log.segment_bytes, real = 2 * GIB, store.store.log.segment_bytes
    try:
        store.disk.used, store.disk.freed = 88.5, 2
        count = store.store.cleaner._count_forced(store.disk.usage(None), watermarks(store.options))
    finally:
        store.store.log.segment_bytes = real
    assert count == 2
    store.store.cleaner._count_forced = lambda usage, stages: 2 if usage.share > stages.force else 0
    assert store.look().log_files_deleted == 2
    assert store.disk.used == 84.5
    status = store.look()
    assert (status.log_files_deleted, status.log_files_forced) == (2, 2)


def test_forced_cleaning_can_be_switched_off(store):
    store.fill(3)
    store.flushed()
    store.disk.used = 95
    status = store.look(clean_file_forcibly_enable=False)
    assert status.log_files_deleted == 0
    assert status.refusing


def test_over_the_last_stage_sends_are_refused_and_taken_again_below_it(store):
    store.fill(1)
    store.flushed()
    store.put("T", 0, b"staged before")
    store.disk.used = 90
    assert store.look(clean_file_forcibly_enable=False).refusing is None
    store.disk.used = 90.5
    assert "disk is full [CL:  0.91 CQ:  0.91 INDEX:  0.91]" in store.look().refusing.replace("0.90", "0.91")
    store.tick()
    assert store.bodies("T", 0)[-1] == b"staged before", "what was staged is still written"
    with pytest.raises(StoreBroken, match="disk is full"):
        store.put("T", 0, b"refused")
    result = store.get(store.store.find_queue("T", 0), 0, 32)
    assert result.status == GetStatus.FOUND, "reading goes on"
    store.disk.used = 90
    assert store.look().refusing is None
    store.write("T", 0, b"taken again")
    assert store.bodies("T", 0)[-1] == b"taken again"


def test_stages_keep_within_their_bounds():
    low = StoreConfig(disk_max_used_space_ratio=1, disk_space_clean_forcibly_ratio=0, disk_space_warning_level_ratio=0)
    high = StoreConfig(
        disk_max_used_space_ratio=100, disk_space_clean_forcibly_ratio=100, disk_space_warning_level_ratio=100
    )
    assert watermarks(low) == (0.10, 0.30, 0.35)
    assert watermarks(high) == (0.95, 1.0, 1.0)


def test_no_room_for_the_next_file_makes_room(store):
    """Files are much larger than the free space: no stage is reached, and yet nothing more can be written."""
    store.fill(3)
    store.flushed()
    store.store.log._allocator.stop()
    real = store.disk.usage
    store.disk.usage = lambda path: real(path)._replace(used_bytes=1000, free_bytes=1000)
    refusals = []
    while not refusals:
        try:
            store.put("T", 0, b"x" * 500)
        except StoreBroken as error:
            refusals.append(str(error))
        store.tick()
    assert refusals[0].startswith("no room for the next commit log file")
    before = store.bodies("T", 0)
    assert store.look().log_files_deleted > 0
    store.disk.usage = real
    store.write("T", 0, b"after")
    assert store.bodies("T", 0)[-1] == b"after"
    assert store.bodies("T", 0)[-2] == before[-1]


@pytest.mark.parametrize("restarts", [False, True])
def test_the_room_kept_for_what_waits_is_used_for_nothing_else(store, restarts):
    store.fill(3)
    store.flushed()
    log = store.store.log
    log._allocator.stop()
    real, kept = store.disk.usage, 2 * SEGMENT_BYTES
    free = [kept + SEGMENT_BYTES - 1]
    store.disk.usage = lambda path: real(path)._replace(free_bytes=free[0])
    while log.written + 1000 < log.segment_end:
        store.write("T", 0, b"x" * 500)
    with pytest.raises(StoreBroken, match="no room for the next commit log file"):
        store.write("T", 0, b"x" * 1000)
    store.disk.allocate = lambda fd, size: os.truncate(fd, size) or free.__setitem__(0, kept - 1)
    with log.freeing():
        for n in range(3):
            store.put("T", 1, b"copy %d" % n * 200)
    store.tick()
    assert log.is_low
    if restarts:
        store = reopened(store)
        log = store.store.log
    with pytest.raises(StoreBroken, match="only the room to store waiting messages again"):
        store.write("T", 0, b"x")
    with log.freeing():
        store.put("T", 1, b"one more")
    store.tick()
    store.flushed()
    assert len(store.bodies("T", 1)) == 4
    stages = {"disk_space_clean_forcibly_ratio": 100, "disk_space_warning_level_ratio": 100}
    assert store.look(**stages).log_files_deleted > 0, "without any stage"
    with pytest.raises(StoreBroken):
        store.write("T", 0, b"x")
    free[0] = kept
    store.look()
    assert not log.is_low
    store.write("T", 0, b"taken again")
    assert store.bodies("T", 0)[-1] == b"taken again"
    if restarts:
        store.stop()


def test_the_room_kept_for_what_waits_is_freed_in_a_later_round_though_nothing_asks_for_room(store):
    """Timers wait in the oldest file. Once their copies have used the room, sends are refused, so no file is made any
    more that could fail: only that makes the cleaner go on."""
    store.fill(3)
    store.flushed()
    log, cleaner = store.store.log, store.store.cleaner
    log._allocator.stop()
    real, kept, waits = store.disk.usage, 2 * SEGMENT_BYTES, ["timers wait"]
    free = [kept + SEGMENT_BYTES - 1]
    store.disk.usage = lambda path: real(path)._replace(free_bytes=free[0])
    store.disk.allocate = lambda fd, size: os.truncate(fd, size) or free.__setitem__(0, kept - 1)
    while log.written + 1000 < log.segment_end:
        store.write("T", 0, b"x" * 500)
    with log.freeing():
        store.put("T", 1, b"copy" * 250)
    store.tick()
    store.flushed()
    assert log.is_low
    cleaner.keepers.append(lambda end: waits[0])
    stages = {"disk_space_clean_forcibly_ratio": 100, "disk_space_warning_level_ratio": 100}
    assert store.look(**stages).log_files_deleted == 0, "the first file is needed"
    assert not cleaner._no_room
    waits[0] = None
    assert store.look(**stages).log_files_deleted > 0
    assert store.bodies("T", 1) == [b"copy" * 250]


# --- clocks


def test_a_clock_that_was_set_forward_deletes_nothing_at_once(store):
    store.fill(2)
    store.flushed()
    store.look()
    store.pass_time(3 * HOUR_MS)
    store.look()
    store.clock.jump(365 * 24 * HOUR_MS)
    store.scheduler.wall_ms = store.clock.wall_ms()
    store.store.cleaner.request()
    status = store.look()
    assert (status.log_files_deleted, status.clock_ahead_ms) == (0, 365 * 24 * HOUR_MS)
    store.pass_time(59 * 60_000)
    assert store.look().log_files_deleted == 0
    store.clock.jump(-365 * 24 * HOUR_MS)
    assert store.look().clock_ahead_ms == 0, "put right in time"
    store.pass_time(3 * HOUR_MS)
    assert store.look().log_files_deleted == 0


def test_a_clock_that_was_set_forward_while_nothing_ran_deletes_nothing_at_once(store):
    """It looks like a long stop, and no check complains about it."""
    store.fill(2)
    store.flushed()
    store.clock.jump(365 * 24 * HOUR_MS)
    store = reopened(store)
    store.pass_time(59 * 60_000)
    store.store.cleaner.request()
    status = store.look()
    assert (status.log_files_deleted, status.clock_ahead_ms) == (0, 0)
    store.pass_time(61_000)
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 2
    store.stop()


def test_after_a_stop_the_hour_is_that_of_the_clock(store):
    """Ages go on from the last store time for an hour; a broker that starts at four each night would never clean."""
    store.fill(1)
    store.pass_time(96 * HOUR_MS + 14 * HOUR_MS)
    store.fill(2)
    store.flushed()
    store.clock.jump(34 * HOUR_MS)
    store = reopened(store)
    store.pass_time(120_000)
    assert store.look().log_files_deleted >= 1, "it is four by the clock, and it was six in the evening"
    store.stop()


def test_a_clock_that_stays_where_it_was_set_is_believed(clock):
    ages = AgeClock(clock)
    clock.jump(HOUR_MS)
    believed = ages.now_ms()
    assert clock.wall_ms() - believed == HOUR_MS
    clock.advance(HOUR_MS - 1000)
    assert ages.now_ms() == believed + HOUR_MS - 1000
    clock.advance(1000)
    assert ages.now_ms() == clock.wall_ms()
    clock.jump(-10 * HOUR_MS)
    assert ages.now_ms() == clock.wall_ms(), "back is believed at once: it keeps more"


def test_a_clock_that_jumped_back_keeps_everything(store):
    store.fill(2)
    store.flushed().pass_time(24 * HOUR_MS + DAYS_3)
    store.clock.jump(-10 * 365 * 24 * HOUR_MS)
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 0
    store.scheduler.wall_ms = store.clock.wall_ms()
    store.write("T", 0, b"while the clock is wrong")
    times = [record.store_time_ms for record in store.records("T", 0)]
    assert times == sorted(times), "store times never go back"


def test_files_from_the_future_count_from_when_they_were_first_seen(store):
    store.clock.jump(10 * 365 * 24 * HOUR_MS)
    store.scheduler.wall_ms = store.clock.wall_ms()
    store.fill(2)
    store.flushed()
    store.clock.jump(-10 * 365 * 24 * HOUR_MS)
    later = store.clock.wall_ms() / 1000 + 1e6
    for segment in store.store.log.segments:
        os.utime(segment.path, (later, later))
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 0
    store.pass_time(DAYS_3 - 1000)
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 0
    store.pass_time(2000)
    assert store.look().log_files_deleted == 2


def test_who_asks_is_told_which_messages_went(store):
    told = []
    store.store.cleaner.on_raised.append(told.extend)
    store.fill(2)
    store.flushed().pass_time(DAYS_3)
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 2
    queue = store.store.find_queue("T", 0)
    assert told == [Raised("T", 0, 0, queue.min_offset)]
    assert queue.min_offset > 0
    store.store.cleaner.request_queues()
    store.look()
    assert len(told) == 1


def set_clock(store, ms):
    """Set the clock while the broker runs, so that its thread notices."""
    end = store.store.log.written
    store.clock.jump(ms)
    store.scheduler.wall_ms = store.clock.wall_ms()
    store.store.clock_steps.set_while_appending(ms, end, end)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_was_stored_while_the_clock_was_behind_is_kept_as_long_as_all_else(store, is_restarted):
    """A machine without a battery-backed clock begins in 1970."""
    store.clock.jump(-50 * 365 * 24 * HOUR_MS)
    store.scheduler.wall_ms = store.clock.wall_ms()
    store.fill(2)
    store.flushed().pass_time(HOUR_MS)
    store.look()
    set_clock(store, 50 * 365 * 24 * HOUR_MS)
    if is_restarted:
        store = reopened(store)
    store.pass_time(2 * HOUR_MS)
    for _ in range(2):
        store.store.cleaner.request()
        assert store.look().log_files_deleted == 0
        store.pass_time(HOUR_MS)
    store.pass_time(DAYS_3 - 4 * HOUR_MS - 1000 - HOUR_MS)
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 0
    store.pass_time(HOUR_MS + 2000)
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 2
    store.stop()


def test_what_was_stored_while_the_clock_was_ahead_goes_in_its_turn(store):
    store.look()
    set_clock(store, 365 * 24 * HOUR_MS)
    store.fill(2)
    store.flushed().pass_time(2 * HOUR_MS)
    store.look()
    set_clock(store, -365 * 24 * HOUR_MS)
    store.pass_time(DAYS_3 - 3 * HOUR_MS)
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 0
    store.pass_time(2 * HOUR_MS)
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 2


def set_back_in_a_round(store, ms):
    """Set the clock back after the round's look at it, before the round looks at the files."""
    look = store.store.cleaner._ages.now_ms

    def now_ms():
        found = look()
        store.store.cleaner._ages.now_ms = look
        set_clock(store, -ms)
        return found

    store.store.cleaner._ages.now_ms = now_ms


def test_a_clock_that_is_set_back_during_a_round_makes_no_file_older(store):
    store.fill(2)
    store.flushed().pass_time(HOUR_MS)
    store.look()
    set_back_in_a_round(store, 2 * DAYS_3)
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 0
    store.pass_time(DAYS_3)
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 2


def test_a_clock_that_is_set_back_during_a_round_makes_no_topics_messages_older(store):
    for n in range(4):
        store.write("short", 0, b"%d" % n)
    store.flushed()
    store.look()
    store.store.cleaner.topic_hours = lambda: {"short": 3}
    store.store.cleaner._delete_log_files = lambda usage, stages: 0
    set_back_in_a_round(store, DAYS_3)
    store.look()
    assert len(store.bodies("short", 0)) == 4


def test_files_from_the_future_are_as_old_as_those_behind_them(store):
    """No look at the clock saw the step, and the broker was restarted since."""
    now_ms = store.clock.wall_ms()
    store.clock.jump(10 * 365 * 24 * HOUR_MS)
    store.scheduler.wall_ms = store.clock.wall_ms()
    store.fill(3)
    store.flushed()
    store.clock.jump(-10 * 365 * 24 * HOUR_MS)
    later_ms = now_ms + 10 * 365 * 24 * HOUR_MS
    for segment, at_ms in zip(store.store.log.segments, (later_ms, later_ms, now_ms, later_ms), strict=True):
        os.utime(segment.path, (at_ms / 1000, at_ms / 1000))
    for hours in (1, 70):
        store.pass_time(hours * HOUR_MS)
        store.store.cleaner._first_seen_ms.clear()
        store.store.cleaner.request()
        assert store.look().log_files_deleted == 0
    store.pass_time(2 * HOUR_MS)
    store.store.cleaner._first_seen_ms.clear()
    store.store.cleaner.request()
    assert store.look().log_files_deleted == 3


# --- a topic's own time


def test_a_topics_own_time_is_that_which_has_passed(store):
    store.clock.jump(-365 * 24 * HOUR_MS)
    store.scheduler.wall_ms = store.clock.wall_ms()
    store.store.cleaner.topic_hours = lambda: {"short": 3}
    store.write("short", 0, b"a")
    store.pass_time(HOUR_MS)
    store.look()
    store.write("short", 0, b"b")
    set_clock(store, 365 * 24 * HOUR_MS)
    store.look()
    store.pass_time(HOUR_MS + 1000)
    store.write("short", 0, b"c")
    store.flushed().look()
    assert store.bodies("short", 0) == [b"a", b"b", b"c"]
    store.pass_time(HOUR_MS + 1000)
    store.look()
    assert store.bodies("short", 0) == [b"b", b"c"]


def test_a_topics_own_time_hides_its_messages_and_no_others(store):
    for n in range(5):
        store.write("short", 0, b"%d" % n)
        store.write("T", 0, b"%d" % n)
        store.pass_time(HOUR_MS)
    store.flushed()
    store.store.cleaner.topic_hours = lambda: {"short": 3, "nobody": 1}
    store.look()
    assert store.bodies("short", 0) == [b"2", b"3", b"4"]
    assert store.store.find_queue("short", 0).min_offset == 2
    assert len(store.bodies("T", 0)) == 5
    assert store.begin == 0, "the log keeps whole files"
    store.pass_time(30 * HOUR_MS)
    store.look()
    queue = store.store.find_queue("short", 0)
    assert (queue.min_offset, queue.max_offset) == (5, 5)
    store.write("short", 0, b"next")
    assert store.bodies("short", 0) == [b"next"]


def test_a_topics_own_time_may_only_shorten(store):
    count = store.fill(2)
    store.flushed()
    store.store.cleaner.topic_hours = lambda: {"T": 1000}
    store.pass_time(24 * HOUR_MS + DAYS_3)
    assert store.look().log_files_deleted == 2
    assert 0 < store.store.find_queue("T", 0).min_offset < count


def test_queue_files_that_a_topics_own_time_hides_go(store):
    store.write("short", 0, *(b"%d" % n for n in range(250)))
    store.flushed().pass_time(2 * HOUR_MS)
    store.write("short", 0, b"last")
    store.flushed()
    store.store.cleaner.topic_hours = lambda: {"short": 1}
    assert store.look().queue_files_deleted == 2
    assert store.bodies("short", 0) == [b"last"]
    store = reopened(store)
    assert store.built_anew() == [], "files that were deleted are missed"
    assert store.bodies("short", 0) == [b"last"]
    store.stop()


def test_a_stop_does_not_wait_for_a_ledger_that_cannot_be_saved(store, monkeypatch):
    store.write("short", 0, *(b"%d" % n for n in range(250)))
    store.flushed().pass_time(2 * HOUR_MS)
    store.store.cleaner.topic_hours = lambda: {"short": 1}
    monkeypatch.setattr(store.scheduler, "call_soon", lambda callback: None)  # the loop has ended
    cleaner = store.store.cleaner
    looking = threading.Thread(target=cleaner.look)
    looking.start()
    time.sleep(0.3)
    assert looking.is_alive(), "it does not wait for the ledger at all"
    cleaner.request_stop()
    looking.join(60)
    assert not looking.is_alive()
    assert cleaner.status.queue_files_deleted == 0
    monkeypatch.undo()
