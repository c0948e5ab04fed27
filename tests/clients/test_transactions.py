"""Transactions of every client: commit, roll back, checks by the broker, producers and brokers that die.

Consumers see exactly what was committed, once. Apache's broker checks again a transaction that was decided less than
`transactionOpBatchInterval` ago, commits as often as a producer commits, and checks a group without a member in vain.
Tests that need a better broker are marked `own`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from appliance.engine.protocol.message_id import decode_offset_id
from appliance.engine.protocol.properties import decode_properties
from tests.clients.agents import Agent, Json, Producer, PushConsumer
from tests.clients.conftest import AGAINST, newest_first
from tests.clients.messages import Message, assert_same, by_queue_and_offset, rich
from tests.clients.refusals import Refusals
from tests.clients.stage import JAVA, JAVA_AND_GO, JAVA_GO_AND_PYTHON, READY_S, Stage, Target
from tests.clients.test_trace import traced
from tests.support.apache import ApacheRocketMQ
from tests.support.directories import shared_directory
from tests.support.server import Server
from tests.support.waiting import wait_for

java_go_and_python = pytest.mark.parametrize("kind", JAVA_GO_AND_PYTHON)
java = pytest.mark.parametrize("kind", JAVA)

HALF_TOPIC, DISCARDED_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMITTED, TRANSACTION_BITS = 8, 0xC
CHECKS = 8
#: Apache's needs twice the 3 s that its op messages may wait.
FIRST_CHECK_MS, CHECK_EVERY_MS = (1500, 2000) if AGAINST == "rocketbox" else (6000, 5000)
SETTINGS = {
    "transactionTimeOut": FIRST_CHECK_MS,
    "transactionCheckInterval": CHECK_EVERY_MS,
    "transactionCheckMax": CHECKS,
}
#: Until the broker has asked `CHECKS` times, on a busy machine.
ASKED_S = 90.0


def environment(settings: dict[str, int]) -> dict[str, str]:
    return {f"ROCKETBOX_BROKER_{name.upper()}": str(value) for name, value in settings.items()}


@pytest.fixture(scope="module")
def quick(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A server that checks transactions soon."""
    scratch = shared_directory(request, "transactions")
    if AGAINST == "rocketbox":
        with Server(scratch / "data", environment=environment(SETTINGS)) as server:
            yield server
    else:
        with ApacheRocketMQ(AGAINST.removeprefix("apache-"), heap="256m", config=SETTINGS) as apache:
            yield apache


def message(body: str, local: str = "commit", check: str = "", **more: Any) -> Message:
    """Return a message with the answers that its producer's listener will give: see Transactions.java,
    transactions.go. check: rolled back or committed as by `local` unless given, since a half whose producer got no
    answer in time was sent twice, and the broker asks about one of the two."""
    check = check or ("rollback" if local == "rollback" else "commit")
    properties = {"local": local, "check": check} | more.pop("properties", {})
    return Message(body.encode(), properties=properties, **more)


def unknown(body: str, check: str = "commit", **more: Any) -> Message:
    return message(body, "unknown", check, **more)


def asked_of_either(heir: Producer, doomed: Producer, message: Message) -> list[Json]:
    """Wait for questions about a half message. On a busy machine the broker may ask the producer that sent it, and have
    its decision, before that is killed."""
    asks: list[Json] = []

    def asked() -> bool:
        asks[:] = heir.checks_of(message) + doomed.checks_of(message)
        return bool(asks)

    wait_for(asked, "a question", ASKED_S)
    return asks


@contextmanager
def transactional(stage: Stage, group: str = "", agent: Agent | None = None, **arguments: Any) -> Iterator[Producer]:
    """A transactional producer of the stage's kind."""
    arguments.setdefault("namesrv", stage.target.namesrv)
    agent = agent or stage.agent
    with agent.producer(group=group or f"p_{stage.topic}", transactional=True, **arguments) as producer:
        yield producer


def send(producer: Producer, topic: str, *messages: Message) -> list[Json]:
    results = producer.send(topic, messages, how="transaction")
    assert [result["status"] for result in results] == ["SEND_OK"] * len(messages)
    return results


