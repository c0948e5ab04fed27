"""Append, publish, read: which messages a reader sees, and when."""

import errno
import struct

import pytest

from appliance.engine.errors import MessageTooLarge, StartError, StoreBroken
from appliance.engine.filter.message_filter import EVERYTHING, MessageFilter
from appliance.engine.protocol.record import MAGIC_BLANK
from appliance.engine.store.results import GetStatus
from appliance.engine.store.time_search import Boundary, TimeSearch
from tests.support.store import FailingDisk, ShortWriteDisk, StoreUnderTest
from tests.support.waiting import wait_for


@pytest.fixture
def store(tmp_path):
    under_test = StoreUnderTest(tmp_path).open()
    yield under_test
    under_test.stop()


def test_what_was_put_is_read_in_order_and_unaltered(store):
    bodies = [bytes([i]) * (i * 7 % 600 + 1) for i in range(256)]
    for i, body in enumerate(bodies):
        store.write("T", i % 4, body)
    for queue_id in range(4):
        records = store.records("T", queue_id)
        assert [r.body for r in records] == bodies[queue_id::4]
        assert [r.queue_offset for r in records] == list(range(64))
        assert all(r.topic == "T" and r.queue_id == queue_id for r in records)
        assert all(store.store.log.read(r.physical_offset, 4) == struct.pack(">i", r.size) for r in records)


def test_staged_messages_are_invisible_until_the_tick_ends(store):
    store.put("T", 0, b"a")
    queue = store.store.find_queue("T", 0)
    assert queue.max_offset == 0
    assert store.get(queue, 0, 32).status == GetStatus.NO_MESSAGE_IN_QUEUE
    store.tick()
    assert queue.max_offset == 1
    assert store.bodies("T", 0) == [b"a"]


def test_no_record_is_older_than_the_one_before_it(store):
    """Searches by time rely on it, however the wall clock moves."""
    begin_ms = store.scheduler.wall_ms
    for moved_ms in (0, 500, -3_600_000, 499, 501):
        store.scheduler.wall_ms = begin_ms + moved_ms
        stored_ms = store.store.next_store_ms()
        store.write("T", 0, b"%d" % moved_ms)
        assert store.records("T", 0)[-1].store_time_ms == stored_ms
    assert [record.store_time_ms - begin_ms for record in store.records("T", 0)] == [0, 500, 500, 500, 501]


def test_in_sync_flush_nothing_is_published_before_the_sync_returned(tmp_path):
    disk = FailingDisk()
    store = StoreUnderTest(tmp_path, synchronous=True, disk=disk).open()
    gate = store.store._flush
    real_sync = store.store.log.sync
    held = []
    store.store.log.sync = lambda: held.append(1) or store.store.log.written
    store.write("T", 0, b"a")
    wait_for(lambda: held, "the flush thread never looked")
    assert store.acked == []
    assert store.bodies("T", 0) == []
    store.store.log.sync = real_sync
    gate.tick_written()
    store.wait_acked(1)
    assert store.bodies("T", 0) == [b"a"]
    store.stop()


def test_sync_flush_acknowledges_ticks_in_order(tmp_path):
    store = StoreUnderTest(tmp_path, synchronous=True).open()
    for i in range(200):
        store.put("T", 0, b"%d" % i, ack=i)
        store.tick()
    store.wait_acked(200)
    assert store.acked == list(range(200))
    store.stop()


def test_files_roll_with_a_blank_record_and_records_never_cross(tmp_path):
    store = StoreUnderTest(tmp_path, segment_bytes=4096).open()
    bodies = [bytes([i % 256]) * 300 for i in range(60)]
    store.write("T", 0, *bodies)
    assert store.bodies("T", 0) == bodies
    log = store.store.log
    assert len(log.segments) > 5
    for segment in log.segments[:-2]:
        inside = [r for r in store.records("T", 0) if segment.start <= r.physical_offset < segment.end]
        end = inside[-1].physical_offset + inside[-1].size
        left = segment.end - end
        assert left >= 8
        assert log.read(end, 8) == struct.pack(">iI", left, MAGIC_BLANK)
    store.stop()


