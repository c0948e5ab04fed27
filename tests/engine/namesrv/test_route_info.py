"""Registration, liveness and routes, through the requests that brokers, clients and admins send."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.engine import fastjson
from appliance.engine.protocol.codes import RequestCode as Code
from appliance.engine.protocol.command import RemotingCommand
from tests.support.fakes import FakeConnection

from .conftest import Desk, register_body

TOPICS = ["TBW102", "DefaultCluster", "broker-a", "TopicA"]


# --- routes


def test_a_route_is_the_compact_json_that_go_cuts_at_its_commas(desk: Desk) -> None:
    desk.register(TOPICS)
    answer = desk.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="TopicA")
    assert answer.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )


def as_go_210_reads(body: bytes) -> dict[int, str]:
    """Parse the address map of a route as Go 2.1.0 does: cut at commas and colons; an id that is no number is 0."""
    text = re.search(rb'"brokerAddrs":\{(.*?)\}', body)
    assert text is not None
    found = {}
    for part in text[1].decode().split(","):
        number, _, address = part.partition(":")
        found[int(number) if number.isdigit() else 0] = address.replace('"', "")
    return found


#: version, fields of the request -> whether broker ids are quoted.
ASKERS = [
    (317, {}, False),  # Go up to 2.1.2, 4.5.2 by its own word
    (63, {}, False),  # C++ 2.x
    (399, {}, False),  # Java 4.9.3
    (0, {}, False),
    (401, {}, True),  # Java 4.9.4
    (479, {}, True),
    (317, {"acceptStandardJsonOnly": "true"}, True),
    (399, {"acceptStandardJsonOnly": "TRUE"}, True),
    (399, {"acceptStandardJsonOnly": "false"}, False),
    (399, {"acceptStandardJsonOnly": "1"}, False),
]


@pytest.mark.parametrize(("version", "fields", "quoted"), ASKERS)
def test_ids_are_quoted_for_who_reads_them_so(desk: Desk, version: int, fields: dict[str, str], quoted: bool) -> None:
    desk.register(TOPICS)
    desk.register(TOPICS, address="10.0.0.2:10911", broker_id=1)
    addresses = {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
    route = desk.ask(Code.GET_ROUTEINFO_BY_TOPIC, version=version, topic="TopicA", **fields).body
    clusters = desk.ask(Code.GET_BROKER_CLUSTER_INFO, version=version, **fields).body
    group = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
    members = desk.ask(Code.GET_BROKER_MEMBER_GROUP, version=version, **group, **fields).body
    for body in (route, clusters, members):
        assert (b'{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"}' in body) is quoted
        assert (b'{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}' in body) is not quoted
        assert fastjson.loads(body)
    if not quoted:
        assert as_go_210_reads(route) == addresses


def test_an_acting_master_is_shown_to_elder_clients_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path, support_acting_master=True)
    for broker_id in (0, 1):
        desk.register(
            {"TopicA": {"perm": 4}, "B": {}},
            address=f"10.0.0.{broker_id}:1",
            broker_id=broker_id,
            enableActingMaster="true",
        )
    desk.ask(
        Code.UNREGISTER_BROKER,
        brokerName="broker-a",
        brokerAddr="10.0.0.0:1",
        clusterName="DefaultCluster",
        brokerId="0",
    )
    route = desk.ask(Code.GET_ROUTEINFO_BY_TOPIC, version=317, topic="TopicA").body
    assert as_go_210_reads(route) == {0: "10.0.0.1:1"}


def test_the_cluster_and_every_broker_name_are_routed_as_topics(desk: Desk) -> None:
    desk.register(["DefaultCluster", "broker-a"])
    desk.register(["DefaultCluster", "broker-b"], name="broker-b", address="10.0.0.2:10911")
    assert set(desk.perms("DefaultCluster")) == {"broker-a", "broker-b"}
    assert set(desk.perms("broker-b")) == {"broker-b"}


def test_an_unknown_topic_is_code_17_with_apaches_words(desk: Desk) -> None:
    answer = desk.ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="Nowhere")
    assert answer.code == 17
    assert str(answer.remark).startswith("No topic route info in name server for the topic: Nowhere\n")


def test_an_order_configuration_is_in_the_route_only_when_switched_on(make_desk: Callable[..., Desk]) -> None:
    for enabled in (False, True):
        desk = make_desk(order_message_enable=enabled)
        desk.register(TOPICS)
        desk.ask(Code.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="TopicA", value="broker-a:2")
        route = desk.route("TopicA")
        assert route is not None
        assert route.get("orderTopicConf") == ("broker-a:2" if enabled else None)
        assert "orderTopicConf" not in (desk.route("broker-a") or {})


def test_zone_mode_keeps_the_brokers_of_the_zone_and_sets_without_master(desk: Desk) -> None:
    desk.register(TOPICS, __ZONE_NAME="east")
    desk.register(TOPICS, name="broker-b", address="10.0.0.2:10911", __ZONE_NAME="west")
    desk.register(TOPICS, name="broker-c", address="10.0.0.3:10911", broker_id=1, enableActingMaster="true")
    everywhere = {"broker-a", "broker-b", "broker-c"}
    assert set(desk.perms("TopicA")) == everywhere
    zoned = desk.route("TopicA", __ZONE_NAME="EAST", __ZONE_MODE="true")
    assert zoned is not None
    assert {q["brokerName"] for q in zoned["queueDatas"]} == {"broker-a", "broker-c"}
    assert {b["brokerName"] for b in zoned["brokerDatas"]} == {"broker-a", "broker-c"}
    assert [b["zoneName"] for b in zoned["brokerDatas"] if b["brokerName"] == "broker-a"] == ["east"]
    without_mode = desk.route("TopicA", __ZONE_NAME="east")
    assert without_mode is not None
    assert len(without_mode["queueDatas"]) == 3


# --- registration


def test_topics_of_a_new_version_replace_those_of_an_old_one_do_not(desk: Desk) -> None:
    desk.register(TOPICS, version=(1, 1))
    desk.register({"TopicA": {"perm": 4}, "TopicB": {"perm": 4}}, version=(1, 1))
    assert desk.perms("TopicA") == {"broker-a": 6}
    assert desk.perms("TopicB") == {"broker-a": 4}  # unknown until then: taken whatever the version
    desk.register({"TopicA": {"perm": 4}}, version=(1, 2))
    assert desk.perms("TopicA") == {"broker-a": 4}


def test_a_topic_left_out_stays_unless_the_name_server_is_told_to_delete(make_desk: Callable[..., Desk]) -> None:
    for delete in (False, True):
        desk = make_desk(delete_topic_with_broker_registration=delete)
        desk.register([*TOPICS, "SELF_TEST_TOPIC"], version=(1, 1))
        desk.register({"TopicB": {}}, version=(1, 2))  # an increment leaves out almost everything
        assert desk.topics() == {*TOPICS, "SELF_TEST_TOPIC", "TopicB"}
        desk.register(["TBW102", "SELF_TEST_TOPIC"], version=(1, 3))
        whole = {*TOPICS, "SELF_TEST_TOPIC", "TopicB"}
        assert desk.topics() == ({"TBW102", "SELF_TEST_TOPIC"} if delete else whole)


def test_a_broker_cannot_begin_with_a_single_topic(desk: Desk) -> None:
    answer = desk.register(["TopicA"])
    assert (answer.code, answer.remark) == (1, "register broker failed")
    assert desk.clusters() == {"brokerAddrTable": {}, "clusterAddrTable": {}}
    desk.register(TOPICS)
    assert desk.register({"TopicZ": {}}, version=(1, 2)).code == 0
    assert desk.perms("TopicZ") == {"broker-a": 6}


def test_a_wrong_checksum_is_refused_and_a_zero_one_is_not_looked_at(desk: Desk) -> None:
    body = register_body(TOPICS)
    header = {
        "brokerName": "broker-a",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "DefaultCluster",
        "brokerId": 0,
        "haServerAddr": "10.0.0.1:10912",
    }
    assert desk.ask(Code.REGISTER_BROKER, body, bodyCrc32=12345, **header).remark == "crc32 not match"
    assert desk.topics() == set()
    assert desk.ask(Code.REGISTER_BROKER, body, bodyCrc32=zlib.crc32(body) & 0x7FFFFFFF, **header).code == 0
    assert desk.ask(Code.REGISTER_BROKER, body, bodyCrc32=0, **header).code == 0


def test_a_slave_is_told_its_master_and_only_the_masters_topics_count(desk: Desk) -> None:
    alone = desk.register(["Early", "TopicA"], address="10.0.0.2:10911", broker_id=1)
    assert alone.ext_fields == {}
    assert desk.topics() == set()
    desk.register(TOPICS)
    answer = desk.register([*TOPICS, "SlaveOnly"], address="10.0.0.2:10911", broker_id=1, version=(2, 2))
    assert answer.ext_fields == {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:109112"}
    assert desk.topics() == set(TOPICS)
    route = desk.route("TopicA")
    assert route is not None
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}


def test_an_address_that_moves_to_another_id_leaves_the_old_one(desk: Desk) -> None:
    desk.register(TOPICS, address="10.0.0.2:10911", broker_id=1)
    desk.register(TOPICS, address="10.0.0.2:10911", broker_id=0)
    assert desk.clusters()["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": "10.0.0.2:10911"}


def test_an_id_goes_to_the_newest_address_unless_the_state_version_is_lower(desk: Desk) -> None:
    def register(address: str, state_version: int) -> RemotingCommand:
        table = json.loads(register_body(TOPICS))
        table["topicConfigSerializeWrapper"]["dataVersion"]["stateVersion"] = state_version
        return desk.ask(
            Code.REGISTER_BROKER,
            json.dumps(table).encode(),
            peer=FakeConnection(),
            brokerName="broker-a",
            brokerAddr=address,
            clusterName="DefaultCluster",
            brokerId=0,
        )

    def holder() -> str:
        return str(desk.clusters()["brokerAddrTable"]["broker-a"]["brokerAddrs"]["0"])

    register("10.0.0.1:1", 5)
    assert register("10.0.0.2:1", 4).code == 0
    assert holder() == "10.0.0.1:1"
    register("10.0.0.2:1", 5)
    assert holder() == "10.0.0.2:1"


def test_the_answer_carries_the_order_configuration_unless_switched_off(make_desk: Callable[..., Desk]) -> None:
    for switched_on in (True, False):
        desk = make_desk(return_order_topic_config_to_broker=switched_on)
        desk.ask(Code.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="TopicA", value="broker-a:2")
        body = desk.register(TOPICS).body
        assert body == (b'{"table":{"TopicA":"broker-a:2"}}' if switched_on else b"")


def test_a_restart_under_another_name_takes_the_old_name_away(desk: Desk) -> None:
    desk.register(TOPICS, peer=FakeConnection())
    desk.register(TOPICS, name="broker-new", peer=FakeConnection())
    assert set(desk.clusters()["brokerAddrTable"]) == {"broker-new"}
    assert desk.perms("TopicA") == {"broker-new": 6}


# --- liveness


def test_a_closed_connection_removes_its_brokers_at_once(desk: Desk) -> None:
    first, second = FakeConnection(), FakeConnection()
    desk.register(TOPICS, peer=first)
    desk.register(TOPICS, name="broker-b", address="10.0.0.2:10911", peer=second)
    desk.hang_up(first)
    assert desk.perms("TopicA") == {"broker-b": 6}
    assert desk.perms("broker-a") == {"broker-b": 6}
    assert desk.clusters()["clusterAddrTable"] == {"DefaultCluster": ["broker-b"]}
    desk.hang_up(second)
    assert desk.topics() == set()


def test_the_late_end_of_an_old_connection_does_not_remove_a_broker_that_came_back(desk: Desk) -> None:
    old, new = FakeConnection(), FakeConnection()
    desk.register(TOPICS, peer=old)
    desk.register(TOPICS, peer=new)
    desk.hang_up(old)
    assert desk.perms("TopicA") == {"broker-a": 6}
    desk.hang_up(new)
    assert desk.topics() == set()


def test_the_late_end_of_an_old_connection_after_a_change_of_cluster(desk: Desk) -> None:
    old, new = FakeConnection(), FakeConnection()
    desk.register(TOPICS, peer=old, cluster="Before")
    desk.register(TOPICS, peer=new, cluster="After")
    desk.hang_up(old)
    assert desk.perms("TopicA") == {"broker-a": 6}
    assert desk.clusters()["clusterAddrTable"] == {"After": ["broker-a"]}


def test_a_registration_over_a_connection_that_has_gone_is_refused(desk: Desk) -> None:
    """The request waited in the pool's queue while its connection closed."""
    gone = FakeConnection()
    desk.hang_up(gone)
    assert desk.register(TOPICS, peer=gone).code == 1
    assert desk.topics() == set()
    assert not desk.namesrv.routes.carries_broker(gone)


