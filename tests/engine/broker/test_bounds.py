"""How much one peer can make the broker keep: each bound with an honest client below it and a stranger beyond."""

from __future__ import annotations

import itertools
import json
import struct
import time
from contextlib import suppress

import pytest

from appliance.engine.broker import config_table, heartbeat_bounds, long_polling, queue_locks
from appliance.engine.broker.processors import client as client_processor
from appliance.engine.broker.processors import consumer as consumer_processor
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.command import RemotingCommand, encode_command
from appliance.engine.protocol.names import CLIENT_ID_MAX_LENGTH
from tests.support.engine import Peer, pull_fields, send_fields, start_engine
from tests.support.fakes import FakeConnection

from .conftest import consumer, subscription

ERROR, BUSY = ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY


def refused(answer, code, words):
    assert (answer.code, words in (answer.remark or "")) == (code, True), answer


# --- heartbeats


def test_500_new_groups_are_made_in_slices_and_answered_at_the_end(desk):
    """No slice makes more than a few, so that the I/O thread is never away for long."""
    names = [f"g{number}" for number in range(500)]
    body = json.dumps({"clientID": "c", "consumerDataSet": [consumer(name, "T") for name in names]}).encode()
    made = []
    before = len(desk.groups.all())

    class Counting(list):
        def append(self, job):
            super().append(lambda: (job(), made.append(len(desk.groups.all()) - before)))

    desk.later = Counting()
    desk.dispatcher._handlers[34][0].__self__._later = desk.later.append
    answer = desk.ask(34, body=body)
    assert answer.code == 0
    assert made[-1] == 500
    steps = [after - at for at, after in itertools.pairwise(made)]
    assert max(steps) <= 10
    assert all(desk.topics.get(f"%RETRY%{name}") for name in names)
    assert {info.group_name for info in desk.clients.consumer_groups()} == set(names)


def test_a_few_groups_are_taken_at_once(desk, monkeypatch):
    monkeypatch.setattr(desk.dispatcher._handlers[34][0].__self__, "_later", None)
    for _ in range(2):
        answer = desk.heartbeat(desk.peer, consumerDataSet=[consumer(f"g{n}", "T") for n in range(5)])
        assert answer.code == 0


def test_while_a_heartbeat_is_being_taken_the_next_one_is_told_to_wait(desk):
    processor = desk.dispatcher._handlers[34][0].__self__
    waiting = []
    processor._later = waiting.append
    peer = FakeConnection()
    body = json.dumps({"clientID": "c", "consumerDataSet": [consumer(f"g{n}", "T") for n in range(100)]}).encode()
    desk.dispatcher.dispatch_request(peer, RemotingCommand(34, body=body))
    assert peer.answers == []
    desk.dispatcher.dispatch_request(peer, RemotingCommand(34, body=b'{"clientID":"c"}'))
    refused(peer.answers.pop(), BUSY, "still being taken")
    while waiting:
        waiting.pop(0)()
    assert [answer.code for answer in peer.answers] == [0]
    assert processor._waiting_bytes == 0 == len(processor._waiting_for)


def test_a_client_that_closes_while_its_heartbeat_is_taken_is_not_registered_any_more(desk):
    processor = desk.dispatcher._handlers[34][0].__self__
    waiting = []
    processor._later = waiting.append
    peer = FakeConnection()
    body = json.dumps({"clientID": "c", "consumerDataSet": [consumer(f"g{n}", "T") for n in range(100)]}).encode()
    desk.dispatcher.dispatch_request(peer, RemotingCommand(34, body=body))
    peer.closed = True
    desk.clients.on_close(peer)
    while waiting:
        waiting.pop(0)()
    assert desk.clients.consumer_groups() == []
    assert processor._waiting_bytes == 0


