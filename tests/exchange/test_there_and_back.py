"""A store that Apache wrote, with messages that still wait for their time, goes to RocketBox and back to Apache.

The broker that has the store delivers the messages that are due, once; the next broker delivers the rest. RocketBox
leaves files that this version does not serve as they are, so Apache goes on with them.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import decode_record
from tests.exchange.both_ways import Content, conf, read_everything
from tests.support.apache import ApacheBroker
from tests.support.directories import shared_directory
from tests.support.effort import NIGHTLY
from tests.support.engine import Peer, send_fields
from tests.support.golden import extract_store, store_manifest
from tests.support.server import Server

pytestmark = pytest.mark.nightly

SIZES = (
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mappedFileSizeTimerLog",
    "maxHashSlotNum",
    "maxIndexNum",
)

#: Versions of the recorded store and of the server that gets it back; no server of 4.9.8 itself is published.
WAYS = [("5.3.3", "5.3.3"), *([("4.9.8", "4.9.7"), ("4.9.8", "5.3.3")] if NIGHTLY else [])]
#: Files and directories of a store that RocketBox writes.
OURS = {"commitlog", "consumequeue", "index", "checkpoint", "lock", "abort", "timerwheel", "timerlog"}
OUR_TABLES = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "consumerFilter.json",
    "delayOffset.json",
    "timercheck",
)
#: A level of ten seconds.
LATER = 3


@pytest.fixture(scope="module")
def namesrv(request: pytest.FixtureRequest) -> Iterator[str]:
    with Server(shared_directory(request, "namesrv") / "data", roles="namesrv") as server:
        yield server.namesrv


def foreign_files(store: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that RocketBox does not write, by its path."""
    found = {}
    for path in store.rglob("*"):
        place = path.relative_to(store)
        if path.is_file() and place.parts[0] not in OURS and not place.name.startswith(OUR_TABLES):
            found[str(place)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def waiting(manifest: dict) -> dict[str, set[str]]:
    """Return topic -> unique keys of the delayed messages that were not delivered when the recording ended."""
    delivered = {m["uniqKey"] for m in manifest["messages"] if m["topic"] == "StoreDelay"}
    scheduled = {
        m["uniqKey"]
        for m in manifest["messages"]
        if m["topic"] == "SCHEDULE_TOPIC_XXXX" and m["properties"]["REAL_TOPIC"] == "StoreDelay"
    }
    assert len(scheduled - delivered) == 3
    return {"StoreDelay": scheduled - delivered}


def unique_keys(content: Content, topic: str) -> set[str]:
    return {
        decode_properties(decode_record(record).properties)["UNIQ_KEY"]
        for (name, _, _), record in content.records.items()
        if name == topic
    }


def send_delayed(broker: str, key: str) -> None:
    peer = Peer(broker)
    fields = send_fields("StoreDelay", 0, properties=f"DELAY\x01{LATER}\x02UNIQ_KEY\x01{key}\x02TAGS\x01late\x02")
    assert peer.ask(310, fields, key.encode()).code == 0
    peer.close()


def read_when_delivered(broker: str, topics: dict[str, int], wanted: set[str]) -> Content:
    """Wait until the messages with these keys have come; return everything that the broker serves."""
    deadline = time.monotonic() + 60
    while True:
        served = read_everything(broker, topics)
        if wanted <= unique_keys(served, "StoreDelay"):
            return served
        assert time.monotonic() < deadline, f"still waiting: {wanted - unique_keys(served, 'StoreDelay')}"
        time.sleep(0.2)


def copies(content: Content) -> dict[str, int]:
    """Return unique key -> number of deliveries of each delayed message."""
    return dict(
        Counter(
            decode_properties(decode_record(record).properties)["UNIQ_KEY"]
            for (topic, _, _), record in content.records.items()
            if topic == "StoreDelay"
        )
    )


def without(content: Content, key: str) -> dict:
    """Return the records without the one that has this key."""
    return {
        place: record
        for place, record in content.records.items()
        if decode_properties(decode_record(record).properties).get("UNIQ_KEY") != key
    }


@pytest.mark.parametrize(("version", "server"), WAYS, ids=["-".join(way) for way in WAYS])
def test_what_waits_in_a_store_is_delivered_once_by_who_has_it(
    tmp_path: Path, namesrv: str, version: str, server: str
) -> None:
    manifest = store_manifest(version, "mixed")
    extract_store(version, "mixed", tmp_path)
    store = tmp_path / "store"
    sizes = {name: manifest["config"][name] for name in SIZES if name in manifest["config"]}
    where = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog", **sizes, "maxMessageSize": 65_000}
    topics = dict.fromkeys(("StoreNormal", "StoreDelay"), 4)
    wanted = waiting(manifest)["StoreDelay"]
    foreign = foreign_files(store)
    assert foreign
    ours = Server(tmp_path / "data", "-c", str(conf(tmp_path / "broker.conf", **where)), log_file_mib=None)
    ours.start()
    peer = Peer(ours.broker)
    for number in range(20):
        fields = send_fields("StoreNormal", number % 4, properties=f"UNIQ_KEY\x01OURS{number}\x02")
        assert peer.ask(310, fields, b"ours %d" % number).code == 0
    peer.close()
    read_when_delivered(ours.broker, topics, wanted)
    send_delayed(ours.broker, "OURSLATE")
    written = read_everything(ours.broker, topics)
    assert "OURSLATE" not in unique_keys(written, "StoreDelay")
    ours.stop()
    assert foreign_files(store) == foreign

    apache = ApacheBroker(server, namesrv, scratch=tmp_path, heap="256m", config=where)
    with apache:
        served = read_when_delivered(apache.address, topics, {"OURSLATE"})
        assert copies(served) == copies(written) | {"OURSLATE": 1}
        assert without(served, "OURSLATE") == written.records
        send_delayed(apache.address, "THEIRSLATE")
        apache.stop(timeout_s=60)  # it saves its progress every ten seconds, and when it stops
    with ours:
        found = read_when_delivered(ours.broker, topics, {"THEIRSLATE"})
        progress = (store / "config" / "delayOffset.json").read_text()
        assert copies(found) == copies(served) | {"THEIRSLATE": 1}, progress
        assert without(found, "THEIRSLATE") == served.records