def test_a_silent_broker_expires_after_120_seconds(desk: Desk) -> None:
    peer = FakeConnection()
    desk.register(TOPICS, peer=peer)
    desk.clock.advance(ms=120_000)
    desk.scan()
    assert desk.perms("TopicA") == {"broker-a": 6}
    desk.clock.advance(ms=1)
    desk.scan()
    assert desk.topics() == set()
    assert peer.closed


def test_a_broker_may_say_itself_how_long_it_may_be_silent(desk: Desk) -> None:
    desk.register(TOPICS, heartbeatTimeoutMillis=10_000)
    desk.clock.advance(ms=10_001)
    desk.scan()
    assert desk.topics() == set()


@pytest.mark.parametrize("code", [Code.BROKER_HEARTBEAT, Code.QUERY_DATA_VERSION])
def test_a_heartbeat_and_a_version_query_are_signs_of_life(desk: Desk, code: int) -> None:
    desk.register(TOPICS)
    for _ in range(3):
        desk.clock.advance(ms=100_000)
        desk.ask(code, brokerAddr="10.0.0.1:10911", brokerName="broker-a", clusterName="DefaultCluster", brokerId=0)
        desk.scan()
    assert desk.perms("TopicA") == {"broker-a": 6}


def test_a_dead_masters_topics_stay_while_a_slave_lives(desk: Desk) -> None:
    master, slave = FakeConnection(), FakeConnection()
    desk.register(TOPICS, peer=master)
    desk.register(TOPICS, address="10.0.0.2:10911", broker_id=1, peer=slave)
    desk.hang_up(master)
    route = desk.route("TopicA")
    assert route is not None
    assert route["brokerDatas"][0]["brokerAddrs"] == {"1": "10.0.0.2:10911"}
    desk.hang_up(slave)
    assert desk.route("TopicA") is None


