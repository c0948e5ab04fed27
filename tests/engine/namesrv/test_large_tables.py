"""Tables of tens of thousands of topics, and readers beside them."""

from __future__ import annotations

import json
import sys
import threading

import pytest

from appliance.engine.namesrv import processor
from appliance.engine.protocol.codes import RequestCode as Code
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.protocol.data_version import KNOWS_TABLES, SAME_TABLE, DataVersion, SameTable
from tests.support.fakes import FakeConnection

from .conftest import Desk, register_body

TOPICS = ["TBW102", "DefaultCluster", "broker-a", "TopicA"]


def _large(count: int = 20_000) -> list[str]:
    return [f"Topic-{n:05d}" for n in range(count)]


def test_twenty_thousand_topics_register_route_and_go(desk: Desk) -> None:
    peers = [FakeConnection(), FakeConnection()]
    for n, peer in enumerate(peers):
        assert desk.register(_large(), name=f"broker-{n}", address=f"10.0.0.{n}:1", peer=peer).code == 0
    assert desk.namesrv.routes.topic_count == 20_000
    assert set(desk.perms("Topic-19999")) == {"broker-0", "broker-1"}
    assert len(desk.topics()) == 20_000
    assert desk.ask(Code.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-0").ext_fields["wipeTopicCount"] == "20000"
    for peer in peers:
        desk.hang_up(peer)
    assert desk.topics() == set()


def test_queues_of_one_shape_are_one_object_however_many_topics(desk: Desk) -> None:
    desk.register(_large(1000))
    topics = desk.namesrv.routes._topics
    assert len({id(queues[0]) for _, queues in topics.items()}) == 1
    desk.ask(Code.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert len({id(queues[0]) for _, queues in topics.items()}) == 1


def test_an_unchanged_large_table_is_not_read_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    read = processor.read_register_body

    def counted(body: bytes, version: int, compressed: bool) -> object:
        reads.append(len(body))
        return read(body, version, compressed)

    monkeypatch.setattr(processor, "read_register_body", counted)
    peer = FakeConnection()
    for _ in range(5):
        desk.register(_large(2000), peer=peer)
        desk.clock.advance(ms=30_000)
        desk.scan()
    assert len(reads) == 1
    assert len(desk.topics()) == 2000
    desk.register(_large(2000), version=(1, 2), peer=peer)
    assert len(reads) == 2
    # The same version with another length belongs to another part of the table.
    desk.register([*_large(2000), "Another"], version=(1, 2), peer=peer)
    assert "Another" in desk.topics()
    reads.clear()
    desk.register(_large(2000), version=(1, 2), peer=peer)
    # A topic deleted here comes back with the next table, so that table is read.
    desk.ask(Code.DELETE_TOPIC_IN_NAMESRV, topic="Topic-00007")
    desk.register(_large(2000), version=(1, 2), peer=peer)
    assert len(reads) == 2
    assert "Topic-00007" in desk.topics()
    # And so is the first one after the broker came back.
    desk.hang_up(peer)
    assert desk.topics() == set()
    desk.register(_large(2000), version=(1, 2))
    assert len(desk.topics()) == 2000


def test_a_table_that_is_left_out_counts_while_it_is_the_one_that_is_known(desk: Desk) -> None:
    whole = register_body(_large(2000), (7, 3))
    same = SameTable(DataVersion(7, 3), len(whole)).encode()
    names = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "DefaultCluster", "brokerId": 0}

    def again(text: str = same, **other: object) -> RemotingCommand:
        return desk.ask(Code.REGISTER_BROKER, **names | {SAME_TABLE: text} | other)

    assert again().code == 1, "it has no table yet"
    answer = desk.register(_large(2000), version=(7, 3))
    assert answer.ext_fields[KNOWS_TABLES] == "true"
    for _ in range(3):
        desk.clock.advance(ms=100_000)
        assert again().ext_fields[KNOWS_TABLES] == "true"
        desk.scan()
    assert len(desk.topics()) == 2000
    for other in (f"{len(whole)}:7:4:0", f"{len(whole) + 1}:7:3:0", "", "1:2:3", "x:7:3:0", f"{1 << 70}:7:3:0"):
        assert again(other).code == 1, other
    assert again(brokerAddr="10.0.0.2:10911").code == 1
    assert desk.register(["TopicA", "TopicB"], version=(7, 4)).ext_fields == {}
    assert again().code == 1, "an increment came in between"
    desk.register(_large(2000), version=(7, 3))
    desk.ask(Code.DELETE_TOPIC_IN_NAMESRV, topic="Topic-00007")
    assert again().code == 1, "a topic of it is gone"


def test_small_tables_are_always_read_since_two_increments_may_share_a_version(desk: Desk) -> None:
    desk.register(TOPICS, version=(1, 1))
    desk.register({"NewA": {}}, version=(1, 3))
    desk.register({"NewB": {}}, version=(1, 3))
    assert {"NewA", "NewB"} <= desk.topics()


def test_a_reader_on_another_thread_never_meets_half_a_change(desk: Desk) -> None:
    """105 reads on the I/O thread, without a lock, tables that the pool changes: every answer is consistent."""
    seen: list[int] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                body = desk.namesrv.routes.route("Topic-00010")
                if body is not None:
                    route = json.loads(body)
                    names = {broker["brokerName"] for broker in route["brokerDatas"]}
                    assert names == {queues["brokerName"] for queues in route["queueDatas"]}
                    seen.append(len(names))
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(20):
            peers = [FakeConnection() for _ in range(3)]
            for n, peer in enumerate(peers):
                desk.register(_large(50), name=f"broker-{n}", address=f"10.0.0.{n}:1", peer=peer)
            for peer in peers:
                desk.hang_up(peer)
    finally:
        stop.set()
        reader.join(60)
        sys.setswitchinterval(interval)
    assert not failures
    assert seen
