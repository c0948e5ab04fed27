"""Members of a group that come, go and are killed while messages arrive: nothing is lost, whatever comes twice.

No C++ member here loses a queue and gets it again: its library keeps one callback a queue, so the answer of a pull from
before moves the new owner's offset (DefaultMQPushConsumerImpl::getAsyncPullCallBack), and steps over messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.clients.agents import Agent, PushConsumer
from tests.clients.conftest import wait_for_clients
from tests.clients.messages import Message
from tests.clients.stage import KINDS_AND_PYTHON, READY_S, Stage


@contextlib.contextmanager
def closing_what_was_killed(agent: Agent) -> Iterator[Agent]:
    try:
        yield agent
    finally:
        with contextlib.suppress(AssertionError):  # what waited for its answers
            agent.close()


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_nothing_is_lost_while_members_come_go_and_are_killed(kind: str, stage: Stage) -> None:
    stage.create_topic(queues=4)
    sent: list[Message] = []

    def send(count: int) -> None:
        more = [Message(f"message {len(sent) + number}".encode()) for number in range(count)]
        acks = stage.send(more)
        assert [ack["status"] for ack in acks] == ["SEND_OK"] * count
        sent.extend(more)

    with contextlib.ExitStack() as stack:
        members: list[PushConsumer] = []

        def missing() -> set[str]:
            came = {one["body_sha256"] for member in members for one in member.received}
            return {message.sha256 for message in sent} - came

        victim = stack.enter_context(closing_what_was_killed(stage.another(kind)))
        members.append(stack.enter_context(stage.consumer(agent=victim, hold_ms=20)))
        send(40)
        leaving = stack.enter_context(contextlib.closing(stage.another(kind)))
        members.append(stack.enter_context(stage.consumer(agent=leaving)))

        def both_have_a_share() -> bool:
            send(20)
            return all(len(member.received) >= 10 for member in members)

        wait_for_clients(both_have_a_share, "both have a share", seconds=READY_S)
        victim.kill()
        members[0].abandon()
        send(40)
        members.append(stack.enter_context(stage.consumer()))
        send(40)
        if kind == "cpp":  # its shutdown hangs in the library while messages come, so it goes with its process
            for member in members:
                member.abandon()
            leaving.close()
        else:
            members[1].stop()
        send(40)
        wait_for_clients(lambda: not missing(), "all came", seconds=READY_S)


@pytest.mark.at_once
@pytest.mark.parametrize("kind", KINDS_AND_PYTHON)
def test_it_shares_a_group_with_a_client_of_another_kind_that_leaves(kind: str, stage: Stage) -> None:
    """A message that failed at one member may come again to another."""
    other = "go" if kind.startswith("java") else "java-5.3.3"
    stage.create_topic(queues=4)
    messages = [Message(f"message {number}".encode()) for number in range(60)]
    with stage.consumer(agent=stage.client(other), fail=1) as theirs, stage.consumer(fail=1) as mine:
        stage.send(messages[:30])

        def came() -> set[str]:
            return {one["body_sha256"] for member in (mine, theirs) for one in member.received}

        wait_for_clients(lambda: {m.sha256 for m in messages[:30]} <= came(), "half came", seconds=READY_S)
        theirs.stop()
        stage.send(messages[30:])
        wait_for_clients(lambda: {m.sha256 for m in messages} <= came(), "all came", seconds=READY_S)

        def done() -> bool:
            """True if each message, having failed once, came again to one of the members with its count."""
            again = {o["body_sha256"] for member in (mine, theirs) for o in member.received if o["reconsume_times"] > 0}
            return {m.sha256 for m in messages} <= again

        wait_for_clients(done, "all came again", seconds=READY_S)
