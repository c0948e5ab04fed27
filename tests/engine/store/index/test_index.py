"""The key index: what Apache wrote is found and gone on with, what we write is what Apache writes."""

import pytest

from appliance.engine.store.index.index_query import IndexQuery
from tests.engine.store.test_golden_stores import golden_store
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
