"""Clients come and go: 34 HEART_BEAT, 35 UNREGISTER_CLIENT, 38 GET_CONSUMER_LIST_BY_GROUP, 46 CHECK_CLIENT_CONFIG.

All inline on remoting-io, so that a heartbeat is done before the pull that follows it on the same connection.
Source: RocketMQ 5.3.3 `ClientManageProcessor`.
"""

from __future__ import annotations

import logging

import msgspec

from ...errors import RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import require_str
from ...protocol.names import PERM_READ, PERM_WRITE, RETRY_PREFIX, is_legal_group
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ..clients import Client, ClientManager
from ..groups import SubscriptionGroupManager
from ..heartbeat import TAG, CheckClientBody, ConsumerData, HeartbeatData, decode_body
from ..topics import TopicConfigManager

logger = logging.getLogger(__name__)

_UNIT_SUB = 2  # TopicSysFlag


class ClientProcessor:
    """Owned by remoting-io."""

    def __init__(self, clients: ClientManager, groups: SubscriptionGroupManager, topics: TopicConfigManager) -> None:
        self._clients = clients
        self._groups = groups
        self._topics = topics

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.HEART_BEAT, self.handle_heartbeat)
        dispatcher.add(RequestCode.UNREGISTER_CLIENT, self.handle_unregister)
        dispatcher.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self.handle_consumer_list)
        dispatcher.add(RequestCode.CHECK_CLIENT_CONFIG, self.handle_check_config)

    def handle_heartbeat(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """Register what the client holds. A group that may not be made is left out, as 5.3.3 does.

        Refuses with 1, and nothing is registered, a body that is no heartbeat and one that names groups but no client.
        """
        data = decode_body(request.body, HeartbeatData)
        if not data.client_id and (data.consumer_data_set or data.producer_data_set):
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "the heartbeat has no clientID")
        who = Client(data.client_id, request.language, request.version)
        conn.client_id, conn.language, conn.version = who
        full_wanted = data.heartbeat_fingerprint == 0  # recorded: always said to a client without V2
        for consumer in data.consumer_data_set:
            if self._make_group(consumer):
                full_wanted |= self._clients.register_consumer(
                    conn, who, consumer, data.heartbeat_fingerprint, data.without_sub
                )
        for producer in data.producer_data_set:
            if is_legal_group(producer.group_name):
                self._clients.register_producer(conn, who, producer.group_name)
        self._clients.heard(conn)
        return RemotingCommand.response(
            ResponseCode.SUCCESS,
            ext={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if full_wanted else "false"},
        )

    def _make_group(self, consumer: ConsumerData) -> bool:
        """Have the group and its retry topic made; False when the group may not be."""
        name = consumer.group_name
        group = self._groups.find(name)
        if group is None:
            logger.info("clients: heartbeat for a group that may not be made group=%r", name[:300])
            return False
        ordered = any(self._topics.is_order_topic(wanted.topic) for wanted in consumer.subscription_data_set)
        flag = _UNIT_SUB if consumer.unit_mode else 0
        self._topics.create_retry_topic(
            RETRY_PREFIX + name, group.retry_queue_nums, PERM_READ | PERM_WRITE, ordered, flag
        )
        return True

    def handle_unregister(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        producer, consumer = request.ext_fields.get("producerGroup"), request.ext_fields.get("consumerGroup")
        if producer:
            self._clients.unregister_producer(conn, producer)
        if consumer:
            self._clients.unregister_consumer(conn, consumer)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_consumer_list(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """The client ids of a group; the one who asks must be among them or it takes no queue."""
        name = require_str(request, "consumerGroup")
        info = self._clients.consumer_group(name)
        if info is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = msgspec.json.encode({"consumerIdList": info.client_ids()})
        return RemotingCommand.response(ResponseCode.SUCCESS, body=body)

    def handle_check_config(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """Whether the broker can filter as a consumer wants: by tags. There is no compiler for SQL92 yet."""
        data = decode_body(request.body, CheckClientBody).subscription_data
        if data is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "the body has no subscriptionData")
        if data.expression_type not in ("", TAG):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {data.expression_type}",
            )
        return RemotingCommand.response(ResponseCode.SUCCESS)
