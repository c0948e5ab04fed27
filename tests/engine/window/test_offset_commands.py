"""A group's offsets moved through the window: previewed, checked, done as one act, listed, taken back."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.engine.broker.offset_resets import pending as pendings
from appliance.engine.broker.offset_resets.journal import KEPT_MS
from appliance.engine.broker.offset_resets.targets import AtTime, Earliest, Exactly, Latest, Shift, Skip
from appliance.engine.errors import Conflict, InvalidInput, NotFound
from tests.support.engine import Peer, RunningEngine, pull_fields

ASK, PULL, RESET, MAKE_GROUP, NOTICE = 14, 11, 222, 200, 40


def make_group(running: RunningEngine, group: str) -> None:
    assert running._ours().ask(MAKE_GROUP, {}, json.dumps({"groupName": group}).encode()).code == 0


@pytest.fixture
def filled(running: RunningEngine) -> RunningEngine:
    """Orders has 4 queues: ten messages in 0, five in 1. CG has read seven and five of them."""
    running.put("Orders", *[b"%d" % number for number in range(10)], queue=0)
    running.put("Orders", *[b"%d" % number for number in range(5)], queue=1)
    make_group(running, "CG")
    running.commit("CG", "Orders", 0, 7)
    running.commit("CG", "Orders", 1, 5)
    return running


def offsets(running: RunningEngine, group: str = "CG", topic: str = "Orders") -> dict[int, int]:
    table = running.engine.broker.offsets
    return {queue: table.get(group, topic, queue) for queue in range(4) if table.get(group, topic, queue) >= 0}


def moves(reset: Any) -> list[tuple[int, int | None, int | None, int, int]]:
    return [(move.queue_id, move.before, move.to, move.replays, move.skips) for move in reset.moves]


def pull(peer: Peer, queue: int, offset: int, group: str = "CG", **more: Any) -> Any:
    return peer.ask(PULL, pull_fields("Orders", queue, offset, consumerGroup=group, sysFlag=4, **more))


def test_a_preview_says_what_it_would_do_and_does_nothing(filled):
    preview = filled.window.offset_commands.reset("CG", "Orders", Earliest(), dry_run=True, by="alice")
    assert not preview.applied
    assert preview.id is None
    assert moves(preview) == [(0, 7, 0, 7, 0), (1, 5, 0, 5, 0), (2, None, 0, 0, 0), (3, None, 0, 0, 0)]
    assert (preview.replays, preview.skips, preview.warnings) == (12, 0, ())
    first = filled.window.messages.page("Orders", queue_id=0, newest_first=False).rows[0]
    assert preview.moves[0].first_at_ms == first.stored_at_ms
    assert preview.moves[2].note.code == "queue_never_committed"
    assert offsets(filled) == {0: 7, 1: 5}
    assert filled.window.offsets.of_group("CG") == ()


@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        (Earliest(), {0: 0, 1: 0, 2: 0, 3: 0}),
        (Latest(), {0: 10, 1: 5, 2: 0, 3: 0}),
        (AtTime(0), {0: 0, 1: 0, 2: 0, 3: 0}),
        (AtTime(1 << 50), {0: 10, 1: 5, 2: 0, 3: 0}),
        (Exactly({0: 3, 1: 4}), {0: 3, 1: 4}),
        (Shift(-2), {0: 5, 1: 3}),
        (Shift(3), {0: 10, 1: 5}),  # queue 1 is at its end
    ],
)
def test_it_goes_where_it_was_sent(filled, to, wanted):
    done = filled.window.offset_commands.reset("CG", "Orders", to, by="alice")
    assert (done.applied, done.kind, done.by) == (True, "reset", "alice")
    assert offsets(filled) == {0: 7, 1: 5} | wanted
    assert {move.queue_id: move.to for move in done.moves} == wanted


def test_one_queue_of_it(filled):
    filled.window.offset_commands.reset("CG", "Orders", Earliest(), queue_id=1)
    assert offsets(filled) == {0: 7, 1: 0}


def test_several_topics_go_together_the_retry_topic_with_them(filled):
    filled.put("%RETRY%CG", b"a", b"b")
    filled.put("Other", b"x")
    done = filled.window.offset_commands.reset("CG", ["Orders", "%RETRY%CG", "Other"], Latest())
    assert {move.topic for move in done.moves} == {"Orders", "%RETRY%CG", "Other"}
    assert offsets(filled, topic="%RETRY%CG")[0] == 2
    assert len(filled.window.offsets.of_group("CG")) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("Nobody", "Orders", Earliest()), NotFound, "group Nobody"),
        (("CG", "Nothing", Earliest()), NotFound, "topic Nothing"),
        (("CG", ["Orders", "Nothing"], Earliest()), NotFound, "topic Nothing"),
        (("CG", "Orders", Exactly({4: 0})), NotFound, "queue Orders/4"),
        (("CG", "Orders", Exactly({-1: 0})), NotFound, "queue Orders/-1"),
        (("CG", "Orders", Exactly({0: 11})), InvalidInput, "the offsets 0 to 10, not 11"),
        (("CG", "Orders", Exactly({0: -1})), InvalidInput, "the offsets 0 to 10, not -1"),
        (("CG", "Orders", Exactly({})), InvalidInput, "no queue"),
        (("CG", [], Earliest()), InvalidInput, "no queue"),
        (("CG", "Orders", AtTime(-1)), InvalidInput, "milliseconds"),
        (("CG", "Orders", Shift(0)), InvalidInput, "number of messages"),
        (("Fresh", "Orders", Shift(1)), InvalidInput, "no offset yet"),
    ],
)
def test_what_cannot_be_is_refused_and_moves_nothing(filled, arguments, error, text):
    make_group(filled, "Fresh")
    for dry_run in (True, False):
        with pytest.raises(error, match=text):
            filled.window.offset_commands.reset(*arguments, dry_run=dry_run)
    assert offsets(filled) == {0: 7, 1: 5}
    assert filled.window.offsets.of_group("CG") == ()


def test_one_bad_queue_keeps_all_where_they_are(filled):
    with pytest.raises(InvalidInput):
        filled.window.offset_commands.reset("CG", "Orders", Exactly({0: 3, 1: 6}))
    assert offsets(filled) == {0: 7, 1: 5}


def test_a_group_that_never_committed(filled):
    make_group(filled, "Fresh")
    filled.window.offset_commands.reset("Fresh", "Orders", AtTime(0))
    assert offsets(filled, "Fresh") == {0: 0, 1: 0, 2: 0, 3: 0}
    assert filled._ours().ask(ASK, {"consumerGroup": "Fresh", "topic": "Orders", "queueId": 2}).ext_fields == {
        "offset": "0"
    }


def test_a_broadcasting_group_keeps_its_offsets_itself(filled):
    filled.join("c1", "CG", model="BROADCASTING")
    with pytest.raises(InvalidInput, match="broadcasting"):
        filled.window.offset_commands.reset("CG", "Orders", Earliest())
    refused = filled._ours().ask(RESET, {"group": "CG", "topic": "Orders", "timestamp": 0, "isForce": "true"})
    assert (refused.code, "broadcast" in refused.remark) == (1, True)
    assert offsets(filled) == {0: 7, 1: 5}


def test_a_member_that_stays_is_told_and_its_old_commits_do_not_count(filled):
    member = filled.join("c1", "CG")
    parked = member.send(PULL, pull_fields("Orders", 0, 10, consumerGroup="CG", sysFlag=6, suspendTimeoutMillis=15_000))
    done = filled.window.offset_commands.reset("CG", "Orders", Exactly({0: 2}))
    assert [sentence.code for sentence in done.warnings] == ["offsets_online"]
    while (answer := member.receive()).code == NOTICE:
        pass
    assert (answer.opaque, answer.code, answer.ext_fields["nextBeginOffset"]) == (parked, 21, "2")
    filled.commit("CG", "Orders", 0, 9)  # a 4.9 client repeats this for 10 s
    assert offsets(filled)[0] == 2
    assert pull(member, 0, 10, commitOffset=9).code == 21, "told again: it did not go there"
    assert pull(member, 0, 2).code == 0
    filled.commit("CG", "Orders", 0, 3)
    assert offsets(filled)[0] == 3


def test_who_begins_there_is_not_told_first(filled):
    """The consumer asks for its group's offset, so it needs no notice."""
    filled.window.offset_commands.reset("CG", "Orders", Exactly({0: 2}))
    member = filled.join("c1", "CG")
    ask = {"consumerGroup": "CG", "topic": "Orders", "queueId": 0}
    assert member.ask(ASK, ask).ext_fields["offset"] == "2"
    assert pull(member, 0, 2).code == 0


