"""The life of the index: stops, kills, lost and torn files, a disk that fails, files that roll and expire."""

import errno
import os
import threading
import time

import pytest

from appliance.engine.errors import StartError
from appliance.engine.hotpath import COMPILED
from appliance.engine.protocol.properties import encode_properties
from appliance.engine.protocol.record import decode_record
from appliance.engine.store.index import index_file, index_query, index_service
from appliance.engine.store.index.index_file import ENTRY, HEADER, IndexFile, file_bytes
from appliance.engine.store.index.index_keys import key_hash
from appliance.engine.store.index.index_query import IndexQuery
from appliance.engine.store.index.index_recovery import NAME, IndexPosition, IndexPositionFile
from tests.support.store import FailingDisk, StoreUnderTest
from tests.support.waiting import wait_for

SLOTS, ENTRIES = 50, 101
FILE_BYTES = file_bytes(SLOTS, ENTRIES)


class IndexedStore(StoreUnderTest):
    """Files of 100 entries; every message has a unique key `u<n>` and the keys `k<n % 7>` and `all`."""

    def __init__(self, directory, **options):
        super().__init__(directory, **options)
        self.settings = self.settings._replace(index_enabled=True, index_slots=SLOTS, index_entries=ENTRIES)
        self.count = 0
        #: Queries that were answered without waiting, too.
        self.at_once = 0

    def send(self, count=1):
        for _ in range(count):
            n = self.count
            text = encode_properties({"KEYS": f"k{n % 7} all", "UNIQ_KEY": f"u{n}"}).encode()
            self.put("T", 0, b"%d" % n, text)
            self.tick()
            self.scheduler.wall_ms += 3
            self.count += 1

    def find(self, key, limit=100_000, begin=0, end=1 << 62):
        query = IndexQuery(self.store.index, self.store.records)
        assert query.catch_up(60), self.store.index.failure
        # A query has a second. A machine with other work may need several.
        found = wait_for(
            lambda: (one := query.find("T", key, limit, begin, end)).complete and one, "the whole log to be searched"
        )
        at_once = query.find_now("T", key, limit, begin, end, False)
        if at_once is not None:
            self.at_once += 1
            assert at_once == ([data for _, data in found.records], found.last_time_ms, found.last_offset)
        return [int(record.body) for record, _ in found.records]

    def check(self, count=None):
        """Check that every message is found, once."""
        count = self.count if count is None else count
        assert self.find("all") == list(range(count))
        for n in range(7):
            assert self.find(f"k{n}") == list(range(n, count, 7))
        for n in range(count):
            assert self.find(f"u{n}") == [n]
        assert self.find(f"u{count}") == []

    def reopen(self, clean=True):
        self.stop() if clean else self.die()
        self.open()

    @property
    def paths(self):
        return sorted((self.directory / "store" / "index").iterdir())

    def entries(self):
        """Return the entries of all files, in order: (hash, physical offset)."""
        with self.store.index.lock:
            return [
                (int.from_bytes(raw[i : i + 4], "big"), int.from_bytes(raw[i + 4 : i + 12], "big"))
                for file in self.store.index.files
                for raw in [file.entries(1, file.count)]
                for i in range(0, len(raw), 20)
            ]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Searches end because they have found all, however long another program has the processor."""
    monkeypatch.setattr(index_query, "FIND_S", 60.0)


@pytest.fixture
def store(tmp_path):
    store = IndexedStore(tmp_path).open()
    yield store
    store.store.index.abandon()
    store.stop()


@pytest.fixture(params=["in the file", "in memory"])
def slots(request, monkeypatch):
    """The two places where slots may be."""
    if request.param == "in memory":
        monkeypatch.setattr(index_service, "TABLE_AT", -1)


def test_keys_are_found_across_files_and_stops(store, slots):
    for clean in (True, False, True, False):
        store.send(70)
        store.check()
        store.reopen(clean)
        store.check()
    assert len(store.paths) == -(-280 * 3 // (ENTRIES - 1))
    assert len(store.entries()) == len(set(store.entries())) == 280 * 3, "no key is in the index twice"


def test_a_query_finds_what_was_sent_just_before(store):
    for n in range(30):
        store.send()
        assert store.find(f"u{n}") == [n]


@pytest.mark.parametrize("compiled", [True, False] if COMPILED else [False])
def test_what_is_cached_is_found_at_once_and_as_ever(store, slots, monkeypatch, compiled):
    if not compiled:
        monkeypatch.setattr(index_file, "chain_cached", None)
        store.reopen()
    store.send(150)
    store.check()
    # Most unique keys. Words with many records, keys without one, and long chains of other hashes wait.
    assert 120 < store.at_once <= 150


def test_what_would_wait_is_not_found_at_once(store):
    store.send(3)
    query = IndexQuery(store.store.index, store.store.records)

    def ask(key="u1", is_unique=True, limit=32):
        found = query.find_now("T", key, limit, 0, 1 << 62, is_unique)
        return None if found is None else [int(decode_record(data).body) for data in found.records]

    assert query.catch_up(60)
    assert ask() == [1]
    assert ask("u9") is None
    assert ask(limit=0) is None
    with store.store.index.lock:
        assert ask() is None
    store.store.index.enabled = False  # the thread does not go on
    store.send()
    store.store.index.enabled = True
    assert store.store.index.behind
    assert ask() == [1], "a unique key is found although the index is behind"
    assert ask(is_unique=False) is None
    for part in ("chain_now", "find_now"):
        with pytest.MonkeyPatch.context() as patch:
            where = store.store.index.files[0] if part == "chain_now" else query._records
            patch.setattr(query._records, "of_key_now", lambda *_: None)
            patch.setattr(where, part, lambda *_: None)
            assert ask() is None, f"{part} would wait"


def test_long_keys_are_hashed_elsewhere_or_not_at_all(store, monkeypatch):
    store.send()
    for number, size in enumerate((400, 600)):
        store.put("T", 0, b"%d" % number, encode_properties({"UNIQ_KEY": "k" * size}).encode())
    store.tick()
    query = IndexQuery(store.store.index, store.store.records)
    assert query.catch_up(60)
    hashed = []
    monkeypatch.setattr(index_query, "key_hash", lambda topic, key: hashed.append(key) or key_hash(topic, key))
    found = query.find_now("T", "k" * 400, 1, 0, 1 << 62, True)
    assert [decode_record(data).body for data in found.records] == [b"0"]
    assert query.find_now("T", "k" * 600, 1, 0, 1 << 62, True) is None
    assert query.find_now("T" * 600, "k", 1, 0, 1 << 62, True) is None
    assert hashed == ["k" * 400]
    assert [record.body for record, _ in query.find("T", "k" * 600, 1, 0, 1 << 62).records] == [b"1"]
    assert not query.find("T", "k" * 40_000, 1, 0, 1 << 62).records
    assert hashed[1:] == ["k" * 600], "a key that no record has room for is not hashed anywhere"


def test_a_file_system_that_cannot_tell_what_is_cached_is_not_asked(store, monkeypatch):
    store.send(3)
    assert IndexQuery(store.store.index, store.store.records).catch_up(60)
    file = store.store.index.files[0]
    code = key_hash("T", "u1")
    assert file.chain_now(code, 32) == file.chain(code, None, 32)[0] != []
    monkeypatch.setattr(file, "_reads_compiled", False)
    assert file.chain_now(code, 32) == file.chain(code, None, 32)[0]
    monkeypatch.setattr(store.store.disk, "reads_without_waiting", False)
    assert file.chain_now(code, 32) is None


def test_the_thread_indexes_by_itself(store):
    store.send(40)
    wait_for(lambda: store.store.index.behind == 0, "the index stays behind")
    assert len(store.entries()) == 120


def test_what_a_kill_left_of_the_index_is_gone_on_with(store, slots, monkeypatch):
    store.send(50)
    store.check()
    store.store.index.checkpoint()
    store.send(60)
    store.check()
    store.reopen(clean=False)
    saved = IndexPositionFile(store.store.paths, store.disk).load()
    assert saved is not None
    store.check()
    assert len(store.entries()) == len(set(store.entries())) == 330


def test_a_stop_before_slots_were_made_anew_forgets_nothing(store):
    store.send(3)
    store.check()
    store.store.index.checkpoint()
    store.store.index._hold_slots()  # from here on the slots in the file are older than its entries
    store.send(20)
    store.check()
    index = store.store.index
    [file] = index.files
    file.write_header()
    position = IndexPosition([(file.name, file.count, file.end_offset)], index.position, False)
    IndexPositionFile(store.store.paths, store.disk).save(position)
    store.die()
    for _ in range(2):  # the thread has not started yet
        store.open()
        store.stop()
    store.open()
    store.check()
    store.send(5)
    store.check()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("gone", [slice(None), slice(0, 1), slice(2, 3), slice(-1, None)])
def test_deleted_files_are_made_anew(store, clean, gone):
    store.send(150)
    store.check()
    store.stop() if clean else store.die()
    for path in store.paths[gone]:
        path.unlink()
    store.open()
    store.check()
    assert len(set(store.entries())) == 450


@pytest.mark.parametrize("own", [True, False])
def test_without_our_own_note_the_headers_count(store, own):
    store.send(120)
    store.check()
    store.stop()
    before = [path.read_bytes() for path in store.paths]
    path = store.directory / "rocketbox" / NAME
    if own:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-5] + b"99999")
    store.open()
    store.check()
    assert [path.read_bytes() for path in store.paths] == before
    store.send(5)
    store.check()
    assert len(store.entries()) == len(set(store.entries()))


def test_a_note_that_is_not_true_any_more_is_not_believed(store):
    """Happens when Apache has gone on writing here: the files hold more than the note says."""
    store.send(50)
    store.check()
    store.stop()
    note = (store.directory / "rocketbox" / NAME).read_bytes()
    store.open()
    store.send(30)
    store.check()
    store.stop()
    (store.directory / "rocketbox" / NAME).write_bytes(note)
    store.open()
    store.check()
    assert len(store.entries()) == len(set(store.entries()))


def _cut(path):
    os.truncate(path, FILE_BYTES - 100)


def _zero_header(path):
    path.write_bytes(bytes(HEADER.size) + path.read_bytes()[HEADER.size :])


def _wild_header(path):
    path.write_bytes(HEADER.pack(5, 5, 9000, 3, 7, 60) + path.read_bytes()[HEADER.size :])


def _too_many(path):
    path.write_bytes(HEADER.pack(5, 5, 0, 3, 7, ENTRIES + 1) + path.read_bytes()[HEADER.size :])


def _empty(path):
    path.write_bytes(b"")


def _directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [_cut, _zero_header, _wild_header, _too_many, _empty, _directory])
@pytest.mark.parametrize("which", [0, 2, -1])
@pytest.mark.parametrize("clean", [True, False])
def test_a_file_that_is_none_does_no_harm(store, harm, which, clean):
    store.send(130)
    store.check()
    store.stop() if clean else store.die()
    harm(store.paths[which])
    store.open()
    store.check()
    store.reopen()
    store.check()


def test_after_a_crash_of_apaches_only_what_its_checkpoint_says_is_believed(store):
    """RocketBox left no note then, and slots of the newest file may be older than its header."""
    store.send(120)
    store.check()
    store.store.index.checkpoint()
    synced_ms = store.store.files.checkpoint.index_time_ms
    assert synced_ms
    store.die()
    (store.directory / "rocketbox" / NAME).unlink()
    newest = store.paths[-1]
    raw = newest.read_bytes()
    newest.write_bytes(raw[: HEADER.size] + bytes(SLOTS * 4) + raw[HEADER.size + SLOTS * 4 :])
    store.open()
    assert store.store.files.checkpoint.index_time_ms <= synced_ms
    store.check()


def test_foreign_files_are_left_alone(store):
    store.send(5)
    store.check()
    store.stop()
    foreign = store.directory / "store" / "index" / "notes.txt"
    foreign.write_text("mine")
    store.open()
    store.check()
    assert foreign.read_text() == "mine"


def test_no_entry_is_believed_behind_the_logs_end(store, slots):
    store.send(90)
    store.check()
    store.stop()
    last = store.store.last_record_offset
    # The log loses its last three records, as a power cut may take them in async flush.
    cut = [record.physical_offset for record in _records(store)][-3]
    path = store.directory / "store" / "commitlog" / f"{0:020d}"
    with open(path, "r+b") as file:
        file.seek(cut)
        file.write(bytes(last - cut + 500))
    (store.directory / "rocketbox" / "recovery-position").unlink()
    store.open()
    store.count = 87
    store.check()
    store.send(10)
    store.check()
    assert len(store.entries()) == len(set(store.entries())) == 97 * 3


def _records(store):
    store.open()
    found = store.records("T", 0)
    store.stop()
    return found


def test_damage_in_the_log_is_stepped_over(store):
    store.send(60)
    store.check()
    offsets = [record.physical_offset for record in store.records("T", 0)]
    store.stop()
    path = store.directory / "store" / "commitlog" / f"{0:020d}"
    with open(path, "r+b") as file:
        file.seek(offsets[20])
        file.write(b"\xff" * (offsets[23] - offsets[20]))
    for path in store.paths:
        path.unlink()
    (store.directory / "rocketbox" / "recovery-position").unlink()
    store.open()
    assert store.find("all") == [n for n in range(60) if not 20 <= n < 23]


def test_large_records_are_indexed(store):
    text = encode_properties({"UNIQ_KEY": "big"}).encode()
    for size in (50_000, 10, 60_000):
        store.put("T", 0, b"7" * size, text)
        store.tick()
    query = IndexQuery(store.store.index, store.store.records)
    assert query.catch_up(60)
    assert [len(record.body) for record, _ in query.find("T", "big", 9, 0, 1 << 62).records] == [50_000, 10, 60_000]


def test_records_of_many_windows_are_indexed(store, monkeypatch):
    monkeypatch.setattr(index_service, "WINDOW_BYTES", 700)
    monkeypatch.setattr(index_service, "SLICE", 3)
    store.send(300)
    store.check()


def test_a_time_range_bounds_a_query(store):
    store.send(100)
    times = [record.store_time_ms for record in store.records("T", 0)]
    assert store.find("all", begin=times[10], end=times[20]) == list(range(10, 21))
    assert store.find("all", begin=times[90]) == list(range(90, 100))
    assert store.find("all", end=times[3]) == [0, 1, 2, 3]
    assert store.find("all", limit=3, end=times[9]) == [7, 8, 9]


@pytest.mark.parametrize("call", ["pwrite", "allocate", "fdatasync"])
def test_a_disk_that_fails_is_tried_again(tmp_path, call, slots):
    disk = FailingDisk()
    store = IndexedStore(tmp_path, disk=disk).open()
    index = store.store.index
    store.send(20)
    store.check()
    before = store.paths
    real = {name: getattr(disk, name) for name in ("pwrite", "allocate", "fdatasync")}
    fds = lambda: {file.fd for file in index.files}  # noqa: E731

    def fail(fd, *rest):
        if fd in fds() or call == "allocate":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real[call](fd, *rest)

    setattr(disk, call, fail)
    store.send(100)  # into new files
    deadline = time.monotonic() + 60
    while index.failure is None and time.monotonic() < deadline:
        if call == "fdatasync":
            try:
                index.checkpoint()
            except OSError as error:
                index._fail(error)
        time.sleep(0.02)
    assert "No space left" in index.failure
    if call == "fdatasync":
        assert before[0] not in store.paths, "a file whose sync failed is not believed again"
    assert store.store.log.broken is None
    setattr(disk, call, real[call])
    wait_for(lambda: index.failure is None and index.behind == 0, "it does not go on")
    store.check()
    assert len(store.entries()) == len(set(store.entries())) == 360
    store.reopen(clean=False)
    store.check()
    store.stop()


def test_files_go_with_their_records_but_the_last_one(store, monkeypatch):
    index = store.store.index
    with monkeypatch.context() as patch:
        patch.setattr(index, "checkpoint", lambda stopped=False: None)  # the thread makes its own at any time
        store.send(200)
        store.check()
        ends = [file.end_offset for file in index.files]
        paths = store.paths
        index.removed(ends[2])
        assert store.paths == paths, "what was not synced yet waits"
    index.checkpoint()
    index.removed(ends[2])
    assert store.paths == paths[2:]
    index.removed(1 << 40)
    assert store.paths == paths[-1:]


def test_a_log_file_that_goes_while_it_is_read_costs_its_own_keys_only(tmp_path):
    store = IndexedStore(tmp_path, segment_bytes=4096).open()
    log, index = store.store.log, store.store.index
    index.enabled = False  # as if it started late
    store.send(120)
    log.sync()
    first = log.segments[0]
    real = log.segment_at

    def segment_at(offset):
        found = real(offset)
        if log.segments[0] is first:  # the cleaner comes in between
            for segment in log.remove_before(first.end):
                segment.release()
        return found

    log.segment_at = segment_at
    index.enabled = True
    while index.work():
        pass
    log.segment_at = real
    (kept,) = [n for n in range(120) if store.find(f"u{n}") == [n]][:1]
    assert store.find("all") == list(range(kept, 120))
    assert 0 < kept < 60
    index.abandon()
    store.stop()


def test_a_clock_that_jumped_back_makes_later_names_all_the_same(store, monkeypatch):
    store.send(30)
    store.check()
    monkeypatch.setattr(store.store.index.clock, "wall_ms", lambda: 1_000_000_000_000)
    store.send(80)
    store.check()
    names = [file.name for file in store.store.index.files]
    assert len(names) > 1
    assert names == sorted(set(names))
    assert all(len(name) == 17 for name in names)


def test_a_new_files_first_entry_counts_from_the_end_of_the_last_as_apaches_does(store):
    for n in range(ENTRIES):
        if n == ENTRIES - 1:
            store.scheduler.wall_ms += 5000
        store.put("T", 0, b"x", b"UNIQ_KEY\x01u%d\x02" % n)
        store.tick()
    assert IndexQuery(store.store.index, store.store.records).catch_up(60)
    first, second = store.store.index.files
    assert (first.count, second.count) == (ENTRIES, 2)
    _, physical, seconds, _ = ENTRY.unpack(second.entries(1, 1))
    assert (seconds, physical, second.begin_ms - first.end_ms) == (5, second.begin_offset, 5000)
    query = IndexQuery(store.store.index, store.store.records)
    assert len(query.find("T", f"u{ENTRIES - 1}", 1, second.begin_ms, second.begin_ms).records) == 1


def test_apaches_checkpoint_never_passes_what_is_synced(store):
    store.send(20)
    store.check()
    store.store.index.checkpoint()
    assert store.store.files.checkpoint.index_time_ms == 0, "the file that is written to does not count"
    store.send(30)
    store.check()
    store.store.index.checkpoint()
    first = store.store.index.files[0]
    assert store.store.files.checkpoint.index_time_ms == first.end_ms
    store.stop()
    store.open()
    assert store.store.files.checkpoint.index_time_ms == store.store.index.files[-1].end_ms


def test_queries_while_it_is_built_see_whole_chains(store, slots):
    """A reader runs beside the builder: keys that were found once are found again."""
    stop, failures = threading.Event(), []

    def read():
        query, before = IndexQuery(store.store.index, store.store.records), 0
        while not stop.is_set():
            found = query.find("T", "all", 100_000, 0, 1 << 62).records
            if len(found) < before:
                failures.append((len(found), before))
            before = len(found)

    reader = threading.Thread(target=read)
    reader.start()
    store.send(400)
    wait_for(lambda: store.store.index.behind == 0, "the index stays behind")
    stop.set()
    reader.join()
    assert failures == []
    store.check()


def test_slots_leave_memory_when_nothing_comes(store, monkeypatch):
    monkeypatch.setattr(index_service, "TABLE_AT", -1)
    store.send(10)
    wait_for(lambda: store.store.index.files and store.store.index.files[-1].in_memory, "no table was made")
    monkeypatch.setattr(index_service, "IDLE_S", 0.1)
    store.send()  # its thread does not wait for as long as it would have
    wait_for(lambda: not store.store.index.files[-1].in_memory, "the table stays")
    store.check()
    store.reopen(clean=False)
    store.check()


class Stalled:
    """A step of work that indexes 400 keys at once in half a second."""

    def __init__(self, index):
        self.index = index
        self.done = False

    def __call__(self):
        if self.done:
            return False
        self.done = True
        time.sleep(0.5)
        self.index._keys_put += 400
        return True


def test_slots_stay_out_of_memory_while_few_come_all_the_time(store, monkeypatch):
    monkeypatch.setattr(index_service, "TABLE_WINDOW_S", index_service.INTERVAL_S)
    index = store.store.index
    held, keys = [], [10]
    monkeypatch.setattr(index, "_hold_slots", lambda: held.append(index._keys_put))

    def work():
        time.sleep(0.005)
        index._keys_put += keys[0]
        return True

    monkeypatch.setattr(index, "work", work)
    for _ in range(120):
        assert index._round()
    assert index._keys_put > 2 * index_service.TABLE_AT
    assert not held, "keys that keep coming are no burst"
    monkeypatch.setattr(index, "work", stalled := Stalled(index))
    assert index._round()
    assert stalled.done
    assert not held, "neither is what waited for a thread that was held up"
    monkeypatch.setattr(index, "work", work)
    keys[0] = 2000
    for _ in range(120):
        assert index._round()
    assert held


def test_an_index_of_other_sizes_is_made_anew(store):
    store.send(50)
    store.check()
    store.stop()
    store.settings = store.settings._replace(index_slots=SLOTS + 1)
    store.open()
    store.check()
    assert {path.stat().st_size for path in store.paths} == {file_bytes(SLOTS + 1, ENTRIES)}


def test_an_index_directory_that_cannot_be_read_is_one_sentence(tmp_path):
    store = IndexedStore(tmp_path).open()
    store.stop()
    index = tmp_path / "store" / "index"
    assert not index.exists() or not list(index.iterdir())
    if index.exists():
        index.rmdir()
    index.write_text("a file")
    with pytest.raises(StartError, match="index"):
        store.open()


def test_a_circle_in_a_damaged_chain_ends(store):
    store.send(30)
    store.check()
    file: IndexFile = store.store.index.files[0]
    for number in range(1, 90):
        at = 40 + SLOTS * 4 + number * 20 + 16
        os.pwrite(file.fd, number.to_bytes(4, "big"), at)
    assert isinstance(store.find("all"), list)
