"""Wires the broker: builds its parts in order, registers the dispatch table, starts and stops them.

Everything here is construction; what the parts do is in their own files.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from ..clock import Clock
from ..config import EngineConfig, StoreConfig, broker_properties
from ..config_journal import ConfigJournal
from ..errors import StartError
from ..loop_calls import run_on_loop
from ..protocol.codes import RequestCode
from ..protocol.message_id import UniqueKeys, encode_host
from ..protocol.names import TEMPLATE_TOPIC
from ..remoting.connection import Connection
from ..remoting.dispatcher import Dispatcher, WorkerPool
from ..remoting.event_loop import EventLoop
from ..remoting.peer_requests import PeerRequests
from ..remoting.server import RemotingServer
from ..store.disk import Disk
from ..store.dispatch import parse_delay_levels
from ..store.message_store import MessageStore, StoreSettings
from ..store.paths import StorePaths
from ..store.queues.consume_queue_table import descriptors_below
from ..wire_gate import Act
from .cleaning_service import CleaningService
from .clients import ClientManager
from .durability import Durability
from .group_service import SubscriptionGroupService
from .groups import SubscriptionGroupManager
from .movements import SampledMovements
from .offsets import ConsumerOffsetManager
from .processors.admin_broker import AdminBrokerProcessor
from .processors.admin_clients import AdminClientsProcessor
from .processors.admin_groups import AdminGroupsProcessor
from .processors.admin_offsets import AdminOffsetsProcessor
from .processors.admin_progress import AdminProgressProcessor
from .processors.admin_topics import AdminTopicsProcessor
from .processors.cleaning import CleaningProcessor
from .processors.client import ClientProcessor
from .processors.consumer import ConsumerProcessor
from .processors.pull import PullProcessor
from .processors.query import QueryMessageProcessor
from .processors.queue_offsets import QueueOffsetProcessor
from .processors.send import SendAnswers, SendProcessor
from .processors.send_back import SendBackProcessor
from .queue_locks import RebalanceLockManager
from .registration import Registration
from .sampler import Sampler
from .sending.admission import SendAdmission
from .sending.own_appends import OwnAppends
from .sending.properties import SendProperties
from .sending.retry_policy import RetryPolicy
from .sending.send_path import SendPath
from .stats import SAMPLE_S, BrokerStats
from .topic_service import TopicService
from .topics import TopicConfigManager
from .wire_acts import broker_acts

logger = logging.getLogger(__name__)

#: The store's data may be larger than this share of the memory before reads count as cold.
_SCAN_EXPIRED_S = 10.0


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _month_start_ms(now_ms: int) -> int:
    now = time.localtime(now_ms / 1000)
    return int(time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1)) * 1000)


def _store_settings(store: StoreConfig, delay_levels_ms: list[int], queue_descriptors: int) -> StoreSettings:
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
        index_enabled=store.message_index_enable,
        index_slots=store.max_hash_slot_num,
        index_entries=store.max_index_num,
        queue_descriptors=queue_descriptors,
    )


class Processor(Protocol):
    """One family of requests."""

    def register(self, dispatcher: Dispatcher) -> None: ...


class RunningOptions(Protocol):
    """Where the options in force are kept and changed; `window.options.Options`."""

    @property
    def config(self) -> EngineConfig: ...

    def on_change(self, listener: Callable[[EngineConfig], None]) -> None: ...

    def change(self, values: Mapping[str, object], revision: str | None, dry_run: bool, by: str) -> object: ...


class Network(NamedTuple):
    """Where the broker is found, and whom it tells. address, ha_address: "host:port" as told to others."""

    address: str
    ha_address: str
    namesrvs: tuple[str, ...]

    @property
    def ip(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def store_host(self) -> bytes:
        """As records hold it."""
        return encode_host(self.ip, int(self.address.rpartition(":")[2]))


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
    ) -> None:
        # Constant after construction.
        self._loop = loop
        self._clock = clock
        self.address = network.address
        self._pools = pools
        self._cold_pool = pools.setdefault("pull-cold", WorkerPool("pull-cold", clock=clock))
        # Replaced whole by _take_options(), on the thread of the pool "admin".
        self._config = options.config
        self._open_store(server, network)
        self._load_tables(network)
        self._build_data_path(server, network)
        self._build_services(server)
        self._processors = self._make_processors(server, options)
        server.on_close(self._connection_closed)
        loop.at_tick_end(self.store.end_tick)
        loop.call_every(SAMPLE_S, self.stats.sample)
        loop.call_every(_SCAN_EXPIRED_S, self._scan_expired)
        options.on_change(self._take_options)

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
        settings = _store_settings(config.store, levels, descriptors_below(server.descriptor_limit))
        paths = StorePaths(config.store_dir, own_dir)
        self.store = MessageStore(settings, paths, Disk(own_dir), self._loop, network.store_host)
        self.store.on_pressure = server.hold_producers
        self.store.on_repaired = lambda queue: self.pull.long_polling.notify((queue,))
        self.store.cleaner.options = config.store
        self.store.cleaner.topic_hours = lambda: self.topics.reserve_hours()
        try:
            self.store.open()
            self.store.disk.make_directory(self._config_dir)
        except OSError as error:
            raise StartError(f"The store cannot be opened: {error}.") from None
        try:
            self.journal = ConfigJournal(own_dir / "config.journal", clock=self._clock)
        except OSError as error:
            raise StartError(f"{own_dir / 'config.journal'} cannot be opened: {error.strerror}.") from None
        # A message in a topic made for it is acknowledged when the topic's entry is durable, too.
        self.store.sync_first(self.journal.sync_written)

    def _load_tables(self, network: Network) -> None:
        """Topics, groups, offsets; who is connected; the name servers that are told. Raises StartError."""
        broker, directory, clock = self._config.broker, self._config_dir, self._clock
        self.topics = TopicConfigManager(directory / "topics.json", broker, self.journal, clock)
        self.groups = SubscriptionGroupManager(directory / "subscriptionGroup.json", broker, self.journal, clock)
        self.offsets = ConsumerOffsetManager(
            directory / "consumerOffset.json", lambda: self._config.broker.flush_consumer_offset_interval_ms, clock
        )
        self.clients = ClientManager(broker, self.groups, clock, self._loop.call_soon)
        self.locks = RebalanceLockManager(clock)
        self.registration = Registration(
            self._config,
            network.address,
            network.ha_address,
            network.namesrvs,
            self.topics,
            self.topics.take_orders,
            clock,
        )

    def _build_data_path(self, server: RemotingServer, network: Network) -> None:
        """What every message passes: send, pull, and the acknowledgement between them."""
        config, loop, host = self._config, self._loop, network.store_host
        broker = config.broker
        keys = UniqueKeys(host[:4], os.getpid(), hash(network.address), _month_start_ms(self._clock.wall_ms()))
        self.send_properties = SendProperties(broker.region_id, broker.cluster_name, broker.trace_on, keys)
        self.send_path = SendPath(
            self.store,
            SendAdmission(
                self.topics,
                self.store.queues,
                RetryPolicy(self.topics, self.groups, self.locks),
                lambda: self._config.broker.broker_permission,
            ),
            self.send_properties,
            config.store.max_message_size,
        )
        self.send_answers = SendAnswers(host, broker.region_id, broker.trace_on)
        self.send = SendProcessor(
            self.send_path, self.send_answers, self.send_path.runs(loop, self.topics, self.send_answers)
        )
        self.own_appends = OwnAppends(self.store, self.topics.get, loop.call_soon, lambda: loop.alive)
        self.pull = PullProcessor(
            self.store,
            self.topics,
            self.groups,
            self.clients,
            self.offsets,
            config.broker,
            loop,
            self._cold_pool,
            network.ip,
            server.flush_dirty,
        )
        self.durability = Durability(
            self.store,
            loop,
            lambda: self._config.store.sync_flush_timeout_ms,
            self.pull.long_polling.notify,
        )

    def _build_services(self, server: RemotingServer) -> None:
        """What wire and window both ask."""
        self.stats = BrokerStats(self.store, self.pull, server, self._pools, self._clock)
        self.sampler = Sampler(self.store, self.offsets, self.pull)
        self.topic_service = TopicService(self.topics, self.offsets, self.store, self.registration)
        self.group_service = SubscriptionGroupService(self.groups, self.offsets)
        self.cleaning = CleaningService(self.store, self.topics)

    def _make_processors(self, server: RemotingServer, options: RunningOptions) -> list[Processor]:
        config, loop, clock = self._config, self._loop, self._clock
        name = config.broker.broker_name
        self._query = QueryMessageProcessor(self.store, config.broker, config.store)
        progress = AdminProgressProcessor(
            self.store,
            self.topics,
            self.groups,
            self.offsets,
            self.clients,
            name,
            self.address,
            clock,
            SampledMovements(self.sampler),
        )
        self._admin_broker = AdminBrokerProcessor(
            config,
            self.stats,
            self.address,
            clock,
            self.topics,
            lambda values, by: options.change(values, None, False, by),
        )
        return [
            self.send,
            self.pull,
            QueueOffsetProcessor(self.store),
            self._query,
            ClientProcessor(self.clients, self.groups, self.topics, loop.call_soon),
            ConsumerProcessor(self.store, self.topics, self.groups, self.offsets, self.locks),
            SendBackProcessor(),
            AdminTopicsProcessor(self.topics, self.topic_service),
            AdminGroupsProcessor(self.groups, self.group_service),
            self._admin_broker,
            CleaningProcessor(self.cleaning),
            progress,
            AdminClientsProcessor(
                self.clients,
                self.groups,
                PeerRequests(loop, server),
                loop,
                name,
                lambda physical: found.data if (found := self.store.records.get(physical)) else None,
            ),
            AdminOffsetsProcessor(
                self.store,
                self.topics,
                self.groups,
                self.offsets,
                self.clients,
                self.pull.long_polling,
                loop,
                name,
            ),
        ]

    def _take_options(self, config: EngineConfig) -> None:
        """Hand the options that were changed to every part that keeps some; durable when it returns."""
        before, self._config = self._config, config
        broker, store = config.broker, config.store
        self.topics.take_options(broker)
        self.groups.take_options(broker)
        self.clients.take_options(broker)
        self.registration.take_options(broker)
        self.pull.take_options(broker)
        self._query.take_options(broker, store)
        settings = self.store.settings
        self.store.settings = _store_settings(store, settings.delay_levels_ms, settings.queue_descriptors)
        self.store.cleaner.options = store
        self._loop.call_soon(lambda: self._take_send_options(broker.trace_on, store.max_message_size))
        self.offsets.save_soon()
        if broker.auto_create_topic_enable and self.topics.get(TEMPLATE_TOPIC) is None:
            self.topics.wait_durable(self.topics.add_template())
        if broker.broker_permission != before.broker.broker_permission:
            # Name servers are told of all topics, with the permission the broker has now.
            self.topics.wait_durable(self.topics.touch())
            self.registration.register_all()
        self._admin_broker.take_options(config)

    def _take_send_options(self, trace_on: bool, max_message_size: int) -> None:
        """On remoting-io."""
        self.send_path.max_message_size = max_message_size
        self.send_properties.take_trace(trace_on)
        self.send_answers.take_trace(trace_on)
        self.send.take_options()

    def wire_acts(self) -> dict[int, Act]:
        """How each administrative request looks in the audit log."""
        return broker_acts(self.topics, self.groups, self.offsets, lambda: broker_properties(self._config))

    def register(self, dispatcher: Dispatcher) -> Dispatcher:
        """Fill the main port's table; returns the VIP port's, which serves no pulls."""
        for processor in self._processors:
            processor.register(dispatcher)
        return dispatcher.without(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)

    def start(self) -> None:
        """Start the threads behind the broker; the loop runs already."""
        self.journal.start()
        self.offsets.start()
        self.topics.start()
        self.groups.start()
        self.store.start()
        self.sampler.start()
        self.registration.start()

    def _connection_closed(self, conn: Connection) -> None:
        self.pull.long_polling.forget(conn)
        self.clients.on_close(conn)

    def _scan_expired(self) -> None:
        self.clients.scan_expired()
        self._cold_pool.submit(lambda: self.offsets.pulled.trim(self.groups.get))

    # --- stopping, in the order the engine calls it

    def unregister(self, deadline_s: float) -> None:
        """Stop counting, and tell the name servers, so that clients stop coming."""
        self.sampler.stop(2.0)
        self.registration.unregister(deadline_s)

    def answer_everything(self, deadline_s: float) -> None:
        """Answer parked pulls, and wait until every stored message was acknowledged."""
        self._loop.call_soon(self.pull.long_polling.release_all)
        end = self._clock.monotonic() + deadline_s
        quiet: list[bool] = []

        def look() -> None:
            quiet[:] = [not self.store.pending and self.store.tick.last_offset < 0]

        while self._clock.monotonic() < end:
            if run_on_loop(self._loop.call_soon, look, lambda: self._clock.monotonic() >= end) and quiet == [True]:
                return
            time.sleep(0.01)
        logger.warning("broker: stopping with unacknowledged messages")

    def stop(self) -> None:
        """Persist and close; the loop has ended."""
        self.pull.close()
        self.registration.stop()
        self.offsets.stop()
        self.topics.stop()
        self.groups.stop()
        self.journal.stop()
        self.store.stop()

    def queues_failure(self) -> str | None:
        """Why the queue files cannot be written, if so."""
        return self.store._flush_queues.failure

    def health(self) -> dict[str, dict[str, object]]:
        """Check -> ok and detail."""
        log = self.store.log
        failures = {
            "store": log.broken,
            "queues": self.queues_failure(),
            "index": self.store.index.failure,
            "configuration": self.journal.failure or self.topics.failure or self.groups.failure,
            "offsets": self.offsets.failure,
        }
        return {name: {"ok": failure is None, "detail": failure or "well"} for name, failure in failures.items()}
