"""Who is connected: producers and consumers by group, with what they subscribe to.

A connection belongs to a group from its heartbeat until it closes, unregisters or is silent for 120 s. A consumer
group's subscriptions are those of its last heartbeats: a newer version replaces, a topic left out is dropped.
Source: RocketMQ 5.3.3 `ConsumerManager`, `ConsumerGroupInfo`, `ProducerManager`, `ClientHousekeepingService`.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from ..clock import Clock
from ..config import BrokerConfig
from ..protocol.codes import RequestCode
from ..protocol.command import FLAG_ONEWAY, RemotingCommand
from ..remoting.connection import Connection
from .groups import SubscriptionGroupManager

logger = logging.getLogger(__name__)

BROADCASTING = "BROADCASTING"


class SubscriptionData(NamedTuple):
    """One topic of a group: sub_string is the expression, sub_version the client's clock when it was made."""

    topic: str
    sub_string: str
    sub_version: int
    expression_type: str
    tags: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    class_filter_mode: bool = False


class ClientChannel:
    """One connection within a group."""

    __slots__ = ("client_id", "conn", "language", "last_update_ms", "version")

    def __init__(self, conn: Connection, client_id: str, language: str, version: int, now_ms: int) -> None:
        self.conn = conn
        self.client_id = client_id
        self.language = language
        self.version = version
        self.last_update_ms = now_ms


class ConsumerGroupInfo:
    """One consumer group that is online. Changed by remoting-io; tables are replaced or copied by readers."""

    __slots__ = ("channels", "consume_from_where", "consume_type", "group", "message_model", "subscriptions")

    def __init__(self, group: str) -> None:
        self.group = group
        self.consume_type = ""
        self.message_model = ""
        self.consume_from_where = ""
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.channels: dict[Connection, ClientChannel] = {}

    def client_ids(self) -> list[str]:
        return [channel.client_id for channel in list(self.channels.values())]


class ClientManager:
    """Owned by remoting-io."""

    def __init__(self, config: BrokerConfig, groups: SubscriptionGroupManager, clock: Clock) -> None:
        self._config = config
        self._groups = groups
        self._clock = clock
        self._consumers: dict[str, ConsumerGroupInfo] = {}
        self._producers: dict[str, dict[Connection, ClientChannel]] = {}
        #: connection -> (consumer groups, producer groups) it is in, so that a close is cheap.
        self._memberships: dict[Connection, tuple[set[str], set[str]]] = {}

    # --- registering

    def register_producer(self, group: str, conn: Connection, client_id: str, language: str, version: int) -> None:
        now = self._clock.wall_ms()
        channels = self._producers.setdefault(group, {})
        channel = channels.get(conn)
        if channel is None:
            channels[conn] = ClientChannel(conn, client_id, language, version, now)
            self._membership(conn)[1].add(group)
            logger.info("clients: new producer group=%s client_id=%s from=%s", group, client_id, conn.remote_host)
        else:
            channel.last_update_ms = now

    def register_consumer(
        self,
        group: str,
        conn: Connection,
        client_id: str,
        language: str,
        version: int,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: list[SubscriptionData],
        keep_subscriptions: bool = False,
    ) -> bool:
        """Take a heartbeat's entry; True when the group's members or topics changed. Members are told then (40).

        keep_subscriptions: the heartbeat carried none on purpose (heartbeat V2 without subscriptions).
        """
        now = self._clock.wall_ms()
        info = self._consumers.get(group)
        if info is None:
            info = self._consumers[group] = ConsumerGroupInfo(group)
        info.consume_type = consume_type
        info.message_model = message_model
        info.consume_from_where = consume_from_where
        channel = info.channels.get(conn)
        changed = channel is None
        if channel is None or channel.client_id != client_id:
            info.channels[conn] = ClientChannel(conn, client_id, language, version, now)
            self._membership(conn)[0].add(group)
            logger.info("clients: new consumer group=%s client_id=%s from=%s", group, client_id, conn.remote_host)
        else:
            channel.last_update_ms = now
        if not keep_subscriptions:
            changed = self._update_subscriptions(info, subscriptions) or changed
        if changed:
            self._notify(info)
        return changed

    @staticmethod
    def _update_subscriptions(info: ConsumerGroupInfo, subscriptions: list[SubscriptionData]) -> bool:
        changed = False
        table = dict(info.subscriptions)
        for subscription in subscriptions:
            known = table.get(subscription.topic)
            if known is None:
                changed = True
                table[subscription.topic] = subscription
            elif subscription.sub_version > known.sub_version:
                table[subscription.topic] = subscription
        named = {subscription.topic for subscription in subscriptions}
        for topic in [topic for topic in table if topic not in named]:
            del table[topic]
            changed = True
        info.subscriptions = table
        return changed

    def _membership(self, conn: Connection) -> tuple[set[str], set[str]]:
        membership = self._memberships.get(conn)
        if membership is None:
            membership = self._memberships[conn] = (set(), set())
        return membership

    def _notify(self, info: ConsumerGroupInfo) -> None:
        """Tell every member, the newcomer too; 5.3.3 leaves broadcasting groups alone."""
        if info.message_model == BROADCASTING or not self._config.notify_consumer_ids_changed_enable:
            return
        group = self._groups.get(info.group)
        if group is not None and not group.notify_consumer_ids_changed_enable:
            return
        for conn in list(info.channels):
            conn.send_command(
                RemotingCommand(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    flag=FLAG_ONEWAY,
                    ext_fields={"consumerGroup": info.group},
                )
            )

    # --- leaving

    def unregister_producer(self, group: str, conn: Connection) -> None:
        channels = self._producers.get(group)
        if channels is not None and channels.pop(conn, None) is not None and not channels:
            del self._producers[group]

    def unregister_consumer(self, group: str, conn: Connection) -> None:
        """Take a connection out of a group; the others are told. An empty group is forgotten."""
        info = self._consumers.get(group)
        if info is None or info.channels.pop(conn, None) is None:
            return
        if info.channels:
            self._notify(info)
        else:
            del self._consumers[group]

    def on_close(self, conn: Connection) -> None:
        membership = self._memberships.pop(conn, None)
        if membership is None:
            return
        for group in membership[1]:
            self.unregister_producer(group, conn)
        for group in membership[0]:
            self.unregister_consumer(group, conn)

    def scan_expired(self, now_ms: int) -> None:
        """Close connections whose heartbeats stopped."""
        limit = now_ms - self._config.channel_expired_timeout_ms
        stale: dict[Connection, None] = {}
        for channels in [info.channels for info in self._consumers.values()] + list(self._producers.values()):
            for channel in channels.values():
                if channel.last_update_ms < limit:
                    stale[channel.conn] = None
        for conn in stale:
            logger.info("clients: no heartbeat for %d ms, closing %r", self._config.channel_expired_timeout_ms, conn)
            conn.close()

    # --- asking, from any thread

    def consumer_group(self, group: str) -> ConsumerGroupInfo | None:
        return self._consumers.get(group)

    def consumer_groups(self) -> list[ConsumerGroupInfo]:
        return list(self._consumers.values())

    def producer_channels(self, group: str) -> list[ClientChannel]:
        return list(self._producers.get(group, {}).values())

    def producer_groups(self) -> list[str]:
        return list(self._producers)
