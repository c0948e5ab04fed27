"""17, 18, 215, 21, 351: durable and routed before they are answered."""

import json

import pytest

from appliance.engine.broker.topic_config import TopicConfig
from appliance.engine.disk import Disk

from .conftest import ForgetfulDisk

EXT = {"topic": "T", "readQueueNums": "4", "writeQueueNums": "3", "perm": "6", "order": "false"}


def create(desk, **ext):
    return desk.ask(17, {**EXT, **ext})


def table_of(desk):
    return json.loads(desk.ask(21).body)["topicConfigTable"]


def test_a_topic_is_made_as_told(desk):
    answer = create(desk, topicSysFlag="1", order="true", topicFilterType="MULTI_TAG", attributes="+message.type=FIFO")
    assert (answer.code, answer.remark) == (0, None)
    assert desk.topics.get("T") == TopicConfig(
        attributes={"message.type": "FIFO"},
        order=True,
        perm=6,
        read_queue_nums=4,
        topic_filter_type="MULTI_TAG",
        topic_name="T",
        topic_sys_flag=1,
        write_queue_nums=3,
    )
    assert desk.name_servers.registered == ["T"]


def test_it_is_durable_when_it_is_answered(open_desk):
    disk = ForgetfulDisk()
    desk = open_desk(disk)
    assert create(desk).code == 0
    assert desk.ask(18, body={"topicConfigList": [{"topicName": "U"}, {"topicName": "V"}]}).code == 0
    disk.power_cut()
    topics = open_desk().topics
    assert topics.get("T").read_queue_nums == 4
    assert topics.get("U") == TopicConfig(topic_name="U")
    assert topics.get("V") is not None


def test_it_is_refused_when_the_journal_cannot_sync(open_desk):
    class Failing(Disk):
        fails = False

        def fdatasync(self, fd):
            if self.fails:
                raise OSError(5, "Input/output error")

    disk = Failing()
    desk = open_desk(disk)
    disk.fails = True
    answer = create(desk)
    assert (answer.code, desk.name_servers.registered) == (1, [])
    assert "Input/output error" in answer.remark


def test_the_same_again_is_fine_and_not_registered_again(desk):
    create(desk)
    version = json.loads(desk.ask(21).body)["dataVersion"]
    desk.clock.advance(ms=1000)
    assert create(desk).code == 0
    assert desk.name_servers.registered == ["T"]
    assert json.loads(desk.ask(21).body)["dataVersion"] == version


@pytest.mark.parametrize(
    ("ext", "code", "remark"),
    [
        (
            {"topic": "bad topic!"},
            29,
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ({"topic": ""}, 29, "The specified topic is blank."),
        ({"topic": "x" * 128}, 29, "The specified topic is longer than topic max length."),
        ({"topic": "../../etc/passwd"}, 29, None),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "DefaultCluster"}, 29, "The topic[DefaultCluster] is conflict with system topic."),
        ({"topic": "broker-a"}, 29, None),
        ({"topic": "rmq_sys_anything"}, 29, None),
        ({"topic": "RMQ_SYS_TRACE_TOPIC"}, 29, None),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ({"attributes": "+message.type=NOPE"}, 1, None),
        ({"attributes": "rubbish"}, 1, None),
        ({"readQueueNums": "x"}, 1, None),
        ({"readQueueNums": ""}, 1, None),
        ({"perm": "99999999999"}, 1, None),
        ({"perm": "16"}, 29, None),
        ({"writeQueueNums": "-1"}, 29, None),
        ({"readQueueNums": "2147483647"}, 29, None),
        ({"topicFilterType": "NOPE"}, 1, None),
    ],
)
def test_what_may_not_be_is_refused_and_changes_nothing(desk, ext, code, remark):
    version = desk.topics.data_version
    answer = create(desk, **ext)
    assert answer.code == code
    assert remark is None or answer.remark == remark
    assert desk.topics.data_version == version
    assert desk.name_servers.registered == []


def test_a_list_with_a_bad_name_changes_nothing(desk):
    answer = desk.ask(18, body={"topicConfigList": [{"topicName": "U"}, {"topicName": "TBW102"}]})
    assert answer.code == 29
    assert desk.topics.get("U") is None


@pytest.mark.parametrize("body", [b"", b"x", b"[]", b'{"topicConfigList":[1]}', b'{"topicConfigList":[{"perm":"x"}]}'])
def test_a_body_that_is_no_list_of_topics_is_refused(desk, body):
    assert desk.ask(18, body=body).code == 1