@pytest.mark.parametrize("left", [0, 1, 7, 8, 9])
def test_a_record_fits_only_with_room_for_a_blank_one(tmp_path, left):
    store = StoreUnderTest(tmp_path, segment_bytes=4096).open()
    overhead = 91 + len("T")
    if left < 8:
        with pytest.raises(MessageTooLarge):
            store.put("T", 0, b"x" * (4096 - overhead - left))
        assert store.store.log.staged == 0
    else:
        store.write("T", 0, b"x" * (4096 - overhead - left))
        assert store.bodies("T", 0) == [b"x" * (4096 - overhead - left)]
    store.stop()


def test_several_records_of_one_tick_may_roll_in_between(tmp_path):
    store = StoreUnderTest(tmp_path, segment_bytes=4096).open()
    bodies = [bytes([i]) * 500 for i in range(40)]
    for body in bodies:
        store.put("T", 0, body)
    store.tick()
    assert store.bodies("T", 0) == bodies
    store.stop()


def test_reads_report_5_3_3s_statuses(store):
    get = store.store.get
    assert get(None, 0, 1).status == GetStatus.NO_MATCHED_LOGIC_QUEUE
    queue = store.store.queues.get_or_create("T", 0)
    assert get(queue, 5, 1).status == GetStatus.NO_MESSAGE_IN_QUEUE
    store.write("T", 0, b"a", b"b", b"c")
    assert get(queue, -5, 1)[:4] == (GetStatus.OFFSET_TOO_SMALL, 0, 0, 3)
    assert get(queue, 3, 1)[:4] == (GetStatus.OFFSET_OVERFLOW_ONE, 3, 0, 3)
    assert get(queue, 4, 1)[:4] == (GetStatus.OFFSET_OVERFLOW_BADLY, 3, 0, 3)
    found = get(queue, 1, 1)
    assert (found.status, found.next_offset, found.message_count) == (GetStatus.FOUND, 2, 1)
    assert get(queue, 0, 32, MessageFilter(frozenset((1,))))[:2] == (GetStatus.NO_MATCHED_MESSAGE, 3)
    assert get(queue, 0, 32, MessageFilter(frozenset((0,)))).message_count == 3


def test_adjacent_records_make_one_run(store):
    for body in (b"a", b"b", b"c"):
        store.put("T", 0, body)
    store.put("T", 1, b"between")
    store.put("T", 0, b"d")
    store.tick()
    queue = store.store.find_queue("T", 0)
    adjacent = store.get(queue, 0, 3)
    assert (adjacent.message_count, len(adjacent.runs)) == (3, 1)
    for wanted in (EVERYTHING, MessageFilter(frozenset((0,)))):
        result = store.get(queue, 0, 32, wanted)
        assert result.message_count == 4
        assert result.size == sum(size for _, size in result.runs)
        read = b"".join(store.store.log.read(*run) for run in result.runs)
        assert [read.count(body) for body in (b"between", b"T")] == [0, 4]


def test_a_batch_stops_at_the_limits_of_hot_and_cold_data(store):
    for _ in range(40):
        store.put("T", 0, b"x" * 10_000)
        store.tick()
    queue = store.store.find_queue("T", 0)
    assert store.get(queue, 0, 100).message_count == 25  # 262,144 bytes
    store.store.settings = store.store.settings._replace(memory_bytes=0)
    assert store.get(queue, 0, 100).message_count == 6  # 65,536 bytes
    small = store.store.queues.get_or_create("S", 0)
    store.write("S", 0, *[b"s"] * 40)
    assert store.get(small, 0, 100).message_count == 8
    store.store.settings = store.store.settings._replace(memory_bytes=1 << 40)
    assert store.get(small, 0, 100).message_count == 32
    assert store.get(small, 0, 5).message_count == 5


