"""A member is known to have gone by what it does not say any more, not by its clock."""

from appliance.engine.failover.service import SetStatus
from appliance.engine.failover.set_state import Announcement
from appliance.engine.window.own_replica_set import STALE_S, _is_stale, _said_role

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
