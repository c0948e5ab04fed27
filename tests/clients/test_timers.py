"""Messages with a time of their own from every client, and those that a producer takes back before it has come."""

from __future__ import annotations

import base64
import time

import pytest

from tests.clients.agents import ClientFailed, Json
from tests.clients.messages import Message, assert_same
from tests.clients.stage import KINDS, KINDS_AND_PYTHON, READY_S, Stage

every_kind = pytest.mark.parametrize("kind", KINDS)
only_java_5 = pytest.mark.parametrize("kind", ["java-5.3.3"])

#: Later than this is a failure. Apache's precision is a second; the rest is for a busy machine.
LATE_MS = 30_000
DAY_S = 86_400


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def handle_of(topic: str, broker: str, at_ms: int, unique_key: str) -> str:
    """Return the handle that the broker would have answered a producer of 5.3.2 or later."""
    return base64.urlsafe_b64encode(f"v1 {topic} {broker} {at_ms} {unique_key}".encode()).decode()


def parts_of(handle: str) -> list[str]:
    return base64.urlsafe_b64decode(handle).decode().split(" ")


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_a_message_comes_when_its_time_has_come(kind: str, stage: Stage) -> None:
    stage.create_topic()
    sent: dict[str, tuple[int, int, Json]] = {}
    with stage.consumer() as consumer:
        with stage.producer() as producer:
            producer.send(stage.topic, [Message(b"the route is there")])
            last = Message(b"at a time", timer={"TIMER_DELIVER_MS": now_ms() + 12_000}, properties={"number": "3"})
            second = Message(b"in milliseconds", timer={"TIMER_DELAY_MS": 7500}, properties={"number": "2"})
            first = Message(b"in seconds", timer={"TIMER_DELAY_SEC": 3}, properties={"number": "1"})
            for message in (last, second, first):
                before = now_ms()
                [ack] = producer.send(stage.topic, [message])
                assert ack["status"] == "SEND_OK"
                sent[message.sha256] = (before, now_ms(), ack)
        came = consumer.wait_for_each([first, second, last])
    assert [one["body_sha256"] for one in sorted(came, key=lambda one: one["queue_offset"])] == [
        message.sha256 for message in sorted((first, second, last), key=lambda message: due(message, sent)[0])
    ]
    for one in came:
        [message] = [message for message in (first, second, last) if message.sha256 == one["body_sha256"]]
        assert_same(message, one)
        assert one["topic"] == stage.topic
        earliest, latest = due(message, sent)
        assert one["store_at_ms"] >= earliest, f"early by {earliest - one['store_at_ms']} ms"
        assert one["store_at_ms"] <= latest + LATE_MS, f"late by {one['store_at_ms'] - latest} ms"
        assert not one["properties"].keys() & {*message.timer, "TIMER_OUT_MS"}
        assert one["properties"]["REAL_TOPIC"] == stage.topic


def due(message: Message, sent: dict[str, tuple[int, int, Json]]) -> tuple[int, int]:
    """The earliest and the latest time that is meant by what was sent between two looks at the clock."""
    before, after, _ = sent[message.sha256]
    [(name, value)] = message.timer.items()
    if name == "TIMER_DELIVER_MS":
        return value, value
    wait = value * 1000 if name == "TIMER_DELAY_SEC" else value
    return before + wait, after + wait


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_a_time_that_has_passed_is_now(kind: str, stage: Stage) -> None:
    stage.create_topic()
    late, none = (
        Message(b"past", timer={"TIMER_DELIVER_MS": now_ms() - 60_000}),
        Message(b"at once", timer={"TIMER_DELAY_MS": 0}),
    )
    with stage.consumer() as consumer:
        before = now_ms()
        acks = stage.send([late, none])
        after = now_ms()
        came = consumer.wait_for_each([late, none])
    for one in came:
        assert before <= one["store_at_ms"] <= after
        assert "TIMER_OUT_MS" not in one["properties"]
    assert not any(ack.get("recall_handle") for ack in acks)


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_a_time_beyond_the_longest_is_refused(kind: str, stage: Stage) -> None:
    stage.create_topic()
    with stage.producer() as producer:
        producer.send(stage.topic, [Message(b"the route is there")])
        for timer in ({"TIMER_DELAY_SEC": 3 * DAY_S + 60}, {"TIMER_DELIVER_MS": now_ms() + 4 * DAY_S * 1000}):
            with pytest.raises(ClientFailed) as failed:
                producer.send(stage.topic, [Message(b"too far", timer=timer)])
            if kind.startswith("java"):
                assert failed.value.code == 13
                assert "timer message illegal" in str(failed.value)
    assert [record.body for record in stage.stored(stage.topic)] == [b"the route is there"]


@pytest.mark.at_once
@every_kind
def test_a_level_wins_over_a_time(kind: str, stage: Stage) -> None:
    stage.create_topic()
    message = Message(b"level 1", delay=1, timer={"TIMER_DELAY_SEC": DAY_S})
    with stage.consumer() as consumer:
        before = now_ms()
        [ack] = stage.send([message])
        [one] = consumer.wait_for_each([message])
    assert before + 1000 <= one["store_at_ms"] <= now_ms()
    assert not one["properties"].keys() & {"DELAY", "TIMER_DELAY_SEC"}
    assert not ack.get("recall_handle")


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_it_consumes_what_every_client_gave_a_time(kind: str, stage: Stage) -> None:
    stage.create_topic(queues=2)
    timer = {"TIMER_DELAY_MS": 3000}
    messages = {
        sender: [Message(f"{sender} {number}".encode(), timer=timer) for number in range(3)]
        for sender in KINDS_AND_PYTHON
    }
    with stage.consumer() as consumer:
        for sender, its in messages.items():
            stage.send(its, kind=sender)
        came = consumer.wait_for_each([message for its in messages.values() for message in its])
    assert {one["topic"] for one in came} == {stage.topic}