def test_a_message_larger_than_the_limit_still_comes_alone(store):
    store.store.stop()
    store.settings = store.settings._replace(segment_bytes=1 << 20)
    fresh = StoreUnderTest(store.directory / "big", segment_bytes=1 << 20).open()
    fresh.write("T", 0, b"x" * 400_000, b"y")
    result = fresh.get(fresh.store.find_queue("T", 0), 0, 32)
    assert (result.message_count, result.next_offset) == (1, 1)
    fresh.stop()
    store.open()


def test_entries_are_read_from_files_once_they_were_written(store):
    bodies = [b"%d" % i for i in range(350)]  # 100 entries a file
    store.write("T", 0, *bodies)
    store.wait_recovery_position()
    queue = store.store.find_queue("T", 0)
    wait_for(lambda: queue.tail_base >= 350, "the tail was never trimmed")
    assert store.bodies("T", 0) == bodies
    store.write("T", 0, b"more")
    assert store.bodies("T", 0) == [*bodies, b"more"]


def test_one_read_goes_on_from_the_files_into_the_tail(store):
    store.write("T", 0, b"a", b"b")
    store.wait_recovery_position()
    queue = store.store.find_queue("T", 0)
    wait_for(lambda: queue.tail_base >= 2, "the tail was never trimmed")
    store.write("T", 0, b"c", b"d")
    assert queue.tail_base == 2
    result = store.get(queue, 0, 32)
    assert (result.message_count, result.next_offset) == (4, 4)
    assert store.get(queue, 1, 2, MessageFilter(frozenset((0,))))[:2] == (GetStatus.FOUND, 3)


def test_a_failed_write_fails_the_tick_and_everything_after_it(tmp_path):
    disk = FailingDisk()
    store = StoreUnderTest(tmp_path, disk=disk).open()
    store.write("T", 0, b"kept")
    written = store.store.log.written
    disk.failing["pwrite"] = errno.EIO
    store.write("T", 0, b"lost")
    assert store.store.log.written == written
    assert [ack for ack, _ in store.failed] == [("T", 0, b"lost")]
    disk.failing.clear()
    store.put("T", 0, b"after")
    store.tick()
    assert [ack for ack, _ in store.failed][-1] == ("T", 0, b"after")
    assert [ack[2] for ack in store.acked] == [b"kept"]
    assert store.bodies("T", 0) == [b"kept"], "reads go on"
    with pytest.raises(StoreBroken):
        store.store.log.write()
    store.stop()
    assert (tmp_path / "store" / "abort").exists(), "a broken log is not left as clean"


def test_a_failed_sync_fails_what_waits_for_it_and_is_never_retried(tmp_path):
    disk = FailingDisk()
    store = StoreUnderTest(tmp_path, synchronous=True, disk=disk).open()
    store.write("T", 0, b"kept")
    store.wait_acked(1)
    disk.failing["fdatasync"] = errno.EIO
    store.write("T", 0, b"lost")
    wait_for(lambda: store.failed, "the waiting send was never told")
    disk.failing.clear()
    store.write("T", 0, b"after")
    assert [ack[2] for ack, _ in store.failed] == [b"lost", b"after"]
    assert [ack[2] for ack in store.acked] == [b"kept"]
    assert store.bodies("T", 0) == [b"kept"], "what was not durable was never published"
    store.stop()


def test_a_full_disk_shows_at_the_roll_and_passes(tmp_path):
    disk = FailingDisk()
    store = StoreUnderTest(tmp_path, segment_bytes=4096, disk=disk).open()
    store.write("T", 0, b"x" * 1000)
    disk.failing["allocate"] = errno.ENOSPC
    refused = []
    for _ in range(12):
        try:
            store.write("T", 0, b"y" * 1000)
        except StoreBroken as error:
            refused.append(str(error))
    assert refused
    assert all("No space" in reason or "ENOSPC" in reason for reason in refused)
    assert store.store.log.broken is None
    disk.failing.clear()
    store.write("T", 0, b"z" * 1000)
    assert store.bodies("T", 0)[-1] == b"z" * 1000
    assert len(store.bodies("T", 0)) == len(store.acked)
    store.stop()