def test_a_preview_holds_against_progress_and_not_against_another_reset(filled):
    to = Exactly({0: 2})
    preview = filled.window.offset_commands.reset("CG", "Orders", to, dry_run=True)
    filled.commit("CG", "Orders", 0, 8)
    done = filled.window.offset_commands.reset("CG", "Orders", to, revision=preview.revision)
    assert moves(done) == [(0, 8, 2, 6, 0)], "what it was at that moment"
    with pytest.raises(Conflict):
        filled.window.offset_commands.reset("CG", "Orders", to, revision=preview.revision)


def test_a_skip_that_comes_late_does_not_take_the_group_back(filled):
    skip = filled.window.offset_target("skip", offset=7, queues=[0])
    assert skip == Skip({0: 8})
    preview = filled.window.offset_commands.reset("CG", "Orders", skip, dry_run=True)
    assert moves(preview) == [(0, 7, 8, 0, 1)]
    for there in (9, 8):
        filled.commit("CG", "Orders", 0, there)
        for options in ({"revision": preview.revision}, {"dry_run": True}):
            with pytest.raises(Conflict, match=f"in queue 0 of Orders it is at {there}, behind that message"):
                filled.window.offset_commands.reset("CG", "Orders", skip, **options)
    assert offsets(filled)[0] == 8
    assert filled.window.offsets.of_group("CG") == ()
    filled.commit("CG", "Orders", 0, 7)
    assert moves(filled.window.offset_commands.reset("CG", "Orders", skip)) == [(0, 7, 8, 0, 1)]


