"""Words of the reports: the texts that pages show for the keys in documents, in the reader's language.

A key may mean something else in each report: `REPORT.KEY` is looked up before `KEY`. `sentences.py` has the whole
sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from glob import escape

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

Words = dict[str, str | Promise]

#: Report -> (its name, the question that it answers).
REPORTS: dict[str, tuple[str | Promise, str | Promise]] = {
    "digest": (_("Morning digest"), _("Did anything go wrong?")),
    "week": (_("The week"), _("How did the last seven days compare with the seven before?")),
    "group-health": (_("Group health"), _("Which consumers fell behind, and when?")),
    "failures": (_("Dead letters and retries"), _("What fails, where, is it growing, and what expires?")),
    "latency": (_("Delivery latency"), _("How long from store to the first and to the last delivery?")),
    "capacity": (_("Capacity and retention"), _("When is the disk full, and is anything deleted before it is read?")),
    "hygiene": (_("Inventory and hygiene"), _("What can be deleted, and which clients are old?")),
    "producers": (_("Producers"), _("Which hosts send, how much, and are their clocks right?")),
    "queues": (_("Queue skew"), _("Do all queues of a topic get the same share of its messages?")),
    "sizes": (_("Message sizes"), _("How large are messages, and which is the largest?")),
    "repeats": (_("Duplicates and hot keys"), _("What was sent more than once, and which keys are the most frequent?")),
}

TILES: Words = {
    "messages": _("Messages received"),
    "bytes": _("Bytes received"),
    "worst_behind_ms": _("Furthest behind"),
    "groups_over_limit": _("Groups over their limit"),
    "retries": _("Retries"),
    "dead_letters": _("New dead letters"),
    "rebalances": _("Rebalances"),
    "kept_dead_letters": _("Dead letters kept, of all days"),
    "expired": _("Dead letters expired"),
    "replayed": _("Replayed"),
    "slowest_p95": _("Slowest group, 95th percentile"),
    "late": _("Not delivered by midnight"),
    "delivered": _("Messages delivered"),
    "groups": _("Groups with deliveries"),
    "full_on": _("Disk full"),
    "disk_used": _("Disk used"),
    "stored": _("Stored this day"),
    "least_margin": _("Retention used up by the oldest unread message"),
    "idle_topics": _("Topics without a new message for 30 days"),
    "lonely_groups": _("Groups without a client for 7 days"),
    "conflicts": _("Groups with clashing subscriptions"),
    "leftovers": _("Topics of groups that are gone"),
    "budget": _("Largest share of an error budget used"),
    "producers": _("Producers"),
    "largest_share": _("Share of the largest producer"),
    "clocks_ahead": _("Clocks ahead by a second or more"),
    "skewed_topics": _("Topics with uneven queues"),
    "worst_skew": _("Largest queue against the average"),
    "idle_queues": _("Queues without a message"),
    "median": _("Half are no larger than"),
    "p99": _("99 of a hundred are no larger than"),
    "largest": _("Largest message"),
    "copies": _("Duplicates"),
    "copies_share": _("Duplicates among messages with an id"),
    "repeated_ids": _("Ids that occur more than once"),
    "hottest": _("Most frequent key, share of its topic"),
}
#: Words for the values of a tile's `where` that are neither names nor moments.
PLACES: Words = {
    "earliest": _("at the earliest %(value)s"),
    "latest": _("at the latest %(value)s"),
}
PLOTS: Words = {
    "behind": _("How far behind in each hour, 95th percentile"),
    "where": _("Dead letters by group and topic"),
    "days": _("Dead letters of the last 14 days"),
    "depths": _("Retries by number of failed tries"),
    "shares": _("Share of messages delivered within a time, by group"),
    "changes": _("95th percentile against a week before"),
    "stored": _("Bytes stored each day, by topic"),
    "disk": _("Disk used, and what is expected"),
    "margins": _("Share of the retention that the oldest unread message has used up"),
    "clients": _("Clients by language and version"),
    "week": _("Messages of the last 14 days"),
    "producers": _("Messages by producer"),
    "skew": _("Largest queue against the average of its topic"),
    "steps": _("Messages by size"),
    "keys": _("Most frequent keys"),
}
TABLES: Words = {
    "worst": _("What was worst"),
    "worsened": _("What got worse the most"),
    "deleted_unread": _("Deleted before it was read"),
    "incidents": _("What happened to the broker"),
    "groups": _("Groups"),
    "hours": _("How far behind in each hour, 95th percentile"),
    "pairs": _("Where dead letters come from"),
    "days": _("The last 14 days"),
    "depths": _("Retries by number of failed tries"),
    "topics": _("Topics"),
    "shares": _("Messages delivered within a time"),
    "changes": _("Against a week before"),
    "objectives": _("Delivered within the limit, and the error budget of a week"),
    "margins": _("Groups and retention"),
    "topic_days": _("Bytes stored each day, by topic"),
    "expected": _("Disk used, and what is expected"),
    "conflicts": _("Clashing subscriptions"),
    "leftovers": _("Left over from groups that are gone"),
    "clients": _("Clients by language and version"),
    "failures.groups": _("Groups whose consumers failed"),
    "latency.groups": _("Delivery times of groups"),
    "latency.topics": _("Delivery times by group and topic"),
    "capacity.topics": _("What topics store"),
    "hygiene.topics": _("Topics without a new message for 30 days"),
    "hygiene.groups": _("Groups without a client for 7 days"),
    "week.groups": _("Groups with something wrong in the week"),
    "week.topics": _("Messages by topic, against the week before"),
    "producers": _("Producers"),
    "producers.pairs": _("Producers by topic"),
    "queues": _("Messages by queue, of the most uneven topics"),
    "queues.topics": _("How even the queues of topics are"),
    "largest": _("The largest messages"),
    "steps": _("Messages by size"),
    "sizes.topics": _("Sizes of bodies, as stored"),
    "ids": _("Most frequent ids"),
    "keys": _("Most frequent keys"),
    "shards": _("Most frequent sharding keys"),
    "repeats.topics": _("Duplicates by topic"),
}
COLUMNS: Words = {
    "kind": _("Kind"),
    "queues": _("Queues"),
    "at": _("Last at"),
    "count": _("How much"),
    "first_hour": _("First in the hour that began at"),
    "last_hour": _("Last in the hour that began at"),
    "what": _("What"),
    "before": _("The day before"),
    "now": _("This day"),
    "group": _("Group"),
    "topic": _("Topic"),
    "worst_ms": _("Furthest behind"),
    "worst_at": _("In the hour that began at"),
    "over_ms": _("Over its limit"),
    "limit_ms": _("Limit"),
    "hours": _("Hours measured"),
    "hour": _("Hour"),
    "p95_ms": _("95th percentile"),
    "rebalances": _("Rebalances"),
    "messages": _("Messages"),
    "dead_letters": _("New dead letters"),
    "day_before": _("The day before"),
    "fourteen_days": _("Last 14 days"),
    "bytes": _("Bytes"),
    "retries": _("Retries"),
    "kept": _("Kept, of all days"),
    "expired": _("Expired"),
    "replayed": _("Replayed"),
    "day": _("Day"),
    "in": _("New that day"),
    "depth": _("Failed tries"),
    "p50": _("50th percentile"),
    "p95": _("95th percentile"),
    "p99": _("99th percentile"),
    "last_p95": _("Last delivery, 95th percentile"),
    "late": _("Not delivered by midnight"),
    "longer": _("Longer than a day"),
    "p95_week_ago": _("A week before"),
    "change": _("Changed by"),
    "which": _("Delivery"),
    "within": _("Within"),
    "within_day": _("Within the limit this day"),
    "within_week": _("Within the limit in 7 days"),
    "outside": _("Not within the limit in 7 days"),
    "budget": _("Error budget used"),
    "of": _("Of"),
    "stored": _("Bytes stored"),
    "share": _("Share"),
    "own_retention": _("Retention of its own"),
    "lag": _("Lag"),
    "oldest_unread": _("Oldest unread message"),
    "retention": _("Retention"),
    "margin": _("Retention used up"),
    "deleted_in": _("Deleted unread in"),
    "log": _("Log"),
    "used": _("Used"),
    "total": _("Disk"),
    "low": _("Lowest expected"),
    "expected": _("Expected"),
    "high": _("Highest expected"),
    "since": _("Since"),
    "sure": _("How it is known"),
    "days": _("Days"),
    "days_seen": _("Days looked at"),
    "language": _("Language"),
    "version": _("Version"),
    "clients": _("Clients"),
    "hygiene.of": _("Group"),
    "hygiene.messages": _("Messages kept"),
    "worst_behind_ms": _("Furthest behind"),
    "groups_over_limit": _("Groups over their limit"),
    "refused_sends": _("Refused sends"),
    "down": _("Not running"),
    "deleted_unread": _("Deleted before it was read"),
    "week_before": _("The week before"),
    "host": _("Address"),
    "topics": _("Topics"),
    "after": _("From send to store, average"),
    "most_after": _("From send to store, at most"),
    "ahead": _("Clock ahead, at most"),
    "skew": _("Largest against average"),
    "idle": _("Without a message"),
    "largest_queue": _("Largest queue"),
    "queues.largest": _("Messages in it"),
    "least": _("In the smallest one"),
    "queue": _("Queue"),
    "mean": _("Average"),
    "largest": _("Largest body"),
    "size": _("Whole record"),
    "offset": _("Offset"),
    "sizes.at": _("Stored at"),
    "id": _("Message id"),
    "up_to": _("Up to"),
    "copies": _("Duplicates"),
    "repeated": _("Ids that occur more than once"),
    "ids": _("Ids looked at"),
    "key": _("Key"),
    "shard": _("Sharding key"),
}
VALUES: Words = {
    "behind": _("furthest behind"),
    "over_limit": _("time over its limit"),
    "dead_letters": _("dead letters"),
    "retries": _("retries"),
    "fewer_messages": _("fewer messages"),
    "refused_sends": _("sends that were refused"),
    "forced_deletions": _("log files deleted before their retention was over"),
    "role_changes": _("fail-overs: changes of the broker's role"),
    "starts": _("starts of the broker"),
    "down": _("not running"),
    "none_behind": _("none"),
    "not_measured": _("not measured"),
    "in": _("new"),
    "replayed": _("replayed"),
    "expired": _("expired"),
    "slower": _("slower"),
    "faster": _("faster"),
    "others": _("others"),
    "used": _("used"),
    "expected": _("expected"),
    "band": _("between the least and the most that is expected"),
    "limit": _("from here on messages are deleted before their retention is over"),
    "near": _("≥ 80%, or soon deleted unread"),
    "last_delivery": _("dashed: the last delivery"),
    "running_share": _("share of all, with the rows above"),
    "this_week": _("this week"),
    "week_before": _("the week before"),
    "first": _("first"),
    "last": _("last"),
    "user": _("user"),
    "retry": _("retry"),
    "dead-letter": _("dead letters"),
    "system": _("system"),
    "last_message": _("time of its last message"),
    "at_least": _("no new message since the first report"),
}


@dataclass(frozen=True, slots=True)
class Act:
    """A link to the page of an act. about: the kind of name it needs: "group", "topic", "" for none. query: (field,
    text), in which {name} is the name as a pattern."""

    words: str | Promise
    view: str
    about: str
    query: tuple[tuple[str, str], ...] = ()
    in_path: bool = True


#: Key of an act -> its pages. A row links to the first that the reader may open and that it has the name for.
ACTS: dict[str, tuple[Act, ...]] = {
    "set-alert": (
        Act(_("Set alert"), "alert_rule_create", "group", (("figure", "lag_minutes"), ("pattern", "{name}")), False),
    ),
    "set-unread-alert": (
        Act(
            _("Set alert"), "alert_rule_create", "group", (("figure", "deletion_percent"), ("pattern", "{name}")), False
        ),
    ),
    "dead-letters": (Act(_("Open dead letters"), "dead_letters", "group"),),
    "retries": (Act(_("Open retries"), "group_retries", "group"),),
    "replay": (Act(_("Replay"), "replay_create", "group"),),
    "archive": (Act(_("Archive"), "archive_create", "group"),),
    "subscriptions": (Act(_("Compare"), "group", "group", (("tab", "subscriptions"),)),),
    "clients": (Act(_("Clients"), "group", "group", (("tab", "clients"),)),),
    "retention": (
        Act(_("Change retention"), "topic_edit", "topic"),
        Act(_("Change retention"), "system_config_change", "", (), False),
    ),
    "delete-topic": (Act(_("Delete"), "topic_delete", "topic"),),
    "delete-group": (Act(_("Delete"), "group_delete", "group"),),
}
#: Acts without a button: it would lead to the same page as the name's link.
LINKED = ("open-group", "open-topic")

#: Steps of a run.
STEPS: Words = {
    "starting": _("starting"),
    "reading": _("reading the log"),
    "counting": _("counting"),
    "writing": _("keeping the facts"),
    "reports": _("making the reports"),
}
ENGINES: Words = {
    "auto": _("Spark for days of 4 GiB of log or more where it is installed, else plain Python"),
    "spark": _("Spark"),
    "python": _("plain Python"),
    "": _("not decided yet"),
}
#: Labels for the values in a run's record: INPUTS for its inputs, VERSIONS for the programs it ran on.
INPUTS: Words = {
    "t0_ms": _("The log's end was taken at"),
    "from_ms": _("Messages from"),
    "to_ms": _("Messages until"),
    "zone": _("Time zone"),
    "log_begin": _("Log from byte"),
    "log_end": _("Log to byte"),
    "queues": _("Queues"),
    "topics": _("Topics"),
    "groups": _("Consumer groups"),
    "day_bytes": _("Log files of the day"),
    "why": _("Why it was counted so"),
}
VERSIONS: Words = {
    "master": _("Spark master"),
    "rocketbox": "RocketBox", "code": "RocketBox", "python": "Python", "spark": "Spark", "pyspark": "PySpark",
    "java": "Java", "pandas": "pandas", "pyarrow": "PyArrow", "numpy": "NumPy",
}  # fmt: skip


def title(report: str) -> str:
    return str(REPORTS[report][0]) if report in REPORTS else plainly(report)


def question(report: str) -> str:
    return str(REPORTS[report][1]) if report in REPORTS else ""


def said(table: Words, key: str, report: str = "") -> str:
    """Return the words for a key; if a newer version made the run and the key is unknown, the key made readable."""
    found = table.get(f"{report}.{key}", table.get(key))
    return plainly(key) if found is None else str(found)


def plainly(key: str) -> str:
    return key.replace("-", " ").replace("_", " ")


def as_pattern(name: str) -> str:
    """Return a pattern that matches only this name."""
    return escape(name)
