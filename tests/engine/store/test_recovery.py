"""After every kind of stop: acknowledged messages are there, unaltered, and the queues match the log."""

import errno
import os
import random
import shutil

import pytest

from appliance.engine.disk import Disk
from appliance.engine.errors import StartError
from appliance.engine.protocol.record import decode_record
from appliance.engine.store import recovery
from appliance.engine.store.queues.consume_queue import ENTRY
from tests.support.offline import verified
from tests.support.store import StoreUnderTest


def fill(store, count, seed=1, topics=("A", "B"), queues=3, largest=900):
    """Write random messages to some queues; return (topic, queue id) -> bodies."""
    chance = random.Random(seed)
    expected = {}
    for i in range(count):
        key = (chance.choice(topics), chance.randrange(queues))
        body = b"%d:" % i + chance.randbytes(chance.randrange(largest))
        store.put(*key, body)
        expected.setdefault(key, []).append(body)
        if chance.random() < 0.4:
            store.tick()
    store.tick()
    return expected


def check(store, expected):
    for (topic, queue_id), bodies in expected.items():
        records = store.records(topic, queue_id)
        assert [r.body for r in records] == bodies, (topic, queue_id)
        assert [r.queue_offset for r in records] == list(range(len(bodies)))


@pytest.mark.parametrize("synchronous", [False, True])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("flushed", [True, False])
def test_a_restart_keeps_everything(tmp_path, synchronous, clean, flushed):
    store = StoreUnderTest(tmp_path, synchronous=synchronous).open()
    expected = fill(store, 600)
    store.wait_acked(600)
    if flushed:
        store.wait_recovery_position()
    store.stop() if clean else store.die()
    assert (tmp_path / "store" / "abort").exists() is not clean
    store = StoreUnderTest(tmp_path, synchronous=synchronous).open()
    check(store, expected)
    for key, bodies in fill(store, 100, seed=2).items():
        expected.setdefault(key, []).extend(bodies)
    store.wait_acked(100)
    check(store, expected)
    store.stop()


class FullOfQueues(Disk):
    """A disk without room for queue entries while it is full."""

    full = True

    def pwrite(self, fd, data, position):
        if self.full and "/consumequeue/" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(fd, data, position)


@pytest.mark.parametrize("synchronous", [False, True])
def test_a_start_on_a_full_disk_keeps_entries_in_memory_until_there_is_room(tmp_path, synchronous):
    disk = FullOfQueues()
    disk.full = False
    store = StoreUnderTest(tmp_path, synchronous=synchronous, disk=disk).open()
    expected = fill(store, 300)
    store.wait_acked(300)
    store.wait_recovery_position()
    disk.full = True
    for seed in range(2, 4):
        store.acked.clear()
        for key, bodies in fill(store, 50, seed=seed, topics=("A", "New")).items():
            expected.setdefault(key, []).extend(bodies)
        store.wait_acked(50)
        store.die()
        store = StoreUnderTest(tmp_path, synchronous=synchronous, disk=disk).open()
        check(store, expected)
    disk.full = False
    store.wait_recovery_position()
    store.die()
    store = StoreUnderTest(tmp_path, synchronous=synchronous).open()
    check(store, expected)
    store.stop()
    assert verified(tmp_path)[1] == []


def lose_ledger(directory):
    for ledger in (directory / "rocketbox").glob("queue-ledger-*"):
        ledger.unlink()


def lose_position(directory):
    (directory / "rocketbox/recovery-position").unlink()


def lose_entries(directory):
    lose_ledger(directory)
    file = next((directory / "store/consumequeue/A/1").iterdir())
    file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize("lose", [lose_ledger, lose_position, lose_entries])
