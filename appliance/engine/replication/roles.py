"""What a broker's role in its set means."""

from __future__ import annotations

from ..config import StoreConfig


def takes_slaves(config: StoreConfig) -> bool:
    """Whether a broker listens for slaves: when a port was named for them, it waits for them, or may lead a set."""
    listens = config.ha_listen_port > 0 or bool(config.ha_store)
    return config.broker_role == "SYNC_MASTER" or (config.broker_role == "ASYNC_MASTER" and listens)


def slaves_needed(config: StoreConfig) -> int:
    """How many slaves must have a message before it is acknowledged and consumers see it. inSyncReplicas counts the
    master; unless it says otherwise, a sync master waits for one slave."""
    return (config.in_sync_replicas or 2) - 1 if config.broker_role == "SYNC_MASTER" else 0
