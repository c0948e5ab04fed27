"""Admits or refuses pulls. Checks in 5.3.3's order, with its texts. Source: `PullMessageProcessor.processRequest`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...config import BrokerConfig
from ...errors import RefusedRequest
from ...filter.expressions import FILTERS, TAG_TYPES, not_supported, quick_filter
from ...filter.message_filter import MessageFilter
from ...protocol.codes import FAQ_HINT, ResponseCode
from ...protocol.names import PERM_READ, RETRY_PREFIX
from ...remoting.connection import Connection
from ..topic_config import refuse_batch_queues
from .fields import SUBSCRIPTION, PullFields
from .request import PullRequest, ReplyTo

if TYPE_CHECKING:
    from ..clients import ClientManager
    from ..filters.consumer_filters import ConsumerFilters
    from ..groups import SubscriptionGroupConfig, SubscriptionGroupManager
    from ..topics import TopicConfigManager

#: Apache's words for a pull with an illegal expression; RocketBox adds the reason and the place in it.
PARSE_FAILED = "parse the consumer's subscription failed"
#: Largest number of messages in one pull, whatever the client asks for.
_MAX_COUNT = 1024 * 1024


class ForbiddenType:
    """`forbiddenType` of a refusal with NO_PERMISSION (5.x)."""

    BROKER = "1"
    GROUP = "2"
    TOPIC = "3"
    BROADCASTING_DISABLED = "4"


class Forbidden(RefusedRequest):
    """The client may not pull. kind: a ForbiddenType."""

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
        filters: ConsumerFilters,
        config: BrokerConfig,
    ) -> None:
        # Constant after construction.
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._filters = filters
        #: Refusal of all pulls while none are served, else None. Set by any thread.
        self.refused: RefusedRequest | None = None
        # Replaced whole by take_options().
        self._config = config

    def take_options(self, config: BrokerConfig) -> None:
        """Apply changed options from now on. Any thread."""
        self._config = config

    def admit(self, reply_to: ReplyTo, conn: Connection, opaque: int, fields: PullFields) -> PullRequest:
        """Return the request that the fields make. Raises RefusedRequest for one that is not served, NotCompiled for
        one with an expression that a pool has to compile first."""
        if self.refused is not None:
            raise RefusedRequest(self.refused.code, self.refused.remark)  # a new one: the old one would keep frames
        group = self._groups.get(fields.group)
        if group is None and (self._topics.get(fields.topic) is not None or not self._groups.may_make(fields.group)):
            group = self._groups.find(fields.group, conn.born_host)
        elif group is None:
            raise self._no_topic(fields.topic)  # before the group is made for it
        if group is None:
            raise RefusedRequest(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{fields.group}] does not exist, {FAQ_HINT}",
            )
        if not group.consume_enable:
            raise _switched_off(fields.group)
        topic = self._topics.get(fields.topic)
        if topic is None:
            raise self._no_topic(fields.topic)
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
        wanted = self._own_filter(fields, conn) if fields.sys_flag & SUBSCRIPTION else self._subscribed(fields, group)
        if self._config.filter_support_retry and fields.topic == RETRY_PREFIX + fields.group:
            wanted = self._filters.of_retries(fields.group, wanted)
        max_count = fields.max_count
        if max_count > _MAX_COUNT:
            max_count = _MAX_COUNT
        return PullRequest(reply_to, conn, opaque, group, topic, queue_id, fields.offset, max_count, wanted)

    @staticmethod
    def _no_topic(topic: str) -> RefusedRequest:
        return RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ_HINT}")

    def refusal_of(self, request: PullRequest) -> RefusedRequest | None:
        """Return the refusal of a held pull whose group was switched off meanwhile; None for other pulls."""
        admitted = request.group
        group = self._groups.get(admitted.group_name)
        if group is admitted or group is None or group.consume_enable:
            return None
        return _switched_off(admitted.group_name)

    def _own_filter(self, fields: PullFields, conn: Connection) -> MessageFilter:
        """Return the filter that the pull itself names. If the expression does not compile, Apache returns all
        messages."""
        kind = fields.expression_type
        if kind not in TAG_TYPES:
            if kind not in FILTERS or not self._config.enable_property_filter:
                raise not_supported(kind)
            if not fields.subscription:
                raise RefusedRequest(ResponseCode.SUBSCRIPTION_PARSE_FAILED, PARSE_FAILED)
        try:
            return quick_filter(kind, fields.subscription, conn.born_host)
        except RefusedRequest as refusal:
            if refusal.code != ResponseCode.SUBSCRIPTION_PARSE_FAILED:
                raise
            raise RefusedRequest(refusal.code, f"{PARSE_FAILED}: {refusal.remark}") from None

    def _subscribed(self, fields: PullFields, group: SubscriptionGroupConfig) -> MessageFilter:
        """Return the filter that the group's heartbeats name."""
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
        kind = subscription.expression_type
        if kind in TAG_TYPES:
            return quick_filter(kind, subscription.sub_string)
        data = self._filters.get(fields.topic, fields.group)
        if data is None:
            raise RefusedRequest(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if data.client_version < fields.sub_version:
            raise RefusedRequest(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        if kind not in FILTERS or not self._config.enable_property_filter:
            raise not_supported(kind)
        return self._filters.filter_of(data)


def _switched_off(group: str) -> Forbidden:
    return Forbidden(f"subscription group no permission, {group}", ForbiddenType.GROUP)
