"""Questions to one client: its running info, and to consume a message now; recorded answers, and malformed ones."""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from appliance.engine import fastjson
from appliance.engine.broker import member_questions
from appliance.engine.errors import InvalidInput, NotFound, Unavailable
from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from appliance.engine.window.clients import asking as asking_module
from tests.support.golden import GOLDEN, frames

JAVA_5 = 479


def in_thread(function: Any, *args: Any, **named: Any) -> Future[Any]:
    """Run the function in a thread, as a page's thread would."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(function(*args, **named))
        except Exception as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


def asked(peer: Any, code: int) -> Any:
    return next(frame for frame in iter(peer.receive, None) if frame.code == code and not frame.is_response)


def joined(running: Any, version: int = JAVA_5) -> Any:
    """Join CG as c1, with that version."""
    peer = running.peer()
    consumer = {
        "groupName": "CG", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [{"topic": "Orders", "subString": "*"}],
    }  # fmt: skip
    body = json.dumps({"clientID": "c1", "consumerDataSet": [consumer]}).encode()
    if version != JAVA_5:
        peer.send_bytes(encode_command(RemotingCommand(34, opaque=99, version=version, body=body)))
        assert next(frame for frame in iter(peer.receive, None) if frame.is_response).code == 0
    else:
        assert peer.ask(34, {}, body).code == 0
    return peer


def info_with(running: Any, body: bytes, code: int = 0, remark: str | None = None, **named: Any) -> Any:
    """Return the window's running info for such an answer of the client."""
    running.hang_up()
    peer = joined(running)
    waiting = in_thread(running.window.asking.running_info, "CG", "c1", **named)
    peer.answer(asked(peer, 307), code, remark, body)
    return waiting.result(60)


def recorded(version: str) -> bytes:
    """Return the body of a Java client's answer to 307."""
    path = GOLDEN / "wire" / version / "mqadmin-consumerStatus-client.jsonl.gz"
    bodies = [decode_frame(frame).body for _, frame in frames(path)]
    return next(body for body in bodies if b'"mqTable"' in body)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_what_java_clients_said(running, version):
    body = recorded(version)
    found = info_with(running, body, stack=True)
    theirs = fastjson.loads(body)
    assert len(found.queues) == len(theirs["mqTable"]) > 1
    assert found.left_out == 0
    assert dict(found.properties) == theirs["properties"]
    assert found.started_at_ms == int(theirs["properties"]["PROP_CONSUMER_START_TIMESTAMP"])
    assert found.stack == theirs["jstack"]
    assert {one.topic for one in found.subscriptions} == {one["topic"] for one in theirs["subscriptionSet"]}
    assert [row.topic for row in found.rates] == sorted(theirs["statusTable"])
    queue = next(queue for queue in found.queues if queue.topic == "AdminTopic" and queue.queue_id == 0)
    assert (queue.broker, queue.dropped, queue.cached) == ("broker-a", False, 0)
    assert isinstance(queue.locked, bool)
    assert (found.language, found.client_id, found.group) == ("JAVA", "c1", "CG")


def test_what_the_question_says(running):
    peer = joined(running)
    for stack in (True, False):
        waiting = in_thread(running.window.asking.running_info, "CG", "c1", stack=stack)
        question = asked(peer, 307)
        assert question.ext_fields == {
            "consumerGroup": "CG", "clientId": "c1", "jstackEnable": str(stack).lower(),
        }  # fmt: skip
        peer.answer(question, 0, None, b"{}")
        found = waiting.result(60)
        assert (found.queues, found.properties, found.stack, found.started_at_ms) == ((), {}, None, None)


def test_what_go_and_cpp_clients_say(running):
    go = (
        b'{"properties":{"PROP_NAMESERVER_ADDR":"x"},"statusTable":{"T":{"pullRT":1.5,"pullTPS":2,"consumeRT":0,'
        b'"consumeOKTPS":3.25,"consumeFailedTPS":0,"consumeFailedMsgs":7}},"subscriptionSet":[{"topic":"T","subString":"*",'
        b'"expressionType":"TAG"}],"mqTable":{{"topic":"T","brokerName":"b","queueId":3}:{"commitOffset":5,"locked":true,'
        b'"dropped":true,"cachedMsgCount":2}}}'
    )
    found = info_with(running, go)
    assert (found.queues[0].queue_id, found.queues[0].dropped, found.queues[0].cached_mib) == (3, True, None)
    assert (found.rates[0].consumed_rate, found.rates[0].failed, found.left_out) == (3.25, 7, 0)


def test_what_is_not_understood_is_left_out_and_counted(running):
    strange = (
        b'{"properties":{"a":{"b":1}},"mqTable":{"no queue":{},"{\\"queueId\\":\\"many\\"}":{},'
        b'{"topic":"T","brokerName":"b","queueId":1}:{"commitOffset":"12","cachedMsgCount":"x","locked":1,'
        b'"lastPullTimestamp":1e400}},"statusTable":{"T":[],"U":{"pullRT":"NaN"}},"subscriptionSet":[1,null,{}],'
        b'"jstack":7,"whatever":[1,2]}'
    )
    with pytest.raises(Unavailable):
        info_with(running, strange)  # a number that no Java version has
    found = info_with(running, strange.replace(b"1e400", b"1.5"))
    (queue,) = found.queues
    assert (queue.committed, queue.cached, queue.locked, queue.last_pull_at_ms) == (12, None, None, None)
    assert [(row.topic, row.pull_ms) for row in found.rates] == [("U", None)]
    assert (found.left_out, found.stack, found.properties) == (5, None, {"a": ""})


