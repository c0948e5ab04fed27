"""Cleaning on request: one way for requests 306, 316 and 329 and for the window.

Apache's 306 forgets every queue whose messages have all expired, so that its offsets begin again at 0 below those that
groups have committed. Here a queue keeps its offsets as long as its topic exists; queues without a topic are deleted.
Source: RocketMQ `AdminBrokerProcessor`, `DefaultMessageStore.cleanExpiredConsumerQueue`, `cleanUnusedTopic`.
"""

from __future__ import annotations

import logging

from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..store.message_store import MessageStore
from .topics import TopicConfigManager

logger = logging.getLogger(__name__)

#: Light message queues have no topic of their own in the table.
_LMQ_PREFIX = "%LMQ%"


class RequestedCleaning:
    """On the thread of the pool "admin". by: who asked, for the log."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager) -> None:
        # Constant after construction.
        self._store = store
        self._topics = topics

    def clean_log(self, by: str) -> None:
        """Have expired log files deleted, whatever the hour. Returns before they are."""
        logger.info("admin: deletion of expired log files requested by=%s", by)
        self._store.cleaner.request()

    def clean_queues(self, by: str) -> list[str]:
        """Have all queues follow the log, and delete the queues of topics without a configuration whose messages have
        all expired; return the names of those topics."""
        logger.info("admin: deletion of expired queue files requested by=%s", by)
        self._store.cleaner.request_queues()
        left = {queue.topic for queue in self._store.queues.all() if queue.min_offset < queue.max_offset}
        return self._delete_queues(self._unknown_topics() - left, by)

    def clean_topics(self, by: str) -> list[str]:
        """Delete the queues of topics that have no configuration; return the topics' names. Blocks until the files are
        deleted."""
        return self._delete_queues(self._unknown_topics(), by)

    def _unknown_topics(self) -> set[str]:
        topics = self._topics
        return {
            topic
            for topic in {queue.topic for queue in self._store.queues.all()}
            if topics.get(topic) is None and not topics.is_system_topic(topic) and not topic.startswith(_LMQ_PREFIX)
        }

    def _delete_queues(self, names: set[str], by: str) -> list[str]:
        gone = []
        for topic in sorted(names):
            with self._topics.keeping_unknown(topic) as unknown:
                if not unknown:
                    continue
                try:
                    self._store.delete_topic(topic)
                except OSError as error:
                    raise RefusedRequest(
                        ResponseCode.SYSTEM_ERROR, f"the queues of {topic} are not all gone: {error}; try again"
                    ) from None
                gone.append(topic)
        if gone:
            logger.info("admin: queues without a topic deleted %s by=%s", gone, by)
        return gone
