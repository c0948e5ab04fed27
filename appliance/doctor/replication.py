"""Checks replication: who may follow this broker, or whether its master can be reached."""

from __future__ import annotations

import socket

from ..engine.config import EngineConfig
from ..engine.errors import StartError
from ..engine.host_port import split_host_port
from ..engine.replication.roles import slaves_needed, takes_slaves
from ..runtime import is_loopback
from .diagnosis import Diagnosis

_CONNECT_S = 3.0


def look_at_replication(found: Diagnosis, config: EngineConfig) -> None:
    """Nothing where a broker neither takes slaves nor is one."""
    store = config.store
    if store.ha_store:
        _set(found, config)
    if store.broker_role == "SLAVE":
        _slave(found, config)
    if not takes_slaves(store):
        return
    if store.ha_slave_addresses.strip() == "all" and not is_loopback(config.bind):
        text = "haSlaveAddresses is all: whoever reaches the port for slaves may read every message."
        found.warn("replication", text, "name the slaves' addresses, or let only their network reach the port")
    else:
        who = store.ha_slave_addresses.strip()
        if store.ha_secret_file:
            text = f"Slaves may follow that have the secret in haSecretFile{f', and from {who}' if who else ''}."
        else:
            text = f"Slaves may follow from this machine{f' and {who}' if who else ' only'}."
        found.ok("replication", text)
    if needed := slaves_needed(store):
        found.ok("replication", f"A send is acknowledged when so many slaves have it: {needed}.")


def _set(found: Diagnosis, config: EngineConfig) -> None:
    """Asks the store for leadership, as the member would."""
    from ..engine.failover.outside import ask_store, look_at_own
    from ..engine.failover.settings import differences, shared_settings

    try:
        look = ask_store(config)
    except StartError as error:
        found.fail("ha-store", str(error), "rocketbox serve does not start with it either")
        return
    address = config.store.ha_store
    if look.why:
        text = f"The store for leadership, {address}, fails: {look.why}."
        found.fail("ha-store", text, "without it nobody is elected; look at haStore, and whether the store runs")
        return
    state = look.state
    if look.odd:
        found.fail("ha-store", f"{address} answers, and its key is not this set's: {look.odd}.", "look at haSet")
    elif state is None:
        text = f"{address} answers, and has no set {config.ha_set} yet."
        found.warn("ha-store", text, "start one member with --ha-bootstrap, the one whose messages count")
    elif state.leader is None:
        text = f"{address} answers; nobody leads the set {config.ha_set} in epoch {state.epoch}."
        found.warn("ha-store", text, "see rocketbox ha status")
    else:
        text = f"{address} answers; {state.leader.addr} leads the set {config.ha_set} in epoch {state.epoch}."
        found.ok("ha-store", text)
    if look.shortage:
        found.warn("ha-store", f"{look.shortage}.", "etcdctl compact REVISION, etcdctl defrag, etcdctl alarm disarm")
    shared, own = shared_settings(config), look_at_own(config).uuid
    for one in look.announced:
        differs = differences(shared, one.settings)
        if differs and one.uuid != own:
            text = f"The member at {one.addr} has other settings than this one: {'; '.join(differs)}."
            found.warn("ha-settings", text, "give all members of a set the same")


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
