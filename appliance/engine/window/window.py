"""The window: all that console, API and metrics may read and command. An attribute for each subject.

Questions answer with frozen values, commands have names, preview with `dry_run` and say in their docstrings what they
raise (`errors.AdminError` and its subclasses). A question copies a table with one C call, then touches frozen values
only; it never locks remoting-io and never has it build a list (D10, D11). It reads the disk in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..address_check import AddressCheck, check_address
from ..broker.admin_settings import GROUP_SETTINGS, TOPIC_SETTINGS
from ..errors import Conflict, Unavailable
from ..hotpath import CHOICE
from ..remoting.dispatcher import WorkerPool
from ..remoting.event_loop import EventLoop
from ..remoting.server import RemotingServer
from ..wire_audit import WireAudit
from .health.checks import Checks
from .health.finding import checks_of
from .offsets.commands import target_of
from .options import Options
from .process.log_ring import LogRing
from .process.system import Addresses, SystemView
from .process.system_snapshots import SystemInfo
from .replicas.judgement import set_findings, set_metrics
from .replicas.replica_set import ReplicaSet, leader_of, seen
from .replicas.snapshots import SetView
from .sentences import say
from .snapshots import Check, Route
from .topics.views import route_of

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..namesrv.namesrv import NameServer
    from .access.users import WireUsers
    from .broker_parts import BrokerParts
    from .clients.asking import Asking
    from .clients.views import ClientViews
    from .dead_letters.replay_commands import ReplayCommands
    from .dead_letters.replays import ReplayViews
    from .dead_letters.views import DeadLetterViews
    from .figures.charts import Charts
    from .figures.live import LiveFrames
    from .figures.look_ahead import LookAhead
    from .figures.measurements import Measurements
    from .figures.upstream_metrics import Sample
    from .groups.commands import GroupCommands
    from .groups.diagnosis import GroupDiagnosis
    from .groups.now import GroupNow
    from .groups.views import GroupViews
    from .health.overview import OverviewView
    from .messages.imports import MessageImport
    from .messages.search import SearchViews
    from .messages.sending import TestSender
    from .messages.tail import Tails
    from .messages.views import MessageViews
    from .offsets.commands import OffsetCommands
    from .offsets.views import OffsetViews
    from .options import OptionCommands
    from .process.backups import Backups
    from .process.report_inputs import ReportInputsView
    from .process.retention import RetentionPart
    from .replicas.quarantine import Quarantine
    from .replicas.views import ReplicationView
    from .topics.clean_ups import CleanUps
    from .topics.commands import TopicCommands
    from .topics.views import TopicViews
    from .transactions.commands import TransactionCommands
    from .transactions.views import TransactionViews
    from .waiting.commands import WaitingCommands
    from .waiting.views import WaitingViews


class Window:
    """Any thread but remoting-io. A subject of the broker raises Unavailable where no broker runs; one with commands,
    on a slave, too: the change would be undone at the next synchronisation with the master, or never done."""

    #: The settings of a topic and of a consumer group: name, default, limits, choices.
    topic_settings = TOPIC_SETTINGS
    group_settings = GROUP_SETTINGS
    #: The target of `offset_commands.reset`.
    offset_target = staticmethod(target_of)

    def __init__(
        self,
        options: Options,
        loop: EventLoop,
        server: RemotingServer,
        wire_audit: WireAudit,
        addresses: Callable[[], Addresses],
        health: Callable[[], dict[str, dict[str, object]]],
    ) -> None:
        """addresses, health: called at each use, also before the start. `addresses` returns (broker, namesrv):
        "host:port" as advertised to clients, None for a role that does not run. `health` returns {check: {"ok": bool,
        "detail": text}}, for supervisors; details are for the operator only."""
        # Constant after construction.
        self.options = options
        self.wire_audit = wire_audit
        self.addresses = addresses
        self.health = health
        self.log = LogRing()
        self._server = server
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
        #: None while access control is off.
        self._users: WireUsers | None = None

    # --- start and stop, called by the engine

    def take_set(self, replica_set: ReplicaSet) -> None:
        """Take the set that this process is a member of. Called when membership begins."""
        self._set = replica_set

    def take_users(self, users: WireUsers | None) -> None:
        """Take the users of the wire. Called before anybody asks, if access control is on."""
        self._users = users

    def start(
        self, broker: Broker | None, namesrv: NameServer | None, pools: Mapping[str, WorkerPool], since: float
    ) -> None:
        """Begin to serve. Called once everything runs. broker, namesrv: None for a role that does not run. since: the
        start's time on the monotonic clock."""
        self._system.started(since)
        self.log.install()
        self._namesrv = namesrv
        if broker is not None:
            self.broker_there(broker, namesrv, pools)

    def broker_there(self, broker: Broker, namesrv: NameServer | None, pools: Mapping[str, WorkerPool]) -> None:
        """Use this broker from now on. Called when it serves."""
        from .broker_parts import build  # not needed by a name server alone

        self._parts, self._checks = build(
            broker,
            namesrv,
            pools,
            self._server,
            self.options,
            self._system,
            self._process_checks,
            self.leader_address,
            self._live_before,
            self._set,
        )

    def broker_gone(self) -> None:
        """Use no broker until another one takes its place. Called when a broker ends."""
        parts, self._parts, self._checks = self._parts, None, self._process_checks
        self._without = "role_changes"
        if parts is not None:
            self._live_before = parts.live.number

    def stop(self) -> None:
        """Stop keeping log lines. Called before the engine stops anything."""
        self.log.remove()

    # --- the subjects of a broker

    def _running(self) -> BrokerParts:
        parts = self._parts
        if parts is None:
            raise Unavailable(say(self._without))
        return parts

    def _changing(self) -> BrokerParts:
        parts = self._running()
        if not parts.is_slave:
            return parts
        address = self.master_address()
        if self._set is not None:
            raise Unavailable(say("follower_changes", address=address) if address else say("follower_changes_nowhere"))
        raise Unavailable(say("slave_changes_at", address=address) if address else say("slave_changes"))

    @property
    def overview(self) -> OverviewView:
        return self._running().overview

    @property
    def charts(self) -> Charts:
        return self._running().charts

    @property
    def measurements(self) -> Measurements:
        return self._running().measurements

    @property
    def live(self) -> LiveFrames:
        return self._running().live

    @property
    def look_ahead(self) -> LookAhead:
        return self._running().look_ahead

    @property
    def topics(self) -> TopicViews:
        return self._running().topics

    @property
    def topic_commands(self) -> TopicCommands:
        return self._changing().topic_commands

    @property
    def groups(self) -> GroupViews:
        return self._running().groups

    @property
    def group_now(self) -> GroupNow:
        return self._running().group_now

    @property
    def group_commands(self) -> GroupCommands:
        return self._changing().group_commands

    @property
    def clean_ups(self) -> CleanUps:
        return self._changing().clean_ups

    @property
    def diagnosis(self) -> GroupDiagnosis:
        return self._running().diagnosis

    @property
    def offsets(self) -> OffsetViews:
        return self._running().offsets

    @property
    def offset_commands(self) -> OffsetCommands:
        return self._changing().offset_commands

    @property
    def clients(self) -> ClientViews:
        return self._running().clients

    @property
    def asking(self) -> Asking:
        return self._running().asking

    @property
    def messages(self) -> MessageViews:
        return self._running().messages

    @property
    def search(self) -> SearchViews:
        return self._running().search

    @property
    def tails(self) -> Tails:
        return self._running().tails

    @property
    def sender(self) -> TestSender:
        return self._changing().sender

    @property
    def imports(self) -> MessageImport:
        return self._changing().imports

    @property
    def waiting(self) -> WaitingViews:
        return self._running().waiting

    @property
    def waiting_commands(self) -> WaitingCommands:
        return self._changing().waiting_commands

    @property
    def transactions(self) -> TransactionViews:
        return self._running().transactions

    @property
    def transaction_commands(self) -> TransactionCommands:
        return self._changing().transaction_commands

    @property
    def dead_letters(self) -> DeadLetterViews:
        return self._running().dead_letters

    @property
    def replays(self) -> ReplayViews:
        return self._running().replays

    @property
    def replay_commands(self) -> ReplayCommands:
        return self._changing().replay_commands

    @property
    def replication(self) -> ReplicationView:
        return self._running().replication

    @property
    def quarantine(self) -> Quarantine:
        return self._running().quarantine

    @property
    def option_commands(self) -> OptionCommands:
        return self._running().option_commands

    @property
    def retention(self) -> RetentionPart:
        return self._running().retention

    @property
    def backups(self) -> Backups:
        return self._running().backups

    @property
    def report_inputs(self) -> ReportInputsView:
        return self._running().report_inputs

    # --- users of the wire

    @property
    def users(self) -> WireUsers:
        """Conflict while access control is off."""
        if self._users is None:
            raise Conflict(say("access_off"))
        return self._users

    def access_mode(self) -> str:
        """Return "off", "report" or "enforce"."""
        return "off" if self._users is None else self._users.mode

    # --- the set of brokers

    @property
    def is_slave(self) -> bool:
        """True if this broker copies a master, so that changes are possible only there. Costs nothing."""
        return self._parts is not None and self._parts.is_slave

    @property
    def is_member(self) -> bool:
        """True if this broker is a member of a set with fail-over. Costs nothing."""
        return self._set is not None

    @property
    def member(self) -> ReplicaSet:
        """This member of a set with fail-over. Conflict without a set."""
        if self._set is None:
            raise Conflict(say("no_set"))
        return self._set

    def replica_set(self) -> SetView | None:
        """Return the set with fail-over that this broker is a member of, as it sees it now; None without haStore.
        Cheap: it returns the last known state and asks no other member."""
        return None if self._set is None else self._set.view()

    def master_address(self) -> str | None:
        """Return the clients' address of this slave's master, or of the leader of its set; None on a master, and while
        it is not known."""
        if self._set is not None:
            return leader_of(self._set)
        return self._parts.replication.master_address() if self._parts is not None else None

    def leader_address(self) -> str | None:
        """Return the clients' address of the broker that changes are sent to: this one, its master, or the leader of
        its set; None while it is not known."""
        return self.master_address() or (None if self.is_slave else self.addresses().broker)

    # --- this process

    def system(self) -> SystemInfo:
        """Return version, addresses, uptime, directories, disk, process. Works without a broker, too."""
        return self._system.snapshot(None, None) if self._parts is None else self._parts.system()

    def check_address(self, host: str) -> AddressCheck:
        """Check if clients would reach this process under this host. Blocks for 5 s at most."""
        config = self.options.config
        broker = config.broker
        pair = (broker.tls_cert_file, broker.tls_key_file) if broker.tls_mode == "enforcing" else None
        return check_address(host, config.bind, *self.addresses(), pair)

    def max_message_bytes(self) -> int:
        """Return the largest body that a message may have now, in bytes (maxMessageSize)."""
        return self.options.config.store.max_message_size

    def checks(self) -> tuple[Check, ...]:
        """Return every health check as a sentence with a level."""
        view = seen(self._set)
        return checks_of([*self._checks.all(), *(() if view is None else set_findings(view))])

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

    def route(self, name: str) -> Route:
        """Return the topic's route as the name server of this process sends it to clients. NotFound; Unavailable if no
        name server runs here."""
        return route_of(self._namesrv, name)
