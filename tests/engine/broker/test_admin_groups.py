"""200, 225, 207, 201, 352."""

import json

import pytest

from .conftest import ForgetfulDisk


def table_of(desk):
    return json.loads(desk.ask(201).body)["subscriptionGroupTable"]


def test_a_group_is_made_and_replaced(open_desk):
    desk = open_desk()
    assert desk.ask(200, body={"groupName": "g", "retryMaxTimes": 5, "consumeEnable": False}).code == 0
    assert table_of(desk)["g"]["retryMaxTimes"] == 5
    assert desk.ask(200, body={"groupName": "g", "retryQueueNums": 2}).code == 0
    group = open_desk().groups.get("g")
    assert (group.retry_max_times, group.retry_queue_nums, group.consume_enable) == (16, 2, True)


def test_changes_are_durable_when_they_are_answered(open_desk):
    disk = ForgetfulDisk()
    desk = open_desk(disk)
    desk.ask(200, body={"groupName": "g"})
    desk.ask(200, body={"groupName": "h"})
    disk.power_cut()
    desk = open_desk(disk)
    assert desk.groups.get("g") is not None
    assert desk.groups.get("h") is not None
    desk.ask(207, {"groupName": "h"})
    disk.power_cut()
    assert open_desk().groups.get("h") is None


def test_a_list_of_groups(desk):
    answer = desk.ask(225, body={"groupConfigList": [{"groupName": "a"}, {"groupName": "b", "brokerId": 1}]})
    assert answer.code == 0
    assert table_of(desk)["b"]["brokerId"] == 1
    assert "a" in table_of(desk)


@pytest.mark.parametrize("code", [200, 225])
@pytest.mark.parametrize(
    "group",
    [
        "x",
        5,
        {},
        {"groupName": ""},
        {"groupName": "a b"},
        {"groupName": "../x"},
        {"groupName": "g", "brokerId": 1 << 80},
        {"groupName": "g", "retryMaxTimes": 1 << 40},
        {"groupName": "g", "retryQueueNums": -1},
        {"groupName": "g", "groupRetryPolicy": 5},
        {"groupName": "g", "attributes": {"+colour": "red"}},
        {"groupName": "g\ud800"},
        {"groupName": "g", "groupRetryPolicy": {"type": "\ud800"}},
    ],
    ids=repr,
)
def test_what_is_no_group_is_refused(desk, code, group):
    version = desk.groups.data_version
    answer = desk.ask(code, body=group if code == 200 else {"groupConfigList": [group]})
    assert answer.code == 1
    assert answer.remark
    assert desk.groups.data_version == version
    desk.groups.persist()


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b"null"])
def test_a_body_that_is_nothing_is_refused(desk, body):
    assert desk.ask(200, body=body).code == 1
    assert desk.ask(225, body=body).code == 1


@pytest.mark.parametrize("field", [None, "cleanOffset", "removeOffset"])
def test_a_deleted_group_keeps_its_offsets_unless_told(open_desk, field):
    desk = open_desk()
    desk.ask(200, body={"groupName": "g"})
    desk.offsets.commit("g", "T", 0, 5)
    desk.offsets.persist()
    assert desk.ask(207, {"groupName": "g", **({field: "true"} if field else {})}).code == 0
    again = open_desk()
    assert again.groups.get("g") is None
    assert again.offsets.get("g", "T", 0) == (-1 if field else 5)


def test_deleting_what_is_not_there_is_fine(desk):
    assert desk.ask(207, {"groupName": "NoSuchGroup"}).code == 0
    assert desk.ask(207).code == 1


def test_a_group_that_is_asked_for_springs_up(desk):
    """5.3.3 does so, too; recorded."""
    answer = desk.ask(352, {"group": "g"})
    assert answer.code == 0
    assert json.loads(answer.body) == table_of(desk)["g"]


def test_it_does_not_where_groups_are_not_created(open_desk):
    answer = open_desk(auto_create_subscription_group=False).ask(352, {"group": "g"})
    assert (answer.code, answer.remark) == (26, "No group in this broker")
    assert open_desk().ask(352).code == 1


def test_the_whole_table_is_given(desk):
    body = json.loads(desk.ask(201).body)
    assert body.keys() == {"dataVersion", "forbiddenTable", "subscriptionGroupTable"}
    assert body["subscriptionGroupTable"].keys() == {config.group_name for config in desk.groups.all()}