def test_a_start_on_a_full_disk_needs_no_ledger(tmp_path, lose, caplog):
    """Queue files are examined, or all of them rebuilt: entries without room wait in memory."""
    disk = FullOfQueues()
    disk.full = False
    store = StoreUnderTest(tmp_path, disk=disk).open()
    expected = fill(store, 300)
    store.wait_acked(300)
    store.wait_recovery_position()
    disk.full = True
    for seed in range(2, 5):
        store.acked.clear()
        for key, bodies in fill(store, 50, seed=seed, topics=("A", "New")).items():
            expected.setdefault(key, []).extend(bodies)
        store.wait_acked(50)
        store.die()
        if seed == 2:
            lose(tmp_path)
        caplog.clear()
        store = StoreUnderTest(tmp_path, disk=disk).open()
        assert "recovery: the disk is full" in caplog.text
        check(store, expected)
    disk.full = False
    store.wait_recovery_position()
    store.die()
    store = StoreUnderTest(tmp_path).open()
    check(store, expected)
    store.wait_whole()
    store.stop()
    assert verified(tmp_path)[1] == []


def test_more_entries_than_memory_may_hold_end_the_start(tmp_path, monkeypatch):
    disk = FullOfQueues()
    disk.full = False
    store = StoreUnderTest(tmp_path, disk=disk).open()
    fill(store, 300)
    store.wait_acked(300)
    store.wait_recovery_position()
    store.die()
    lose_position(tmp_path)
    disk.full = True
    monkeypatch.setattr(recovery, "MOST_WAITING_BYTES", 100 * 20)
    with pytest.raises(StartError, match="No space left on device"):
        StoreUnderTest(tmp_path, disk=disk).open()


def test_many_restarts_in_a_row(tmp_path):
    expected = {}
    for round_number in range(12):
        store = StoreUnderTest(tmp_path, segment_bytes=16 * 1024).open()
        check(store, expected)
        for key, bodies in fill(store, 40, seed=round_number).items():
            expected.setdefault(key, []).extend(bodies)
        check(store, expected)
        if round_number % 3 == 0:
            store.wait_recovery_position()
        store.stop() if round_number % 4 == 0 else store.die()


def tail_of_log(directory):
    """Return (path of the file that holds the end, position of the end, start of the last record)."""
    best = None
    for path in sorted((directory / "store" / "commitlog").iterdir()):
        data, at, last = path.read_bytes(), 0, None
        while at + 8 < len(data) and data[at + 4 : at + 8] == b"\xda\xa3\x20\xa7":
            last = at
            at += int.from_bytes(data[at : at + 4], "big")
        if last is not None:
            best = (path, at, last)
    assert best is not None
    return best


def test_a_torn_tail_is_cut_at_the_last_whole_record(tmp_path):
    source = tmp_path / "source"
    store = StoreUnderTest(source).open()
    store.write("T", 0, b"one", b"two")
    store.put("T", 0, b"three" * 40, b"K\x01v\x02")
    store.tick()
    store.die()
    path, end, last = tail_of_log(source)
    for cut in (last, last + 1, last + 7, last + 30, last + 100, end - 5):
        copy = tmp_path / f"cut-{cut}"
        shutil.copytree(source, copy)
        target = copy / path.relative_to(source)
        data = bytearray(target.read_bytes())
        data[cut:end] = bytes(end - cut)
        target.write_bytes(data)
        again = StoreUnderTest(copy).open()
        assert again.bodies("T", 0) == [b"one", b"two"], cut
        again.write("T", 0, b"new")
        assert again.bodies("T", 0) == [b"one", b"two", b"new"]
        again.die()
        again = StoreUnderTest(copy).open()
        assert again.bodies("T", 0) == [b"one", b"two", b"new"]
        again.stop()
        kept = list((copy / "rocketbox" / "quarantine").glob("*.torn")) if cut > last + 4 else [1]
        assert kept, "what was cut is kept aside"


