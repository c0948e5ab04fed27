"""Decisions one by one, and the checks that refuse wrong ones."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from appliance.engine.failover.decision import (
    Answer,
    Await,
    BeginEpoch,
    CloseStream,
    Cut,
    Fence,
    Follow,
    Join,
    Lead,
    Memory,
    Note,
    Other,
    Pending,
    Read,
    Reign,
    Rules,
    See,
    SetAside,
    Sight,
    Swap,
    Swapped,
    Wish,
)
from appliance.engine.failover.invariants import InvariantBroken, check
from appliance.engine.failover.leader_store import Revision
from appliance.engine.failover.machine import decide, pause, release_until, wants_read
from appliance.engine.failover.parts import Known, LogHealth, MemberReport, StreamStatus
from appliance.engine.failover.set_state import Election, Leader, SetState

ME, OTHER = Leader("me", 1, "me:1", "me:2"), Leader("other", 2, "other:1", "other:2")
RULES = Rules("set", "me")
NO_STREAM = StreamStatus("", 0, 0.0, False, -1, False, 0, "")
SOUND = LogHealth(100, 100, 100, True, "", True)
NOW = 1000.0


def key(leader: Leader | None = OTHER, epoch: int = 3, isr=("other", "me"), at: float = NOW, **rest) -> Read:
    values = {"set": "set", "epoch": epoch, "leader": leader, "isr": isr, "nonce": "theirs", "floor": 90}
    state = SetState(**{**values, **rest})
    return Read(state, Revision("r3"), at)


def sight(**rest) -> Sight:
    values = {"seen": 3, "epoch": 3, "epoch_start": 50, "health": SOUND, "stream": NO_STREAM, "members": []}
    values |= {"role": "follower", "nonce": "mine", "random": 0.0, "read": key(), "following": ("other", 3)}
    return Sight(me=ME, **{**values, **rest})


def silent(**rest) -> Memory:
    """Return a memory whose key did not change for long."""
    return Memory(key=key(**rest), since=NOW - 10, reads=20)


def reigning(isr=("me", "other"), **rest) -> Memory:
    state = SetState(set="set", epoch=3, leader=ME, isr=isr, nonce="own", floor=90, beat=5)
    return Memory(key=Read(state, Revision("r9"), NOW), reign=Reign(state, Revision("r9"), NOW - 0.1, led=True), **rest)


def leading(**rest) -> Sight:
    values = {"role": "leader", "read": None, "awaited": frozenset(["other"]), "members": [report()]}
    return sight(**{**values, **rest})


def report(uuid: str = "other", durable: int = 100, moved_at: float = NOW, late_s: float = 0.0) -> MemberReport:
    return MemberReport(uuid, uuid, durable, 100, moved_at, NOW - 100, took_s=1.0 if late_s else 0.0, late_s=late_s)


def acts_of(memory: Memory, seen: Sight, rules: Rules = RULES):
    return decide(memory, NOW, seen, rules)[1]


# --- who does not lead


def test_a_higher_epoch_is_seen_before_anything_is_done_for_it():
    assert acts_of(Memory(), sight(seen=2)) == (See(3),)


def test_the_leader_is_followed():
    assert acts_of(Memory(), sight(following=("other", 2))) == (Follow(OTHER, 3),)
    assert acts_of(Memory(), sight()) == ()


def test_a_log_that_went_on_alone_is_cut():
    stream = NO_STREAM._replace(cut_at=70)
    assert acts_of(Memory(), sight(stream=stream)) == (Cut(70, OTHER, 3),)


def test_a_stranger_is_set_aside_unless_it_is_in_sync():
    stream = NO_STREAM._replace(stranger=True)
    (act,) = acts_of(Memory(), sight(stream=stream, read=key(isr=("other",))))
    assert type(act) is SetAside
    memory, acts = decide(Memory(), NOW, sight(stream=stream), RULES)
    assert (memory.role, acts) == ("frozen", ())


def test_a_member_without_a_slot_does_nothing():
    assert acts_of(Memory(), sight(following=("", 0))._replace(me=Leader("me", 0, "me:1", "me:2"))) == ()


@pytest.mark.parametrize(
    ("read", "seen", "why"),
    [
        (key(epoch=2), 3, "restored"),
        (Read(None, Revision("0"), NOW, True), 3, "gone"),
        (Read(None, Revision("r"), NOW), 3, "not this set's"),
        (
            Read(key().state.__class__(set="x", epoch=3, leader=OTHER, isr=("me",), nonce=""), Revision("r"), NOW),
            3,
            "not",
        ),
    ],
)
def test_a_key_that_cannot_be_believed_freezes(read, seen, why):
    memory, acts = decide(Memory(), NOW, sight(read=read, seen=seen), RULES)
    assert memory.role == "frozen"
    assert why in memory.why
    assert acts == ()
    assert acts_of(Memory(), sight(read=read, wish=Wish("switch", "other")))[0].done is False


# --- elections


def test_a_silent_leader_is_replaced_step_by_step():
    memory, acts = decide(silent(), NOW, sight(), RULES)
    assert acts == (CloseStream(),)
    memory, acts = decide(memory, NOW, sight(closed_at=100, following=("", 0)), RULES)
    (swap,) = acts
    assert (swap.expected, swap.state.epoch, swap.state.leader, swap.state.isr) == ("r3", 4, ME, ("me",))
    assert swap.state.floor == 90
    after = sight(closed_at=100, following=("", 0), read=None, swapped=Swapped("done", NOW, Revision("r4")))
    memory, acts = decide(memory, NOW, after, RULES)
    assert acts == (See(4),)
    memory, acts = decide(memory, NOW, after._replace(swapped=None, seen=4), RULES)
    assert acts == (BeginEpoch(4, 100),)
    memory, acts = decide(memory, NOW, after._replace(swapped=None, seen=4, epoch=4, epoch_start=100), RULES)
    assert acts == (Lead(4, frozenset()),)


def test_a_log_that_grew_after_its_stream_was_closed_is_closed_again():
    assert acts_of(silent(), sight(closed_at=99)) == (CloseStream(),)
    assert acts_of(silent(), sight(closed_at=100, health=SOUND._replace(kept=99))) == (CloseStream(),)


@pytest.mark.parametrize(
    "seen",
    [
        sight(read=key(isr=("other",))),
        sight(health=SOUND._replace(end=89, kept=89)),
        sight(epoch_start=101),
        sight(health=SOUND._replace(electable=False, why_not="damaged")),
        sight(health=SOUND._replace(alive=False)),
        sight(others={"other": Other(4, 100)}),
        sight(stream=NO_STREAM._replace(heard_at=NOW - 0.5)),
        sight(wish=Wish("resign")),
    ],
    ids=[
        "not in sync",
        "below the floor",
        "shorter than its epoch",
        "damaged",
        "stalled",
        "higher",
        "heard",
        "stopping",
    ],
)
def test_who_may_not_lead_does_not_ask_for_it(seen):
    memory = silent(isr=seen.read.state.isr)
    assert CloseStream() in acts_of(memory, sight(read=seen.read._replace(state=key().state)))
    assert not [act for act in acts_of(memory, seen) if type(act) in (CloseStream, Swap)]


def test_reads_that_failed_are_no_silence():
    memory, _ = decide(silent(), NOW, sight(read=None, unread=True), RULES)
    assert acts_of(memory, sight()) == ()


def test_two_reads_are_not_enough():
    assert acts_of(silent()._replace(reads=1), sight()) == ()


def test_closed_ports_elect_at_once_where_all_are_awaited():
    seen = sight(stream=NO_STREAM._replace(refused=True, heard_at=NOW))
    assert acts_of(Memory(), seen) == (CloseStream(),)
    assert acts_of(Memory(), seen, RULES._replace(synchronous=False, elect_after=5.0)) == ()


def test_candidates_wait_by_rank():
    others = {"me": Other(3, 90), "other": Other(3, 100)}
    memory, acts = decide(silent(), NOW, sight(others=others, random=0.5), RULES)
    assert acts == ()
    assert memory.run_at == pytest.approx(NOW + 0.125)
    assert pause(memory, NOW, RULES) == pytest.approx(0.125)


def test_a_successor_goes_first():
    assert acts_of(Memory(), sight(read=key(None, successor="me"))) == (CloseStream(),)
    assert acts_of(Memory(), sight(read=key(None, successor="other"))) == ()
    assert acts_of(silent(leader=None, successor="other"), sight(read=key(None, successor="other"))) == (CloseStream(),)


def test_an_epoch_is_not_resumed_after_a_restart():
    _memory, acts = decide(Memory(), NOW, sight(read=key(ME), role="fenced", closed_at=100), RULES)
    assert acts[0].state.epoch == 4


def test_an_asynchronous_set_takes_a_candidate_that_lacks_little():
    rules = RULES._replace(synchronous=False, elect_after=5.0, max_lag=20)
    assert acts_of(silent(), sight(health=SOUND._replace(end=75, kept=75)), rules) == (CloseStream(),)
    assert acts_of(silent(), sight(health=SOUND._replace(end=65, kept=65)), rules) == ()


def test_a_set_does_not_begin_beside_a_fuller_log_unless_somebody_says_so():
    nothing = Read(None, Revision("0"), NOW, absent=True)
    rules = RULES._replace(bootstrap=True)
    fuller = {"me": Other(0, 100), "other": Other(0, 101)}
    seen = sight(
        read=nothing, seen=0, epoch=0, epoch_start=0, following=("", 0), others=fuller, closed_at=100, cluster="c"
    )
    memory, acts = decide(Memory(), NOW, seen, rules)
    assert (memory.role, acts) == ("frozen", ())
    assert "1 of the other members have a longer log" in memory.why
    memory, acts = decide(memory, NOW, seen._replace(wish=Wish("switch", "other")), rules)
    assert acts == (Answer(False, memory.why),)
    _, acts = decide(memory, NOW, seen._replace(wish=Wish("adopt")), rules)
    assert [type(act) for act in acts] == [Swap]
    assert acts[0].state.elections[-1].lost_bound == 1
    as_long = seen._replace(others={"other": Other(0, 100)})
    assert [type(act) for act in acts_of(Memory(), as_long, rules)] == [Swap]


def test_a_strangers_log_that_holds_more_is_not_set_aside():
    stranger = NO_STREAM._replace(stranger=True)
    seen = sight(read=key(isr=("other",)))
    assert [type(act) for act in acts_of(Memory(), seen._replace(stream=stranger))] == [SetAside]
    memory, acts = decide(Memory(), NOW, seen._replace(stream=stranger._replace(fuller=True)), RULES)
    assert (memory.role, acts) == ("frozen", ())
    assert memory.why.endswith("and holds more: nobody sets it aside unasked")


def test_the_fuller_one_begins_the_set_anew_when_its_key_was_deleted():
    """How it is put back: docs/high-availability.md."""
    gone = Read(None, Revision("0"), NOW, absent=True)
    seen = sight(read=gone, seen=1, epoch=0, epoch_start=0, following=("", 0), closed_at=100, set_id="wrong")
    memory, _ = decide(Memory(), NOW, seen, RULES)
    assert memory.role == "frozen"
    acts = acts_of(memory, seen._replace(wish=Wish("adopt")))
    assert [(act.state.epoch, act.state.isr) for act in acts] == [(2, ("me",))]


def test_bootstrap_is_for_who_has_no_past():
    nothing = Read(None, Revision("0"), NOW, True)
    fresh = sight(read=nothing, seen=0, epoch=0, epoch_start=0, closed_at=100, role="fenced")
    assert acts_of(Memory(), fresh) == ()
    rules = RULES._replace(bootstrap=True)
    (swap,) = acts_of(Memory(), fresh, rules)
    assert (swap.expected, swap.state.epoch, swap.state.isr) == (None, 1, ("me",))
    assert decide(Memory(), NOW, fresh._replace(epoch=3), rules)[0].role == "frozen"


def test_a_forced_election_says_what_may_be_lost():
    read = key(isr=("other",), floor=150)
    seen = sight(read=read, closed_at=100, wish=Wish("force"), others={"other": Other(3, 170)})
    (swap,) = acts_of(silent(isr=("other",)), seen)
    assert swap.forced
    assert swap.state.elections[-1].lost_bound == 70
    assert acts_of(Memory(), sight(wish=Wish("force")))[0].done is False


def test_an_unknown_swap_is_repeated_as_it_was_and_nothing_else_is_done():
    memory, (swap,) = decide(silent(), NOW, sight(closed_at=100), RULES)
    memory, acts = decide(memory, NOW, sight(closed_at=100, swapped=Swapped("unknown", NOW), read=None), RULES)
    assert acts == ()
    assert not wants_read(memory)
    memory, (again,) = decide(memory, NOW + 0.2, sight(closed_at=100, read=None), RULES)
    assert again is swap
    # A conflict with its own nonce: the first attempt was done.
    conflict = Swapped("conflict", NOW + 0.2, Revision("r5"), swap.state)
    memory, acts = decide(memory, NOW + 0.2, sight(closed_at=100, swapped=conflict, read=None), RULES)
    assert memory.reign is not None
    assert memory.reign.sent_at == NOW


def test_who_adopts_goes_above_every_epoch_that_anybody_saw():
    gone = Read(None, Revision("0"), NOW, True)
    seen = sight(read=gone, closed_at=100, wish=Wish("adopt"), others={"other": Other(7, 100)})
    (swap,) = acts_of(Memory(), seen)
    assert (swap.state.epoch, swap.expected, swap.forced) == (8, None, True)
    memory, (answer,) = decide(Memory(cluster="one"), NOW, seen._replace(cluster="two"), RULES)
    assert not answer.done
    assert memory.role == "frozen"


# --- the leader


def test_a_leader_beats():
    memory = reigning()
    assert acts_of(memory, leading()) == ()
    memory = memory._replace(reign=memory.reign._replace(sent_at=NOW - 0.5))
    (swap,) = acts_of(memory, leading())
    assert (swap.purpose, swap.expected, swap.state.beat, swap.state.floor) == ("keep", "r9", 6, 100)
    assert acts_of(memory, leading(health=SOUND._replace(alive=False))) == ()


def test_a_joiner_is_awaited_then_proposed_when_it_has_all():
    memory, near = reigning(("me",)), [report(durable=99)]
    memory, acts = decide(memory, NOW, leading(awaited=frozenset(), members=near), RULES)
    assert acts == (Await(frozenset(["other"])),)
    memory, acts = decide(memory, NOW, leading(members=near), RULES)
    assert acts == ()
    memory, (swap,) = decide(memory, NOW, leading(), RULES)
    assert swap.state.isr == ("me", "other")


def test_a_joiner_of_another_past_is_not_awaited():
    assert acts_of(reigning(("me",)), leading(awaited=frozenset(), members=[report()], epoch_start=101)) == ()


def test_who_leaves_is_awaited_until_the_swap_is_done():
    memory, (swap,) = decide(reigning(), NOW, leading(members=[]), RULES)
    assert swap.state.isr == ("me",)
    unknown = leading(members=[], swapped=Swapped("unknown", NOW))
    memory, acts = decide(memory, NOW, unknown, RULES)
    assert acts == ()
    done = leading(members=[], swapped=Swapped("done", NOW, Revision("r10")))
    memory, acts = decide(memory, NOW, done, RULES)
    assert acts == (Await(frozenset()),)


@pytest.mark.parametrize("conflict", [key(epoch=4), key(epoch=3)])
def test_a_leader_that_meets_another_revision_publishes_nothing_more(conflict):
    memory = reigning()._replace(pending=Pending(Swap("keep", reigning().reign.state, Revision("r9"))))
    swapped = Swapped("conflict", NOW, Revision("r10"), conflict.state)
    assert type(acts_of(memory, leading(swapped=swapped))[0]) is Fence


def test_an_idle_leader_that_nothing_reaches_stops():
    # Nothing is missing at the other member, so its durable offset does not say whether it is there.
    memory = reigning()._replace(pending=Pending(Swap("keep", reigning().reign.state, Revision("r9")), again=NOW + 60))
    for silent_s in (1.0, 4.9):
        there = report(moved_at=NOW + 9)._replace(heard_at=NOW + 9 - silent_s)
        assert decide(memory, NOW + 9, leading(members=[there]), RULES)[1] == ()
    (act,) = decide(memory, NOW + 9, leading(members=[there._replace(heard_at=NOW + 3.9)]), RULES)[1]
    assert type(act) is Fence
    # While the store takes its beats, nobody else is elected.
    memory = reigning()._replace(reign=reigning().reign._replace(sent_at=NOW + 9))
    assert decide(memory, NOW + 9, leading(members=[there._replace(heard_at=NOW)]), RULES)[1] == ()


@pytest.mark.parametrize("goes", [[], [report(moved_at=NOW + 70)._replace(heard_at=NOW + 60)]])
def test_a_leader_alone_goes_on_when_a_member_came_and_went_while_the_store_was_down(goes):
    swap = Swap("keep", reigning(("me",)).reign.state, Revision("r9"))
    memory = reigning(("me",))._replace(pending=Pending(swap, again=NOW + 600))
    there = report(moved_at=NOW + 60)._replace(heard_at=NOW + 60)
    memory, acts = decide(memory, NOW + 60, leading(awaited=frozenset(), members=[there]), RULES)
    assert acts == (Await(frozenset(["other"])),)
    memory, acts = decide(memory, NOW + 70, leading(members=goes), RULES)
    assert memory.role == "leader"
    assert acts == (() if goes else (Await(frozenset()),))
    # A change of the key that may have been made counts: it may be elected.
    both = Swap("keep", reigning().reign.state, Revision("r9"))
    memory = memory._replace(pending=Pending(both, again=NOW + 600))
    assert type(decide(memory, NOW + 70, leading(members=goes), RULES)[1][0]) is Fence


def test_a_leader_whose_key_is_gone_goes_on_with_all_in_sync():
    memory = reigning()._replace(pending=Pending(Swap("keep", reigning().reign.state, Revision("r9"))))
    memory, acts = decide(memory, NOW, leading(swapped=Swapped("conflict", NOW, Revision("0"), None, True)), RULES)
    assert acts == ()
    assert wants_read(memory)
    assert decide(memory, NOW + 9, leading(members=[report(moved_at=NOW + 9)]), RULES)[1] == ()
    assert type(decide(memory, NOW + 9, leading(), RULES)[1][0]) is Fence
    (answer,) = decide(memory, NOW, leading(wish=Wish("switch", "other")), RULES)[1]
    assert type(answer) is Answer
    assert type(decide(memory, NOW, leading(wish=Wish("adopt")), RULES)[1][0]) is Fence


def test_a_higher_epoch_ends_a_reign():
    assert type(acts_of(reigning(), leading(seen=4))[0]) is Fence


def test_a_broker_that_stopped_leading_ends_a_reign():
    memory, _ = decide(reigning(), NOW, leading(role="fenced", read=None), RULES)
    assert memory.reign is None


def test_the_deadline_of_an_asynchronous_leader():
    rules = RULES._replace(synchronous=False, elect_after=5.0)
    assert release_until(reigning(), RULES) == math.inf
    assert release_until(reigning(), rules) == pytest.approx(NOW - 0.1 + 4.0)
    assert release_until(reigning(("me",)), rules) == math.inf
    assert release_until(Memory(), rules) == -math.inf
    resigning = reigning()._replace(pending=Pending(Swap("resign", reigning().reign.state, Revision("r9"))))
    assert release_until(resigning, rules) == -math.inf
    late = decide(reigning(), NOW + 4, leading(awaited=frozenset()), rules)[1]
    assert type(late[0]) is Fence


def test_who_was_drained_resigns_whatever_became_of_the_wish():
    (swap,) = acts_of(reigning(), leading(drained=False))
    assert (swap.purpose, swap.state.leader, swap.state.successor) == ("resign", None, "")
    (swap,) = acts_of(reigning(), leading(drained=True, wish=Wish("switch", "other")))
    assert swap.state.successor == "other"


def test_a_leader_with_a_broken_log_gives_way_if_somebody_can():
    broken = SOUND._replace(electable=False)
    assert acts_of(reigning(), leading(health=broken))[0].purpose == "resign"
    assert acts_of(reigning(("me",)), leading(health=broken, members=[], awaited=frozenset())) == ()


# --- what refuses a wrong decision


def elected(**rest) -> Swap:
    state = SetState(set="set", epoch=4, leader=ME, isr=("me",), nonce="mine", floor=90)
    return Swap("elect", **{"state": state, "expected": Revision("r3"), **rest})


def candidate(swap: Swap, **rest) -> Memory:
    return Memory(key=key(), pending=Pending(swap), **rest)


def refused(before: Memory, after: Memory, act, seen: Sight, rules: Rules = RULES) -> str:
    with pytest.raises(InvariantBroken) as error:
        check(before, after, (act,), seen, rules)
    return str(error.value)[:2]


def test_a_right_election_is_let_through():
    swap = elected()
    check(Memory(), candidate(swap), (swap,), sight(closed_at=100), RULES)


@pytest.mark.parametrize(
    ("swap", "seen", "invariant"),
    [
        (elected(expected=Revision("r2")), sight(closed_at=100), "I1"),
        (elected(state=SetState(set="set", epoch=5, leader=ME, isr=("me",), nonce="")), sight(closed_at=100), "I1"),
        (elected(state=SetState(set="set", epoch=4, leader=ME, isr=("me", "x"), nonce="")), sight(closed_at=100), "I1"),
        (elected(), sight(closed_at=100, role="leader"), "I1"),
        (elected(), sight(), "I3"),
        (elected(), sight(closed_at=99), "I3"),
        (elected(), sight(closed_at=100, health=SOUND._replace(kept=99)), "I3"),
        (elected(), sight(closed_at=80, health=SOUND._replace(end=80, kept=80)), "I4"),
        (elected(), sight(closed_at=100, health=SOUND._replace(electable=False)), "I4"),
        (elected(), sight(closed_at=100, seen=4), "I5"),
    ],
)
def test_a_wrong_election_is_refused(swap, seen, invariant):
    assert refused(Memory(), candidate(swap), swap, seen) == invariant


def test_an_election_of_who_is_not_in_sync_is_refused():
    swap = elected()
    after = candidate(swap)._replace(key=key(isr=("other",)))
    assert refused(Memory(), after, swap, sight(closed_at=100)) == "I4"


def test_other_wrong_acts_are_refused():
    reign, swap = reigning(), elected()
    assert refused(reign, reign, Await(frozenset()), leading()) == "I2"
    joined = reigning(("me",))
    state = SetState(set="set", epoch=3, leader=ME, isr=("me", "other"), nonce="", floor=90, beat=6)
    keep = Swap("keep", state, Revision("r9"))
    after = joined._replace(pending=Pending(keep))
    assert refused(joined, after, keep, leading(awaited=frozenset())) == "I2"
    assert refused(joined, after, keep, leading(members=[report(durable=99)])) == "I2"
    check(joined, after, (keep,), leading(), RULES)
    assert refused(Memory(), candidate(swap), Follow(OTHER, 3), sight()) == "I7"
    assert refused(Memory(), Memory(key=key()), Follow(OTHER, 3), sight(seen=4)) == "I5"
    assert refused(candidate(swap), candidate(elected()), elected(), sight(closed_at=100)) == "I7"
    assert refused(reign, reign, Lead(3, frozenset(["other"])), leading()) == "I6"
    assert refused(reign, reign, BeginEpoch(3, 100), leading(closed_at=100)) == "I6"
    assert refused(reign, reign, BeginEpoch(4, 100), leading(seen=4)) == "I3"
    assert refused(Memory(), Memory(), Lead(3, frozenset()), sight()) == "I1"


@pytest.mark.parametrize("kind", ["", "adopt", "force"])
def test_the_key_of_another_set_of_this_name_is_not_followed_and_not_adopted(kind):
    """A haStore of the wrong etcd does this: both sets begin with epoch 1 at 0, and a cut would look right."""
    foreign = key(epoch=3)
    assert foreign.state is not None
    foreign = foreign._replace(state=replace(foreign.state, id="theirs"))
    stream = NO_STREAM._replace(cut_at=40)
    seen = sight(read=foreign, set_id="ours", stream=stream, wish=Wish(kind, "me") if kind else None)
    memory, acts = decide(Memory(), NOW, seen, RULES)
    assert memory.role == "frozen"
    assert "another set" in memory.why
    assert [type(act) for act in acts] == ([Answer] if kind else [])
    assert not any(act.done for act in acts)
    # The same key, of the member's own set.
    own = decide(Memory(), NOW, seen._replace(set_id="theirs", wish=None), RULES)[1]
    assert [type(act).__name__ for act in own] == ["Cut"]
    # A member that was in no set yet joins first, and only then does anything else.
    assert decide(Memory(), NOW, seen._replace(set_id="", wish=None), RULES)[1] == (Join("theirs"),)


def unplaced(**rest) -> StreamStatus:
    why = "the record at 40 cannot be placed"
    return NO_STREAM._replace(**{"unplaced": why, "why": why, **rest})


def test_a_store_without_a_place_for_a_record_is_copied_anew_once_nobody_counts_on_it():
    alone = key(isr=("other",))
    assert acts_of(Memory(), sight(stream=unplaced(), read=alone)) == (SetAside("the record at 40 cannot be placed"),)
    memory, acts = decide(Memory(), NOW, sight(stream=unplaced()), RULES)
    assert (acts, memory.why) == ((), "the record at 40 cannot be placed")
    assert acts_of(Memory(), sight(stream=unplaced(copied=True), read=alone)) == ()


def test_who_lacks_topics_as_administrators_left_them_does_not_come_in_sync():
    memory = reigning(isr=("me",))
    seen = leading(awaited=frozenset(["other"]), health=SOUND._replace(changes=3))
    lacking = seen._replace(members=[report()._replace(taken=2)])
    assert acts_of(memory, lacking) == ()
    (act,) = acts_of(memory, seen._replace(members=[report()._replace(taken=3)]))
    assert act.state.isr == ("me", "other")


def test_who_may_be_in_sync_is_noted_before_fewer_or_more_are_waited_for():
    memory = reigning(isr=("me",))
    seen = leading(awaited=frozenset(["other"]), members=[], known=Known(3, 4, frozenset(["me", "other"]), True))
    noted = Note(Known(3, 5, frozenset(["me"]), True))
    assert acts_of(memory, seen) == (noted,)
    assert acts_of(memory, seen._replace(known=noted.known)) == (Await(frozenset()),)
    comes = seen._replace(known=noted.known, awaited=frozenset(), members=[report()])
    more = Note(Known(3, 5, frozenset(["me", "other"]), True))
    assert acts_of(memory, comes) == (more,)
    assert acts_of(memory, comes._replace(known=more.known)) == (Await(frozenset(["other"])),)


def election(epoch: int, uuid: str, lost: int = -1) -> Election:
    return Election(epoch, uuid, 60, 0, "a test", lost)


@pytest.mark.parametrize(
    ("elections", "frozen"),
    [
        ((election(3, "me"), election(4, "other")), True),
        ((election(3, "me"), election(4, "me"), election(5, "other")), False),
        ((election(3, "me"), election(4, "other", 0)), False),  # an operator decided it
        (tuple(election(epoch, "other") for epoch in range(4, 14)), False),  # the first one is no longer listed
    ],
)
def test_who_was_elected_without_being_in_sync_is_not_followed(elections, frozen):
    known = Known(3, 9, frozenset(["me", "third"]), True)
    epoch = elections[-1].epoch
    read = key(epoch=epoch, isr=("other",), elections=elections)
    memory, acts = decide(Memory(), NOW, sight(read=read, known=known, seen=epoch, following=("", 0)), RULES)
    assert (memory.role == "frozen") is frozen
    assert bool(acts) is not frozen


def test_who_has_deleted_less_goes_first():
    """Its disk had more room: it still has messages that expired elsewhere."""
    leaves = {"leader": None, "isr": ("me", "other", "third")}
    health = SOUND._replace(begin=40)

    def runs_at(**others):
        seen = sight(read=key(**leaves), health=health, others=others, following=("", 0))
        return decide(Memory(), NOW, seen, RULES)[0].run_at

    assert runs_at(me=Other(3, 100, 40), other=Other(3, 90, 0)) > NOW
    assert runs_at(me=Other(3, 90, 0), other=Other(3, 100, 40)) == NOW
    assert runs_at(other=Other(3, 100, 40)) > NOW


# --- members that are slow


class Leading:
    """A leader, turn after turn: its swaps are carried out, and its awaited members set."""

    def __init__(self, *isr: str, **rules) -> None:
        self.rules = RULES._replace(**rules)
        self.memory, self.now = reigning(isr=("me", *isr)), NOW
        self.awaited = frozenset(isr)
        self.swapped: Swapped | None = None
        #: For each proposed in-sync set, the members that were awaited then.
        self.proposed: list[tuple[tuple[str, ...], frozenset[str]]] = []

    def turns(self, *members: MemberReport, seconds: float = 1.0) -> tuple[str, ...]:
        """Repeat these reports for so many seconds; return the members in sync then."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.1
            seen = leading(members=[one._replace(moved_at=self.now) for one in members], awaited=self.awaited)
            self.memory, acts = decide(self.memory, self.now, seen._replace(swapped=self.swapped), self.rules)
            self.swapped = None
            for act in acts:
                if type(act) is Swap:
                    self.proposed.append((act.state.isr, self.awaited))
                    self.swapped = Swapped("done", self.now, Revision(str(self.now)))
                elif type(act) is Await:
                    self.awaited = act.awaited
        return self.memory.reign.state.isr

    @property
    def slow(self) -> set[str]:
        return {uuid for uuid, one in self.memory.slow.items() if self.now < one.until}


