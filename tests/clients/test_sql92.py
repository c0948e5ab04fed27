"""SQL92 subscriptions of official clients: what comes, what is refused at the start, changes, retries, a restart.

The C++ client's C interface takes tags only: here it sends, and consumes beside the groups that filter.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence

import pytest

from appliance.engine import fastjson
from tests.clients.agents import ClientFailed, Json, PushConsumer
from tests.clients.messages import Message, assert_same
from tests.clients.stage import JAVA, JAVA_GO_AND_PYTHON, KINDS_AND_PYTHON, LEVELS, READY_S, Stage
from tests.support.apache import ask
from tests.support.waiting import wait_for

java = pytest.mark.parametrize("kind", JAVA)
java_go_and_python = pytest.mark.parametrize("kind", JAVA_GO_AND_PYTHON)

_NUMBERS = itertools.count()


def some(*properties: dict[str, str], tags: str = "apples") -> list[Message]:
    return [Message(f"{next(_NUMBERS)}".encode(), tags=tags, properties=one) for one in properties]


#: Price and region of what is sent; TAGS is a property like any other.
GOODS = [
    {"price": "5", "region": "north"},
    {"price": "12", "region": "south"},
    {"price": "20", "region": "north"},
    {"region": "south"},
    {"price": "cheap", "region": "east"},
]


def assert_exactly(consumer: PushConsumer, wanted: Sequence[Message]) -> list[Json]:
    """These have come, and nothing else comes."""
    came = consumer.wait_for(len(wanted), READY_S)
    time.sleep(1.0)
    came = consumer.received
    assert sorted(one["body_sha256"] for one in came) == sorted(message.sha256 for message in wanted)
    return came


def subscribe(stage: Stage, consumer: PushConsumer, **arguments: str) -> None:
    """Have a Java consumer subscribe otherwise, until the broker has it: a client that is sending another heartbeat
    leaves this one out until its next one, half a minute later. Subscribing again sends one at once."""
    [expression] = arguments.values()
    looks = itertools.count()

    def known() -> bool:
        if next(looks) % 50 == 0:
            consumer.subscribe(**arguments)
        header, body = ask(stage.target.broker, 203, {"consumerGroup": stage.group})
        return header["code"] == 0 and fastjson.loads(body)["subscriptionTable"][stage.topic]["subString"] == expression

    wait_for(known, "the broker knows the new expression", READY_S, every=0.1)


@pytest.mark.at_once
@java_go_and_python
def test_what_fulfils_an_expression_comes(kind: str, stage: Stage) -> None:
    stage.create_topic()
    goods = some(*GOODS)
    with stage.consumer(
        sql="price BETWEEN 10 AND 100 AND region IN ('north', 'south') AND TAGS = 'apples'"
    ) as consumer:
        stage.send(goods)
        came = assert_exactly(consumer, goods[1:3])
    [one] = [one for one in came if one["body_sha256"] == goods[1].sha256]
    assert_same(goods[1], one)


@pytest.mark.at_once
@java_go_and_python
def test_two_groups_with_different_expressions_and_one_with_tags(kind: str, stage: Stage) -> None:
    stage.create_topic()
    goods = some(*GOODS)
    with (
        stage.consumer(group=f"north_{stage.group}", sql="region = 'north'") as north,
        stage.consumer(group=f"south_{stage.group}", sql="region = 'south' OR price IS NULL") as south,
        stage.consumer(group=f"all_{stage.group}") as everything,
    ):
        stage.send(goods)
        assert_exactly(north, [goods[0], goods[2]])
        assert_exactly(south, [goods[1], goods[3]])
        assert_exactly(everything, goods)


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_messages_of_every_client_are_judged_alike(kind: str, stage: Stage) -> None:
    stage.create_topic()
    goods = some(*GOODS)
    with stage.consumer(agent=stage.client("java-5.3.3"), sql="region = 'north' AND price > 10") as consumer:
        stage.send(goods)
        assert_exactly(consumer, [goods[2]])


@pytest.mark.at_once
@java_go_and_python
def test_the_offset_moves_over_what_is_not_wanted(kind: str, stage: Stage) -> None:
    """A consumer that receives nothing still commits, or it would look through everything again."""
    stage.create_topic()
    goods = some(*[{"region": "east"}] * 40)
    with stage.consumer(sql="region = 'north'") as consumer:
        stage.send(goods)
        wait_for(lambda: stage.committed(stage.topic) == len(goods), "the offset is behind them", READY_S, every=0.2)
        assert consumer.received == []


@pytest.mark.at_once
@java
@pytest.mark.own
def test_an_expression_that_is_none_is_refused_at_the_start(kind: str, stage: Stage) -> None:
    """The exception that the client throws names line and column."""
    stage.create_topic()
    with (
        pytest.raises(ClientFailed) as failed,
        stage.consumer(sql="price > 5\n AND region IN ('north',") as _,
    ):
        pass
    assert failed.value.code == 23
    assert "(line 2, column " in str(failed.value)


@pytest.mark.at_once
@java
@pytest.mark.own
def test_another_expression_while_it_runs(kind: str, stage: Stage) -> None:
    """It counts for the first message behind it; Apache judges what comes to held pulls by the one before."""
    stage.create_topic()
    first, second, third = (some(*GOODS) for _ in range(3))
    with stage.consumer(sql="region = 'north'") as consumer:
        stage.send(first)
        assert_exactly(consumer, [first[0], first[2]])
        subscribe(stage, consumer, sql="region = 'south'")
        stage.send(second)
        assert_exactly(consumer, [first[0], first[2], second[1], second[3]])
        subscribe(stage, consumer, expression="apples")
        stage.send(third)
        assert_exactly(consumer, [first[0], first[2], second[1], second[3], *third])


@pytest.mark.at_once
@java_go_and_python
def test_what_fails_comes_again_whatever_the_expression_says(kind: str, stage: Stage) -> None:
    stage.create_topic()
    goods = some(*GOODS)
    with stage.consumer(sql="region = 'north' AND price > 10", fail=2) as consumer:
        stage.send(goods)
        came = consumer.wait_for(3, READY_S)
        assert [one["reconsume_times"] for one in came] == [0, 1, 2]
        assert {one["body_sha256"] for one in came} == {goods[2].sha256}


@pytest.mark.at_once
@java
def test_a_delayed_message_is_judged_when_it_comes(kind: str, stage: Stage) -> None:
    stage.create_topic()
    wanted = Message(b"later", properties={"region": "north"}, delay=1)
    other = Message(b"not at all", properties={"region": "south"}, delay=1)
    with stage.consumer(sql="region = 'north'") as consumer:
        stage.send([wanted, other])
        assert_exactly(consumer, [wanted])


@pytest.mark.own
@pytest.mark.at_once
@java
def test_a_restart_keeps_what_groups_filter_by(kind: str, stage: Stage) -> None:
    with stage.on_own_server() as (stage, server):
        stage.create_topic()
        first, second = some(*GOODS), some(*GOODS)
        with stage.consumer(sql="region = 'north'") as consumer:
            stage.send(first)
            assert_exactly(consumer, [first[0], first[2]])
            server.stop()
            path = server.data_dir / "store" / "config" / "consumerFilter.json"
            kept = json.loads(path.read_text())["filterDataByTopic"][stage.topic]["groupFilterData"][stage.group]
            assert (kept["expression"], kept["expressionType"]) == ("region = 'north'", "SQL92")
            server.start()
            wait_for(lambda: stage.send(second), "the producer sends again", READY_S, not_yet=(ClientFailed,))
            wanted = {m.sha256 for m in (first[0], first[2], second[0], second[2])}
            wait_for(lambda: {one["body_sha256"] for one in consumer.received} >= wanted, "all that it wants", READY_S)
            time.sleep(1.0)
            assert {one["body_sha256"] for one in consumer.received} == wanted


@pytest.mark.own
@pytest.mark.at_once
@java
def test_retries_may_be_judged_again(kind: str, stage: Stage) -> None:
    """filterSupportRetry: a message that failed does not come again once the group wants others."""
    environment = {
        # So long may it take until the broker knows the other subscription.
        "ROCKETBOX_STORE_MESSAGE_DELAY_LEVEL": LEVELS.replace("1s", "20s"),
        "ROCKETBOX_BROKER_FILTER_SUPPORT_RETRY": "true",
    }
    with stage.on_own_server(environment=environment) as (stage, _):
        stage.create_topic()
        north, south = some({"region": "north"}), some({"region": "south"})
        with stage.consumer(sql="region IS NOT NULL", fail=1) as consumer:
            stage.send([*north, *south])
            consumer.wait_for(2, READY_S)
            subscribe(stage, consumer, sql="region = 'south'")
            consumer.wait_for(3, READY_S)
            time.sleep(2.0)  # the other one was sent back within a moment of it
            again = consumer.received[2:]
            assert {one["body_sha256"] for one in again} == {south[0].sha256}
