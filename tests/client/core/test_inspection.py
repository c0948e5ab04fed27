"""Questions of brokers about members of groups: whatever they send is answered, and bad tables change nothing."""

import random

import pytest

from appliance.client.core.client_core import ClientCore
from appliance.client.core.directory import Directory
from appliance.client.core.figures import Rates, Window
from appliance.client.core.inspection import read_offsets
from appliance.client.core.push_group import Direct, Handling, PushGroup
from appliance.client.core.requests import Subscription
from appliance.client.errors import BadAnswer
from appliance.client.message import MessageQueue
from appliance.engine import fastjson
from appliance.engine.protocol.command import RemotingCommand
from tests.support.client_steps import Driver, SetClock, answer
from tests.support.effort import effort

TABLE = b'{"offsetTable":{{"brokerName":"broker-a","queueId":2,"topic":"T"}:7}}'


def core_with_group(dispatch=lambda task: None):
    clock, notes = SetClock(), []
    core = ClientCore(Directory(["ns:9876"], clock, 3.0), clock, "me", 3.0, notes.append, lambda: "stacks of mine")
    group = PushGroup(
        "g", core.surroundings, begin="first", wake=lambda: None, handling=Handling(10, 1000, 1, 16, 900.0),
        offsets=None, dispatch=dispatch,
    )  # fmt: skip
    group.subscriptions["T"] = Subscription("T")
    core.groups["g"] = group
    return core, group, notes


def ask(core, code, body=b"", reply=lambda answer: None, **fields):
    return core.asked("a:10911", RemotingCommand(code, ext_fields=fields, body=body), reply)


def test_the_table_of_a_reset_as_brokers_write_it():
    assert read_offsets(TABLE) == {MessageQueue("T", "broker-a", 2): 7}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[]", b"\xff", b'{"offsetTable":[]}', TABLE.replace(b"7", b"-1"), TABLE.replace(b"7", b'"7"'),
        TABLE.replace(b"7", b"true"), TABLE.replace(b"7", b"9223372036854775808"), TABLE.replace(b'"T"', b"null"),
        TABLE.replace(b'"queueId":2,', b""), b'{"offsetTable":{"T":7}}', b"[" * 5000,
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_moves_nobody(body):
    with pytest.raises(BadAnswer):
        read_offsets(body)
    core, _, notes = core_with_group()
    steps, said = ask(core, 220, body, topic="T", group="g")
    assert (steps, said.code) == (None, 1)
    assert notes


@pytest.mark.parametrize("code", [307, 309])
def test_a_group_that_is_not_here_is_named_as_java_names_it(code):
    core, _, _ = core_with_group()
    steps, said = ask(core, code, consumerGroup="other")
    assert (steps, said.code) == (None, 1)
    assert said.remark == "The Consumer Group <other> not exist in this consumer"


def test_stacks_are_given_only_if_they_are_wanted():
    core, _, _ = core_with_group()
    _, said = ask(core, 307, consumerGroup="g", jstackEnable="true")
    assert fastjson.loads(said.body)["jstack"] == "stacks of mine"
    _, said = ask(core, 307, consumerGroup="g", jstackEnable="false")
    assert "jstack" not in fastjson.loads(said.body)


def test_messages_to_handle_are_bounded():
    tasks = []
    core, group, _ = core_with_group(tasks.append)
    record = recorded_message()
    codes = [said.code for _ in range(200) if (said := ask(core, 309, record, consumerGroup="g")[1]) is not None]
    assert len(tasks) == 100
    assert codes == [2] * 100
    assert all(isinstance(task, Direct) for task in tasks)
    group.is_stopping = True
    group.directs = 0
    assert ask(core, 309, record, consumerGroup="g")[1].code == 2


def recorded_message():
    from appliance.engine.protocol.command import decode_frame
    from tests.support.golden import VERSIONS, frames, transcripts

    for path in transcripts(VERSIONS[-1]):
        codes = {}
        for line, frame in frames(path):
            if line["dir"] == "request":
                codes[decode_frame(frame).opaque] = decode_frame(frame).code
            elif (found := decode_frame(frame)).body and codes.get(found.opaque) == 33 and found.code == 0:
                return found.body
    raise AssertionError("no message was recorded")


def test_whatever_brokers_ask_is_answered_or_ignored():
    chance = random.Random(11)
    core, _, _ = core_with_group()
    record = recorded_message()
    for _ in range(effort(300, 3000, 30_000)):
        body = bytearray(chance.choice([TABLE, record, b""]))
        for _ in range(chance.randrange(4)):
            if body:
                body[chance.randrange(len(body))] = chance.randrange(256)
        fields = {"consumerGroup": "g", "group": "g", "topic": chance.choice(["T", "", "U"])}
        for name in list(fields):
            if chance.random() < 0.2:
                fields[name] = chance.choice(["", "x" * 70_000, "\ud800"])
        steps, said = ask(core, chance.choice([220, 221, 307, 309]), bytes(body), **fields)
        assert said is None or said.code in (0, 1, 2)
        if steps is not None:
            Driver(lambda call: answer(), SetClock()).run(steps)


def test_figures_are_of_the_last_minute_and_hour():
    rates = Rates()
    for second in range(0, 600, 10):
        rates.add_call(1000.0 + second, 10, 1, 0.005)
        rates.add_pull(1000.0 + second, 32, 0.25)
    found = rates.status(1600.0)
    assert found["consumeOKTPS"] == pytest.approx(1.0, rel=0.2)
    assert found["pullTPS"] == pytest.approx(3.2, rel=0.2)
    assert (found["consumeRT"], found["pullRT"], found["consumeFailedMsgs"]) == (5.0, 250.0, 60)
    later = rates.status(3000.0)
    assert (later["consumeOKTPS"], later["pullRT"], later["consumeRT"]) == (0.0, 0.0, 5.0)
    assert rates.status(6000.0)["consumeFailedMsgs"] == 0


def test_a_window_keeps_a_bounded_number_of_steps():
    window = Window(10.0, 60.0)
    for second in range(100_000):
        window.add(float(second), 1)
    assert len(window._buckets) <= 8