@pytest.mark.parametrize("taken", [1, 60, 100, 160], ids=["few", "consumers", "all-consumers", "producers"])
def test_a_group_that_a_client_leaves_while_its_heartbeat_is_taken_stays_left(desk, taken):
    processor = desk.dispatcher._handlers[34][0].__self__
    waiting = []
    processor._later = waiting.append
    peer = FakeConnection()
    consumers, producers = [f"g{n}" for n in range(100)], [f"p{n}" for n in range(100)]
    body = {"clientID": "c", "consumerDataSet": [consumer(name, "T") for name in consumers]}
    body["producerDataSet"] = [{"groupName": name} for name in producers]
    desk.dispatcher.dispatch_request(peer, RemotingCommand(34, body=json.dumps(body).encode()))
    beat = processor._waiting_for[peer]
    while beat.at < taken:
        waiting.pop(0)()
    assert taken <= beat.at < taken + 40
    left = (0, 50, 99)
    for number in left:
        fields = {"clientID": "c", "consumerGroup": f"g{number}", "producerGroup": f"p{number}"}
        desk.dispatcher.dispatch_request(peer, RemotingCommand(35, ext_fields=fields))
    while waiting:
        waiting.pop(0)()
    assert {answer.code for answer in peer.answers} == {0}
    assert len(peer.answers) == 4
    own = [set(names) for names in desk.clients.groups_of(peer)]
    assert own == [{name for n, name in enumerate(names) if n not in left} for names in (consumers, producers)]
    assert processor._waiting_bytes == 0 == len(processor._waiting_for)


def test_an_error_of_ours_in_a_slice_is_answered_and_those_behind_go_on(desk, monkeypatch):
    processor = desk.dispatcher._handlers[34][0].__self__
    waiting = []
    processor._later = waiting.append
    first, second = FakeConnection("127.0.0.1:1"), FakeConnection("127.0.0.1:2")
    for peer, name in ((first, "f"), (second, "s")):
        body = {"clientID": name, "consumerDataSet": [consumer(f"{name}{n}", "T") for n in range(100)]}
        desk.dispatcher.dispatch_request(peer, RemotingCommand(34, body=json.dumps(body).encode()))
    taken = desk.clients.register_consumer

    def register(conn, *rest):
        if conn is first:
            raise KeyError("ours")
        return taken(conn, *rest)

    monkeypatch.setattr(desk.clients, "register_consumer", register)
    while waiting:
        waiting.pop(0)()
    refused(first.answers.pop(), ERROR, "KeyError")
    assert second.answers.pop().code == 0
    assert (processor._waiting_for, processor._waiting_bytes) == ({}, 0)


def test_heartbeats_that_wait_for_their_next_slice_are_bounded(desk, monkeypatch):
    monkeypatch.setattr(client_processor, "MOST_WAITING_BYTES", 100_000)
    processor = desk.dispatcher._handlers[34][0].__self__
    monkeypatch.setattr(processor._shares, "few", 0)
    processor._later = [].append
    answers = []
    for number in range(15):
        peer = FakeConnection(f"127.0.0.1:{number}")
        groups = [consumer(f"g{number}-{n}", "T") for n in range(100)]
        desk.dispatcher.dispatch_request(
            peer, RemotingCommand(34, body=json.dumps({"clientID": "c", "consumerDataSet": groups}).encode())
        )
        answers += peer.answers
    assert {answer.code for answer in answers} == {BUSY}
    assert 0 < processor._waiting_bytes <= 50_000


def test_a_connection_has_so_many_groups_and_no_more_over_all_its_heartbeats(desk, monkeypatch):
    monkeypatch.setattr(heartbeat_bounds, "MOST_GROUPS_OF_A_CONNECTION", 20)
    monkeypatch.setattr(client_processor, "MOST_GROUPS_OF_A_CONNECTION", 20)

    def beat(peer, low, high, kind="consumerDataSet"):
        return desk.heartbeat(peer, **{kind: [{"groupName": f"g{n}"} for n in range(low, high)]})

    for kind, table in (("consumerDataSet", 0), ("producerDataSet", 1)):
        peer = FakeConnection(kind)
        refused(beat(peer, 0, 21, kind), ERROR, "one connection may have 20 consumer groups")
        assert not desk.clients.groups_of(peer)[table]
        assert beat(peer, 0, 15, kind).code == 0
        refused(beat(peer, 15, 21, kind), ERROR, "one connection may have 20")
        assert beat(peer, 10, 20, kind).code == 0
        assert len(desk.clients.groups_of(peer)[table]) == 20
        assert beat(peer, 0, 20, kind).code == 0


