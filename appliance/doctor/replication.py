"""Checks replication: who may follow this broker, or whether its master can be reached."""

from __future__ import annotations

import socket

from ..engine.config import EngineConfig
from ..engine.host_port import split_host_port
from ..engine.replication.roles import slaves_needed, takes_slaves
from ..runtime import is_loopback
from .diagnosis import Diagnosis

_CONNECT_S = 3.0


def look_at_replication(found: Diagnosis, config: EngineConfig) -> None:
    """Nothing where a broker neither takes slaves nor is one."""
    store = config.store
    if store.broker_role == "SLAVE":
        _slave(found, config)
    if not takes_slaves(store):
        return
    if store.ha_slave_addresses.strip() == "all" and not is_loopback(config.bind):
        text = "haSlaveAddresses is all: whoever reaches the port for slaves may read every message."
        found.warn("replication", text, "name the slaves' addresses, or let only their network reach the port")
    else:
        who = store.ha_slave_addresses.strip()
        found.ok("replication", f"Slaves may follow from this machine{f' and {who}' if who else ' only'}.")
    if needed := slaves_needed(store):
        found.ok("replication", f"A send is acknowledged when so many slaves have it: {needed}.")


def _slave(found: Diagnosis, config: EngineConfig) -> None:
    address = config.store.ha_master_address
    if address:
        try:
            socket.create_connection(split_host_port(address), _CONNECT_S).close()
        except OSError as error:
            text = f"The master's port for slaves, {address}, cannot be reached: {error.strerror or error}."
            found.warn("replication", text, "start the master first, with haListenPort; look at what lies between")
        else:
            found.ok("replication", f"This broker is a slave, and its master's port {address} can be reached.")
    elif config.broker.namesrv_addrs:
        found.ok(
            "replication", f"This broker is a slave; it asks {', '.join(config.broker.namesrv_addrs)} for its master."
        )
    else:
        text = "This broker is a slave, and nobody tells it where its master is."
        found.warn("replication", text, "set namesrvAddr to the master's name servers, or haMasterAddress")
