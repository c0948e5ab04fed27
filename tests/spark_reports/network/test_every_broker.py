"""RocketBox, Apache 4.9 and Apache 5.3: each sent message is read once, in order, and reading leaves no trace.

4.9.8, whose clients are tested elsewhere, has no server to start: its jars were never published. 4.9.7 stands for it.
"""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest

from appliance.engine.protocol.codes import RequestCode
from spark_reports.source.network.stream import NetworkStreamReader
from spark_reports.source.options import parse
from tests.clients.agents import Agent
from tests.clients.messages import Message, rich
from tests.spark_reports.network.reading import offsets, read, reader
from tests.spark_reports.network.servers import Target
from tests.support.apache import ask
from tests.support.peer import Peer, send_fields
from tests.support.waiting import wait_for

_NAMES = itertools.count(1)
#: Long enough to be compressed: clients compress from 4,096 bytes on.
LONG = b"the same again and again " * 800


@pytest.fixture
def topic(target: Target) -> str:
    """A new topic with four queues."""
    name = f"Read_{next(_NAMES)}"
    fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    more = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    header, _ = ask(target.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields | more)
    assert header["code"] == 0, header
    wait_for(lambda: ask(target.namesrv, 105, {"topic": name})[0]["code"] == 0, f"{name} is routed")
    return name


def put(target: Target, topic: str, count: int, queues: int = 4, size: int = 10) -> None:
    """Send numbered messages to the queues in turn; return when all are in the queues, where Apache puts them after its
    answer."""
    peer = Peer(target.broker)

    def stored() -> int:
        fields = [{"topic": topic, "queueId": queue} for queue in range(queues)]
        return sum(int(peer.ask(RequestCode.GET_MAX_OFFSET, one).ext_fields["offset"]) for one in fields)

    try:
        before = stored()
        for number in range(count):
            answer = peer.ask(310, send_fields(topic, number % queues), str(number).encode().ljust(size))
            assert answer.code == 0, answer
        wait_for(lambda: stored() == before + count, "all are in the queues")
    finally:
        peer.close()


def by_body(table: Any) -> dict[bytes, dict[str, Any]]:
    rows = table.to_pylist()
    found = {row["body"]: row for row in rows}
    assert len(found) == len(rows), "bodies must differ"
    return found


def test_what_the_java_client_sent_in_every_way_is_read(target: Target, java: Agent, topic: str) -> None:
    plain, batch = rich(20, seed=1), rich(32, seed=2)
    compressed = [Message(LONG + b"1", tags="long"), Message(LONG + b"2", keys=("k",))]
    delayed = [Message(b"later", tags="late", delay=1)]
    committed = Message(b"committed", properties={"local": "commit"})
    back = Message(b"rolled back", properties={"local": "rollback"})
    with java.producer(target.namesrv, group="plain") as producer:
        acks = producer.send(topic, plain)
        producer.send(topic, batch, how="batch")
        producer.send(topic, compressed)
        producer.send(topic, delayed)
    with java.producer(target.namesrv, group="transactions", transactional=True) as producer:
        producer.send(topic, [committed, back], how="transaction")
    expected = [*plain, *batch, *compressed, *delayed, committed]
    wait_for(lambda: read(target.namesrv, topic=topic).num_rows >= len(expected), "all is delivered", every=0.5)
    table = read(target.namesrv, topic=topic, columns="body")
    for found in offsets(table).values():
        assert found == list(range(len(found)))
    rows = by_body(table)
    assert len(rows) == len(expected)
    for message in expected:
        row = rows[message.body]
        assert row["body_encoding"] is None
        assert row["tags"] == message.tags
        assert row["keys"] == (" ".join(message.keys) or None)
        assert row["flag"] == message.flag
        assert row["topic"] == topic
        properties = dict(row["properties"])
        assert properties.items() >= message.properties.items()
        assert row["msg_id"] == properties["UNIQ_KEY"]
    for message, ack in zip(plain, acks, strict=True):
        row = rows[message.body]
        assert (row["queue_id"], row["queue_offset"]) == (ack["queue_id"], ack["queue_offset"])
        assert row["msg_id"] == ack["msg_id"]
        assert row["physical_offset"] == int(ack["offset_msg_id"][16:], 16)
    for message in compressed:
        row = rows[message.body]
        assert row["sys_flag"] & 1
        assert row["body_size"] < len(message.body)


def test_ranges_of_any_size_make_the_whole_and_the_same_again(target: Target, topic: str) -> None:
    put(target, topic, 1000)
    whole = read(target.namesrv, topic=topic, columns="body")
    assert offsets(whole) == {(topic, queue): list(range(250)) for queue in range(4)}
    assert sorted(int(body) for body in whole["body"].to_pylist()) == list(range(1000))
    for rows in (1, 7, 33, 249, 250, 251, 10_000):
        wanted = reader(target.namesrv, topic=topic, maxRowsPerPartition=rows)
        partitions = wanted.partitions()
        for partition in partitions:
            assert sum(part.end - part.start for part in partition.ranges) <= rows
        if rows in (1, 7):
            continue  # 1,000 connections and more
        again = read(target.namesrv, topic=topic, columns="body", maxRowsPerPartition=rows)
        assert again == whole