def test_a_commit_between_the_plan_of_a_skip_and_its_act_counts(filled, monkeypatch):
    service = filled.engine.broker.offset_resets
    real = service._checked

    def checked(group: str, planned: Any) -> Any:
        filled.commit("CG", "Orders", 0, 10)
        return real(group, planned)

    monkeypatch.setattr(service, "_checked", checked)
    with pytest.raises(Conflict, match="it is at 10"):
        filled.window.offset_commands.reset("CG", "Orders", Skip({0: 8}))
    assert offsets(filled)[0] == 10
    filled.commit("CG", "Orders", 0, 9)
    assert offsets(filled)[0] == 9, "commits count again"
    assert filled.window.offsets.of_group("CG") == ()


def test_a_topic_deleted_after_the_preview(filled):
    preview = filled.window.offset_commands.reset("CG", "Orders", Earliest(), dry_run=True)
    filled.window.topic_commands.delete("Orders", force=True)
    with pytest.raises(NotFound):
        filled.window.offset_commands.reset("CG", "Orders", Earliest(), revision=preview.revision)
    assert filled.engine.broker.offsets.groups_of("Orders") == []


# --- taking back


def test_it_is_taken_back_once(filled):
    done = filled.window.offset_commands.reset("CG", "Orders", Earliest(), by="alice")
    filled.commit("CG", "Orders", 0, 4)
    [listed] = filled.window.offsets.of_group("CG")
    assert (listed.id, listed.by, listed.kind, listed.asked) == (done.id, "alice", "reset", "earliest")
    assert moves(listed)[:2] == [(0, 7, 0, 7, 0), (1, 5, 0, 5, 0)]
    preview = filled.window.offset_commands.undo(done.id, dry_run=True)
    assert offsets(filled) == {0: 0, 1: 0, 2: 0, 3: 0}, "commits wait for a member that has it, and nothing was done"
    undone = filled.window.offset_commands.undo(done.id, revision=preview.revision, by="bob")
    assert (undone.kind, undone.asked, undone.by) == ("undo", str(done.id), "bob")
    assert offsets(filled) == {0: 7, 1: 5}, "queues without an offset have none again"
    newest, first = filled.window.offsets.of_group("CG")
    assert (first.undone_by, first.undo_until_ms, newest.id) == (undone.id, None, undone.id)
    with pytest.raises(Conflict):
        filled.window.offset_commands.undo(done.id)
    assert offsets(filled) == {0: 7, 1: 5}


