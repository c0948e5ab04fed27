"""Stores that Apache 4.9.8 and 5.3.3 wrote: everything in them is served, and new messages are appended there."""

import hashlib

import pytest

from appliance.engine.protocol.properties import java_hash
from appliance.engine.store.queues.consume_queue import ENTRY
from tests.support.golden import extract_store, store_manifest, store_names
from tests.support.store import StoreUnderTest

STORES = store_names()
#: Apache's default `messageDelayLevel`, levels 1 and 16 of which the recordings use.
DELAY_MS = [1000, 5000, 10_000, 30_000, *(minutes * 60_000 for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30))]
DELAY_MS += [3_600_000, 7_200_000]


def golden_store(directory, manifest):
    config = manifest["config"]
    store = StoreUnderTest(directory, segment_bytes=config["mappedFileSizeCommitLog"])
    store.settings = store.settings._replace(
        queue_file_bytes=config["mappedFileSizeConsumeQueue"], delay_levels_ms=DELAY_MS
    )
    return store


def host(pair):
    address, port = pair
    if ":" in address:
        parts = address.split(":")
        if "" in parts:
            at = parts.index("")
            parts = [p for p in parts if p]
            parts[at:at] = ["0"] * (8 - len(parts))
        address = "[" + ":".join(part.zfill(4) for part in parts) + "]"
    return f"{address}:{port}"


def queue_files(directory):
    return {path: path.read_bytes() for path in (directory / "store" / "consumequeue").rglob("0*") if path.is_file()}


def told(record):
    """Return a record with the names of a manifest."""
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "offset": record.physical_offset,
        "size": record.size,
        "bornTimestamp": record.born_time_ms,
        "storeTimestamp": record.store_time_ms,
        "bornHost": host(record.born_host),
        "storeHost": host(record.store_host),
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bodyCrc": record.body_crc,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "propertiesText": record.properties,
        "bodyLength": len(record.body),
        "bodySha256": hashlib.sha256(record.body).hexdigest(),
    }


def check(store, manifest, skip=()):
    """Check every queue's bounds, every message field by field, every entry's tag code."""
    served = {}
    tags_at = {message["offset"]: message["tags"] for message in manifest["messages"]}
    # Apache's own result for a killed or torn store, whose files differ until then.
    expected_queues = manifest.get("afterApacheRecovery", manifest)["queues"]
    for topic, queues in expected_queues.items():
        for queue_id, bounds in queues.items():
            key = (topic, int(queue_id))
            queue = store.store.find_queue(*key)
            if key not in skip:
                assert (queue.min_offset, queue.max_offset) == (bounds["min"], bounds["max"]), key
            for record in store.records(*key):
                served[record.physical_offset] = told(record)
            entries = store.store.queues.read_entries(queue, 0, queue.max_offset)
            for offset, (physical, size, code) in enumerate(ENTRY.iter_unpack(entries)):
                expected = served[physical]
                assert (expected["queueOffset"], expected["size"]) == (offset, size)
                tags = tags_at.get(physical)
                if topic != "SCHEDULE_TOPIC_XXXX":
                    assert code == (java_hash(tags) if tags else 0), (key, offset)
    for message in manifest["messages"]:
        expected = {name: message[name] for name in told_fields(message)}
        assert served[message["offset"]] == expected
    assert len(served) >= len(manifest["messages"])


def told_fields(message):
    return [name for name in message if name not in ("msgId", "uniqKey", "keys", "tags", "properties")]


@pytest.mark.parametrize(("version", "name"), STORES, ids=["-".join(store) for store in STORES])
def test_a_recorded_store_is_served_whole_and_goes_on(tmp_path, version, name):
    manifest = store_manifest(version, name)
    extract_store(version, name, tmp_path)
    assert manifest["messages"]
    entries = queue_files(tmp_path)
    store = golden_store(tmp_path, manifest).open()
    if manifest["cleanShutdown"] and name != "cqext":  # its entries point into the extension, RocketBox's do not
        assert queue_files(tmp_path) == entries, "our entries are Apache's, byte for byte"
    assert store.store.log.written == manifest["commitLog"]["maxOffset"]
    assert store.store.files.left_clean is manifest["cleanShutdown"]
    check(store, manifest)

    topic = next(iter(manifest["queues"]))
    before = len(store.bodies(topic, 0))
    store.write(topic, 0, b"x" * 900, b"y")
    store.write("Fresh", 3, *[b"%d" % i for i in range(400)])
    assert store.bodies(topic, 0)[before:] == [b"x" * 900, b"y"]
    for clean in (True, False):
        store.stop() if clean else store.die()
        store = golden_store(tmp_path, manifest).open()
        check(store, manifest, skip={(topic, 0)})
        assert store.bodies(topic, 0)[before:] == [b"x" * 900, b"y"]
        assert store.bodies("Fresh", 3) == [b"%d" % i for i in range(400)]
    store.stop()


def test_all_recorded_stores_are_here():
    assert len(STORES) == 10
