"""Delayed messages that an administrator handled before they were due, over changes of the leader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.engine.disk import DiskUsage
from appliance.engine.store.retention.leaders_needs import FollowersWishes, LeadersNeeds
from appliance.engine.window.waiting.views import WaitingPlace
from tests.support.engine import send_fields
from tests.support.members_of_set import DELETE_TOPIC, SEND, make, send, wait_for_same_log
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


def fill_up(member, monkeypatch):
    """Have its disk so full that no file may stay for its age."""
    cleaner = member.store.cleaner
    monkeypatch.setattr(member.store.log, "usage", lambda: DiskUsage(99 << 20, 1 << 20))
    cleaner.options = replace(
        cleaner.options,
        disk_space_clean_forcibly_ratio=90,
        clean_resource_interval_ms=100,
        disk_max_used_space_ratio=95,
    )
    cleaner.wakeup()


def test_what_waits_is_not_deleted_by_a_member_whose_disk_is_fuller(members, monkeypatch):
    """The leader deletes nothing of it: before its file goes, what waits is stored again. A member with a smaller
    disk deletes its files earlier, and delivers all of it when it leads."""
    one, two = members
    one.lead(1)
    one.take_in(two)
    peer = one.peer()
    make(peer, "T", 1)
    make(peer, "Others", 1)
    for number, (properties, flag) in enumerate((
        ("DELAY\x013\x02", 0), ("TIMER_DELAY_SEC\x0110\x02", 0), ("TRAN_MSG\x01true\x02PGROUP\x01P\x02", 4),
    )):  # fmt: skip
        fields = send_fields("T", 0, f"{properties}UNIQ_KEY\x01key-{number}\x02", f=flag)
        assert peer.ask(SEND, fields, b"%d" % number).code == 0
    send(peer, "Others", 0, *[b"x" * 60_000] * 60)
    first, *_ = two.store.log.segments
    wait_for_same_log(one, two)
    fill_up(two, monkeypatch)
    wait_for(lambda: two.store.log.min_offset >= first.end, "its first file to go")
    assert one.store.log.min_offset == 0
    one.fence()
    two.lead(2)
    broker = two.engine.broker
    wait_for(lambda: broker.transactions.open_now()[1] == 1, "the half message is open there")
    wait_for(lambda: two.store.max_offset("T", 0) == 2, "both to come")
    assert sum(broker.delays.deliver.given_up.values()) == sum(broker.timers.deliver.given_up.values()) == 0


def test_a_member_deletes_nothing_before_its_leader_has_said_that_nothing_waits_there(members, monkeypatch):
    one, two = members
    one.lead(1)
    one.take_in(two)
    send(one.peer(), "Others", 0, *[b"x" * 60_000] * 40)
    wait_for_same_log(one, two)
    two.stop_tables()
    fill_up(two, monkeypatch)
    needs, cleaner = two.store.cleaner.leaders_needs, two.store.cleaner
    wait_for(lambda: needs.wanted, "a file to be wanted")
    looked = cleaner.status.looked_at_ms
    wait_for(lambda: cleaner.status.looked_at_ms > looked, "a whole round")
    assert two.store.log.min_offset == 0
    needs.told(None)  # as an Apache broker, or an older version
    wait_for(lambda: two.store.log.min_offset > 0, "its first file to go")


def test_a_file_goes_as_soon_as_the_leader_needs_it_no_longer_though_others_stay():
    needs, wishes = LeadersNeeds(), FollowersWishes()
    assert (needs.keep(300) is None, needs.wanted) == (False, 300)
    assert wishes.ask(needs.wanted, 0, 200)
    assert (wishes.wanted, wishes.free) == (150, 0), "no stranger may have all of it stored once more"
    wishes.free = wishes.wanted
    assert needs.told(wishes.free, 200) == 200
    needs.reached()
    assert needs.fitting([100, 200, 300]) == 1
    assert needs.keep(100) is None
    assert needs.keep(200) is not None
    assert not wishes.ask(150, 100, 200)
    assert wishes.ask(200, 100, 200)
    assert wishes.wanted == 175
