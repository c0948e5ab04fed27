"""The broker's part in replication, by its role and its settings: who follows it, or whom it follows."""

from __future__ import annotations

import socket
from typing import Any, NoReturn

from ..clock import Clock
from ..config import BrokerConfig, StoreConfig, parse_networks
from ..errors import RefusedRequest
from ..loop_calls import run_on_loop
from ..protocol.codes import ResponseCode
from ..remoting.event_loop import EventLoop
from ..replication.acknowledged import ReplicatedPosition
from ..replication.follower import Follower, Master
from ..replication.log_copy import CopySettings
from ..replication.master import ReplicationServer
from ..replication.roles import slaves_needed
from ..replication.slave_link import LinkSettings, LinkStatus
from ..store.message_store import MessageStore
from .durability import SlaveWait
from .groups import SubscriptionGroupManager
from .offsets import ConsumerOffsetManager
from .registration import Registration
from .role import Kind, Role
from .sending.admission import SendAdmission
from .sending.fields import SendFields
from .slave_sync import SlaveSync
from .topics import TopicConfigManager


def master_side(
    store: MessageStore,
    config: StoreConfig,
    sock: socket.socket | None,
    replicated: ReplicatedPosition | None,
    clock: Clock,
) -> ReplicationServer | None:
    """What serves slaves; None where nobody listens for them."""
    if sock is None:
        return None
    server = ReplicationServer(
        sock,
        parse_networks(config.ha_slave_addresses),
        store.log,
        store.kept,
        link_settings(config),
        replicated,
        clock,
    )
    store.on_kept = server.log_grew
    return server


def slave_wait(config: StoreConfig, role: Role) -> SlaveWait | None:
    """How sends wait for slaves; None where they do not."""
    waits = role.position is not None and role.appends if role.is_member else slaves_needed(config) > 0
    return SlaveWait(config.slave_timeout_ms, config.ha_slave_fallbehind_max_bytes) if waits else None


def link_settings(config: StoreConfig) -> LinkSettings:
    return LinkSettings(
        heartbeat_s=config.ha_send_heartbeat_interval_ms / 1000,
        silence_s=config.ha_housekeeping_interval_ms / 1000,
        batch_bytes=config.ha_transfer_batch_size,
        bytes_per_s=config.max_ha_transfer_bytes_per_s if config.ha_flow_control_enable else 0,
        from_last_file=config.sync_from_last_file,
        late_s=config.ha_max_ack_delay_ms / 1000,
    )


#: A slave that is less behind counts as in sync. Upstream: haMaxGapNotInSync.
IN_SYNC_BYTES = 256 * 1024 * 1024


class NoAdmission(SendAdmission):
    """A slave takes no sends."""

    def __init__(self, why: str, *parts: Any) -> None:
        """why: as `Role.no_sends`. parts: what SendAdmission takes."""
        super().__init__(*parts)
        self._why = why

    def admit(self, fields: SendFields, client_version: int, born_host: bytes) -> NoReturn:
        raise RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {self._why}")


def refuse_pulls(role: Role, config: BrokerConfig) -> RefusedRequest | None:
    """Why a broker serves no pulls, from its start: a slave does only with slaveReadEnable, a follower only once its
    leader has confirmed all that it held."""
    if role.kind is Kind.FENCED:
        return RefusedRequest(ResponseCode.SYSTEM_BUSY, role.no_sends)
    if role.appends or config.slave_read_enable:
        return NOT_CONFIRMED if role.kind is Kind.FOLLOWER else None
    return RefusedRequest(ResponseCode.SYSTEM_BUSY, "this broker is a slave without slaveReadEnable")


NOT_CONFIRMED = RefusedRequest(ResponseCode.SYSTEM_BUSY, "the leader has not confirmed yet what this broker holds")


class SlaveSide:
    """Follows the master: its log, and its tables."""

    def __init__(
        self,
        store: MessageStore,
        config: StoreConfig,
        registration: Registration,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        own_address: str,
        loop: EventLoop,
        clock: Clock,
        role: Role,
    ) -> None:
        # Constant after construction.
        self._registration = registration
        self._ha_address = config.ha_master_address
        self._own_address = own_address
        self.follower = Follower(
            store,
            loop.call_soon,
            self.master,
            registration.register_all,
            CopySettings(config.ha_send_heartbeat_interval_ms / 1000, config.ha_housekeeping_interval_ms / 1000),
            clock,
        )
        self.sync = SlaveSync(
            # Tables of another log's master would take away what is needed to read this one.
            lambda: found.address if (found := self.master()) and self.follower.agrees else "",
            registration.register_all,
            topics,
            groups,
            offsets,
            lambda job: run_on_loop(loop.call_soon, job, lambda: self.sync.stopped),
            store,
            clock,
        )
        store.on_kept = self.follower.log_kept
        store.log.refuse(role.no_sends, "role")

    def master(self) -> Master | None:
        """Where the master is: its log where the settings say, else as the name servers do."""
        address, ha_address = self._registration.master or ("", "")
        if address == self._own_address:
            address = ha_address = ""
        ha_address = self._ha_address or ha_address
        return Master(address, ha_address) if ha_address else None

    def master_address(self) -> str:
        """Where clients reach the master, "" while nobody has told."""
        found = self.master()
        return found.address if found is not None else ""

    def start(self) -> None:
        self.follower.start()
        self.sync.start()

    def stop(self) -> None:
        """Before the loop ends: who appends waits for it."""
        self.follower.request_stop()
        self.sync.request_stop()
        self.follower.stop()
        self.sync.stop()


def ha_status(
    store: MessageStore, server: ReplicationServer | None, slave: SlaveSide | None, follows: bool
) -> dict[str, object]:
    """What 907 tells beside the log's end. follows: it takes no messages itself, whoever it follows."""
    if slave is None and follows:
        return {"master": False}
    if slave is not None:
        status, now_ms = slave.follower.status, slave.follower.clock.wall_ms()

        def at(ago_s: float | None) -> int:
            return 0 if ago_s is None else now_ms - int(ago_s * 1000)

        client = {
            "lastReadTimestamp": at(status.heard_s),
            "lastWriteTimestamp": at(status.said_s),
            "activated": bool(status.following),
            "masterAddr": status.following,
            "masterFlushOffset": slave.sync.master_end or 0,
            "maxOffset": store.log.written,
            "transferredByteInSecond": int(status.bytes_per_s),
        }
        return {"master": False, "haClientRuntimeInfo": client}
    end = store.kept()
    links = server.slaves if server is not None else []
    connections = [
        {
            "addr": one.peer,
            "diff": end - max(0, one.acknowledged),
            "inSync": is_in_sync(one, end),
            "slaveAckOffset": one.acknowledged,
            "transferFromWhere": one.sent,
            "transferredByteInSecond": int(one.bytes_per_s),
        }
        for one in links
    ]
    return {"haConnectionInfo": connections, "inSyncSlaveNums": sum(bool(one["inSync"]) for one in connections)}


def is_in_sync(slave: LinkStatus, end: int) -> bool:
    """Whether a slave has said how far it is, and is close to the end."""
    return slave.acknowledged >= 0 and end - slave.acknowledged < IN_SYNC_BYTES
