"""Delayed messages that an administrator handled before they were due, over changes of the leader."""

from __future__ import annotations

import pytest

from appliance.engine.window.waiting.views import WaitingPlace
from tests.support.engine import send_fields
from tests.support.members_of_set import DELETE_TOPIC, SEND, make, wait_for_same_log
from tests.support.waiting import wait_for

LEVEL = 5  # a minute


def delay(peer, *names):
    for name in names:
        properties = f"UNIQ_KEY\x01key-{name}\x02DELAY\x01{LEVEL}\x02"
        assert peer.ask(SEND, send_fields("T", 0, properties), name.encode()).code == 0


def waiting(member):
    return [row.unique_id for row in member.running.window.waiting.page(limit=50).rows]


def act(member, action, name):
    [row] = [row for row in member.running.window.waiting.page(limit=50).rows if row.unique_id == f"key-{name}"]
    return member.running.window.waiting_commands.run(
        action, [WaitingPlace(row.level, row.queue_offset, row.unique_id)]
    )


@pytest.mark.parametrize("action", ["drop", "deliver_now"])
def test_what_was_handled_early_is_not_delivered_by_the_next_leader(members, action):
    """The answer came when all members in sync knew it; also what was handled before a member came."""
    one, two = members
    one.lead(1)
    peer = one.peer()
    make(peer, "T", 1)
    delay(peer, "a", "b", "c", "d")
    act(one, action, "a")
    one.take_in(two)
    assert [result.outcome for result in act(one, action, "c").results] == ["done"]
    assert waiting(one) == ["key-b", "key-d"]
    one.fence()
    two.lead(2)
    assert waiting(two) == ["key-b", "key-d"]


def test_an_act_that_a_member_in_sync_does_not_hear_of_says_so(members, monkeypatch):
    one, two = members
    one.lead(1)
    one.take_in(two)
    peer = one.peer()
    make(peer, "T", 1)
    delay(peer, "a")
    two.stop_tables()
    monkeypatch.setattr("appliance.engine.broker.topic_service.MEMBERS_S", 0.2)
    [result] = act(one, "drop", "a").results
    assert result.outcome == "done_for_now"
    assert "not all members of the set" in str(result.why)


def test_a_member_forgets_what_the_leader_has_passed(members):
    """Otherwise the file would grow with each act."""
    one, two = members
    one.lead(1)
    one.take_in(two)
    peer = one.peer()
    make(peer, "T", 1)
    delay(peer, "a")
    act(one, "drop", "a")
    settled = two.engine.broker.delays.settled
    assert settled.holds(LEVEL, 0)
    wait_for_same_log(one, two)
    progress = one.engine.broker.delays.progress
    one.engine.loop.call_soon(lambda: progress.reached(LEVEL, 1, 0))
    wait_for(lambda: not settled.holds(LEVEL, 0), "it to be forgotten")


def test_what_waits_for_a_topic_that_is_newer_than_the_table_comes_at_the_next_leader(members):
    """A send made the topic, and only its message that waits names it: it was given up when it came due."""
    one, two = members
    one.lead(1)
    one.take_in(two)
    peer = one.peer()
    make(peer, "Known", 1)
    two.stop_tables()
    for topic, wait in (("Fresh", "DELAY\x011\x02"), ("Timed", "TIMER_DELAY_MS\x011500\x02")):
        for queue in (0, 2):
            assert peer.ask(SEND, send_fields(topic, queue, wait), b"late").code == 0
    wait_for_same_log(one, two)
    one.fence()
    two.lead(2)
    store = two.store
    for topic in ("Fresh", "Timed"):
        wait_for(lambda: all(store.max_offset(topic, queue) == 1 for queue in (0, 2)), f"{topic} to come")  # noqa: B023
    assert two.engine.broker.topics.get("Fresh").read_queue_nums == 3


@pytest.mark.parametrize("is_known", [True, False])
def test_a_topic_that_was_deleted_is_not_made_again_by_what_waits_for_it(members, is_known):
    """is_known: whether the next leader knows when it copied the table."""
    one, two = members
    one.lead(1)
    one.take_in(two)
    peer = one.peer()
    make(peer, "T", 1)
    delay(peer, "a")
    assert peer.ask(DELETE_TOPIC, {"topic": "T"}).code == 0
    wait_for_same_log(one, two)
    if not is_known:
        two.stop_tables()
        two.brokers._topics.whole_to = -1
    one.fence()
    two.lead(2)
    assert two.engine.broker.topics.get("T") is None
