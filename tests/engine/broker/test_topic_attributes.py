"""A topic's attributes: which changes requests may make, and RocketMQ 5.3.3's words for the others."""

import pytest

from appliance.engine.broker.topic_attributes import alter_attributes, changes_between, parse_attributes
from appliance.engine.errors import RefusedRequest


@pytest.mark.parametrize(
    ("text", "current", "after"),
    [
        ("", None, {}),
        ("+message.type=FIFO,+reserve.time=-1", None, {"message.type": "FIFO", "reserve.time": "-1"}),
        ("+queue.type=SimpleCQ,+cleanup.policy=DELETE", None, {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}),
        ("-message.type", {"message.type": "FIFO"}, {}),
        ("+message.type=DELAY", {"message.type": "FIFO", "x": "kept"}, {"message.type": "DELAY", "x": "kept"}),
    ],
)
def test_attributes_change_as_told(text, current, after):
    assert alter_attributes(current, parse_attributes(text)) == after


@pytest.mark.parametrize(
    ("text", "current", "remark"),
    [
        ("message.type=FIFO", None, "add/alter attribute format is wrong: message.type"),
        ("message.type", None, "delete attribute format is wrong: message.type"),
        ("+message.type", None, "delete attribute format is wrong: +message.type"),
        ("+message.type=A,+message.type=B", None, "key duplication: +message.type"),
        ("-message.type", None, "only add attribute is supported while creating topic. key: message.type"),
        ("-message.type", {}, "attempt to delete a nonexistent key: message.type"),
        ("+message.type=FIFO,-message.type", {"message.type": "FIFO"}, "key duplication found. key: message.type"),
        ("+message.type=NOPE", None, "value is not in set: [UNSPECIFIED, TRANSACTION, FIFO, MIXED, DELAY, NORMAL]"),
        ("+reserve.time=x", None, 'For input string: "x"'),
        ("+reserve.time=-2", None, "value is not in range(-1, 9223372036854775807)"),
        ("+reserve.time=99999999999999999999", None, 'For input string: "99999999999999999999"'),
        ("+colour=red", None, "unsupported key: colour"),
        ("+queue.type=SimpleCQ", {}, "attempt to update an unchangeable attribute. key: queue.type"),
        ("+=x", None, "kv string format wrong."),
        ("+a+b=x", None, "kv string format wrong."),
        ("+queue.type=BatchCQ", None, "BatchCQ queue type is not supported."),
        ("+cleanup.policy=COMPACTION", None, "COMPACTION cleanup policy is not supported."),
    ],
)
def test_attributes_that_may_not_be_are_refused(text, current, remark):
    with pytest.raises(RefusedRequest) as refusal:
        alter_attributes(current, parse_attributes(text))
    assert str(refusal.value) == remark


def test_what_lies_between_two_states_leads_from_one_to_the_other():
    before = {"message.type": "FIFO", "reserve.time": "5"}
    after = {"message.type": "NORMAL"}
    assert alter_attributes(before, changes_between(before, after)) == after
    assert alter_attributes(None, changes_between({}, before)) == before
    assert changes_between(before, before) == ()
