"""Which pulls are served. Checks in 5.3.3's order, with its texts. Source: `PullMessageProcessor.processRequest`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import RefusedRequest
from ...filter.expressions import FILTERS, not_supported
from ...protocol.codes import FAQ_HINT, ResponseCode
from ...protocol.names import PERM_READ
from ...remoting.connection import Connection
from ..topic_config import refuse_batch_queues
from .fields import SUBSCRIPTION, PullFields
from .request import PullRequest, ReplyTo

if TYPE_CHECKING:
    from ..clients import ClientManager
    from ..groups import SubscriptionGroupConfig, SubscriptionGroupManager
    from ..topics import TopicConfigManager

#: The client's limit, whatever it asks for.
_MAX_COUNT = 1024 * 1024


class ForbiddenType:
    """`forbiddenType` of a refusal with NO_PERMISSION (5.x)."""

    BROKER = "1"
    GROUP = "2"
    TOPIC = "3"
    BROADCASTING_DISABLED = "4"


class Forbidden(RefusedRequest):
    """Who asked may not. kind: a ForbiddenType."""

    def __init__(self, remark: str, kind: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.kind = kind


class PullAdmission:
    """Owned by remoting-io."""

    def __init__(
        self,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        clients: ClientManager,
    ) -> None:
        # Constant after construction.
        self._topics = topics
        self._groups = groups
        self._clients = clients

    def admit(self, reply_to: ReplyTo, conn: Connection, opaque: int, fields: PullFields) -> PullRequest:
        """The request that the fields make; raises RefusedRequest for one that is not served."""
        group = self._groups.find(fields.group)
        if group is None:
            raise RefusedRequest(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{fields.group}] does not exist, {FAQ_HINT}",
            )
        if not group.consume_enable:
            raise Forbidden(f"subscription group no permission, {fields.group}", ForbiddenType.GROUP)
        topic = self._topics.get(fields.topic)
        if topic is None:
            raise RefusedRequest(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{fields.topic}] not exist, apply first please! {FAQ_HINT}"
            )
        if topic.attributes:
            refuse_batch_queues(topic)
        if not topic.perm & PERM_READ:
            raise Forbidden(f"the topic[{fields.topic}] pulling message is forbidden", ForbiddenType.TOPIC)
        queue_id = fields.queue_id
        if not 0 <= queue_id < topic.read_queue_nums:
            raise RefusedRequest(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{fields.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{conn.remote_host}]",
            )
        if fields.sys_flag & SUBSCRIPTION:
            expression, kind = fields.subscription, fields.expression_type
        else:
            expression, kind = self._subscribed(fields, group)
        if kind not in FILTERS:
            raise not_supported(kind)
        max_count = fields.max_count
        if max_count > _MAX_COUNT:
            max_count = _MAX_COUNT
        return PullRequest(
            reply_to, conn, opaque, group, topic, queue_id, fields.offset, max_count, FILTERS[kind](expression)
        )

    def _subscribed(self, fields: PullFields, group: SubscriptionGroupConfig) -> tuple[str | None, str | None]:
        """(expression, type) the group's heartbeats said."""
        info = self._clients.consumer_group(fields.group)
        if info is None:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ_HINT}")
        if info.message_model == "BROADCASTING" and not group.consume_broadcast_enable:
            raise Forbidden(
                f"the consumer group[{fields.group}] can not consume by broadcast way",
                ForbiddenType.BROADCASTING_DISABLED,
            )
        subscription = info.subscriptions.get(fields.topic)
        if subscription is None:
            raise RefusedRequest(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ_HINT}"
            )
        if subscription.sub_version < fields.sub_version:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription.sub_string, subscription.expression_type
