"""The set of brokers as this member sees it, and an operator's commands to it. No other member is asked: it shows what
fail-over saw in its last turn."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...config import broker_properties, options_of
from ...errors import Conflict, InvalidInput, NotFound, Unavailable
from ...failover.decision import Answer, Wish
from ...failover.membership import Membership
from ...failover.parts import MemberReport
from ...failover.quarantine import kept_tails
from ...failover.service import SetStatus
from ...failover.set_state import Announcement, SetState
from ...failover.settings import differences, shared_settings
from ..options import Options
from ..sentences import Sentence, say
from ..snapshots import Change, Difference
from .snapshots import ElectionView, MemberView, QuarantineFile, SetView, fullest_of

logger = logging.getLogger(__name__)

#: Time after which a switch or an adoption is reported as not done; it may still be done later.
ACT_S = 15.0
#: Topics of a quarantine file that are listed; the file has the rest.
MOST_TOPICS = 50
#: A member that has announced nothing new for this time, while others did, is shown without a role.
STALE_S = 15.0
_LED = ("leader", "candidate")


class OwnReplicaSet:
    """Any thread but `failover` and remoting-io."""

    def __init__(self, membership: Membership, options: Options, address: str, ha_address: str) -> None:
        # Constant after construction.
        self._membership = membership
        self._options = options
        self._address = address
        self._ha_address = ha_address

    def _status(self) -> SetStatus:
        service = self._membership.service
        if service is None:
            raise Unavailable(say("set_begins"))
        return service.status

    # --- looking

    def view(self) -> SetView:
        status, membership = self._status(), self._membership
        state, files = status.state, membership.files
        store = self._options.config.store
        role = _role(status.role)
        waits = role in ("fenced", "frozen") or (status.stream is not None and bool(status.stream.unplaced))
        members = self._members(status, state)
        return SetView(
            set=membership.settings.set,
            store=store.ha_store,
            store_ok=status.store_ok,
            store_why=None if status.store_ok else say("set_store_fails", reason=status.store_why or "not asked yet"),
            epoch=state.epoch if state is not None else 0,
            leader=state.leader.uuid if state is not None and state.leader is not None else "",
            leader_addr=state.leader.addr if state is not None and state.leader is not None else "",
            role=role,
            role_why=say("member_waits", reason=status.why) if waits and status.why else None,
            uuid=files.uuid,
            slot=files.slot,
            synchronous=membership.settings.synchronous,
            min_in_sync=membership.settings.min_in_sync,
            floor=state.floor if state is not None else 0,
            confirm=status.health.published if status.health is not None and role != "frozen" else None,
            fullest=fullest_of(members),
            members=members,
            elections=_elections(state),
            quarantine=self._quarantine(),
            settings=self._settings(),
            store_warning=say("set_store_short", reason=status.shortage) if status.shortage else None,
        )

    def _members(self, status: SetStatus, state: SetState | None) -> tuple[MemberView, ...]:
        own = self._membership.files.uuid
        leader = state.leader.uuid if state is not None and state.leader is not None else ""
        in_sync = state.isr if state is not None else ()
        reports = {one.uuid: one for one in status.members} if status.role == "leader" else None
        uuids = dict.fromkeys([*in_sync, *([leader] if leader else []), *status.announced, own])
        rows = [
            self._member(uuid, status, status.announced.get(uuid), reports, uuid == leader, uuid in in_sync)
            for uuid in uuids
        ]
        return tuple(sorted(rows, key=lambda row: (row.slot or 1 << 31, row.uuid)))

    def _member(
        self,
        uuid: str,
        status: SetStatus,
        said: Announcement | None,
        reports: dict[str, MemberReport] | None,
        is_leader: bool,
        in_sync: bool,
    ) -> MemberView:
        files = self._membership.files
        here = uuid == files.uuid
        report = reports.get(uuid) if reports is not None else None
        end, begin = (status.health.end, status.health.begin) if status.health is not None else (0, 0)
        behind = max(0, end - report.durable) if report is not None else None
        epochs = files.epochs if here else said.epochs if said is not None else ()
        return MemberView(
            uuid=uuid,
            slot=files.slot if here else said.slot if said is not None else 0,
            addr=self._address if here else said.addr if said is not None else "",
            ha_addr=self._ha_address if here else said.ha if said is not None else "",
            version=said.version if said is not None else "",
            role=_role(status.role if here else _said_role(status, said, is_leader)),
            in_sync=in_sync,
            is_leader=is_leader,
            is_here=here,
            connected=None if reports is None or here else report is not None,
            log_end=end if here else report.durable if report is not None else said.log_end if said else None,
            lag_bytes=0 if reports is not None and here else behind,
            lag_ms=0 if reports is not None and here else _lag_ms(status, report, behind),
            last_epoch=epochs[-1][0] if epochs else 0,
            heard_at_ms=said.wall_ms if said is not None else None,
            log_begin=begin if here else said.log_begin if said is not None else None,
            differs=()
            if here or said is None or _is_stale(status, said)
            else differences(shared_settings(self._options.config), said.settings),
            slow_ms=_slow_members(status).get(uuid),
        )

    def _quarantine(self) -> tuple[QuarantineFile, ...]:
        membership = self._membership
        try:
            kept = kept_tails(membership.paths.quarantine, membership.disk)
        except OSError as error:
            logger.warning("quarantine: cannot be listed: %s", error)
            return ()
        return tuple(
            QuarantineFile(
                name=one.tail.path.name,
                bytes=one.tail.end - one.tail.begin,
                epoch=one.epoch,
                from_offset=one.tail.begin,
                to_offset=one.tail.end,
                at_ms=one.cut_ms,
                records=one.records,
                topics=tuple(sorted(one.topics))[:MOST_TOPICS],
                reason=one.reason,
            )
            for one in kept
        )

    def _settings(self) -> dict[str, str]:
        told = broker_properties(self._options.config)
        names = [name for name, option in options_of("store").items() if option.metadata["of_sets"]]
        return {name: told[name] for name in ("brokerRole", *names)}

    # --- acting

    def switch(self, to: str = "", *, dry_run: bool = False, by: str = "") -> Change:
        view = self.view()
        if view.role != "leader":
            raise Conflict(say("switch_elsewhere", leader=view.leader_addr or "-"))
        target = target_of(view, to)
        if not dry_run:
            logger.warning("failover: switch to=%s by=%s", target.uuid, by or "console")
            self._ask(Wish("switch", target.uuid))
        return _change(view, target, not dry_run, ())

    def adopt(self, uuid: str, confirm: str, *, dry_run: bool = False, by: str = "") -> Change:
        view = self.view()
        found = [one for one in view.members if one.uuid == uuid]
        if not found:
            raise NotFound("member", uuid[:100])
        if not found[0].is_here:
            raise Conflict(say("adopt_elsewhere", address=found[0].addr or "-"))
        if not dry_run and confirm != view.set:
            raise InvalidInput("confirm", say("adopt_confirm", set=view.set))
        astray = self._status().astray
        if view.role == "leader" and not astray:
            raise Conflict(say("adopt_leads"))
        end = found[0].log_end or 0
        lost = max([view.floor, *(one.log_end or 0 for one in view.members)]) - end
        warnings = (say("adopt_may_lose", bytes=max(0, lost)),)
        if not dry_run:
            logger.warning("failover: adopt uuid=%s end=%d lost=%d by=%s", uuid, end, max(0, lost), by or "console")
            self._ask(Wish("adopt" if astray or view.role == "frozen" else "force"))
        return _change(view, found[0], not dry_run, warnings)

    def _ask(self, wish: Wish) -> None:
        service = self._membership.service
        assert service is not None
        answer: Answer | None = service.ask(wish, ACT_S)
        if answer is None:
            raise Unavailable(say("set_act_takes_long"))
        if not answer.done:
            raise Conflict(say("set_act_refused", reason=answer.why))


def _change(view: SetView, target: MemberView, applied: bool, warnings: tuple[Sentence, ...]) -> Change:
    return Change(
        applied=applied,
        name=view.set,
        differences=(Difference("leader", view.leader_addr or view.leader or None, target.addr or target.uuid),),
        warnings=warnings,
        blockers=(),
        revision=None,
        registered={},
    )


def _is_stale(status: SetStatus, said: Announcement) -> bool:
    """True if a member's announcement is old compared with the newest one: the store may not answer at all. Measured by
    this member's clock, because the members' clocks may be hours apart."""
    newest = max(status.heard_at.values(), default=0.0)
    return newest - status.heard_at.get(said.uuid, newest) > STALE_S


def _slow_members(status: SetStatus) -> Mapping[str, int]:
    """Return the slow members: as the leader knows them, or as others have them from its announcement."""
    state = status.state
    if status.role == "leader" or state is None or state.leader is None:
        return status.slow
    said = status.announced.get(state.leader.uuid)
    return {} if said is None or _is_stale(status, said) else said.slow


def _said_role(status: SetStatus, said: Announcement | None, is_leader: bool) -> str:
    """Return the role that a member announced lately, else "". A member that calls itself the leader and is not has
    gone, or has not noticed yet."""
    if said is None or _is_stale(status, said) or (said.role == "leader" and not is_leader):
        return ""
    return said.role


def _role(role: str) -> str:
    """Return the view's name of a role."""
    if role in _LED:
        return "leader" if role == "leader" else "fenced"
    return {"in-sync": "follower", "follower": "follower", "stranger": "follower", "": "unknown"}.get(role, role)


