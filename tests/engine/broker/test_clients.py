"""Heartbeats and notices to clients: joining, leaving, silence, closed connections."""

import json

import pytest

from appliance.engine.broker.clients import ConsumerGroupInfo
from tests.support.fakes import FakeConnection

from .conftest import BrokerDesk, consumer, subscription

CLUSTERING, BROADCASTING = "CLUSTERING", "BROADCASTING"


@pytest.fixture
def peers():
    return [FakeConnection(f"127.0.0.1:{port}") for port in (1, 2, 3)]


def told(peers):
    return [peer.noticed() for peer in peers]


def members(desk, group):
    answer = desk.ask(38, {"consumerGroup": group})
    return sorted(json.loads(answer.body)["consumerIdList"]) if answer.code == 0 else answer.remark


def test_the_newcomer_and_all_before_it_are_told(desk, peers):
    for number, peer in enumerate(peers):
        desk.heartbeat(peer, f"c{number}", consumerDataSet=[consumer("g", "T", "%RETRY%g")])
        assert told(peers) == [["g"]] * (number + 1) + [[]] * (2 - number)
    assert members(desk, "g") == ["c0", "c1", "c2"]
    desk.heartbeat(peers[0], "c0", consumerDataSet=[consumer("g", "T", "%RETRY%g")])
    assert told(peers) == [[], [], []]


def test_a_notice_is_a_one_way_request(desk, peers):
    desk.heartbeat(peers[0], consumerDataSet=[consumer("g", "T")])
    (notice,) = peers[0].notices
    assert (notice.code, notice.flag, notice.ext_fields) == (40, 2, {"consumerGroup": "g"})


def test_a_broadcasting_group_is_left_in_peace(desk, peers):
    for number, peer in enumerate(peers):
        desk.heartbeat(peer, f"c{number}", consumerDataSet=[consumer("g", "T", messageModel=BROADCASTING)])
    desk.ask(35, {"clientID": "c0", "consumerGroup": "g"}, peer=peers[0])
    assert told(peers) == [[], [], []]
    assert members(desk, "g") == ["c1", "c2"]


def test_a_group_or_a_broker_that_wants_no_notices_sends_none(open_desk, peers):
    desk = open_desk()
    desk.ask(200, body={"groupName": "quiet", "notifyConsumerIdsChangedEnable": False})
    desk.heartbeat(peers[0], consumerDataSet=[consumer("quiet", "T")])
    assert told(peers[:1]) == [[]]
    desk = open_desk(notify_consumer_ids_changed_enable=False)
    desk.heartbeat(peers[1], consumerDataSet=[consumer("g", "T")])
    assert told(peers[1:2]) == [[]]


def test_a_topic_that_comes_or_goes_is_told_a_new_version_is_not(desk, peers):
    first = peers[0]
    steps = [
        ([subscription("T", "A", 1)], ["g"]),
        ([subscription("T", "B", 2)], []),
        ([subscription("T", "C", 1)], []),  # an older version, and the current one
        ([subscription("T", "B", 2), subscription("U")], ["g"]),
        ([subscription("U")], ["g"]),
        ([], ["g"]),
    ]
    seen = []
    for wanted, notices in steps:
        desk.heartbeat(first, consumerDataSet=[consumer("g", *wanted)])
        assert first.noticed() == notices
        seen.append({t: data.sub_string for t, data in desk.clients.consumer_group("g").subscriptions.items()})
    assert seen == [{"T": "A"}, {"T": "B"}, {"T": "C"}, {"T": "B", "U": "*"}, {"U": "*"}, {}]


def test_the_last_heartbeat_says_how_the_group_consumes(desk, peers):
    desk.heartbeat(peers[0], consumerDataSet=[consumer("g", "T", consumeType="CONSUME_ACTIVELY")])
    kind = {"consumeType": "CONSUME_POP", "messageModel": BROADCASTING, "consumeFromWhere": "CONSUME_FROM_TIMESTAMP"}
    desk.heartbeat(peers[1], "c2", consumerDataSet=[consumer("g", "T", **kind)])
    info = desk.clients.consumer_group("g")
    assert (info.consume_type, info.message_model, info.consume_from_where) == tuple(kind.values())