def came(consumer: PushConsumer, *messages: Message, seconds: float = READY_S) -> list[Json]:
    """Return the deliveries in the order of `messages`. These and no other messages came, each half message once. Of
    one whose producer got no answer in time there are two, with one id."""
    deliveries = by_queue_and_offset(consumer.wait_for_all(messages, seconds)).values()
    found = sorted(deliveries, key=lambda one: one["prepared_offset"])  # the last is the one that was acknowledged
    by_body = {one["body_sha256"]: one for one in found}
    assert by_body.keys() == {message.sha256 for message in messages}
    assert len({(one["body_sha256"], one["msg_id"]) for one in found}) == len(messages), found
    places = [one["prepared_offset"] for one in found if one["prepared_offset"]]  # 0: it waited for its time, too
    assert len({*places}) == len(places), f"a half message came twice: {found}"
    for one in messages:
        assert_same(one, by_body[one.sha256])
    return [by_body[one.sha256] for one in messages]


def rounds_passed(producer: Producer, topic: str) -> Message:
    """Wait until the broker has asked about a message that is younger than all others, so that it has long asked about
    those, were it to ask; that message is rolled back."""
    clock = unknown("the clock of this test", "unknown rollback")
    send(producer, topic, clock)
    producer.wait_for_checks(clock, 2, ASKED_S)
    return clock


def asked_until_told(producer: Producer, topic: str, *messages: Message) -> list[list[Json]]:
    """Return the questions about each. Once all have their answers, further rounds bring no more.

    A client on a busy machine answers after the next round has begun: a test knows only how many came at least."""
    rounds_passed(producer, topic)
    asked = [producer.checks_of(one) for one in messages]
    rounds_passed(producer, topic)
    assert [producer.checks_of(one) for one in messages] == asked, "checked after its answer"
    return asked


def at_least(asked: list[list[Json]], *least: int) -> bool:
    return all(len(asks) >= few for asks, few in zip(asked, least, strict=True))


@pytest.mark.at_once
@java_go_and_python
def test_committed_messages_come_once_with_all_they_had(kind: str, stage: Stage) -> None:
    stage.create_topic(queues=4)
    messages = rich(14, flags=stage.agent.has_flags)
    with stage.consumer() as consumer, transactional(stage) as producer:
        acks = send(producer, stage.topic, *messages)
        executed = producer.wait_for_executed(14)
        received = came(consumer, *messages)
        # A client that was put off for longer than FIRST_CHECK_MS between half and commit is asked, rightly.
        asked_until_told(producer, stage.topic, *messages)
        came(consumer, *messages)
    assert len(executed) == 14
    for ack, ran, one in zip(acks, executed, received, strict=True):
        assert one["topic"] == stage.topic
        assert one["msg_id"] == ack["msg_id"] == ran["transaction_id"]
        if kind != "java-4.9.8" or AGAINST == "rocketbox":  # a 4.9 client tells what a broker of 5.x says
            assert ack["transaction_id"] == ack["msg_id"]
        assert one["queue_id"] == ack["queue_id"]
        assert one["sys_flag"] & TRANSACTION_BITS == COMMITTED
        if kind in ("go", "python"):  # Java's result of a transaction does not tell where its half is
            assert one["prepared_offset"] == decode_offset_id(ack["offset_msg_id"])[2]
        assert one["prepared_offset"] < one["physical_offset"]
        assert one["properties"]["REAL_TOPIC"] == stage.topic
        assert one["properties"]["TRAN_MSG"] == "true"
        assert one["reconsume_times"] == 0


@pytest.mark.at_once
@java_go_and_python
def test_what_was_rolled_back_never_comes_and_nobody_is_asked(kind: str, stage: Stage) -> None:
    stage.create_topic()
    no, yes = [message(f"no {n}", "rollback") for n in range(3)], [message(f"yes {n}") for n in range(2)]
    with stage.consumer() as consumer, transactional(stage) as producer:
        began = time.monotonic()
        send(producer, stage.topic, no[0], yes[0], no[1], yes[1], no[2])
        sending_took = time.monotonic() - began
        came(consumer, *yes)
        asked = asked_until_told(producer, stage.topic, *no, *yes)
        came(consumer, *yes)
    # A client that was put off for longer is asked, rightly.
    assert sending_took > FIRST_CHECK_MS / 1000 or not any(asked)


