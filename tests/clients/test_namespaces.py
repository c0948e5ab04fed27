"""Namespaces: clients put them before topics and groups; the broker passes them through, in retries, too."""

from __future__ import annotations

import pytest

from appliance.engine.protocol.properties import decode_properties
from tests.clients.conftest import wait_for_clients
from tests.clients.messages import Message, assert_same
from tests.clients.stage import JAVA_GO_AND_PYTHON, READY_S, Stage

MESSAGE = Message(b"inside", tags="apples", properties={"number": "1"})


@pytest.mark.at_once
@pytest.mark.parametrize("kind", [*JAVA_GO_AND_PYTHON, pytest.param("cpp", marks=pytest.mark.own)])
def test_retries_and_dead_letters_stay_in_the_namespace(kind: str, stage: Stage) -> None:
    """The C++ client's C interface knows none: its names are written out. It leaves out the topic when it sends back
    for the last time, over which Apache 5.3.3 fails."""
    namespace = "MQ_INST_1"
    topic, group = f"{namespace}%{stage.topic}", f"{namespace}%{stage.group}"
    stage.create_topic()
    stage.create_topic(topic)
    limits = {"next_level": -1} if kind in JAVA_GO_AND_PYTHON else {}
    if kind == "cpp":
        stage.create_group(group, retryMaxTimes=0)
    how = {"topic": topic, "group": group} if kind == "cpp" else {"namespace": namespace}
    with stage.consumer(**how, fail=1) as inside, stage.consumer(agent=stage.client("go")) as outside:
        with stage.producer(**({} if kind == "cpp" else {"namespace": namespace})) as producer:
            send = stage.topic if kind != "cpp" else topic
            producer.send(send, [MESSAGE])
        count = 1 if kind == "cpp" else 2
        came = inside.wait_for(count, READY_S)
        assert outside.received == [], "it left its namespace"
        if kind != "cpp":  # the one that comes next receives what was not committed
            retries = f"%RETRY%{group}"
            wait_for_clients(lambda: stage.committed(retries, group) == 1, "its retry is committed", READY_S)
    for one in came:
        assert_same(MESSAGE, one)
        assert one["topic"] == (topic if kind in ("go", "cpp") else stage.topic)
    assert [record.body for record in stage.stored(topic)] == [MESSAGE.body]
    if kind != "cpp":
        assert [one["reconsume_times"] for one in came] == [0, 1]
        [retried] = stage.stored(f"%RETRY%{group}")
        assert decode_properties(retried.properties)["RETRY_TOPIC"] == topic
        with stage.consumer(**how, **limits, fail=-1) as again:
            with stage.producer(namespace=namespace) as producer:
                producer.send(stage.topic, [Message(b"lost")])
            wait_for_clients(lambda: len(again.received) >= 1, "it came", READY_S)
            [dead] = stage.dead_letters(1, group)
        assert (dead.body, dead.topic) == (b"lost", f"%DLQ%{group}")
    else:
        [dead] = stage.dead_letters(1, group)
        assert (dead.body, dead.topic) == (MESSAGE.body, f"%DLQ%{group}")
    assert stage.stored(f"%RETRY%{stage.group}") == []
    assert stage.stored(f"%DLQ%{stage.group}") == []
