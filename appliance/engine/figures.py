"""All figures of a broker, its topics and its groups. Each is one row: its names, its unit and how it is read.

/metrics, the history with its charts, the rules of alerts, the front page and the API read these rows, so a new figure
of the broker is one row. Figures of single slaves and members of a set, which have labels, are made where those are
judged (`window/replicas`); upstream's figures of single topics, groups and connections in `upstream_metrics.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Read = Callable[[Any], Any]


def _found_by_walk(reading: object) -> float:
    raise AssertionError("the measurements find it")


class Figure(NamedTuple):
    """One figure.

    name: in the history, in rules of alerts and on the front page. of: "broker", "topic" or "group". unit: "messages",
    "messages/s", "bytes", "bytes/s", "ms", "%" or "". read: takes a `traffic.Reading` and returns a number, None if it
    is not known now; without it `measurements.py` finds the value in its walk over groups and topics. kept: the history
    keeps it. metric: its name at /metrics, behind `rocketbox_` unless it begins with `rocketmq_`; "" for none. The
    value is divided by `per` there. Totals count from the start. upstream: its name in Apache's own metrics behind
    `rocketmq_`, "" for none.
    """

    name: str
    unit: str
    read: Read = _found_by_walk
    of: str = "broker"
    kept: bool = False
    metric: str = ""
    per: int = 1
    upstream: str = ""


def _kept(name: str, unit: str, read: Read = _found_by_walk, **names: Any) -> Figure:
    return Figure(name, unit, read, kept=True, **names)


def _metric(name: str, unit: str, read: Read, upstream: str = "") -> Figure:
    return Figure(name, unit, read, metric=name, upstream=upstream)


#: The order is that of GET /metrics of the API, and of the lines of /metrics.
FIGURES = (
    _kept("in_rate", "messages/s", lambda b: b.rate("in")),
    _kept("out_rate", "messages/s", lambda b: b.rate("out")),
    _kept("in_bytes_rate", "bytes/s", lambda b: b.rate("in_bytes")),
    _kept("out_bytes_rate", "bytes/s", lambda b: b.rate("out_bytes")),
    _kept("lag", "messages"),
    _kept("lag_ms", "ms"),
    _kept("dead_letters", "messages"),
    _kept("retries", "messages"),
    _kept(
        "half_messages", "messages", lambda b: b.halves.count, metric="rocketmq_half_messages", upstream="half_messages"
    ),
    _kept(
        "delayed_messages",
        "messages",
        lambda b: sum(b.delayed.waiting(level) for level in b.delayed.levels()),
        metric="delayed_messages_waiting",
    ),
    _kept(
        "timed_messages",
        "messages",
        lambda b: b.timers.pending,
        metric="timed_messages_waiting",
        upstream="timing_messages",
    ),
    _kept("delayed_late_ms", "ms", lambda b: b.delayed.late_ms, metric="delayed_messages_late_seconds", per=1000),
    _kept(
        "timed_late_ms",
        "ms",
        lambda b: b.timers.late_ms,
        metric="timed_messages_late_seconds",
        per=1000,
        upstream="timer_dequeue_latency",
    ),
    _kept("sync_ms", "ms"),
    _kept("log_bytes", "bytes", lambda b: b.store.published - b.store.log.min_offset, upstream="storage_size"),
    _kept(
        "unsynced_bytes",
        "bytes",
        lambda b: max(0, b.store.log.written - b.store.log.durable),
        metric="commit_log_unsynced_bytes",
        upstream="storage_flush_behind_bytes",
    ),
    _kept("disk_used_percent", "%", lambda b: b.disk.figures().used_percent),
    _kept("memory_bytes", "bytes", lambda b: b.memory()),
    _kept("connections", "", lambda b: len(b.server.connections)),
    _kept("refused_sends", "messages"),
    _kept("forced_deletions", ""),
    _kept("starts", ""),
    _kept("role_changes", ""),
    _kept("topic_in_rate", "messages/s", of="topic"),
    _kept("topic_out_rate", "messages/s", of="topic"),
    _kept("topic_messages", "messages", of="topic"),
    _kept("topic_bytes", "bytes", of="topic"),
    _kept("group_lag", "messages", of="group"),
    _kept("group_lag_ms", "ms", of="group"),
    _kept("group_out_rate", "messages/s", of="group"),
    _kept("group_dead_letters", "messages", of="group"),
    _kept("group_retries", "messages", of="group"),
    _kept("group_rebalances", "", of="group"),
    _kept("group_deletion_percent", "%", of="group"),
    Figure("put_total", "messages", lambda b: b.store.put_count, metric="messages_put_total"),
    Figure("delivered_total", "messages", lambda b: b.pull.message_count, metric="messages_pulled_total"),
    _metric("parked_pulls", "", lambda b: b.pull.long_polling.count),
    _metric("topics", "", lambda b: len(b.topics.all()), "topic_number"),
    _metric("subscription_groups", "", lambda b: len(b.groups.all()), "consumer_group_number"),
    _metric("consume_queues", "", lambda b: len(b.store.queues.all())),
    _metric("bytes_put_total", "bytes", lambda b: b.store.put_bytes, "throughput_in_total"),
    _metric("bytes_pulled_total", "bytes", lambda b: b.pull.message_bytes, "throughput_out_total"),
    _metric("messages_sent_back_total", "messages", lambda b: b.send_backs.sent_back),
    _metric("dead_letters_total", "messages", lambda b: b.send_backs.dead_letters + b.sends.dead_letters),
    _metric("pulls_found_total", "", lambda b: b.pull.found_count),
    _metric("pulls_missed_total", "", lambda b: b.pull.miss_count),
    _metric("messages_judged_total", "messages", lambda b: b.pull.judged_count),
    _metric("commit_log_min_offset", "bytes", lambda b: b.store.log.min_offset),
    _metric("commit_log_published_offset", "bytes", lambda b: b.store.published),
    _metric("commit_log_writable", "", lambda b: 0 if b.store.log.broken or b.store.log.refused else 1),
    _metric("commit_log_files", "", lambda b: len(b.store.log.segments)),
    _metric("index_files", "", lambda b: len(b.store.index.files)),
    _metric("index_behind_bytes", "bytes", lambda b: b.store.index.behind, "storage_dispatch_behind_bytes"),
    # As the cleaner saw it last, by whose look files are deleted; disk_used_percent is measured at each reading.
    _metric("disk_used_ratio", "", lambda b: b.store.cleaner.status.used_share),
    _metric("commit_log_files_deleted_total", "", lambda b: b.store.cleaner.status.log_files_deleted),
    _metric("queue_files_deleted_total", "", lambda b: b.store.cleaner.status.queue_files_deleted),
    _metric("delayed_messages_delivered_total", "messages", lambda b: b.delayed.delivered),
    _metric("delayed_messages_given_up_total", "messages", lambda b: sum(b.delayed.given_up.values())),
    _metric("delivery_events_written_total", "", lambda b: b.deliveries.written),
    _metric("delivery_events_lost_total", "", lambda b: b.deliveries.lost),
    _metric("rocketmq_commit_messages_total", "messages", lambda b: b.transactions.committed, "commit_messages_total"),
    _metric(
        "rocketmq_rollback_messages_total", "messages", lambda b: b.transactions.rolled_back, "rollback_messages_total"
    ),
    _metric("half_messages_discarded_total", "messages", lambda b: b.transactions.discarded),
    _metric("half_messages_lost_total", "messages", lambda b: b.transactions.lost),
    _metric("half_messages_without_producer", "messages", lambda b: b.transactions.waiting),
    _metric("half_messages_oldest_seconds", "", lambda b: b.oldest_half_s()),
    _metric("transaction_checks_total", "", lambda b: b.transactions.asked),
    _metric("timed_messages_delivered_total", "messages", lambda b: b.timers.delivered, "timer_dequeue_total"),
    _metric("timed_messages_cancelled_total", "messages", lambda b: b.timers.cancelled),
    _metric("timed_messages_given_up_total", "messages", lambda b: sum(b.timers.given_up.values())),
    _metric("timed_messages_rolled_total", "messages", lambda b: b.rolls.rolled),
    _metric("wire_users_at_quota", "", lambda b: b.quota_count("users_at_quota")),
    _metric("quota_sends_delayed_total", "", lambda b: b.quota_count("sends_delayed")),
    _metric("quota_sends_refused_total", "", lambda b: b.quota_count("sends_refused")),
    _metric("quota_requests_delayed_total", "", lambda b: b.quota_count("requests_delayed")),
    _metric("quota_requests_refused_total", "", lambda b: b.quota_count("requests_refused")),
    _metric("quota_pulls_held_total", "", lambda b: b.quota_count("pulls_held")),
    _metric("quota_connections_refused_total", "", lambda b: b.quota_count("connections_refused")),
)
BY_NAME = {figure.name: figure for figure in FIGURES}
#: Those of which a history is kept.
KEPT = {name: figure for name, figure in BY_NAME.items() if figure.kept}
