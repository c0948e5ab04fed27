"""PULL and LITE_PULL as 5.3.3 answers them: codes, offsets, filters, long polling."""

import threading
import time

import pytest

from appliance.engine.filter import long_tags, sql_filter
from appliance.engine.filter.shelf import Shelf
from appliance.engine.protocol.codes import ResponseCode
from tests.support.directories import shared_directory
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.waiting import wait_for

UNIQ = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"
OFFSET_FIELDS = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "groupSysFlag", "topicSysFlag"}


@pytest.fixture(scope="module", params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def engine(request):
    engine = start_engine(shared_directory(request, "engine"), store={"flush_disk_type": request.param})
    yield engine
    engine.stop()


@pytest.fixture
def topic(request, engine):
    return "T_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:100]


def put(peer, topic, *bodies, queue_id=0, tag=None):
    properties = UNIQ + (f"TAGS\x01{tag}\x02" if tag else "")
    for body in bodies:
        assert peer.ask(310, send_fields(topic, queue_id, properties), body).code == 0


def pull(peer, topic, offset, **changes):
    return peer.ask(11, pull_fields(topic, changes.pop("queueId", 0), offset, **changes))


def check(answer, code, remark, next_offset, low, high):
    assert (answer.code, answer.remark) == (code, remark)
    assert set(answer.ext_fields) == OFFSET_FIELDS
    offsets = [int(answer.ext_fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset")]
    assert offsets == [next_offset, low, high]
    assert answer.ext_fields["suggestWhichBrokerId"] == "0"


@pytest.mark.parametrize("code", [11, 361])
def test_messages_come_back_whole_and_in_order(peer, topic, code):
    bodies = [b"%d" % i * 50 for i in range(50)]
    put(peer, topic, *bodies)
    first = peer.ask(code, pull_fields(topic, 0, 0))
    check(first, 0, "FOUND", 32, 0, 50)
    second = peer.ask(code, pull_fields(topic, 0, 32))
    check(second, 0, "FOUND", 50, 0, 50)
    assert [r.body for r in records(first.body) + records(second.body)] == bodies
    assert len(records(pull(peer, topic, 7, maxMsgNums=3).body)) == 3


def test_every_place_of_an_offset_has_its_answer(peer, topic):
    put(peer, topic, b"a", b"b", b"c")
    check(pull(peer, topic, 3), ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3, 0, 3)
    check(pull(peer, topic, 100_000), ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3, 0, 3)
    check(pull(peer, topic, -5), ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0, 0, 3)
    empty = pull(peer, topic, 0, queueId=1)
    check(empty, ResponseCode.PULL_NOT_FOUND, empty.remark, 0, 0, 0)
    moved = pull(peer, topic, 9, queueId=1)
    check(moved, ResponseCode.PULL_OFFSET_MOVED, moved.remark, 0, 0, 0)
    check(pull(peer, topic, 0, subscription="None"), ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", 3, 0, 3)


def test_tags_are_filtered_by_hash_and_the_scan_goes_on_behind(peer, topic):
    for i in range(10):
        put(peer, topic, b"%d" % i, tag="AB"[i % 2])
    put(peer, topic, b"none")
    answer = pull(peer, topic, 0, subscription=" A || C ")
    check(answer, 0, "FOUND", 11, 0, 11)
    assert [r.body for r in records(answer.body)] == [b"0", b"2", b"4", b"6", b"8"]
    some = pull(peer, topic, 0, subscription="B", maxMsgNums=2)
    assert ([r.body for r in records(some.body)], some.ext_fields["nextBeginOffset"]) == ([b"1", b"3"], "5")


def test_refusals_in_5_3_3s_words(peer, topic):
    put(peer, topic, b"a")
    answer = pull(peer, "NoSuchTopic", 0)
    assert (answer.code, answer.remark.split("\n")[0]) == (17, "topic[NoSuchTopic] not exist, apply first please! ")
    answer = pull(peer, topic, 0, queueId=99)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark.startswith(
        f"queueId[99] is illegal, topic:[{topic}] topicConfig.readQueueNums:[4] consumer:[/"
    )
    assert pull(peer, topic, 0, queueId=-1).code == ResponseCode.INVALID_PARAMETER
    answer = pull(peer, topic, 0, sysFlag=0, consumerGroup="NeverSeen")
    assert (answer.code, answer.remark.split("\n")[0]) == (24, "the consumer's group info not exist")
    answer = pull(peer, topic, 0, expressionType="Class", subscription="a > 1")
    assert (answer.code, answer.remark) == (1, "The broker does not support consumer to filter message by Class")
    fields = pull_fields(topic, 0, 0)
    del fields["queueOffset"]
    answer = peer.ask(11, fields)
    assert answer.code == 1
    assert "queueOffset" in answer.remark


def heartbeat(peer, group, topic, expression="*", version=1, model="CLUSTERING"):
    import json

    subscription = {"topic": topic, "subString": expression, "subVersion": version, "expressionType": "TAG",
                    "codeSet": [], "tagsSet": [], "classFilterMode": False}  # fmt: skip
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    body = {"clientID": "c@1", "consumerDataSet": [consumer], "producerDataSet": []}
    assert peer.ask(34, body=json.dumps(body).encode()).code == 0


def test_a_pull_without_subscription_uses_the_heartbeats(peer, topic):
    put(peer, topic, b"a", tag="A")
    put(peer, topic, b"b", tag="B")
    group = "G_" + topic
    heartbeat(peer, group, topic, "B", version=5)
    answer = pull(peer, topic, 0, sysFlag=0, consumerGroup=group, subVersion=5)
    assert [r.body for r in records(answer.body)] == [b"b"]
    newer = pull(peer, topic, 0, sysFlag=0, consumerGroup=group, subVersion=6)
    assert (newer.code, newer.remark) == (25, "the consumer's subscription not latest")
    put(peer, "Other" + topic, b"x")
    other = pull(peer, "Other" + topic, 0, sysFlag=0, consumerGroup=group)
    assert (other.code, other.remark.split("\n")[0]) == (24, "the consumer's subscription not exist")


def test_a_pull_commits_when_asked(peer, topic, engine):
    put(peer, topic, b"a")
    pull(peer, topic, 1, sysFlag=4, commitOffset=1, consumerGroup="NoCommit")
    pull(peer, topic, 1, sysFlag=5, commitOffset=1, consumerGroup="Commit")
    assert engine.broker.offsets.get("NoCommit", topic, 0) == -1
    assert engine.broker.offsets.get("Commit", topic, 0) == 1


def test_a_held_pull_is_answered_by_the_next_message(peer, topic, engine):
    put(peer, topic, b"a")
    waiting = Peer(engine.broker_address)
    waiting.send(11, pull_fields(topic, 0, 1, sysFlag=6, suspendTimeoutMillis=15_000))
    assert waiting.is_silent()
    assert engine.broker.pull.long_polling.count == 1
    put(peer, topic, b"wakes")
    answer = waiting.receive()
    check(answer, 0, "FOUND", 2, 0, 2)
    assert [r.body for r in records(answer.body)] == [b"wakes"]
    assert engine.broker.pull.long_polling.count == 0
    waiting.close()


def test_a_held_pull_sleeps_through_other_tags_and_queues(peer, topic, engine):
    put(peer, topic, b"a")
    waiting = Peer(engine.broker_address)
    waiting.send(11, pull_fields(topic, 0, 1, sysFlag=6, suspendTimeoutMillis=15_000, subscription="Mine"))
    put(peer, topic, b"x", queue_id=1, tag="Mine")
    put(peer, topic, b"y", tag="Other")
    assert waiting.is_silent()
    put(peer, topic, b"z", tag="Mine")
    answer = waiting.receive()
    assert ([r.body for r in records(answer.body)], answer.ext_fields["nextBeginOffset"]) == ([b"z"], "3")
    waiting.close()


@pytest.mark.parametrize("by_heartbeat", [False, True])
def test_a_long_tag_expression_is_not_read_on_the_io_thread(peer, topic, engine, monkeypatch, by_heartbeat):
    """One of 32 KB takes 15 ms."""
    threads = []
    made = long_tags.codes_of
    monkeypatch.setattr(
        long_tags, "codes_of", lambda text: threads.append(threading.current_thread().name) or made(text)
    )
    put(peer, topic, b"first", tag="A")
    expression = "||".join([f"Tag{number}" for number in range(3000)] + ["B", topic])
    consumer = Peer(engine.broker_address)
    fields = {"subscription": expression}
    if by_heartbeat:
        heartbeat(consumer, "G_long_tags", topic, expression)
        fields = {"consumerGroup": "G_long_tags"}
    flags = 2 | (0 if by_heartbeat else 4)
    fields = pull_fields(topic, 0, 1, sysFlag=flags, suspendTimeoutMillis=15_000, **fields)
    asked = [consumer.send(11, fields), consumer.send(11, fields)]
    wait_for(lambda: engine.broker.pull.long_polling.count == 2, "both are held")
    put(peer, topic, b"not wanted", tag="A")
    put(peer, topic, b"wanted", tag="B")
    answers = iter(frame for frame in iter(consumer.receive, None) if frame.is_response)
    found = {answer.opaque: records(answer.body)[0].body for answer in (next(answers), next(answers))}
    assert found == dict.fromkeys(asked, b"wanted")
    assert set(threads) == {"pool-pull-filter"}
    consumer.close()


@pytest.mark.parametrize("kind", ["TAG", "SQL92"])
def test_a_long_expression_is_not_kept_behind_the_pull_that_had_it(peer, topic, engine, monkeypatch, kind):
    """A client that has another one each time was refused in the end, for good."""
    module = long_tags if kind == "TAG" else sql_filter
    monkeypatch.setattr(module, "_shelves", (Shelf(1 << 30, 2, 8, 1),))
    put(peer, topic, b"wanted", tag="A")
    for number in range(20):
        text = "||".join(["A", *(f"Tag{number}{one}" for one in range(60))])
        if kind == "SQL92":
            text = f"TAGS = 'A' AND {number} = {number}" + " AND 1 = 1" * 40
        answer = peer.ask(11, pull_fields(topic, 0, 0, sysFlag=4, subscription=text, expressionType=kind))
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert records(answer.body)[0].body == b"wanted"


def test_a_held_pull_gives_up_in_time_and_not_before(peer, topic):
    put(peer, topic, b"a")
    begin = time.monotonic()
    answer = pull(peer, topic, 1, sysFlag=6, suspendTimeoutMillis=500)
    elapsed = time.monotonic() - begin
    check(answer, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 1, 0, 1)
    assert elapsed >= 0.35


def test_a_pull_of_a_queue_never_written_is_held_too(peer, topic, engine):
    put(peer, topic, b"a", queue_id=1)
    waiting = Peer(engine.broker_address)
    waiting.send(361, pull_fields(topic, 0, 0, sysFlag=22, suspendTimeoutMillis=15_000))
    assert waiting.is_silent()
    put(peer, topic, b"first")
    assert [r.body for r in records(waiting.receive().body)] == [b"first"]
    waiting.close()


def test_without_the_suspend_bit_nothing_is_held(peer, topic):
    put(peer, topic, b"a")
    assert pull(peer, topic, 1, sysFlag=4, suspendTimeoutMillis=15_000).code == ResponseCode.PULL_NOT_FOUND


def test_a_closed_connection_takes_its_held_pulls_along(peer, topic, engine):
    put(peer, topic, b"a")
    waiting = Peer(engine.broker_address)
    for _ in range(5):
        waiting.send(11, pull_fields(topic, 0, 1, sysFlag=6, suspendTimeoutMillis=15_000))
    wait_for(lambda: engine.broker.pull.long_polling.count >= 5, "the pulls to be held")
    waiting.close()
    wait_for(lambda: not engine.broker.pull.long_polling.count, "the pulls to be forgotten")
    assert not engine.broker.pull.long_polling.held_at(engine.broker.store.find_queue(topic, 0))
    put(peer, topic, b"nobody waits")


def test_many_held_pulls_all_wake(peer, topic, engine):
    put(peer, topic, b"a")
    waiting = [Peer(engine.broker_address) for _ in range(50)]
    for one in waiting:
        one.send(11, pull_fields(topic, 0, 1, sysFlag=6, suspendTimeoutMillis=15_000))
    wait_for(lambda: engine.broker.pull.long_polling.count >= 50, "the pulls to be held")
    put(peer, topic, b"all")
    for one in waiting:
        assert [r.body for r in records(one.receive().body)] == [b"all"]
        one.close()


def test_stopping_answers_held_pulls_first(tmp_path):
    engine = start_engine(tmp_path)
    peer = Peer(engine.broker_address)
    put(peer, "T", b"a")
    opaque = peer.send(11, pull_fields("T", 0, 1, sysFlag=6, suspendTimeoutMillis=15_000))
    wait_for(lambda: engine.broker.pull.long_polling.count, "the pull to be held")
    stopper = threading.Thread(target=engine.stop)
    stopper.start()
    answer = peer.receive()
    assert (answer.opaque, answer.code) == (opaque, ResponseCode.PULL_NOT_FOUND)
    stopper.join(60)
    assert not stopper.is_alive()
    peer.close()


def test_adjacent_records_go_from_the_file_to_a_slow_reader_whole(peer, topic, engine):
    """Large answers leave by sendfile; bytes that a full socket does not take follow later, in order."""
    import socket

    bodies = [bytes([i]) * 60_000 for i in range(40)]
    put(peer, topic, *bodies)
    slow = Peer(engine.broker_address)
    # The kernel buffers little for it; below a few segments of the loopback it would wait for timers.
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
    asked = {slow.send(11, pull_fields(topic, 0, offset, maxMsgNums=4)): offset for offset in [*range(0, 40, 4)] * 4}
    connections = engine.server.connections
    wait_for(lambda: any(conn.outbox_bytes for conn in connections.values()), "its socket is full")
    while asked:
        answer = slow.receive()
        assert answer.code == 0
        offset = asked.pop(answer.opaque)  # pulls that were read in the pool are answered behind later ones
        is_whole = [r.body for r in records(answer.body)] == bodies[offset : offset + 4]
        assert is_whole, offset
    slow.close()


def test_ranges_the_page_cache_does_not_hold_are_not_sent_by_sendfile(peer, topic, engine, monkeypatch):
    put(peer, topic, *[b"x" * 5000] * 8)
    monkeypatch.setattr(engine.broker.store.disk, "is_resident", lambda fd, position, size: False, raising=False)
    answer = pull(peer, topic, 0)
    assert [len(r.body) for r in records(answer.body)] == [5000] * 8


@pytest.mark.parametrize("slaves_may", [True, False])
def test_a_reader_of_what_has_left_the_memory_is_told_of_a_slave(tmp_path, slaves_may):
    """With slaveReadEnable: whichBrokerWhenConsumeSlowly; back to the master when the reader has caught up."""
    engine = start_engine(
        tmp_path,
        store={"access_message_in_memory_max_ratio": 0, "flush_disk_type": "ASYNC_FLUSH"},
        broker={"slave_read_enable": slaves_may},
    )
    peer = Peer(engine.broker_address)
    try:
        put(peer, "T", *[b"x" * 100] * 3)
        for _ in range(2):  # the second time the hot path has the group's settings
            far = pull(peer, "T", 0)
            assert (far.code, len(records(far.body))) == (0, 3)
            assert far.ext_fields["suggestWhichBrokerId"] == ("1" if slaves_may else "0")
        check(pull(peer, "T", 3, suspendTimeoutMillis=1), 19, "OFFSET_OVERFLOW_ONE", 3, 0, 3)
    finally:
        peer.close()
        engine.stop()