def test_whoever_unregisters_is_out_and_the_rest_is_told(desk, peers):
    for number, peer in enumerate(peers):
        entry = consumer("g", "T")
        desk.heartbeat(peer, f"c{number}", consumerDataSet=[entry], producerDataSet=[{"groupName": "p"}])
    told(peers)
    answer = desk.ask(35, {"clientID": "c1", "producerGroup": "p", "consumerGroup": "g"}, peer=peers[1])
    assert answer.code == 0
    assert told(peers) == [["g"], [], ["g"]]
    assert members(desk, "g") == ["c0", "c2"]
    assert [channel.client_id for channel in desk.clients.producer_channels("p")] == ["c0", "c2"]
    assert desk.ask(35, {"clientID": "c1", "consumerGroup": "g"}, peer=peers[1]).code == 0
    assert desk.ask(35, {}, peer=peers[0]).code == 0
    assert told(peers) == [[], [], []]


def test_the_last_one_takes_the_group_along(desk, peers):
    desk.heartbeat(peers[0], consumerDataSet=[consumer("g", "T")], producerDataSet=[{"groupName": "p"}])
    desk.clients.on_close(peers[0])
    assert desk.clients.consumer_group("g") is None
    assert desk.clients.producer_groups() == []
    assert members(desk, "g") == "no consumer for this group, g"
    assert desk.clients._presence == {}


def test_a_closed_connection_leaves_everything_at_once(desk, peers):
    for number, peer in enumerate(peers):
        desk.heartbeat(peer, f"c{number}", consumerDataSet=[consumer("g", "T"), consumer("h", "T")])
    told(peers)
    desk.clients.on_close(peers[2])
    desk.clients.on_close(peers[2])
    assert [sorted(groups) for groups in told(peers)] == [["g", "h"], ["g", "h"], []]
    assert members(desk, "g") == members(desk, "h") == ["c0", "c1"]


def test_a_client_that_reconnects_without_a_pause_fills_no_log(desk, clock, caplog):
    caplog.set_level("INFO", "appliance.engine.broker.clients")

    def come_and_go(times):
        caplog.clear()
        for port in range(1, times + 1):
            peer = FakeConnection(f"127.0.0.1:{port}")
            groups = {"consumerDataSet": [consumer("g", f"T{port}")], "producerDataSet": [{"groupName": "p"}]}
            desk.heartbeat(peer, "c", **groups)
            desk.clients.on_close(peer)
        return caplog.messages

    assert len(come_and_go(300)) == 20
    clock.advance(ms=61_000)
    first, second, *_ = come_and_go(1)
    assert first.endswith(f"({300 * 5 - 20} more were not told of)")
    assert "not told" not in second


def test_silence_of_120_seconds_closes_a_connection(desk, peers, clock):
    desk.heartbeat(peers[0], "c0", consumerDataSet=[consumer("g", "T")])
    clock.advance(ms=60_000)
    desk.heartbeat(peers[1], "c1", consumerDataSet=[consumer("g", "T")], producerDataSet=[{"groupName": "p"}])
    told(peers)
    clock.advance(ms=60_000)
    desk.clients.scan_expired()
    assert members(desk, "g") == ["c0", "c1"]
    clock.advance(ms=1)
    desk.clients.scan_expired()
    assert members(desk, "g") == ["c1"]
    assert [peer.closed for peer in peers] == [True, False, False]
    assert told(peers) == [[], ["g"], []]
    clock.advance(ms=60_000)
    desk.clients.scan_expired()
    assert peers[1].closed
    assert desk.clients.producer_channels("p") == []


