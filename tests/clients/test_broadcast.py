"""Groups that broadcast: every member gets everything once, nothing comes again, the group has no offset."""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from tests.clients.agents import PushConsumer
from tests.clients.conftest import wait_for_clients
from tests.clients.messages import Message, assert_each_once
from tests.clients.stage import JAVA_GO_AND_PYTHON, KINDS_AND_PYTHON, READY_S, Stage
from tests.support.waiting import wait_for


def see_something(stage: Stage, *members: PushConsumer) -> None:
    """Until each member has seen the last probe: the C++ client begins at the end. No probe is under way then."""

    def all_saw() -> bool:
        probe = Message(b"probe %d" % time.monotonic_ns())
        stage.send([probe])
        for _ in range(40):
            if all(of(member, [probe]) for member in members):
                return True
            time.sleep(0.05)
        return False

    wait_for_clients(all_saw, "every member has begun", seconds=READY_S)


def of(consumer: PushConsumer, messages: list[Message]) -> list[dict]:
    bodies = {message.sha256 for message in messages}
    return [one for one in consumer.received if one["body_sha256"] in bodies]


def noted(stage: Stage) -> int:
    """The sum of the offsets in the file of the Go client's member; 0 while there is none."""
    files = stage.agent.log_path.parent.glob(f".rocketmq_client_go/{stage.group}/*/offset.json")
    return sum(sum(json.loads(file.read_bytes() or b"{}").get("offsetTable", {}).values()) for file in files)


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_members_of_every_kind_get_everything_and_the_group_has_no_offset(kind: str, stage: Stage) -> None:
    """Sent by one kind to one group with a member of each kind."""
    stage.create_topic()
    messages = [Message(f"message {number}".encode(), tags="apples") for number in range(10)]
    with contextlib.ExitStack() as stack:
        members = [
            stack.enter_context(stage.consumer(agent=stage.client(each), model="BROADCASTING"))
            for each in KINDS_AND_PYTHON
        ]
        see_something(stage, *members)
        stage.send(messages)
        for member in members:
            wait_for_clients(lambda m=member: len(of(m, messages)) >= 10, f"all came to {member.name}", READY_S)
    for member in members:
        assert_each_once(messages, of(member, messages))
    # Apache 5.3.3 notes where its members pull, under another name than the group's.
    assert not [name for name in stage.offsets() if not name.endswith("@broadcast")]


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_what_fails_in_a_broadcast_is_not_tried_again(kind: str, stage: Stage) -> None:
    stage.create_topic()
    messages = [Message(f"message {number}".encode()) for number in range(3)]
    with stage.consumer(model="BROADCASTING", fail=-1) as member:
        see_something(stage, member)
        for number, message in enumerate(messages, 1):
            stage.send([message])
            if kind == "cpp" or number == 3:  # it drops what follows a failure in the same pull
                wait_for_clients(lambda n=number: len(of(member, messages)) >= n, "all came", READY_S)
        time.sleep(2)
    assert_each_once(messages, of(member, messages))
    assert stage.stored(f"%RETRY%{stage.group}") == []
    assert stage.stored(f"%DLQ%{stage.group}") == []


@pytest.mark.at_once
@pytest.mark.parametrize("kind", JAVA_GO_AND_PYTHON)
def test_a_member_goes_on_where_its_own_file_says(kind: str, stage: Stage) -> None:
    stage.create_topic()
    before, between = ([Message(f"{when} {n}".encode()) for n in range(5)] for when in ("before", "between"))
    instance = f"i_{stage.topic}"
    stage.send(before)
    with stage.consumer(model="BROADCASTING", instance=instance) as member:
        member.wait_for(5, READY_S)
        if kind == "go":  # Java notes at its stop what its listener has returned from
            wait_for(lambda: noted(stage) == 5, "its file has all", READY_S, not_yet=(OSError,))
    stage.send(between)
    with stage.consumer(model="BROADCASTING", instance=instance) as member:
        wait_for_clients(lambda: len(of(member, between)) >= 5, "what was missed came", READY_S)
        time.sleep(0.5)
    assert_each_once(between, member.received)
