"""Everything that can stand beside each other in the tables of run.py, and how it is made."""

from __future__ import annotations

from pathlib import Path

from bench import servers
from bench.others import NATS, REDIS, RIG, NatsServer, OneProcess, RedisServer, RigServer
from bench.servers import APACHES, PURE, ROCKETBOX, Server

# Brokers of the same protocol, which take every row; the others only those where they do something alike.
BROKERS = (ROCKETBOX, PURE, *APACHES)
COLUMNS = (*BROKERS, NATS, REDIS, RIG)
TITLES = {**servers.TITLES, NATS: "NATS JetStream", REDIS: "Redis stream", RIG: "C, parse and reply"}

_OTHERS: dict[str, type[OneProcess]] = {NATS: NatsServer, REDIS: RedisServer, RIG: RigServer}


def make_column(label: str, flush: str, cpus: str | None, scratch_root: Path) -> Server:
    """A server that is not started yet."""
    if label in _OTHERS:
        return _OTHERS[label](label, flush, cpus, scratch_root)
    return servers.make_server(label, flush, cpus, scratch_root)