def test_with_acting_masters_the_smallest_slave_is_shown_as_a_read_only_master(
    make_desk: Callable[..., Desk],
) -> None:
    for supported in (False, True):
        desk = make_desk(support_acting_master=supported)
        member_topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
        master = FakeConnection()
        desk.register([*TOPICS, member_topic], peer=master, enableActingMaster="true")
        for broker_id in (2, 3):
            desk.register(TOPICS, address=f"10.0.0.{broker_id}:1", broker_id=broker_id, enableActingMaster="true")
        desk.hang_up(master)
        assert desk.perms("TopicA") == {"broker-a": 4}
        # The smallest slave's own table says 6; it stays read-only.
        desk.register(TOPICS, address="10.0.0.2:1", broker_id=2, version=(9, 9), enableActingMaster="true")
        assert desk.perms("TopicA") == {"broker-a": 4}
        route, members = desk.route("TopicA"), desk.route(member_topic)
        assert route is not None
        assert members is not None
        true_ids = {"2": "10.0.0.2:1", "3": "10.0.0.3:1"}
        acting = {"0": "10.0.0.2:1", "3": "10.0.0.3:1"}
        assert route["brokerDatas"][0]["brokerAddrs"] == (acting if supported else true_ids)
        assert members["brokerDatas"][0]["brokerAddrs"] == true_ids


