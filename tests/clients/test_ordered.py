"""Ordered consumption of every client: rests, limits, rebalance, and queues whose holder dies or is cut off."""

from __future__ import annotations

import contextlib
import time

import pytest

from tests.clients.agents import Json, PushConsumer
from tests.clients.conftest import wait_for_clients
from tests.clients.messages import Message
from tests.clients.stage import JAVA_GO_AND_PYTHON, KINDS_AND_PYTHON, READY_S, Stage

every_kind = pytest.mark.parametrize("kind", KINDS_AND_PYTHON)

#: A lock that is not renewed ends after 60 s; clients renew theirs every 20 s, and ask for one every 3 to 20 s.
LEASE_S = 60


def steps(count: int, first: int = 0) -> list[Message]:
    return [Message(f"step {number}".encode(), order="one") for number in range(first, first + count)]


def seen(consumer: PushConsumer, messages: list[Message]) -> list[tuple[int, int]]:
    """(number of the message, reconsume times), as the listener saw them."""
    number = {message.sha256: at for at, message in enumerate(messages)}
    return [(number[one["body_sha256"]], one["reconsume_times"]) for one in consumer.received]


@pytest.mark.at_once
@every_kind
def test_a_queue_rests_and_goes_on_with_the_message_that_failed(kind: str, stage: Stage) -> None:
    stage.create_topic()
    messages = steps(3)
    with stage.consumer(orderly=True, fail=2, suspend_ms=300) as consumer:
        stage.send(messages, how="ordered")
        came = consumer.wait_for(9, READY_S)
        assert [number for number, _ in seen(consumer, messages)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    if kind != "cpp":  # it rests as long as it likes, and does not count
        assert seen(consumer, messages) == [(number, times) for number in range(3) for times in range(3)]
        rests = [came[at + 1]["at_ms"] - came[at]["at_ms"] for at in (0, 1, 3, 4, 6, 7)]
        assert min(rests) >= 290
    assert stage.stored(f"%RETRY%{stage.group}") == []


@pytest.mark.at_once
@pytest.mark.parametrize("kind", JAVA_GO_AND_PYTHON)
def test_an_ordered_consumer_gives_up_at_its_maximum_and_goes_on_in_order(kind: str, stage: Stage) -> None:
    stage.create_topic()
    messages = steps(3)
    with stage.consumer(orderly=True, fail=-1, max_reconsume=2, suspend_ms=100) as consumer:
        stage.send(messages, how="ordered")
        dead = stage.dead_letters(3, seconds=READY_S)
        time.sleep(1.5)
        tries = 4 if kind == "go" else 3  # Go gives up once it is over the maximum, Java when it has reached it
        assert seen(consumer, messages) == [(number, times) for number in range(3) for times in range(tries)]
        wait_for_clients(lambda: stage.committed(stage.topic) == 3, "the group has passed all three")
    assert [letter.body for letter in dead] == [message.body for message in messages]
    assert len(stage.stored(f"%DLQ%{stage.group}")) == 3
    assert stage.stored(f"%RETRY%{stage.group}") == []


@pytest.mark.at_once
@every_kind
def test_the_order_is_kept_while_members_come_and_go(kind: str, stage: Stage) -> None:
    queues = 3
    stage.create_topic(queues=queues)
    numbers = iter(range(1000))

    def send(count: int) -> list[Message]:
        sending = [
            Message(f"{n}".encode(), order=f"order {n % 12}") for n, _ in zip(numbers, range(count), strict=False)
        ]
        stage.send(sending, how="ordered", ordered=True)
        return sending

    with contextlib.ExitStack() as stack:
        members = [stack.enter_context(stage.consumer(orderly=True, hold_ms=5))]
        sent = send(40)
        members += [stack.enter_context(stage.consumer(orderly=True, hold_ms=5))]
        sent += send(40)
        members[0].stop()
        sent += send(40)
        members += [stack.enter_context(stage.consumer(orderly=True, hold_ms=5))]
        sent += send(40)

        def all_came() -> bool:
            return {m.sha256 for m in sent} <= {one["body_sha256"] for member in members for one in member.received}

        # Go unlocks nothing when a queue is no longer its own: the next waits for the lease, then for its own 20 s.
        wait_for_clients(all_came, "all came", seconds=READY_S + (LEASE_S if kind == "go" else 20))
    assert_order_kept(members, queues)


def assert_order_kept(members: list[PushConsumer], queues: int) -> None:
    """A member gets a message only after all messages before it in the queue were given to some member. A queue goes
    back only where it changes hands: messages that the last holder had not reported as done come again."""
    for queue in range(queues):
        events = sorted(
            (one["at_ms"], at, one["queue_offset"], which)
            for which, member in enumerate(members)
            for at, one in enumerate(member.received)
            if one["queue_id"] == queue
        )
        highest, holder, last = -1, -1, -1
        for _, _, offset, which in events:
            assert offset <= highest + 1, f"queue {queue}: {offset} came while {highest} was the last: {events}"
            assert offset == last + 1 or which != holder, f"queue {queue}: {offset} came after {last}: {events}"
            highest, holder, last = max(highest, offset), which, offset
        assert events


@pytest.mark.at_once
@every_kind
def test_a_queue_whose_holder_was_killed_is_taken_over_before_its_lease_ends(kind: str, stage: Stage) -> None:
    stage.create_topic()
    messages = steps(6)
    victim = stage.another(kind)
    try:
        with contextlib.ExitStack() as stack:
            consumer = stack.enter_context(stage.consumer(agent=victim, orderly=True))
            stage.send(messages[:3], how="ordered")
            consumer.wait_for(3, READY_S)
            victim.kill()
            consumer.abandon()
            stage.send(messages[3:], how="ordered")
            heir = stack.enter_context(stage.consumer(orderly=True))
            heir.wait_for(3, LEASE_S - 5)  # before the lease would have ended
            wait_for_clients(lambda: bodies(messages[3:]) <= {o["body_sha256"] for o in heir.received}, "the rest came")
    finally:
        with contextlib.suppress(AssertionError):  # what waited for the killed one's answers
            victim.close()
    assert_order_kept([consumer, heir], 1)


def bodies(messages: list[Message]) -> set[str]:
    return {message.sha256 for message in messages}


@pytest.mark.at_once(early=True)
@every_kind
def test_a_queue_whose_holder_is_cut_off_is_taken_over_and_it_does_not_go_on(kind: str, stage: Stage) -> None:
    """The holder stops without closing its connection, and wakes up when another has its queue. Of two members and one
    queue the one whose client id comes first gets it."""
    stage.create_topic()
    messages = steps(9)
    frozen = stage.another(kind)
    if kind == "cpp":  # its client ids begin with the process's number: the heir's has to come first
        frozen = stage.trade(frozen)
    with contextlib.closing(frozen), contextlib.ExitStack() as stack:
        holder = stack.enter_context(stage.consumer(agent=frozen, orderly=True, instance=f"z_{stage.topic}"))
        stage.send(messages[:3], how="ordered")
        holder.wait_for(3, READY_S)
        # It takes its lock at its start, after a second, and each 20 s. One that is frozen meanwhile takes the
        # answer for a new lock when it wakes up. Its first commit, 5 to 15 s after its start, is between these times.
        wait_for_clients(lambda: stage.committed(stage.topic) == 3, "its offset is committed", READY_S)
        frozen.freeze()
        stack.callback(frozen.thaw)
        cut_off = time.monotonic()
        stage.send(messages[3:6], how="ordered")
        heir = stack.enter_context(stage.consumer(orderly=True, instance=f"a_{stage.topic}"))
        wait_for_clients(lambda: came(heir, messages[3:6]), "it was taken over", seconds=LEASE_S + 30)
        waited = time.monotonic() - cut_off
        frozen.thaw()
        stage.send(messages[6:], how="ordered")
        wait_for_clients(lambda: came(heir, messages[6:]), "the heir goes on", seconds=READY_S)
        time.sleep(1)
        if kind != "go":  # Go's takes what came while it was frozen; it looks at its lock later
            assert not came(holder, messages[3:4]), "the one that was cut off went on"
    assert waited > LEASE_S - 25, "it was taken over before the lease ended"
    assert_order_kept([holder, heir], 1)


def came(consumer: PushConsumer, messages: list[Message]) -> bool:
    received: list[Json] = consumer.received
    return bodies(messages) <= {one["body_sha256"] for one in received}