@pytest.mark.at_once
@java_go_and_python
def test_the_broker_asks_until_it_is_told(kind: str, stage: Stage) -> None:
    stage.create_topic(queues=2)
    properties = {"number": "7", "città": "Zürich"}
    commit, second = unknown("at once", tags="TagA"), unknown("at the second", "unknown commit", properties=properties)
    rollback, late = unknown("no", "rollback"), unknown("no, at the second", "unknown rollback")
    flag = 5 if AGAINST == "rocketbox" and stage.agent.has_flags else 0  # the half that Apache puts back has none
    large = Message(b"large" * 4000, keys=("k1", "k2"), flag=flag, properties={"local": "unknown", "check": "commit"})
    with stage.consumer() as consumer, transactional(stage) as producer:
        acks = send(producer, stage.topic, commit, second, rollback, late, large)
        received = came(consumer, commit, second, large, seconds=ASKED_S)
        producer.wait_for_checks(late, 2, ASKED_S)
        asked = asked_until_told(producer, stage.topic, commit, second, rollback, late, large)
        came(consumer, commit, second, large)
    assert at_least(asked, 1, 2, 1, 2, 1), asked
    for sent, ack, asks in zip((commit, second, rollback, late, large), acks, asked, strict=True):
        # Java hands questions to its listener with two threads: those of two rounds may change places.
        numbers = sorted(int(ask["properties"]["TRANSACTION_CHECK_TIMES"]) for ask in asks)
        assert numbers == list(range(1, len(asks) + 1))
        for ask in asks:
            assert_same(sent, ask)
            assert ask["topic"] == stage.topic
            assert ask["queue_id"] == ack["queue_id"]
            assert ask["properties"]["UNIQ_KEY"] == ack["msg_id"]
            assert ask["properties"]["PGROUP"] == f"p_{stage.topic}"
            assert ask["transaction_id"] == ack["msg_id"]
    for one, ack in zip(received, (acks[0], acks[1], acks[4]), strict=True):
        assert one["msg_id"] == ack["msg_id"]
        assert one["queue_id"] == ack["queue_id"]
        assert one["sys_flag"] & TRANSACTION_BITS == COMMITTED


@pytest.mark.at_once
@pytest.mark.parametrize("kind", [*JAVA, "python"])
def test_a_listener_that_throws_or_says_nothing_is_asked_again(kind: str, stage: Stage) -> None:
    stage.create_topic()
    throws, silent = message("throws", "throw", "throw commit"), message("silent", "null", "throw rollback")
    nothing = message("nothing", "null", "commit")
    with stage.consumer() as consumer, transactional(stage) as producer:
        send(producer, stage.topic, throws, silent, nothing)
        came(consumer, nothing, throws, seconds=ASKED_S)
        producer.wait_for_checks(silent, 2, ASKED_S)
        assert at_least(asked_until_told(producer, stage.topic, throws, silent, nothing), 2, 2, 1)
        came(consumer, nothing, throws)


@pytest.mark.at_once
@java_go_and_python
def test_another_of_the_group_decides_for_a_producer_that_was_killed(kind: str, stage: Stage) -> None:
    stage.create_topic()
    messages = [message("lives", "hang"), message("goes", "hang", "rollback"), message("lives, too", "hang")]
    stage.create_topic(f"{stage.topic}_other")
    with stage.consumer() as consumer, closing(stage.another(kind)) as doomed, transactional(stage) as heir:
        send(heir, f"{stage.topic}_other", message("known to the broker"))
        with transactional(stage, agent=doomed) as producer:
            # One by one: the first looks for the route, and Java gives up a look beside that one after 3 s.
            for i, one in enumerate(messages, 1):
                producer.begin_transaction(stage.topic, one)
                producer.wait_for_executed(i)
            doomed.kill()
            producer.abandon()
        for one in messages:
            asked_of_either(heir, producer, one)
        assert heir.checked
        came(consumer, messages[0], messages[2])
        rounds_passed(heir, stage.topic)
        came(consumer, messages[0], messages[2])


