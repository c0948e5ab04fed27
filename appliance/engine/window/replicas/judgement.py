"""The health checks, needs and figures of a set of brokers, made from a SetView alone.

Each member judges what it sees. Lag and connections are known on the leader only and reported by it alone, so that
three consoles do not raise one alarm three times. States that every member sees (no leader, the store) are reported by
each, because any single member may be the one that is gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from .. import snapshots as s
from ..health import limits
from ..sentences import Sentence, say
from .replica_set import MemberView, SetView

_ROLES = ("fenced", "follower", "leader", "frozen")


def set_checks(view: SetView) -> list[s.Check]:
    """Return the set's checks, the store's first."""
    if not view.store_ok:
        found = [_check("leader_store", "failed", _store_down(view))]
    elif view.store_warning is not None:
        found = [_check("leader_store", "warning", view.store_warning)]
    else:
        found = [_check("leader_store", "ok", say("set_store_answers", store=view.store))]
    found.append(_role_check(view))
    found += [_check("settings", "warning", _contradicts(one)) for one in view.members if one.differs]
    if view.role == "leader":
        count = _in_sync(view)
        if count < view.min_in_sync:
            text = say("set_too_few", needed=view.min_in_sync, count=count)
            found.append(_check("copies", "failed", text))
        elif count < 2:
            found.append(_check("copies", "warning", say("set_one_copy")))
        else:
            found.append(_check("copies", "ok", say("set_copies", count=count)))
    return found


def _role_check(view: SetView) -> s.Check:
    if view.role == "frozen":
        return _check("replication", "failed", _why(view, "set_frozen"))
    if not view.leader:
        return _check("replication", "failed", say("set_no_leader", set=view.set))
    if view.role == "leader":
        return _check("replication", "ok", say("set_leads", epoch=view.epoch))
    if view.role == "follower" and view.role_why is None:
        return _check("replication", "ok", say("set_follows", address=view.leader_addr, epoch=view.epoch))
    return _check("replication", "failed", _why(view, "set_fenced"))


def set_needs(view: SetView) -> Iterator[s.Need]:
    """Yield the needs that do not follow from failed checks."""
    if view.store_ok and view.store_warning is not None:
        yield s.Need("act", "system", "leader_store", view.store_warning)
    if view.quarantine:
        total = sum(one.records or 0 for one in view.quarantine)
        text = say("set_quarantined", count=len(view.quarantine), messages=total)
        yield s.Need("watch", "system", "quarantine", text)
    if view.role != "leader":
        return
    if 1 == _in_sync(view) >= view.min_in_sync:
        yield s.Need("act", "system", view.set, say("set_one_copy"))
    now_ms = int(time.time() * 1000)
    for member in view.members:
        if member.is_here:
            continue
        name = member.addr or member.uuid
        if member.differs:
            yield s.Need("act", "system", f"{name} settings", _contradicts(member))
        if member.slow_ms is not None:
            code = "set_member_slow_kept" if member.in_sync else "set_member_slow"
            yield s.Need("act", "system", f"{name} slow", say(code, address=name, late_span=member.slow_ms))
        if not member.connected:
            silent_ms = None if member.heard_at_ms is None else now_ms - member.heard_at_ms
            if silent_ms is None or silent_ms >= limits.GONE_MS:
                yield s.Need("act", "system", name, _lost(name, member))
        elif (member.lag_ms or 0) >= limits.LAG_MS:
            text = say("slave_lags", address=name, size=member.lag_bytes or 0, late_span=member.lag_ms or 0)
            yield s.Need("watch", "system", name, text)


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


def _contradicts(member: MemberView) -> Sentence:
    return say("set_contradicts", address=member.addr or member.uuid, settings="; ".join(member.differs))


def _lost(name: str, member: MemberView) -> Sentence:
    if member.heard_at_ms is None:
        return say("set_member_lost", address=name)
    return say("set_member_lost_since", address=name, since_at_ms=member.heard_at_ms)


def _store_down(view: SetView) -> Sentence:
    return view.store_why or say("set_store_silent", store=view.store)


def _why(view: SetView, otherwise: str) -> Sentence:
    return view.role_why or say(otherwise)


def _check(name: str, level: str, sentence: Sentence) -> s.Check:
    return s.Check(name, level, sentence)
