"""The key index: entries that Apache wrote are found and continued, and new files are written as Apache writes them."""

import threading

import pytest

from appliance.engine.protocol.record import MAGIC_V1, Record
from appliance.engine.store.index.index_file import IndexHeader
from appliance.engine.store.index.index_query import FIND_S, STEPS, IndexQuery
from appliance.engine.store.record_reader import StoredRecord
from tests.engine.store.test_golden_stores import golden_store
from tests.support.clock import FakeClock
from tests.support.golden import extract_store, store_manifest, store_names

STORES = store_names()
NAMES = ["-".join(store) for store in STORES]


def indexed_store(directory, manifest):
    store = golden_store(directory, manifest)
    config = manifest["config"]
    store.settings = store.settings._replace(
        index_enabled=True, index_slots=config["maxHashSlotNum"], index_entries=config["maxIndexNum"]
    )
    return store


def index_files(directory):
    return {path.name: path.read_bytes() for path in sorted((directory / "store" / "index").iterdir())}


def offsets(store, topic, key, limit=10_000):
    query = IndexQuery(store.store.index, store.store.records)
    assert query.catch_up(5)
    found = query.find(topic, key, limit, 0, 1 << 62)
    assert found.complete
    return [record.physical_offset for record, _ in found.records]


def check_manifest(store, manifest):
    end = manifest["commitLog"]["maxOffset"]
    assert manifest["index"]
    for text, expected in manifest["index"].items():
        topic, _, key = text.partition("#")
        assert offsets(store, topic, key) == [offset for offset in expected if offset < end], text


@pytest.mark.parametrize(("version", "name"), STORES, ids=NAMES)
def test_a_recorded_index_answers_as_its_manifest_says(tmp_path, version, name):
    manifest = store_manifest(version, name)
    extract_store(version, name, tmp_path)
    before = index_files(tmp_path)
    store = indexed_store(tmp_path, manifest).open()
    check_manifest(store, manifest)
    if manifest["cleanShutdown"]:
        assert index_files(tmp_path) == before, "nothing of it was written anew"
    store.stop()


@pytest.mark.parametrize(("version", "name"), STORES, ids=NAMES)
def test_an_index_made_from_the_log_is_apaches_byte_for_byte(tmp_path, version, name):
    manifest = store_manifest(version, name)
    extract_store(version, name, tmp_path)
    recorded = list(index_files(tmp_path).values())
    for path in (tmp_path / "store" / "index").iterdir():
        path.unlink()
    store = indexed_store(tmp_path, manifest).open()
    check_manifest(store, manifest)
    store.stop()
    made = list(index_files(tmp_path).values())
    if manifest["cleanShutdown"]:
        assert made == recorded
    else:  # Apache had not written all of its last file
        assert made[: len(recorded) - 1] == recorded[:-1]


class _Chain:
    """An index file whose entries all have the hash of the search: (physical offset, time), newest first."""

    begin_ms, closed, header = 0, False, IndexHeader(0, 10, 0, 10, 0, 0)

    def __init__(self, entries):
        self._entries = entries

    def chain(self, code, number, steps):
        at = number or 0
        following = at + steps
        return self._entries[at:following], following if following < len(self._entries) else 0


class _Index:
    def __init__(self, clock, entries):
        self.clock, self.files, self.lock = clock, [_Chain(entries)], threading.Lock()


class _Records:
    """Records with another key of the same hash; each look takes a millisecond of the clock."""

    def __init__(self, clock):
        self.clock, self.looked = clock, []

    def get(self, physical):
        self.looked.append(physical)
        self.clock.advance(ms=1)
        return StoredRecord(a_record(physical), b"") if physical >= 0 else None


def a_record(physical, keys="Aa"):
    return Record(0, MAGIC_V1, 0, 0, 0, 0, physical, 0, 0, None, 1, None, 0, 0, b"", "T", f"KEYS\x01{keys}\x02")


def test_a_record_with_many_words_of_the_same_hash_is_looked_at_once():
    clock = FakeClock()
    records = _Records(clock)
    found = IndexQuery(_Index(clock, [(7, 1)] * 10_000), records).find("T", "BB", 32, 0, 1 << 62)
    assert (found.records, found.complete, records.looked) == ([], True, [7])


def test_a_question_about_a_hash_that_very_many_records_have_ends_with_what_was_found():
    clock = FakeClock()
    records = _Records(clock)
    found = IndexQuery(_Index(clock, [(n, 1) for n in range(100_000)]), records).find("T", "BB", 32, 0, 1 << 62)
    assert (found.records, found.complete) == ([], False)
    assert len(records.looked) <= FIND_S * 1000 + 2 * STEPS