@pytest.mark.at_once
@only_java_5
def test_a_message_that_was_taken_back_does_not_come(kind: str, stage: Stage) -> None:
    stage.create_topic()
    with stage.consumer() as consumer, stage.producer() as producer:
        producer.send(stage.topic, [Message(b"the route is there")])
        at = {"TIMER_DELIVER_MS": now_ms() + 8000}
        kept = [Message(f"kept {number}".encode(), timer=at) for number in range(2)]
        recalled = Message(b"taken back", timer=at)
        acks = producer.send(stage.topic, [kept[0], recalled, kept[1]])
        version, topic, broker, when, unique_key = parts_of(acks[1]["recall_handle"])
        assert (version, topic, broker, unique_key) == ("v1", stage.topic, acks[1]["broker"], acks[1]["msg_id"])
        assert at["TIMER_DELIVER_MS"] - 1000 < int(when) <= at["TIMER_DELIVER_MS"]
        assert producer.recall(stage.topic, acks[1]["recall_handle"]) == acks[1]["msg_id"]
        assert producer.recall(stage.topic, acks[1]["recall_handle"]) == acks[1]["msg_id"], "the second time"
        came = consumer.wait_for_each(kept)
        assert min(one["store_at_ms"] for one in came) >= at["TIMER_DELIVER_MS"]
        # A later message passes the one that does not come.
        [after] = [Message(b"after it", timer={"TIMER_DELAY_MS": 1500})]
        producer.send(stage.topic, [after])
        consumer.wait_for_each([after, *kept])
        assert recalled.sha256 not in {one["body_sha256"] for one in consumer.received}


@pytest.mark.at_once
@only_java_5
def test_what_cannot_be_taken_back(kind: str, stage: Stage) -> None:
    stage.create_topic()
    other = stage.create_topic(f"{stage.topic}_other")
    message = Message(b"comes", timer={"TIMER_DELAY_MS": 10_000})
    soon = Message(b"soon", timer={"TIMER_DELAY_MS": 1000})
    with stage.consumer() as consumer, stage.producer() as producer:
        [gone, ack] = producer.send(stage.topic, [soon, message])
        _, topic, broker, when, unique_key = parts_of(ack["recall_handle"])
        at = int(when)

        def refusal(handle: str, of: str = topic) -> tuple[int | None, str]:
            with pytest.raises(ClientFailed) as failed:
                producer.recall(of, handle)
            return failed.value.code, str(failed.value).splitlines()[0]

        # The client looks into a handle itself, to find the broker.
        code, text = refusal("damaged")
        assert (code, "recall handle is invalid" in text) == (-1, True), text
        code, text = refusal(handle_of(topic, broker, at, unique_key), of=other)
        assert (code, "topic not match" in text) == (604, True), text
        code, text = refusal(handle_of(topic, broker, at + 4 * DAY_S * 1000, unique_key))
        assert (code, "timestamp invalid" in text) == (604, True), text
        code, text = refusal(handle_of(topic, broker, at - DAY_S * 1000, unique_key))
        assert (code, "timestamp invalid" in text) == (604, True), text
        code, text = refusal(handle_of(topic, "no-such-broker", at, unique_key))
        assert code != 0, text
        # The broker cannot look a message up by an id alone, so one that never was can be recalled.
        assert producer.recall(topic, handle_of(topic, broker, at, "7F0000010000000000000000AAAA0000")) == (
            "7F0000010000000000000000AAAA0000"
        )
        consumer.wait_for_each([message, soon], READY_S)
        code, text = refusal(gone["recall_handle"])
        assert (code, "timestamp invalid" in text) == (604, True), text


@pytest.mark.own
@pytest.mark.at_once
@only_java_5
def test_a_crash_loses_no_message_with_a_time_and_brings_none_back(kind: str, stage: Stage) -> None:
    with stage.on_own_server() as (stage, server):
        stage.create_topic()
        timer = {"TIMER_DELIVER_MS": now_ms() + 15_000}
        messages = {kind: [Message(f"{kind} {n}".encode(), timer=timer) for n in range(5)] for kind in KINDS_AND_PYTHON}
        for kind, its in messages.items():
            stage.send(its, kind=kind)
        with stage.producer() as producer:
            producer.send(stage.topic, [Message(b"the route is there")])
            at_ms = now_ms() + 15_000
            recalled = Message(b"taken back", timer={"TIMER_DELIVER_MS": at_ms})
            [ack] = producer.send(stage.topic, [recalled])
            producer.recall(stage.topic, ack["recall_handle"])
        server.kill()
        server.start()
        with stage.consumer() as consumer:
            came = consumer.wait_for_each([message for its in messages.values() for message in its])
            assert all(one["store_at_ms"] >= timer["TIMER_DELIVER_MS"] for one in came)
            late = Message(b"after all", timer={"TIMER_DELIVER_MS": at_ms + 500})
            stage.send([late])
            consumer.wait_for_each([late, *(message for its in messages.values() for message in its)])
            assert recalled.sha256 not in {one["body_sha256"] for one in consumer.received}