def test_the_order_of_silence_follows_the_heartbeats(desk, peers, clock):
    for number, peer in enumerate(peers):
        desk.heartbeat(peer, f"c{number}", producerDataSet=[{"groupName": "p"}])
        clock.advance(ms=1000)
    desk.heartbeat(peers[0], "c0", producerDataSet=[{"groupName": "p"}])
    clock.advance(ms=120_000 - 1000)
    desk.clients.scan_expired()
    assert [peer.closed for peer in peers] == [False, True, False]


@pytest.mark.parametrize("hours", [1, -1, 24 * 365 * 50])
def test_a_wall_clock_that_jumps_closes_nobody_keeps_nobody_and_takes_nobody_out_of_a_group(desk, peers, clock, hours):
    desk.heartbeat(peers[0], "c0", consumerDataSet=[consumer("g", "T")], producerDataSet=[{"groupName": "p"}])
    clock.jump(ms=hours * 3_600_000)
    desk.clients.scan_expired()
    desk.heartbeat(peers[0], "c0", producerDataSet=[{"groupName": "p"}])
    assert members(desk, "g") == ["c0"]
    assert not peers[0].closed
    clock.advance(ms=120_001)
    desk.heartbeat(peers[1], "c1", consumerDataSet=[consumer("g", "T")])
    desk.clients.scan_expired()
    assert [peer.closed for peer in peers[:2]] == [True, False]
    assert members(desk, "g") == ["c1"]


def test_whoever_is_not_read_from_is_not_taken_for_silent_and_its_time_starts_anew(desk, peers, clock):
    for number, peer in enumerate(peers[:2]):
        desk.heartbeat(peer, f"c{number}", consumerDataSet=[consumer("g", "T")])
    peers[0].unread = True
    clock.advance(ms=130_000)
    desk.clients.scan_expired()
    assert [peer.closed for peer in peers[:2]] == [False, True]
    clock.advance(ms=130_000)
    peers[0].unread, peers[0].listening_since = False, clock.monotonic()
    desk.clients.scan_expired()
    assert not peers[0].closed, "what it sent meanwhile was not looked at yet"
    clock.advance(ms=120_001)
    desk.clients.scan_expired()
    assert peers[0].closed


def test_a_group_no_heartbeat_names_any_more_is_left_but_the_connection_stays(desk, peers, clock):
    first, second = peers[:2]
    desk.heartbeat(first, "c0", consumerDataSet=[consumer("g", "T"), consumer("h", "T")])
    desk.heartbeat(second, "c1", consumerDataSet=[consumer("g", "T")])
    told(peers)
    for _ in range(5):
        clock.advance(ms=30_000)
        desk.heartbeat(first, "c0", consumerDataSet=[consumer("h", "T")])
        desk.heartbeat(second, "c1", consumerDataSet=[consumer("g", "T")])
        desk.clients.scan_expired()
    assert members(desk, "g") == ["c1"]
    assert members(desk, "h") == ["c0"]
    assert not first.closed
    assert told(peers) == [[], ["g"], []]


def test_two_clients_on_one_connection(desk, peers):
    desk.heartbeat(peers[0], "a", consumerDataSet=[consumer("g", "T")])
    desk.heartbeat(peers[0], "b", consumerDataSet=[consumer("h", "T")])
    assert members(desk, "g") == ["a"]
    assert members(desk, "h") == ["b"]
    desk.clients.on_close(peers[0])
    assert desk.clients.consumer_groups() == []


