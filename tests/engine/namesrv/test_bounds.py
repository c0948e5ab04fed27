"""Registrations and key-values that any peer may send to the name server, and the bounds of what it keeps."""

from __future__ import annotations

import json
import struct
import zlib

import pytest

from appliance.engine.namesrv import bounds, route_info, topic_table
from appliance.engine.protocol.codes import RequestCode
from tests.support.fakes import FakeConnection

from .conftest import register_body

LONG = "x" * 60_000
NO_NAMES = [LONG, "a b", "a\nb", "a/b", "日本", 'a"b', "a\x00"]
UNREGISTER, REGISTER_TOPIC, PUT_KV = 104, 217, 100


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize("field", ["name", "address", "cluster", "haServerAddr", "__ZONE_NAME"])
def test_a_broker_is_called_like_a_host_or_is_refused(desk, field, name):
    fields = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "c", "brokerId": 0, "haServerAddr": "h:2"}
    wire = {"name": "brokerName", "address": "brokerAddr", "cluster": "clusterName"}.get(field, field)
    answer = desk.ask(RequestCode.REGISTER_BROKER, register_body(["T1", "T2"], (1, 1)), **fields | {wire: name})
    assert (answer.code, len(answer.remark) < 300) == (1, True)
    assert desk.clusters()["brokerAddrTable"] == {}
    assert desk.topics() == set()


@pytest.mark.parametrize("name", ["broker-a", "b.example.org", "10.0.0.1:10911", "[fe80::1%eth0]:10911", "a_b|c"])
def test_what_hosts_and_brokers_are_called_is_taken(desk, name):
    assert desk.register(["T1", "T2"], name=name, address=name, cluster=name).code == 0
    assert list(desk.clusters()["clusterAddrTable"]) == [name]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_table_with_a_topic_that_none_is_called_is_refused_whole(desk, name):
    assert desk.register(["Good", name]).code == 1
    block = f"{name} 4 4 6 SINGLE_TAG".encode()
    good = b"Good 4 4 6 SINGLE_TAG"
    parts = [b"{}", None, good, block, b"[]"]
    raw = b"".join(struct.pack(">i", 2) if part is None else struct.pack(">i", len(part)) + part for part in parts)
    fields = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "c", "brokerId": 0, "compressed": "true"}
    answer = desk.ask(RequestCode.REGISTER_BROKER, zlib.compress(raw), version=409, **fields)
    assert (answer.code, desk.topics()) == (1, set())


def test_topics_as_apache_derives_them_are_taken(desk):
    group, topic = "g" * 255, "t" * 127
    names = ["%RETRY%" + group, f"%RETRY%{group}+{topic}", "%DLQ%" + group, "rmq_sys_x.y", "DefaultCluster_REPLY_TOPIC"]
    assert desk.register(names).code == 0
    assert desk.topics() == set(names)


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_single_topic_is_looked_at_as_well(desk, name):
    desk.register(["T1", "T2"])
    queues = json.dumps({"queueDatas": [{"brokerName": "broker-a", "perm": 6}]}).encode()
    assert desk.ask(REGISTER_TOPIC, queues, topic=name).code == 1
    queues = json.dumps({"queueDatas": [{"brokerName": name}]}).encode()
    assert desk.ask(REGISTER_TOPIC, queues, topic="New").code == 1
    assert desk.topics() == {"T1", "T2"}


def test_key_values_are_text_of_some_length(desk):
    good = {"namespace": "n", "key": "k", "value": "broker-a:4;broker-b:4\n订单"}
    assert desk.ask(PUT_KV, **good).code == 0
    for field, value in (("namespace", LONG), ("namespace", "a\nb"), ("key", LONG), ("key", "\x1b[2J"),
                         ("value", LONG), ("value", "a\x00b"), ("value", "\x85")):  # fmt: skip
        answer = desk.ask(PUT_KV, **good | {field: value})
        assert (answer.code, len(answer.remark) < 300) == (1, True), (field, value[:10])
    assert desk.namesrv.kv._table == {"n": {"k": good["value"]}}


