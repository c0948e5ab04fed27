"""A start by the queue ledger: the files it touches, its cost, and starts without ledger or queue files."""

import errno
import shutil
import time

import pytest

from appliance.engine.disk import Disk
from appliance.engine.errors import QueueBroken
from appliance.engine.filter.message_filter import EVERYTHING, MessageFilter
from appliance.engine.store.queues import flush_queues, queue_ledger
from appliance.engine.store.results import GetStatus
from appliance.engine.store.time_search import Boundary, TimeSearch
from tests.support.store import StoreUnderTest
from tests.support.waiting import wait_for


class WatchingDisk(Disk):
    """Notes calls below consumequeue/, and fails calls on the ledger that `failing` names."""

    def __init__(self):
        self.seen = []
        self.failing = set()
        self._ledgers = set()

    def _note(self, call, path):
        if "consumequeue" in str(path):
            self.seen.append((call, str(path)))

    def open(self, path, create=False, read_only=False):
        self._note("create" if create else "open", path)
        fd = super().open(path, create, read_only)
        (self._ledgers.add if path.name.startswith(queue_ledger.PREFIX) else self._ledgers.discard)(fd)
        return fd

    def names(self, path):
        self._note("names", path)
        return super().names(path)

    def sync_directory(self, path):
        self._note("sync", path)
        super().sync_directory(path)

    def fdatasync(self, fd):
        if "fdatasync" in self.failing and fd in self._ledgers:
            raise OSError(errno.EIO, "Input/output error")
        super().fdatasync(fd)


def ledgers(directory):
    return sorted(path.name for path in (directory / "rocketbox").glob("queue-ledger-*"))


def a_store(directory, topics=5, queues=4, each=3):
    """A store with flushed queues, still open; (topic, queue id) -> bodies."""
    store = StoreUnderTest(directory).open()
    expected = {}
    for topic in range(topics):
        for queue_id in range(queues):
            bodies = [b"%d-%d-%d" % (topic, queue_id, n) for n in range(each)]
            store.write(f"T{topic}", queue_id, *bodies)
            expected[f"T{topic}", queue_id] = bodies
    store.wait_recovery_position()
    return store, expected


def found_in(store, expected):
    return {key: store.bodies(*key) for key in expected}


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_touches_no_queue_file(tmp_path, clean, monkeypatch):
    store, expected = a_store(tmp_path)
    store.stop() if clean else store.die()
    disk = WatchingDisk()
    store = StoreUnderTest(tmp_path, disk=disk)
    monkeypatch.setattr("appliance.engine.store.message_store.MessageStore.start", lambda self: None)
    store.open()
    assert disk.seen == []
    assert {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in store.store.queues.all()} == {
        key: (0, len(bodies)) for key, bodies in expected.items()
    }
    assert found_in(store, expected) == expected
    assert not store.store._flush_queues.repair.broken
    store.stop()


def test_what_came_behind_the_position_is_found_by_the_log(tmp_path):
    store, expected = a_store(tmp_path)
    store.store._flush_queues.stop()  # nothing more reaches the files
    for key in (("T1", 1), ("new", 0)):
        store.write(*key, b"later")
        expected.setdefault(key, []).append(b"later")
    store.die()
    disk = WatchingDisk()
    store = StoreUnderTest(tmp_path, disk=disk).open()
    assert [path.split("consumequeue/")[1][:5] for call, path in disk.seen if call == "create"] == ["new/0"]
    assert found_in(store, expected) == expected
    store.wait_whole()
    store.die()
    store = StoreUnderTest(tmp_path).open()
    assert found_in(store, expected) == expected
    store.stop()


def test_without_queue_files_sends_go_on_and_reads_wait_until_they_are_built_anew(tmp_path, monkeypatch):
    store, expected = a_store(tmp_path)
    store.stop()
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    store = StoreUnderTest(tmp_path)
    hold = [True]
    step = "appliance.engine.store.queues.queue_repair.QueueRepair.step"
    from appliance.engine.store.queues.queue_repair import QueueRepair

    real = QueueRepair.step
    monkeypatch.setattr(step, lambda self, seconds=0.002: True if hold else real(self, seconds))
    store.open()
    queue = store.store.find_queue("T2", 1)
    for offset, wanted in ((0, EVERYTHING), (1, MessageFilter(frozenset((0,))))):
        result = store.get(queue, offset, 32, wanted)
        assert (result.status, result.next_offset, result.max_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, offset, 3)
    with pytest.raises(QueueBroken):
        TimeSearch(store.store.queues, store.store.records).offset_at("T2", 1, 5, Boundary.LOWER)
    assert store.put("T2", 1, b"sent meanwhile") >= 0
    store.tick()
    store.wait_acked(1)
    assert queue.max_offset == 4
    assert [r.body for r in store.records("T2", 1)] == []
    assert store.get(queue, 3, 32).status == GetStatus.FOUND
    told = []
    store.store.on_repaired = told.append
    hold.clear()
    store.wait_whole()
    expected["T2", 1].append(b"sent meanwhile")
    assert found_in(store, expected) == expected
    assert len(told) == len(expected)
    (finding,) = [f for f in store.store.files.findings() if f.kind == "queue" and f.file.endswith("T2/1")]
    assert finding.reason
    store.die()
    store = StoreUnderTest(tmp_path).open()
    store.wait_whole()
    assert found_in(store, expected) == expected
    store.stop()


