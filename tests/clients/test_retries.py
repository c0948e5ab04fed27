"""Consumers of every client that fail: again and again, to the dead letters, by the levels and limits they ask for."""

from __future__ import annotations

import contextlib
import itertools
import time

import pytest

from appliance.engine.protocol.properties import decode_properties
from tests.clients.agents import Json, PushConsumer
from tests.clients.conftest import wait_for_clients
from tests.clients.messages import Message, assert_same
from tests.clients.refusals import Refusals
from tests.clients.stage import JAVA, JAVA_GO_AND_PYTHON, KINDS, KINDS_AND_PYTHON, READY_S, Stage

every_kind = pytest.mark.parametrize("kind", KINDS)
#: Apache 5.3.3 fails over a message sent back for the last time without its topic, which the C++ client leaves out.
CPP_OWN = pytest.param("cpp", marks=pytest.mark.own)
java_go_and_python = pytest.mark.parametrize("kind", JAVA_GO_AND_PYTHON)

#: Ways in which a listener can fail. The C interface of the C++ client has one way only.
WAYS = [*((kind, how) for kind in JAVA_GO_AND_PYTHON for how in ("later", "throw")), ("cpp", "later")]

MESSAGE = Message(b"again", tags="apples", keys=("order-1",), properties={"number": "1", "city": "Z\u00fcrich"})


def times(consumer: PushConsumer) -> list[int]:
    return [one["reconsume_times"] for one in consumer.received]


def assert_at_least_between(came: list[Json], seconds: list[float]) -> None:
    """Each came at least so long after the one before."""
    for (one, next_one), least in zip(itertools.pairwise(came), seconds, strict=True):
        waited = (next_one["at_ms"] - one["at_ms"]) / 1000
        # The broker's clock starts when it stores what was sent back, the client's when the listener began.
        assert waited >= least, f"try {next_one['reconsume_times']} came after {waited:.3f} s"


@pytest.mark.at_once
@pytest.mark.parametrize(("kind", "how"), WAYS)
def test_what_fails_three_times_comes_three_times_more(kind: str, stage: Stage, how: str) -> None:
    stage.create_topic()
    with stage.consumer(fail=3, failing=how) as consumer:
        [ack] = stage.send([MESSAGE])
        came = consumer.wait_for(4, READY_S)
        time.sleep(1.5)  # a fifth would be here by then
        assert times(consumer) == [0, 1, 2, 3]
    assert_at_least_between(came, [1, 1, 1])
    for one in came:
        assert_same(MESSAGE, one)
        assert one["topic"] == stage.topic, "the listener sees another topic"
        assert one["properties"]["UNIQ_KEY"] == came[0]["properties"]["UNIQ_KEY"]
    for one in came[1:]:
        assert one["properties"]["RETRY_TOPIC"] == stage.topic
        assert one["properties"]["ORIGIN_MESSAGE_ID"] == came[1]["properties"]["ORIGIN_MESSAGE_ID"]
    if "offset_msg_id" in ack:
        assert came[3]["properties"]["ORIGIN_MESSAGE_ID"] == ack["offset_msg_id"]
    assert len(stage.stored(f"%RETRY%{stage.group}")) == 3
    assert stage.stored(f"%DLQ%{stage.group}") == []


@pytest.mark.at_once
@pytest.mark.parametrize("kind", [*JAVA_GO_AND_PYTHON, CPP_OWN])
def test_what_fails_always_becomes_a_dead_letter_after_sixteen_retries(kind: str, stage: Stage) -> None:
    stage.create_topic()
    with stage.consumer(fail=-1) as consumer:
        stage.send([MESSAGE])
        consumer.wait_for(17, READY_S + 20)
        [dead] = stage.dead_letters(1)
        time.sleep(1.5)
        assert times(consumer) == list(range(17))
    assert_at_least_between(consumer.received, [1] * 15 + [3])
    assert len(stage.stored(f"%DLQ%{stage.group}")) == 1
    assert dead.body == MESSAGE.body
    assert dead.reconsume_times == 17
    properties = decode_properties(dead.properties)
    assert properties["RETRY_TOPIC"] == stage.topic
    assert properties["UNIQ_KEY"] == consumer.received[0]["properties"]["UNIQ_KEY"]
    assert properties["ORIGIN_MESSAGE_ID"] == consumer.received[16]["properties"]["ORIGIN_MESSAGE_ID"]
    assert properties["TAGS"] == "apples"
    with stage.consumer(f"%DLQ%{stage.group}", f"{stage.group}_of_the_dead") as reader:
        [one] = reader.wait_for(1, READY_S)
        assert_same(MESSAGE, one)


