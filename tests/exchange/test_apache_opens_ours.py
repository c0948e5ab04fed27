"""RocketBox writes a store, Apache goes on with it, RocketBox takes it back: nothing is lost, altered or moved."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.engine.protocol.record import decode_record
from tests.clients.agents import Agent, PushConsumer, start_java
from tests.clients.conftest import wait_for_clients
from tests.clients.messages import Message, assert_each_once, plain, rich
from tests.exchange.both_ways import (
    BROKER_NAME,
    SIZES,
    Content,
    Place,
    conf,
    keys_of,
    missing_keys,
    offsets,
    read_everything,
)
from tests.support.apache import ApacheBroker
from tests.support.directories import shared_directory
from tests.support.server import Server

TOPICS = {"Rich": 4, "Long": 1, "Loaded": 4, "%RETRY%G_Half": 1, "%RETRY%G_New": 1}
MAY_COME_AGAIN = 10
COMPRESSED = 1  # with zlib, the client's default
#: Version, how RocketBox ends, how Apache ends. SIGTERM takes 5.3.3 some 20 s of fixed pauses.
ENDS = ("kill", "stop")
STOPS = [
    pytest.param(*one, id=" ".join(one), marks=() if one[1:] == ("kill", "kill") else pytest.mark.nightly)
    for one in itertools.product(("4.9.7", "5.3.3"), ENDS, ENDS)
]


@pytest.fixture(scope="module")
def agent(request: pytest.FixtureRequest) -> Iterator[Agent]:
    """The official client that writes and reads on all sides."""
    running = start_java("5.3.3", "json", shared_directory(request, "agent"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def namesrv(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name server for Apache's brokers."""
    with Server(shared_directory(request, "namesrv") / "data", roles="namesrv") as server:
        yield server.namesrv


def different(count: int, seed: int) -> list[Message]:
    """Return `rich` messages with different bodies, also from those of other seeds."""
    return [
        replace(message, body=message.body + f" {seed}.{number}".encode())
        for number, message in enumerate(rich(count, seed))
    ]


def fill(agent: Agent, server: Server) -> list[Message]:
    """Send messages of every kind to two topics; group G_Half consumes all of Rich. Return the messages in Rich."""
    for topic, queues in (("Rich", 4), ("Long", 1), ("Loaded", 4)):
        agent.do("admin.create_topic", namesrv=server.namesrv, broker=server.broker, topic=topic, queues=queues)
    single, batch = different(60, 0), different(25, 1)
    with (
        agent.producer(server.namesrv, group="G_Producer") as producer,
        agent.push(server.namesrv, "Rich", "G_Half") as consumer,
    ):
        producer.send("Rich", single)
        producer.send("Rich", batch, how="batch")
        producer.send("Long", plain(230, size_bytes=2000))
        consumer.wait_for(len(single) + len(batch))
    # A client that stops does not commit the last messages of its listener: the next member receives them again.
    while sum(offsets(server.broker, "G_Half", {"Rich": 4}).values()) < len(single) + len(batch):
        with agent.push(server.namesrv, "Rich", "G_Half") as consumer:
            consumer.wait_for(1)
            time.sleep(0.2)
    return single + batch


def kill_under_load(agent: Agent, server: Server, acknowledged: Path) -> dict[Place, str]:
    """Kill the server while producers send; return (topic, queue, offset) -> SHA-256 of each acknowledged body."""
    agent.do(
        "load.start", name="load", namesrv=server.namesrv, group="G_Load", topic="Loaded", file=str(acknowledged),
        threads=2, retries=0, timeout_ms=1000, seed=1,
    )  # fmt: skip
    agent.do("load.progress", name="load", more=300, timeout_ms=15_000)
    server.kill()
    agent.do("load.stop", name="load")
    whole_lines, _, _ = acknowledged.read_text().rpartition("\n")
    found = {}
    for line in whole_lines.splitlines():
        _, queue_id, offset, _, sha256 = line.split("\t")
        found["Loaded", int(queue_id), int(offset)] = sha256
    return found


def assert_acknowledged(acknowledged: dict[Place, str], content: Content) -> None:
    for place, sha256 in acknowledged.items():
        assert place in content.records, f"{place} was acknowledged and is gone"
        record = decode_record(content.records[place])
        body = zlib.decompress(record.body) if record.sys_flag & COMPRESSED else record.body
        assert hashlib.sha256(body).hexdigest() == sha256, place


