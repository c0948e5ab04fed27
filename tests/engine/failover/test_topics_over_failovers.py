"""Topics that are deleted, made again, and given queues, and queues that ran empty, over changes of the leader."""

from __future__ import annotations

import pytest

from appliance.engine.broker.offset_resets.targets import Exactly, Latest
from appliance.engine.errors import AdminError
from tests.support.engine import pull_fields, records, send_fields
from tests.support.figures import SkippingClock
from tests.support.members_of_set import DELETE_TOPIC, FILE, PULL, make, send, two_members, wait_for_same_log
from tests.support.waiting import wait_for

DELETE_GROUP, QUERY_OFFSET, SEND_BACK = 207, 14, 36


def joined(one, two):
    one.lead(1)
    one.take_in(two)


def shown(member, topic, queues):
    """Return the bodies that a consumer that follows each answer reads, queue by queue."""
    found = []
    peer = member.peer()
    for queue in range(queues):
        at, there = 0, []
        for _ in range(100):
            answer = peer.ask(PULL, pull_fields(topic, queue, at))
            after = int(answer.ext_fields["nextBeginOffset"])
            if answer.code == 19 or (answer.code == 21 and after == at):
                break
            there += [record.body for record in records(answer.body)] if answer.code == 0 else []
            at = after
        found.append(there)
    return found


def numbered(begin, count):
    return [b"%d" % number for number in range(begin, begin + count)]


@pytest.fixture
def clocked(tmp_path):
    """(members, their clock, which the test moves)."""
    clock = SkippingClock()
    with two_members(tmp_path, clock) as both:
        yield both, clock


def test_a_topic_made_again_with_more_queues_is_the_same_at_the_next_leader(members):
    """Ten messages in one queue; deleted; made with four; sixteen messages, those of the first queue last: it begins
    anew behind the messages of others, which stay."""
    one, two = members
    joined(one, two)
    peer = one.peer()
    make(peer, "T", 1)
    send(peer, "T", 0, *numbered(0, 10))
    assert peer.ask(DELETE_TOPIC, {"topic": "T"}).code == 0
    make(peer, "T", 4)
    wanted = [numbered(queue * 4, 4) for queue in range(4)]
    for queue in (1, 2, 3, 0):
        send(peer, "T", queue, *wanted[queue])
    assert shown(one, "T", 4) == wanted
    ends = [one.store.max_offset("T", queue) for queue in range(4)]
    wait_for_same_log(one, two)
    one.fence()
    two.lead(2)
    assert shown(two, "T", 4) == wanted
    assert [two.store.max_offset("T", queue) for queue in range(4)] == ends


def test_no_deletion_is_acknowledged_while_there_is_no_leader(members):
    one, two = members
    peer = one.peer()
    assert peer.ask(DELETE_TOPIC, {"topic": "T"}).code == 16
    joined(one, two)
    make(one.peer(), "T", 1)
    follower = two.peer()
    wait_for(lambda: follower.ask(DELETE_TOPIC, {"topic": "T"}).code == 0, "the other one to follow")
    one.fence()
    assert one.peer().ask(DELETE_TOPIC, {"topic": "T"}).code == 16
    wait_for(lambda: follower.ask(DELETE_TOPIC, {"topic": "T"}).code == 16, "the stream to end")
    assert two.engine.broker.topics.get("T") is not None


def test_a_topic_that_was_deleted_just_before_stays_away_and_begins_behind_its_old_messages(members):
    """The deletion was acknowledged; the next leader makes the topic again."""
    one, two = members
    joined(one, two)
    peer = one.peer()
    make(peer, "T", 2)
    send(peer, "T", 0, *numbered(0, 5))
    send(peer, "T", 1, *numbered(5, 3))
    assert peer.ask(DELETE_TOPIC, {"topic": "T"}).code == 0
    assert two.engine.broker.topics.get("T") is None
    one.fence()
    two.lead(2)
    assert two.engine.broker.topics.get("T") is None
    make(two.peer(), "T", 2)
    assert shown(two, "T", 2) == [[], []]
    send(two.peer(), "T", 0, b"new")
    assert shown(two, "T", 2) == [[b"new"], []]
    assert two.store.offset_range("T", 0) == (5, 6)
    two.take_in(one)
    wait_for_same_log(one, two)
    two.fence()
    one.lead(3)
    assert shown(one, "T", 2) == [[b"new"], []]


