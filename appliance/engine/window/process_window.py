"""The part of the window that works without a broker: system, options, health, log; and the window's start.

The base class of all parts up to `EngineAdmin`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..address_check import AddressCheck, check_address
from ..errors import Conflict, Unavailable
from ..hotpath import CHOICE
from ..remoting.dispatcher import WorkerPool
from ..remoting.event_loop import EventLoop
from ..remoting.server import RemotingServer
from ..wire_act import WireAct
from ..wire_audit import WireAudit
from .health.checks import Checks
from .health.finding import checks_of
from .options import Options
from .process.log_ring import LogRing
from .process.system import Addresses, SystemView
from .process.system_snapshots import Configuration, LogLine, SystemInfo
from .replicas.judgement import set_findings, set_metrics
from .replicas.replica_set import ReplicaSet, SetView, seen
from .sentences import say
from .snapshots import Change, Check

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..namesrv.namesrv import NameServer
    from .broker_parts import BrokerParts
    from .figures.upstream_metrics import Sample


class ProcessWindow:
    """Any thread."""

    def __init__(
        self,
        options: Options,
        loop: EventLoop,
        server: RemotingServer,
        wire_audit: WireAudit,
        addresses: Callable[[], Addresses],
        health: Callable[[], dict[str, dict[str, object]]],
    ) -> None:
        """addresses, health: called at each use, also before the start."""
        # Constant after construction.
        self._options = options
        self._server = server
        self._wire_audit = wire_audit
        self._health = health
        self._log = LogRing()
        self._system = SystemView(options, addresses)
        # Set by start().
        self._process_checks = self._checks = Checks(loop, wire_audit, addresses, options.config.bind)
        #: Code of the sentence that says why there is no broker.
        self._without: str = "no_broker"
        #: Number of live frames of the brokers that have ended.
        self._live_before = 0
        self._namesrv: NameServer | None = None
        self._parts: BrokerParts | None = None
        self._set: ReplicaSet | None = None

    def take_set(self, replica_set: ReplicaSet) -> None:
        """Take the set that this process is a member of. Called by the engine when membership begins."""
        self._set = replica_set

    def start(
        self, broker: Broker | None, namesrv: NameServer | None, pools: Mapping[str, WorkerPool], since: float
    ) -> None:
        """Begin to serve. Called by the engine once everything runs. broker, namesrv: None for a role that does not
        run. since: the start's time on the monotonic clock."""
        self._system.started(since)
        self._log.install()
        self._namesrv = namesrv
        if broker is not None:
            self.broker_there(broker, namesrv, pools)

    def broker_there(self, broker: Broker, namesrv: NameServer | None, pools: Mapping[str, WorkerPool]) -> None:
        """Use this broker from now on. Called when it serves."""
        from .broker_parts import build  # not needed by a name server alone

        before = self._live_before
        self._parts, self._checks = build(
            broker, namesrv, pools, self._server, self._options, self._system, self._process_checks, before, self._set
        )

    def broker_gone(self) -> None:
        """Use no broker until another one takes its place. Called when a broker ends."""
        parts, self._parts, self._checks = self._parts, None, self._process_checks
        self._without = "role_changes"
        if parts is not None:
            self._live_before = parts.live.number

    def stop(self) -> None:
        """Stop keeping log lines. Called by the engine before it stops anything."""
        self._log.remove()

    def _running(self) -> BrokerParts:
        parts = self._parts
        if parts is None:
            raise Unavailable(say(self._without))
        return parts

    def _changing(self) -> BrokerParts:
        """Return the parts for a command that changes something. Raises Unavailable on a slave: there the change would
        be undone at the next synchronisation with the master, or never done."""
        parts = self._running()
        if not parts.is_slave:
            return parts
        if self._set is not None:
            view = seen(self._set)
            leader = "" if view is None or view.leader == view.uuid else view.leader_addr
            raise Unavailable(say("follower_changes", address=leader) if leader else say("follower_changes_nowhere"))
        address = parts.replication.master_address()
        raise Unavailable(say("slave_changes_at", address=address) if address else say("slave_changes"))

    def metrics(self) -> dict[str, float]:
        """Return numbers by name; /metrics shows the names, some with labels, behind the prefix `rocketbox_`. Totals
        count from the start."""
        numbers: dict[str, float] = {"connections": len(self._server.connections)}
        numbers[f'hot_path_info{{twin="{CHOICE.name}"}}'] = 1
        if self._parts is not None:
            numbers |= self._parts.metrics()
        if (view := seen(self._set)) is not None:
            numbers |= set_metrics(view)
        if self._namesrv is not None:
            routes = self._namesrv.routes
            numbers |= {"namesrv_topics": routes.topic_count, "namesrv_brokers": routes.broker_count}
        return numbers

    def upstream_metrics(self) -> Iterator[Sample]:
        """Yield the figures under upstream's names, with labels; nothing without a broker. Takes some ten milliseconds
        at thousands of topics and groups."""
        if self._parts is not None:
            yield from self._parts.upstream_metrics.samples()

    def addresses(self) -> Addresses:
        """Return (broker, namesrv): "host:port" as advertised to clients; None for a role that does not run."""
        return self._system.addresses()

    def check_address(self, host: str) -> AddressCheck:
        """Check if clients would reach this process under this host. Blocks for 5 s at most."""
        config = self._options.config
        return check_address(host, config.bind, *self._system.addresses(), config.broker.tls_mode == "enforcing")

    def max_message_bytes(self) -> int:
        """Return the largest body that a message may have now, in bytes (maxMessageSize)."""
        return self._options.config.store.max_message_size

    def system(self) -> SystemInfo:
        """Return version, addresses, uptime, directories, disk, process. Works without a broker, too."""
        return self._system.snapshot(None, None) if self._parts is None else self._parts.system()

    def configuration(self) -> Configuration:
        """Return every option in force, by section and name, and which of them may be changed now."""
        return self._options.listing()

    def wire_acts(self, series: str, after: int) -> tuple[str, list[WireAct]]:
        """Return (series, acts behind number `after`) of tools over the wire, oldest first, at most 200.

        series: as the last call returned it, "" at first. Each act is processed once if the caller saves its number
        together with the result of processing it. Reads a file only if there is something new. Works without a broker,
        too.
        """
        return self._wire_audit.after(series, after)

    def wire_acts_taken(self, series: str, n: int) -> None:
        """Confirm that the caller has saved all acts up to number n; files without newer ones may be deleted."""
        self._wire_audit.taken(series, n)

    def checks(self) -> tuple[Check, ...]:
        """Return every health check as a sentence with a level."""
        view = seen(self._set)
        return checks_of([*self._checks.all(), *(() if view is None else set_findings(view))])

    def health(self) -> dict[str, dict[str, object]]:
        """Return {check: {"ok": bool, "detail": text}}, for supervisors; details are for the operator only."""
        return self._health()

    # --- the set of brokers

    def replica_set(self) -> SetView | None:
        """Return the set with fail-over that this broker is a member of, as it sees it now; None without haStore.
        Cheap: it returns the last known state and asks no other member."""
        return None if self._set is None else self._set.view()

    def switch_leader(self, to: str = "", *, dry_run: bool = False, by: str = "") -> Change:
        """Have another member lead: no acknowledged message is lost, sends meanwhile are passed on. On the leader only.

        to: uuid or slot of a member in sync; "": the most suitable one. Returns when the other member leads, or when
        leadership was given up and no member has taken it within 10 s. NotFound (member), Conflict (this member does
        not lead; the other is not in sync; there is no other; no set), Unavailable (the store does not answer; not
        drained in time: this member stays the leader).
        """
        return self._member().switch(to, dry_run, by)

    def adopt_set(self, uuid: str, confirm: str, *, dry_run: bool = False, by: str = "") -> Change:
        """Have a member lead although its log may be incomplete: after the store was wiped or restored, or if the only
        members in sync are gone for good. Messages that others acknowledged and this member does not have are lost;
        `warnings` give the amount. confirm: the set's name.

        On the member itself. NotFound (member), InvalidInput (confirm), Conflict (a leader lives; no set), Unavailable.
        """
        return self._member().adopt(uuid, confirm, dry_run, by)

    def _member(self) -> ReplicaSet:
        if self._set is None:
            raise Conflict(say("no_set"))
        return self._set

    def log_lines(self, level: str = "DEBUG", q: str = "", after: int = 0, limit: int = 200) -> tuple[LogLine, ...]:
        """Return the newest lines of this process's log that match, oldest first.

        level: this one and worse. q: part of the text or the logger's name. after: only lines with a larger number.
        limit: 1 to 10,000.
        """
        return self._log.lines(level, q, after, limit)