def test_hundreds_of_groups_and_a_thousand_topics_are_served(desk):
    groups = [consumer(f"g{n}", f"T{n}", f"%RETRY%g{n}") for n in range(400)]
    assert desk.heartbeat(desk.peer, consumerDataSet=groups).code == 0
    assert len(desk.clients.consumer_groups()) == 400
    topics = [f"SomeTopicOfTheShop{n}" for n in range(1000)]
    assert desk.heartbeat(FakeConnection("b"), consumerDataSet=[consumer("wide", *topics)]).code == 0
    assert len(desk.clients.consumer_group("wide").subscriptions) == 1000


def test_a_group_subscribes_so_many_topics_and_no_more(desk, monkeypatch):
    monkeypatch.setattr(heartbeat_bounds, "MOST_SUBSCRIPTIONS_OF_A_GROUP", 10)
    assert desk.heartbeat(desk.peer, consumerDataSet=[consumer("g", *[f"T{n}" for n in range(10)])]).code == 0
    answer = desk.heartbeat(desk.peer, consumerDataSet=[consumer("g", *[f"T{n}" for n in range(11)])])
    refused(answer, ERROR, "subscribes 11 topics, at most 10")
    assert len(desk.clients.consumer_group("g").subscriptions) == 10


def test_what_a_connection_subscribes_is_bounded_over_all_its_heartbeats(desk, monkeypatch):
    monkeypatch.setattr(client_processor, "MOST_SUBSCRIPTION_BYTES_OF_A_CONNECTION", 100_000)
    expression = " || ".join(f"tag{n:04}" for n in range(2000))  # 20 kB
    answers = [
        desk.heartbeat(desk.peer, consumerDataSet=[consumer(f"g{n}", subscription("T", expression))]) for n in range(8)
    ]
    assert [answer.code for answer in answers] == [0, 0, 0, 0, ERROR, ERROR, ERROR, ERROR]
    assert "may take" in answers[-1].remark
    assert (
        desk.heartbeat(FakeConnection("another"), consumerDataSet=[consumer("h", subscription("T", expression))]).code
        == 0
    )
    # A group that sends another expression gives back the room of its old one.
    for number in range(4):
        assert desk.heartbeat(desk.peer, consumerDataSet=[consumer(f"g{number}", "T")]).code == 0
    assert desk.heartbeat(desk.peer, consumerDataSet=[consumer("g9", subscription("T", expression))]).code == 0


@pytest.mark.parametrize(
    "body",
    [
        {"clientID": "x" * (CLIENT_ID_MAX_LENGTH + 1)},
        {"clientID": "a\nb"},
        {"clientID": "c", "consumerDataSet": [consumer("g", "no/topic")]},
        {"clientID": "c", "consumerDataSet": [consumer("g", "T" * 400)]},
        {"clientID": "c", "consumerDataSet": [consumer("g", "")]},
        {"clientID": "c", "consumerDataSet": [consumer("g", subscription("T", "x" * 32_768))]},
        {"clientID": "c", "consumerDataSet": [consumer("g", subscription("T", "a\x00b"))]},
        {"clientID": "c", "consumerDataSet": [consumer("g", subscription("T", expressionType="x" * 65))]},
        {"clientID": "c", "consumerDataSet": [consumer("g", subscription("T", tagsSet=["\x1b[2J"]))]},
        {"clientID": "c", "consumerDataSet": [consumer("g", "T", consumeType="../x")]},
        {"clientID": "c", "consumerDataSet": [consumer("g", "T", messageModel="x" * 65)]},
        {"clientID": "c", "consumerDataSet": [consumer("g", "T", consumeFromWhere="\n")]},
    ],
)
def test_a_heartbeat_with_what_nothing_is_called_changes_nothing(desk, body):
    body.setdefault("producerDataSet", [{"groupName": "p"}])
    answer = desk.ask(34, body=body)
    assert answer.code == ERROR
    assert 10 < len(answer.remark) < 400
    assert desk.clients.consumer_groups() == []
    assert desk.clients.producer_groups() == []
    assert desk.peer.client_id is None


