"""RocketBox writes a store, Apache goes on with it, RocketBox takes it back: nothing is lost, altered or moved."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clients.agents import Agent, start_java
from tests.clients.conftest import eventually
from tests.clients.messages import Message, assert_each_once, plain, rich
from tests.exchange.both_ways import (
    BROKER_NAME,
    SIZES,
    Content,
    conf,
    keys_of,
    missing_keys,
    offsets,
    read_everything,
)
from tests.support.apache import ApacheBroker
from tests.support.server import Server

TORTURE = os.environ.get("ROCKETBOX_TORTURE") == "1"

TOPICS = {"Rich": 4, "Long": 1, "%RETRY%G_Half": 1, "%RETRY%G_New": 1}
#: What Apache's brokers are left with: SIGTERM takes 5.3.3 some 15 s of fixed pauses.
STOPS = [
    pytest.param("4.9.7", "stop", "stop", id="4.9.7 after a clean stop, stopped"),
    pytest.param("4.9.7", "kill", "kill", id="4.9.7 after SIGKILL, killed"),
    pytest.param("5.3.3", "stop", "kill", id="5.3.3 after a clean stop, killed"),
    pytest.param("5.3.3", "kill", "stop", id="5.3.3 after SIGKILL, stopped"),
]
if TORTURE:
    STOPS += [
        pytest.param(version, ours, theirs, id=f"{version} {ours} {theirs}")
        for version, ours, theirs in (
            ("4.9.7", "stop", "kill"),
            ("4.9.7", "kill", "stop"),
            ("5.3.3", "stop", "stop"),
            ("5.3.3", "kill", "kill"),
        )
    ]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """The official client that writes and reads on all sides."""
    running = start_java("5.3.3", "json", tmp_path_factory.mktemp("agent"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server for Apache's brokers."""
    with Server(tmp_path_factory.mktemp("namesrv") / "data", roles="namesrv") as server:
        yield server.namesrv


def different(count: int, seed: int) -> list[Message]:
    """`rich` messages no two of which have the same body, whatever their seeds."""
    return [
        replace(message, body=message.body + f" {seed}.{number}".encode())
        for number, message in enumerate(rich(count, seed))
    ]


def fill(agent: Agent, server: Server) -> list[Message]:
    """Messages of every kind in both topics; group G_Half has consumed all there was of Rich. What is in Rich."""
    for topic, queues in (("Rich", 4), ("Long", 1)):
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
    return single + batch


def more(agent: Agent, namesrv: str, seed: int, known: list[Message], killed: bool) -> list[Message]:
    """Further messages. G_Half gets these, a new group gets all there are, another all of one tag.

    killed: the broker before was; the last seconds of G_Half's progress may be gone, and messages come to it again.
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
        eventually(lambda: wanted <= {m["body_sha256"] for m in half.received}, "the new messages came", timeout_s=30)
        new.wait_for(len(known) + len(fresh), timeout_s=30)
        tagged.wait_for(len(apples), timeout_s=30)
        for consumer in (half, new, tagged):
            consumer.stop()
    if not killed:
        assert_each_once(fresh, half.received)
    assert_each_once(known + fresh, new.received)
    assert_each_once(apples, tagged.received)
    return fresh


def assert_kept(before: Content, after: Content) -> None:
    """Every message is where it was, byte for byte; queues begin where they began and may have grown."""
    for place, record in before.records.items():
        assert after.records.get(place) == record, f"{place} is not what it was"
    for queue, (low, high) in before.queues.items():
        assert after.queues[queue][0] == low
        assert after.queues[queue][1] >= high


def configuration(store: Path, name: str, table: str) -> dict[str, object]:
    """An entry of one of Apache's JSON files."""
    return dict(json.loads((store / "config" / name).read_text())[table])


@pytest.mark.parametrize(("version", "our_end", "their_end"), STOPS)
def test_apache_goes_on_with_our_store_and_we_with_theirs(
    agent: Agent, namesrv: str, tmp_path: Path, version: str, our_end: str, their_end: str
) -> None:
    store = tmp_path / "store"
    where = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    ours = Server(tmp_path / "data", "-c", str(conf(tmp_path / "broker.conf", **where)))
    ours.start()
    known = fill(agent, ours)
    written = read_everything(ours.broker, TOPICS)
    assert len(written.records) == len(known) + 230
    assert missing_keys(ours.broker, written) == []
    progress = offsets(ours.broker, "G_Half", {"Rich": 4})
    assert sum(progress.values()) == len(known)
    ours.stop() if our_end == "stop" else ours.kill()
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
        assert served.queues == written.queues
        assert missing_keys(apache.address, served) == []
        if our_end == "stop":  # of a killed broker the last 5 s of progress may be gone
            assert offsets(apache.address, "G_Half", {"Rich": 4}) == progress
        fresh = more(agent, namesrv, 7, known, our_end == "kill")
        grown = read_everything(apache.address, TOPICS)
        assert_kept(written, grown)
        assert len(grown.records) == len(written.records) + 50
        their_progress = offsets(apache.address, "G_Half", {"Rich": 4})
        apache.stop() if their_end == "stop" else apache.kill()

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