def test_a_long_list_is_made_and_a_longer_one_refused(desk):
    many = {"topicConfigList": [{"topicName": f"T{number}", "order": False} for number in range(8000)]}
    assert desk.ask(18, body=many).code == 0
    assert len(desk.name_servers.registered) == 8000
    assert desk.ask(18, body=b'{"topicConfigList":[]}' + b" " * (1 << 20)).code == 1


def test_an_empty_list_is_fine(desk):
    assert desk.ask(18, body=b'{"topicConfigList":null}').code == 0


def test_a_deleted_topic_takes_offsets_and_queues_along(open_desk):
    desk = open_desk()
    create(desk)
    create(desk, topic="Other")
    for name in ("%RETRY%g_T", "%RETRY%h_T"):
        desk.topics.create_retry_topic(name, 1, 6)
    for topic in ("T", "Other", "%RETRY%g_T"):
        desk.offsets.commit("g", topic, 0, 5)
    desk.offsets.persist()
    answer = desk.ask(215, {"topic": "T"})
    assert (answer.code, answer.remark) == (0, None)
    assert desk.store.deleted == ["%RETRY%g_T", "T"]
    again = open_desk()  # after a crash
    assert [name for name in ("T", "Other", "%RETRY%g_T", "%RETRY%h_T") if again.topics.get(name)] == [
        "Other",
        "%RETRY%h_T",
    ]
    assert [(entry.topic, entry.group) for entry in again.offsets.all()] == [("Other", "g")]


def test_deleting_again_finishes_what_was_interrupted(desk):
    create(desk)
    desk.store.error = OSError(5, "Input/output error")
    answer = desk.ask(215, {"topic": "T"})
    assert answer.code == 1
    assert "try again" in answer.remark
    desk.store.error = None
    assert desk.ask(215, {"topic": "T"}).code == 0
    assert desk.store.deleted == ["T"]
    assert desk.topics.create_from_default("T", "TBW102", 4) is not None


@pytest.mark.parametrize("at", [0, 1])
def test_deleting_again_finds_the_retry_topics_of_what_was_interrupted(desk, monkeypatch, at):
    create(desk)
    desk.topics.create_retry_topic("%RETRY%g_T", 1, 6)
    desk.offsets.commit("g", "T", 0, 5)
    ends = iter([None] * at + [OSError(28, "No space left on device")])

    def full():
        if (end := next(ends)) is not None:
            raise end

    with monkeypatch.context() as patch:
        patch.setattr(desk.offsets, "persist", full)
        assert desk.ask(215, {"topic": "T"}).code == 1
    assert desk.ask(215, {"topic": "T"}).code == 0
    assert [desk.topics.get(name) for name in ("T", "%RETRY%g_T")] == [None, None]


@pytest.mark.parametrize(
    ("topic", "code"),
    [("NoSuchTopic", 0), ("", 29), (" ", 29), ("SCHEDULE_TOPIC_XXXX", 29), ("rmq_sys_x", 29), ("../x", 29)],
)
def test_which_topics_may_be_deleted(desk, topic, code):
    assert desk.ask(215, {"topic": topic}).code == code
    assert desk.store.deleted == ([topic] if code == 0 else [])


def test_the_whole_table_is_given(desk):
    create(desk)
    answer = desk.ask(21)
    body = json.loads(answer.body)
    assert body.keys() == {
        "dataVersion",
        "mappingDataVersion",
        "topicConfigTable",
        "topicQueueMappingDetailMap",
        "topicQueueMappingInfoMap",
    }
    assert b" " not in answer.body
    assert list(body["topicConfigTable"]["T"]) == [
        "attributes",
        "order",
        "perm",
        "readQueueNums",
        "topicFilterType",
        "topicName",
        "topicSysFlag",
        "writeQueueNums",
    ]
    assert table_of(desk).keys() == {config.topic_name for config in desk.topics.all()}


def test_one_topic_is_given(desk):
    create(desk)
    answer = desk.ask(351, {"topic": "T", "lo": "true"})
    assert json.loads(answer.body) == table_of(desk)["T"]
    answer = desk.ask(351, {"topic": "NoSuchTopic"})
    assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: NoSuchTopic")
    assert desk.ask(351).code == 1
