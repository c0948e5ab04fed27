"""Clients come and go: 34 HEART_BEAT, 35 UNREGISTER_CLIENT, 38 GET_CONSUMER_LIST_BY_GROUP, 46 CHECK_CLIENT_CONFIG.

All inline on remoting-io, so that a heartbeat is done before the pull that follows it on the same connection.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from ...errors import RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import require_str
from ...protocol.names import PERM_READ, PERM_WRITE, RETRY_PREFIX, is_legal_group, topic_name_error
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ..clients import ClientManager, SubscriptionData
from ..groups import SubscriptionGroupManager
from ..topics import TopicConfigManager

logger = logging.getLogger(__name__)

TAG = "TAG"


class SubscriptionBody(msgspec.Struct, rename="camel"):
    """`SubscriptionData` as clients write it; arrays may be missing (C++)."""

    topic: str
    sub_string: str = "*"
    sub_version: int = 0
    expression_type: str | None = TAG
    tags_set: list[str] | None = None
    code_set: list[int] | None = None
    class_filter_mode: bool = False

    def to_data(self) -> SubscriptionData:
        return SubscriptionData(
            self.topic,
            self.sub_string,
            self.sub_version,
            self.expression_type or TAG,
            tuple(self.tags_set or ()),
            tuple(self.code_set or ()),
            self.class_filter_mode,
        )


class ConsumerBody(msgspec.Struct, rename="camel"):
    """`ConsumerData` of a heartbeat."""

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionBody] | None = None
    unit_mode: bool = False


class ProducerBody(msgspec.Struct, rename="camel"):
    """`ProducerData` of a heartbeat."""

    group_name: str


class HeartbeatBody(msgspec.Struct, rename={"client_id": "clientID"}):
    """`HeartbeatData`."""

    client_id: str = ""
    producerDataSet: list[ProducerBody] | None = None
    consumerDataSet: list[ConsumerBody] | None = None
    heartbeatFingerprint: int = 0
    withoutSub: bool = False


class CheckClientBody(msgspec.Struct, rename="camel"):
    """`CheckClientRequestBody`."""

    subscription_data: SubscriptionBody
    client_id: str = ""
    group: str = ""


def decode_body(body: bytes, kind: Any) -> Any:
    """A JSON body as `kind`; refuses with 1 and the reason."""
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the body is illegal: {error}") from None


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
        """Register what the client holds. An entry with an illegal name or unknown group is left out, as 5.3.3 does."""
        body: HeartbeatBody = decode_body(request.body, HeartbeatBody)
        conn.client_id = body.client_id
        conn.language = request.language
        conn.version = request.version
        # V2: a fingerprint alone stands for subscriptions sent before; we ask for the full form by IS_SUB_CHANGE.
        bare = body.withoutSub and body.heartbeatFingerprint != 0
        changed = body.heartbeatFingerprint == 0
        for consumer in body.consumerDataSet or ():
            changed = self._register_consumer(consumer, body, request, conn, bare) or changed
        for producer in body.producerDataSet or ():
            if is_legal_group(producer.group_name):
                self._clients.register_producer(
                    producer.group_name, conn, body.client_id, request.language, request.version
                )
        return RemotingCommand.response(
            ResponseCode.SUCCESS,
            ext={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if changed else "false"},
        )

    def _register_consumer(
        self, consumer: ConsumerBody, body: HeartbeatBody, request: RemotingCommand, conn: Connection, bare: bool
    ) -> bool:
        name = consumer.group_name
        group = self._groups.find(name) if is_legal_group(name) else None
        if group is None:
            logger.info("clients: heartbeat for a group that may not be created group=%r", name[:255])
            return False
        retry_topic = RETRY_PREFIX + name
        if self._topics.get(retry_topic) is None and topic_name_error(retry_topic) is None:
            self._topics.create_retry_topic(retry_topic, group.retry_queue_nums, PERM_READ | PERM_WRITE)
        info = self._clients.consumer_group(name)
        unknown = bare and (info is None or not info.subscriptions)
        changed = self._clients.register_consumer(
            name,
            conn,
            body.client_id,
            request.language,
            request.version,
            consumer.consume_type,
            consumer.message_model,
            consumer.consume_from_where,
            [subscription.to_data() for subscription in consumer.subscription_data_set or ()],
            keep_subscriptions=bare,
        )
        return unknown or (changed and not bare)

    def handle_unregister(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        producer, consumer = request.ext_fields.get("producerGroup"), request.ext_fields.get("consumerGroup")
        if producer:
            self._clients.unregister_producer(producer, conn)
        if consumer:
            self._clients.unregister_consumer(consumer, conn)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_consumer_list(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        name = require_str(request, "consumerGroup")
        info = self._clients.consumer_group(name)
        ids = info.client_ids() if info else []
        if not ids:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return RemotingCommand.response(ResponseCode.SUCCESS, body=msgspec.json.encode({"consumerIdList": ids}))

    def handle_check_config(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """TAG is fine. SQL92 is not served yet: the answer of a broker without enablePropertyFilter."""
        body: CheckClientBody = decode_body(request.body, CheckClientBody)
        kind = body.subscription_data.expression_type
        if kind not in (None, "", TAG):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}"
            )
        return RemotingCommand.response(ResponseCode.SUCCESS)