@pytest.mark.parametrize("over_it", [b"two", b"y" * 5000])
def test_stale_bytes_behind_a_torn_tail_are_never_read_again(tmp_path, over_it):
    """A long torn record, then others written over it, shorter, or up to where a stale one begins: no crash may turn
    remains into a message."""
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"one", b"x" * 5000)
    store.write("T", 0, b"stale after the torn one")
    store.die()
    path, _, _ = tail_of_log(tmp_path)
    data = bytearray(path.read_bytes())
    second = int.from_bytes(data[0:4], "big")
    data[second + 88 + 10] ^= 0xFF  # the body of the second record
    path.write_bytes(data)
    # Its queue entries never reached the disk: nothing shows that the third record is good.
    shutil.rmtree(tmp_path / "store" / "consumequeue", ignore_errors=True)
    (tmp_path / "rocketbox" / "recovery-position").unlink(missing_ok=True)
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == [b"one"]
    store.write("T", 0, over_it)
    store.die()
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == [b"one", over_it]
    store.stop()


def test_damage_with_valid_records_behind_it_is_stepped_over_and_kept(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"one", b"two", b"three", b"four")
    store.wait_recovery_position()
    store.die()
    path, _, _ = tail_of_log(tmp_path)
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[0:4], "big")
    data[size + 90] ^= 1
    path.write_bytes(data)
    (tmp_path / "rocketbox" / "recovery-position").unlink()  # so that all of it is scanned
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == [b"one", b"three", b"four"]
    assert [r.queue_offset for r in store.records("T", 0)] == [0, 2, 3]
    kept = list((tmp_path / "rocketbox" / "quarantine").glob("*.damage"))
    assert [p.read_bytes() for p in kept] == [bytes(data[size : 2 * size])]
    store.write("T", 0, b"five")
    store.die()
    store = StoreUnderTest(tmp_path).open()
    assert [r.queue_offset for r in store.records("T", 0)] == [0, 2, 3, 4]
    store.stop()