def test_a_deletion_that_nobody_heard_of_is_undone_where_it_was_done(members):
    """The leader goes after it deleted the topic, before followers have the deletion: the next one has the topic."""
    one, two = members
    joined(one, two)
    peer = one.peer()
    make(peer, "T", 1)
    send(peer, "T", 0, *numbered(0, 5))
    wait_for_same_log(one, two)
    two.brokers.close_stream()
    one.brokers._position.set_awaited(frozenset())
    one.engine.broker.topic_service.delete("T", "a test")
    one.fence()
    two.lead(2)
    send(two.peer(), "T", 0, b"more")
    one.follow(two, 2)

    def undone():
        one.brokers.stream()
        return one.store.offset_range("T", 0) == (0, 6)

    wait_for(undone, "the messages to be there again")
    two.await_only(one)
    two.fence()
    one.lead(3)
    assert shown(one, "T", 1) == [[*numbered(0, 5), b"more"]]


def test_queues_added_just_before_are_there_with_their_messages(members):
    """The administrator was answered, so that the next leader has them; without that answer, the log shows them."""
    one, two = members
    joined(one, two)
    peer = one.peer()
    make(peer, "T", 4)
    make(peer, "T", 8)
    assert two.engine.broker.topics.get("T").read_queue_nums == 8
    two.stop_tables()
    one.engine.broker.topic_service.all_have = lambda changes: True  # as if the leader had gone before the answer
    make(peer, "T", 10)
    send(peer, "T", 9, b"in the newest")
    wait_for_same_log(one, two)
    one.fence()
    two.lead(2)
    made = two.engine.broker.topics.get("T")
    assert (made.read_queue_nums, made.write_queue_nums) == (10, 10)
    assert shown(two, "T", 10)[9] == [b"in the newest"]


def test_a_change_that_a_member_in_sync_does_not_hear_of_is_not_acknowledged(members, monkeypatch):
    one, two = members
    joined(one, two)
    two.stop_tables()
    monkeypatch.setattr("appliance.engine.broker.topic_service.MEMBERS_S", 0.2)
    answer = one.peer().ask(DELETE_TOPIC, {"topic": "T"})
    assert answer.code == 1
    assert "not all members in sync" in answer.remark
    for _ in range(2):  # the second time it is there, and no other member has it
        with pytest.raises(AssertionError):
            make(one.peer(), "N", 4)


def test_a_purge_that_a_member_in_sync_does_not_hear_of_is_not_acknowledged(members, monkeypatch):
    one, two = members
    joined(one, two)
    make(one.peer(), "T", 1)
    send(one.peer(), "T", 0, *numbered(0, 3))
    two.stop_tables()
    monkeypatch.setattr("appliance.engine.broker.topic_service.MEMBERS_S", 0.2)
    for _ in range(2):  # the second time nothing is shown here any more
        with pytest.raises(AdminError, match="not all members in sync"):
            one.running.window.topic_purges.purge("T", force=True)
    assert shown(one, "T", 1) == [[]]


@pytest.mark.parametrize("committed", [False, True])
def test_a_queue_that_ran_empty_goes_on_at_a_member_that_came_later(members, tmp_path, committed):
    """All messages of a queue have expired before a member joined with an empty store; then it leads, and the first one
    again."""
    one, two = members
    one.lead(1)
    peer = one.peer()
    make(peer, "T", 2)
    send(peer, "T", 0, *numbered(0, 10))
    if committed:
        one.engine.loop.call_soon(lambda: one.engine.broker.offsets.commit("Readers", "T", 0, 6))
    fill_first_file(one, peer)
    drop_first_file(one)
    assert one.store.offset_range("T", 0) == (10, 10)
    one.take_in(two)
    assert two.store.log.min_offset > 0
    assert two.store.offset_range("T", 0) == (10, 10)
    one.fence()
    two.lead(2)
    two.brokers.await_members(frozenset())
    send(two.peer(), "T", 0, b"a", b"b")
    send(two.peer(), "T", 1, b"c")
    two.take_in(one)
    wait_for_same_log(one, two)
    two.fence()
    one.lead(3)
    send(one.peer(), "T", 0, b"d")
    assert shown(one, "T", 2) == [[b"a", b"b", b"d"], [b"c"]]
    assert one.store.offset_range("T", 0) == (10, 13)