def test_one_connection_registers_so_many_brokers_and_no_more(desk, monkeypatch):
    monkeypatch.setattr(route_info, "MOST_BROKERS_OF_A_CONNECTION", 3)
    for number in range(3):
        assert desk.register(["A", "B"], name=f"b{number}", address=f"h:{number + 1}").code == 0
    answer = desk.register(["A", "B"], name="b3", address="h:4")
    assert (answer.code, answer.remark) == (1, "one connection may register 3 brokers")
    assert desk.register(["A", "B"], name="b2", address="h:3", version=(2, 2)).code == 0, "again, one of its own"
    assert desk.register(["A", "B"], name="b3", address="h:4", peer=FakeConnection()).code == 0
    # Nor does it take over registrations of other peers beyond its share.
    assert desk.register(["A", "B"], name="b3", address="h:4").code == 1


def test_there_are_so_many_brokers_in_all(desk, monkeypatch):
    monkeypatch.setattr(route_info, "MOST_BROKERS", 8)
    peer = FakeConnection()
    codes = [desk.register(["A", "B"], name=f"b{n}", address=f"h:{n + 1}", peer=peer).code for n in range(4)]
    assert codes == [0, 0, 0, 1], "one, and its share of eight"
    after = desk.register(["A", "B"], name="after", address="h:9", peer=FakeConnection("127.0.0.1:2"))
    assert after.code == 0
    assert sorted(desk.clusters()["brokerAddrTable"]) == ["after", "b0", "b1", "b2"]


def test_a_name_has_so_many_addresses(desk, monkeypatch):
    monkeypatch.setattr(route_info, "MOST_ADDRESSES_OF_A_NAME", 2)
    codes = [desk.register(["A", "B"], address=f"h:{n + 1}", broker_id=n).code for n in range(3)]
    assert codes == [0, 0, 1]


def test_a_broker_has_so_many_topics_over_all_it_registers(desk, monkeypatch):
    monkeypatch.setattr(topic_table, "MAX_TOPICS", 5)
    assert desk.register([f"T{n}" for n in range(4)]).code == 0
    assert desk.register(["T4"], version=(2, 2)).code == 0
    answer = desk.register(["T5"], version=(3, 3))
    assert (answer.code, answer.remark) == (1, "the broker would have 6 topics, at most 5 are taken")
    assert desk.register([f"T{n}" for n in range(5)], version=(4, 4)).code == 0, "the same ones again"
    queues = json.dumps({"queueDatas": [{"brokerName": "broker-a", "perm": 6}]}).encode()
    assert desk.ask(REGISTER_TOPIC, queues, topic="T9").code == 1
    for number in range(3):
        desk.ask(216, topic=f"T{number}")
    assert desk.ask(REGISTER_TOPIC, queues, topic="T9").code == 1, "half of them are for those whom it belongs to"
    desk.ask(216, topic="T3")
    assert desk.ask(REGISTER_TOPIC, queues, topic="T9").code == 0
    assert desk.topics() == {"T4", "T9"}


def test_all_brokers_together_have_so_many_topics(desk, monkeypatch):
    monkeypatch.setattr(topic_table, "MOST_ENTRIES", 6)
    monkeypatch.setattr(route_info, "MOST_ENTRIES", 6)
    monkeypatch.setattr(route_info, "FEW_ENTRIES", 6)
    assert desk.register(["A", "B", "C", "D"]).code == 0
    another, more = {"name": "b2", "address": "h:2"}, ["A", "B", "E"]
    answer = desk.register(more, **another)
    assert (answer.code, "would have 7 topics, at most 6" in answer.remark) == (1, True)
    assert desk.register(more[:2], **another).code == 0
    after = {"name": "b3", "address": "h:3", "peer": FakeConnection("127.0.0.1:2")}
    assert desk.register(more, **after).code == 0, "another connection has its few"
    desk.ask(UNREGISTER, brokerName="broker-a", brokerAddr="10.0.0.1:10911", clusterName="DefaultCluster", brokerId=0)
    assert desk.register(more, version=(2, 2), **another).code == 0