@pytest.mark.parametrize("body", [b"", b"[]", b"no json", b"[" * 5000, b'{"a":' * 3000, b"\xff\xfe{}"])
def test_an_answer_that_is_none(running, body):
    with pytest.raises(Unavailable, match="cannot be read"):
        info_with(running, body)


def test_an_answer_that_is_too_large(running, monkeypatch):
    monkeypatch.setattr(asking_module, "MOST_ANSWER_BYTES", 100)
    with pytest.raises(Unavailable, match="101 bytes"):
        info_with(running, b"{" + b" " * 99 + b"}")


def test_so_many_rows_are_shown_and_no_more(running, monkeypatch):
    monkeypatch.setattr(asking_module, "MOST_ROWS", 3)
    table = b",".join(b'{"topic":"T","brokerName":"b","queueId":%d}:{}' % number for number in range(5))
    found = info_with(running, b'{"mqTable":{' + table + b"}}")
    assert (len(found.queues), found.left_out) == (3, 2)


def test_a_client_that_refuses_leaves_or_is_silent(running, monkeypatch):
    with pytest.raises(Unavailable, match="code 3: I do not know it"):
        info_with(running, b"", 3, "I do not know it")
    running.hang_up()
    peer = joined(running)
    waiting = in_thread(running.window.asking.running_info, "CG", "c1")
    asked(peer, 307)
    peer.close()
    with pytest.raises(Unavailable, match="c1 has left, or has not answered"):
        waiting.result(60)
    monkeypatch.setattr(member_questions, "ANSWER_TIMEOUT_S", 0.2)
    peer = joined(running)
    waiting = in_thread(running.window.asking.running_info, "CG", "c1")
    question = asked(peer, 307)
    with pytest.raises(Unavailable, match="c1 has left, or has not answered"):
        waiting.result(60)
    peer.answer(question, 0, None, b"{}")  # too late, and ignored
    assert peer.ask(38, {"consumerGroup": "CG"}).code == 0


def test_who_is_not_there_or_too_old(running):
    for group, client in (("CG", "c1"), ("Nobody", "c1")):
        with pytest.raises(NotFound):
            running.window.asking.running_info(group, client)
    joined(running)
    with pytest.raises(NotFound):
        running.window.asking.running_info("CG", "c2")
    running.hang_up()
    joined(running, version=61)
    with pytest.raises(Unavailable, match="V3_1_8 or later"):
        running.window.asking.running_info("CG", "c1")
    with pytest.raises(Unavailable, match="V3_1_8 or later"):
        running.window.asking.consume_directly("CG", "c1", "Orders/0/0")


def directly(running: Any, body: bytes, ref: str = "Orders/0/0") -> tuple[Any, Any]:
    """Return (the request that the client got, the window's result for its answer)."""
    running.hang_up()
    peer = joined(running)
    waiting = in_thread(running.window.asking.consume_directly, "CG", "c1", ref, by="ann")
    question = asked(peer, 309)
    peer.answer(question, 0, "not set any response code", body)
    return question, waiting.result(60)


def test_a_client_consumes_a_message_now(running, caplog):
    running.put("Orders", b"one", b"two")
    (offset_id,) = [
        row.offset_id for row in running.window.messages.page("Orders", limit=500).rows if row.queue_offset == 1
    ]
    caplog.set_level("INFO")
    answer = b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":12}'  # as recorded
    for ref in ("Orders/0/1", offset_id):
        question, found = directly(running, answer, ref)
        assert question.ext_fields == {
            "consumerGroup": "CG", "clientId": "c1", "msgId": offset_id, "topic": "Orders", "brokerName": "broker-a",
            "groupSysFlag": "0", "topicSysFlag": "0",
        }  # fmt: skip
        assert b"two" in question.body
        assert (found.result, found.in_order, found.auto_commit, found.spent_ms) == ("CR_SUCCESS", False, True, 12)
        assert (found.offset_id, found.remark) == (offset_id, "")
    assert re.search(r"consume directly group=CG client=c1 message=\w+ by=ann", caplog.text)


def test_the_wire_asks_the_same(running):
    """The client gets the same request from an admin tool and from the window."""
    running.put("Orders", b"one")
    question, found = directly(running, b"{}")
    running.hang_up()
    peer, tool = joined(running), running.peer()
    fields = {name: question.ext_fields[name] for name in ("consumerGroup", "clientId", "msgId", "topic")}
    tool.send(309, fields)
    theirs = asked(peer, 309)
    assert (theirs.ext_fields, theirs.body) == (question.ext_fields, question.body)
    assert (found.result, found.spent_ms) == ("", None)


@pytest.mark.parametrize(
    ("said", "result"), [(b"1", "CR_LATER"), (b"9", ""), (b'"CR_THROW_EXCEPTION"', "CR_THROW_EXCEPTION"), (b"[]", "")]
)
def test_what_became_of_it_in_other_words(running, said, result):
    running.put("Orders", b"one")
    assert directly(running, b'{"consumeResult":%b,"remark":"it broke"}' % said)[1].result == result


def test_a_message_that_is_not_there(running):
    running.put("Orders", b"one")
    joined(running)
    with pytest.raises(NotFound):
        running.window.asking.consume_directly("CG", "c1", "Orders/0/7")
    with pytest.raises(InvalidInput):
        running.window.asking.consume_directly("CG", "c1", "what")
