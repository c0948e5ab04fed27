"""One store that RocketBox and Apache open in turns, and everything that can be read of it over the wire.

The tests compare the servers' answers: a pull's body holds records byte for byte as they lie in the log.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import decode_record
from tests.support.engine import Peer, pull_fields

#: Small files, so that a few hundred messages fill several of each kind.
SIZES = {
    "mappedFileSizeCommitLog": 262_144,
    "mappedFileSizeConsumeQueue": 2_000,
    "maxMessageSize": 65_536,
    "maxHashSlotNum": 100,
    "maxIndexNum": 120,
    "diskMaxUsedSpaceRatio": 95,
}
BROKER_NAME = "broker-a"

Place = tuple[str, int, int]  # topic, queue id, queue offset
FOREVER = (1 << 63) - 1


class Content(NamedTuple):
    """Everything a broker serves. queues: (topic, queue id) -> (min, max) offset."""

    queues: dict[tuple[str, int], tuple[int, int]]
    records: dict[Place, bytes]


def conf(path: Path, **more: object) -> Path:
    """Write a broker.conf that RocketBox and Apache both read; return its path."""
    path.write_text("".join(f"{k}={v}\n" for k, v in {"brokerName": BROKER_NAME, **SIZES, **more}.items()))
    return path


def read_everything(broker: str, topics: dict[str, int]) -> Content:
    """Pull every message of the topics (name -> number of queues)."""
    peer = Peer(broker)
    found = Content({}, {})
    try:
        for topic, count in topics.items():
            for queue_id in range(count):
                place = {"topic": topic, "queueId": queue_id}
                low, high = (int(peer.ask(code, place).ext_fields["offset"]) for code in (31, 30))
                found.queues[topic, queue_id] = (low, high)
                for offset, record in _pulled(peer, topic, queue_id, low, high):
                    found.records[topic, queue_id, offset] = record
    finally:
        peer.close()
    return found


def _pulled(peer: Peer, topic: str, queue_id: int, low: int, high: int) -> list[tuple[int, bytes]]:
    records: list[tuple[int, bytes]] = []
    at = low
    while at < high:
        answer = peer.ask(11, pull_fields(topic, queue_id, at))
        assert answer.code == 0, f"{topic}-{queue_id} at {at} of {low} to {high}: {answer}"
        body = answer.body
        while body:
            size = int.from_bytes(body[:4], "big")
            record = decode_record(body)  # checks the CRC of the body
            assert (record.topic, record.queue_id, record.queue_offset) == (topic, queue_id, at)
            records.append((at, body[:size]))
            body = body[size:]
            at += 1
        assert at == int(answer.ext_fields["nextBeginOffset"])
    return records


def keys_of(record: bytes) -> list[tuple[str, bool]]:
    """Return (key, True if it is the unique one) for each key under which a message is indexed."""
    properties = decode_properties(decode_record(record).properties)
    keys = [(key, False) for key in properties.get("KEYS", "").split(" ") if key]
    unique = properties.get("UNIQ_KEY")
    return [*keys, (unique, True)] if unique else keys


#: Last messages of each queue of the topic written under load that are looked up by their keys.
KEYED_UNDER_LOAD = 50


def missing_keys(broker: str, content: Content) -> list[tuple[Place, str]]:
    """Return the keys by which a query (12) does not find their message, or finds it altered."""
    peer = Peer(broker)
    missing = []
    try:
        for place, record in content.records.items():
            topic, queue_id, offset = place
            if topic == "Loaded" and offset < content.queues[topic, queue_id][1] - KEYED_UNDER_LOAD:
                continue
            for key, unique in keys_of(record):
                fields = {"topic": topic, "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": FOREVER}
                answer = peer.ask(12, {**fields, "_UNIQUE_KEY_QUERY": str(unique).lower()})
                if answer.code != 0 or record not in answer.body:
                    missing.append((place, key))
    finally:
        peer.close()
    return missing


def offsets(broker: str, group: str, topics: dict[str, int]) -> dict[tuple[str, int], int]:
    """Return the offset that a group has committed in each queue, -1 if none."""
    peer = Peer(broker)
    try:
        return {
            (topic, queue_id): int(
                peer.ask(14, {"consumerGroup": group, "topic": topic, "queueId": queue_id}).ext_fields.get("offset", -1)
            )
            for topic, count in topics.items()
            for queue_id in range(count)
        }
    finally:
        peer.close()
