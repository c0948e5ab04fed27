"""Wires the broker: builds its parts in order, registers the dispatch table, starts and stops them.

Everything here is construction; what the parts do is in their own files.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..clock import Clock
from ..config import BrokerConfig, EngineConfig, StoreConfig, broker_properties
from ..config_journal import ConfigJournal
from ..disk import Disk
from ..errors import RefusedRequest, StartError
from ..host_port import host_of, split_host_port
from ..loop_calls import run_on_loop
from ..named_tuple import NamedTuple
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.message_id import UniqueKeys, encode_host
from ..protocol.names import TEMPLATE_TOPIC
from ..remoting.connection import Connection
from ..remoting.dispatcher import Dispatcher, WorkerPool
from ..remoting.event_loop import EventLoop, Timer
from ..remoting.peer_requests import PeerRequests
from ..remoting.server import RemotingServer
from ..replication.acknowledged import ReplicatedPosition
from ..replication.roles import slaves_needed
from ..service_thread import ServiceThread
from ..store.dispatch import parse_delay_levels
from ..store.message_store import MessageStore, StoreSettings
from ..store.paths import StorePaths
from ..store.queues.consume_queue_table import descriptors_below
from ..wire_gate import Act
from .cleaning_service import CleaningService
from .clients import ClientManager
from .delays.delivery import DeliverDelayed
from .delays.levels import DelayLevels
from .delays.progress import FILE_NAME as DELAY_PROGRESS
from .delays.progress import DelayProgress, SaveDelays
from .delays.settled import NAME as SETTLED_DELAYS
from .delays.settled import SettledDelays, is_in_log
from .deliveries.recorder import DeliveryRecorder
from .deliveries.ring import DeliveryRing
from .deliveries.service import PERIOD_S as HAND_OVER_S
from .deliveries.service import DeliveryService
from .durability import Durability
from .filters.consumer_filters import FILE_NAME as FILTERS_FILE
from .filters.consumer_filters import ConsumerFilters
from .group_service import SubscriptionGroupService
from .groups import SubscriptionGroupManager
from .late_replays import LateReplays
from .member_questions import MemberQuestions
from .movements import SampledMovements
from .offset_resets.journal import ResetJournal
from .offset_resets.service import OffsetResets
from .offsets import ConsumerOffsetManager
from .processors.admin_broker import AdminBrokerProcessor
from .processors.admin_clients import AdminClientsProcessor
from .processors.admin_groups import AdminGroupsProcessor
from .processors.admin_offsets import AdminOffsetsProcessor
from .processors.admin_progress import AdminProgressProcessor
from .processors.admin_topics import AdminTopicsProcessor
from .processors.cleaning import CleaningProcessor
from .processors.client import ClientProcessor
from .processors.cold_records import ColdRecords
from .processors.consumer import ConsumerProcessor
from .processors.pull import PullProcessor
from .processors.query import QueryMessageProcessor
from .processors.queue_offsets import QueueOffsetProcessor
from .processors.recall import RecallProcessor
from .processors.reply import ReplyProcessor
from .processors.resume_half import ResumeHalfProcessor
from .processors.send import SendAnswers, SendProcessor
from .processors.send_back import SendBackProcessor
from .processors.slave_tables import SlaveTablesProcessor
from .processors.transaction import TransactionProcessor
from .promotion import cut_offsets
from .queue_locks import RebalanceLockManager
from .registration import Registration
from .replication import NOT_CONFIRMED, NoAdmission, ha_status, refuse_pulls, slave_wait
from .role import HURRY_S, Kind, Role, role_of
from .sampler import Sampler
from .sending.admission import SendAdmission
from .sending.own_appends import OwnAppends
from .sending.properties import SendProperties
from .sending.retry_policy import RetryPolicy
from .sending.send_back import SendBackPath
from .sending.send_back_counts import SendBackCounts
from .sending.send_path import SendPath
from .slave_requests import refuse_changes
from .stats import SAMPLE_S, BrokerStats
from .timers.apache_files import checkpoint_answer, read_checkpoint
from .timers.claims import Claims
from .timers.delivery import DeliverTimers
from .timers.look import ScheduleLook
from .timers.recall import RecallPath
from .timers.rolling import RollTimers
from .timers.saving import SaveTimers
from .timers.schedule import DIRECTORY as TIMERS
from .timers.schedule import TimerIndex
from .timers.waiting import TimerRules, WaitingPlaces
from .topic_config import TopicConfig
from .topic_places import TopicPlacesProcessor
from .topic_service import TopicService
from .topics import TopicConfigManager
from .transactions.admin_acts import AdminActs
from .transactions.admin_journal import DecisionJournal
from .transactions.check import CheckSettings, CheckTransactions
from .transactions.check_counts import CheckCountsFile
from .transactions.decisions import Decisions
from .transactions.half_appends import HalfAppends
from .transactions.open_halves import OpenHalves
from .transactions.records import TransactionRecords
from .transactions.resolved import ResolvedTransactions
from .transactions.resume import ResumeDiscarded
from .waiting_share import WaitingShare
from .wire_acts import broker_acts

if TYPE_CHECKING:
    from ..replication.master import ReplicationServer
    from .clean_up import CleanUpService
    from .delays.early import EarlyActs
    from .delays.moving import MoveDelayed
    from .deleted_unread import DeletedUnreadTable
    from .deliveries.history import DeliveryReader
    from .replay.service import ReplayService
    from .slave_side import SlaveSide
    from .standing_queues import StandingQueues
    from .timers.early import EarlyTimerActs

logger = logging.getLogger(__name__)

#: A file in RocketBox's own directory; docs/formats/standing-queues.md.
STANDING_QUEUES = "standing-queues.json"
#: Period of `_scan_expired`: it closes silent connections and drops old filters and pull offsets.
_SCAN_EXPIRED_S = 10.0
#: The answer to a pull that comes after this broker has ended.
_ENDED = RefusedRequest(ResponseCode.SYSTEM_BUSY, "this broker changes its role")


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _month_start_ms(now_ms: int) -> int:
    now = time.localtime(now_ms / 1000)
    return int(time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1)) * 1000)


def own_store_settings(
    broker: BrokerConfig, store: StoreConfig, delay_levels_ms: list[int], queue_descriptors: int
) -> StoreSettings:
    return StoreSettings(
        synchronous=store.flush_disk_type == "SYNC_FLUSH",
        segment_bytes=store.mapped_file_size_commit_log,
        queue_file_bytes=store.mapped_file_size_consume_queue,
        max_bytes_in_memory=store.max_transfer_bytes_on_message_in_memory,
        max_count_in_memory=store.max_transfer_count_on_message_in_memory,
        max_bytes_on_disk=store.max_transfer_bytes_on_message_in_disk,
        max_count_on_disk=store.max_transfer_count_on_message_in_disk,
        max_scan_bytes=store.max_filter_message_size,
        memory_bytes=_physical_memory() * store.access_message_in_memory_max_ratio // 100,
        delay_levels_ms=delay_levels_ms,
        slave_reads=broker.slave_read_enable,
        index_enabled=store.message_index_enable,
        index_slots=store.max_hash_slot_num,
        index_entries=store.max_index_num,
        queue_descriptors=queue_descriptors,
    )


def _timer_rules(store: StoreConfig) -> TimerRules:
    return TimerRules(store.timer_wheel_enable, store.timer_max_delay_sec, store.timer_precision_ms)


class Processor(Protocol):
    """One family of requests."""

    def register(self, dispatcher: Dispatcher) -> None: ...


class RunningOptions(Protocol):
    """The holder of the options in force, through which they are changed; `window.options.Options`."""

    @property
    def config(self) -> EngineConfig: ...

    def on_change(self, listener: Callable[[EngineConfig], None]) -> None: ...

    def forget(self, listener: Callable[[EngineConfig], None]) -> None: ...

    def change(self, values: Mapping[str, object], revision: str | None, dry_run: bool, by: str) -> object: ...


class Network(NamedTuple):
    """The broker's addresses, and its name servers. address, ha_address: "host:port" as the broker advertises them."""

    address: str
    ha_address: str
    namesrvs: tuple[str, ...]
    #: The socket to which slaves connect; None if the broker serves no slaves.
    ha_socket: socket.socket | None = None
    #: Used instead of the host in `address` where an IP address is needed and that is a name.
    ip: str = ""

    @property
    def host(self) -> str:
        return host_of(self.address)

    @property
    def store_host(self) -> bytes:
        """The broker's address as records hold it."""
        return encode_host(self.ip or self.host, split_host_port(self.address)[1])


