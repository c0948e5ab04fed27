"""Builds the parts of the window that need a running broker. Only this module of the window receives the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ..broker.broker import Broker
from ..namesrv.namesrv import NameServer
from ..protocol.codes import VERSION, version_name
from ..remoting.dispatcher import WorkerPool
from ..remoting.server import RemotingServer
from .admin_pool import POOL, AdminPool
from .clients.asking import Asking
from .clients.views import ClientViews
from .dead_letters.replay_commands import ReplayCommands
from .dead_letters.replays import ReplayViews
from .dead_letters.views import DeadLetterViews
from .figures.charts import Charts
from .figures.lag import ConsumerLag
from .figures.lag_times import LagTimes
from .figures.live import BrokerSource, LiveFrames
from .figures.look_ahead import LookAhead
from .figures.measurements import Measurements
from .figures.measures import Measures
from .figures.traffic import BrokerFigures, Reading
from .figures.upstream_metrics import BrokerNames, UpstreamMetrics
from .groups.commands import GroupCommands
from .groups.diagnosis import GroupDiagnosis
from .groups.now import GroupNow
from .groups.views import GroupViews
from .health.broker_checks import BrokerChecks
from .health.checks import Checks
from .health.disk_room import DiskRoom
from .health.lateness import Lateness
from .health.needs import Needs, at_quota
from .health.overview import OverviewView, Standing
from .health.unread_deletion import UnreadDeletion
from .messages.copies import MessageCopies
from .messages.imports import MessageImport
from .messages.search import SearchViews
from .messages.sending import TestSender
from .messages.story import MessageStories
from .messages.tail import Tails
from .messages.views import MessageViews
from .offsets.commands import OffsetCommands
from .offsets.views import OffsetViews
from .options import OptionCommands, Options
from .process.backups import Backups
from .process.report_inputs import ReportInputsView
from .process.retention import RetentionPart
from .process.system import SystemView
from .replicas.quarantine import Quarantine
from .replicas.replica_set import ReplicaSet
from .replicas.views import AsMaster, ReplicationView
from .sources import Sources
from .topics.clean_ups import CleanUps
from .topics.commands import TopicCommands
from .topics.purge import TopicPurges
from .topics.schemas import TopicSchemas
from .topics.views import TopicViews
from .transactions.commands import TransactionCommands
from .transactions.stuck import StuckTransactions
from .transactions.views import TransactionViews
from .waiting.commands import WaitingCommands
from .waiting.timers import WaitingTimers
from .waiting.views import WaitingViews


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
        frames_before: int = 0,
        replica_set: ReplicaSet | None = None,
        quota_count: Callable[[str], int] = lambda what: 0,
        users_at_quota: Callable[[], list[str]] = list,
    ) -> None:
        """process_checks: those that `checks` adds the broker's to. leader: as `Window.leader_address`. frames_before:
        number of live frames that earlier brokers of this process made. quota_count, users_at_quota: of `WireUsers`."""
        store, topics, groups = broker.store, broker.topics, broker.groups
        pool = AdminPool(pools[POOL])
        sampler = broker.sampler
        measures = Measures()
        lag = ConsumerLag(topics, groups, broker.clients, broker.offsets, sampler.index)
        lag_times = LagTimes(measures)
        sources = Sources(store, topics, groups, broker.offsets.pulled, sampler, lag, lag_times, measures)
        waiting = WaitingViews(
            sources,
            broker.sending.levels,
            broker.delays.deliver,
            broker.delays.settled,
            WaitingTimers(
                store,
                broker.timers.deliver.look,
                lambda: broker.timers.deliver.pending,
                lambda: options.config.store.timer_precision_ms,
                lambda: broker.timers.index.indexed.queue_offset,
            ),
            broker.delays.deliver.clock,
        )
        group_views = GroupViews(sources, broker.locks, system.broker_name, waiting.retries_waiting)
        clients = ClientViews(broker.clients)
        transactions = TransactionViews(store, topics, broker.transactions, partial(_producers, broker))
        copies = MessageCopies(topics, store)
        stories = MessageStories(
            sources,
            copies,
            broker.deliveries.history,
            broker.delays.deliver.delivered_to,
            broker.delays.settled.holds,
            transactions,
        )
        schemas = TopicSchemas(topics, store, pool, options.config.broker, follows=not broker.role.appends)
        broker.topic_service.forget_more = schemas.forget
        messages = MessageViews(sources, stories, schemas.reader)
        dead_letters = DeadLetterViews(sources, messages, broker.replays, options)
        replication = ReplicationView(
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
        disk = DiskRoom(options, sampler, lambda: store.published - store.log.min_offset)
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
            counts=transactions.counts,
            clock=broker.transactions.check.clock,
            quota_count=quota_count,
        )
        figures = BrokerFigures(reading, sampler)
        stuck = StuckTransactions(
            store, broker.transactions.open_halves, broker.transactions.settings, broker.transactions.check.clock
        )
        lateness = Lateness(sampler, broker.clients.attendance, measures, lag_times)
        unread = UnreadDeletion(sources, lateness, disk, options)
        others = (replication.of_set, stuck.findings, lambda: at_quota(users_at_quota()))
        needs = Needs(sources, lateness, disk, options, unread, others)
        standing = Standing(lag, group_views, clients, checks, needs)
        live = LiveFrames(BrokerSource(figures, standing, disk), frames_before)
        sampler.after_sample.append(live.refresh)

        replays = ReplayViews(broker.replays, dead_letters, store)

        self.is_slave = not broker.role.appends
        self.replication = replication
        self.quarantine = Quarantine(
            store.paths.quarantine, store.disk, broker.delays.deliver.clock, leader, broker.ties
        )
        self.sampler = sampler
        self.charts = Charts(sampler, topics)
        self.measurements = Measurements(sources, figures, broker.clients.rebalances.copy, unread)
        self.live = live
        self.overview = OverviewView(sources, figures, standing, disk, system)
        self.lag = lag
        self.look_ahead = LookAhead(sampler.index, store, measures)
        self.topics = TopicViews(sources, broker.offsets, broker.clients)
        self.topic_commands = TopicCommands(
            topics, broker.topic_service, pool, sampler.index, lag, _forget_routes(namesrv, pools)
        )
        self.topic_purges = TopicPurges(sources, broker.topic_service, pool)
        self.schemas = schemas
        self.groups = group_views
        self.group_now = GroupNow(
            sources,
            broker.locks,
            system.broker_name,
            broker.pull.long_polling.held_at,
            broker.deliveries.service.last_pulls.get,
        )
        self.group_commands = GroupCommands(groups, topics, broker.group_service, pool, lag)
        self.clean_ups = CleanUps(broker.clean_up, waiting, transactions, pool, _forget_routes(namesrv, pools))
        self.offsets = OffsetViews(sources, broker.offset_resets, broker.offsets)
        self.offset_commands = OffsetCommands(sources, broker.offset_resets, broker.offsets, pool)
        self.clients = clients
        self.asking = Asking(broker.member_questions, messages.record)
        self.diagnosis = GroupDiagnosis(
            sources,
            broker.locks,
            broker.deliveries.service.last_pulls.get,
            lateness,
            broker.deliveries.history,
            system.broker_name,
        )
        self.messages = messages
        self.search = SearchViews(topics, store, messages, copies, waiting.still_wait, transactions)
        self.dead_letters = dead_letters
        self.replays = replays
        self.replay_commands = ReplayCommands(sources, broker.replays, replays, dead_letters)
        self.waiting = waiting
        self.waiting_commands = WaitingCommands(waiting, broker.delays.early_acts, broker.timers.early_acts)
        self.transactions = transactions
        self.transaction_commands = TransactionCommands(
            transactions,
            broker.transactions.acts,
            partial(_producers, broker),
            messages.record,
            store.store_host,
        )
        self.option_commands = OptionCommands(options, topics, pool)
        self.retention = RetentionPart(
            store, topics, options, broker.cleaning, pool, lambda: broker.deleted_unread.rows
        )
        self.imports = MessageImport(topics, broker.sending.appends, lambda: broker.sending.properties.added, options)
        self.sender = TestSender(topics, broker.sending, broker.transactions.half_appends, store.store_host, options)
        self.tails = Tails(store, topics, sampler.index, schemas.reader)
        self.backups = Backups(store)
        self.report_inputs = ReportInputsView(store, topics, lag, options, lambda: broker.deleted_unread.rows)
        self.metrics = lambda: figures.metrics() | replication.metrics()
        self.upstream_metrics = UpstreamMetrics(
            sources,
            partial(_names, broker, options, system),
            broker.clients,
            broker.stats.runtime_info,
            figures,
            lambda: options.config.broker.broker_permission,
            replication,
        )
        self.system = lambda: system.snapshot(store, broker.registration)


def _names(broker: Broker, options: Options, system: SystemView) -> BrokerNames:
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