# --- permissions and topics


def test_wiped_write_permission_lasts_until_the_brokers_version_changes(desk: Desk) -> None:
    desk.register(TOPICS, version=(1, 1))
    desk.register(["TopicA", "Other"], name="broker-b", address="10.0.0.2:10911")
    assert desk.ask(Code.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a").ext_fields == {"wipeTopicCount": "4"}
    assert desk.perms("TopicA") == {"broker-a": 4, "broker-b": 6}
    desk.register(TOPICS, version=(1, 1))
    assert desk.perms("TopicA") == {"broker-a": 4, "broker-b": 6}
    desk.register(TOPICS, version=(1, 2))
    assert desk.perms("TopicA") == {"broker-a": 6, "broker-b": 6}


def test_deleting_a_topic_in_one_cluster_leaves_the_others(desk: Desk) -> None:
    desk.register(TOPICS)
    desk.register(TOPICS, name="broker-b", address="10.0.0.2:10911", cluster="Second")
    desk.ask(Code.DELETE_TOPIC_IN_NAMESRV, topic="TopicA", clusterName="Second")
    assert desk.perms("TopicA") == {"broker-a": 6}
    desk.ask(Code.DELETE_TOPIC_IN_NAMESRV, topic="TopicA", clusterName="Nowhere")
    assert desk.perms("TopicA") == {"broker-a": 6}
    desk.ask(Code.DELETE_TOPIC_IN_NAMESRV, topic="TopicA")
    assert desk.route("TopicA") is None
    # The broker still has it: its next table brings it back, whatever its version.
    desk.register(TOPICS)
    assert desk.perms("TopicA") == {"broker-a": 6}


def test_topic_lists_by_cluster_and_by_flags(desk: Desk) -> None:
    desk.register({"Unit": {"topicSysFlag": 1}, "UnitSub": {"topicSysFlag": 2}, "Both": {"topicSysFlag": 3}, "No": {}})
    desk.register(["Far", "Both"], name="broker-b", address="10.0.0.2:1", cluster="Second")

    def names(code: int, **ext: object) -> set[str]:
        return set(json.loads(desk.ask(code, **ext).body)["topicList"])

    assert names(Code.GET_UNIT_TOPIC_LIST) == {"Unit", "Both"}
    assert names(Code.GET_HAS_UNIT_SUB_TOPIC_LIST) == {"UnitSub", "Both"}
    assert names(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == {"UnitSub"}
    assert names(Code.GET_TOPICS_BY_CLUSTER, cluster="Second") == {"Far", "Both"}
    assert names(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS) == {"DefaultCluster", "broker-a", "Second", "broker-b"}


def test_topic_lists_can_be_switched_off(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(enable_topic_list=False, enable_all_topic_list=False)
    for code in (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Code.GET_TOPICS_BY_CLUSTER, Code.GET_UNIT_TOPIC_LIST):
        answer = desk.ask(code, cluster="DefaultCluster")
        assert (answer.code, answer.remark) == (1, "disable")
    assert desk.ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS).code == 0


def test_single_topic_registration_stops_at_an_unknown_broker(desk: Desk) -> None:
    desk.register(TOPICS)
    queues = [
        {"brokerName": name, "perm": 6, "readQueueNums": 1, "writeQueueNums": 2} for name in ("broker-a", "ghost")
    ]
    body = json.dumps({"queueDatas": queues}).encode()
    assert desk.ask(Code.REGISTER_TOPIC_IN_NAMESRV, body, topic="Registered").code == 0
    assert desk.perms("Registered") == {"broker-a": 6}


def test_static_topic_mappings_reach_the_route_with_quoted_ids(desk: Desk) -> None:
    table = register_body(TOPICS).decode()
    mapping = '{"bname":"broker-a","currIdMap":{0:1,1:0},"dirty":false,"epoch":9,"topic":"TopicA","totalQueues":2}'
    body = table[:-2] + ',"topicQueueMappingInfoMap":{"TopicA":' + mapping + "}}}"
    desk.ask(
        Code.REGISTER_BROKER,
        body.encode(),
        brokerName="broker-a",
        brokerAddr="10.0.0.1:10911",
        clusterName="DefaultCluster",
        brokerId=0,
    )
    route = desk.route("TopicA")
    assert route is not None
    assert route["topicQueueMappingByBroker"]["broker-a"]["currIdMap"] == {"0": 1, "1": 0}
    assert "topicQueueMappingByBroker" not in (desk.route("broker-a") or {})
