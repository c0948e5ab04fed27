"""Settings of topics and groups: read back as written, within limits, and nothing else changes."""

import pytest

from appliance.engine.admin_settings import GROUP_SETTINGS, TOPIC_SETTINGS, Setting, group_fields, topic_fields
from appliance.engine.broker.group_config import SubscriptionGroupConfig
from appliance.engine.broker.topic_attributes import alter_attributes, changes_between
from appliance.engine.broker.topic_config import TopicConfig, reserve_hours_of

TOPIC = {setting.name: setting for setting in TOPIC_SETTINGS}
GROUP = {setting.name: setting for setting in GROUP_SETTINGS}
SETTINGS = [(TopicConfig(topic_name="T", perm=7, attributes={"cleanup.policy": "DELETE"}), s) for s in TOPIC_SETTINGS]
SETTINGS += [(SETTINGS[0][0], Setting("a_line", "", attribute="a.line", absent="", maximum=200))]
SETTINGS += [(SubscriptionGroupConfig(group_name="g"), setting) for setting in GROUP_SETTINGS]


def values_of(setting):
    if setting.choices:
        return setting.choices
    if isinstance(setting.default, bool):
        return (True, False)
    if isinstance(setting.default, str):
        return ("", "a line; of text, 语", "x" * setting.maximum)
    return (setting.minimum, setting.maximum, setting.default)


@pytest.mark.parametrize(("config", "setting"), SETTINGS, ids=[setting.name for _, setting in SETTINGS])
def test_what_is_written_is_read_and_nothing_else_moves(config, setting):
    others = [other for known, other in SETTINGS if type(known) is type(config) and other is not setting]
    for value in values_of(setting):
        assert setting.accepts(value)
        written = setting.write(config, value)
        assert setting.read(written) == value
        assert [other.read(written) for other in others] == [other.read(config) for other in others]
    assert setting.accepts(setting.default)


@pytest.mark.parametrize(("config", "setting"), SETTINGS, ids=[setting.name for _, setting in SETTINGS])
def test_values_of_another_type_or_out_of_bounds_are_not_accepted(config, setting):
    wrong = [None, 1.5, b"x", "x" * 201]
    if isinstance(setting.default, bool):
        wrong += [0, 1, "true"]
    elif isinstance(setting.default, int):
        wrong += [True, "1", setting.minimum - 1, setting.maximum + 1]
    else:
        wrong += [True, 1, "two\nlines", *([""] if setting.choices else [])]
    assert [value for value in wrong if setting.accepts(value)] == []


def test_an_attribute_is_left_out_where_it_says_nothing():
    config = TopicConfig(topic_name="T", attributes={"message.type": "FIFO", "reserve.time": "5"})
    config = TOPIC["kind"].write(config, "UNSPECIFIED")
    assert config.attributes == {"reserve.time": "5"}
    assert TOPIC["reserve_hours"].write(config, 0).attributes == {}


@pytest.mark.parametrize("text", ["-1", "", "soon", "\u0663", "9" * 5000], ids=range(5))
def test_hours_that_are_no_number_are_none(text):
    config = TopicConfig(attributes={"reserve.time": text})
    assert TOPIC["reserve_hours"].read(config) == 0
    assert reserve_hours_of(config) is None


def test_permission_bits_that_are_no_setting_stay():
    config = TOPIC["writable"].write(TopicConfig(perm=7), False)
    assert config.perm == 5
    assert TOPIC["readable"].write(config, False).perm == 1


def test_every_attribute_that_is_a_setting_is_one_that_requests_may_set():
    for setting in TOPIC_SETTINGS:
        if setting.attribute:
            for value in values_of(setting):
                after = setting.write(TopicConfig(), value).attributes
                assert alter_attributes(None, changes_between({}, after)) == after


def test_settings_are_listed_as_people_read_them():
    config = TopicConfig(topic_name="T", attributes={"reserve.time": "5", "cleanup.policy": "DELETE"})
    assert topic_fields(config) == {
        "kind": "UNSPECIFIED",
        "read_queues": "16",
        "write_queues": "16",
        "readable": "true",
        "writable": "true",
        "order": "false",
        "reserve.time": "5",
        "cleanup.policy": "DELETE",
    }
    assert group_fields(SubscriptionGroupConfig(group_name="g"))["retry_max_times"] == "16"