@pytest.mark.at_once
@java_go_and_python
def test_a_maximum_of_the_clients_own_counts_and_not_that_of_the_group(kind: str, stage: Stage) -> None:
    stage.create_topic()
    stage.create_group(retryMaxTimes=1)
    with stage.consumer(fail=-1, max_reconsume=2) as consumer:
        stage.send([MESSAGE])
        consumer.wait_for(3, READY_S)
        [dead] = stage.dead_letters(1)
        time.sleep(1.5)
        assert times(consumer) == [0, 1, 2]
    assert dead.reconsume_times == 3


@pytest.mark.at_once
@pytest.mark.parametrize("kind", [CPP_OWN])
def test_the_maximum_of_the_group_counts_for_a_client_that_says_none(kind: str, stage: Stage) -> None:
    """Clients before 3.4.9 do not say theirs, and the C++ client calls itself 3.1.8."""
    stage.create_topic()
    stage.create_group(retryMaxTimes=2)
    with stage.consumer(fail=-1) as consumer:
        stage.send([MESSAGE])
        consumer.wait_for(3, READY_S)
        [dead] = stage.dead_letters(1)
        time.sleep(1.5)
        assert times(consumer) == [0, 1, 2]
    assert dead.reconsume_times == 3


@pytest.mark.at_once
@java_go_and_python
def test_level_minus_1_means_the_dead_letters_at_once(kind: str, stage: Stage) -> None:
    stage.create_topic()
    with stage.consumer(fail=-1, next_level=-1) as consumer:
        stage.send([MESSAGE])
        consumer.wait_for(1, READY_S)
        [dead] = stage.dead_letters(1)
        time.sleep(1.5)
        assert times(consumer) == [0]
    assert (dead.body, dead.reconsume_times) == (MESSAGE.body, 1)
    assert stage.stored(f"%RETRY%{stage.group}") == []


@pytest.mark.at_once
@java_go_and_python
def test_a_level_that_the_listener_asks_for_counts(kind: str, stage: Stage) -> None:
    stage.create_topic()
    with stage.consumer(fail=2, next_level=2) as consumer:
        stage.send([MESSAGE])
        came = consumer.wait_for(3, READY_S)
    assert_at_least_between(came, [2, 2])
    assert times(consumer) == [0, 1, 2]


@pytest.mark.at_once
@pytest.mark.parametrize("kind", JAVA)
def test_a_consumer_finds_its_retry_topic_though_nobody_made_it(kind: str, stage: Stage) -> None:
    """As in production: its first heartbeat makes the topic, its next look at the name server, 1 s later, finds it."""
    stage.create_topic()
    with stage.agent.push(stage.target.namesrv, stage.topic, stage.group, fail=1, poll_ms=1000) as consumer:
        stage.send([MESSAGE])
        consumer.wait_for(1)

        def again() -> bool:
            consumer.rebalance()  # its own timer takes 20 s
            return times(consumer) == [0, 1]

        wait_for_clients(again, "it came again", seconds=READY_S)


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_one_that_fails_does_not_hold_up_the_others(kind: str, stage: Stage) -> None:
    """A message that was sent back counts as done: the group's offset passes it."""
    stage.create_topic()
    messages = [MESSAGE, *(Message(f"other {number}".encode()) for number in range(5))]
    with stage.consumer(fail=1) as consumer:

        def tries(message: Message) -> list[int]:
            return [one["reconsume_times"] for one in consumer.received if one["body_sha256"] == message.sha256]

        for message in messages:
            stage.send([message])
            if kind == "cpp":  # it sends back what follows a failure in the same pull, too: see the next test
                wait_for_clients(lambda m=message: tries(m) != [], "it came", READY_S)
        consumer.wait_for(12, READY_S)
        assert [tries(message) for message in messages] == [[0, 1]] * 6
    wait_for_clients(lambda: stage.committed(stage.topic) == 6, "the group has passed all six")


@pytest.mark.at_once
@pytest.mark.parametrize("kind", ["cpp"])
def test_what_the_cpp_client_sends_back_unseen_comes_again(kind: str, stage: Stage) -> None:
    """The library submits all that one pull found together, whatever the largest batch. Its C interface shows the
    listener one message at a time up to the first failure, and all of them are sent back then
    (ConsumeMessageConcurrentlyService::ConsumeRequest, MessageListenerInner::consumeMessage in CPushConsumer.cpp)."""
    stage.create_topic()
    messages = [Message(f"{number}".encode()) for number in range(3)]
    stage.send(messages)
    with stage.consumer(fail=1) as consumer:

        def tries(message: Message) -> list[int]:
            return [one["reconsume_times"] for one in consumer.received if one["body_sha256"] == message.sha256]

        wait_for_clients(lambda: all(len(tries(message)) >= 2 for message in messages), "each came twice", READY_S)
        found = [tries(message) for message in messages]
        assert found[0][0] == 0
        for later in found[1:]:
            assert later[0] >= 1
            assert later == list(range(later[0], later[0] + len(later)))
    wait_for_clients(lambda: stage.committed(stage.topic) == 3, "the group has passed all three")