def test_a_slow_member_is_left_out_and_awaited_until_that_is_written():
    leader = Leading("other")
    assert leader.turns(report(late_s=9.9)) == ("me", "other")
    assert leader.turns(report(late_s=10.0)) == ("me",)
    assert leader.awaited == frozenset()
    assert next(awaited for isr, awaited in leader.proposed if isr == ("me",)) == {"other"}


def test_it_comes_back_when_it_was_quick_for_long_and_is_awaited_first():
    leader = Leading("other")
    leader.turns(report(late_s=10.0))
    # It has all that is published, but its last acknowledgements were late.
    assert leader.turns(report(late_s=0.1), seconds=60) == ("me",)
    assert leader.turns(report(), seconds=29) == ("me",)
    assert leader.awaited == frozenset()
    leader.proposed.clear()
    assert leader.turns(report(), seconds=3) == ("me", "other")
    assert next(awaited for isr, awaited in leader.proposed if "other" in isr) == {"other"}


def test_it_waits_twice_as_long_each_time_and_forgets():
    leader, waits = Leading("other"), []
    for _ in range(7):
        leader.turns(report(late_s=10.0))
        begin = leader.now
        while leader.turns(report()) == ("me",):
            pass
        waits.append(round(leader.now - begin, -1))
    assert waits == [30, 60, 120, 240, 480, 600, 600]
    leader.turns(report(), seconds=700)
    assert leader.memory.slow == {}


