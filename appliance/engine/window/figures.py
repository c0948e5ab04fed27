"""The broker's figures of this moment, for the front page, the live frame and /metrics."""

from __future__ import annotations

from typing import Any

from ..broker.groups import SubscriptionGroupManager
from ..broker.processors.pull import PullProcessor
from ..broker.topics import TopicConfigManager
from ..namesrv.namesrv import NameServer
from ..remoting.server import RemotingServer
from ..store.message_store import MessageStore
from .sampler import Sampler


class TrafficFigures:
    """What comes in and goes out. Any thread; a fraction of a millisecond."""

    def __init__(self, store: MessageStore, pull: PullProcessor, server: RemotingServer, sampler: Sampler) -> None:
        # Constant after construction.
        self._store = store
        self._pull = pull
        self._server = server
        self._sampler = sampler

    @property
    def sample(self) -> tuple[int, int | None]:
        """(number of the newest sample, wall ms when it was taken)."""
        return self._sampler.count, self._sampler.sampled_at_ms or None

    def now(self) -> dict[str, Any]:
        """By the names of `snapshots.Overview`; a rate is None before there are two samples."""
        store, sampler = self._store, self._sampler
        return {
            "in_rate": sampler.total_rate("in"),
            "out_rate": sampler.total_rate("out"),
            "in_bytes_rate": sampler.total_rate("in_bytes"),
            "out_bytes_rate": sampler.total_rate("out_bytes"),
            "put_total": store.put_count,
            "delivered_total": self._pull.message_count,
            "connections": len(self._server.connections),
            "parked_pulls": self._pull.long_polling.count,
            "log_bytes": store.published - store.log.min_offset,
            "unsynced_bytes": max(0, store.log.written - store.log.durable),
        }


def broker_metrics(
    store: MessageStore, topics: TopicConfigManager, groups: SubscriptionGroupManager, pull: PullProcessor
) -> dict[str, float]:
    """Plain numbers by name, for /metrics; totals count from the start."""
    return {
        "topics": len(topics.all()),
        "subscription_groups": len(groups.all()),
        "consume_queues": len(store.queues.all()),
        "messages_put_total": store.put_count,
        "bytes_put_total": store.put_bytes,
        "messages_pulled_total": pull.message_count,
        "bytes_pulled_total": pull.message_bytes,
        "pulls_found_total": pull.found_count,
        "pulls_missed_total": pull.miss_count,
        "parked_pulls": pull.long_polling.count,
        "commit_log_min_offset": store.log.min_offset,
        "commit_log_published_offset": store.published,
        "commit_log_unsynced_bytes": store.log.written - store.log.durable,
        "commit_log_writable": 0 if store.log.broken or store.log.refused else 1,
        "commit_log_files": len(store.log.segments),
        "index_files": len(store.index.files),
        "index_behind_bytes": store.index.behind,
        "disk_used_ratio": store.cleaner.status.used_share,
        "commit_log_files_deleted_total": store.cleaner.status.log_files_deleted,
        "queue_files_deleted_total": store.cleaner.status.queue_files_deleted,
    }


def namesrv_metrics(namesrv: NameServer) -> dict[str, float]:
    """The same of the name server."""
    return {"namesrv_topics": namesrv.routes.topic_count, "namesrv_brokers": namesrv.routes.broker_count}