@pytest.mark.parametrize("damage", ["zeros", "cut", "empty"])
@pytest.mark.parametrize("tagged", [True, False])
def test_a_reader_that_meets_lost_entries_has_them_built_anew(tmp_path, damage, tagged):
    """The entries are missing in a file that looked whole when it was checked."""
    store, expected = a_store(tmp_path, topics=1, queues=1, each=50)
    store.stop()
    store = StoreUnderTest(tmp_path).open()
    store.wait_whole()
    path = tmp_path / "store" / "consumequeue" / "T0" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[20 * 10 : 20 * 30] = bytes(400)
    path.write_bytes({"zeros": bytes(data), "cut": bytes(data[:200]), "empty": b""}[damage])
    queue = store.store.find_queue("T0", 0)
    wanted = (
        MessageFilter(frozenset((1,))) if tagged else EVERYTHING
    )  # no message has this tag, and zeros do not count as another one
    end = time.monotonic() + 60
    offset = 0
    while offset < 50 and time.monotonic() < end:
        result = store.get(queue, offset, 32, wanted)
        assert result.status in (
            GetStatus.FOUND,
            GetStatus.NO_MATCHED_MESSAGE,
            GetStatus.OFFSET_OVERFLOW_ONE,
        )
        offset = result.next_offset
    assert offset == 50
    store.wait_whole()
    assert path.stat().st_size == 2000
    assert found_in(store, expected) == expected
    store.stop()


@pytest.mark.parametrize("damage", ["flip", "cut", "delete", "foreign size"])
def test_without_its_ledger_a_start_looks_into_the_files(tmp_path, damage, caplog):
    store, expected = a_store(tmp_path)
    store.stop()
    path = tmp_path / "rocketbox" / ledgers(tmp_path)[-1]
    data = bytearray(path.read_bytes())
    if damage == "delete":
        path.unlink()
    else:
        data[len(data) // 2] ^= damage == "flip"
        data[15] ^= 4 * (damage == "foreign size")
        path.write_bytes(data[: -1 if damage == "cut" else None])
    disk = WatchingDisk()
    store = StoreUnderTest(tmp_path, disk=disk).open()
    assert disk.seen
    assert found_in(store, expected) == expected
    store.write("T0", 0, b"more")
    expected["T0", 0].append(b"more")
    store.wait_recovery_position()
    store.die()
    disk = WatchingDisk()
    store = StoreUnderTest(tmp_path, disk=disk)
    store.open()
    assert store.store.ledger.place.generation == (1 if damage == "delete" else 2)
    assert found_in(store, expected) == expected
    store.stop()


def test_a_ledger_that_cannot_be_synced_goes_into_a_new_file(tmp_path):
    disk = WatchingDisk()
    store = StoreUnderTest(tmp_path, disk=disk).open()
    store.write("T", 0, b"1")
    store.wait_recovery_position()
    assert ledgers(tmp_path) == ["queue-ledger-00000001"]
    disk.failing.add("fdatasync")
    store.write("T", 0, b"2")
    wait_for(lambda: store.store._flush_queues.failure, "the failure to be told")
    disk.failing.clear()
    wait_for(lambda: ledgers(tmp_path) == ["queue-ledger-00000002"], "the old one to go")
    store.wait_recovery_position()
    store.die()
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == [b"1", b"2"]
    store.stop()


def test_a_ledger_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr(queue_ledger, "LARGE_BYTES", 500)
    monkeypatch.setattr(flush_queues, "INTERVAL_S", 0.002)
    store = StoreUnderTest(tmp_path, synchronous=True).open()
    bodies = []
    for n in range(150):
        bodies.append(b"%d" % n)
        store.write("T", 0, bodies[-1])
        assert store.store._flush_queues.record([store.store.find_queue("T", 0)])
        assert store.store.ledger.place.length < 600
    assert store.store.ledger.place.generation > 3
    assert len(ledgers(tmp_path)) == 1
    store.die()
    store = StoreUnderTest(tmp_path).open()
    assert store.bodies("T", 0) == bodies
    store.stop()


def test_a_minimum_offset_is_in_the_ledger_before_files_go(tmp_path):
    store, _ = a_store(tmp_path, topics=1, queues=1)
    queue = store.store.find_queue("T0", 0)
    queue.min_offset = 2
    assert store.store._flush_queues.record([queue])
    store.die()
    store = StoreUnderTest(tmp_path).open()
    assert store.store.find_queue("T0", 0).min_offset == 2
    store.stop()
