"""5.3.3's recorded answers to tools' questions about progress, clients and itself, asked again of a whole engine.

Codes and remarks are the same, bodies have the same keys; figures follow from each broker's own history.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.engine import fastjson
from appliance.engine.broker import member_questions
from tests.engine.broker.test_recorded_tables import conversation, is_java_accident
from tests.support.engine import Peer, pull_fields, send_fields, start_engine

ADMIN_CODES = {25, 43, 202, 203, 204, 208, 222, 223, 300, 303, 305, 307, 309, 314, 315, 317, 321, 328, 343, 345, 907}
#: Bodies that list every topic or group.
WHOLE_TABLES = {43, 305, 317}


@pytest.fixture
def engine(tmp_path):
    running = start_engine(tmp_path / "data")
    yield running
    running.stop()


def shape(value: Any) -> Any:
    """Return the keys and kinds of a body: a table by the shape of its entries, a list by that of its items."""
    if isinstance(value, dict):
        if any(key.startswith("{") or "@" in key or key.isdigit() for key in value):
            return {"<entry>": shape(next(iter(value.values())))}
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def test_the_hand_made_questions_are_answered_alike(engine, peer):
    for _ in range(4):
        assert peer.ask(310, send_fields("ProducerTopic", 0, "TAGS\x01TagA\x02"), b"text").code == 0
    engine.window._running().sampler.sample()  # so that the topic's messages are counted
    asked = set()
    for line, request, theirs in conversation("errors"):
        if request.code == 34 and b"CG_Raw" in request.body:
            assert peer.ask(34, {}, request.body).code == 0
            peer.ask(15, {"consumerGroup": "CG_Raw", "topic": "ProducerTopic", "queueId": 0, "commitOffset": 2})
        if request.code not in ADMIN_CODES or theirs is None:
            continue
        ours = peer.ask(request.code, request.ext_fields, request.body)
        where = (line["t"], request, ours)
        asked.add(request.code)
        if request.code == 25 and b"noSuchKey" in request.body:
            assert (ours.code, ours.remark) == (1, "There is no option noSuchKey."), where
            continue
        assert ours.code == theirs.code, where
        assert is_java_accident(theirs.remark) or ours.remark == theirs.remark, where
        assert ours.ext_fields == theirs.ext_fields, where
        if theirs.code == 0 and theirs.body and request.code not in WHOLE_TABLES:
            assert shape(fastjson.loads(ours.body)) == shape(fastjson.loads(theirs.body)), where
        elif request.code not in WHOLE_TABLES:
            assert bool(ours.body) == bool(theirs.body), where
    assert asked >= ADMIN_CODES - {303, 305, 25}


def test_progress_counts_what_there_is(engine, peer):
    for queue_id in (0, 0, 0, 1):
        assert peer.ask(310, send_fields("Counted", queue_id), b"text").code == 0
    peer.ask(200, {}, b'{"groupName":"G"}')
    assert peer.ask(15, {"consumerGroup": "G", "topic": "Counted", "queueId": 0, "commitOffset": 2}).code == 0
    status = fastjson.loads(peer.ask(202, {"topic": "Counted"}).body)["offsetTable"]
    ends = {fastjson.loads(key)["queueId"]: (row["minOffset"], row["maxOffset"]) for key, row in status.items()}
    assert ends == {0: (0, 3), 1: (0, 1), 2: (0, 0), 3: (0, 0)}
    for named in ({}, {"topic": "Counted"}, {"topicList": "Counted;Nothing"}):
        rows = fastjson.loads(peer.ask(208, {"consumerGroup": "G", **named}).body)["offsetTable"]
        found = {fastjson.loads(key)["queueId"]: row for key, row in rows.items()}
        assert [(found[n]["brokerOffset"], found[n]["consumerOffset"]) for n in range(4)] == [
            (3, 2),
            (1, 0),
            (0, 0),
            (0, 0),
        ]
        assert found[0]["lastTimestamp"] > 0 == found[1]["lastTimestamp"]
    everything = fastjson.loads(peer.ask(317, {"isOrder": "false"}).body)
    assert everything["totalDiff"] == 2
    [span] = [
        row
        for row in fastjson.loads(peer.ask(303, {"topic": "Counted", "group": "G"}).body)["consumeTimeSpanSet"]
        if row["messageQueue"]["queueId"] == 0
    ]
    assert 0 < span["minTimeStamp"] <= span["consumeTimeStamp"] <= span["maxTimeStamp"]


def test_a_reset_reaches_a_parked_pull_and_outlives_late_commits(engine, peer):
    for _ in range(5):
        assert peer.ask(310, send_fields("Moved"), b"text").code == 0
    peer.ask(200, {}, b'{"groupName":"G"}')
    consumer = Peer(engine.broker_address)
    pull = pull_fields("Moved", 0, 5, consumerGroup="G", sysFlag=6, suspendTimeoutMillis=15_000)
    parked = consumer.send(11, pull)
    assert consumer.is_silent()
    reset = {"group": "G", "topic": "Moved", "timestamp": 0, "isForce": "true"}
    assert fastjson.loads(peer.ask(222, reset).body)["offsetTable"]
    answer = consumer.receive()
    assert (answer.opaque, answer.code, answer.remark) == (parked, 21, "OFFSET_RESET")
    assert answer.ext_fields["nextBeginOffset"] == "0"
    # Queue 1 was not pulled since the reset: its member's commits do not count yet.
    late = {"consumerGroup": "G", "topic": "Moved", "queueId": 1, "commitOffset": 9}
    assert peer.ask(15, late).remark == "Offset has been previously reset"
    assert peer.ask(14, late).ext_fields["offset"] == "0"
    assert consumer.ask(11, pull | {"queueId": 1, "queueOffset": 9, "sysFlag": 7, "commitOffset": 9}).code == 21
    assert peer.ask(14, late).ext_fields["offset"] == "0"
    # Nor do they until it pulls from the offset that it was sent to.
    assert peer.ask(15, late).remark == "Offset has been previously reset"
    assert consumer.ask(11, pull | {"queueId": 1, "queueOffset": 0, "sysFlag": 4}).code == 19
    assert peer.ask(15, late).code == 29, "the queue ends before"
    assert peer.ask(15, late | {"commitOffset": 0}).remark is None
    # A reset of one queue to an offset; it is refused outside the queue.
    one = reset | {"queueId": 0, "offset": 3}
    assert list(fastjson.loads(peer.ask(222, one).body)["offsetTable"].values()) == [3]
    refused = peer.ask(222, one | {"offset": 6})
    assert (refused.code, refused.remark) == (1, "Target offset 6 not in consume queue range [0-5]")
    assert peer.ask(222, reset | {"timestamp": -1}).code == 0
    assert peer.ask(14, late | {"queueId": 0}).ext_fields["offset"] == "5"
    consumer.close()


def heartbeat(group: str, client_id: str) -> bytes:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [],
    }
    return json.dumps({"clientID": client_id, "consumerDataSet": [consumer]}).encode()


def test_a_clients_own_answer_goes_back_as_it_came(engine, peer, monkeypatch):
    monkeypatch.setattr(member_questions, "ANSWER_TIMEOUT_S", 600.0)
    client = Peer(engine.broker_address)
    assert client.ask(34, {}, heartbeat("G", "c1")).code == 0
    asked = peer.send(307, {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "false"})
    question = next(frame for frame in iter(client.receive, None) if frame.code == 307)
    assert question.ext_fields["clientId"] == "c1"
    client.answer(question, 0, "so it is", b'{"whatever":1}')
    answer = peer.receive()
    assert (answer.opaque, answer.code, answer.remark, answer.body) == (asked, 0, "so it is", b'{"whatever":1}')
    # A client that disconnects without an answer ends the waiting at once.
    asked = peer.send(307, {"consumerGroup": "G", "clientId": "c1"})
    assert next(frame for frame in iter(client.receive, None) if frame.code == 307)
    client.close()
    answer = peer.receive()
    assert (answer.opaque, answer.code) == (asked, 207)
    assert peer.ask(307, {"consumerGroup": "G", "clientId": "c1"}).code == 1


def test_the_offsets_of_all_members_are_put_together(engine, peer):
    members = {name: Peer(engine.broker_address) for name in ("c1", "c2")}
    for name, member in members.items():
        assert member.ask(34, {}, heartbeat("G", name)).code == 0
    asked = peer.send(223, {"group": "G", "topic": "T", "clientAddr": ""})
    for number, member in enumerate(members.values()):
        question = next(frame for frame in iter(member.receive, None) if frame.code == 221)
        table = b'{"messageQueueTable":{{"brokerName":"b","queueId":%d,"topic":"T"}:7}}' % number
        member.answer(question, 0, None, table)
    answer = peer.receive()
    assert (answer.opaque, answer.code) == (asked, 0)
    found = fastjson.loads(answer.body)["consumerTable"]
    assert {name: list(table.values()) for name, table in found.items()} == {"c1": [7], "c2": [7]}
    for member in members.values():
        member.close()