def fill_first_file(member, peer):
    make(peer, "Filler", 1)
    while member.store.log.written < FILE + 100_000:
        send(peer, "Filler", 0, b"x" * 60_000)


def drop_first_file(member):
    """Delete the first log file as the cleaner does, whatever the hour."""
    cleaner = member.store.cleaner
    position = member.store.files.recovery_position
    wait_for(lambda: position.position and position.position.record_offset > FILE, "the recovery position")
    assert cleaner._take_first()
    cleaner._unlink_leaving()
    wait_for(lambda: cleaner._look_at_queues() >= 0 and member.store.log.min_offset == FILE, "the queues to follow")


def test_a_member_that_cannot_place_a_record_says_so_and_copies_anew(members):
    one, two = members
    joined(one, two)
    peer = one.peer()
    make(peer, "T", 1)
    send(peer, "T", 0, *numbered(0, 5))
    wait_for_same_log(one, two)
    queue = two.store.find_queue("T", 0)

    def lose_count():
        queue.next_offset = 7
        queue.tail += bytes(40)

    two.engine.loop.call_soon(lose_count)
    wait_for(lambda: queue.next_offset == 7, "the queue to be wrong")
    one.brokers.await_members(frozenset())
    send(peer, "T", 0, b"another")
    wait_for(lambda: two.brokers.stream().unplaced, "it to say so")
    assert "cannot be placed: it is number 5 of T-0, which has [0, 7) here" in two.brokers.stream().unplaced
    wait_for(lambda: not one.brokers.members(), "its stream to have ended at the leader")
    two.brokers.set_aside(two.brokers.stream().unplaced)
    one.take_in(two)
    wait_for_same_log(one, two)
    one.fence()
    two.lead(2)
    assert shown(two, "T", 1) == [[*numbered(0, 5), b"another"]]


def test_a_group_that_was_deleted_with_its_offsets_begins_anew_at_the_next_leader(members):
    """Its offsets are gone where it was deleted, and at a member that copied them before."""
    one, two = members
    joined(one, two)
    peer = one.peer()
    make(peer, "T", 1)
    send(peer, "T", 0, *numbered(0, 5))
    offsets = two.engine.broker.offsets
    for group in ("Readers", "Others"):
        one.engine.broker.groups.find(group)
    one.running.commit("Readers", "T", 0, 5)
    one.running.commit("Others", "T", 0, 2)
    wait_for(lambda: (offsets.get("Readers", "T", 0), offsets.get("Others", "T", 0)) == (5, 2), "the offsets")
    assert peer.ask(DELETE_GROUP, {"groupName": "Readers", "cleanOffset": "true"}).code == 0
    wait_for(lambda: offsets.get("Readers", "T", 0) == -1, "the offset to be gone at the member")
    one.fence()
    two.lead(2)
    asked = {"consumerGroup": "Readers", "topic": "T", "queueId": 0}
    assert two.peer().ask(QUERY_OFFSET, asked).ext_fields["offset"] == "0"
    assert offsets.get("Others", "T", 0) == 2


def test_no_retry_of_a_deleted_group_comes_to_the_next_one_of_its_name_at_the_next_leader(members):
    """One was ready, one waited."""
    one, two = members
    joined(one, two)
    peer = one.peer()
    make(peer, "T", 1)
    send(peer, "T", 0, *numbered(0, 3))
    one.engine.broker.groups.find("Readers")
    places = [record.physical_offset for record in records(peer.ask(PULL, pull_fields("T", 0, 0)).body)]

    def send_back(member, number):
        fields = {"offset": places[number], "group": "Readers", "delayLevel": 1, "originTopic": "T"}
        assert member.peer().ask(SEND_BACK, fields).code == 0

    send_back(one, 0)
    wait_for(lambda: shown(one, "%RETRY%Readers", 1) == [[b"0"]], "the first one")
    send_back(one, 1)
    assert peer.ask(DELETE_GROUP, {"groupName": "Readers", "cleanOffset": "true"}).code == 0
    wait_for_same_log(one, two)
    one.fence()
    two.lead(2)
    two.engine.broker.groups.find("Readers")
    send_back(two, 2)
    wait_for(lambda: two.store.max_offset("%RETRY%Readers", 0) > 1, "the new group's own")
    assert shown(two, "%RETRY%Readers", 1) == [[b"2"]]


