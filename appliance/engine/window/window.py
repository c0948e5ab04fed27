"""The window: all that console, API and metrics may read and command. An attribute for each subject.

Questions answer with frozen values, commands have names, preview with `dry_run` and say in their docstrings what they
raise (`errors.AdminError` and its subclasses). A question copies a table with one C call, then touches frozen values
only; it never locks remoting-io and never has it build a list (D10, D11). It reads the disk in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Generic, TypeVar

from ..address_check import AddressCheck, check_address
from ..errors import Conflict, Unavailable
from ..hotpath import CHOICE
from ..remoting.dispatcher import WorkerPool
from ..remoting.event_loop import EventLoop
from ..remoting.server import RemotingServer
from ..wire_audit import WireAudit
from .figures.incidents import Incidents
from .health.certificates import Served, days_left
from .health.checks import Checks
from .health.finding import checks_of
from .offsets.targets import meant_by, target_of, uses
from .options import Options
from .process.log_ring import LogRing
from .process.system import Addresses, SystemView
from .process.system_snapshots import ClientDoor, SystemInfo
from .replicas.judgement import set_findings, set_metrics
from .replicas.replica_set import ReplicaSet, leader_of, seen
from .replicas.snapshots import SetView
from .sentences import say
from .snapshots import Check, Route

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..namesrv.namesrv import NameServer
    from .access.users import WireUsers
    from .broker_parts import BrokerParts
    from .figures.upstream_metrics import Sample

Subject = TypeVar("Subject", covariant=True)


class Question(Generic[Subject]):
    """A subject of the running broker: reading it raises Unavailable where no broker runs."""

    def __init__(self, of: Callable[[BrokerParts], Subject]) -> None:
        self._of = of

    def __get__(self, window: Window, owner: type[Window]) -> Subject:
        return self._of(window._running())


class Command(Question[Subject]):
    """One that changes what a master has: on a slave, reading it raises Unavailable, too."""

    def __get__(self, window: Window, owner: type[Window]) -> Subject:
        return self._of(window._changing())


class Window:
    """Any thread but remoting-io. A subject of the broker raises Unavailable where no broker runs; one with commands,
    on a slave, too: the change would be undone at the next synchronisation with the master, or never done."""

    #: The target of `offset_commands.reset`, and which arguments make one.
    offset_target = staticmethod(target_of)
    offset_target_uses = staticmethod(uses)
    offset_target_meant = staticmethod(meant_by)

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
        self._incidents = Incidents()
        self._server = server
        self._system = SystemView(options, addresses)
        # Filled before the first question.
        self._certificates: dict[str, Served] = {}
        # Set by start().
        self._process_checks = self._checks = Checks(
            loop, wire_audit, addresses, options.config.bind, self._certificates
        )
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
        """Take the users of the wire. Called before the first question, if access control is on."""
        self._users = users

    def watch_certificate(self, check: str, served: Served) -> None:
        """Judge a certificate that this process serves TLS with. Called before the first question. check: its name."""
        self._certificates[check] = served

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
        from .broker_parts import BrokerParts  # not needed by a name server alone

        self._incidents.broker_there(broker.store, broker.role)
        self._parts = BrokerParts(
            broker,
            namesrv,
            pools,
            self._server,
            self.options,
            self._system,
            self._process_checks,
            self.leader_address,
            self._live_before,
            self._incidents,
            self._set,
            lambda what: 0 if self._users is None else self._users.quota_count(what),
            lambda: [] if self._users is None else self._users.at_quota(),
            lambda: [] if self._users is None else self._users.in_clear(),
        )
        self._checks = self._parts.checks

    def broker_gone(self) -> None:
        """Use no broker until another one takes its place. Called when a broker ends."""
        parts, self._parts, self._checks = self._parts, None, self._process_checks
        self._without = "role_changes"
        self._incidents.broker_gone()
        if parts is not None:
            self._live_before = parts.live.number

    def stop(self) -> None:
        """Stop keeping log lines. Called before the engine stops anything."""
        self.log.remove()

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

    # --- the subjects of a broker, as `broker_parts` makes them

    overview = Question(lambda parts: parts.overview)
    charts = Question(lambda parts: parts.charts)
    measurements = Question(lambda parts: parts.measurements)
    live = Question(lambda parts: parts.live)
    look_ahead = Question(lambda parts: parts.look_ahead)
    topics = Question(lambda parts: parts.topics)
    topic_commands = Command(lambda parts: parts.topic_commands)
    topic_purges = Command(lambda parts: parts.topic_purges)
    schemas = Question(lambda parts: parts.schemas)
    schema_commands = Command(lambda parts: parts.schemas)
    groups = Question(lambda parts: parts.groups)
    group_now = Question(lambda parts: parts.group_now)
    group_commands = Command(lambda parts: parts.group_commands)
    clean_ups = Command(lambda parts: parts.clean_ups)
    diagnosis = Question(lambda parts: parts.diagnosis)
    offsets = Question(lambda parts: parts.offsets)
    offset_commands = Command(lambda parts: parts.offset_commands)
    clients = Question(lambda parts: parts.clients)
    asking = Question(lambda parts: parts.asking)
    messages = Question(lambda parts: parts.messages)
    search = Question(lambda parts: parts.search)
    tails = Question(lambda parts: parts.tails)
    sender = Command(lambda parts: parts.sender)
    imports = Command(lambda parts: parts.imports)
    waiting = Question(lambda parts: parts.waiting)
    waiting_commands = Command(lambda parts: parts.waiting_commands)
    transactions = Question(lambda parts: parts.transactions)
    transaction_commands = Command(lambda parts: parts.transaction_commands)
    dead_letters = Question(lambda parts: parts.dead_letters)
    replays = Question(lambda parts: parts.replays)
    replay_commands = Command(lambda parts: parts.replay_commands)
    replication = Question(lambda parts: parts.replication)
    quarantine = Question(lambda parts: parts.quarantine)
    option_commands = Question(lambda parts: parts.option_commands)
    retention = Question(lambda parts: parts.retention)
    backups = Question(lambda parts: parts.backups)
    report_inputs = Question(lambda parts: parts.report_inputs)

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
        with nullcontext({}) if self._users is None else self._users.own_check() as fields:
            own_port = config.broker_port if config.advertise_port else 0
            return check_address(host, config.bind, *self.addresses(), pair, fields, own_port)

    def client_door(self) -> ClientDoor:
        """Return how clients come in: what the programs that a page shows have to know."""
        mode, served = self.options.config.broker.tls_mode, self._certificates.get("certificate")
        if served is None:
            return ClientDoor(self.access_mode(), mode, "")
        from ..tls.certificate import own_authority  # loads `ssl`

        return ClientDoor(self.access_mode(), mode, own_authority(served.pair))

    def try_connection(
        self,
        topic: str,
        group: str,
        *,
        host: str = "",
        client: str = "python",
        tls: bool = False,
        user: str | None = "",
        address: str = "127.0.0.1",
    ) -> tuple[Check, ...]:
        """Try a connection as a client would make it; return what was found at each step, as a sentence that says what
        to do. The arguments are those of `connecting.Asked`. Blocks for some seconds. InvalidInput (host, client,
        topic, group, address)."""
        from .process.connecting import Asked, Place, trial

        config, users = self.options.config, self._users
        own = self.addresses().namesrv
        namesrv = own or next(iter(config.broker.namesrv_addrs), None)
        asked = Asked(topic, group, host, client, tls, user, address)
        with nullcontext({}) if users is None else users.own_check() as fields:
            place = Place(namesrv, own is not None, config.bind, config.broker, fields, self.route, users)
            return checks_of(trial(place, asked))

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
        for name, served in self._certificates.items():
            if (days := days_left(served)) is not None:
                numbers[f'certificate_days_left{{certificate="{name}"}}'] = days
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
        from .topics.views import route_of

        return route_of(self._namesrv, name)
