"""The server for the slaves that follow this broker, made only if there is a socket for them."""

from __future__ import annotations

import socket

from ..clock import Clock
from ..config import StoreConfig, parse_networks
from ..replication.acknowledged import ReplicatedPosition
from ..replication.master import ReplicationServer
from ..replication.roles import Guard
from ..replication.slave_link import LinkSettings
from ..store.message_store import MessageStore


def master_side(
    store: MessageStore,
    config: StoreConfig,
    sock: socket.socket,
    replicated: ReplicatedPosition | None,
    clock: Clock,
    guard: Guard,
) -> ReplicationServer:
    """Return the server for the slaves that connect to this socket."""
    server = ReplicationServer(sock, store, link_settings(config), replicated, clock, guard=guard)
    store.on_kept = server.log_grew
    return server


def link_settings(config: StoreConfig) -> LinkSettings:
    return LinkSettings(
        heartbeat_s=config.ha_send_heartbeat_interval_ms / 1000,
        silence_s=config.ha_housekeeping_interval_ms / 1000,
        batch_bytes=config.ha_transfer_batch_size,
        bytes_per_s=config.max_ha_transfer_bytes_per_s if config.ha_flow_control_enable else 0,
        from_last_file=config.sync_from_last_file,
        late_s=config.ha_max_ack_delay_ms / 1000,
        allowed=parse_networks(config.ha_slave_addresses),
    )