def test_lost_queue_files_are_built_anew_from_the_log(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    expected = fill(store, 300)
    store.wait_recovery_position()
    store.stop()
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    (tmp_path / "rocketbox" / "recovery-position").unlink()
    store = StoreUnderTest(tmp_path).open()
    check(store, expected)
    store.stop()


def test_a_lost_queue_that_got_new_messages_since_is_noticed(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    expected = fill(store, 300)
    store.wait_recovery_position()
    store._before = store.store.files.recovery_position.position
    for key, bodies in fill(store, 100, seed=9).items():
        expected.setdefault(key, []).extend(bodies)
    store.die()
    shutil.rmtree(tmp_path / "store" / "consumequeue" / "A")
    store = StoreUnderTest(tmp_path)
    (tmp_path / "rocketbox" / "recovery-position").unlink()
    store.open()
    check(store, expected)
    store.stop()


def test_a_lost_queue_is_missed_where_the_ledger_is_lost_too(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    store.write("A", 0, b"lost", b"and found")
    store.write("B", 0, b"whole")
    store.wait_recovery_position()
    store.die()
    shutil.rmtree(tmp_path / "store" / "consumequeue" / "A")
    for ledger in (tmp_path / "rocketbox").glob("queue-ledger-*"):
        ledger.unlink()
    store = StoreUnderTest(tmp_path).open()
    check(store, {("A", 0): [b"lost", b"and found"], ("B", 0): [b"whole"]})
    store.stop()


def test_apaches_checkpoint_may_be_ahead_of_its_queues(tmp_path):
    """It is up to three seconds ahead of what is on disk."""
    store = StoreUnderTest(tmp_path, segment_bytes=4096).open()
    store.write("B", 0, b"in no queue file yet")
    store.write("A", 0, *[b"x" * 500] * 9)
    assert len(store.store.log.segments) > 1
    store.wait_recovery_position()
    stored_ms = store.scheduler.wall_ms
    store.die()
    shutil.rmtree(tmp_path / "store" / "consumequeue" / "B")
    (tmp_path / "rocketbox" / "recovery-position").unlink()
    ahead = (stored_ms + 1000).to_bytes(8, "big")
    (tmp_path / "store" / "checkpoint").write_bytes((ahead * 2).ljust(4096, b"\0"))
    store = StoreUnderTest(tmp_path, segment_bytes=4096).open()
    check(store, {("B", 0): [b"in no queue file yet"], ("A", 0): [b"x" * 500] * 9})
    store.stop()


def test_queue_files_ahead_of_the_log_lose_their_surplus(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"one", b"two")
    store.wait_recovery_position()
    store.write("T", 0, b"three", b"four")
    store.wait_recovery_position()
    store.die()
    path, end, last = tail_of_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[last:end] = bytes(end - last)
    path.write_bytes(data)
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == [b"one", b"two", b"three"]
    store.write("U", 0, *[b"fill" * 40] * 5)  # the log grows past where the lost record was
    store.die()
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == [b"one", b"two", b"three"]
    store.stop()


@pytest.mark.parametrize("damage", ["truncate", "zero", "garbage", "delete"])
def test_a_damaged_recovery_position_costs_time_not_messages(tmp_path, damage):
    store = StoreUnderTest(tmp_path).open()
    expected = fill(store, 200)
    store.wait_recovery_position()
    store.die()
    path = tmp_path / "rocketbox" / "recovery-position"
    if damage == "delete":
        path.unlink()
    else:
        path.write_bytes({"truncate": b"", "zero": bytes(8192), "garbage": b"\xa5" * 8192}[damage])
    store = StoreUnderTest(tmp_path).open()
    check(store, expected)
    store.stop()


def test_a_prepared_file_and_one_cut_short_by_a_crash_are_no_obstacle(tmp_path):
    store = StoreUnderTest(tmp_path, segment_bytes=4096).open()
    store.write("T", 0, *[b"x" * 500] * 7)
    store.die()
    directory = tmp_path / "store" / "commitlog"
    last = sorted(directory.iterdir())[-1]
    following = directory / f"{int(last.name) + 4096:020d}"
    following.write_bytes(b"")
    store = StoreUnderTest(tmp_path, segment_bytes=4096).open()
    store.write("T", 0, *[b"y" * 500] * 20)
    assert len(store.bodies("T", 0)) == 27
    store.die()
    store = StoreUnderTest(tmp_path, segment_bytes=4096).open()
    assert len(store.bodies("T", 0)) == 27
    store.stop()


def test_foreign_files_are_left_alone(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"a")
    store.wait_recovery_position()
    store.stop()
    (tmp_path / "store" / "commitlog" / "readme.txt").write_text("hello")
    (tmp_path / "store" / "consumequeue" / "T" / "notes").mkdir()
    (tmp_path / "store" / "consumequeue" / "T" / "0" / "x.tmp").write_text("hello")
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == [b"a"]
    store.stop()
    assert (tmp_path / "store" / "commitlog" / "readme.txt").exists()


def test_records_point_where_they_lie_after_every_restart(tmp_path):
    for seed in range(4):
        store = StoreUnderTest(tmp_path, segment_bytes=8192).open()
        fill(store, 50, seed=seed, largest=300)
        store.die()
    store = StoreUnderTest(tmp_path, segment_bytes=8192).open()
    for topic in ("A", "B"):
        for queue_id in range(3):
            for record in store.records(topic, queue_id):
                raw = store.store.log.read(record.physical_offset, record.size)
                assert decode_record(raw) == record
    store.stop()


def test_a_record_larger_than_one_read_is_whole(tmp_path):
    store = StoreUnderTest(tmp_path, segment_bytes=16 << 20).open()
    large = bytes(range(256)) * (4096 * 4)
    store.write("T", 0, large, b"behind")
    store.die()
    store = StoreUnderTest(tmp_path, segment_bytes=16 << 20).open()
    assert store.bodies("T", 0) == [large, b"behind"]
    store.stop()


@pytest.mark.parametrize("lost", ["all", "topic", "last file"])
@pytest.mark.parametrize("clean", [True, False])
def test_lost_queue_files_are_missed_though_the_position_is_there(tmp_path, lost, clean):
    store = StoreUnderTest(tmp_path).open()
    expected = fill(store, 800, queues=1)
    store.wait_recovery_position()
    store.stop() if clean else store.die()
    queues = tmp_path / "store" / "consumequeue"
    if lost == "last file":
        sorted((queues / "A" / "0").iterdir())[-1].unlink()
    else:
        shutil.rmtree(queues if lost == "all" else queues / "A")
    store = StoreUnderTest(tmp_path).open()
    store.wait_whole()
    check(store, expected)
    store.stop()


def test_stale_entries_far_behind_a_queues_end_are_zeroed(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"a", b"b", b"c")
    store.wait_recovery_position()
    store.die()
    path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(90 * 20)
        file.write(ENTRY.pack(0, 100, 0) * 10)
    store = StoreUnderTest(tmp_path).open()
    store.wait_whole()
    assert store.bodies("T", 0) == [b"a", b"b", b"c"]
    store.die()
    assert path.read_bytes()[60:].strip(b"\0") == b""


def test_half_an_entry_at_a_sectors_border_does_not_count(tmp_path, monkeypatch):
    """Entry 102 has its offset in one sector and its size in the next, which alone reached the disk."""

    def a_store():
        store = StoreUnderTest(tmp_path)
        store.settings = store.settings._replace(queue_file_bytes=4000)
        return store.open()

    store = a_store()
    bodies = [b"%d" % i for i in range(102)]
    store.write("T", 0, *bodies)
    store.wait_recovery_position()
    store.die()
    path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    monkeypatch.setattr(recovery._Recovery, "_count_entries", lambda self, position: None)  # it would hide the rest
    with path.open("r+b") as file:
        file.seek(2048)
        file.write(ENTRY.pack(50_000, 100, 0)[8:])
    for ledger in (tmp_path / "rocketbox").glob("queue-ledger-*"):
        ledger.unlink()
    store = a_store()
    assert store.bodies("T", 0) == bodies
    store.write("T", 0, b"next")
    assert [r.queue_offset for r in store.records("T", 0)] == list(range(103))
    store.stop()


def test_stale_records_deep_in_the_next_file_are_cleared(tmp_path):
    store = StoreUnderTest(tmp_path, segment_bytes=16_384).open()
    store.write("T", 0, *[b"x" * 400] * 10)
    store.die()
    directory = tmp_path / "store" / "commitlog"
    following = directory / f"{16_384:020d}"
    data = bytearray(16_384)
    data[9000:9100] = b"stale" * 20
    following.write_bytes(data)
    store = StoreUnderTest(tmp_path, segment_bytes=16_384).open()
    assert following.read_bytes() == bytes(16_384)
    assert len(store.bodies("T", 0)) == 10
    store.stop()


def test_damage_below_the_recovery_position_costs_only_what_is_damaged(tmp_path):
    """This holds even when no queue file is left to show where the next record begins."""
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, *[b"%d" % i for i in range(20)])
    store.wait_recovery_position()
    store.die()
    path, _, _ = tail_of_log(tmp_path)
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[0:4], "big")
    data[size + 3] ^= 0x40  # the size of the second record
    path.write_bytes(data)
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    store = StoreUnderTest(tmp_path).open()
    store.wait_whole()
    assert store.bodies("T", 0) == [b"0"] + [b"%d" % i for i in range(2, 20)]
    assert list((tmp_path / "rocketbox" / "quarantine").glob("*.damage"))
    store.stop()


def test_queue_files_larger_than_configured_are_one_sentence(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, *[b"%d" % i for i in range(60)])
    store.wait_recovery_position()
    store.stop()
    path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    before = path.read_bytes()
    other = StoreUnderTest(tmp_path)
    other.settings = other.settings._replace(queue_file_bytes=1000)
    with pytest.raises(StartError, match="mappedFileSizeConsumeQueue"):
        other.open()
    assert path.read_bytes() == before
    store = StoreUnderTest(tmp_path).open()
    assert len(store.bodies("T", 0)) == 60
    store.stop()


def test_a_checkpoint_from_the_future_is_put_right(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"a")
    store.wait_recovery_position()
    store.stop()
    path = tmp_path / "store" / "checkpoint"
    path.write_bytes(b"\x7f" * 24 + bytes(4072))
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"b")
    store.stop()
    times = [int.from_bytes(path.read_bytes()[at : at + 8], "big") for at in (0, 8)]
    assert times == [store.scheduler.wall_ms] * 2