@pytest.mark.at_once
@pytest.mark.parametrize(
    ("kind", "other"),
    [(kind, other) for one in JAVA_AND_GO for kind, other in (("python", one), (one, "python"))],
)
def test_a_client_of_another_language_decides_for_a_producer_that_was_killed(
    kind: str, other: str, stage: Stage
) -> None:
    """The half messages are of one language, and the producer that is left in their group of another. It reads what was
    sent; also what it sends itself meanwhile ends as it says."""
    stage.create_topic()
    topic = stage.create_topic(f"{stage.topic}_other")
    heir_client = stage.client(other)
    messages = rich(7, flags=stage.agent.has_flags)
    halves = [
        replace(one, properties=one.properties | {"local": "hang", "check": check})
        for one, check in zip(messages, ("commit", "rollback") * 4, strict=False)
    ]
    committed, own = halves[::2], message("of the heir")
    with (
        stage.consumer() as consumer,
        closing(stage.another(kind)) as doomed,
        transactional(stage, agent=heir_client) as heir,
    ):
        send(heir, topic, message("known to the broker"))
        with transactional(stage, agent=doomed) as producer:
            for number, one in enumerate(halves, 1):
                producer.begin_transaction(stage.topic, one)
                producer.wait_for_executed(number)
            ran = producer.executed
            doomed.kill()
            producer.abandon()
        send(heir, stage.topic, own)
        for one, what in zip(halves, ran, strict=True):
            [ask, *_] = asked_of_either(heir, producer, one)
            assert_same(one, ask)
            assert (ask["topic"], ask["transaction_id"]) == (stage.topic, what["transaction_id"])
        assert heir.checked
        came(consumer, *committed, own)
        rounds_passed(heir, stage.topic)
        came(consumer, *committed, own)


@pytest.mark.own
@pytest.mark.at_once
@java_go_and_python
def test_a_group_without_a_member_is_asked_when_one_comes(kind: str, stage: Stage) -> None:
    """And what it could not be asked meanwhile does not count as a check."""
    stage.create_topic()
    # Not before its producer was killed; the rounds below take longer.
    later = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "6"}
    first = message("decided by who came later", "hang", "unknown unknown commit", properties=later)
    with stage.consumer() as consumer, closing(stage.another(kind)) as doomed:
        with transactional(stage, agent=doomed) as producer:
            producer.begin_transaction(stage.topic, first)
            producer.wait_for_executed(1)
            doomed.kill()
            producer.abandon()
        with transactional(stage, group=f"else_{stage.topic}") as other:  # (CHECKS + 1) rounds
            send(other, stage.topic, unknown("who counts the rounds", "unknown"))
            wait_for(lambda: discarded(stage, b"who counts the rounds"), "it was asked in vain", ASKED_S, every=0.2)
        assert discarded(stage, first.body) == []
        with transactional(stage) as heir:
            send(heir, stage.create_topic(f"{stage.topic}_other"), message("known to the broker"))
            asks = heir.wait_for_checks(first, 3, ASKED_S)
            came(consumer, first)
        assert [ask["properties"]["TRANSACTION_CHECK_TIMES"] for ask in asks] == ["1", "2", "3"]


@pytest.mark.at_once
@java_go_and_python
def test_a_decision_that_was_lost_on_its_way_is_asked_for(kind: str, stage: Stage) -> None:
    stage.create_topic()
    commit, rollback = message("lost commit"), message("lost rollback", "rollback", "rollback")
    lose = {"8": 0, "12": 0}
    with (
        Refusals(
            stage.target.namesrv,
            stage.target.broker,
            times=lambda asked: (
                lose[asked["extFields"]["commitOrRollback"]]
                if asked["code"] == 37 and asked["extFields"]["fromTransactionCheck"] == "false"
                else 1
            ),
        ) as between,
        stage.consumer() as consumer,
        transactional(stage, namesrv=between.namesrv) as producer,
    ):
        send(producer, stage.topic, commit, rollback)
        wait_for(lambda: len(between.tampered) == 2, "two decisions were lost")
        came(consumer, commit, seconds=ASKED_S)
        producer.wait_for_checks(rollback, 1, ASKED_S)
        lose |= {"0": 1}
        assert at_least(asked_until_told(producer, stage.topic, commit, rollback), 1, 1)
        came(consumer, commit)


@pytest.mark.own
@pytest.mark.at_once
@java_go_and_python
def test_a_decision_that_comes_twice_counts_once(kind: str, stage: Stage) -> None:
    """The answer to a question, too."""
    stage.create_topic()
    first, asked_for, gone = message("committed"), unknown("committed when asked"), message("gone", "rollback")
    with (
        Refusals(
            stage.target.namesrv, stage.target.broker, times=lambda asked: 3 if asked["code"] == 37 else 1
        ) as between,
        stage.consumer() as consumer,
        transactional(stage, namesrv=between.namesrv) as producer,
    ):
        send(producer, stage.topic, first, asked_for, gone)
        came(consumer, first, asked_for, seconds=ASKED_S)
        # On a busy machine a decision may come later than the first question.
        [_, asked, _] = asked_until_told(producer, stage.topic, first, asked_for, gone)
        came(consumer, first, asked_for)
        assert asked
        assert len(between.tampered) >= 5
        assert len(stage.stored(stage.topic)) == len(by_queue_and_offset(consumer.received)), "each of them has come"