def test_a_heartbeat_makes_the_group_and_its_retry_topic(desk):
    desk.ask(200, body={"groupName": "g", "retryQueueNums": 3})
    desk.topics.update(desk.topics.get("TBW102").__class__(topic_name="Ordered", order=True))
    changed = []
    desk.topics.on_change.append(lambda configs: changed.extend(config.topic_name for config in configs))
    desk.heartbeat(desk.peer, consumerDataSet=[consumer("g", "Ordered", unitMode=True), consumer("new", "T")])
    topic = desk.topics.get("%RETRY%g")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (3, 3, 6)
    assert (topic.order, topic.topic_sys_flag) == (True, 2)
    assert desk.groups.get("new") is not None
    assert desk.topics.get("%RETRY%new").write_queue_nums == 1
    assert changed == ["%RETRY%g", "%RETRY%new"]


def test_an_unknown_group_is_left_out_where_groups_are_not_created(open_desk, peers):
    desk = open_desk(auto_create_subscription_group=False)
    answer = desk.heartbeat(peers[0], consumerDataSet=[consumer("g", "T"), consumer("TOOLS_CONSUMER", "T")])
    assert answer.code == 0
    assert members(desk, "g") == "no consumer for this group, g"
    assert desk.topics.get("%RETRY%g") is None
    assert members(desk, "TOOLS_CONSUMER") == ["c@1"]


def test_a_group_whose_retry_topic_would_be_too_long_still_consumes(desk, peers):
    name = "g" * 200
    assert desk.heartbeat(peers[0], consumerDataSet=[consumer(name, "T")]).code == 0
    assert members(desk, name) == ["c@1"]
    assert desk.topics.get("%RETRY%" + name) is None


# --- heartbeats V2


def v2(desk, peer, fingerprint, without_sub=False, topics=("T",)):
    wanted = [] if without_sub else topics
    answer = desk.heartbeat(
        peer,
        consumerDataSet=[consumer("g", *wanted)],
        heartbeatFingerprint=fingerprint,
        withoutSub=without_sub,
    )
    assert answer.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    return answer.ext_fields["IS_SUB_CHANGE"]


def test_a_client_without_v2_is_always_told_that_subscriptions_changed(desk, peers):
    """As recorded; such a client ignores the field."""
    for _ in range(2):
        answer = desk.heartbeat(peers[0], consumerDataSet=[consumer("g", "T")])
        assert answer.ext_fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}


def test_a_heartbeat_without_subscriptions_leaves_them_alone(desk, peers):
    assert v2(desk, peers[0], 77) == "false"
    assert v2(desk, peers[0], 77, without_sub=True) == "false"
    assert list(desk.clients.consumer_group("g").subscriptions) == ["T"]
    assert peers[0].noticed() == ["g"]


def test_another_fingerprint_asks_for_the_full_heartbeat(desk, peers):
    v2(desk, peers[0], 77)
    assert v2(desk, peers[1], 88, without_sub=True) == "true"
    assert v2(desk, peers[1], 88, topics=("T", "U")) == "false"


def test_a_broker_that_was_started_again_asks_for_the_full_heartbeat(desk, peers):
    """5.3.3 does not, and its consumers would pull without a subscription until their own next change."""
    assert v2(desk, peers[0], 77, without_sub=True) == "true"
    assert desk.clients.consumer_group("g").subscriptions == {}


# --- bodies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"5",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"clientID":"c","consumerDataSet":5}',
        b'{"clientID":"c","consumerDataSet":[5]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":{}}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"codeSet":["x"]}]}]}',
        b'{"clientID":7,"producerDataSet":[{"groupName":"p"}]}',
        b'{"consumerDataSet":[{"groupName":"g"}]}',
        b'{"clientID":"","producerDataSet":[{"groupName":"p"}]}',
        b'{"a":' * 50_000,
        b'{"clientID":"c","a":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"clientID":"c","x":"' + b"y" * (1 << 18) + b'"}',
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_body_that_is_no_heartbeat_is_refused_and_registers_nothing(desk, body):
    answer = desk.ask(34, body=body)
    assert answer.code == 1
    assert answer.remark
    assert desk.clients.consumer_groups() == []
    assert desk.clients.producer_groups() == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","subString":"A",'
        b'"subVersion":"12","codeSet":["65"],"tagsSet":["A"]}]}]}',
        b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"g","consumeType":null,'
        b'"subscriptionDataSet":[{"topic":"T","subString":"A","subVersion":12,"codeSet":[65,null],"tagsSet":["A"],'
        b'"expressionType":null,"later":{"x":[1]}}]}]}',
        b' {"clientID" : "c" , "x":{0:1},\n"consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"T","subString":"A","subVersion":12,"codeSet":[65],"tagsSet":["A"]}]}]}\n',
    ],
    ids=["numbers as text", "nulls", "dialect and blanks"],
)
def test_what_java_would_read_is_read(desk, body):
    assert desk.ask(34, body=body).code == 0
    data = desk.clients.consumer_group("g").subscriptions["T"]
    assert (data.sub_string, data.sub_version, data.expression_type) == ("A", 12, "TAG")
    assert data.code_set == {65}