def test_no_slow_member_is_left_out_where_too_few_would_be_left():
    leader = Leading("other", min_in_sync=2)
    assert leader.turns(report(late_s=20.0), seconds=5) == ("me", "other")
    assert leader.slow == {"other"}, "people see it"
    assert leader.turns(report(late_s=20.0), report("third"), seconds=5) == ("me", "third")
    # The quick one goes: the slow one is awaited again, and comes back.
    assert leader.turns(report(late_s=20.0), seconds=5) == ("me", "other")


def test_of_two_slow_ones_the_same_stays():
    leader = Leading("other", "third", min_in_sync=2)
    both = [report(late_s=20.0), report("third", late_s=20.0)._replace(took_s=0.6)]
    assert leader.turns(*both) == ("me", "third")
    both[1] = both[1]._replace(took_s=1.4)
    assert leader.turns(*both, seconds=5) == ("me", "third")


def test_what_is_slow_is_of_one_reign():
    leader = Leading("other")
    leader.turns(report(late_s=10.0))
    memory = leader.memory._replace(reign=None, pending=Pending(Swap("elect", leader.memory.key.state, None)))
    after = sight(read=None, swapped=Swapped("done", NOW, Revision("r10")), closed_at=100)
    assert decide(memory, NOW, after, RULES)[0].slow == {}


def test_an_asynchronous_set_leaves_nobody_out_for_it():
    leader = Leading("other", synchronous=False)
    leader.awaited = frozenset()
    assert leader.turns(report(late_s=20.0), seconds=5) == ("me", "other")