@pytest.mark.own
@pytest.mark.at_once
@pytest.mark.parametrize("kind", ["go"])
def test_a_committed_message_with_a_level_is_delayed_from_its_commit_on(kind: str, stage: Stage) -> None:
    """Java's transactional producer takes the level away, Go's leaves it; Apache then delays the half."""
    stage.create_topic()
    delayed, asked_for = message("delayed", delay=2), unknown("delayed when asked", delay=1)
    with stage.consumer() as consumer, transactional(stage) as producer:
        send(producer, stage.topic, delayed, asked_for)
        [executed, _] = producer.wait_for_executed(2)
        [late, later] = came(consumer, delayed, asked_for, seconds=ASKED_S)
        [ask, *_] = producer.checks_of(asked_for)
    assert late["store_at_ms"] >= executed["at_ms"] + 5000 - 20
    assert later["store_at_ms"] >= ask["at_ms"] + 1000 - 20
    for one in (late, later):
        assert one["sys_flag"] & TRANSACTION_BITS == COMMITTED


@pytest.mark.at_once
@java_go_and_python
def test_the_immunity_that_a_message_asks_for(kind: str, stage: Stage) -> None:
    """Longer than the broker's own; and -1 is the broker's own."""
    stage.create_topic()
    seconds = 4 if AGAINST == "rocketbox" else 12
    immune = unknown("immune", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": str(seconds)})
    usual = unknown("as the broker says", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"})
    with stage.consumer() as consumer, transactional(stage) as producer:
        send(producer, stage.topic, immune, usual)
        came(consumer, immune, usual, seconds=ASKED_S)
        [asked, *_] = producer.checks_of(immune)
        [asked_first, *_] = producer.checks_of(usual)
    assert asked["at_ms"] >= asked["born_at_ms"] + seconds * 1000
    assert asked_first["at_ms"] >= asked_first["born_at_ms"] + FIRST_CHECK_MS


@pytest.mark.at_once
@java_go_and_python
def test_what_nobody_decides_is_put_aside_after_the_last_check(kind: str, stage: Stage) -> None:
    stage.create_topic()
    undecided = unknown("never decided", "unknown", tags="TagA", keys=("never",))
    with stage.consumer() as consumer, transactional(stage) as producer:
        [ack] = send(producer, stage.topic, undecided)
        [record] = wait_for(lambda: discarded(stage, undecided.body, ack), "it was put aside", 3 * ASKED_S, every=0.2)
        assert consumer.received == []
        asks = producer.wait_for_checks(undecided, CHECKS, ASKED_S)
    assert len(asks) == CHECKS
    properties = decode_properties(record.properties)
    assert properties["REAL_TOPIC"] == stage.topic
    assert properties["TAGS"] == "TagA"
    assert properties["KEYS"] == "never"
    assert properties["UNIQ_KEY"] == ack["msg_id"]
    assert properties["PGROUP"] == f"p_{stage.topic}"
    assert properties["TRANSACTION_CHECK_TIMES"] == str(CHECKS)


def discarded(stage: Stage, body: bytes, ack: Json | None = None) -> list[Any]:
    found = [record for record in stage.stored(DISCARDED_TOPIC) if record.body == body]
    mine = [record for record in found if decode_properties(record.properties)["REAL_TOPIC"] == stage.topic]
    return [
        record for record in mine if ack is None or decode_properties(record.properties)["UNIQ_KEY"] == ack["msg_id"]
    ]


@pytest.mark.at_once
@java_go_and_python
def test_transactions_within_a_namespace(kind: str, stage: Stage) -> None:
    """Go's check-back knows no namespaces."""
    namespace = "MQ_INST_1"
    topic = f"{namespace}%{stage.topic}"
    stage.create_topic()
    stage.create_topic(topic)
    inside = message("inside")
    asked_for = unknown("inside, when asked") if kind != "go" else message("inside, too")
    with stage.consumer(namespace=namespace) as consumer, stage.consumer(agent=stage.client("go")) as outside:
        with transactional(stage, namespace=namespace) as producer:
            send(producer, stage.topic, inside, asked_for)
            came(consumer, inside, asked_for, seconds=ASKED_S)
        assert outside.received == []
    properties = [decode_properties(record.properties) for record in stage.stored(topic)]
    assert [one["REAL_TOPIC"] for one in properties] == [topic, topic]


@pytest.mark.at_once
@pytest.mark.parametrize("kind", ["cpp"])
def test_it_consumes_what_others_commit_and_nothing_else(kind: str, stage: Stage) -> None:
    """The C++ client's C interface has no transactional producer."""
    stage.create_topic()
    messages = {sender: [Message(f"{sender} {verdict}".encode(), properties={"local": verdict, "check": "rollback"})
                for verdict in ("rollback", "commit", "unknown")] for sender in JAVA_GO_AND_PYTHON}  # fmt: skip
    with stage.consumer() as consumer:
        for sender, its in messages.items():
            with stage.producer(sender, transactional=True) as producer:
                send(producer, stage.topic, *its)
                producer.wait_for_checks(its[2], 1, ASKED_S)
        consumer.wait_for(3, READY_S)
        bodies = sorted(one["body_sha256"] for one in consumer.received)
    assert bodies == sorted(its[1].sha256 for its in messages.values())


@pytest.mark.at_once
@java
def test_the_trace_of_a_transaction(kind: str, stage: Stage) -> None:
    """Its half is traced as one, and how each ended."""
    stage.create_topic()
    messages = [message("traced"), message("gone", "rollback"), unknown("asked")]
    with transactional(stage, trace=True) as producer:
        acks = send(producer, stage.topic, *messages)
        lines = [
            wait_for(lambda ack=ack: traced(stage, ack["msg_id"], "Pub", 1), "its half was traced", READY_S, every=0.2)
            for ack in acks
        ]
        ends = [
            wait_for(
                lambda ack=ack, count=count: traced(stage, ack["msg_id"], "EndTransaction", count),
                "its end was traced", ASKED_S, every=0.2,
            )
            for ack, count in zip(acks, (1, 1, 2), strict=True)
        ]  # fmt: skip
    half_ordinal = "1"
    for [line] in lines:
        assert half_ordinal in line
    states = [[(line[-2], line[-1]) for line in found] for found in ends]
    assert states[:2] == [[("COMMIT_MESSAGE", "false")], [("ROLLBACK_MESSAGE", "false")]]
    assert set(states[2]) == {("COMMIT_MESSAGE", "true"), ("UNKNOW", "false")}


@pytest.mark.own
@pytest.mark.at_once
@pytest.mark.parametrize("kind", newest_first(*JAVA_GO_AND_PYTHON))
def test_a_broker_that_is_killed_between_half_and_decision_asks_when_it_is_back(kind: str, stage: Stage) -> None:
    with stage.on_own_server(environment=environment(SETTINGS)) as (stage, server):
        stage.create_topic(queues=2)
        half, gone = message("half", "hang"), message("gone", "hang", "rollback")
        asked = unknown("asked once", "unknown commit")
        decided, dropped = message("decided"), message("dropped", "rollback")
        with stage.consumer() as consumer, transactional(stage) as producer:
            send(producer, stage.topic, asked)
            producer.wait_for_checks(asked, 1, ASKED_S)
            send(producer, stage.topic, decided, dropped)
            came(consumer, decided)  # what was decided before it is durable, or was never told
            producer.begin_transaction(stage.topic, half)
            producer.begin_transaction(stage.topic, gone)
            producer.wait_for_executed(5)
            server.kill()
            server.start()
            for one in (half, gone):
                producer.wait_for_checks(one, 1, ASKED_S)
            received = came_after_a_kill(consumer, decided, half, asked)
            rounds_passed(producer, stage.topic)
            assert came_after_a_kill(consumer, decided, half, asked) == received
            assert_not_asked_once_it_came(producer, consumer, decided)
        stored = [record.body for queue in range(2) for record in stage.stored(stage.topic, queue)]
        assert sorted(stored) == sorted(one.body for one in (decided, half, asked))


def assert_not_asked_once_it_came(producer: Producer, consumer: PushConsumer, *messages: Message) -> None:
    """On a busy machine a half may wait for its decision until the broker asks, but a decision is not forgotten."""
    for one in messages:
        first_ms = min(each["at_ms"] for each in consumer.received if each["body_sha256"] == one.sha256)
        assert [ask for ask in producer.checks_of(one) if ask["at_ms"] > first_ms] == []


def came_after_a_kill(consumer: PushConsumer, *messages: Message) -> set[str]:
    """The same as `came`; what was delivered before a kill may come again from the same place."""
    wanted = {one.sha256 for one in messages}
    wait_for(lambda: {one["body_sha256"] for one in consumer.received} >= wanted, "all that was committed", ASKED_S)
    places = {(one["queue_id"], one["queue_offset"], one["body_sha256"]) for one in consumer.received}
    assert len(places) == len(messages), places
    return {body for _, _, body in places}


@pytest.mark.own
@pytest.mark.at_once
@pytest.mark.parametrize("kind", ["java-5.3.3"])
def test_a_broker_that_is_killed_when_it_has_decided_neither_asks_nor_commits_again(kind: str, stage: Stage) -> None:
    """Each time it is killed as soon as an answer is there."""
    with stage.on_own_server(environment=environment(SETTINGS)) as (stage, server):
        stage.create_topic()
        yes = [message(f"yes {n}") for n in range(4)]
        no = [message(f"no {n}", "rollback", "rollback") for n in range(4)]
        with stage.consumer() as consumer, transactional(stage, retries=5) as producer:
            for number in range(4):
                send(producer, stage.topic, no[number], yes[number])
                consumer.wait_for(number + 1, ASKED_S)
                server.kill()
                server.start()
                wait_for(lambda: stage.committed(stage.topic) >= 0, "it serves", not_yet=(OSError,))
            rounds_passed(producer, stage.topic)
            came_after_a_kill(consumer, *yes)
            assert_not_asked_once_it_came(producer, consumer, *yes)
            assert [len(producer.checks_of(one)) <= 1 for one in no] == [True] * 4
        assert [record.body for record in stage.stored(stage.topic)] == [one.body for one in yes]


@pytest.mark.own
@pytest.mark.at_once
@pytest.mark.parametrize("kind", ["java-5.3.3"])
def test_fifteen_checks_as_the_broker_has_it_by_default(kind: str, stage: Stage) -> None:
    settings = {"transactionTimeOut": 200, "transactionCheckInterval": 400}
    with stage.on_own_server(environment=environment(settings)) as (stage, _):
        stage.create_topic()
        # The answer to the last question may come when a busy broker has put the half aside.
        late, never = unknown("late", "unknown " * 7 + "commit"), unknown("never", "unknown")
        with stage.consumer() as consumer, transactional(stage) as producer:
            send(producer, stage.topic, late, never)
            wait_for(lambda: discarded(stage, b"never"), "it was put aside", ASKED_S, every=0.1)
            came(consumer, late)
            assert len(producer.wait_for_checks(never, 15, ASKED_S)) == 15
            assert 8 <= len(producer.checks_of(late)) <= 15
        assert discarded(stage, b"late") == []


@pytest.mark.own
@pytest.mark.at_once
@pytest.mark.parametrize("kind", ["java-5.3.3", "go"])
def test_a_committed_message_with_a_time_waits_for_it(kind: str, stage: Stage) -> None:
    """Once it is committed, at once or when asked. Apache has the half wait."""
    stage.create_topic()
    timed, asked_for = message("timed", timer={"TIMER_DELAY_MS": 4000}), unknown("asked", timer={"TIMER_DELAY_MS": 500})
    gone = message("gone", "rollback", timer={"TIMER_DELAY_MS": 300})
    with stage.consumer() as consumer, transactional(stage) as producer:
        send(producer, stage.topic, gone, timed, asked_for)
        executed = producer.wait_for_executed(3)
        [late, later] = came(consumer, timed, asked_for, seconds=ASKED_S)
        [ask, *_] = producer.checks_of(asked_for)
    assert late["store_at_ms"] >= executed[1]["at_ms"] + 4000 - 20
    assert later["store_at_ms"] >= ask["at_ms"] + 500 - 20
    for one in (late, later):
        assert one["sys_flag"] & TRANSACTION_BITS == COMMITTED