def test_names_no_group_may_have_are_left_out(desk):
    names = ["", "a b", "../x", "ü", "x" * 256]
    body = {
        "consumerDataSet": [consumer(name, "T") for name in names],
        "producerDataSet": [{"groupName": name} for name in names],
    }
    assert desk.heartbeat(desk.peer, **body).code == 0
    assert desk.clients.consumer_groups() == []
    assert desk.clients.producer_groups() == []


def test_the_connection_knows_its_client(desk):
    body = json.dumps({"clientID": "10.0.0.5@1#2", "producerDataSet": [{"groupName": "p"}]}).encode()
    desk.ask(34, body=body, version=317)
    assert (desk.peer.client_id, desk.peer.version) == ("10.0.0.5@1#2", 317)
    (channel,) = desk.clients.producer_channels("p")
    assert (channel.language, channel.version) == ("JAVA", 317)


@pytest.mark.parametrize(
    ("data", "code", "remark"),
    [
        ({"topic": "T", "subString": "a > 1", "expressionType": "SQL92"}, 0, None),
        (
            {"topic": "T", "subString": "a > 1 AND\n b BETWEEN 3 AND", "expressionType": "SQL92"},
            23,
            "Expected a property, a literal, NOT or (, the expression ends (line 2, column 16)",
        ),
        (
            {"topic": "T", "subString": "a > 1", "expressionType": "Class"},
            1,
            "The broker does not support consumer to filter message by Class",
        ),
        ({"topic": "T", "subString": "A", "expressionType": "TAG"}, 0, None),
        ({"topic": "T", "subString": "A"}, 0, None),
        (None, 1, "the body has no subscriptionData"),
        (5, 1, None),
    ],
)
def test_a_client_asks_whether_its_expression_is_one(desk, data, code, remark):
    answer = desk.ask(46, body={"clientId": "c", "group": "g", "subscriptionData": data})
    assert answer.code == code
    assert remark is None or answer.remark == remark


def test_sql_may_be_switched_off(tmp_path, clock):
    desk = BrokerDesk(tmp_path / "off", clock, enable_property_filter=False)
    for expression in ("a > 1", "a >"):
        data = {"topic": "T", "subString": expression, "expressionType": "SQL92"}
        answer = desk.ask(46, body={"clientId": "c", "group": "g", "subscriptionData": data})
        assert (answer.code, answer.remark) == (1, "The broker does not support consumer to filter message by SQL92")


def test_who_asks_for_members_says_of_what(desk):
    assert desk.ask(38).code == 1
    assert desk.ask(38, {"consumerGroup": "nobody"}).remark == "no consumer for this group, nobody"


