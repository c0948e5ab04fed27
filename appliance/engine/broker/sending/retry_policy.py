"""The destination of a message that a consumer could not use: its group's retry topic, or the dead letters.

Source: 5.3.3 `AbstractSendMessageProcessor.handleRetryAndDLQ`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import RefusedRequest
from ...protocol.askers import LIMITS_RETRIES
from ...protocol.codes import FAQ_HINT, ResponseCode
from ...protocol.names import DLQ_PREFIX, PERM_READ, PERM_WRITE, RETRY_PREFIX
from ..groups import SubscriptionGroupConfig, SubscriptionGroupManager
from ..queue_locks import RebalanceLockManager
from ..topic_config import TopicConfig
from ..topics import TopicConfigManager
from .outcome import store_unavailable

#: A bit of a topic's `topicSysFlag`. Source: `TopicSysFlag.buildSysFlag(false, true)`.
_SUBSCRIBED_BY_UNITS = 2


class RetryPolicy:
    """Constant after construction; used on remoting-io."""

    def __init__(
        self,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        locks: RebalanceLockManager,
        not_taking: Callable[[], str | None] = lambda: None,
    ) -> None:
        """not_taking: returns the reason why the log takes no message now; None when it takes them."""
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._not_taking = not_taking

    def refuse_to_make(self) -> None:
        """Refuse with 14, as the log would, before a topic or group is made for a message that it does not take."""
        reason = self._not_taking()
        if reason is not None:
            outcome = store_unavailable(reason)
            raise RefusedRequest(outcome.code, outcome.reason)

    def group(self, name: str, peer: bytes | None = None) -> SubscriptionGroupConfig:
        """Return the group, made if that is allowed. Refuses with 26 if there is none, with 1 if the peer has had its
        share, with 14 if the log would not take the message."""
        group = self.known_group(name)
        if group is None:
            self.refuse_to_make()
            group = self._groups.find(name, peer)
        if group is None:
            raise self._no_group(name)
        return group

    @staticmethod
    def _no_group(name: str) -> RefusedRequest:
        return RefusedRequest(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}{FAQ_HINT}"
        )

    def known_group(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the group; None if it does not exist and may be made. Refuses with 26 if it may not."""
        group = self._groups.get(name)
        if group is None and not self._groups.may_make(name):
            raise self._no_group(name)
        return group

    def retry_topic(self, name: str, peer: bytes | None = None) -> TopicConfig | None:
        """Return the retry topic of that name, made if its group exists; None if no topic can be made."""
        self.group(name[len(RETRY_PREFIX) :], peer)  # before its topic is made; Apache makes the topic even so
        self.refuse_to_make()
        return self._topics.create_retry_topic(name, 1, PERM_READ | PERM_WRITE)

    def retry_topic_of(self, group: SubscriptionGroupConfig, unit: bool = False) -> TopicConfig:
        """Return a group's retry topic, made with the group's number of retry queues if it is missing. Refuses with 1
        if it cannot be made, and as `refuse_to_make` does.

        unit: mark a new topic as subscribed by units.
        """
        return self._made(RETRY_PREFIX + group.group_name, group.retry_queue_nums, _SUBSCRIBED_BY_UNITS if unit else 0)

    def dead_letters_of(self, group: str, frees: bool = False) -> TopicConfig:
        """Return the topic of a group's dead letters, made if it is missing. Refuses as `retry_topic_of` does. frees:
        once the message is stored there, a log file can be deleted, so a full disk takes it."""
        return self._made(DLQ_PREFIX + group, 1, frees=frees)

    def _made(self, topic: str, queue_nums: int, topic_sys_flag: int = 0, frees: bool = False) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            if not frees:
                self.refuse_to_make()
            config = self._topics.create_retry_topic(
                topic, queue_nums, PERM_READ | PERM_WRITE, topic_sys_flag=topic_sys_flag
            )
        if config is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] cannot be created")
        return config

    @staticmethod
    def limit_of(group: SubscriptionGroupConfig, max_reconsume_times: int | None, client_version: int) -> int:
        """Return how often a message is tried again: the request's limit if it has one, else the group's."""
        if client_version >= LIMITS_RETRIES and max_reconsume_times is not None:
            return max_reconsume_times
        return group.retry_max_times

    def dead_letter_topic(
        self, retry_topic: str, reconsume_times: int, max_reconsume_times: int | None, client_version: int
    ) -> TopicConfig | None:
        """Return the dead letter topic if the message was consumed too often or is given up; None if it is tried again.

        An ordered consumer sends here only when it gives up; a 4.9 client then sends its limit as the number of
        retries, not one more.
        """
        name = retry_topic[len(RETRY_PREFIX) :]
        limit = self.limit_of(self.group(name), max_reconsume_times, client_version)
        if reconsume_times <= limit and not self._locks.is_locked(name):
            return None
        return self.dead_letters_of(name)
