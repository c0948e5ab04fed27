"""Where a message goes that a consumer could not use: back to its group's retry topic, or to the dead letters.

Source: 5.3.3 `AbstractSendMessageProcessor.handleRetryAndDLQ`.
"""

from __future__ import annotations

from ...errors import RefusedRequest
from ...protocol.codes import FAQ_HINT, ResponseCode
from ...protocol.names import DLQ_PREFIX, PERM_READ, PERM_WRITE, RETRY_PREFIX
from ..groups import SubscriptionGroupConfig, SubscriptionGroupManager
from ..queue_locks import RebalanceLockManager
from ..topic_config import TopicConfig
from ..topics import TopicConfigManager

#: Clients from V3_4_9 on send their own limit of retries.
_VERSION_WITH_MAX_RECONSUME = 121


class RetryPolicy:
    """Constant after construction; asked on remoting-io."""

    def __init__(
        self, topics: TopicConfigManager, groups: SubscriptionGroupManager, locks: RebalanceLockManager
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._locks = locks

    def group_of(self, retry_topic: str) -> SubscriptionGroupConfig:
        """The group that a retry topic belongs to. Refuses with 26 when there is none."""
        name = retry_topic[len(RETRY_PREFIX) :]
        group = self._groups.find(name)
        if group is None:
            raise RefusedRequest(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}{FAQ_HINT}"
            )
        return group

    def retry_topic(self, name: str) -> TopicConfig | None:
        """The retry topic of that name, made if its group exists; None where no topic can be made."""
        self.group_of(name)  # before its topic is made; Apache makes that all the same
        return self._topics.create_retry_topic(name, 1, PERM_READ | PERM_WRITE)

    def dead_letter_topic(
        self, retry_topic: str, reconsume_times: int, max_reconsume_times: int | None, client_version: int
    ) -> TopicConfig | None:
        """The dead letter topic when the message was consumed too often or is given up; None when it is tried again.

        An ordered consumer sends here only when it gives up; a 4.9 client then says its limit, not one more.
        """
        group = self.group_of(retry_topic)
        limit = group.retry_max_times
        if client_version >= _VERSION_WITH_MAX_RECONSUME and max_reconsume_times is not None:
            limit = max_reconsume_times
        name = retry_topic[len(RETRY_PREFIX) :]
        if reconsume_times <= limit and not self._locks.is_locked(name):
            return None
        topic = DLQ_PREFIX + name
        config = self._topics.get(topic) or self._topics.create_retry_topic(topic, 1, PERM_READ | PERM_WRITE)
        if config is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] cannot be created")
        return config
