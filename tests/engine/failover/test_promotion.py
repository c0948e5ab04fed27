"""How a new leader uses the files beside its log, and which parts it starts."""

from __future__ import annotations

import os
import sys

from tests.support.engine import send_fields
from tests.support.members_of_set import FILE, SEND, Member, bodies, send, two_members, wait_for_same_log
from tests.support.waiting import wait_for


def joined(one, two):
    one.lead(1)
    one.running.put("Orders", b"a")
    one.take_in(two)
    wait_for(lambda: two.engine.broker.topics.get("Orders"), "the tables")


def test_a_topic_that_was_made_just_before_is_there_with_its_queues(members):
    one, two = members
    joined(one, two)
    two.stop_tables()
    peer = one.peer()
    send(peer, "Newest", 2, b"made just now")
    wait_for_same_log(one, two)
    assert two.engine.broker.topics.get("Newest") is None
    two.lead(2)
    made = two.engine.broker.topics.get("Newest")
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (3, 3, 6)
    assert bodies(two.peer(), "Newest", 2) == [b"made just now"]


def test_a_topic_that_was_deleted_long_before_stays_away(members):
    one, two = members
    joined(one, two)
    one.running.put("Old", b"x")
    wait_for(lambda: two.engine.broker.topics.get("Old"), "the topic to come")
    one.running.window.topic_commands.delete("Old", force=True)
    wait_for(lambda: two.engine.broker.topics.get("Old") is None, "the topic to go")
    end = one.store.log.written
    wait_for(lambda: two.brokers._topics.whole_to >= end, "the tables to be looked at behind it")
    assert two.store.find_queue("Old", 0) is None
    two.lead(2)
    assert two.engine.broker.topics.get("Old") is None


def test_offsets_are_brought_to_what_the_queues_hold(members):
    one, two = members
    joined(one, two)
    two.stop_tables()
    broker = two.engine.broker

    def take():
        """Take offsets as the leader had them, whose log was ahead."""
        broker.offsets.take_copies([("ahead", "Orders", 0, 1000), ("well", "Orders", 0, 1), ("nowhere", "Gone", 3, 7)])

    two.engine.loop.call_soon(take)
    wait_for(lambda: broker.offsets.get("nowhere", "Gone", 3) == 7, "the offsets")
    two.lead(2)
    offsets = two.engine.broker.offsets
    assert offsets.get("ahead", "Orders", 0) == 1
    assert offsets.get("well", "Orders", 0) == 1
    assert offsets.get("nowhere", "Gone", 3) == 0


def test_delayed_messages_go_on_where_the_old_leader_was(members):
    one, two = members
    joined(one, two)
    peer = one.peer()
    for level in (1, 2):  # 1 s and 5 s
        properties = f"DELAY\x01{level}\x02"
        assert peer.ask(SEND, send_fields("Orders", 1, properties), b"level %d" % level).code == 0
    wait_for(lambda: one.store.max_offset("Orders", 1) == 1, "the first one to be delivered")
    wait_for(lambda: b'"1":1' in (two.store.paths.root / "config/delayOffset.json").read_bytes().replace(b" ", b"")
             .replace(b"\t", b""), "the follower to know", not_yet=(OSError,))  # fmt: skip
    two.lead(2)
    wait_for(lambda: two.store.max_offset("Orders", 1) == 2, "the second one to be delivered")
    assert bodies(two.peer(), "Orders", 1) == [b"level 1", b"level 2"]


def test_the_program_is_started_with_the_epoch_and_sends_do_not_wait_for_it(tmp_path):
    said = tmp_path / "said"
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, time\n"
        f"open({str(said)!r}, 'a').write(os.environ['ROCKETBOX_EPOCH'] + ' ' + ' '.join(sys.argv[1:]) + '\\n')\n"
        "time.sleep(60)\n"
    )
    os.chmod(program, 0o755)
    member = Member(tmp_path / "data", 1, on_promote=(str(program), "a b", "$HOME"))
    try:
        member.lead(3)
        member.running.put("Orders", b"while it runs")
        wait_for(said.exists, "the program")
        wait_for(lambda: said.read_text() == "3 a b $HOME\n", "what it writes")
        member.fence()
        wait_for(lambda: "ended with -15" in member.brokers._program.outcome, "the program to be ended")
    finally:
        member.stop()


def test_a_program_that_cannot_be_started_keeps_nobody_from_leading(tmp_path):
    member = Member(tmp_path / "data", 1, on_promote=(str(tmp_path / "missing"),))
    try:
        member.lead(1)
        member.running.put("Orders", b"a")
        wait_for(lambda: "cannot be started" in member.brokers._program.outcome, "what came of it")
    finally:
        member.stop()


def test_too_few_in_sync_take_no_message(tmp_path):
    with two_members(tmp_path, min_in_sync=2) as (one, two):
        one.lead(1)
        peer = one.peer()
        assert peer.ask(SEND, send_fields("Orders"), b"alone").code == 14
        one.take_in(two)
        send(peer, "Orders", 0, b"both")
        one.await_only()
        assert peer.ask(SEND, send_fields("Orders"), b"alone").code == 14


def test_a_queue_goes_on_where_it_was_though_the_new_leader_never_had_its_messages(members):
    """They were deleted before it copied the log, which no longer has a record of their queue."""
    one, two = members
    one.lead(1)
    peer = one.peer()
    send(peer, "Quiet", 0, *(b"%d" % number for number in range(5)))
    broker = one.engine.broker

    def commit():
        broker.offsets.commit("readers", "Quiet", 0, 5)
        broker.offsets.commit("slow", "Quiet", 0, 2)
        # An older version kept this one: no consumer can have it.
        broker.offsets.take_copies([("liars", "Quiet", 0, 1 << 60)])

    one.engine.loop.call_soon(commit)
    body = b"x" * 60_000
    while one.store.log.written < 2 * FILE + 1000:
        send(peer, "Loud", 0, body)
    cleaner = one.store.cleaner
    cleaner._count_expired = lambda now_ms, spans, limit: 1 if one.store.log.min_offset == 0 else 0
    saved = one.store.files.recovery_position
    wait_for(lambda: saved.position is not None and saved.position.record_offset > FILE, "the start to need it no more")
    wait_for(lambda: (cleaner.request(), one.store.log.min_offset > 0)[1], "its file to go", every=0.2)
    one.take_in(two)
    wait_for_same_log(one, two)
    wait_for(lambda: two.engine.broker.topics.get("Quiet"), "the tables")
    wait_for(lambda: two.engine.broker.offsets.get("liars", "Quiet", 0) == 1 << 60, "the offsets")
    two.lead(2)
    offsets = two.engine.broker.offsets
    assert [offsets.get(group, "Quiet", 0) for group in ("readers", "slow", "liars")] == [5, 5, 5]
    two.take_in(one)
    answer = two.peer().ask(SEND, send_fields("Quiet"), b"5")
    assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "5")
    assert bodies(two.peer(), "Quiet", 0, 5) == [b"5"]
    wait_for_same_log(one, two)
    one.lead(3)
    assert one.store.max_offset("Quiet", 0) == two.store.max_offset("Quiet", 0) == 6
