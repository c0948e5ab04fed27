"""Replication by a broker's settings: does it take slaves, how many must have a message, what guards connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config import StoreConfig
from ..named_tuple import NamedTuple

if TYPE_CHECKING:
    from ..remoting.client import Connect
    from ..tls.between_brokers import BetweenBrokers


def takes_slaves(config: StoreConfig) -> bool:
    """True if a broker listens for slaves: it waits for them, or has a port for them, or may lead a set."""
    listens = config.ha_listen_port > 0 or bool(config.ha_store)
    return config.broker_role == "SYNC_MASTER" or (config.broker_role == "ASYNC_MASTER" and listens)


def slaves_needed(config: StoreConfig) -> int:
    """Return the number of slaves that must have a message before it is acknowledged and shown to consumers.
    inSyncReplicas counts the master; unless it is set, a sync master waits for one slave."""
    return (config.in_sync_replicas or 2) - 1 if config.broker_role == "SYNC_MASTER" else 0


class Guard(NamedTuple):
    """Proof and encryption of the connections for the log: each end knows the other, and others cannot read it.

    secret: the content of haSecretFile; empty without one. tls: None if tlsMode is disabled."""

    secret: bytes = b""
    tls: BetweenBrokers | None = None

    @property
    def calls_by(self) -> BetweenBrokers | None:
        """TLS for connections that are made here; None if they are plain."""
        return self.tls if self.tls is not None and self.tls.is_required else None

    @property
    def connect(self) -> Connect | None:
        """The function that opens a `RemotingClient`'s connections to another broker; None: it opens plain ones."""
        tls = self.calls_by
        return None if tls is None else tls.connect


#: Neither secret nor TLS.
NO_GUARD = Guard()