def more(agent: Agent, namesrv: str, seed: int, known: list[Message], killed: bool) -> list[Message]:
    """Send further messages and return them. G_Half receives these, a new group all messages, another all of one tag.

    killed: the broker before was killed, so the last seconds of G_Half's progress may be lost and messages come again.
    """
    fresh = different(20, seed)
    wanted = {message.sha256 for message in fresh}
    with agent.producer(namesrv, group="G_Producer") as producer:
        producer.send("Rich", fresh)
        producer.send("Long", plain(30, seed=seed, size_bytes=2000))
    apples = [message for message in [*known, *fresh] if message.tags == "apples"]
    with (
        agent.push(namesrv, "Rich", "G_Half") as half,
        agent.push(namesrv, "Rich", f"G_New{seed}") as new,
        agent.push(namesrv, "Rich", f"G_Tag{seed}", expression="apples") as tagged,
    ):
        wait_for_clients(lambda: wanted <= {m["body_sha256"] for m in half.received}, "the new messages came")
        new.wait_for(len(known) + len(fresh), timeout_s=90)
        tagged.wait_for(len(apples), timeout_s=90)
        with ThreadPoolExecutor() as pool:  # each may take 3 s
            list(pool.map(PushConsumer.stop, (half, new, tagged)))
    if not killed:  # plus the few that an earlier member had not committed when it stopped
        assert len(half.received) <= len(fresh) + MAY_COME_AGAIN
    assert_each_once(known + fresh, new.received)
    assert_each_once(apples, tagged.received)
    return fresh


def assert_kept(before: Content, after: Content) -> None:
    """Assert that every message is where it was, byte for byte; queues begin where they began and may have grown."""
    for place, record in before.records.items():
        assert after.records.get(place) == record, f"{place} is not what it was"
    for queue, (low, high) in before.queues.items():
        assert after.queues[queue][0] == low
        assert after.queues[queue][1] >= high


def configuration(store: Path, name: str, table: str) -> dict[str, object]:
    """Return an entry of one of Apache's JSON files."""
    return dict(json.loads((store / "config" / name).read_text())[table])


@pytest.mark.parametrize(("version", "our_end", "their_end"), STOPS)
def test_apache_goes_on_with_our_store_and_we_with_theirs(
    agent: Agent, namesrv: str, tmp_path: Path, version: str, our_end: str, their_end: str
) -> None:
    store = tmp_path / "store"
    where = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    ours = Server(tmp_path / "data", "-c", str(conf(tmp_path / "broker.conf", **where)), log_file_mib=None)
    ours.start()
    known = fill(agent, ours)
    written = read_everything(ours.broker, TOPICS)
    assert len(written.records) == len(known) + 230
    assert missing_keys(ours.broker, written) == []
    progress = offsets(ours.broker, "G_Half", {"Rich": 4})
    assert sum(progress.values()) == len(known)
    acknowledged: dict[Place, str] = {}
    if our_end == "stop":
        ours.stop()
    else:
        acknowledged = kill_under_load(agent, ours, tmp_path / "acknowledged")
        assert len(acknowledged) >= 300
    assert len(list((store / "commitlog").iterdir())) >= 3
    assert len(list((store / "consumequeue" / "Long" / "0").iterdir())) >= 2
    topics = configuration(store, "topics.json", "topicConfigTable")
    groups = configuration(store, "subscriptionGroup.json", "subscriptionGroupTable")

    apache = ApacheBroker(
        version,
        namesrv,
        scratch=tmp_path,
        heap="256m",
        broker_name=BROKER_NAME,
        config={**SIZES, **where},
    )
    with apache:
        served = read_everything(apache.address, TOPICS)
        assert_kept(written, served)
        if our_end == "stop":
            assert served.queues == written.queues
        assert_acknowledged(acknowledged, served)
        if our_end == "stop":  # after a crash Apache drops the newest index file, its own as well
            assert missing_keys(apache.address, served) == []
        if our_end == "stop":  # of a killed broker the last 5 s of progress may be gone
            assert offsets(apache.address, "G_Half", {"Rich": 4}) == progress
        fresh = more(agent, namesrv, 7, known, our_end == "kill")
        grown = read_everything(apache.address, TOPICS)
        assert_kept(served, grown)
        assert len(grown.records) == len(served.records) + 50
        their_progress = offsets(apache.address, "G_Half", {"Rich": 4})
        apache.stop(timeout_s=60) if their_end == "stop" else apache.kill()

    ours.start()
    try:
        back = read_everything(ours.broker, TOPICS)
        assert back.records == grown.records
        assert back.queues == grown.queues
        assert missing_keys(ours.broker, back) == []
        if their_end == "stop":
            assert offsets(ours.broker, "G_Half", {"Rich": 4}) == their_progress
        more(agent, ours.namesrv, 8, known + fresh, their_end == "kill")
        assert_kept(back, read_everything(ours.broker, TOPICS))
    finally:
        ours.stop()
    for name, table, was in (
        ("topics.json", "topicConfigTable", topics),
        ("subscriptionGroup.json", "subscriptionGroupTable", groups),
    ):
        now = configuration(store, name, table)
        assert {key: now.get(key) for key in was} == was, name
    assert sum(len(keys_of(record)) for record in back.records.values()) > 300