@pytest.mark.at_once
@pytest.mark.parametrize("kind", JAVA)
def test_what_is_refused_when_it_is_sent_back_is_sent_to_the_retry_topic(kind: str, stage: Stage) -> None:
    """The consumer's own producer sends it then, to `%RETRY%group`, and the broker makes of that what 36 would have."""
    stage.create_topic()
    with (
        Refusals(stage.target.namesrv, stage.target.broker, {36}) as refusing,
        stage.consumer(fail=-1, max_reconsume=2, namesrv=refusing.namesrv) as consumer,
    ):
        [ack] = stage.send([MESSAGE])
        came = consumer.wait_for(3, READY_S)
        [dead] = stage.dead_letters(1)
        time.sleep(1.5)
        assert times(consumer) == [0, 1, 2]
    assert refusing.refusals == [36] * 3
    assert_at_least_between(came, [1, 1])
    for one in came:
        assert_same(MESSAGE, one)
        assert one["topic"] == stage.topic
    assert len(stage.stored(f"%RETRY%{stage.group}")) == 2
    assert len(stage.stored(f"%DLQ%{stage.group}")) == 1
    assert (dead.body, dead.reconsume_times) == (MESSAGE.body, 3)
    assert decode_properties(dead.properties)["RETRY_TOPIC"] == stage.topic
    assert decode_properties(dead.properties)["UNIQ_KEY"] == ack["msg_id"]


@pytest.mark.at_once
@pytest.mark.parametrize("kind", JAVA)
def test_of_a_batch_only_what_was_not_acknowledged_comes_again(kind: str, stage: Stage) -> None:
    """The listener takes four at a time and says it has done two of them (ackIndex)."""
    stage.create_topic()
    messages = [Message(f"{number}".encode()) for number in range(4)]
    stage.send(messages)
    with stage.consumer(batch=4, ack=1) as consumer:
        came = consumer.wait_for(6, READY_S)
        wait_for_clients(lambda: stage.committed(stage.topic) == 4, "the group has passed all four")
    assert len(consumer.received) == 6
    numbers = {message.sha256: number for number, message in enumerate(messages)}
    found = [(numbers[one["body_sha256"]], one["reconsume_times"]) for one in came]
    assert found[:4] == [(number, 0) for number in range(4)]
    assert sorted(found[4:]) == [(2, 1), (3, 1)]
    assert {one["topic"] for one in came} == {stage.topic}


@pytest.mark.at_once
@java_go_and_python
def test_groups_of_one_topic_have_limits_and_retries_of_their_own(kind: str, stage: Stage) -> None:
    """One group goes on trying messages that another gives up, and a third never fails. One retry topic has three
    queues while the group wants one by now."""
    stage.create_topic()
    names = [f"{stage.group}_{which}" for which in ("one", "three", "fine")]
    stage.create_group(names[1], retryQueueNums=3)
    with contextlib.ExitStack() as stack:
        arguments: list[Json] = [{"fail": -1, "max_reconsume": 1}, {"fail": -1, "max_reconsume": 3}, {}]
        consumers = []
        for name, conduct in zip(names, arguments, strict=True):
            # Not by the stage, which makes a retry topic of one queue.
            stage.create_topic(f"%RETRY%{name}", queues=3 if name == names[1] else 1)
            consumers.append(stack.enter_context(stage.agent.push(stage.target.namesrv, stage.topic, name, **conduct)))
        stage.send([Message(b"x")])
        consumers[1].wait_for(2, READY_S)
        stage.create_group(names[1], retryQueueNums=1)
        assert [letter.reconsume_times for letter in stage.dead_letters(1, names[0], READY_S)] == [2]
        assert [letter.reconsume_times for letter in stage.dead_letters(1, names[1], READY_S)] == [4]
    counted = [[one["reconsume_times"] for one in consumer.received] for consumer in consumers]
    assert counted == [[0, 1], [0, 1, 2, 3], [0]]
    assert stage.stored(f"%DLQ%{names[2]}") == []
