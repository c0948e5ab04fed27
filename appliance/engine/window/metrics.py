"""Plain numbers for /metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine import Engine


def metrics_of(engine: Engine) -> dict[str, float]:
    """Numbers by name; totals count from the start."""
    found: dict[str, float] = {"connections": len(engine.server.connections)}
    broker = engine.broker
    if broker is not None:
        store = broker.store
        queues = store.queues.all()
        found |= {
            "topics": len(broker.topics.all()),
            "subscription_groups": len(broker.groups.all()),
            "consume_queues": len(queues),
            "messages_put_total": store.put_count,
            "bytes_put_total": store.put_bytes,
            "messages_pulled_total": broker.pull.answers.message_count,
            "bytes_pulled_total": broker.pull.answers.message_bytes,
            "pulls_found_total": broker.pull.answers.found_count,
            "pulls_missed_total": broker.pull.answers.miss_count,
            "parked_pulls": broker.pull.long_polling.count,
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
    if engine.namesrv is not None:
        routes = engine.namesrv.routes
        found |= {"namesrv_topics": routes.topic_count, "namesrv_brokers": routes.broker_count}
    return found
