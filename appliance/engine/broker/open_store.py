"""The broker's store: its settings, made of the broker's, and its opening."""

from __future__ import annotations

import os

from ..config import BrokerConfig, EngineConfig, StoreConfig
from ..disk import Disk
from ..errors import StartError
from ..remoting.event_loop import EventLoop
from ..remoting.server import RemotingServer
from ..replication.acknowledged import ReplicatedPosition
from ..replication.roles import slaves_needed
from ..store.dispatch import parse_delay_levels
from ..store.message_store import MessageStore, StoreSettings
from ..store.paths import StorePaths
from ..store.queues.consume_queue_table import descriptors_below
from .role import Role


def store_settings(
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


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def open_store(
    config: EngineConfig, role: Role, loop: EventLoop, server: RemotingServer, store_host: bytes
) -> tuple[MessageStore, ReplicatedPosition | None]:
    """Return the recovered store, not started yet, and the position that its slaves have; None if it waits for none.

    Raises StartError; nothing stays open then.
    """
    assert role.is_member or role.position is None, "only the role of a member limits publication"
    own_dir = config.data_dir / "rocketbox"
    try:
        levels = parse_delay_levels(config.store.message_delay_level)
    except ValueError as error:
        raise StartError(f"{error}.") from None
    settings = store_settings(config.broker, config.store, levels, descriptors_below(server.descriptor_limit))
    paths = StorePaths(config.store_dir, own_dir)
    needed = 0 if role.is_member else slaves_needed(config.store)
    replicated = ReplicatedPosition(needed, lambda: store.watermark_moved()) if needed else None
    limit = replicated or role.position
    store = MessageStore(settings, paths, Disk(own_dir), loop, store_host, replicated=limit)
    store.on_pressure = server.hold_producers
    store.cleaner.options = config.store
    try:
        store.open()
        if replicated is not None:
            replicated.begin(store.log.written)
        store.disk.make_directory(paths.config)
    except BaseException as error:
        store.let_go()
        if isinstance(error, OSError):
            raise StartError(f"The store cannot be opened: {error}.") from None
        raise
    return store, replicated