def test_a_deleted_topics_records_get_no_entries_when_the_whole_log_is_read_again(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, b"old 1", b"old 2")
    store.write("Other", 0, b"kept")
    store.store.delete_topic("T")
    store.die()
    (tmp_path / "rocketbox" / "recovery-position").unlink()
    store = StoreUnderTest(tmp_path).open()
    assert store.store.find_queue("T", 0) is None
    assert not (tmp_path / "store" / "consumequeue" / "T").exists()
    assert store.bodies("Other", 0) == [b"kept"]
    store.stop()


ZEROS = b"a\x01" + bytes(1200) + b"\x02"


def a_store_with_zeros_in_properties(tmp_path, *, count=3):
    """Return an open store with such properties, as Apache takes them and earlier versions did; sends with them are
    refused now."""
    store = StoreUnderTest(tmp_path).open()
    for number in range(count):
        store.put("Z", 0, b"zeros %d" % number, ZEROS)
        store.tick()
        store.put("Z", 0, b"behind %d" % number)
        store.tick()
    return store, [b"%s %d" % (word, number) for number in range(count) for word in (b"zeros", b"behind")]


@pytest.mark.parametrize(
    ("clean", "lost"),
    [(True, "queues and all that is ours")]
    + [(clean, lost) for clean in (True, False) for lost in ("nothing", "position", "all that is ours")],
)
def test_zeros_in_properties_that_something_vouches_for_are_the_clients_own(tmp_path, clean, lost):
    """The recovery position, an orderly stop, or the entry in a queue file vouches for them."""
    store, bodies = a_store_with_zeros_in_properties(tmp_path)
    store.wait_recovery_position()
    store.stop() if clean else store.die()
    if lost == "position":
        (tmp_path / "rocketbox" / "recovery-position").unlink()
    elif lost != "nothing":
        shutil.rmtree(tmp_path / "rocketbox")
    if "queues" in lost:
        shutil.rmtree(tmp_path / "store" / "consumequeue")
    assert not damage(tmp_path)
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("Z", 0) == bodies
    assert not (tmp_path / "rocketbox" / "quarantine").exists()
    store.stop()


def damage(tmp_path):
    """Return the findings of `rocketbox store verify` in the log."""
    return [problem for problem in verified(tmp_path)[1] if problem.kind in ("record", "torn-tail", "behind-the-end")]


def test_zeros_in_properties_that_nothing_vouches_for_are_a_torn_tail(tmp_path):
    store, bodies = a_store_with_zeros_in_properties(tmp_path, count=1)
    store.wait_recovery_position()
    store.store._flush_queues.stop()  # the position stays where it is
    store.put("Z", 0, b"torn", ZEROS)
    store.tick()
    store.die()
    assert [problem.kind for problem in damage(tmp_path)] == ["torn-tail"]
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("Z", 0) == bodies
    store.write("Z", 0, b"next")
    assert store.bodies("Z", 0) == [*bodies, b"next"]
    store.stop()


def test_lost_queue_files_cost_no_message_with_zeros_below_the_position(tmp_path):
    store, bodies = a_store_with_zeros_in_properties(tmp_path)
    store.wait_recovery_position()
    store.die()
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    store = StoreUnderTest(tmp_path).open()
    store.wait_whole()
    assert store.bodies("Z", 0) == bodies
    store.stop()