class Broker:
    """One broker: store, tables, processors. Built on the main thread, serves on remoting-io."""

    def __init__(
        self,
        options: RunningOptions,
        loop: EventLoop,
        server: RemotingServer,
        pools: dict[str, WorkerPool],
        network: Network,
        clock: Clock,
        role: Role | None = None,
    ) -> None:
        """role: given for a member of a set that fails over; otherwise it follows from the settings. Raises StartError;
        nothing stays open then. The loop may run already; nothing of the broker is on it before `join_loop`."""
        # Constant after construction.
        self.role = role or role_of(options.config)
        self._loop = loop
        self._server = server
        self._options = options
        self._clock = clock
        self.address = network.address
        self.ha_address = network.ha_address
        self._pools = pools
        self._cold_pool = pools.setdefault("pull-cold", WorkerPool("pull-cold", clock=clock))
        self._filter_pool = pools.setdefault("pull-filter", WorkerPool("pull-filter", clock=clock))
        # Replaced whole by _take_options(), on the thread of the pool "admin".
        self._config = options.config
        #: The threads that bring a member of a set its log and its tables. `failover/brokers.py` sets and starts them.
        self.member_threads: tuple[ServiceThread, ...] = ()
        # Owned by remoting-io.
        self._timers: list[Timer] = []
        # Set once, by any thread.
        self._fenced = False
        try:
            self._open_store(server, network)
            self._load_tables(network)
            self._build_data_path(server, network)
            self._build_services(server)
            self.replication = self._master_side(network)
            self.follower = self._slave_side() if self.role.kind is Kind.SLAVE else None
            if self.role.is_member and not self.role.appends:
                self.store.log.refuse(self.role.no_sends, "role")
            self._processors = self._make_processors(server, options, network)
        except BaseException:
            self._let_go()
            raise
        self._admin_broker.ha_status = lambda: ha_status(
            self.store, self.replication, self.follower, not self.role.appends
        )

    def join_loop(self) -> None:
        """Put the broker on the loop: from here on the loop ends its ticks, and its timers run. On remoting-io, or
        before it runs."""
        loop = self._loop
        self._server.on_close(self._connection_closed)
        loop.put_first(self.decisions.end_tick, self.store.end_tick)
        self._timers = [
            loop.call_every(SAMPLE_S, self.stats.sample),
            loop.call_every(_SCAN_EXPIRED_S, self._scan_expired),
            loop.call_every(HAND_OVER_S, self._recorder.hand_over),
            *self.durability.begin(),
        ]
        if self.role.appends or self.role.kind is Kind.SLAVE:
            self._timers += self.check_transactions.begin()
        self._options.on_change(self._take_options)

    def leave_loop(self) -> None:
        """Take the broker off the loop, so that nothing of it runs there from now on. On remoting-io, after the last
        request was answered and no other can come."""
        self._options.forget(self._take_options)
        for timer in self._timers:
            timer.cancel()
        self._loop.drop_hooks(self.decisions.end_tick, self.store.end_tick)
        self._server.forget_listener(self._connection_closed)
        self._peers.end()
        self.pull.end(_ENDED)
        self.store.on_pressure = lambda high: None
        self._server.hold_producers(False)

    def refuse_reads(self) -> None:
        """Raise RefusedRequest while clients may not read what is stored here."""
        if (refusal := self.pull.refused) is not None:
            raise refusal

    @property
    def waits_for_confirmation(self) -> bool:
        """True while a follower serves no reads only because its leader has not confirmed its log yet."""
        return self.pull.refused is NOT_CONFIRMED

    def open_reads(self) -> None:
        """Serve reads on a follower: its leader has confirmed all that it held when it began."""
        self.pull.refuse_all(None)

    @property
    def is_fenced(self) -> bool:
        """True after `fence`: nothing is acknowledged from then on."""
        return self._fenced

    def fence(self, why: str, seconds: float) -> None:
        """Publish and acknowledge nothing from this moment on, whatever was stored. Sends that wait, and new ones, are
        answered that nothing is promised; if remoting-io does not get to it within `seconds`, they get no answer."""
        self._fenced = True
        self.store.publish_no_more()
        reason = f"this broker is fenced: {why}"

        def tell() -> None:
            self.store.log.refuse(reason, "role")
            self.store.fail_waiting(reason)
            self.pull.end(RefusedRequest(ResponseCode.SYSTEM_BUSY, reason))

        end = self._clock.monotonic() + seconds
        run_on_loop(self._loop.call_soon, tell, lambda: self._clock.monotonic() >= end)

    def end_pulls(self) -> None:
        """Answer held pulls, and refuse all others from now on. On remoting-io."""
        self.pull.end(_ENDED)

    def _let_go(self) -> None:
        """Close what was opened, after building has failed."""
        parts = self.__dict__
        for name, end in (
            ("pull", "close"),
            ("settled_delays", "close"),
            ("_reset_journal", "close"),
            ("journal", "stop"),
            ("store", "let_go"),
        ):
            if name in parts:
                try:
                    getattr(parts[name], end)()
                except Exception:
                    logger.exception("broker: %s cannot be closed", name)

    def _master_side(self, network: Network) -> ReplicationServer | None:
        """Return the server for slaves, if there is a socket for them. A member of a set gets none here:
        `failover/brokers.py` makes the leader's."""
        if self.role.is_member or network.ha_socket is None:
            return None
        from .master_side import master_side

        return master_side(self.store, self._config.store, network.ha_socket, self.replicated, self._clock)

    def _slave_side(self) -> SlaveSide:
        """Return the part that follows the master. Nothing that appends by itself runs on a slave."""
        from .slave_side import SlaveSide

        return SlaveSide(
            self.store,
            self._config.store,
            self.registration,
            self.topics,
            self.groups,
            self.offsets,
            self.address,
            self._loop,
            self._clock,
            self.role,
            self.settled_delays,
        )

    @property
    def _config_dir(self) -> Path:
        return self._config.store_dir / "config"

    def _open_store(self, server: RemotingServer, network: Network) -> None:
        """Build and recover the store, and open the journal. Raises StartError."""
        config = self._config
        own_dir = config.data_dir / "rocketbox"
        try:
            levels = parse_delay_levels(config.store.message_delay_level)
        except ValueError as error:
            raise StartError(f"{error}.") from None
        settings = own_store_settings(config.broker, config.store, levels, descriptors_below(server.descriptor_limit))
        paths = StorePaths(config.store_dir, own_dir)
        needed = 0 if self.role.is_member else slaves_needed(config.store)
        self.replicated = ReplicatedPosition(needed, lambda: self.store.watermark_moved()) if needed else None
        replicated = self.replicated or self.role.position
        self.store = MessageStore(settings, paths, Disk(own_dir), self._loop, network.store_host, replicated=replicated)
        self.store.on_pressure = server.hold_producers
        self.store.on_repaired = lambda queue: self.pull.long_polling.notify((queue,))
        self.store.cleaner.options = config.store
        self.store.cleaner.topic_hours = lambda: self.topics.reserve_hours()
        try:
            self.store.open()
            if self.replicated is not None:
                self.replicated.begin(self.store.log.written)
            self.store.disk.make_directory(self._config_dir)
        except OSError as error:
            raise StartError(f"The store cannot be opened: {error}.") from None
        try:
            self.journal = ConfigJournal(own_dir / "config.journal", self.store.disk, self._clock)
        except OSError as error:
            raise StartError(f"{own_dir / 'config.journal'} cannot be opened: {error.strerror}.") from None
        # A message in a topic that was made for it is acknowledged only when the topic's entry is durable, too.
        self.store.sync_first(self.journal.sync_written)

    def _load_tables(self, network: Network) -> None:
        """Load topics, groups and offsets; make the tables of clients and locks, and the registration. Raises
        StartError."""
        broker, directory, clock, disk = self._config.broker, self._config_dir, self._clock, self.store.disk
        role = self.role
        self.topics = TopicConfigManager(directory / "topics.json", broker, self.journal, clock, disk)
        path = directory / "subscriptionGroup.json"
        self.groups = SubscriptionGroupManager(path, broker, self.journal, clock, disk)
        self.offsets = ConsumerOffsetManager(
            directory / "consumerOffset.json",
            lambda: self._config.broker.flush_consumer_offset_interval_ms,
            clock,
            disk,
        )
        self.offsets.end_of, self.offsets.cuts = self.store.end_of, not role.appends
        self.store.cleaner.on_raised.append(lambda raised: self.deleted_unread.deleted(raised))
        self.filters = ConsumerFilters(directory / FILTERS_FILE, broker, clock, disk)
        self.clients = ClientManager(broker, self.groups, clock, self._loop.call_soon, self.filters)
        path = self._config.data_dir / "rocketbox" / "offset-resets.journal"
        try:
            self._reset_journal = ResetJournal(path, clock, disk)
        except OSError as error:
            raise StartError(f"{path} cannot be opened: {error.strerror}.") from None
        self.store.begin_queues(config.topic_name for config in self.topics.all())
        self.topics.on_change.append(self._begin_queues)
        self.locks = RebalanceLockManager(clock)
        self.clients.on_consumer = self.locks.came_back
        self.clients.on_consumer_gone = self._consumer_gone
        self.registration = Registration(
            self._config,
            network.address,
            network.ha_address,
            network.namesrvs,
            self.topics,
            self.topics.take_orders,
            clock,
            broker_id=role.broker_id,
            epoch=role.epoch,
            hurry_s=HURRY_S if role.kind is Kind.LEADER else 0.0,
            says_good_bye=role.kind is not Kind.LEADER,
        )

    def _begin_queues(self, changed: list[TopicConfig]) -> None:
        """Begin queues of topics that were made or changed, where deleted topics of their names ended. Any thread."""
        names = [config.topic_name for config in changed]
        if self.store.queues.begins:
            self._loop.call_soon(lambda: self.store.begin_queues(names))

    def _build_data_path(self, server: RemotingServer, network: Network) -> None:
        """Build what every message passes: send, pull, and the acknowledgement between them."""
        config, loop, host = self._config, self._loop, network.store_host
        broker = config.broker
        keys = UniqueKeys(host[:4], os.getpid(), hash(network.address), _month_start_ms(self._clock.wall_ms()))
        self.delay_levels = levels = DelayLevels(self.store.settings.delay_levels_ms)
        self.waiting_places = places = WaitingPlaces(levels, _timer_rules(config.store), self._clock.wall_ms)
        self.send_properties = SendProperties(broker.region_id, broker.cluster_name, broker.trace_on, keys, places)
        self._retry_policy = RetryPolicy(self.topics, self.groups, self.locks, self.store.log.not_taking)
        self.send_backs = SendBackCounts(self._clock)
        parts = (self.topics, self.store.queues, self._retry_policy, self._permission)
        no_sends = self.role.no_sends
        self.send_path = SendPath(
            self.store,
            NoAdmission(no_sends, *parts) if no_sends else SendAdmission(*parts),
            self.send_properties,
            levels,
            config.store.max_message_size,
            self._clock.wall_ms,
            broker.broker_name,
        )
        self.send_answers = SendAnswers(host, broker.region_id, broker.trace_on)
        self.send = SendProcessor(
            self.send_path, self.send_answers, self.send_path.runs(loop, self.topics, self.send_answers)
        )
        self.own_appends = OwnAppends(
            self.store, self.topics.get, levels, loop.call_soon, lambda: loop.alive, self._clock.wall_ms
        )
        self.timer_claims = Claims()
        self._build_delays(levels)
        self._build_timers()
        self._build_transactions(network)
        self._build_delivery_events()
        self.pull = PullProcessor(
            self.store,
            self.topics,
            self.groups,
            self.clients,
            self.offsets,
            config.broker,
            loop,
            self._cold_pool,
            self._filter_pool,
            self.filters,
            network.host,
            server.flush_dirty,
            self._recorder,
        )
        self.pull.refuse_all(refuse_pulls(self.role, broker))
        self.filters.on_change = self.pull.answer_held
        self.durability = Durability(
            self.store,
            loop,
            lambda: self._config.store.sync_flush_timeout_ms,
            self.pull.long_polling.notify,
            slave_wait(config.store, self.role),
        )

    def _report_settled(self, reason: str) -> None:
        """Log and keep a fault in the list of delayed messages that were handled early."""
        logger.error("settled delays: %s", reason)
        try:
            self.store.files.report("file", f"rocketbox/{SETTLED_DELAYS}", reason)
        except OSError as error:
            logger.error("settled delays: the finding cannot be kept: %s", error)

    def _build_delays(self, levels: DelayLevels) -> None:
        """Build the delivery of delayed messages, and the files of its progress. Raises StartError."""
        path, disk = self._config_dir / DELAY_PROGRESS, self.store.disk
        self.delay_progress = DelayProgress(path, lambda: self.store.lasting, self._clock, disk)
        path = self.store.paths.own / SETTLED_DELAYS
        self.settled_delays = settled = SettledDelays(path, disk, self._report_settled)
        settled.load(lambda one: is_in_log(one, self.store.records))
        self.deliver_delayed = DeliverDelayed(
            self.store,
            self.own_appends,
            levels.delays_ms,
            self.delay_progress,
            self.topics.get,
            settled,
            self._clock,
        )
        self.save_delays = SaveDelays(self.delay_progress)
        # The store stops these when its log is durable to the end: then all that was delivered may be saved.
        if self.role.appends:
            self.store.services += [self.deliver_delayed, self.save_delays]
            self.store.cleaner.keepers.append(lambda end: self.move_delayed.keep(end))

    def _build_timers(self) -> None:
        """Build the delivery of messages that wait for a time of their own, and their index."""
        store = self.store
        self.timers = TimerIndex(store.paths.own / TIMERS, store.disk, lambda: store.lasting)
        self.deliver_timers = DeliverTimers(
            store,
            self.own_appends,
            self.timers,
            self.topics.get,
            self._timer_precision_ms,
            lambda: read_checkpoint(store.disk, store.paths.root),
            self.timer_claims,
            self._clock,
        )
        self.waiting_places.on_timer = self.deliver_timers.expect
        self.waiting_places.on_wait = self.topics.note_heard
        self.save_timers = SaveTimers(
            self.timers,
            store.paths.root,
            store.disk,
            lambda: store.log.min_offset,
            lambda: self.deliver_timers.is_ready,
            self._clock,
            self.look_at_timers,
            self._config.store.mapped_file_size_timer_log,
        )
        self.roll_timers = roll = RollTimers(
            store,
            self.own_appends,
            self.timers,
            lambda: self.deliver_timers.is_ready,
            self._timer_precision_ms,
            self._kept_ms,
            self._clock,
            self.deliver_timers.now_ms,
        )
        self.deliver_timers.chores.append(roll.chore)
        self.save_timers.roll = roll
        roll.on_asked, roll.on_wanted = self.save_timers.wakeup, self.deliver_timers.wakeup
        if self.role.appends:
            store.cleaner.keepers.append(roll.keep)
            store.services += [self.deliver_timers, self.save_timers]

    def _build_transactions(self, network: Network) -> None:
        """Build the table of open half messages, the decisions about them, and the checks with producers."""
        self.open_halves = OpenHalves()
        self.decisions = Decisions(
            self.store, self.own_appends, self.open_halves, self.topics, self.waiting_places, self._clock.wall_ms
        )
        self.check_transactions = CheckTransactions(
            self.store,
            self.open_halves,
            self.decisions,
            self.clients,
            self.offsets,
            self._loop,
            self._config.broker.broker_name,
            self.check_settings,
            self.deliver_delayed.left_until_ms,
            self._clock,
        )
        self.send_path.on_half = self.check_transactions.stored
        self._no_halves = f"the broker[{network.host}] sending transaction message is forbidden"
        self.send_path.no_halves = self._no_halves if self._config.broker.reject_transaction_message else None
        self.clients.on_producers = self.check_transactions.producers_came
        if self.role.appends:
            self.store.cleaner.keepers.append(self.check_transactions.keeps)
        self.waiting_share = share = WaitingShare(
            self.store,
            lambda: self.timers.bytes,
            self.deliver_delayed.levels,
            self.delay_progress.of,
            self._open_halves_now,
        )
        self.send_path.no_waiting = lambda: share.refusing
        if self.role.appends:
            self.store.cleaner.on_looked.append(share.look)
        self.half_appends = HalfAppends(
            self.store, self.own_appends, self.check_transactions.stored, self._loop.call_soon
        )
        self.resume_discarded = ResumeDiscarded(self.store, self.half_appends)
        self._build_transaction_records()

    def _build_transaction_records(self) -> None:
        """Build the records of ended transactions, and administrators' acts on transactions. Raises StartError."""
        directory, disk = self.store.paths.own / "transactions", self.store.disk
        self.resolved = ResolvedTransactions(directory / "resolved", disk)
        self.decisions.on_ended = self.resolved.note
        path = directory / "decisions.journal"
        try:
            journal = DecisionJournal(path, self._clock, disk)
        except OSError as error:
            raise StartError(f"{path} cannot be opened: {error.strerror or error}.") from None
        self.transaction_acts = AdminActs(
            self.store,
            self.open_halves,
            self.decisions,
            self.check_transactions,
            self.resume_discarded,
            journal,
            self._loop.call_soon,
            self._clock,
        )
        self.transaction_records = TransactionRecords(
            self.store,
            self.open_halves,
            self.check_transactions,
            self.resolved,
            CheckCountsFile(directory / "checks", disk),
            self.transaction_acts,
            self._clock,
        )
        self.check_transactions.remembered = self.transaction_records.remembered

    def check_settings(self) -> CheckSettings:
        broker = self._config.broker
        return CheckSettings(
            broker.transaction_time_out_ms,
            broker.transaction_check_interval_ms,
            broker.transaction_check_max,
            self._kept_ms(),
        )

    def _open_halves_now(self) -> tuple[int | None, int]:
        """Return (queue offset of the oldest open half message, number of open ones). For another thread."""
        try:
            return self.open_halves.lowest, self.open_halves.count
        except RuntimeError:  # they change this moment
            return None, 0

    def look_at_timers(self) -> ScheduleLook:
        """Return a view of the messages that wait for a time of their own now."""
        return ScheduleLook(self.timers, self.store.disk, self.store.log, self._timer_precision_ms)

    def _timer_precision_ms(self) -> int:
        return self._config.store.timer_precision_ms

    def _kept_ms(self) -> int:
        """Return how long messages are kept, by the options in force."""
        return self._config.store.file_reserved_time_hours * 3_600_000

    def _permission(self) -> int:
        """Return the broker's own permission, by the options in force."""
        return self._config.broker.broker_permission

    def _build_delivery_events(self) -> None:
        """Build the parts that note which answers carried messages, and that keep these notes (D17)."""
        budget, published = self._config.store.max_delivery_event_bytes, lambda: self.store.publication.published
        ring = DeliveryRing(self._config.data_dir / "rocketbox" / "deliveries", self.store.disk)
        self._recorder = DeliveryRecorder(self._loop, published, budget > 0)
        self.delivery_events = DeliveryService(
            self._recorder, ring, lambda: self._config.store.max_delivery_event_bytes, published, self._clock
        )
        self._ring = ring

    def _build_services(self, server: RemotingServer) -> None:
        """Build the services that wire and window share."""
        self.stats = BrokerStats(
            self.store, self.pull, server, self._pools, self.deliver_delayed, self.deliver_timers, self._clock
        )
        self.sampler = Sampler(self.store, self.offsets, self.pull)
        if (self.store.paths.own / STANDING_QUEUES).exists():
            self.standing_queues.load()
        self.offsets.beside = self._save_standing_queues
        self.topic_service = TopicService(self.topics, self.offsets, self.store, self.registration, self._clock)
        self.topic_service.is_group = lambda name: self.groups.get(name) is not None
        self.group_service = SubscriptionGroupService(self.groups, self.offsets)
        self.cleaning = CleaningService(self.store, self.topics)
        self._replays = LateReplays(self.store.paths.own / "replay", self.store.disk, self._make_replays)
        self.offset_resets = OffsetResets(
            self.store,
            self.topics,
            self.groups,
            self.offsets,
            self.clients,
            self.pull.long_polling,
            self._loop,
            self._reset_journal,
            self._clock,
        )
        self.offset_resets.restore()
        if self.role.kind is Kind.MASTER:  # after `restore`: a moved offset may lie behind the end of its queue as well
            cut_offsets(self.store, self.offsets)

    # --- what few brokers need, or only their administrators; loaded and made at the first use

    @property
    def replays(self) -> ReplayService:
        """The service of replay jobs. Any thread."""
        return self._replays.service()

    def _make_replays(self, directory: Path) -> ReplayService:
        from .replay.service import ReplayService

        return ReplayService(directory, self.store, self.own_appends, self.topics, self.groups, self._clock)

    @cached_property
    def deleted_unread(self) -> DeletedUnreadTable:
        """The table of messages that retention deleted before groups had consumed them. Any thread."""
        from .deleted_unread import NAME, DeletedUnreadTable

        return DeletedUnreadTable(self._config.data_dir / "rocketbox" / NAME, self.offsets.all, self._clock.wall_ms)

    @cached_property
    def early_acts(self) -> EarlyActs:
        """Administrators' acts on delayed messages before they are due."""
        from .delays.early import EarlyActs

        acts = EarlyActs(
            self.store,
            self.own_appends,
            self.settled_delays,
            self.deliver_delayed.delivered_to,
            self.topics.get,
            partial(self._retry_policy.dead_letters_of, frees=True),
            self._clock,
        )
        acts.members_lack = self._members_lack
        return acts

    def _members_lack(self) -> str:
        """Wait until all members that may lead next know what was done; return why they do not, or ""."""
        try:
            self.topic_service.tell_members("done")
        except RefusedRequest:
            return "not all members of the set know it yet"
        return ""

    @cached_property
    def move_delayed(self) -> MoveDelayed:
        """The part that moves delayed messages out of log files that are about to be deleted."""
        from .delays.moving import MoveDelayed

        return MoveDelayed(
            self.store,
            self.own_appends,
            self.settled_delays,
            self.deliver_delayed,
            self.delay_progress.durable_of,
            self.topics.get,
            partial(self._retry_policy.dead_letters_of, frees=True),
            self._clock,
        )

    @cached_property
    def early_timer_acts(self) -> EarlyTimerActs:
        """Administrators' acts on messages that wait for a time of their own."""
        from .timers.early import EarlyTimerActs

        return EarlyTimerActs(
            self.store,
            self.own_appends,
            self.timer_claims,
            self.look_at_timers,
            lambda: self.timers.indexed.queue_offset,
            self.topics.get,
            self._timer_precision_ms,
            self._clock,
            self.deliver_timers.wakeup,
        )

    @cached_property
    def clean_up(self) -> CleanUpService:
        from .clean_up import CleanUpService

        return CleanUpService(
            self.topics,
            self.groups,
            self.offsets,
            self.clients,
            self.store,
            self.topic_service,
            lambda topic: 0.0 if (moves := self.sampler.topics.get(topic)) is None else moves.moved_at,
            self._clock,
        )

    @cached_property
    def standing_queues(self) -> StandingQueues:
        """Times since when queues stand; imported when a queue may stand."""
        from .standing_queues import StandingQueues

        path = self.store.paths.own / STANDING_QUEUES
        return StandingQueues(path, self.offsets, self.sampler, self.clients.attendance, self._clock, self.store.disk)

    def _save_standing_queues(self) -> None:
        if self.clients.attendance.knows_any:
            self.standing_queues.save_when_due()

    @cached_property
    def delivery_history(self) -> DeliveryReader:
        from .deliveries.history import DeliveryReader

        return DeliveryReader(self._ring)

    def _make_processors(self, server: RemotingServer, options: RunningOptions, network: Network) -> list[Processor]:
        config, loop, clock = self._config, self._loop, self._clock
        name = config.broker.broker_name
        peers = self._peers = PeerRequests(loop, server)
        self.member_questions = MemberQuestions(
            self.clients,
            self.groups,
            peers,
            loop,
            name,
            lambda physical: found.data if (found := self.store.records.get(physical)) else None,
        )
        records = ColdRecords(self.store.records, self._cold_pool, loop)
        send_back = SendBackPath(
            self.own_appends, self._retry_policy, self.delay_levels, self._permission, self.send_backs
        )
        send_back.no_waiting = lambda: self.waiting_share.refusing_retries
        self._query = QueryMessageProcessor(self.store, config.broker, config.store)
        self._client = ClientProcessor(
            self.clients, self.groups, self.topics, loop.call_soon, self._filter_pool, config.broker
        )
        progress = AdminProgressProcessor(
            self.store,
            self.topics,
            self.groups,
            self.offsets,
            self.clients,
            name,
            self.address,
            clock,
            SampledMovements(self.sampler, self.send_backs),
        )
        self._admin_broker = AdminBrokerProcessor(
            config,
            self.stats,
            self.address,
            clock,
            self.topics,
            lambda values, by: options.change(values, None, False, by),
        )
        topics = AdminTopicsProcessor(self.topics, self.topic_service)
        return [
            self.send,
            ReplyProcessor(
                self.send_path,
                self.send_answers,
                self.clients,
                peers,
                network.store_host,
                lambda: self._config.broker.store_reply_message_enable,
                clock,
            ),
            self.pull,
            QueueOffsetProcessor(self.store),
            self._query,
            self._client,
            ConsumerProcessor(self.store, self.topics, self.groups, self.offsets, self.locks),
            SendBackProcessor(send_back, records, clock),
            TransactionProcessor(self.decisions, self.check_transactions, records, clock.monotonic),
            RecallProcessor(
                RecallPath(
                    self.own_appends,
                    self.timer_claims,
                    self.topics.get,
                    lambda: self._config.broker,
                    lambda: self._config.store.timer_max_delay_sec * 1000,
                    clock.wall_ms,
                    self.deliver_timers.waits,
                    lambda: self.timers.most_late_ms,
                    lambda: self.waiting_share.refusing_recalls,
                ),
                config.broker.region_id,
            ),
            topics,
            TopicPlacesProcessor(
                self.store,
                lambda: self.topic_service.changes,
                topics.document,
                self.settled_delays.added_since,
            ),
            AdminGroupsProcessor(self.groups, self.group_service),
            self._admin_broker,
            CleaningProcessor(self.cleaning),
            SlaveTablesProcessor(
                self.delay_progress.durable_text,
                lambda: checkpoint_answer(*self.save_timers.checkpoint(), self._clock.wall_ms()),
                self.save_timers.done,
                self._clock.wall_ms,
            ),
            ResumeHalfProcessor(self.resume_discarded),
            progress,
            AdminClientsProcessor(
                self.clients,
                peers,
                self.member_questions,
                loop,
            ),
            AdminOffsetsProcessor(
                self.offset_resets,
                self.topics,
                self.groups,
                self.offsets,
                self.clients,
                name,
                lambda: self._config.broker.use_server_side_reset_offset,
                loop,
            ),
        ]

    def _take_options(self, config: EngineConfig) -> None:
        """Hand changed options to every part that keeps some. Changes of tables are durable when it returns."""
        before, self._config = self._config, config
        broker, store = config.broker, config.store
        self.topics.take_options(broker)
        self.groups.take_options(broker)
        self.clients.take_options(broker)
        self.filters.take_options(broker)
        self._client.take_options(broker)
        self.registration.take_options(broker)
        self.pull.take_options(broker)
        self._query.take_options(broker, store)
        settings = self.store.settings
        self.store.settings = own_store_settings(broker, store, settings.delay_levels_ms, settings.queue_descriptors)
        self.store.cleaner.options = store
        self.waiting_places.rules = _timer_rules(store)
        self._loop.call_soon(lambda: self._take_send_options(broker, store.max_message_size))
        self._recorder.switch(store.max_delivery_event_bytes > 0)
        self.offsets.save_soon()
        if broker.auto_create_topic_enable and self.topics.get(TEMPLATE_TOPIC) is None:
            self.topics.wait_durable(self.topics.add_template())
        if broker.broker_permission != before.broker.broker_permission:
            # All topics are registered again, with the permission that the broker has now.
            self.topics.wait_durable(self.topics.touch())
            self.registration.register_all()
        self._admin_broker.take_options(config)

    def _take_send_options(self, broker: BrokerConfig, max_message_size: int) -> None:
        """Hand changed options to the send path. On remoting-io."""
        trace_on = broker.trace_on
        self.send_path.no_halves = self._no_halves if broker.reject_transaction_message else None
        self.send_path.max_message_size = max_message_size
        self.send_properties.take_trace(trace_on)
        self.send_answers.take_trace(trace_on)
        self.send.take_options()

    def _who_changes(self) -> str:
        """Return a text that names the broker where this one's tables are changed."""
        if self.follower is None:
            return self.role.no_sends
        address = self.follower.master_address()
        return f"ask its master, {address}" if address else "no name server has told where its master is"

    def wire_acts(self) -> dict[int, Act]:
        """Return request code -> the form of that administrative request in the audit log."""
        return broker_acts(self.topics, self.groups, self.offsets, lambda: broker_properties(self._config))

    def register(self, dispatcher: Dispatcher) -> Dispatcher:
        """Fill the main port's table; return the VIP port's, which serves no pulls."""
        for processor in self._processors:
            processor.register(dispatcher)
        if not self.role.appends:
            refuse_changes(dispatcher, self._who_changes)
        return dispatcher.without(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)

    def start(self) -> None:
        """Start the threads behind the broker; the loop runs already."""
        self.journal.start()
        self.offsets.start()
        self.topics.start()
        self.groups.start()
        self.filters.start()
        self.store.start()
        self.sampler.start()
        self.delivery_events.start()
        self._replays.start(self.role.appends)
        if self.role.appends:
            self.check_transactions.start()
            self.transaction_records.start()
        if self.replication is not None:
            self.replication.start()
        if self.role.is_told:
            self.registration.start()
        if self.follower is not None:
            self.follower.start()

    def _connection_closed(self, conn: Connection) -> None:
        self.pull.long_polling.forget(conn)
        self.clients.on_close(conn)
        self.locks.closed(conn)

    def _consumer_gone(self, group: str, client_id: str, signed_off: bool) -> None:
        """Free the queues that a consumer held in order. If it only hung up, its group rebalances when they are
        free."""
        if signed_off:
            self.locks.signed_off(group, client_id)
        elif left_s := self.locks.hung_up(group, client_id):
            self._loop.call_later(left_s, lambda: self.clients.have_rebalance(group))

    def _scan_expired(self) -> None:
        self.clients.scan_expired()
        self.filters.clean()
        self._cold_pool.submit(lambda: self.offsets.pulled.trim(self.groups.get))

    # --- stopping, in the order the engine calls it

    def unregister(self, deadline_s: float) -> None:
        """Stop the working threads, and unregister at the name servers, so that clients stop coming."""
        if self.follower is not None:
            self.follower.stop()
        working: tuple[ServiceThread | LateReplays, ...] = (
            *self.member_threads,
            self.sampler,
            self._replays,
            self.deliver_delayed,
            self.deliver_timers,
            self.check_transactions,
        )
        for thread in working:  # all at once, then one after the other
            thread.request_stop()
        for thread in self.member_threads:
            thread.stop(2.0)
        self.sampler.stop(2.0)
        self._replays.stop(2.0)
        self.deliver_delayed.stop(2.0)
        self.deliver_timers.stop(2.0)
        self.check_transactions.stop(2.0)
        self.registration.unregister(deadline_s)

    def answer_everything(self, deadline_s: float) -> None:
        """Answer parked pulls, and wait until every stored message is acknowledged."""
        self._loop.call_soon(self.pull.long_polling.release_all)
        end = self._clock.monotonic() + deadline_s
        quiet: list[bool] = []

        def look() -> None:
            quiet[:] = [not any(tick.acks for tick in self.store.pending) and self.store.tick.last_offset < 0]

        while self._clock.monotonic() < end:
            if run_on_loop(self._loop.call_soon, look, lambda: self._clock.monotonic() >= end) and quiet == [True]:
                return
            time.sleep(0.01)
        logger.warning("broker: stopping with unacknowledged messages")

    def stop(self, settle: Callable[[], None] = lambda: None) -> None:
        """Persist and close; the loop has ended, or `leave_loop` has run there. settle: as `MessageStore.stop`."""
        if self.replication is not None:
            self.replication.stop()
        self.pull.close()
        self.delivery_events.stop()
        self.transaction_records.stop()
        self.registration.stop()
        if self.clients.attendance.knows_any:
            self.offsets.beside = lambda: self.standing_queues.save()
        self.offsets.stop()
        self._reset_journal.close()
        self.topics.stop()
        self.groups.stop()
        self.filters.stop()
        self.journal.stop()
        self.store.stop(settle)
        self.settled_delays.close()
        if "move_delayed" in self.__dict__:
            self.move_delayed.close()
        self.waiting_share.close()

    def forget(self) -> None:
        """Close the queue files of other threads, some time after `stop`, in a process that goes on. A late reader
        finds no queues then."""
        self.store.queues.close_others()

    def queues_failure(self) -> str | None:
        """Return the reason why the queue files cannot be written; None if they can."""
        return self.store._flush_queues.failure

    def health(self) -> dict[str, dict[str, object]]:
        """Return check -> its "ok" and "detail"."""
        log = self.store.log
        failures = {
            "store": log.broken,
            "queues": self.queues_failure(),
            "index": self.store.index.failure,
            "configuration": self.journal.failure or self.topics.failure or self.groups.failure,
            "offsets": self.offsets.failure,
            "filters": self.filters.failure,
            "replay": self._replays.failure,
            "timers": self.save_timers.failure or self.deliver_timers.failure or self.roll_timers.failure,
            "transactions": self.check_transactions.failure,
            "delays": self.save_delays.failure or self.deliver_delayed.failure,
        }
        return {name: {"ok": failure is None, "detail": failure or "well"} for name, failure in failures.items()}