def _lag_ms(status: SetStatus, report: MemberReport | None, behind: int | None) -> int | None:
    if report is None:
        return None
    return round(max(0.0, status.at - report.moved_at) * 1000) if behind else 0


def _elections(state: SetState | None) -> tuple[ElectionView, ...]:
    found = state.elections if state is not None else ()
    return tuple(
        ElectionView(
            epoch=one.epoch,
            uuid=one.uuid,
            start=one.start,
            at_ms=one.wall_ms,
            why=one.why,
            lost_bound=one.lost_bound if one.lost_bound >= 0 else None,
        )
        for one in reversed(found)
    )


def target_of(view: SetView, to: str) -> MemberView:
    """Return the member that is to lead: the named one, else the suitable one that has deleted least and lags least.

    Raises NotFound, and Conflict with the reason if the named member cannot lead or no member can.
    """
    if to:
        named = [one for one in view.members if to in (one.uuid, str(one.slot) if one.slot else "")]
        if not named:
            raise NotFound("member", to[:100])
        why = _unfit(named[0])
        if why:
            raise Conflict(say(why, member=named[0].addr or named[0].uuid))
        return named[0]
    fit = [one for one in view.members if not _unfit(one)]
    if not fit:
        raise Conflict(say("switch_nobody"))
    return min(fit, key=lambda one: (one.log_begin or 0, one.lag_bytes or 0, one.slot))


def _unfit(one: MemberView) -> str:
    """Return the code of the sentence that says why this member cannot make that one the leader; "" if it can."""
    if one.is_here:
        return "switch_leads"
    if not one.connected:
        return "switch_gone"
    return "" if one.in_sync else "switch_behind"
