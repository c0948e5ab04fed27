"""The settings of a member of a set: what they need from this machine, and warnings about them at start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..config import EngineConfig, StoreConfig, broker_properties, parse_command, parse_leader_store
from ..errors import StartError
from ..host_port import host_of
from ..secret_file import read_secret_file
from .stores.access import Access

#: With fewer endpoints, the loss of one machine takes the store with it.
SAFE_ENDPOINTS = 3
MAX_PASSWORD_BYTES = 4096
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class StoreSettings(NamedTuple):
    """Use of the leader store. root: prefix of all keys of this set: "/rocketbox/broker-a". compact: have etcd forget
    its history each hour."""

    root: str
    access: Access
    compact: bool


class MemberSettings(NamedTuple):
    """Behaviour of a member of a set. synchronous: an acknowledgement waits for all members in sync (I2)."""

    set: str
    synchronous: bool
    elect_after_s: float
    beat_s: float
    behind_s: float
    min_in_sync: int
    max_lag_bytes: int
    disk_stall_s: float
    on_promote: tuple[str, ...]
    relay_s: float
    bootstrap: bool


def store_settings(config: EngineConfig) -> StoreSettings:
    """Return how this member uses the leader store; reads the password's file. Raises StartError."""
    store = config.store
    access = Access(
        timeout_s=store.ha_store_timeout_ms / 1000,
        user=store.ha_store_user,
        password=read_password(store),
        ca=store.ha_store_ca,
        certificate=store.ha_store_certificate,
        key=store.ha_store_key,
        prefix=store.ha_store_prefix,
    )
    return StoreSettings(f"{store.ha_store_prefix}/{config.ha_set}", access, store.ha_compact_store)


def member_settings(config: EngineConfig) -> MemberSettings:
    """Return the settings of this member. Raises StartError when its times contradict each other."""
    store = config.store
    elect_after_ms = _elect_after_ms(store)
    least = 2 * (store.ha_beat_interval_ms + store.ha_store_timeout_ms)
    if elect_after_ms < least:
        raise StartError(
            f"haElectAfter={elect_after_ms} is too short for haBeatInterval={store.ha_beat_interval_ms} and "
            f"haStoreTimeout={store.ha_store_timeout_ms}: at least {least}, or one lost beat makes an election."
        )
    return MemberSettings(
        set=config.ha_set,
        synchronous=store.broker_role == "SYNC_MASTER",
        elect_after_s=elect_after_ms / 1000,
        beat_s=store.ha_beat_interval_ms / 1000,
        behind_s=store.ha_max_time_slave_not_catchup_ms / 1000,
        min_in_sync=store.min_in_sync_replicas,
        max_lag_bytes=store.ha_max_lag_on_failover_bytes,
        disk_stall_s=store.ha_disk_stall_ms / 1000,
        on_promote=tuple(parse_command(store.ha_on_promote)),
        relay_s=store.ha_relay_time_ms / 1000,
        bootstrap=config.ha_bootstrap,
    )


def _elect_after_ms(store: StoreConfig) -> int:
    return store.ha_elect_after_ms or (2000 if store.broker_role == "SYNC_MASTER" else 5000)


#: Settings that must be alike in the whole set: each leader leads by its own, and acknowledges for its own share of
#: haElectAfter, while the others elect by theirs.
SHARED = (
    *("brokerName", "brokerClusterName", "brokerRole", "flushDiskType", "messageDelayLevel", "minInSyncReplicas"),
    *("mappedFileSizeCommitLog", "maxMessageSize", "timerWheelEnable", "haElectAfter", "fileReservedTime"),
    "accessControl",
)
#: Characters of each setting that are announced; delay levels may be a long text.
_TOLD_CHARS = 500


def shared_settings(config: EngineConfig) -> dict[str, str]:
    """Return the settings that a member announces, for the others to compare."""
    told = broker_properties(config)
    told |= {"haElectAfter": str(_elect_after_ms(config.store)), "accessControl": config.broker.access_control}
    return {name: " ".join(told[name].split())[:_TOLD_CHARS] for name in SHARED}


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, ...]:
    """Return a text for each setting of another member that contradicts this one's. What it does not announce is not
    compared."""
    return tuple(
        f"{name}={there[name][:_TOLD_CHARS]} (here {value})"
        for name, value in here.items()
        if there.get(name, value) != value
    )


def read_password(config: StoreConfig) -> str:
    """Return the one line of haStorePasswordFile, "" without such a file. Raises StartError when others may read it."""
    if not config.ha_store_password_file:
        return ""
    path = Path(config.ha_store_password_file)
    data = read_secret_file("haStorePasswordFile", path, MAX_PASSWORD_BYTES + 1)
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        lines = []
    if len(data) > MAX_PASSWORD_BYTES or len(lines) != 1 or not lines[0].strip():
        raise StartError(f"haStorePasswordFile {path} must hold one line, the password.")
    return lines[0].strip()


def check_promotion_command(config: StoreConfig) -> None:
    """Raise StartError when the program of haOnPromote cannot be started."""
    words = parse_command(config.ha_on_promote)
    if words and not (os.path.isfile(words[0]) and os.access(words[0], os.X_OK)):
        raise StartError(f"haOnPromote: {words[0]} is no program that can be started.")


def warnings_of(config: EngineConfig) -> tuple[str, ...]:
    """Return sentences for the operator about settings that work but are likely to disappoint. Raises StartError as
    above."""
    store = config.store
    check_promotion_command(store)
    address = parse_leader_store(store.ha_store)
    assert address is not None
    found = []
    count = len(address.endpoints)
    if count < SAFE_ENDPOINTS:
        found.append(
            f"haStore names {'one endpoint' if count == 1 else f'{count} endpoints'}: unless {address.kind} has three "
            "members on three machines, the loss of one machine can mean that nobody is elected."
        )
    elif all(host_of(one) in _LOOPBACK for one in address.endpoints):
        found.append("haStore names this machine only: when it is gone nobody is elected.")
    if store.ha_store_user and not address.tls:
        found.append("haStoreUser: the password travels unencrypted; etcds:// encrypts it.")
    if not store.ha_slave_addresses.strip() and not store.ha_secret_file:
        found.append("haSlaveAddresses is empty: only members on this machine can follow.")
    if store.broker_role == "ASYNC_MASTER":
        found.append("brokerRole=ASYNC_MASTER: a fail-over can lose messages that were acknowledged.")
    if store.flush_disk_type == "ASYNC_FLUSH":
        found.append(
            "flushDiskType=ASYNC_FLUSH: a message counts as held when it is written, not when it is on a disk; "
            "a power cut at all members at once loses the last ones."
        )
    if not config.broker.namesrv_addrs:
        found.append(
            "namesrvAddr is empty: this member tells its own name server only, and clients of others do not find it."
        )
    if config.bind in _LOOPBACK:
        found.append(f"bind={config.bind}: members on other machines cannot reach this one.")
    return tuple(found)
