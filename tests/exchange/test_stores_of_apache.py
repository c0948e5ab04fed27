"""Every store that Apache 4.9.8 and 5.3.3 wrote, read over the wire: messages, keys, offsets, topics and groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.engine import fastjson
from appliance.engine.broker.group_config import SubscriptionGroupConfig
from appliance.engine.broker.topic_config import TopicConfig
from appliance.engine.protocol.record import decode_record
from tests.engine.store.test_golden_stores import told, told_fields
from tests.exchange.both_ways import FOREVER
from tests.support.engine import Peer, records, start_engine
from tests.support.golden import extract_store, store_manifest, store_names

STORES = store_names()
#: Messages of a long store that are also looked up by each of their keys.
KEYED = 300
#: No message is old enough to expire: an old open transaction would be set aside, which writes op messages.
AGES_HOURS = 1_000_000


def config_file(directory: Path, name: str) -> dict[str, Any]:
    path = directory / "store" / "config" / name
    return fastjson.loads(path.read_bytes()) if path.exists() else {}


def complete(written: dict[str, Any], defaults: object) -> dict[str, Any]:
    """Return an entry with the fields that a writer of 4.9 lacks filled in from the defaults."""
    return msgspec.to_builtins(defaults) | {key: value for key, value in written.items() if value is not None}


@pytest.mark.parametrize(("version", "name"), STORES, ids=["-".join(store) for store in STORES])
def test_everything_is_answered_over_the_wire(tmp_path: Path, version: str, name: str) -> None:
    manifest = store_manifest(version, name)
    extract_store(version, name, tmp_path)
    offsets = config_file(tmp_path, "consumerOffset.json").get("offsetTable", {})
    topics = config_file(tmp_path, "topics.json").get("topicConfigTable", {})
    groups = config_file(tmp_path, "subscriptionGroup.json").get("subscriptionGroupTable", {})
    sizes = manifest["config"]
    engine = start_engine(
        tmp_path,
        store={
            "mapped_file_size_commit_log": sizes["mappedFileSizeCommitLog"],
            "mapped_file_size_consume_queue": sizes["mappedFileSizeConsumeQueue"],
            "max_hash_slot_num": sizes["maxHashSlotNum"],
            "max_index_num": sizes["maxIndexNum"],
            "max_message_size": sizes["maxMessageSize"],
            "file_reserved_time_hours": AGES_HOURS,
        },
    )
    try:
        peer = Peer(engine.broker_address)
        assert_messages(peer, manifest)
        assert_keys(peer, manifest)
        for key, queues in offsets.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in queues.items():
                asked = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
                assert peer.ask(14, asked).ext_fields["offset"] == str(offset), key
        for topic, written in topics.items():
            found = fastjson.loads(peer.ask(351, {"topic": topic}).body)
            assert found == complete(written, TopicConfig())
        for group, written in groups.items():
            found = fastjson.loads(peer.ask(352, {"group": group}).body)
            assert found == complete(written, SubscriptionGroupConfig())
        assert topics or not manifest["cleanShutdown"]  # a killed broker had not yet written them
        peer.close()
    finally:
        engine.stop()


def assert_messages(peer: Peer, manifest: dict[str, Any]) -> None:
    """Assert each message by its physical offset (33), field by field, and each queue's ends (31, 30)."""
    for message in manifest["messages"]:
        record = decode_record(peer.ask(33, {"offset": message["offset"]}).body)
        assert {key: value for key, value in told(record).items() if key in message} == {
            key: message[key] for key in told_fields(message)
        }
    for topic, queues in manifest.get("afterApacheRecovery", manifest)["queues"].items():
        for queue_id, ends in queues.items():
            place = {"topic": topic, "queueId": queue_id}
            assert peer.ask(31, place).ext_fields["offset"] == str(ends["min"]), place
            assert peer.ask(30, place).ext_fields["offset"] == str(ends["max"]), place


def assert_keys(peer: Peer, manifest: dict[str, Any]) -> None:
    """Assert that the recorded queries give the same messages, and that each message is found by its keys (12)."""
    end = manifest["commitLog"]["maxOffset"]
    for entry, physical in manifest["index"].items():
        topic, _, key = entry.partition("#")
        assert found_by(peer, topic, key) == {offset for offset in physical if offset < end}, entry
    for message in manifest["messages"][:KEYED]:
        for key in [*(message["keys"] or "").split(), message["uniqKey"]]:
            if key:
                assert message["offset"] in found_by(peer, message["topic"], key), (message["offset"], key)


def found_by(peer: Peer, topic: str, key: str) -> set[int]:
    asked = {"topic": topic, "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": FOREVER}
    answer = peer.ask(12, asked)
    return {record.physical_offset for record in records(answer.body)} if answer.code == 0 else set()
