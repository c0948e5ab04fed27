"""The broker's present figures, for the front page, the live frame and /metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...broker.delays.delivery import DeliverDelayed
from ...broker.deliveries.service import DeliveryService
from ...broker.groups import SubscriptionGroupManager
from ...broker.processors.pull import PullProcessor
from ...broker.sampler import Sampler
from ...broker.sending.send_back_counts import SendBackCounts
from ...broker.sending.send_path import SendPath
from ...broker.timers.delivery import DeliverTimers
from ...broker.timers.rolling import RollTimers
from ...broker.topics import TopicConfigManager
from ...remoting.server import RemotingServer
from ...store.message_store import MessageStore
from ..transactions.snapshots import TransactionCounts


class TrafficFigures:
    """Figures of the broker's traffic. Any thread; takes a fraction of a millisecond."""

    def __init__(self, store: MessageStore, pull: PullProcessor, server: RemotingServer, sampler: Sampler) -> None:
        # Constant after construction.
        self._store = store
        self._pull = pull
        self._server = server
        self._sampler = sampler

    @property
    def sample(self) -> tuple[int, int | None]:
        """Number of the newest sample, and wall ms when it was taken."""
        return self._sampler.count, self._sampler.sampled_at_ms or None

    def now(self) -> dict[str, Any]:
        """Return the figures by the names of `snapshots.Overview`; a rate is None before there are two samples."""
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
    store: MessageStore,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    pull: PullProcessor,
    delivery: DeliverDelayed,
    send_backs: SendBackCounts,
    sends: SendPath,
    deliveries: DeliveryService,
    transactions: Callable[[], TransactionCounts],
    wall_ms: Callable[[], int],
    timers: DeliverTimers,
    rolls: RollTimers,
) -> dict[str, float]:
    """Return numbers by name, for /metrics; totals count from the start. Names that begin with rocketmq_ are
    upstream's."""
    counts = transactions()
    oldest_ms = counts.oldest_stored_ms
    return {
        "topics": len(topics.all()),
        "subscription_groups": len(groups.all()),
        "consume_queues": len(store.queues.all()),
        "messages_put_total": store.put_count,
        "bytes_put_total": store.put_bytes,
        "messages_pulled_total": pull.message_count,
        "bytes_pulled_total": pull.message_bytes,
        "messages_sent_back_total": send_backs.sent_back,
        "dead_letters_total": send_backs.dead_letters + sends.dead_letters,
        "pulls_found_total": pull.found_count,
        "pulls_missed_total": pull.miss_count,
        "messages_judged_total": pull.judged_count,
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
        "delayed_messages_waiting": sum(delivery.waiting(level) for level in delivery.levels()),
        "delayed_messages_delivered_total": delivery.delivered,
        "delayed_messages_given_up_total": sum(delivery.given_up.values()),
        "delivery_events_written_total": deliveries.written,
        "delivery_events_lost_total": deliveries.lost,
        "rocketmq_half_messages": counts.open,
        "rocketmq_commit_messages_total": counts.committed,
        "rocketmq_rollback_messages_total": counts.rolled_back,
        "half_messages_discarded_total": counts.discarded,
        "half_messages_lost_total": counts.lost,
        "half_messages_without_producer": counts.waiting,
        "half_messages_oldest_seconds": 0 if oldest_ms is None else max(0, wall_ms() - oldest_ms) / 1000,
        "transaction_checks_total": counts.asked,
        "delayed_messages_late_seconds": delivery.late_ms / 1000,
        "timed_messages_waiting": timers.pending,
        "timed_messages_delivered_total": timers.delivered,
        "timed_messages_cancelled_total": timers.cancelled,
        "timed_messages_given_up_total": sum(timers.given_up.values()),
        "timed_messages_rolled_total": rolls.rolled,
        "timed_messages_late_seconds": timers.late_ms / 1000,
    }
