"""Builds the parts of the window that need a running broker. Only this module of the window receives the broker.

Parts that samples, checks and live frames need are made with the broker. Every other subject is made, and its code
loaded, when it is first used: no request, no memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..broker.broker import Broker
from ..namesrv.namesrv import NameServer
from ..protocol.codes import VERSION, version_name
from ..remoting.dispatcher import WorkerPool
from ..remoting.server import RemotingServer
from .admin_pool import POOL, AdminPool
from .clients.views import ClientViews
from .figures.lag import ConsumerLag
from .figures.lag_times import LagTimes
from .figures.live import BrokerSource, LiveFrames
from .figures.look_ahead import LookAhead
from .figures.measurements import Measurements
from .figures.measures import Measures
from .figures.traffic import BrokerFigures, Reading
from .groups.views import GroupViews
from .health.broker_checks import BrokerChecks
from .health.checks import Checks
from .health.disk_room import DiskRoom
from .health.lateness import Lateness
from .health.needs import Needs, of_users
from .health.overview import OverviewView, Standing
from .health.unread_deletion import UnreadDeletion
from .options import Options
from .process.system import SystemView
from .replicas.replica_set import ReplicaSet
from .replicas.views import AsMaster, ReplicationView
from .sources import Sources
from .transactions.stuck import StuckTransactions

if TYPE_CHECKING:
    from .clients.asking import Asking
    from .dead_letters.replay_commands import ReplayCommands
    from .dead_letters.replays import ReplayViews
    from .dead_letters.views import DeadLetterViews
    from .figures.charts import Charts
    from .figures.incidents import Incidents
    from .figures.upstream_metrics import BrokerNames, UpstreamMetrics
    from .groups.commands import GroupCommands
    from .groups.diagnosis import GroupDiagnosis
    from .groups.now import GroupNow
    from .messages.copies import MessageCopies
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
    from .topics.clean_ups import CleanUps
    from .topics.commands import TopicCommands
    from .topics.purge import TopicPurges
    from .topics.schemas import TopicSchemas
    from .topics.views import TopicViews
    from .transactions.commands import TransactionCommands
    from .transactions.views import TransactionViews
    from .waiting.commands import WaitingCommands
    from .waiting.views import WaitingViews

Part = TypeVar("Part", covariant=True)


class first_asked(Generic[Part]):
    """A part that is made once, by the first thread that reads it."""

    def __init__(self, make: Callable[[Any], Part]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, parts: BrokerParts, owner: type) -> Part:
        with parts.making:
            made = vars(parts)
            if self._name not in made:  # from now on Python finds it there, and this method is not called
                made[self._name] = self._make(parts)
            part: Part = made[self._name]
            return part


class BrokerParts:
    """The window's subjects while a broker runs. No part receives this object."""

    def __init__(
        self,
        broker: Broker,
        namesrv: NameServer | None,
        pools: Mapping[str, WorkerPool],
        server: RemotingServer,
        options: Options,
        system: SystemView,
        process_checks: Checks,
        leader: Callable[[], str | None],
        frames_before: int,
        incidents: Incidents,
        replica_set: ReplicaSet | None = None,
        quota_count: Callable[[str], int] = lambda what: 0,
        users_at_quota: Callable[[], list[str]] = list,
        supers_in_clear: Callable[[], list[str]] = list,
    ) -> None:
        """process_checks: those that `checks` adds the broker's to. leader: as `Window.leader_address`. frames_before:
        number of live frames that earlier brokers of this process made. incidents: of all its brokers. quota_count,
        users_at_quota, supers_in_clear: of `WireUsers`."""
        store, topics, groups = broker.store, broker.topics, broker.groups
        sampler = broker.sampler
        measures = Measures()
        # Constant after construction.
        self._broker, self._store, self._topics = broker, store, topics
        self._options, self._system, self._leader = options, system, leader
        self._pool = AdminPool(pools[POOL])
        self._forget_routes = _forget_routes(namesrv, pools)
        #: Held while a part is made: one part may ask for another.
        self.making = threading.RLock()
        self.lag = lag = ConsumerLag(topics, groups, broker.clients, broker.offsets, sampler.index)
        lag_times = LagTimes(measures)
        self._sources = sources = Sources(
            store, topics, groups, broker.offsets.pulled, sampler, lag, lag_times, measures
        )
        self.groups = group_views = GroupViews(
            sources, broker.locks, system.broker_name, lambda budget: self.waiting.retries_waiting(budget)
        )
        self.clients = clients = ClientViews(broker.clients)
        broker.topic_service.forget_more = lambda topic: self.schemas.forget(topic)
        self.replication = replication = ReplicationView(
            store,
            options,
            AsMaster(broker.replication, broker.replicated, broker.ha_address),
            broker.follower,
            broker.role,
            replica_set,
        )
        self.checks = checks = process_checks.including(
            BrokerChecks(
                store,
                broker.failures,
                broker.registration,
                options,
                broker.deliveries.service,
                broker.transactions.records,
                replication,
            )
        )
        self._disk = disk = DiskRoom(options, sampler, lambda: store.published - store.log.min_offset)
        reading = partial(
            Reading,
            store=store,
            topics=topics,
            groups=groups,
            pull=broker.pull,
            server=server,
            sampler=sampler,
            disk=disk,
            delayed=broker.delays.deliver,
            timers=broker.timers.deliver,
            rolls=broker.timers.roll,
            send_backs=broker.sending.send_backs,
            sends=broker.sending.path,
            deliveries=broker.deliveries.service,
            halves=broker.transactions.open_halves,
            counts=lambda: self.transactions.counts(),
            clock=broker.transactions.check.clock,
            quota_count=quota_count,
        )
        self._figures = figures = BrokerFigures(reading, sampler)
        stuck = StuckTransactions(
            store, broker.transactions.open_halves, broker.transactions.settings, broker.transactions.check.clock
        )
        self._lateness = lateness = Lateness(sampler, broker.clients.attendance, measures, lag_times)
        unread = UnreadDeletion(sources, lateness, disk, options, lambda: broker.deleted_unread.rows)
        self._unread = unread
        others = (replication.of_set, stuck.findings, lambda: of_users(users_at_quota(), supers_in_clear()))
        needs = Needs(sources, lateness, disk, options, unread, others)
        standing = Standing(lag, group_views, clients, checks, needs)
        self.live = live = LiveFrames(BrokerSource(figures, standing, lambda: system.uptime_ms), frames_before)
        sampler.after_sample.append(live.refresh)

        self.is_slave = not broker.role.appends
        self.sampler = sampler
        self.measurements = Measurements(sources, figures, broker.clients.rebalances.copy, unread, incidents.take)
        self.overview = OverviewView(sources, figures, standing, disk, system)
        self.look_ahead = LookAhead(sampler.index, store, measures)
        self.metrics = lambda: figures.metrics() | replication.metrics()
        self.system = lambda: system.snapshot(store, broker.registration)

    # --- topics and groups

    @first_asked
    def topics(self) -> TopicViews:
        from .topics.views import TopicViews

        return TopicViews(self._sources, self._broker.offsets, self._broker.clients)

    @first_asked
    def topic_commands(self) -> TopicCommands:
        from .topics.commands import TopicCommands

        return TopicCommands(
            self._topics, self._broker.topic_service, self._pool, self.sampler.index, self.lag, self._forget_routes
        )

    @first_asked
    def topic_purges(self) -> TopicPurges:
        from .topics.purge import TopicPurges

        return TopicPurges(self._sources, self._broker.topic_service, self._pool)

    @first_asked
    def schemas(self) -> TopicSchemas:
        from .topics.schemas import TopicSchemas

        config, is_slave = self._options.config.broker, self.is_slave
        return TopicSchemas(self._topics, self._store, self._pool, config, follows=is_slave)

    @first_asked
    def group_now(self) -> GroupNow:
        from .groups.now import GroupNow

        return GroupNow(
            self._sources,
            self._broker.locks,
            self._system.broker_name,
            self._broker.pull.long_polling.held_at,
            self._broker.deliveries.service.last_pulls.get,
            self._lateness,
        )

    @first_asked
    def group_commands(self) -> GroupCommands:
        from .groups.commands import GroupCommands

        return GroupCommands(self._broker.groups, self._topics, self._broker.group_service, self._pool, self.lag)

    @first_asked
    def clean_ups(self) -> CleanUps:
        from .topics.clean_ups import CleanUps

        return CleanUps(self._broker.clean_up, self.waiting, self.transactions, self._pool, self._forget_routes)

    @first_asked
    def offsets(self) -> OffsetViews:
        from .offsets.views import OffsetViews

        return OffsetViews(self._sources, self._broker.offset_resets, self._broker.offsets)

    @first_asked
    def offset_commands(self) -> OffsetCommands:
        from .offsets.commands import OffsetCommands

        return OffsetCommands(self._sources, self._broker.offset_resets, self._broker.offsets, self._pool)

    @first_asked
    def asking(self) -> Asking:
        from .clients.asking import Asking

        return Asking(self._broker.member_questions, self.messages.record)

    @first_asked
    def diagnosis(self) -> GroupDiagnosis:
        from .groups.diagnosis import GroupDiagnosis

        return GroupDiagnosis(
            self._sources,
            self._broker.locks,
            self._broker.deliveries.service.last_pulls.get,
            self._lateness,
            self._unread,
            self._broker.deliveries.history,
            self._system.broker_name,
        )

    # --- messages

    @first_asked
    def _copies(self) -> MessageCopies:
        from .messages.copies import MessageCopies

        return MessageCopies(self._topics, self._store)

    @first_asked
    def messages(self) -> MessageViews:
        from .messages.story import MessageStories
        from .messages.views import MessageViews

        stories = MessageStories(
            self._sources,
            self._copies,
            self._broker.deliveries.history,
            self._broker.delays.deliver.delivered_to,
            self._broker.delays.settled.holds,
            self.transactions,
        )
        return MessageViews(self._sources, stories, self.schemas.reader)

    @first_asked
    def search(self) -> SearchViews:
        from .messages.search import SearchViews

        still_wait = self.waiting.still_wait
        return SearchViews(self._topics, self._store, self.messages, self._copies, still_wait, self.transactions)

    @first_asked
    def tails(self) -> Tails:
        from .messages.tail import Tails

        return Tails(self._store, self._topics, self.sampler.index, self.schemas.reader)

    @first_asked
    def sender(self) -> TestSender:
        from .messages.sending import TestSender

        broker = self._broker
        return TestSender(
            self._topics, broker.sending, broker.transactions.half_appends, self._store.store_host, self._options
        )

    @first_asked
    def imports(self) -> MessageImport:
        from .messages.imports import MessageImport

        sending = self._broker.sending
        return MessageImport(self._topics, sending.appends, lambda: sending.properties.added, self._options)

    # --- messages that wait, transactions, dead letters

    @first_asked
    def waiting(self) -> WaitingViews:
        from .waiting.timers import WaitingTimers
        from .waiting.views import WaitingViews

        broker, options = self._broker, self._options
        return WaitingViews(
            self._sources,
            broker.sending.levels,
            broker.delays.deliver,
            broker.delays.settled,
            WaitingTimers(
                self._store,
                broker.timers.deliver.look,
                lambda: broker.timers.deliver.pending,
                lambda: options.config.store.timer_precision_ms,
                lambda: broker.timers.index.indexed.queue_offset,
            ),
            broker.delays.deliver.clock,
        )

    @first_asked
    def waiting_commands(self) -> WaitingCommands:
        from .waiting.commands import WaitingCommands

        return WaitingCommands(self.waiting, self._broker.delays.early_acts, self._broker.timers.early_acts)

    @first_asked
    def transactions(self) -> TransactionViews:
        from .transactions.views import TransactionViews

        broker = self._broker
        return TransactionViews(self._store, self._topics, broker.transactions, partial(_producers, broker))

    @first_asked
    def transaction_commands(self) -> TransactionCommands:
        from .transactions.commands import TransactionCommands

        return TransactionCommands(
            self.transactions,
            self._broker.transactions.acts,
            partial(_producers, self._broker),
            self.messages.record,
            self._store.store_host,
        )

    @first_asked
    def dead_letters(self) -> DeadLetterViews:
        from .dead_letters.views import DeadLetterViews

        return DeadLetterViews(self._sources, self.messages, self._broker.replays, self._options)

    @first_asked
    def replays(self) -> ReplayViews:
        from .dead_letters.replays import ReplayViews

        return ReplayViews(self._broker.replays, self.dead_letters, self._store)

    @first_asked
    def replay_commands(self) -> ReplayCommands:
        from .dead_letters.replay_commands import ReplayCommands

        return ReplayCommands(self._sources, self._broker.replays, self.replays, self.dead_letters)

    # --- the broker

    @first_asked
    def charts(self) -> Charts:
        from .figures.charts import Charts

        return Charts(self.sampler, self._topics)

    @first_asked
    def upstream_metrics(self) -> UpstreamMetrics:
        from .figures.upstream_metrics import UpstreamMetrics

        return UpstreamMetrics(
            self._sources,
            partial(_names, self._broker, self._options, self._system),
            self._broker.clients,
            self._broker.stats.runtime_info,
            self._figures,
            lambda: self._options.config.broker.broker_permission,
            self.replication,
        )

    @first_asked
    def quarantine(self) -> Quarantine:
        from .replicas.quarantine import Quarantine

        clock = self._broker.delays.deliver.clock
        return Quarantine(self._store.paths.quarantine, self._store.disk, clock, self._leader, self._broker.ties)

    @first_asked
    def option_commands(self) -> OptionCommands:
        from .options import OptionCommands

        return OptionCommands(self._options, self._topics, self._pool)

    @first_asked
    def retention(self) -> RetentionPart:
        from .process.retention import RetentionPart

        broker = self._broker
        return RetentionPart(
            self._store, self._topics, self._options, broker.cleaning, self._pool, lambda: broker.deleted_unread.rows
        )

    @first_asked
    def backups(self) -> Backups:
        from .process.backups import Backups

        return Backups(self._store)

    @first_asked
    def report_inputs(self) -> ReportInputsView:
        from .process.report_inputs import ReportInputsView

        broker = self._broker
        return ReportInputsView(
            self._store,
            self._topics,
            self.lag,
            self._options,
            self._unread,
            self._disk,
            lambda: broker.deleted_unread.rows,
        )


def _names(broker: Broker, options: Options, system: SystemView) -> BrokerNames:
    from .figures.upstream_metrics import BrokerNames

    config = options.config.broker
    info = broker.stats.runtime_info()
    address = system.addresses().broker or ""
    return BrokerNames(config.cluster_name, config.broker_name, address, version_name(VERSION), info["bootTimestamp"])


def _producers(broker: Broker, group: str) -> int:
    """Return the number of connected members of a producer group."""
    return len(broker.clients.producer_channels(group))


def _forget_routes(namesrv: NameServer | None, pools: Mapping[str, WorkerPool]) -> Callable[[Sequence[str]], None]:
    """Return a function that deletes topics from this process's name server, as a tool's request (216) does."""
    if namesrv is None:
        return lambda topics: None
    routes, pool = namesrv.routes, pools["namesrv"]

    def forget(topics: Sequence[str]) -> None:
        def work() -> None:
            for topic in topics:
                routes.delete_topic(topic, None)

        pool.submit(work)

    return forget