def test_the_counts_follow_whatever_comes_and_goes(desk):
    table = desk.namesrv.routes._topics
    mapping = {"T1": {"topic": "T1", "bname": "broker-a"}, "Unknown": {"topic": "Unknown"}}
    body = json.loads(register_body(["T1", "T2", "T3"], (1, 1)))
    body["topicConfigSerializeWrapper"]["topicQueueMappingInfoMap"] = mapping
    fields = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "c", "brokerId": 0}
    for _ in range(2):
        assert desk.ask(RequestCode.REGISTER_BROKER, json.dumps(body).encode(), **fields).code == 0
        assert table._counts == {"b": 3}
        assert table._mapping_bytes == {"b": len(table.mapping("T1")["b"])}
        assert table.mapping("Unknown") == {}, "a mapping leaves with its topic, so it needs one"
    desk.ask(216, topic="T1")
    assert (table._counts, table._mapping_bytes) == ({"b": 2}, {})
    desk.hang_up(desk.peer)
    assert (table._counts, len(table)) == ({}, 0)


def register_static(desk, topics, mapped, version=(1, 1), name="b", peer=None, pad="x"):
    """Register a broker that has a mapping for each topic of `mapped`; return the answer."""
    body = json.loads(register_body(topics, version))
    mappings = {topic: {"topic": topic, "bname": name, "pad": pad} for topic in mapped}
    body["topicConfigSerializeWrapper"]["topicQueueMappingInfoMap"] = mappings
    fields = {"brokerName": name, "brokerAddr": f"{name}:1", "clusterName": "c", "brokerId": 0}
    return desk.ask(RequestCode.REGISTER_BROKER, json.dumps(body).encode(), peer=peer or desk.peer, **fields)


def test_mappings_take_so_much_and_no_more(desk, monkeypatch):
    monkeypatch.setattr(route_info, "MOST_MAPPING_BYTES", 1000)
    monkeypatch.setattr(topic_table, "MOST_MAPPING_BYTES", 1000)
    monkeypatch.setattr(route_info, "FEW_MAPPING_BYTES", 100)
    answer = register_static(desk, ["T1", "T2"], ["T1"], pad="x" * 2000)
    assert (answer.code, "may take 1000 bytes" in answer.remark) == (1, True)
    assert desk.topics() == set()


def test_a_mapping_goes_when_its_brokers_whole_table_has_none(desk):
    table = desk.namesrv.routes._topics
    for name in ("b", "b2"):
        assert register_static(desk, ["T1", "T2", "T3"], ["T1", "T2"], name=name).code == 0
    assert register_static(desk, ["T3", "T4"], [], version=(1, 2)).code == 0
    assert table.mapping("T1").keys() == {"b", "b2"}, "a part of a table does not show which others are gone"
    assert register_static(desk, ["T1", "T2", "T3", "T4"], ["T2"], version=(1, 3)).code == 0
    assert (table.mapping("T1").keys(), table.mapping("T2").keys()) == ({"b2"}, {"b", "b2"})
    assert register_static(desk, ["T1", "T2", "T3", "T4"], [], version=(1, 4)).code == 0
    assert (table.mapping("T2").keys(), table._mapping_bytes.keys()) == ({"b2"}, {"b2"})


def test_a_mapping_for_a_topic_that_only_another_broker_has_is_not_kept(desk):
    assert register_static(desk, ["T1", "T2"], [], name="b").code == 0
    assert register_static(desk, ["T3", "T4"], ["T1"], name="b2").code == 0
    assert desk.namesrv.routes._topics.mapping("T1") == {}


def test_a_broker_that_would_be_silent_for_ever_has_an_hour(desk):
    assert desk.register(["A", "B"], heartbeatTimeoutMillis=2**63 - 1).code == 0
    desk.clock.advance(ms=bounds.LONGEST_TIMEOUT_MS - 1000)
    desk.scan()
    assert desk.topics() == {"A", "B"}
    desk.clock.advance(ms=2000)
    desk.scan()
    assert desk.topics() == set()
