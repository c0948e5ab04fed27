"""Request and reply: 324 and 325 are pushed to the requester (326), stored, and answered when both are done."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker.processors import reply as reply_module
from appliance.engine.protocol.command import RemotingCommand, decode_frame
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.remoting import peer_requests
from tests.support.engine import Peer, RunningEngine, pull_fields, records, send_fields
from tests.support.golden import GOLDEN, frames
from tests.support.waiting import wait_for

PUSH, REPLY, REPLY_LONG = 326, 325, 324
TOPIC = "DefaultCluster_REPLY_TOPIC"
FOR_ME = (
    "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01asker\x02UNIQ_KEY\x017F00000172C64E0E2F2A69220CA30003\x02TTL\x018000\x02"
)
LONG_NAMES = dict(
    zip(
        "abcdefghijkm",
        "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties "
        "reconsumeTimes unitMode batch".split(),
        strict=True,
    )
)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    found = RunningEngine(tmp_path)
    yield found
    found.stop()


def pushed(requester: Peer) -> Any:
    """Return the next push, skipping notices."""
    return next(frame for frame in iter(requester.receive, None) if frame.code == PUSH and not frame.is_response)


def answer_to(peer: Peer, opaque: int) -> Any:
    return next(frame for frame in iter(peer.receive, None) if frame.is_response and frame.opaque == opaque)


def stored(running: RunningEngine, offset: int = 0) -> list[Any]:
    return records(running.peer().ask(11, pull_fields(TOPIC, 0, offset)).body)


def test_a_reply_reaches_who_asked_and_is_stored(running):
    requester, replier = running.produce_as("asker", "PG_Requester"), running.peer()
    asked = replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME, a="PG_Replier"), b"the reply")
    question = pushed(requester)
    requester.answer(question, 0)
    answer = answer_to(replier, asked)
    assert (answer.code, answer.remark, question.body) == (0, None, b"the reply")
    (record,) = stored(running)
    assert (record.body, answer.ext_fields["msgId"][-16:]) == (b"the reply", f"{record.physical_offset:016X}")
    assert answer.ext_fields | {"msgId": ""} == {
        "queueId": "0", "queueOffset": "0", "msgId": "", "TRACE_ON": "true", "MSG_REGION": "DefaultRegion",
    }  # fmt: skip
    kept = decode_properties(record.properties)
    assert "PUSH_REPLY_TIME" not in kept
    told = decode_properties(question.ext_fields.pop("properties"))
    assert int(told.pop("PUSH_REPLY_TIME")) == int(question.ext_fields["storeTimestamp"])
    assert told | {"CLUSTER": "DefaultCluster"} == kept


def recorded(version: str) -> tuple[Any, Any, Any]:
    """Return the first pushed reply of a recording: (325, 326, answer to the 325)."""
    found = [decode_frame(frame) for _, frame in frames(GOLDEN / "wire" / version / "request-reply.jsonl.gz")]
    push = next(frame for frame in found if frame.code == PUSH and not frame.is_response)
    reply = next(frame for frame in found if frame.code == REPLY and frame.body == push.body)
    answer = next(frame for frame in found if frame.is_response and frame.opaque == reply.opaque)
    return reply, push, answer


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_pushes_and_answers_look_as_recorded(running, version):
    reply, push, theirs = recorded(version)
    name = decode_properties(reply.ext_fields["i"])["REPLY_TO_CLIENT"]
    requester, replier = running.produce_as(name, "PG_Requester"), running.peer()
    asked = replier.send(REPLY, reply.ext_fields, reply.body)
    question = pushed(requester)
    requester.answer(question, 0)
    answer = answer_to(replier, asked)
    assert (answer.code, answer.remark, set(answer.ext_fields)) == (theirs.code, theirs.remark, set(theirs.ext_fields))
    ours, told = question.ext_fields, push.ext_fields
    assert set(ours) == set(told)
    fresh = {"storeTimestamp", "bornHost", "storeHost", "properties"}
    assert {k: v for k, v in ours.items() if k not in fresh} == {k: v for k, v in told.items() if k not in fresh}
    assert ours["bornHost"] == "{}:{}".format(*replier.sock.getsockname())
    assert ours["storeHost"] == running.engine.broker_address
    mine, recorded_ones = (decode_properties(text) for text in (ours["properties"], told["properties"]))
    if version == "4.9.8":  # which has them in the answer only
        recorded_ones |= {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert mine | {"PUSH_REPLY_TIME": ""} == recorded_ones | {"PUSH_REPLY_TIME": ""}
    assert (question.body, question.is_oneway) == (push.body, False)


def test_the_long_names_say_the_same(running):
    requester, replier = running.produce_as("asker", "PG"), running.peer()
    fields = {LONG_NAMES[k]: v for k, v in send_fields(TOPIC, 0, FOR_ME).items() if k in LONG_NAMES}
    asked = replier.send(REPLY_LONG, fields, b"x")
    question = pushed(requester)
    requester.answer(question, 0)
    assert (answer_to(replier, asked).code, question.ext_fields["topic"]) == (0, TOPIC)


def test_a_reply_to_nobody_fails_and_is_stored_all_the_same(running):
    """As recorded of both versions."""
    replier = running.peer()
    answer = replier.ask(REPLY, send_fields(TOPIC, 0, "MSG_TYPE\x01reply\x02"), b"x")
    assert (answer.code, answer.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
    (record,) = stored(running)
    assert answer.ext_fields["msgId"][-16:] == f"{record.physical_offset:016X}"
    assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == ("0", "0")


def test_a_requester_that_left(running):
    replier = running.peer()
    requester = running.produce_as("asker", "PG")
    assert requester.ask(35, {"clientID": "asker", "producerGroup": "PG"}).code == 0
    answer = replier.ask(REPLY, send_fields(TOPIC, 0, FOR_ME), b"x")
    assert (answer.code, answer.remark) == (1, "push reply message fail, channel of <asker> not found.")
    assert len(stored(running)) == 1


def test_a_requester_that_leaves_without_an_answer_ends_the_waiting(running):
    replier, requester = running.peer(), running.produce_as("asker", "PG")
    asked = replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME), b"x")
    assert pushed(requester)
    assert replier.is_silent()  # the limit has not passed, and the requester may still answer
    requester.close()
    answer = answer_to(replier, asked)
    assert (answer.code, answer.remark, answer.ext_fields["queueOffset"]) == (
        1, "push reply message to askerfail.", "0",
    )  # fmt: skip


def test_a_requester_that_never_answers(running, monkeypatch):
    monkeypatch.setattr(reply_module, "PUSH_TIMEOUT_S", 0.2)
    replier, requester = running.peer(), running.produce_as("asker", "PG")
    asked = replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME), b"x")
    question = pushed(requester)
    assert replier.ask(30, {"topic": TOPIC, "queueId": 0}).ext_fields["offset"] == "1"  # other requests do not wait
    assert answer_to(replier, asked).code == 1
    requester.answer(question, 0)  # too late, and ignored
    assert requester.ask(30, {"topic": TOPIC, "queueId": 0}).code == 0


def test_a_requester_that_refuses(running):
    replier, requester = running.peer(), running.produce_as("asker", "PG")
    asked = replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME), b"x")
    requester.answer(pushed(requester), 1, "I cannot read it")
    assert answer_to(replier, asked).code == 1


def test_of_two_connections_the_one_that_came_last_has_it_and_then_the_other(running):
    replier = running.peer()
    older, newer = running.produce_as("asker", "PG"), running.produce_as("asker", "PG2")
    clients = running.engine.broker.clients
    for requester, group in ((newer, "PG2"), (older, "PG")):
        asked = replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME), b"x")
        requester.answer(pushed(requester), 0)
        assert answer_to(replier, asked).code == 0
        requester.close()
        wait_for(lambda group=group: group not in clients.producer_groups(), "it has gone")
    answer = replier.ask(REPLY, send_fields(TOPIC, 0, FOR_ME), b"x")
    assert answer.remark == "push reply message fail, channel of <asker> not found."


def test_who_takes_another_name_is_found_by_that(running):
    requester, replier = running.produce_as("before", "PG"), running.peer()
    body = json.dumps({"clientID": "asker", "producerDataSet": [{"groupName": "PG"}]}).encode()
    assert requester.ask(34, {}, body).code == 0
    gone = replier.ask(REPLY, send_fields(TOPIC, 0, FOR_ME.replace("asker", "before")), b"x")
    assert gone.remark == "push reply message fail, channel of <before> not found."
    asked = replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME), b"x")
    requester.answer(pushed(requester), 0)
    assert answer_to(replier, asked).code == 0


def test_a_consumer_is_no_requester(running):
    """As in Apache, only a producer is."""
    running.join("asker", "CG")
    answer = running.peer().ask(REPLY, send_fields(TOPIC, 0, FOR_ME), b"x")
    assert answer.remark == "push reply message fail, channel of <asker> not found."


def test_a_reply_without_a_body(running):
    requester, replier = running.produce_as("asker", "PG"), running.peer()
    asked = replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME), b"")
    question = pushed(requester)
    requester.answer(question, 0)
    answer = answer_to(replier, asked)
    assert (answer.code, answer.ext_fields["queueOffset"], question.body) == (0, "0", b"")
    assert [record.body for record in stored(running)] == [b""]
    running.restart()
    assert [record.body for record in stored(running)] == [b""]
    assert running.peer().ask(310, send_fields("Orders"), b"").code == 13  # 310 is for replies only


def test_what_may_not_be_sent_is_not_pushed(running):
    requester, replier = running.produce_as("asker", "PG"), running.peer()
    for fields, body, code in (
        (send_fields("NoSuch", 0, FOR_ME, c="NoTemplate"), b"x", 17),
        (send_fields(TOPIC, 7, FOR_ME), b"x", 29),
        (send_fields("bad/topic", 0, FOR_ME), b"x", 29),
        (send_fields(TOPIC, 0, FOR_ME), b"x" * (4_194_304 + 1), 13),
        (send_fields(TOPIC, 0, FOR_ME, e="many"), b"x", 1),
    ):
        answer = replier.ask(REPLY, fields, body)
        assert (answer.code, "msgId" in answer.ext_fields) == (code, False), answer
    assert requester.is_silent()
    assert stored(running) == []


def test_replies_that_are_not_stored(running):
    requester, replier = running.produce_as("asker", "PG"), running.peer()
    assert replier.ask(25, {}, b"storeReplyMessageEnable=false\n").code == 0
    asked = replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME), b"x")
    requester.answer(pushed(requester), 0)
    answer = answer_to(replier, asked)
    assert (answer.code, answer.ext_fields) == (
        0,
        {"msgId": "0", "queueId": "0", "queueOffset": "0", "TRACE_ON": "true", "MSG_REGION": "DefaultRegion"},
    )
    refused = replier.ask(REPLY, send_fields(TOPIC, 7, FOR_ME), b"x")
    assert (refused.code, refused.ext_fields["TRACE_ON"]) == (29, "true")
    lost = replier.ask(REPLY, send_fields(TOPIC, 0, ""), b"x")
    assert (lost.code, "msgId" in lost.ext_fields) == (1, False)
    assert stored(running) == []


def test_one_way_replies_are_pushed_and_not_answered(running):
    requester, replier = running.produce_as("asker", "PG"), running.peer()
    replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME), b"x", flag=2)
    requester.answer(pushed(requester), 0)
    assert replier.is_silent()


def test_so_many_pushes_wait_and_no_more(running, monkeypatch):
    monkeypatch.setattr(reply_module, "MOST_PUSHES_TO_ONE", 3)
    requester, replier = running.produce_as("asker", "PG"), running.peer()
    asked = [replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME), b"%d" % number) for number in range(4)]
    refused = answer_to(replier, asked[3])
    assert (refused.code, refused.remark, refused.ext_fields["queueOffset"]) == (
        1, "push reply message to askerfail.", "3",
    )  # fmt: skip
    for opaque in asked[:3]:
        requester.answer(pushed(requester), 0)
        assert answer_to(replier, opaque).code == 0


def test_who_answers_no_push_keeps_no_reply_from_others(running):
    """Each connection may leave a few pushes without an answer, and there may be very many connections."""
    peers = running.engine.broker._peers
    few = peer_requests.FEW_WAITING
    crowd = [running.produce_as(f"silent{number}", "PG") for number in range(3)]
    replier = running.peer()
    for number in range(len(crowd)):
        for _ in range(few):
            replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME.replace("asker", f"silent{number}")), b"x")
    wait_for(lambda: peers.waiting == few * len(crowd), "the crowd has been asked")
    peers._count = peer_requests.MAX_WAITING  # as if it had hundreds of connections
    requester = running.produce_as("asker", "PG")
    asked = replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME), b"x")
    requester.answer(pushed(requester), 0)
    assert answer_to(replier, asked).code == 0


@pytest.mark.parametrize("code", [REPLY, REPLY_LONG])
def test_a_reply_whose_push_waits_takes_no_memory_for_its_content(running, code):
    """Each connection may leave 16 without an answer for 10 s, of 4 MiB each."""
    requester, replier = running.produce_as("asker", "PG"), running.peer()
    fields = send_fields(TOPIC, 0, FOR_ME)
    if code == REPLY_LONG:
        fields = {LONG_NAMES[key]: fields[key] for key in fields if key in LONG_NAMES}
    asked = replier.send(code, fields, b"x")
    question = pushed(requester)

    def contents():
        waiting = [one for one in gc.get_objects() if isinstance(one, RemotingCommand) and one.code == code]
        return [(one.body, one.ext_fields) for one in waiting]

    wait_for(lambda: contents() == [(b"", {})], "its content to be let go")
    requester.answer(question, 0)
    assert answer_to(replier, asked).code == 0


def test_a_reply_too_large_to_be_pushed(make_large, monkeypatch):
    """The push is longer than the reply, and may not fit a frame."""
    monkeypatch.setattr(reply_module, "PUSH_TIMEOUT_S", 0.5)
    running = make_large
    requester, replier = running.produce_as("asker", "PG"), running.peer()
    replier.send(REPLY, send_fields(TOPIC, 0, FOR_ME), bytes((16 << 20) - 1200))
    answer = replier.receive(60)
    assert (answer.code, answer.remark) == (1, "push reply message to askerfail.")
    assert requester.ask(30, {"topic": TOPIC, "queueId": 0}).code == 0


@pytest.fixture
def make_large(tmp_path: Path) -> Iterator[RunningEngine]:
    found = RunningEngine(tmp_path, broker={"store_reply_message_enable": False})
    yield found
    found.stop()


def test_the_topic_of_replies_is_there_from_the_start(running):
    (queue,) = running.window.topics.queue_rows(TOPIC)
    config = running.window.topics.settings(TOPIC)
    assert (queue.queue_id, config.read_queues, config.write_queues) == (0, 1, 1)