def test_client_ids_may_be_in_any_script(desk):
    assert desk.heartbeat(desk.peer, "10.0.0.1@订单 服务", consumerDataSet=[consumer("g", "T")]).code == 0


# --- tables


def test_there_are_so_many_groups_and_topics_and_no_more(desk, monkeypatch):
    groups, topics = len(desk.groups.all()), len(desk.topics.all())
    monkeypatch.setattr(config_table, "KEPT_FOR_ADMINISTRATORS", 1000)
    monkeypatch.setattr(type(desk.groups), "most", groups + 2)
    monkeypatch.setattr(type(desk.topics), "most", topics + 3)
    answer = desk.heartbeat(desk.peer, consumerDataSet=[consumer(f"g{n}", "T") for n in range(5)])
    assert answer.code == 0
    assert len(desk.groups.all()) == groups + 2
    assert {info.group_name for info in desk.clients.consumer_groups()} == {"g0", "g1"}
    refused(desk.ask(200, body={"groupName": "another"}), ERROR, f"there are {groups + 2} groups, at most")
    assert desk.ask(200, body={"groupName": "g1", "retryMaxTimes": 3}).code == 0, "one there is may be changed"
    new = {"topic": "New", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    assert desk.ask(17, new).code == 0
    refused(desk.ask(17, new | {"topic": "Another"}), ERROR, f"there are {topics + 3} topics, at most")
    assert desk.ask(17, new | {"perm": "4"}).code == 0


def test_a_group_whose_retry_topic_finds_no_room_is_online_all_the_same(desk, monkeypatch):
    monkeypatch.setattr(type(desk.topics), "most", len(desk.topics.all()))
    assert desk.heartbeat(desk.peer, consumerDataSet=[consumer("g", "T")]).code == 0
    assert desk.clients.consumer_group("g") is not None


@pytest.mark.parametrize(
    "more",
    [
        {"groupRetryPolicy": {"type": "x" * 60_000}},
        {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1] * 129}}},
        {"subscriptionDataSet": [{"topic": "../x"}]},
        {"subscriptionDataSet": [{"topic": "T", "expression": "x" * 40_000}]},
        {"subscriptionDataSet": [{"topic": "T", "expressionType": "a b"}]},
        {"subscriptionDataSet": [{"topic": "T"}] * 1001},
    ],
)
def test_a_group_is_given_nothing_that_none_can_be(desk, more):
    assert desk.ask(200, body={"groupName": "g"} | more).code == ERROR
    assert desk.groups.get("g") is None
    assert desk.ask(225, body={"groupConfigList": [{"groupName": "g"} | more]}).code == ERROR
    assert desk.groups.get("g") is None


def test_a_group_is_given_what_it_can_have(desk):
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1, "max": 2, "multiplier": 3}}
    wanted = [{"topic": "T", "expression": "a || b", "expressionType": "TAG", "version": 1}]
    body = {"groupName": "g", "groupRetryPolicy": policy, "subscriptionDataSet": wanted}
    assert desk.ask(200, body=body).code == 0
    assert desk.groups.get("g").subscription_data_set[0].expression == "a || b"


# --- offsets and leases


def test_an_offset_is_kept_for_a_queue_the_topic_has_or_had(desk):
    assert desk.ask(17, {"topic": "T", "readQueueNums": "4", "writeQueueNums": "2", "perm": "6"}).code == 0
    desk.groups.find("g")

    def commit(queue_id):
        fields = {"consumerGroup": "g", "topic": "T", "queueId": str(queue_id), "commitOffset": "1"}
        return desk.ask(15, fields).code

    assert [commit(queue_id) for queue_id in (0, 3, 4, 65_535, -1)] == [0, 0, 29, 29, 29]
    desk.store.min_offsets["T", 7] = 0  # from the time when the topic had eight
    assert commit(7) == 0
    assert [sorted(entry.queues) for entry in desk.offsets.all()] == [[0, 3, 7]]