def test_a_reset_of_before_is_not_done_again_by_who_leads_anew(members):
    """No consumer had taken it over when its leader went; the group went on elsewhere."""
    one, two = members
    joined(one, two)
    peer = one.peer()
    make(peer, "T", 1)
    send(peer, "T", 0, *numbered(0, 5))
    one.engine.broker.groups.find("Readers")
    one.running.commit("Readers", "T", 0, 1)
    one.running.window.offset_commands.reset("Readers", "T", Latest())
    wait_for(lambda: two.engine.broker.offsets.get("Readers", "T", 0) == 5, "the offset")
    one.fence()
    two.lead(2)
    two.running.window.offset_commands.reset("Readers", "T", Exactly({0: 3}))
    two.take_in(one)
    wait_for(lambda: one.engine.broker.offsets.get("Readers", "T", 0) == 3, "the offset of the new leader")
    two.fence()
    one.lead(3)
    assert one.engine.broker.offsets.get("Readers", "T", 0) == 3
    assert one.engine.broker.offsets.resets == {}


def test_a_member_that_hears_of_a_deletion_behind_the_log_shows_the_new_messages_only(members):
    """It had the new ones, too, when the note came; and its queue is read anew when it leads."""
    one, two = members
    joined(one, two)
    two.stop_tables()
    one.brokers.await_members(frozenset())
    one.engine.broker.topic_service.all_have = lambda changes: True
    peer = one.peer()
    make(peer, "T", 2)
    send(peer, "T", 0, *numbered(0, 10))
    send(peer, "T", 1, b"only old")
    assert peer.ask(DELETE_TOPIC, {"topic": "T"}).code == 0
    make(peer, "T", 2)
    send(peer, "T", 0, *numbered(10, 3))
    wait_for_same_log(one, two)
    wait_for(lambda: two.store.offset_range("T", 0) == (0, 13), "all messages, those of the deleted topic, too")
    one.take_in(two)
    assert shown(one, "T", 2) == [numbered(10, 3), []]
    wait_for(lambda: two.store.offset_range("T", 0) == (10, 13), "the deletion")
    assert two.store.offset_range("T", 1) == (1, 1)
    one.fence()
    two.lead(2)
    assert shown(two, "T", 2) == [numbered(10, 3), []]
    assert two.store.offset_range("T", 0) == (10, 13)
    two.fence()
    two.lead(3)
    assert shown(two, "T", 2) == [numbered(10, 3), []]


def test_what_waits_for_a_topic_that_was_deleted_does_not_come_into_the_next_one_at_a_member_that_heard_late(clocked):
    """It had messages of the new one when the note came, so queues stay; and it leads again after a change."""
    (one, two), clock = clocked
    joined(one, two)
    two.stop_tables()
    one.brokers.await_members(frozenset())
    one.engine.broker.topic_service.all_have = lambda changes: True
    peer = one.peer()
    make(peer, "T", 1)
    send(peer, "T", 0, b"old")
    waits = "TIMER_DELAY_MS\x0160000\x02"  # until the second one leads
    assert peer.ask(310, send_fields("T", 0, waits), b"old that waits").code == 0
    assert peer.ask(DELETE_TOPIC, {"topic": "T"}).code == 0
    make(peer, "T", 1)
    send(peer, "T", 0, b"new")
    assert peer.ask(310, send_fields("T", 0, waits), b"new that waits").code == 0
    wait_for_same_log(one, two)
    wait_for(lambda: two.store.offset_range("T", 0) == (0, 2), "all messages, those of the deleted topic, too")
    one.take_in(two)
    one.fence()
    two.lead(2)
    clock.skipped_ms += 60_000
    wait_for(lambda: two.store.offset_range("T", 0)[1] >= 3, "the message that waits")
    wait_for(lambda: two.engine.broker.timers.deliver.given_up["no topic"] == 1, "the old one to be given up")
    assert shown(two, "T", 1) == [[b"new", b"new that waits"]]