def test_the_cpp_clients_numbers_are_javas_enums(desk, peers):
    """Its heartbeat as librocketmq 2.x sends it: numbers for enums, text for versions and codes."""
    body = (
        b'{"clientID":"1988-127.0.0.1@c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"gg",'
        b'"messageModel":1,"subscriptionDataSet":[{"codeSet":["2598919"],"subString":"TagA",'
        b'"subVersion":"1795276724236","tagsSet":["TagA"],"topic":"T"}]}]}\n'
    )
    assert desk.ask(34, body=body, peer=peers[0]).code == 0
    info = desk.clients.consumer_group("gg")
    assert (info.consume_type, info.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert info.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert info.subscriptions["T"].code_set == {2598919}
    assert desk.ask(34, body=body.replace(b'"messageModel":1', b'"messageModel":0'), peer=peers[0]).code == 0
    assert desk.clients.consumer_group("gg").message_model == "BROADCASTING"
    assert desk.ask(34, body=body.replace(b'"consumeType":1', b'"consumeType":9'), peer=peers[0]).code == 1


@pytest.fixture
def gone(desk):
    """(group, client id, signed off) of clients that left a group, and (group, client id) of clients in a group."""
    found = []
    desk.clients.on_consumer_gone = lambda *what: found.append(what)
    desk.clients.on_consumer = lambda *what: found.append(what)
    return found


def test_who_leaves_is_told_by_its_client_id(desk, peers, gone):
    desk.heartbeat(peers[0], "c", consumerDataSet=[consumer("g", "T"), consumer("h", "T")])
    desk.ask(35, {"clientID": "c", "consumerGroup": "g"}, peer=peers[0])
    desk.clients.on_close(peers[0])
    assert gone == [("g", "c"), ("h", "c"), ("g", "c", True), ("h", "c", False)]


def test_a_client_that_is_back_over_another_connection_has_not_left(desk, peers, gone):
    desk.heartbeat(peers[0], "c", consumerDataSet=[consumer("g", "T")])
    desk.heartbeat(peers[1], "c", consumerDataSet=[consumer("g", "T")])
    desk.clients.on_close(peers[0])
    assert gone == [("g", "c"), ("g", "c")]
    desk.clients.on_close(peers[1])
    assert gone[2:] == [("g", "c", False)]


def test_a_client_that_calls_itself_something_else_has_left_as_what_it_was(desk, peers, gone):
    desk.heartbeat(peers[0], "c", consumerDataSet=[consumer("g", "T")])
    desk.heartbeat(peers[0], "d", consumerDataSet=[consumer("g", "T")])
    assert gone == [("g", "c"), ("g", "c", True), ("g", "d")]
    assert desk.clients.consumer_group("g").ids == {"d": 1}


def test_one_client_id_of_two_clients_is_said_once_with_both_addresses(desk, peers, caplog):
    def beat(peer):
        desk.heartbeat(peer, "c", consumerDataSet=[consumer("g", "T")])

    def told():
        found = [record.getMessage() for record in caplog.records if "one client id" in record.getMessage()]
        caplog.clear()
        return found

    beat(peers[0])
    beat(peers[1])
    beat(peers[1])
    assert not told(), "it may have lost its connection, and be back"
    beat(peers[0])
    (line,) = told()
    assert all(word in line for word in ("127.0.0.1:1", "127.0.0.1:2", "instanceName", "group=g", "client=c")), line
    beat(peers[1])
    beat(peers[0])
    assert not told()
    desk.clients.on_close(peers[0])
    assert desk.clients.consumer_group("g").twice == set()


def test_one_client_id_of_two_that_each_read_everything_is_nothing_to_tell(desk, peers, caplog):
    for peer in (peers[0], peers[1], peers[0]):
        desk.heartbeat(peer, "c", consumerDataSet=[consumer("g", "T", messageModel="BROADCASTING")])
    assert "one client id" not in caplog.text
    assert desk.clients.consumer_group("g").twice == set()


def test_what_members_want_of_topics_is_gone_through_once_a_heartbeat(desk, peers, monkeypatch):
    looked = []
    looks = ConsumerGroupInfo._said_by_members
    monkeypatch.setattr(ConsumerGroupInfo, "_said_by_members", lambda self: looked.append(self) or looks(self))
    topics = [f"T{i}" for i in range(50)]
    desk.heartbeat(peers[0], "c0", consumerDataSet=[consumer("g", *[subscription(t, "A", 1) for t in topics])])
    desk.heartbeat(peers[1], "c1", consumerDataSet=[consumer("g", *[subscription(t, "B", 2) for t in topics])])
    desk.heartbeat(peers[0], "c0", consumerDataSet=[consumer("g", *[subscription(t, "C", 1) for t in topics])])
    assert len(looked) == 1
    wanted = desk.clients.consumer_group("g").subscriptions
    assert {data.sub_string for data in wanted.values()} == {"B"}


def test_of_very_many_subscriptions_of_members_so_many_are_compared(desk, peers, monkeypatch):
    """Two hundred connections with 4,000 each stopped the I/O thread for two seconds at every heartbeat."""
    monkeypatch.setattr("appliance.engine.broker.clients.MOST_COMPARED", 120, raising=False)
    topics = [f"T{i}" for i in range(50)]
    for number in (0, 1, 2, 0):
        wanted = [subscription(topic, f"A{number}", number) for topic in topics]
        desk.heartbeat(peers[number], f"c{number}", consumerDataSet=[consumer("g", *wanted)])
    info = desk.clients.consumer_group("g")
    assert sum(map(len, info._said_by_members().values())) == 100
    assert info.subscriptions["T1"].sub_string == "A2", "the newest version, as with fewer"


def test_a_connection_in_very_many_groups_leaves_them_in_slices(desk, peers, monkeypatch):
    ticks = []
    monkeypatch.setattr(desk.clients, "_later", ticks.append)
    groups = [f"g{i}" for i in range(50)]
    for number, peer in enumerate(peers[:2]):
        for group in groups:
            desk.heartbeat(peer, f"c{number}", consumerDataSet=[consumer(group, "T")])
    ticks.clear()
    desk.clients.on_close(peers[0])
    left = []
    while ticks:
        left.append(sum(peers[0] not in desk.clients.consumer_group(group).channels for group in groups))
        ticks.pop(0)()
    left.append(sum(peers[0] not in desk.clients.consumer_group(group).channels for group in groups))
    assert left[0] == 20
    assert left[-1] == 50
    assert peers[0] not in desk.clients._presence


def test_members_are_told_in_slices_and_each_of_them_once(desk, monkeypatch):
    ticks = []
    monkeypatch.setattr(desk.clients, "_later", ticks.append)
    members = [FakeConnection(f"127.0.0.1:{port}") for port in range(1, 401)]
    for number, peer in enumerate(members):
        desk.heartbeat(peer, f"c{number}", consumerDataSet=[consumer("g", "T")])
    counts = []
    while ticks:
        ticks.pop(0)()
        counts.append(sum(len(peer.notices) for peer in members))
    assert len(counts) == 2
    assert counts[0] < 300
    assert counts[-1] == 400


def test_a_member_that_cannot_be_told_costs_the_others_no_notice_now_or_later(desk, monkeypatch):
    ticks = []
    monkeypatch.setattr(desk.clients, "_later", ticks.append)
    members = [FakeConnection(f"127.0.0.1:{port}") for port in range(1, 6)]

    def run_ticks():
        while ticks:
            try:
                ticks.pop(0)()
            except OSError:
                continue  # the loop logs it

    def fail(frame):
        raise OSError("nobody thought of this")

    for number, peer in enumerate(members):
        desk.heartbeat(peer, f"c{number}", consumerDataSet=[consumer("g", "T")])
    monkeypatch.setattr(members[1], "send", fail)
    run_ticks()
    assert [len(peer.notices) for peer in members] == [1, 0, 1, 1, 1]
    desk.heartbeat(members[0], "c0", consumerDataSet=[consumer("other", "T")])
    run_ticks()
    assert members[0].noticed()[-1:] == ["other"]