def lock_body(topic="T", queues=(0,), client_id="c", group="g", broker="b"):
    wanted = [{"topic": topic, "brokerName": broker, "queueId": number} for number in queues]
    return {"clientId": client_id, "consumerGroup": group, "mqSet": wanted}


@pytest.mark.parametrize(
    "changes",
    [{"topic": "x" * 60_000}, {"topic": "a/b"}, {"broker": "x" * 60_000}, {"broker": "a\nb"}, {"broker": ""},
     {"client_id": "x" * 60_000}, {"client_id": "a\x00"}, {"group": "a/b"}],
)  # fmt: skip
def test_a_lock_of_what_cannot_be_is_refused(desk, changes):
    desk.groups.find("g")
    answer = desk.ask(41, body=lock_body(**changes))
    assert (answer.code, len(answer.remark) < 400) == (ERROR, True)
    assert desk.locks._groups == {}


def test_only_queues_there_are_can_be_held_and_only_by_groups_there_are(desk):
    desk.ask(17, {"topic": "T", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"})
    assert desk.ask(41, body=lock_body()).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    desk.groups.find("g")
    answer = desk.ask(41, body=lock_body(queues=(0, 3, 4, 70_000, -1)))
    assert sorted(queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"]) == [0, 3]
    assert json.loads(desk.ask(41, body=lock_body("Unknown")).body)["lockOKMQSet"] == []


def test_a_lock_names_so_many_queues_and_no_more(desk, monkeypatch):
    monkeypatch.setattr(consumer_processor, "MOST_QUEUES_OF_A_LOCK", 3)
    for code in (41, 42):
        refused(desk.ask(code, body=lock_body(queues=range(4))), ERROR, "4 queues at once, at most 3")


def test_beyond_the_most_leases_what_is_free_stays_free(desk, monkeypatch):
    monkeypatch.setattr(queue_locks, "MOST_LEASES", 5)
    queues = [queue_locks.MessageQueue("T", "b", number) for number in range(8)]
    assert desk.locks.lock("g", "c1", queues) == queues[:5]
    assert desk.locks.lock("h", "c1", queues) == []
    assert desk.locks.lock("g", "c1", queues) == queues[:5], "and what is held is renewed"
    desk.clock.advance(ms=60_000)
    desk.locks.lock("h", "c2", queues)  # looks for leases that ran out
    assert desk.locks.lock("h", "c2", queues) == queues[:5]


# --- a whole engine


@pytest.fixture
def engine(tmp_path):
    running = start_engine(tmp_path / "data")
    yield running
    running.stop()


WAITS = {"sysFlag": 6, "suspendTimeoutMillis": 20_000}


def test_a_connection_has_so_many_held_pulls_and_the_next_is_told_to_wait(engine, peer, monkeypatch):
    monkeypatch.setattr(long_polling, "MOST_OF_A_CONNECTION", 3)
    assert peer.ask(310, send_fields("Held"), b"x").code == 0
    for _ in range(3):
        peer.send(11, pull_fields("Held", 0, 1, **WAITS))
    assert peer.is_silent()
    refused(peer.ask(11, pull_fields("Held", 0, 1, **WAITS)), BUSY, "too many pulls")
    another = Peer(engine.broker_address)
    another.send(11, pull_fields("Held", 0, 1, **WAITS))
    assert another.is_silent()
    assert engine.broker.pull.long_polling.count == 4
    assert peer.ask(310, send_fields("Held"), b"x").code == 0
    assert another.receive().code == 0
    another.close()


def test_there_are_so_many_held_pulls_in_all(engine, peer, monkeypatch):
    monkeypatch.setattr(long_polling, "MOST_IN_ALL", 8)
    monkeypatch.setattr(long_polling, "FEW_OF_A_CONNECTION", 1)
    assert peer.ask(310, send_fields("Held"), b"x").code == 0
    for _ in range(3):
        peer.send(11, pull_fields("Held", 0, 1, **WAITS))
    assert peer.is_silent()
    refused(peer.ask(11, pull_fields("Held", 0, 1, **WAITS)), BUSY, "too many pulls")
    another = Peer(engine.broker_address)
    another.send(11, pull_fields("Held", 0, 1, **WAITS))
    assert another.is_silent(), "there is room for who comes after it"
    another.close()


def test_a_pull_that_would_wait_for_ever_waits_for_the_longest(engine, peer, monkeypatch):
    monkeypatch.setattr(long_polling, "LONGEST_HOLD_MS", 400)
    assert peer.ask(310, send_fields("Held"), b"x").code == 0
    begun = time.monotonic()
    answer = peer.ask(11, pull_fields("Held", 0, 1, sysFlag=6, suspendTimeoutMillis=2**63 - 1))
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert time.monotonic() - begun > 0.1


def test_a_pull_may_not_bring_a_subscription_of_any_length(engine, peer):
    assert peer.ask(310, send_fields("Held"), b"x").code == 0
    long = " || ".join(f"tag{n}" for n in range(3000))  # 29 kB
    assert peer.ask(11, pull_fields("Held", 0, 0, subscription=long)).code in (0, 19, 20)
    refused(peer.ask(11, pull_fields("Held", 0, 0, subscription="x" * 32_768)), ERROR, "header is illegal")


def test_offsets_are_cloned_to_a_group_that_may_be(engine, peer):
    offsets = engine.broker.offsets
    assert peer.ask(310, send_fields("T"), b"x").code == 0
    peer.ask(200, {}, b'{"groupName":"G"}')
    assert peer.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 1}).code == 0
    clone = {"srcGroup": "G", "destGroup": "H", "topic": "T", "offline": "true"}
    assert peer.ask(314, clone).code == 0
    assert (offsets.get("H", "T", 0), engine.broker.groups.get("H") is not None) == (1, True)
    for junk in ("x" * 60_000, "../../etc", "a\nb", "日本"):
        refused(peer.ask(314, clone | {"destGroup": junk}), ERROR, "is illegal")
    engine.window.option_commands.change({"autoCreateSubscriptionGroup": "false"})
    assert peer.ask(314, clone | {"destGroup": "New"}).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert {entry.group for entry in offsets.all()} == {"G", "H"}


def test_no_retry_topic_is_made_for_a_group_that_may_not_be(tmp_path):
    running = start_engine(
        tmp_path / "data", broker={"auto_create_topic_enable": False, "auto_create_subscription_group": False}
    )
    peer = Peer(running.broker_address)
    try:
        answer = peer.ask(310, send_fields("%RETRY%Nobody"), b"x")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert running.broker.topics.get("%RETRY%Nobody") is None
    finally:
        peer.close()
        running.stop()


def test_long_properties_of_batches_are_not_remembered(engine, peer):
    def member(properties):
        raw = properties.encode()
        return struct.pack(">iiiii", 23 + len(raw), 0, 0, 0, 1) + b"x" + struct.pack(">h", len(raw)) + raw

    for number in range(20):
        text = f"UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02KEYS\x01{number}{'k' * 20_000}\x02"
        assert peer.ask(320, send_fields("B", m="true"), member(text) * 2).code == 0
    shapes = engine.broker.sending.path._shapes._known
    assert sum(len(shape) for known in shapes.values() for shape in known) < 1000


def test_a_client_that_comes_and_goes_a_thousand_times_in_one_read_is_one_change_to_its_group(engine, peer):
    def beat(client_id):
        return json.dumps({"clientID": client_id, "consumerDataSet": [{"groupName": "G"}]}).encode()

    assert peer.ask(34, body=beat("member")).code == 0
    another = Peer(engine.broker_address)
    come = RemotingCommand(34, flag=2, body=beat("another"))
    go = RemotingCommand(35, flag=2, ext_fields={"clientID": "another", "consumerGroup": "G"})
    another.send_bytes((encode_command(come) + encode_command(go)) * 1000 + encode_command(come))
    members = json.loads(another.ask(38, {"consumerGroup": "G"}).body)["consumerIdList"]
    assert members == ["member", "another"]
    notices = 0
    with suppress(TimeoutError):
        while peer.receive(0.5).code == 40:
            notices += 1
    assert 1 <= notices < 1000  # one a read, however small the reads are, and not one for each of 2001 changes
    another.close()
