"""Every key that documents contain; a test checks that the console has a word for each.

Another test makes documents from many facts and checks that they contain no other key.
"""

from __future__ import annotations

#: Units of tiles, and of columns besides.
TILE_UNITS = ("messages", "bytes", "ms", "count", "permille", "time_ms")
COLUMN_UNITS = (*TILE_UNITS, "day", "topic", "group", "text", "word", "in_unit", "unit")

TILES = {
    "digest": ("messages", "bytes", "worst_behind_ms", "groups_over_limit", "retries", "dead_letters"),
    "group-health": ("groups_over_limit", "worst_behind_ms", "rebalances", "dead_letters"),
    "failures": ("dead_letters", "retries", "kept_dead_letters", "expired", "replayed"),
    "latency": ("slowest_p95", "late", "delivered", "groups"),
    "capacity": ("full_on", "disk_used", "stored", "least_margin"),
    "hygiene": ("idle_topics", "lonely_groups", "conflicts", "leftovers"),
    "week": ("messages", "bytes", "worst_behind_ms", "retries", "dead_letters", "budget"),
    "producers": ("producers", "largest_share", "clocks_ahead"),
    "queues": ("skewed_topics", "worst_skew", "idle_queues"),
    "sizes": ("median", "p99", "largest"),
    "repeats": ("copies", "copies_share", "repeated_ids", "hottest"),
}
#: Keys for the subject of a tile's value: names, an address or a key as they are, and times.
WHERE = ("group", "topic", "host", "key", "time_ms", "earliest", "latest")
PLOTS = {
    "digest": (),
    "group-health": ("behind",),
    "failures": ("where", "days", "depths"),
    "latency": ("shares", "changes"),
    "capacity": ("stored", "disk", "margins"),
    "hygiene": ("clients",),
    "week": ("week",),
    "producers": ("producers",),
    "queues": ("skew",),
    "sizes": ("steps",),
    "repeats": ("keys",),
}
#: Columns by table, by report.
TABLES = {
    "digest": {
        "worst": ("group", "what", "now", "unit"),
        "worsened": ("group", "topic", "what", "before", "now", "unit"),
        "deleted_unread": ("group", "topic", "messages", "queues", "at"),
        "incidents": ("what", "count", "first_hour", "last_hour", "unit"),
    },
    "group-health": {
        "groups": ("group", "worst_ms", "worst_at", "over_ms", "limit_ms", "hours", "rebalances", "messages"),
        "hours": ("group", "hour", "p95_ms"),
    },
    "failures": {
        "pairs": ("group", "topic", "dead_letters", "day_before", "fourteen_days", "bytes", "retries"),
        "groups": ("group", "dead_letters", "kept", "expired", "replayed", "retries"),
        "days": ("day", "in", "replayed", "expired"),
        "depths": ("depth", "retries", "replayed"),
    },
    "latency": {
        "groups": ("group", "messages", "late", "p50", "p95", "p99", "last_p95", "longer", "p95_week_ago", "change"),
        "topics": ("group", "topic", "messages", "late", "p50", "p95", "p99"),
        "objectives": ("group", "limit_ms", "within_day", "within_week", "outside", "budget"),
        "shares": ("group", "which", "within", "messages", "of"),
        "changes": ("group", "p95_week_ago", "p95", "change"),
    },
    "capacity": {
        "topics": ("topic", "kind", "stored", "fourteen_days", "share", "own_retention"),
        "margins": ("group", "lag", "oldest_unread", "retention", "margin", "deleted_unread", "deleted_in"),
        "days": ("day", "stored", "log", "used", "total"),
        "topic_days": ("day", "topic", "stored"),
        "expected": ("day", "used", "low", "expected", "high"),
    },
    "hygiene": {
        "topics": ("topic", "since", "sure", "messages"),
        "groups": ("group", "since", "days", "days_seen", "lag"),
        "conflicts": ("group", "topic"),
        "leftovers": ("topic", "kind", "of", "messages"),
        "clients": ("language", "version", "clients"),
    },
    "week": {
        "days": (
            "day", "messages", "bytes", "worst_behind_ms", "groups_over_limit", "retries", "dead_letters",
            "refused_sends", "down", "deleted_unread",
        ),
        "groups": ("group", "over_ms", "worst_ms", "dead_letters", "retries", "deleted_unread"),
        "objectives": ("group", "limit_ms", "within_day", "within_week", "outside", "budget"),
        "topics": ("topic", "messages", "week_before", "change"),
    },
    "producers": {
        "producers": ("host", "messages", "share", "bytes", "topics", "after", "most_after", "ahead"),
        "pairs": ("topic", "host", "messages", "bytes"),
    },
    "queues": {
        "topics": ("topic", "skew", "queues", "idle", "messages", "largest_queue", "largest", "least"),
        "queues": ("topic", "queue", "messages", "bytes", "share"),
    },
    "sizes": {
        "topics": ("topic", "messages", "mean", "p50", "p95", "p99", "largest", "bytes"),
        "largest": ("topic", "largest", "size", "queue", "offset", "at", "id"),
        "steps": ("up_to", "messages"),
    },
    "repeats": {
        "topics": ("topic", "copies", "repeated", "share", "ids"),
        "ids": ("topic", "id", "messages", "share"),
        "keys": ("topic", "key", "messages", "share"),
        "shards": ("topic", "shard", "messages", "share"),
    },
}  # fmt: skip
#: Values of cells of unit "word".
WORDS = (
    "behind", "over_limit", "dead_letters", "retries", "fewer_messages",  # what got worse
    "refused_sends", "forced_deletions", "role_changes", "starts", "down",  # what happened to the broker
    "first", "last",  # delivery
    "user", "retry", "dead-letter", "system",  # kinds of topics
    "last_message", "at_least",  # a topic is idle since this very time, or at least since
)  # fmt: skip
#: Words in legends.
LEGEND_WORDS = (
    "none_behind", "not_measured", "in", "replayed", "expired", "retries", "slower", "faster", "others", "used",
    "expected", "band", "limit", "last_delivery", "this_week", "week_before", "near", "running_share",
)  # fmt: skip
#: Notes by key, with the names of their values; _FOUND: those of a note about findings.
_FOUND = ("places", "first", "count", "bytes")
NOTES = {
    "deleted_unread": ("messages", "pairs", "group", "topic", "most"),
    "deleted_unread_by_one": ("messages", "group", "topic"),
    "deleted_unread_by_some": ("messages",),
    "incidents": ("refused_sends", "forced_deletions", "starts", "down"),  # of older versions
    **dict.fromkeys(("refused_sends", "forced_deletions", "role_changes", "starts", "down"), ("count",)),
    **dict.fromkeys(("worst_dead_letters", "worst_retries", "worst_over_limit", "worst_behind"), ("count", "group")),
    "fewer_messages": ("count", "topic", "before"),
    "nothing_wrong": (),
    "deleted_soon": ("groups", "left", "group", "topic"),
    "overview_full_on": ("day", "days"),
    "overview_not_full": ("days",),
    "lost_not_in_times": ("messages",),
    "not_delivered": ("messages", "group", "most"),
    "unfinished_day": ("until",),
    "made_late": ("until",),
    **dict.fromkeys(
        (
            "gap",
            "corrupt",
            "deliveries_lost",
            "deliveries_gap",
            "deliveries_unknown",
            "deliveries_begin",
            "log_begins",
            "earlier_run",
        ),
        _FOUND,
    ),
    "finding": ("kind", *_FOUND),
    "no_day_before": ("day",),
    "lag_not_measured": (),
    "groups_left_out": ("shown", "of"),
    "days_missing": ("days", "of"),
    "expired_not_known": ("queues",),
    "replayed_to_groups_only": (),
    "letters_kept": ("until",),
    "no_dead_letters": (),
    "no_retries": (),
    "percentiles_interpolated": (),
    "last_deliveries": (),
    "deliveries_not_measured": (),
    "objective": ("percent",),
    "no_week_before": ("day",),
    "longer_than_the_last_bound": ("messages", "ms"),
    "nothing_stored": (),
    "disk_not_measured": (),
    "full_now": ("percent",),
    "full_on": ("day", "percent"),
    "never_full": (),
    "forecast_late": (),
    "not_full_within": ("days",),
    "forecast_needs_days": ("have", "need"),
    "topics_not_known_yet": ("topics", "day", "need"),
    "groups_not_known_yet": ("day", "need"),
    "no_clients": (),
    "producers_left_out": ("messages",),
    "skew_meaning": ("percent",),
    "skew_of_few": ("messages",),
    "ids_sampled": ("one_in", "few"),
    "keys_sampled": ("one_in",),
}
#: Notes that explain figures. The other notes report that something is missing in them, or has to be done.
EXPLAINING = frozenset(
    (
        *("groups_left_out", "replayed_to_groups_only", "no_dead_letters", "no_retries", "percentiles_interpolated"),
        *("never_full", "not_full_within", "forecast_needs_days", "topics_not_known_yet", "groups_not_known_yet"),
        *("no_day_before", "no_week_before", "days_missing", "no_clients", "nothing_stored"),
        *("letters_kept", "last_deliveries"),
        *("producers_left_out", "skew_meaning", "skew_of_few", "ids_sampled", "keys_sampled"),
        *("objective", "longer_than_the_last_bound", "expired_not_known", "made_late", "earlier_run", "forecast_late"),
        *("overview_full_on", "overview_not_full"),
    )
)
#: Name of a note's value, or note and name -> its unit. All others are counts.
NOTE_UNITS = {
    "until": "time_ms", "ms": "ms", "bytes": "bytes", "down": "ms", "down.count": "ms", "worst_behind.count": "ms",
    "worst_over_limit.count": "ms", "left": "ms",
}  # fmt: skip
#: Actions that a row offers for its group or topic.
ACTS = (
    "open-group", "open-topic", "set-alert", "set-unread-alert", "dead-letters", "replay", "archive", "retries",
    "retention", "delete-topic", "delete-group", "subscriptions", "clients",
)  # fmt: skip


def unit_in_note(note: str, name: str) -> str:
    """Return the unit of a note's value."""
    return NOTE_UNITS.get(f"{note}.{name}", NOTE_UNITS.get(name, "count"))
