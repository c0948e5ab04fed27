"""`rocketbox ha status` when no console answers: the set's keys in the leader store, and this machine's files.

It needs no administrator: users who may read the data directory and the store's password may see it. How far behind
members are is only known inside the leader, and shown by its console; the figures here are as old as `heard_at_ms`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..engine.config import EngineConfig
from ..engine.errors import StartError
from ..engine.failover.outside import OwnLook, StoreLook, ask_store, look_at_own
from ..engine.failover.set_state import Announcement, SetState
from ..engine.failover.settings import differences, shared_settings
from ..engine.window.replicas.snapshots import MemberView, fullest_of

#: Age at which an announcement is out of date; a member writes one every 3 s.
_STALE_MS = 15_000


def set_status(options: Sequence[str]) -> dict[str, Any] | None:
    """Return the answer of GET /replication/set as far as it is known from outside; None for a broker in no set. Raises
    StartError."""
    from ..command_line import load

    config = load(options, os.environ)[0]
    if not config.store.ha_store:
        return None
    look, own = ask_store(config), look_at_own(config)
    if not own.uuid and not look.announced and look.why:
        raise StartError(f"Nothing is known of the set {config.ha_set}: the leader store fails: {look.why}.")
    return _answer(config, look, own)


def has_console(options: Sequence[str]) -> bool:
    """True if the settings include a console, and it was set up. Raises StartError."""
    from ..command_line import load

    config, serve = load(options, os.environ)
    return serve.console and (config.data_dir / "rocketbox" / "console.sqlite3").exists()


def _answer(config: EngineConfig, look: StoreLook, own: OwnLook) -> dict[str, Any]:
    state = look.state
    leader = state.leader if state is not None else None
    members = _members(config, look, own)
    return {
        "set": config.ha_set,
        "store": config.store.ha_store,
        "store_ok": not look.why,
        "store_why": look.why or look.odd or None,
        "store_warning": look.shortage or None,
        "epoch": state.epoch if state is not None else 0,
        "leader": leader.uuid if leader is not None else "",
        "leader_addr": leader.addr if leader is not None else "",
        "uuid": own.uuid,
        "slot": own.slot,
        "seen": own.seen,
        "fullest": fullest_of(members),
        "members": [asdict(one) for one in members],
        "elections": _elections(state),
        "told_by": "the leader store and this machine's files" if not look.why else "this machine's files alone",
    }


def _members(config: EngineConfig, look: StoreLook, own: OwnLook) -> list[MemberView]:
    state = look.state
    leader = state.leader.uuid if state is not None and state.leader is not None else ""
    in_sync = state.isr if state is not None else ()
    said = {one.uuid: one for one in look.announced}
    uuids = dict.fromkeys([*in_sync, *([leader] if leader else []), *said, *([own.uuid] if own.uuid else [])])
    newest = max((one.wall_ms for one in said.values()), default=0)
    shared = shared_settings(config)
    heard = said.get(leader)
    slow = heard.slow if heard is not None and newest - heard.wall_ms <= _STALE_MS else {}
    found = []
    for uuid in uuids:
        one, here = said.get(uuid), uuid == own.uuid
        fresh = one is not None and newest - one.wall_ms <= _STALE_MS
        epochs = own.epochs if here else one.epochs if one is not None else ()
        found.append(
            MemberView(
                uuid=uuid,
                slot=own.slot if here else one.slot if one is not None else 0,
                addr=one.addr if one is not None else "",
                ha_addr=one.ha if one is not None else "",
                version=one.version if one is not None else "",
                role=_role(one, uuid == leader) if fresh else "unknown",
                in_sync=uuid in in_sync,
                is_leader=uuid == leader,
                is_here=here,
                connected=None,
                log_end=_end(one, own if here else None),
                lag_bytes=None,
                lag_ms=None,
                last_epoch=epochs[-1][0] if epochs else 0,
                heard_at_ms=one.wall_ms if one is not None else None,
                log_begin=one.log_begin if one is not None else None,
                differs=differences(shared, one.settings) if one is not None and fresh and not here else (),
                slow_ms=slow.get(uuid),
            )
        )
    return sorted(found, key=lambda one: (one.slot or 1 << 31, one.uuid))


def _end(said: Announcement | None, own: OwnLook | None) -> int | None:
    """Return the log's end of a member: from the disk here, which is newer, or else from its announcement."""
    if own is not None and own.end is not None:
        return own.end
    return said.log_end if said is not None else None


def _role(said: Announcement | None, is_leader: bool) -> str:
    """Return the role to show. A member that only its own announcement calls the leader is "unknown": it has gone, or
    has not noticed yet that another one leads."""
    assert said is not None
    if said.role == "leader" and not is_leader:
        return "unknown"
    return {"in-sync": "follower", "stranger": "follower", "candidate": "fenced"}.get(said.role, said.role)


def _elections(state: SetState | None) -> list[dict[str, Any]]:
    return [
        {"epoch": one.epoch, "uuid": one.uuid, "start": one.start, "at_ms": one.wall_ms, "why": one.why}
        for one in reversed(state.elections if state is not None else ())
    ]
