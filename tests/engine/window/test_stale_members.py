"""A member counts as gone when its announcements stop, whatever its clock says."""

import types
from dataclasses import replace

import pytest

from appliance.engine.errors import Conflict, NotFound
from appliance.engine.failover.service import SetStatus
from appliance.engine.failover.set_state import Announcement
from appliance.engine.window.replicas.member import STALE_S, _is_stale, _said_role, target_of
from appliance.engine.window.replicas.snapshots import MemberView

HOUR_MS = 3_600_000


def status(heard_at):
    return SetStatus("leader", "", "here", 1, 3, announced={}, heard_at=heard_at, at=1000.0)


def said(uuid, wall_ms, role="follower"):
    return Announcement(uuid=uuid, slot=1, addr="", ha="", version="", role=role, seen=3, log_end=0, wall_ms=wall_ms)


def test_a_member_whose_clock_is_an_hour_behind_is_there():
    now = status({"here": 990.0, "behind": 990.0, "gone": 989.0 - STALE_S})
    assert not _is_stale(now, said("behind", -HOUR_MS))
    assert _is_stale(now, said("gone", HOUR_MS))


def test_nobody_is_gone_because_the_store_does_not_answer():
    now = status({"here": 100.0, "other": 99.0})
    assert not _is_stale(now, said("other", 0))


def test_a_leader_that_died_just_now_is_none_beside_the_next():
    now = status({"here": 990.0, "other": 990.0})
    assert _said_role(now, said("other", 0, "leader"), is_leader=False) == ""
    assert _said_role(now, said("other", 0, "leader"), is_leader=True) == "leader"
    assert _said_role(now, said("other", 0, "frozen"), is_leader=False) == "frozen"


def member(slot, connected=True, in_sync=True, is_here=False, lag=0):
    role = "leader" if is_here else "follower"
    return MemberView(
        f"uuid-{slot}",
        slot,
        f"10.0.0.{slot}:10911",
        "",
        "",
        role,
        in_sync,
        is_here,
        is_here,
        connected,
        0,
        lag,
        0,
        1,
        0,
        None,
        (),
        None,
    )


def test_who_cannot_lead_is_told_for_what_it_is():
    """The error of `--to` with a member that had gone once said that there was no other member."""
    view = types.SimpleNamespace(
        members=(
            member(1, is_here=True),
            member(2, connected=False),
            member(3, in_sync=False),
            member(4),
            member(5, lag=9),
        )
    )
    for to, said in (
        ("uuid-2", "10.0.0.2:10911 is not connected to the leader"),
        ("3", "10.0.0.3:10911 is connected but not in sync"),
        ("1", "10.0.0.1:10911 leads already"),
    ):
        with pytest.raises(Conflict) as refused:
            target_of(view, to)
        assert str(refused.value).startswith(said)
    with pytest.raises(NotFound):
        target_of(view, "nobody")
    assert (target_of(view, "").slot, target_of(view, "5").slot) == (4, 5)
    alone = types.SimpleNamespace(members=view.members[:3])
    with pytest.raises(Conflict, match="no other member"):
        target_of(alone, "")


def test_a_member_whose_fuller_disk_deleted_old_messages_is_not_the_one_that_leads_next():
    short, whole = replace(member(2), log_begin=8192), replace(member(3, lag=9), log_begin=0)
    view = types.SimpleNamespace(members=(member(1, is_here=True), short, whole))
    assert target_of(view, "").slot == 3
    assert target_of(view, "2").slot == 2, "unless people name it"
