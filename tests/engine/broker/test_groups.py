"""The group table: Apache's file, and which requests may create a group."""

import json
import shutil

import pytest

from appliance.engine.broker.group_config import SubscriptionGroupConfig
from appliance.engine.errors import RefusedRequest, StartError
from tests.support.golden import GOLDEN


def recorded(version):
    return GOLDEN / "config" / version / "mixed" / "subscriptionGroup.json"


def file_of(desk):
    return json.loads((desk.config_dir / "subscriptionGroup.json").read_bytes())


def test_a_file_of_5_3_3_is_saved_again_byte_for_byte(open_desk, tmp_path):
    (tmp_path / "store/config").mkdir(parents=True)
    shutil.copy(recorded("5.3.3"), tmp_path / "store/config/subscriptionGroup.json")
    desk = open_desk()
    desk.groups._dirty = True
    desk.groups.persist()
    assert (desk.config_dir / "subscriptionGroup.json").read_bytes() == recorded("5.3.3").read_bytes()


def test_a_file_of_4_9_8_is_read_and_gets_the_fields_of_5_3_3(open_desk, tmp_path):
    (tmp_path / "store/config").mkdir(parents=True)
    shutil.copy(recorded("4.9.8"), tmp_path / "store/config/subscriptionGroup.json")
    desk = open_desk()
    desk.groups._dirty = True
    desk.groups.persist()
    after = file_of(desk)["subscriptionGroupTable"]
    new = {
        "attributes": {},
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
    }
    for name, config in json.loads(recorded("4.9.8").read_bytes())["subscriptionGroupTable"].items():
        assert after[name] == {**config, **new}


def test_a_new_broker_has_the_groups_of_5_3_3(desk):
    table = json.loads(recorded("5.3.3").read_bytes())["subscriptionGroupTable"]
    desk.groups.persist()
    assert file_of(desk)["subscriptionGroupTable"] == {n: c for n, c in table.items() if not n.startswith("CG_")}


def test_numbers_of_a_file_that_no_group_has_are_taken_as_some_that_one_may_have(open_desk, tmp_path):
    (tmp_path / "store/config").mkdir(parents=True)
    odd = {
        "Less": {"retryQueueNums": -1, "retryMaxTimes": -7},
        "More": {"retryQueueNums": (1 << 31) - 1, "retryMaxTimes": (1 << 31) - 1},
    }
    (tmp_path / "store/config/subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": odd}))
    groups = open_desk().groups
    assert [(g.retry_queue_nums, g.retry_max_times) for g in map(groups.get, odd)] == [
        (0, -1),
        (65_536, (1 << 31) - 1),
    ]


def test_forbidden_topics_and_policies_of_the_file_are_kept(open_desk, tmp_path):
    group = {
        "groupName": "g",
        "groupRetryPolicy": {
            "exponentialRetryPolicy": {"initial": 1, "max": 2, "multiplier": 3},
            "type": "EXPONENTIAL",
        },
        "subscriptionDataSet": [{"expression": "*", "expressionType": "TAG", "topic": "T", "version": 5}],
        "attributes": {"priority.factor": "5"},
    }
    document = {"forbiddenTable": {"g": {"T": 4}}, "subscriptionGroupTable": {"g": group}}
    (tmp_path / "store/config").mkdir(parents=True)
    (tmp_path / "store/config/subscriptionGroup.json").write_text(json.dumps(document))
    desk = open_desk()
    desk.groups.persist()
    after = file_of(desk)
    assert after["forbiddenTable"] == {"g": {"T": 4}}
    assert group.items() <= after["subscriptionGroupTable"]["g"].items()
    desk.groups.update(SubscriptionGroupConfig(group_name="g", retry_max_times=3))
    assert desk.groups.get("g").attributes == {"priority.factor": "5"}


def test_forbidden_topics_that_are_no_table_are_not_dropped_silently(open_desk, tmp_path):
    (tmp_path / "store/config").mkdir(parents=True)
    path = tmp_path / "store/config/subscriptionGroup.json"
    path.write_text(json.dumps({"forbiddenTable": [1], "subscriptionGroupTable": {}}))
    with pytest.raises(StartError, match="forbiddenTable is no object"):
        open_desk()


def test_a_text_without_utf_8_in_the_file_does_not_end_the_saving_thread(open_desk, tmp_path):
    (tmp_path / "store/config").mkdir(parents=True)
    text = '{"subscriptionGroupTable":{"g":{"attributes":{"k":"\\ud800"}}}}'
    (tmp_path / "store/config/subscriptionGroup.json").write_text(text)
    desk = open_desk()
    desk.groups._saver.save_now()
    assert "surrogate" in desk.groups.failure
    desk.groups.delete("g")
    desk.groups.stop()
    assert desk.groups.failure is None
    assert "TOOLS_CONSUMER" in file_of(desk)["subscriptionGroupTable"]


def test_an_unknown_group_springs_up_once(desk):
    version = desk.groups.data_version
    group = desk.groups.find("g")
    assert group == SubscriptionGroupConfig(group_name="g")
    assert desk.groups.find("g") is desk.groups.get("g") is group
    assert desk.groups.data_version.counter == version.counter + 1


def test_it_does_not_where_that_is_switched_off_but_for_the_brokers_own(open_desk):
    groups = open_desk(auto_create_subscription_group=False).groups
    assert groups.find("g") is None
    assert groups.get("g") is None
    assert groups.find("TOOLS_CONSUMER") is not None
    assert groups.find("CID_RMQ_SYS_REVIVE_GROUP") is not None


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 256, "ü", "a\n"])
def test_an_illegal_name_is_no_group(desk, name):
    assert desk.groups.find(name) is None
    with pytest.raises(RefusedRequest):
        desk.groups.update(SubscriptionGroupConfig(group_name=name))


@pytest.mark.parametrize(
    "wrong",
    [
        {"retry_queue_nums": -1},
        {"retry_queue_nums": 100_000},
        {"retry_max_times": -2},
        {"attributes": {"+colour": "red"}},
    ],
)
def test_what_may_not_be_is_refused(desk, wrong):
    with pytest.raises(RefusedRequest) as refusal:
        desk.groups.update(SubscriptionGroupConfig(group_name="g", **wrong))
    assert refusal.value.code == 1
    assert desk.groups.get("g") is None


def test_changes_survive_a_crash(open_desk):
    desk = open_desk()
    desk.groups.update(SubscriptionGroupConfig(group_name="a", retry_max_times=3))
    desk.groups.find("b")
    desk.groups.persist()
    assert desk.groups.update(SubscriptionGroupConfig(group_name="a", retry_max_times=3)) == 0
    desk.groups.update(SubscriptionGroupConfig(group_name="a", consume_enable=False))
    desk.groups.delete("b")
    assert desk.groups.delete("b") == 0
    again = open_desk().groups
    assert again.get("a") == SubscriptionGroupConfig(group_name="a", consume_enable=False)
    assert again.get("b") is None
    assert again.data_version == desk.groups.data_version