def test_taking_back_says_where_a_queue_has_moved_on(filled):
    done = filled.window.offset_commands.reset("CG", "Orders", Earliest())
    member = filled.join("c1", "CG")
    assert [pull(member, 0, offset).code for offset in (9, 0)] == [21, 0]
    filled.commit("CG", "Orders", 0, 4)
    preview = filled.window.offset_commands.undo(done.id, dry_run=True)
    first = preview.moves[0]
    assert (first.before, first.to, first.note.code, first.note.args) == (
        4, 7, "offset_moved_on", {"sent": 0, "now": 4}
    )  # fmt: skip
    assert preview.moves[1].note is None
    assert {move.queue_id for move in preview.moves} == {0, 1}, "members hold the others"
    assert "offsets_left" in [sentence.code for sentence in preview.warnings]
    filled.window.offset_commands.undo(done.id)
    assert pull(member, 0, 4).ext_fields["nextBeginOffset"] == "7"


def test_taking_back_after_a_restart_and_after_a_day(filled):
    done = filled.window.offset_commands.reset("CG", "Orders", Exactly({0: 1}))
    filled.restart()
    [listed] = filled.window.offsets.of_group("CG")
    assert (listed.id, moves(listed), listed.waiting) == (done.id, [(0, 7, 1, 6, 0)], 1)
    journal = filled.engine.broker.offset_resets.journal
    assert filled.window.offset_commands.undo(done.id, dry_run=True).moves[0].to == 7
    late = journal._clock.wall_ms() + KEPT_MS + 1
    journal._ages = SimpleNamespace(now_ms=lambda: late)
    with pytest.raises(NotFound):
        filled.window.offset_commands.undo(done.id)
    assert filled.window.offsets.of_group("CG") == ()
    with pytest.raises(NotFound):
        filled.window.offset_commands.undo(17)


def test_a_reset_that_nobody_has_taken_over_is_told_after_a_restart_and_no_sooner_over(filled):
    filled.window.offset_commands.reset("CG", "Orders", Exactly({0: 1, 1: 1}))
    member = filled.join("c1", "CG")
    assert [pull(member, 0, offset).code for offset in (9, 1)] == [21, 0]
    filled.commit("CG", "Orders", 0, 6)
    filled.restart()  # saves the offsets
    member = filled.join("c1", "CG")
    assert pull(member, 0, 9).code == 0, "that one is over"
    assert pull(member, 1, 5).ext_fields["nextBeginOffset"] == "1"
    assert offsets(filled) == {0: 6, 1: 1}


def test_a_deleted_topics_resets_are_over_and_cannot_be_taken_back(filled):
    done = filled.window.offset_commands.reset("CG", "Orders", Exactly({0: 1}))
    filled.window.topic_commands.delete("Orders", force=True)
    assert filled.engine.broker.offsets.resets == {}
    filled.put("Orders", b"new")
    with pytest.raises(Conflict):
        filled.window.offset_commands.undo(done.id)
    filled.restart()
    assert offsets(filled) == {}
    with pytest.raises(Conflict):
        filled.window.offset_commands.undo(done.id)


# --- cloning


def test_a_group_goes_on_where_another_is(filled):
    make_group(filled, "Copy")
    filled.commit("Copy", "Orders", 0, 9)
    preview = filled.window.offset_commands.clone("CG", "Copy", dry_run=True)
    assert moves(preview) == [(0, 9, 7, 2, 0), (1, None, 5, 0, 0)]
    assert offsets(filled, "Copy") == {0: 9}
    done = filled.window.offset_commands.clone("CG", "Copy", revision=preview.revision, by="alice")
    assert offsets(filled, "Copy") == {0: 7, 1: 5}
    filled.window.offset_commands.undo(done.id)
    assert offsets(filled, "Copy") == {0: 9}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("Nobody", "Copy"), NotFound),
        (("CG", "Nobody"), NotFound),
        (("CG", "Copy", "Nothing"), NotFound),
        (("CG", "CG"), InvalidInput),
        (("Copy", "CG"), InvalidInput),  # has none
    ],
)
def test_what_cannot_be_cloned(filled, arguments, error):
    make_group(filled, "Copy")
    with pytest.raises(error):
        filled.window.offset_commands.clone(*arguments)
    assert (offsets(filled), offsets(filled, "Copy")) == ({0: 7, 1: 5}, {})


