"""Delayed sends of every client: due times, order, odd levels, from one client to another, over a crash."""

from __future__ import annotations

import time

import pytest

from tests.clients.messages import Message, assert_same
from tests.clients.stage import KINDS, KINDS_AND_PYTHON, LEVELS, Stage

every_kind = pytest.mark.parametrize("kind", KINDS)

LEVEL_MS = {1: 1000, 2: 2000, 18: 3000}
#: Later than this is a failure; less may be due to a busy machine.
LATE_MS = 30_000


def delayed(count: int, *levels: int) -> list[Message]:
    return [
        Message(f"level {level} number {number}".encode(), properties={"number": str(number)}, delay=level)
        for number in range(count)
        for level in levels
    ]


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_delayed_messages_come_when_they_are_due_in_the_order_of_their_level(kind: str, stage: Stage) -> None:
    stage.create_topic()
    messages = delayed(8, 2, 1)
    with stage.consumer() as consumer:
        with stage.producer() as producer:
            sent: dict[str, tuple[int, int]] = {}
            for message in messages:
                before = now_ms()
                [ack] = producer.send(stage.topic, [message])
                assert ack["status"] == "SEND_OK"
                sent[message.sha256] = (before, now_ms())
        came = consumer.wait_for_each(messages)
    by_body = {message.sha256: message for message in messages}
    order: dict[int, list[str]] = {1: [], 2: []}
    for one in sorted(came, key=lambda one: one["queue_offset"]):
        message = by_body[one["body_sha256"]]
        assert_same(message, one)
        assert one["topic"] == stage.topic
        before, after = sent[message.sha256]
        due = LEVEL_MS[message.delay]
        assert one["store_at_ms"] >= before + due, f"early by {before + due - one['store_at_ms']} ms"
        assert one["store_at_ms"] <= after + due + LATE_MS, f"late by {one['store_at_ms'] - after - due} ms"
        assert "DELAY" not in one["properties"]
        assert one["properties"]["REAL_TOPIC"] == stage.topic
        order[message.delay].append(one["body_sha256"])
    for level, bodies in order.items():
        assert bodies == [message.sha256 for message in messages if message.delay == level]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.at_once
@every_kind
def test_a_level_above_the_highest_counts_as_the_highest_and_one_below_1_as_none(kind: str, stage: Stage) -> None:
    stage.create_topic()
    far, negative = Message(b"far", delay=99), Message(b"negative", delay=-1)
    with stage.consumer() as consumer:
        before = now_ms()
        stage.send([far, negative])
        after = now_ms()
        last, first = sorted(consumer.wait_for_each([far, negative]), key=lambda one: -one["queue_offset"])
    assert (first["body_sha256"], last["body_sha256"]) == (negative.sha256, far.sha256)
    assert before <= first["store_at_ms"] <= after
    assert before + LEVEL_MS[18] <= last["store_at_ms"] <= after + LEVEL_MS[18] + LATE_MS


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_it_consumes_what_every_client_delayed(kind: str, stage: Stage) -> None:
    stage.create_topic(queues=2)
    messages = {
        sender: [Message(f"{sender} {number}".encode(), delay=1) for number in range(3)] for sender in KINDS_AND_PYTHON
    }
    with stage.consumer() as consumer:
        for sender, its in messages.items():
            stage.send(its, kind=sender)
        came = consumer.wait_for_each([message for its in messages.values() for message in its])
    assert {one["topic"] for one in came} == {stage.topic}


@pytest.mark.own
@pytest.mark.at_once
@pytest.mark.parametrize("kind", ["go"])
def test_a_crash_loses_no_delayed_message_of_any_client(kind: str, stage: Stage) -> None:
    with stage.on_own_server(environment={"ROCKETBOX_STORE_MESSAGE_DELAY_LEVEL": LEVELS}) as (stage, server):
        stage.create_topic()
        messages = {kind: [Message(f"{kind} {n}".encode(), delay=18) for n in range(5)] for kind in KINDS_AND_PYTHON}
        for kind, its in messages.items():
            stage.send(its, kind=kind)
        server.kill()
        server.start()
        with stage.consumer() as consumer:
            consumer.wait_for_each([message for its in messages.values() for message in its])