def test_bodies_beyond_what_one_answer_carries(target: Target, topic: str) -> None:
    """An answer is full at 256 KiB: a larger message comes alone."""
    put(target, topic, 40, queues=1, size=100_000)
    put(target, topic, 40, queues=1, size=10)
    put(target, topic, 3, queues=1, size=2_000_000)
    table = read(target.namesrv, topic=topic, columns="body")
    assert offsets(table) == {(topic, 0): list(range(83))}
    assert [len(body) for body in table["body"].to_pylist()] == [100_000] * 40 + [10] * 40 + [2_000_000] * 3


def test_from_and_to_are_exact(target: Target, topic: str) -> None:
    """Also if several messages have the same time, of which 4.9 finds any."""
    peer = Peer(target.broker)
    for _ in range(10):
        for number in range(60):
            peer.send(310, send_fields(topic, number % 2), b"x")
        for _ in range(60):
            assert peer.receive().code == 0
        time.sleep(0.01)
    peer.close()
    wait_for(lambda: read(target.namesrv, topic=topic).num_rows == 600, "all are in the queues", every=0.2)
    times = [round(moment.timestamp() * 1000) for moment in read(target.namesrv, topic=topic)["store_ts"].to_pylist()]
    assert len(times) == 600
    assert len(set(times)) < 300, "several messages have the same time"
    wanted = sorted(set(times))
    for moment in [wanted[0] - 1, *wanted[:: max(1, len(wanted) // 12)], wanted[-1], wanted[-1] + 1]:
        assert read(target.namesrv, topic=topic, from_=moment).num_rows == sum(one >= moment for one in times)
        assert read(target.namesrv, topic=topic, to=moment).num_rows == sum(one < moment for one in times)
    low, high = wanted[len(wanted) // 3], wanted[len(wanted) // 2]
    found = read(target.namesrv, topic=topic, from_=low, to=high)
    assert found.num_rows == sum(low <= one < high for one in times)


def test_offsets_choose_the_messages(target: Target, topic: str) -> None:
    put(target, topic, 100)
    chosen = {
        "startingOffsets": json.dumps({topic: {"0": 5, "1": -1, "2": -2}}),
        "endingOffsets": json.dumps({topic: {"0": 9}}),
    }
    found = offsets(read(target.namesrv, topic=topic, **chosen))
    assert found == {(topic, 0): list(range(5, 9)), (topic, 2): list(range(25)), (topic, 3): list(range(25))}
    assert read(target.namesrv, topic=topic, startingOffsets="latest").num_rows == 0
    assert read(target.namesrv, topic=topic, endingOffsets="earliest").num_rows == 0


def test_a_stream_takes_at_most_so_many_bytes_of_the_log_or_one_message(target: Target, topic: str) -> None:
    put(target, topic, 40, size=1000)
    most = 5_000
    made = NetworkStreamReader(parse({"brokers": target.namesrv, "topic": topic, "maxBytesPerTrigger": str(most)}))
    at, seen, steps = made.initialOffset(), [], 0
    while (then := made.latestOffset(at, made.getDefaultReadLimit())) != at:
        rows = [row for part in made.partitions(at, then) for batch in made.read(part) for row in batch.to_pylist()]
        places = [row["physical_offset"] for row in rows]
        behind = max(row["physical_offset"] + row["size"] for row in rows)
        assert len(rows) == 1 or behind - min(places) <= most
        seen += rows
        at, steps = then, steps + 1
    found = sorted((row["queue_id"], row["queue_offset"]) for row in seen)
    assert found == [(queue, offset) for queue in range(4) for offset in range(10)]
    assert 40 // 4 <= steps < 40, "some four messages each"


def test_without_a_topic_all_topics_of_users_are_read(target: Target, topic: str) -> None:
    put(target, topic, 10)
    topics = set(read(target.namesrv)["topic"].to_pylist())
    assert topic in topics
    assert all(name.startswith(("Read_", "%RETRY%")) for name in topics), topics
    everything = reader(target.namesrv, includeSystem="true").partitions()
    assert everything


def test_nothing_is_left_behind(target: Target, topic: str) -> None:
    put(target, topic, 300)

    def state() -> list[Any]:
        """Return groups, committed offsets, topics, and whether a client consumes as the group that reads."""
        _, groups = ask(target.broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
        _, committed = ask(target.broker, RequestCode.GET_ALL_CONSUMER_OFFSET, {})
        _, topics = ask(target.namesrv, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        consumers, _ = ask(target.broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "TOOLS_CONSUMER"})
        who, _ = ask(target.broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        return [groups, committed, sorted(json.loads(topics)["topicList"]), consumers["code"], who["code"]]

    before = state()
    assert b"TOOLS_CONSUMER" in before[0]
    assert read(target.namesrv, topic=topic).num_rows == 300
    after = state()
    assert after == before
    assert before[3] == 206, "nobody is online"
    assert topic.encode() not in after[1]


def test_a_topic_that_is_not_there_is_named(target: Target) -> None:
    with pytest.raises(Exception, match=f"{target.namesrv} knows no topic Nowhere") as failed:
        read(target.namesrv, topic="Nowhere")
    assert "TBW102" not in str(failed.value)
