"""Consequences of a broker's role: does it take slaves, and how many must have a message."""

from __future__ import annotations

from ..config import StoreConfig


def takes_slaves(config: StoreConfig) -> bool:
    """True if a broker listens for slaves: it waits for them, or has a port for them, or may lead a set."""
    listens = config.ha_listen_port > 0 or bool(config.ha_store)
    return config.broker_role == "SYNC_MASTER" or (config.broker_role == "ASYNC_MASTER" and listens)


def slaves_needed(config: StoreConfig) -> int:
    """Return the number of slaves that must have a message before it is acknowledged and shown to consumers.
    inSyncReplicas counts the master; unless it is set, a sync master waits for one slave."""
    return (config.in_sync_replicas or 2) - 1 if config.broker_role == "SYNC_MASTER" else 0
