"""Wires the broker: builds its parts in order, registers the dispatch table, starts and stops them.

Everything here is construction; what the parts do is in their own files.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Protocol

from ..clock import Clock
from ..config import EngineConfig, StoreConfig, broker_properties
from ..config_journal import ConfigJournal
from ..errors import StartError
from ..host_port import split_host_port
from ..loop_calls import run_on_loop
from ..protocol.codes import RequestCode
from ..protocol.message_id import UniqueKeys, encode_host
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
from .clients import ClientManager
from .durability import Durability
from .groups import SubscriptionGroupManager
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
from .sending.admission import SendAdmission
from .sending.own_appends import OwnAppends
from .sending.properties import SendProperties
from .sending.retry_policy import RetryPolicy
from .sending.send_path import SendPath
from .stats import SAMPLE_S, BrokerStats
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


class Broker:
    """One broker: store, tables, processors. Built on the main thread, serves on remoting-io."""

    def __init__(
        self,
        config: EngineConfig,
        loop: EventLoop,
        server: RemotingServer,
        pools: dict[str, WorkerPool],
        address: str,
        ha_address: str,
        namesrv_addrs: tuple[str, ...],
        clock: Clock,
    ) -> None:
        broker, store = config.broker, config.store
        ip, port = split_host_port(address)
        store_host = encode_host(ip, port)
        try:
            levels = parse_delay_levels(store.message_delay_level)
        except ValueError as error:
            raise StartError(f"{error}.") from None
        own_dir = config.data_dir / "rocketbox"
        settings = _store_settings(store, levels, descriptors_below(server.descriptor_limit))
        config_dir = config.store_dir / "config"
        self._loop = loop
        self._clock = clock
        self._config = config
        self.address = address
        disk = Disk()
        disk.private = own_dir
        self.store = MessageStore(settings, StorePaths(config.store_dir, own_dir), disk, loop, store_host)
        self.store.on_pressure = server.hold_producers
        self.store.on_repaired = lambda queue: self.pull.long_polling.notify((queue,))
        self.store.cleaner.options = store
        self._open_store(config_dir)

        try:
            self.journal = ConfigJournal(own_dir / "config.journal", clock=clock)
        except OSError as error:
            raise StartError(f"{own_dir / 'config.journal'} cannot be opened: {error.strerror}.") from None
        # A message in a topic made for it is acknowledged when the topic's entry is durable, too.
        self.store.sync_first(self.journal.sync_written)
        self.topics = TopicConfigManager(config_dir / "topics.json", broker, self.journal, clock)
        self.store.cleaner.topic_hours = self.topics.reserve_hours
        self.groups = SubscriptionGroupManager(config_dir / "subscriptionGroup.json", broker, self.journal, clock)
        self.offsets = ConsumerOffsetManager(
            config_dir / "consumerOffset.json", lambda: broker.flush_consumer_offset_interval_ms, clock
        )
        self.clients = ClientManager(broker, self.groups, clock, loop.call_soon)
        self.locks = RebalanceLockManager(clock)
        self.registration = Registration(
            config, address, ha_address, namesrv_addrs, self.topics, self.topics.take_orders, clock
        )
        keys = UniqueKeys(store_host[:4], os.getpid(), hash(address), _month_start_ms(clock.wall_ms()))
        self.send_properties = SendProperties(broker.region_id, broker.cluster_name, broker.trace_on, keys)
        self.send_path = SendPath(
            self.store,
            SendAdmission(
                self.topics,
                self.store.queues,
                RetryPolicy(self.topics, self.groups, self.locks),
                lambda: broker.broker_permission,
            ),
            self.send_properties,
            store.max_message_size,
        )
        self.send_answers = SendAnswers(store_host, broker.region_id, broker.trace_on)
        self.send = SendProcessor(self.send_path, self.send_answers)
        self._cold_pool = pools.setdefault("pull-cold", WorkerPool("pull-cold", clock=clock))
        self.pull = PullProcessor(
            self.store,
            self.topics,
            self.groups,
            self.clients,
            self.offsets,
            broker,
            loop,
            self._cold_pool,
            ip,
            server.flush_dirty,
        )
        self.durability = Durability(
            self.store,
            loop,
            lambda: store.sync_flush_timeout_ms,
            self.pull.long_polling.notify,
        )
        self.own_appends = OwnAppends(self.store, self.topics.get, loop.call_soon, lambda: loop.alive)
        self.stats = BrokerStats(self.store, self.pull.answers, server, pools, clock)
        self.admin_topics = AdminTopicsProcessor(self.topics, self.offsets, self.store, self.registration)
        self.admin_groups = AdminGroupsProcessor(self.groups, self.offsets)
        self.admin_broker = AdminBrokerProcessor(config, self.stats, address, clock, self.topics)
        self.admin_progress = AdminProgressProcessor(
            self.store, self.topics, self.groups, self.offsets, self.clients, broker.broker_name, address, clock
        )
        self.cleaning = CleaningProcessor(self.store, self.topics)
        self._processors: list[Processor] = [
            self.send,
            self.pull,
            QueueOffsetProcessor(self.store),
            QueryMessageProcessor(self.store, broker, store),
            ClientProcessor(self.clients, self.groups, self.topics, loop.call_soon),
            ConsumerProcessor(self.store, self.topics, self.groups, self.offsets, self.locks),
            SendBackProcessor(),
            self.admin_topics,
            self.admin_groups,
            self.admin_broker,
            self.cleaning,
            self.admin_progress,
            AdminClientsProcessor(
                self.clients,
                self.groups,
                PeerRequests(loop, server),
                loop,
                broker.broker_name,
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
                broker.broker_name,
            ),
        ]
        server.on_close(self._connection_closed)
        loop.at_tick_end(self.store.end_tick)
        loop.call_every(SAMPLE_S, self.stats.sample)
        loop.call_every(_SCAN_EXPIRED_S, self._scan_expired)

    def take_options(self, store: StoreConfig) -> None:
        """Options were changed: make anew what was made of them. Everything else is read at each use. Any thread."""
        before = self.store.settings
        self.store.settings = _store_settings(store, before.delay_levels_ms, before.queue_descriptors)
        self._loop.call_soon(lambda: self._take_send_options(store.max_message_size, self._config.broker.trace_on))
        self.offsets.save_soon()

    def _take_send_options(self, max_message_size: int, trace_on: bool) -> None:
        """On remoting-io."""
        self.send_path.max_message_size = max_message_size
        self.send_properties.take_trace(trace_on)
        self.send_answers.take_trace(trace_on)

    def _open_store(self, config_dir: Path) -> None:
        try:
            self.store.open()
            self.store.disk.make_directory(config_dir)
        except OSError as error:
            raise StartError(f"The store cannot be opened: {error}.") from None

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
        self.registration.start()

    def _connection_closed(self, conn: Connection) -> None:
        self.pull.long_polling.forget(conn)
        self.clients.on_close(conn)

    def _scan_expired(self) -> None:
        self.clients.scan_expired()
        self._cold_pool.submit(lambda: self.offsets.pulled.trim(self.groups.get))

    # --- stopping, in the order the engine calls it

    def unregister(self, deadline_s: float) -> None:
        """Tell the name servers, so that clients stop coming."""
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

    def health(self) -> dict[str, dict[str, object]]:
        """Check -> ok and detail."""
        log = self.store.log
        queues = self.store._flush_queues
        failures = {
            "store": log.broken,
            "queues": queues.failure,
            "index": self.store.index.failure,
            "configuration": self.journal.failure or self.topics.failure or self.groups.failure,
            "offsets": self.offsets.failure,
        }
        return {name: {"ok": failure is None, "detail": failure or "well"} for name, failure in failures.items()}
