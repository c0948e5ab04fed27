"""Assembles the broker: makes its subjects in order, registers the dispatch table, starts and stops them.

A subject, such as `delays/delays.py`, makes its own parts; what the parts do is in their own files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..config import EngineConfig, broker_properties
from ..errors import RefusedRequest
from ..loop_calls import run_on_loop
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.names import TEMPLATE_TOPIC
from ..remoting.connection import Connection
from ..remoting.dispatcher import Dispatcher, WorkerPool
from ..remoting.event_loop import EventLoop, Timer
from ..remoting.peer_requests import PeerRequests
from ..remoting.server import RemotingServer
from ..service_thread import ServiceThread
from ..wire_gate import Act
from .clients import ClientManager
from .delays.delays import Delays
from .deliveries.service import PERIOD_S as HAND_OVER_S
from .deliveries.service import Deliveries
from .durability import Durability
from .group_service import SubscriptionGroupService
from .late_replays import LateReplays
from .member_questions import MemberQuestions
from .offset_resets.service import OffsetResets
from .open_store import open_store, store_settings
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
from .processors.send_back import SendBackProcessor
from .processors.slave_tables import SlaveTablesProcessor
from .processors.transaction import TransactionProcessor
from .promotion import cut_offsets
from .queue_locks import RebalanceLockManager
from .registration import Network, Registration
from .replication import NOT_CONFIRMED, ha_status, refuse_changes, refuse_pulls, slave_wait
from .requested_cleaning import RequestedCleaning
from .role import Kind, Role, role_of
from .sampler import SampledMovements, Sampler
from .sending.sending import Sending
from .stats import SAMPLE_S, BrokerStats
from .tables import Tables
from .timers.apache_files import checkpoint_answer
from .timers.timers import Timers
from .topic_config import TopicConfig
from .topic_places import TopicPlacesProcessor
from .topic_service import TopicService
from .transactions.transactions import Transactions
from .waiting_share import WaitingShare
from .wire_acts import broker_acts

if TYPE_CHECKING:
    from ..replication.master import ReplicationServer
    from .clean_up import CleanUpService
    from .deleted_unread import DeletedUnreadTable
    from .replay.service import ReplayService
    from .slave_side import SlaveSide
    from .standing_queues import StandingQueues

logger = logging.getLogger(__name__)

#: A file in RocketBox's own directory; docs/formats/standing-queues.md.
STANDING_QUEUES = "standing-queues.json"
#: File of `Followed`, of a broker that is or was a plain slave.
FOLLOWED = "followed.json"
#: Period of `_scan_expired`: it closes silent connections and drops old filters and pull offsets.
_SCAN_EXPIRED_S = 10.0
#: The answer to a pull that comes after this broker has ended.
_ENDED = RefusedRequest(ResponseCode.SYSTEM_BUSY, "this broker changes its role")


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


class Broker:
    """One broker: store, tables, processors. Built on the main thread, serves on remoting-io."""

    def __init__(
        self,
        options: RunningOptions,
        loop: EventLoop,
        server: RemotingServer,
        pools: dict[str, WorkerPool],
        network: Network,
        role: Role | None = None,
    ) -> None:
        """role: given for a member of a set that fails over; otherwise it follows from the settings. Raises StartError;
        nothing stays open then. The loop may run already; nothing of the broker is on it before `join_loop`."""
        # Constant after construction.
        self.role = role or role_of(options.config)
        self._loop = loop
        self._server = server
        self._options = options
        self._clock = loop.clock
        self.address = network.address
        self.ha_address = network.ha_address
        self.ties = network.ties
        self._pools = pools
        self._cold_pool = pools.setdefault("pull-cold", WorkerPool("pull-cold", clock=loop.clock))
        self._filter_pool = pools.setdefault("pull-filter", WorkerPool("pull-filter", clock=loop.clock))
        # Replaced whole by _take_options(), on the thread of the pool "admin".
        self._config = options.config
        #: The threads that bring a member of a set its log and its tables. `failover/brokers.py` sets and starts them.
        self.member_threads: tuple[ServiceThread, ...] = ()
        #: Returns True while a member of a set follows a leader. Set with them.
        self.has_leader: Callable[[], bool] = lambda: False
        # Owned by remoting-io.
        self._timers: list[Timer] = []
        # Set once, by any thread.
        self._fenced = False
        try:
            self._build_tables(network)
            self._build_data_path(network)
            self._build_services()
            self.replication = self._master_side(network)
            self.follower = self._slave_side() if self.role.kind is Kind.SLAVE else None
            if self.role.is_member and not self.role.appends:
                self.store.log.refuse(self.role.no_sends, "role")
            self._processors = self._make_processors(network)
        except BaseException:
            self._let_go()
            raise

    def join_loop(self) -> None:
        """Put the broker on the loop: from here on the loop ends its ticks, and its timers run. On remoting-io, or
        before it runs."""
        assert not self._timers, "a broker joins the loop once"
        loop = self._loop
        self._server.on_close(self._connection_closed)
        loop.put_first(self.transactions.decisions.end_tick, self.store.end_tick)
        self._timers = [
            loop.call_every(SAMPLE_S, self.stats.sample),
            loop.call_every(_SCAN_EXPIRED_S, self._scan_expired),
            loop.call_every(HAND_OVER_S, self.deliveries.recorder.hand_over),
            *self.durability.begin(),
        ]
        if self.role.appends:  # a slave knows of no open half, and would pass all of them over
            self._timers += self.transactions.check.begin()
        self._options.on_change(self._take_options)

    def leave_loop(self) -> None:
        """Take the broker off the loop, so that nothing of it runs there from now on. On remoting-io, after the last
        request was answered and no other can come."""
        self._options.forget(self._take_options)
        for timer in self._timers:
            timer.cancel()
        self._loop.drop_hooks(self.transactions.decisions.end_tick, self.store.end_tick)
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
            ("delays", "close"),
            ("offset_resets", "close"),
            ("tables", "let_go"),
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

        return master_side(
            self.store, self._config.store, network.ha_socket, self.replicated, self._clock, self.ties.guard
        )

    def _slave_side(self) -> SlaveSide:
        """Return the part that follows the master. Nothing that appends by itself runs on a slave."""
        from .slave_side import SlaveSide

        return SlaveSide(
            self.store,
            self._config.store,
            self.registration,
            self.tables,
            self._loop,
            self.role,
            self.delays.settled,
            self.store.paths.own / FOLLOWED,
            self.ties,
        )

    def _build_tables(self, network: Network) -> None:
        """Open the store, load the tables, and make what is known of clients. Raises StartError."""
        role, loop, clock, options = self.role, self._loop, self._clock, lambda: self._config
        self.store, self.replicated = open_store(self._config, role, loop, self._server, network.store_host)
        store = self.store
        self.tables = tables = Tables(store, options, not role.appends, clock)
        self.topics, self.groups, self.offsets = tables.topics, tables.groups, tables.offsets
        store.on_repaired = lambda queue: self.pull.long_polling.notify((queue,))
        store.cleaner.topic_hours = self.topics.reserve_hours
        store.cleaner.on_raised.append(lambda raised: self.deleted_unread.deleted(raised))
        store.begin_queues(config.topic_name for config in self.topics.all())
        self.topics.on_change.append(self._begin_queues)
        self.clients = ClientManager(self._config.broker, self.groups, clock, loop.call_soon, tables.filters)
        self.locks = RebalanceLockManager(clock)
        self.clients.on_consumer = self.locks.came_back
        self.clients.on_consumer_gone = self._consumer_gone
        self.registration = Registration(
            self._config.broker, network, self.topics, self.topics.take_orders, clock, role.registered_as
        )

    def _begin_queues(self, changed: list[TopicConfig]) -> None:
        """Begin queues of topics that were made or changed, where deleted topics of their names ended. Any thread."""
        names = [config.topic_name for config in changed]
        if self.store.queues.begins:
            self._loop.call_soon(lambda: self.store.begin_queues(names))

    def _build_data_path(self, network: Network) -> None:
        """Build what every message passes: send, what lets it wait, pull, and the acknowledgement between them."""
        store, loop, role, options = self.store, self._loop, self.role, lambda: self._config
        self.sending = sending = Sending(store, self.tables, self.locks, loop, network, options, role)
        self.delays = delays = Delays(store, sending, self.topics, self._members_lack, self._clock)
        self.timers = timers = Timers(store, sending, self.topics, loop, options)
        left_ms = delays.deliver.left_until_ms
        self.transactions = Transactions(store, sending, self.tables, self.clients, loop, options, left_ms)
        self.waiting_share = share = WaitingShare(
            store,
            lambda: timers.index.bytes,
            delays.deliver.levels,
            delays.progress.of,
            self.transactions.open_now,
            store.cleaner.wakeup,
            self._clock,
        )
        sending.path.no_waiting = share.refusal_of_sends
        if role.appends:
            for subject in (delays, timers, self.transactions):
                subject.join_store()
            store.cleaner.on_looked.append(share.look)
        else:
            store.cleaner.keepers.append(store.cleaner.leaders_needs.keep)
        self.deliveries = Deliveries(store, loop, options)
        self.pull = PullProcessor(
            store,
            self.tables,
            self.clients,
            self._config.broker,
            loop,
            self._pools,
            network.host,
            self._server.flush_dirty,
            self.deliveries.recorder,
        )
        self.pull.refuse_all(refuse_pulls(role, self._config.broker))
        self.tables.filters.on_change = self.pull.answer_held
        self.durability = Durability(
            store,
            loop,
            lambda: self._config.store.sync_flush_timeout_ms,
            self.pull.long_polling.notify,
            slave_wait(self._config.store, role),
        )

    def _build_services(self) -> None:
        """Build the services that wire and window share."""
        store, tables, loop, clock = self.store, self.tables, self._loop, self._clock
        self.stats = BrokerStats(
            store, self.pull, self._server, self._pools, self.delays.deliver, self.timers.deliver, clock
        )
        self.sampler = Sampler(store, self.offsets, self.pull)
        if store.disk.exists(store.paths.own / STANDING_QUEUES):
            self.standing_queues.load()
        self.offsets.beside = self._save_standing_queues
        self.topic_service = TopicService(self.topics, self.offsets, store, self.registration, clock)
        self.topic_service.is_group = lambda name: self.groups.get(name) is not None
        self.group_service = SubscriptionGroupService(self.groups, self.offsets, self.topic_service)
        self.cleaning = RequestedCleaning(store, self.topics)
        self._replays = LateReplays(store.paths.own / "replay", store.disk, self._make_replays)
        self.offset_resets = OffsetResets(
            store, tables, self.clients, self.pull.long_polling, loop, self._config.broker.broker_name
        )
        self.offset_resets.tell_members = self.topic_service.tell_members
        self.offset_resets.restore(asks=self.role.kind is Kind.MASTER)
        # After `restore`: a moved offset may lie behind the end of its queue as well.
        if self.role.kind is Kind.MASTER:
            if store.disk.exists(store.paths.own / FOLLOWED):
                from .followed import settle_former_slave

                settle_former_slave(store.paths.own / FOLLOWED, store, self.topics, self.offsets)
            else:
                cut_offsets(store, self.offsets)

    # --- what few brokers need, or only their administrators; loaded and made at the first use

    @property
    def replays(self) -> ReplayService:
        """The service of replay jobs. Any thread."""
        return self._replays.service()

    def _make_replays(self, directory: Path) -> ReplayService:
        from .replay.service import ReplayService

        appends = self.sending.appends
        return ReplayService(directory, self.store, appends, self.topics, self.groups, self._clock)

    @cached_property
    def deleted_unread(self) -> DeletedUnreadTable:
        """The table of messages that retention deleted before groups had consumed them. Any thread."""
        from .deleted_unread import NAME, DeletedUnreadTable

        path = self.store.paths.own / NAME
        return DeletedUnreadTable(path, self.store.disk, self.offsets.all, self._clock.wall_ms)

    def _members_lack(self) -> str:
        """Wait until all members that may lead next know what was done; return why they do not, or ""."""
        try:
            self.topic_service.tell_members("done")
        except RefusedRequest:
            return "not all members of the set know it yet"
        return ""

    @cached_property
    def clean_up(self) -> CleanUpService:
        from .clean_up import CleanUpService

        return CleanUpService(
            self.tables,
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

    def _make_processors(self, network: Network) -> list[Processor]:
        loop, clock, tables, share = self._loop, self._clock, self.tables, self.waiting_share
        sending, timers, transactions = self.sending, self.timers, self.transactions
        config = self._config
        name = config.broker.broker_name
        peers = self._peers = PeerRequests(loop, self._server)
        self.member_questions = MemberQuestions(
            self.clients,
            self.groups,
            peers,
            loop,
            name,
            lambda physical: found.data if (found := self.store.records.get(physical)) else None,
        )
        records = ColdRecords(self.store.records, self._cold_pool, loop)
        self._query = QueryMessageProcessor(self.store, config.broker, config.store)
        self._client = ClientProcessor(
            self.clients, self.groups, self.topics, loop.call_soon, self._filter_pool, config.broker
        )
        movements = SampledMovements(self.sampler, sending.send_backs)
        self._admin_broker = AdminBrokerProcessor(
            config,
            self.stats,
            self.address,
            clock,
            self.topics,
            lambda values, by: self._options.change(values, None, False, by),
        )
        self._admin_broker.ha_status = lambda: ha_status(
            self.store, self.replication, self.follower, not self.role.appends
        )
        topics = AdminTopicsProcessor(self.topics, self.topic_service)
        return [
            sending.processor,
            ReplyProcessor(
                sending.path,
                sending.answers,
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
            SendBackProcessor(sending.send_back(share.refusal_of_retries), records, clock),
            TransactionProcessor(transactions.decisions, transactions.check, records, clock.monotonic),
            RecallProcessor(timers.recalls(share.refusal_of_recalls), config.broker.region_id),
            topics,
            TopicPlacesProcessor(
                self.store,
                lambda: self.topic_service.changes,
                topics.document,
                self.delays.settled.added_since,
            ),
            AdminGroupsProcessor(self.groups, self.group_service),
            self._admin_broker,
            CleaningProcessor(self.cleaning),
            SlaveTablesProcessor(
                self.delays.progress.durable_text,
                lambda: checkpoint_answer(*timers.save.checkpoint(), clock.wall_ms()),
                timers.save.done,
                clock.wall_ms,
            ),
            ResumeHalfProcessor(lambda: transactions.resume),
            AdminProgressProcessor(self.store, tables, self.clients, name, self.address, clock, movements),
            AdminClientsProcessor(self.clients, peers, self.member_questions, loop),
            AdminOffsetsProcessor(
                self.offset_resets,
                tables,
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
        self.tables.take_options(broker)
        self.clients.take_options(broker)
        self._client.take_options(broker)
        self.registration.take_options(broker)
        self.pull.take_options(broker)
        self._query.take_options(broker, store)
        settings = self.store.settings
        self.store.settings = store_settings(broker, store, settings.delay_levels_ms, settings.queue_descriptors)
        self.store.cleaner.options = store
        self.timers.take_options(store)
        self._loop.call_soon(lambda: self.sending.take_options(broker, store.max_message_size))
        self.deliveries.recorder.switch(store.max_delivery_event_bytes > 0)
        self.offsets.save_soon()
        if broker.auto_create_topic_enable and self.topics.get(TEMPLATE_TOPIC) is None:
            self.topics.wait_durable(self.topics.add_template())
        if broker.broker_permission != before.broker.broker_permission:
            # All topics are registered again, with the permission that the broker has now.
            self.topics.wait_durable(self.topics.touch())
            self.registration.register_all()
        self._admin_broker.take_options(config)

    def who_changes(self) -> str:
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
            refuse_changes(dispatcher, self.who_changes, lambda: self.follower is not None or self.has_leader())
        return dispatcher.without(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)

    def start(self) -> None:
        """Start the threads behind the broker; the loop runs already."""
        self.tables.start()
        self.store.start()
        self.sampler.start()
        self.deliveries.service.start()
        self._replays.start(self.role.appends)
        if self.role.appends:
            self.transactions.start()
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
        self.tables.filters.clean()
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
            self.delays.deliver,
            self.timers.deliver,
            self.transactions.check,
        )
        for thread in working:  # all at once, then one after the other
            thread.request_stop()
        for thread in self.member_threads:
            thread.stop(2.0)
        self.sampler.stop(2.0)
        self._replays.stop(2.0)
        self.delays.deliver.stop(2.0)
        self.timers.deliver.stop(2.0)
        self.transactions.check.stop(2.0)
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
        self.deliveries.service.stop()
        self.transactions.records.stop()
        self.registration.stop()
        if self.clients.attendance.knows_any:
            self.offsets.beside = lambda: self.standing_queues.save()
        self.tables.stop()
        self.offset_resets.close()
        self.store.stop(settle)
        self.delays.close()
        self.waiting_share.close()

    def forget(self) -> None:
        """Close the queue files of other threads, some time after `stop`, in a process that goes on. A late reader
        finds no queues then."""
        self.store.queues.close_others()

    def failures(self) -> dict[str, str | None]:
        """Return part -> why it cannot do its work now; None while it can."""
        return {
            "store": self.store.log.broken,
            "queues": self.store._flush_queues.failure,
            "index": self.store.index.failure,
            "configuration": self.tables.journal.failure,
            "topics": self.tables.topics.failure,
            "groups": self.tables.groups.failure,
            "offsets": self.offsets.failure,
            "filters": self.tables.filters.failure,
            "replay": self._replays.failure,
            "timers": self.timers.save.failure,
            "timed": self.timers.deliver.failure,
            "rolled": self.timers.roll.failure,
            "transactions": self.transactions.check.failure,
            "delays": self.delays.save.failure,
            "delayed": self.delays.deliver.failure,
        }
