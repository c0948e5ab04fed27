"""Queue entries that Apache wrote with enableConsumeQueueExt: tag codes are addresses, and tags still filter."""

import shutil

import pytest

from appliance.engine.filter.tags import tag_filter
from appliance.engine.protocol.properties import java_hash
from appliance.engine.protocol.record import decode_record
from appliance.engine.store.queues.consume_queue import ENTRY
from appliance.engine.store.queues.queue_extension import UNIT, QueueExtension, address_of, decode_unit, is_address
from appliance.engine.store.results import GetStatus
from tests.support.golden import extract_store, store_manifest
from tests.support.store import StoreUnderTest


@pytest.fixture(params=["4.9.8", "5.3.3"])
def recorded(request, tmp_path):
    """Return (open store, manifest) with Apache's own entries in the queue files."""
    manifest = store_manifest(request.param, "cqext")
    extract_store(request.param, "cqext", tmp_path)
    queues = tmp_path / "store" / "consumequeue"
    shutil.copytree(queues, tmp_path / "as-apache-left-them")
    config = manifest["config"]
    store = StoreUnderTest(tmp_path, segment_bytes=config["mappedFileSizeCommitLog"])
    store.settings = store.settings._replace(queue_file_bytes=config["mappedFileSizeConsumeQueue"])
    store.open()
    # Recovery may have rewritten them with the codes themselves.
    for path in (tmp_path / "as-apache-left-them").rglob("0*"):
        if path.is_file():
            shutil.copy(path, queues / path.relative_to(tmp_path / "as-apache-left-them"))
    yield store, manifest
    store.stop()


def found(store, queue_id, tag):
    queue = store.store.find_queue("StoreExt", queue_id)
    wanted = tag_filter(tag)
    offsets, at = [], 0
    while at < queue.max_offset:
        result = store.get(queue, at, 32, wanted)
        for physical, size in result.runs:
            data, position = store.store.log.read(physical, size), 0
            while position < size:
                record = decode_record(data, position)
                offsets.append(record.physical_offset)
                position += record.size
        at = result.next_offset
    return offsets


def test_the_entries_are_addresses(recorded):
    store, _ = recorded
    entries = store.store.queues.files.read("StoreExt", 0, 0, 5)
    assert [is_address(code) for _, _, code in ENTRY.iter_unpack(entries)] == [True] * 5


def test_a_tag_finds_its_messages_and_no_others(recorded):
    store, manifest = recorded
    messages = [m for m in manifest["messages"] if m["topic"] == "StoreExt"]
    tags = {m["tags"] for m in messages}
    assert len(tags) > 1
    for queue_id in range(4):
        for tag in tags:
            expected = [m["offset"] for m in messages if m["queueId"] == queue_id and m["tags"] == tag]
            assert found(store, queue_id, tag) == expected, (queue_id, tag)
        assert found(store, queue_id, "no such tag") == []
        assert found(store, queue_id, None) == [m["offset"] for m in messages if m["queueId"] == queue_id]


def test_what_the_pool_read_is_filtered_by_the_units_behind_it(recorded, monkeypatch):
    """If the file system cannot tell what is cached, no unit is read on the I/O thread."""
    store, manifest = recorded
    monkeypatch.setattr(store.store.disk, "reads_without_waiting", False, raising=False)
    messages = [m for m in manifest["messages"] if m["topic"] == "StoreExt" and m["queueId"] == 1]
    for tag in {m["tags"] for m in messages}:
        expected = [m["offset"] for m in messages if m["tags"] == tag]
        assert found(store, 1, tag) == expected
    assert found(store, 1, "no such tag") == []


def test_without_the_extension_everything_goes_through(recorded, tmp_path):
    """The client compares tags again."""
    store, manifest = recorded
    shutil.rmtree(tmp_path / "store" / "consumequeue_ext")
    expected = [m["offset"] for m in manifest["messages"] if m["topic"] == "StoreExt" and m["queueId"] == 2]
    assert found(store, 2, "no such tag") == expected


def test_what_is_not_cached_goes_through_and_nobody_waits(recorded, monkeypatch):
    store, _ = recorded
    queue = store.store.find_queue("StoreExt", 1)
    entries = store.store.queues.files.read("StoreExt", 1, 0, queue.max_offset)

    def read_nowait(fd, buffer, position):
        raise BlockingIOError

    monkeypatch.setattr(store.store.disk, "read_nowait", read_nowait)
    result = store.store.get(queue, 0, 32, tag_filter("no such tag"), entries)
    assert result.status == GetStatus.FOUND
    assert result.message_count == queue.max_offset


def test_a_unit_is_read_as_apache_wrote_it():
    unit = UNIT.pack(22, java_hash("TagA"), 1_700_000_000_000, 2) + b"\x05\x01"
    assert decode_unit(unit + b"more") == (22, 2598919, 1_700_000_000_000, b"\x05\x01")
    assert decode_unit(unit[:-1]) is None
    assert decode_unit(UNIT.pack(-1, 0, 0, 0)) is None
    assert decode_unit(b"") is None
    assert address_of(5) == -(1 << 63) + 5
    assert not any(map(is_address, (0, -(1 << 31), (1 << 31) - 1, 1_700_000_000_000)))
    assert is_address(-(1 << 31) - 1)


def test_a_stream_goes_over_files(tmp_path):
    """A file's end is a size of -1; the next unit lies at the next file's start."""
    from appliance.engine.disk import Disk
    from appliance.engine.store.paths import StorePaths

    directory = tmp_path / "store" / "consumequeue_ext" / "T" / "0"
    directory.mkdir(parents=True)
    for start in (0, 100):
        data = UNIT.pack(20, start + 1, 7, 0) + b"\xff\xff"
        (directory / f"{start:020d}").write_bytes(data.ljust(100, b"\0"))
    extension = QueueExtension(StorePaths(tmp_path / "store", tmp_path / "rocketbox"), Disk())
    assert [extension.read("T", 0, address_of(at)).tag_code for at in (0, 100)] == [1, 101]
    assert extension.read("T", 0, address_of(20)) is None
    assert extension.read("T", 0, address_of(40)) is None, "zeros are no unit"
    extension.close()


def test_a_deleted_topics_extension_goes_with_it(recorded, tmp_path):
    store, _ = recorded
    (tmp_path / "store" / "consumequeue_ext" / "Other" / "0").mkdir(parents=True)
    store.store.delete_topic("StoreExt")
    assert sorted(path.name for path in (tmp_path / "store" / "consumequeue_ext").iterdir()) == ["Other"]
    assert not (tmp_path / "store" / "consumequeue" / "StoreExt").exists()