# --- consumption switched off


def test_a_held_pull_of_a_group_that_is_switched_off_brings_nothing(filled):
    member = filled.join("c1", "CG")
    held = pull_fields("Orders", 2, 0, consumerGroup="CG", sysFlag=6, suspendTimeoutMillis=15_000)
    parked = member.send(PULL, held)
    assert pull(member, 0, 7).code == 0  # the other one is held by now
    filled.window.group_commands.edit("CG", consume_enable=False)
    filled.put("Orders", b"not for now", queue=2)
    while (answer := member.receive()).opaque != parked:
        pass
    assert (answer.code, answer.ext_fields.get("forbiddenType")) == (16, "2")
    assert pull(member, 0, 7).code == 16
    filled.window.group_commands.edit("CG", consume_enable=True)
    assert member.ask(PULL, held).code == 0


def state_of(running: RunningEngine, number: int | None, queue: int = 0) -> str:
    assert number is not None
    return next(str(move.state) for move in running.window.offsets.one(number).moves if move.queue_id == queue)


def test_where_each_queue_is_on_its_way(filled):
    done = filled.window.offset_commands.reset("CG", "Orders", Exactly({0: 2, 1: 1}))
    assert filled.window.offsets.one(done.id).states == {"waiting": 2}
    peer = filled.peer()
    assert pull(peer, 0, 7).code == 21
    found = filled.window.offsets.one(done.id)
    assert (found.states, found.finished) == ({"waiting": 1, "told": 1}, False)
    told = next(move for move in found.moves if move.state == "told")
    assert told.told_s is not None
    assert told.told_s < 30
    assert pull(peer, 0, 2).code == 0
    assert state_of(filled, done.id) == "reached"
    filled.commit("CG", "Orders", 0, 5)
    [moved] = [move for move in filled.window.offsets.one(done.id).moves if move.queue_id == 0]
    assert (moved.state, moved.to, moved.now) == ("reached", 2, 5)
    again = filled.window.offset_commands.reset("CG", "Orders", Exactly({1: 3}))
    assert state_of(filled, done.id, 1) == "replaced"
    assert state_of(filled, again.id, 1) == "waiting"
    assert filled.window.offsets.one(done.id).finished


def test_members_that_do_not_follow_are_told_of(filled, monkeypatch):
    monkeypatch.setattr(pendings, "MOST_TELLINGS", 3)
    done = filled.window.offset_commands.reset("CG", "Orders", Exactly({0: 2}))
    peer = filled.peer()
    for _ in range(3):
        assert pull(peer, 0, 7).code == 21
    assert state_of(filled, done.id) == "told"
    assert pull(peer, 0, 7).code == 0
    assert state_of(filled, done.id) == "given_up"
    assert filled.window.offsets.one(done.id).finished


def test_a_queue_that_is_gone_and_one_without_an_offset(filled):
    make_group(filled, "Fresh")
    done = filled.window.offset_commands.reset("Fresh", "Orders", Exactly({0: 2}))
    back = filled.window.offset_commands.undo(done.id)
    assert state_of(filled, back.id) == "forgotten"
    done = filled.window.offset_commands.reset("CG", "Orders", Exactly({0: 2}))
    filled.window.topic_commands.delete("Orders", force=True)
    assert state_of(filled, done.id) == "gone"
    with pytest.raises(NotFound):
        filled.window.offsets.one(17)


def test_what_lies_before_the_beginning_of_a_queue_without_an_offset(filled):
    make_group(filled, "Fresh")
    preview = filled.window.offset_commands.reset("Fresh", "Orders", Latest(), dry_run=True)
    assert (preview.replays, preview.skips, preview.passed_over) == (0, 0, 15)
    chosen = filled.window.offset_commands.reset("CG", "Orders", Earliest(), queue_id=[0, 1], dry_run=True)
    assert [move.queue_id for move in chosen.moves] == [0, 1]
    assert chosen.moves[0].first_offset == 0
    everything = filled.window.offset_commands.reset("CG", None, Latest(), dry_run=True)
    assert {move.topic for move in everything.moves} == {"Orders"}
