"""Message trace: clients send it to RMQ_SYS_TRACE_TOPIC, which is a topic like any other."""

from __future__ import annotations

import pytest

from appliance.engine.protocol.properties import decode_properties
from tests.clients.messages import Message
from tests.clients.stage import JAVA_GO_AND_PYTHON, READY_S, Stage
from tests.support.apache import ask
from tests.support.waiting import wait_for

TOPIC = "RMQ_SYS_TRACE_TOPIC"


@pytest.mark.at_once
@pytest.mark.parametrize("kind", JAVA_GO_AND_PYTHON)
def test_the_trace_of_a_message_that_failed_once(kind: str, stage: Stage) -> None:
    """One line when it was sent, two for each time a listener had it; keys find them by the message's id."""
    stage.create_topic()
    if kind == "go":  # it does not send where there is no topic yet; Java's trace makes it, as any first send does
        stage.send([Message(b"first")], kind="java-5.3.3", trace=True)
        wait_for(lambda: ask(stage.target.namesrv, 105, {"topic": TOPIC})[0]["code"] == 0, "a trace topic", READY_S)
    message = Message(b"traced", tags="apples", keys=("order-1",))
    with stage.consumer(trace=True, fail=1) as consumer:
        with stage.producer(trace=True) as producer:
            [ack] = producer.send(stage.topic, [message])
            lines = wait_for(
                lambda: traced(stage, ack["msg_id"], "Pub", 1), "its sending was traced", READY_S, every=0.2
            )
        consumer.wait_for(2, READY_S)
        before = wait_for(lambda: traced(stage, ack["msg_id"], "SubBefore", 2), "its start", READY_S, every=0.2)
        after = wait_for(lambda: traced(stage, ack["msg_id"], "SubAfter", 2), "its end", READY_S, every=0.2)
    [sent] = lines
    assert stage.topic in sent
    assert ack["offset_msg_id"] in sent
    assert all(stage.group in line for line in before)
    assert len(before) == len(after) == 2


def traced(stage: Stage, message_id: str, kind: str, count: int) -> list[list[str]]:
    """The lines of that kind on that message, as lists of fields, once there are so many. Source: TraceDataEncoder."""
    found = []
    for queue in range(8):
        for record in stage.stored(TOPIC, queue):
            if message_id in decode_properties(record.properties)["KEYS"].split():
                for line in record.body.decode().split("\x02"):
                    fields = line.split("\x01")
                    if fields[0] == kind and message_id in fields:
                        found.append(fields)
    return found if len(found) >= count else []