def test_short_writes_are_finished(tmp_path):
    store = StoreUnderTest(tmp_path, disk=ShortWriteDisk()).open()
    bodies = [bytes([i]) * 50 for i in range(20)]
    store.write("T", 0, *bodies)
    assert store.bodies("T", 0) == bodies
    store.stop()


def test_two_processes_cannot_open_one_store(store):
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path\n"
        "from tests.support.store import StoreUnderTest\n"
        "from appliance.engine.errors import StartError\n"
        "try: StoreUnderTest(Path(sys.argv[1])).open()\n"
        "except StartError as e: print(e); sys.exit(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(store.directory)], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 3, done.stderr
    assert "in use by another process" in done.stdout


def test_a_wrong_file_size_is_one_sentence(store):
    store.write("T", 0, b"a")
    store.stop()
    other = StoreUnderTest(store.directory, segment_bytes=32 * 1024)
    with pytest.raises(StartError, match="mappedFileSizeCommitLog"):
        other.open()
    store.open()
    assert store.bodies("T", 0) == [b"a"]


def test_offsets_by_time(store):
    for i in range(10):
        store.scheduler.wall_ms = 1_700_000_000_000 + i // 2 * 100
        store.write("T", 0, b"%d" % i)
    search = TimeSearch(store.store.queues, store.store.records)
    base = 1_700_000_000_000

    def lower(ms):
        return search.offset_at("T", 0, base + ms, Boundary.LOWER)

    def upper(ms):
        return search.offset_at("T", 0, base + ms, Boundary.UPPER)

    assert [lower(ms) for ms in (-1, 0, 1, 100, 399, 400, 401)] == [0, 0, 2, 2, 8, 8, 10]
    assert [upper(ms) for ms in (-1, 0, 99, 100, 400, 10**9)] == [0, 1, 1, 3, 9, 9]
    assert search.offset_at("Unknown", 0, base, Boundary.LOWER) == 0
    assert search.earliest_time("T", 0) == base
    assert search.earliest_time("Unknown", 0) == -1


def test_what_was_stored_while_the_clock_was_ahead_was_stored_before_now(store):
    """Such store times continue until the clock gets there: a reset to now must not lead to the first of them."""
    now, day = 1_700_000_000_000, 86_400_000
    for when in (now - 3_600_000, now - 3_000_000, now + day, now + day):  # the last one after the clock was corrected
        store.scheduler.wall_ms = when
        store.write("T", 0, b"x")
    search = TimeSearch(store.store.queues, store.store.records, lambda: now)
    for ms in (-20, 0, 20, 2 * day):
        assert search.offset_at("T", 0, now + ms, Boundary.LOWER) == 4, ms
        assert search.offset_at("T", 0, now + ms, Boundary.UPPER) == 3, ms
    assert search.offset_at("T", 0, now - 3_100_000, Boundary.LOWER) == 1
    assert search.offset_at("T", 0, now - 600_000, Boundary.LOWER) == 2
    assert search.offset_at("T", 0, now - 600_000, Boundary.UPPER) == 1


def test_store_times_never_go_back(store):
    store.write("T", 0, b"a")
    store.scheduler.wall_ms -= 60_000
    store.write("T", 0, b"b")
    times = [r.store_time_ms for r in store.records("T", 0)]
    assert times == sorted(times)


def test_a_deleted_topic_begins_again_and_stays_deleted_after_a_crash(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"old 1", b"old 2")
    store.write("Other", 0, b"kept")
    store.store.delete_topic("T")
    assert store.store.find_queue("T", 0) is None
    assert not (tmp_path / "store" / "consumequeue" / "T").exists()
    store.write("T", 0, b"new")
    store.die()
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == [b"new"]
    assert store.bodies("Other", 0) == [b"kept"]
    store.stop()
