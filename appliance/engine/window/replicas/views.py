"""Views of replication: the slaves of a master, the master of a slave, and which of their states need an operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ...broker.replication import is_in_sync
from ...broker.role import Role
from ...host_port import host_of
from ...store.message_store import MessageStore
from ..health import limits
from ..health.finding import Finding, degraded, failed, fine
from ..options import Options
from ..sentences import Sentence, say
from . import snapshots as r
from .judgement import set_findings
from .replica_set import ReplicaSet, seen

if TYPE_CHECKING:
    from ...broker.slave_side import SlaveSide
    from ...replication.acknowledged import ReplicatedPosition
    from ...replication.master import ReplicationServer
    from ...replication.slave_link import LinkStatus


class AsMaster(NamedTuple):
    """A broker as a master. server: if it accepts slaves. replicated: if it waits for them. address: for slaves, as
    registered with the name servers."""

    server: ReplicationServer | None
    replicated: ReplicatedPosition | None
    address: str


class ReplicationView:
    """Any thread."""

    def __init__(
        self,
        store: MessageStore,
        options: Options,
        master: AsMaster,
        slave: SlaveSide | None,
        role: Role,
        replica_set: ReplicaSet | None = None,
    ) -> None:
        """slave: on a slave. replica_set: on a member of a set."""
        # Constant after construction.
        self._store = store
        self._options = options
        self._server, self._replicated, self._ha_address = master
        self._slave = slave
        self._role = role
        self._set = replica_set

    # --- what there is

    def snapshot(self) -> r.Replication:
        """Return the slaves of this broker, or its master, as they are now."""
        config = self._options.config
        end = self._store.kept()
        slaves = self._slaves(end)
        seen = self._server.seen if self._server is not None else None
        synchronous = config.store.broker_role == "SYNC_MASTER"
        return r.Replication(
            role="SLAVE" if not self._role.appends else "SYNC_MASTER" if synchronous else "ASYNC_MASTER",
            broker_name=config.broker.broker_name,
            broker_id=self._role.broker_id,
            log_begin=self._store.log.min_offset,
            log_end=end,
            listens=self._ha_address if self._server is not None else None,
            allowed=tuple(config.store.ha_slave_addresses.replace(";", " ").replace(",", " ").split()),
            proves=bool(config.store.ha_secret_file),
            tls=config.broker.tls_mode,  # type: ignore[arg-type]  # one of its choices
            waiting=self._waiting(slaves),
            refused=self._store.log.refused_by("slaves"),
            slaves=slaves,
            gone=tuple(
                r.GoneSlave(one.host, one.acknowledged, max(0, end - one.acknowledged), one.at_ms, one.why)
                for one in (seen.gone() if seen is not None else ())
            ),
            turned_away=tuple(
                r.TurnedAway(one.host, one.times, one.at_ms, one.why)
                for one in (seen.strangers() if seen is not None else ())
            ),
            master=self._master(),
        )

    def master_address(self) -> str | None:
        """Return the clients' address of this slave's master; None on a master, and while it is not known."""
        return (self._slave.master_address() or None) if self._slave is not None else None

    def _slaves(self, end: int) -> tuple[r.SlaveRow, ...]:
        server = self._server
        return () if server is None else tuple(self._row(server, one, end) for one in server.slaves)

    def _row(self, server: ReplicationServer, one: LinkStatus, end: int) -> r.SlaveRow:
        known = one.acknowledged >= 0
        behind_s = server.seen.log.behind_s(one.acknowledged, server.clock.monotonic()) if known else None
        why = None if behind_s is not None else say("lag_before_start" if known else "slave_silent")
        return r.SlaveRow(
            address=one.peer,
            acknowledged=one.acknowledged if known else None,
            sent=one.sent if one.sent >= 0 else None,
            behind_bytes=max(0, end - one.acknowledged) if known else None,
            behind_ms=None if behind_s is None else int(behind_s * 1000),
            behind_why=why,
            in_sync=is_in_sync(one, end),
            bytes_per_s=one.bytes_per_s,
            connected_ms=int(one.connected_s * 1000),
            heard_ms=int(one.heard_s * 1000),
            member=one.member,
        )

    def _waiting(self, slaves: tuple[r.SlaveRow, ...]) -> r.Waiting | None:
        replicated = self._replicated
        if replicated is None:
            return None
        store = self._options.config.store
        return r.Waiting(
            slaves=replicated.needed,
            connected=sum(one.acknowledged is not None for one in slaves),
            timeout_ms=store.slave_timeout_ms,
            limit_bytes=store.ha_slave_fallbehind_max_bytes,
            waiting_bytes=max(0, self._store.log.written - replicated()),
        )

    def _master(self) -> r.FollowedMaster | None:
        slave = self._slave
        if slave is None:
            return None
        found, status, sync = slave.master(), slave.follower.status, slave.sync
        kept, end = self._store.kept(), sync.master_end
        behind_s = None if end is None else sync.master_log.behind_s(kept, sync.clock.monotonic())
        why = None
        if end is None:
            why = say("master_not_asked")
        elif behind_s is None:
            why = say("lag_before_start")
        return r.FollowedMaster(
            address=(found.address or None) if found is not None else None,
            ha_address=found.ha_address if found is not None else None,
            following=bool(status.following) and not status.why_not,
            why_not=say("slave_alone", reason=status.why_not) if status.why_not else None,
            end=end,
            behind_bytes=None if end is None else max(0, end - kept),
            behind_ms=None if behind_s is None else int(behind_s * 1000),
            behind_why=why,
            since_ms=_ms(status.since_s),
            heard_ms=_ms(status.heard_s),
            bytes_per_s=status.bytes_per_s,
            tables_why=sync.failure,
            serves_reads=self._options.config.broker.slave_read_enable,
        )

    # --- what of it is well, and what needs a person

    def findings(self) -> Iterator[Finding]:
        """Yield the check that a slave follows, or that a master's slaves do, and what needs a person; nothing if there
        is neither. Nothing of a member of a set, too: `ProcessWindow.checks` adds the set's, which work without a
        broker."""
        if self._set is not None:
            return
        refused = self._store.log.refused_by("slaves")
        if refused is not None:
            yield failed("replication", say("slaves_behind", reason=refused))
        if self._slave is not None:
            status = self._slave.follower.status
            if refused is None and (status.why_not or not status.following):
                yield failed("replication", say("slave_alone", reason=status.why_not or "not connected"))
            elif refused is None:
                yield fine("replication", say("slave_follows", address=status.following))
            yield from self._slave_behind()
        server = self._server
        if server is None:
            return
        gone = server.seen.gone()
        if refused is None and self._slave is None:
            count = sum(one.acknowledged >= 0 for one in server.slaves)
            if self._replicated is not None and count < self._replicated.needed:
                yield failed("replication", say("slaves_missing", needed=self._replicated.needed, count=count))
            elif gone:
                yield degraded("replication", say("slave_gone", address=gone[0].host, since_at_ms=gone[0].at_ms))
            else:
                yield fine("replication", say("slaves_follow", count=count) if count else say("slaves_none"))
        for row in self._slaves(self._store.kept()):
            late = row.behind_ms is None and row.acknowledged is not None
            if not row.in_sync and row.acknowledged is not None:
                yield Finding(_lag("slave_lags_far", row), level="act", name=host_of(row.address))
            elif (row.behind_ms or 0) >= limits.LAG_MS or (late and row.behind_bytes):
                yield Finding(_lag("slave_lags", row), level="watch", name=host_of(row.address))
        now_ms = time.time() * 1000
        for one in gone:
            if now_ms - one.at_ms >= limits.GONE_MS:
                text = say("slave_gone", address=one.host, since_at_ms=one.at_ms)
                yield Finding(text, level="act", name=one.host)

    def of_set(self) -> Iterator[Finding]:
        """Yield the findings about the set that this broker is a member of; nothing without a set."""
        view = seen(self._set)
        return iter(()) if view is None else set_findings(view)

    def _slave_behind(self) -> Iterator[Finding]:
        found = self._master()
        if found is None or not found.following or (found.behind_ms or 0) < limits.LAG_MS:
            return
        address = found.ha_address or ""
        text = say("slave_behind", address=address, size_bytes=found.behind_bytes or 0, late_span=found.behind_ms or 0)
        yield Finding(text, level="watch", name=address)

    # --- figures

    def metrics(self) -> dict[str, float]:
        """Return numbers by name, also without slaves. The lag is a slave's own, or the largest of a master's slaves.
        Unknown numbers are left out."""
        end = self._store.kept()
        slaves = self._slaves(end)
        known = [row for row in slaves if row.behind_bytes is not None]
        numbers: dict[str, float] = {
            "replication_slaves": len(slaves),
            "replication_in_sync_slaves": sum(row.in_sync for row in slaves),
            "replication_lost_slaves": len(self._server.seen.gone()) if self._server is not None else 0,
            "replication_bytes_per_second": sum(row.bytes_per_s for row in slaves),
        }
        master = self._master()
        lag: float | None = max((row.behind_bytes or 0 for row in known), default=0)
        late: float | None = max((row.behind_ms or 0 for row in known), default=0)
        if any(row.behind_ms is None for row in known):
            late = None
        if master is not None:
            lag, late = master.behind_bytes, master.behind_ms
            numbers["replication_following"] = int(master.following)
            numbers["replication_bytes_per_second"] = master.bytes_per_s
        if lag is not None:
            numbers["replication_lag_bytes"] = lag
        if late is not None:
            numbers["replication_lag_seconds"] = late / 1000
        return numbers

    def lag_bytes(self) -> int | None:
        """Return how many bytes this slave is behind its master; None on a master, and while it is not known."""
        master = self._master()
        return None if master is None else master.behind_bytes


def _lag(code: str, row: r.SlaveRow) -> Sentence:
    return say(code, address=row.address, size_bytes=row.behind_bytes or 0, late_span=row.behind_ms or 0)


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
