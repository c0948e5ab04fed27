"""The health checks, needs and figures of a set of brokers, made from a SetView alone.

Each member judges what it sees. Lag and connections are known on the leader only and reported by it alone, so that
three consoles do not raise one alarm three times. States that every member sees (no leader, the store) are reported by
each, because any single member may be the one that is gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..health import limits
from ..health.finding import Finding, degraded, failed, fine
from ..sentences import say
from .snapshots import MemberView, SetView

_ROLES = ("fenced", "follower", "leader", "frozen")


def set_findings(view: SetView) -> Iterator[Finding]:
    """Yield what the checks of a set show, the store's first, and what else needs a person."""
    if not view.store_ok:
        yield failed("leader_store", view.store_why or say("set_store_silent", store=view.store))
    elif view.store_warning is not None:
        yield degraded("leader_store", view.store_warning, "act")
    else:
        yield fine("leader_store", say("set_store_answers", store=view.store))
    yield _role(view)
    leads = view.role == "leader"
    for one in view.members:
        if one.differs:
            name = one.addr or one.uuid
            text = say("set_contradicts", address=name, settings="; ".join(one.differs))
            yield degraded("settings", text, "act" if leads and not one.is_here else "", f"{name} settings")
    if view.quarantine:
        total = sum(one.records or 0 for one in view.quarantine)
        text = say("set_quarantined", count=len(view.quarantine), messages=total)
        yield Finding(text, level="watch", name="quarantine")
    if leads:
        yield _copies(view)
        for one in view.members:
            if not one.is_here:
                yield from _of_member(one)


def _role(view: SetView) -> Finding:
    if view.role == "frozen":
        return failed("replication", view.role_why or say("set_frozen"))
    if not view.leader:
        return failed("replication", say("set_no_leader", set=view.set))
    if view.role == "leader":
        return fine("replication", say("set_leads", epoch=view.epoch))
    if view.role == "follower" and view.role_why is None:
        return fine("replication", say("set_follows", address=view.leader_addr, epoch=view.epoch))
    return failed("replication", view.role_why or say("set_fenced"))


def _copies(view: SetView) -> Finding:
    count = _in_sync(view)
    if count < view.min_in_sync:
        return failed("copies", say("set_too_few", needed=view.min_in_sync, count=count))
    if count < 2:
        return degraded("copies", say("set_one_copy"), "act", view.set)
    return fine("copies", say("set_copies", count=count))


def _of_member(member: MemberView) -> Iterator[Finding]:
    """Yield what the leader knows of another member that needs a person."""
    name = member.addr or member.uuid
    if member.slow_ms is not None:
        code = "set_member_slow_kept" if member.in_sync else "set_member_slow"
        yield Finding(say(code, address=name, late_span=member.slow_ms), level="act", name=f"{name} slow")
    if not member.connected:
        heard_ms = member.heard_at_ms
        if heard_ms is None:
            yield Finding(say("set_member_lost", address=name), level="act", name=name)
        elif time.time() * 1000 - heard_ms >= limits.GONE_MS:
            yield Finding(say("set_member_lost_since", address=name, since_at_ms=heard_ms), level="act", name=name)
    elif (member.lag_ms or 0) >= limits.LAG_MS:
        text = say("slave_lags", address=name, size_bytes=member.lag_bytes or 0, late_span=member.lag_ms or 0)
        yield Finding(text, level="watch", name=name)


def set_metrics(view: SetView) -> dict[str, float]:
    """Return numbers by name; names of a member's numbers contain its uuid. Unknown numbers are left out."""
    numbers: dict[str, float] = {
        "set_epoch": view.epoch,
        "set_has_leader": int(bool(view.leader)),
        "set_members": len(view.members),
        "set_in_sync_members": _in_sync(view),
        "set_store_reachable": int(view.store_ok),
        "set_quarantine_files": len(view.quarantine),
        **{f'set_role{{role="{role}"}}': int(view.role == role) for role in _ROLES},
    }
    for member in view.members:
        if member.lag_bytes is not None:
            numbers[f'set_member_lag_bytes{{member="{member.uuid}"}}'] = member.lag_bytes
    for member in view.members:
        if member.lag_bytes is not None and not member.is_here:
            numbers[f'set_member_slow{{member="{member.uuid}"}}'] = int(member.slow_ms is not None)
    for member in view.members:
        if member.lag_ms is not None:
            numbers[f'set_member_lag_seconds{{member="{member.uuid}"}}'] = member.lag_ms / 1000
    return numbers


def _in_sync(view: SetView) -> int:
    return sum(one.in_sync for one in view.members)
