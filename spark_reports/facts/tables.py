"""The tables of facts. Whole numbers and texts only, so that two ways of counting can be compared row by row.

Times are ms since 1970; `hour_ms` is the begin of an hour of the clock in the reports' time zone. A row does not
contain its day: the directory's name does.
"""

from __future__ import annotations

from typing import NamedTuple

#: Upper bounds of buckets of delivery times, in ms, in days that older versions counted: bucket 0 has the first bound,
#: the last bucket none. Curves are drawn through these.
WIDE_BOUNDS_MS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 120_000, 300_000, 600_000,
    1_800_000, 3_600_000, 21_600_000, 86_400_000,
)  # fmt: skip
#: Number of the first bucket now, so that a bucket's number shows which bounds apply.
FIRST_BUCKET = 100


def _bounds() -> tuple[int, ...]:
    """Return bounds from 1 ms to a day, each a fifth above the one before, but at least 1 ms, with the wide ones among
    them: no bucket spans more."""
    found, bound = set(WIDE_BOUNDS_MS), 1
    while bound < WIDE_BOUNDS_MS[-1]:
        found.add(bound)
        bound = max(bound + 1, bound * 6 // 5)
    return tuple(sorted(found))


#: Upper bounds of the buckets of delivery times, in ms; the last bucket has none.
LATENCY_BOUNDS_MS = _bounds()


class Table(NamedTuple):
    """columns: (name, "string" or "long"). keys: the columns that identify a row; rows are sorted by them."""

    name: str
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]


def _table(name: str, keys: str, values: str) -> Table:
    """Make a table of two lists of column names; those of texts begin with a quote."""
    names = [*keys.split(), *values.split()]
    columns = tuple((one.lstrip("'"), "string" if one.startswith("'") else "long") for one in names)
    return Table(name, columns, tuple(one.lstrip("'") for one in keys.split()))


#: Records of the log by store time, of all topics, system topics included. bytes: whole records.
TRAFFIC = _table("traffic", "'topic queue_id hour_ms", "messages bytes body_bytes")
#: Records of %RETRY% topics. topic: the message's original topic (RETRY_TOPIC), "" without one. depth: reconsume times.
#: replayed: number of them that are copies made by a replay of dead letters.
RETRIES = _table("retries", "'group 'topic depth hour_ms", "messages replayed")
#: Records of %DLQ% topics.
DEAD_LETTERS = _table("dead_letters", "'group 'topic hour_ms", "messages bytes")
#: Times from store to delivery, of messages stored within the day. which: "first" or "last" delivery by T0; or with
#: bucket 0 "late", messages that were not delivered by the day's end, and "waiting", those of them that the group still
#: waited for at T0. bucket:
#: FIRST_BUCKET plus the index in LATENCY_BOUNDS_MS of the lowest bound that is not below the time, or plus its length
#: for longer times; below FIRST_BUCKET the same index in WIDE_BOUNDS_MS.
LATENCY = _table("latency", "'group 'topic 'which bucket", "messages")
#: Time that groups were behind, by the samples that the console took (each 30 s); -1 without one. over_ms: time above
#: the group's limit.
LAG = _table("lag", "'group hour_ms", "samples p95_ms max_ms over_ms rebalances")
#: What went wrong with the broker, by the same samples. what: "refused_sends" (messages), "forced_deletions" (log files
#: that were not old enough), "role_changes", "starts", "down" (ms without samples, between two others), and "measured"
#: (ms with them).
INCIDENTS = _table("incidents", "'what hour_ms", "count")
#: Ends of queues at T0, of all topics.
QUEUES = _table("queues", "'topic queue_id", "min_offset max_offset")
#: One row a group at T0. lag, oldest_unread_ms: -1 if unknown.
GROUPS = _table("groups", "'group", "clients lag oldest_unread_ms limit_ms")
#: One row: the disk at T0, in bytes; and T0, the time at which this, QUEUES and GROUPS were read.
DISK = _table("disk", "", "total free store_bytes log_bytes retention_ms t0_ms")
#: Messages that retention deleted before a group had consumed them, by the hour of deletion. begin, end: the first
#: queue offset, and the one behind the last; at_ms: when the last of them was deleted.
DELETED_UNREAD = _table("deleted_unread", "'group 'topic queue_id hour_ms", "messages begin end at_ms")
#: Messages by the address that sent them, of topics that people send to. host: an address or, of very many, a network;
#: topic "" in the row of all further pairs of a host, and both names in that of all further hosts. timed: messages with
#: a birth time that is a time at all; after_ms: sum of their times from birth to store, of which each counts as a day
#: at most; least_ms, most_ms: the extremes, negative if the producer's clock was ahead.
PRODUCERS = _table("producers", "'topic 'host", "messages bytes timed after_ms least_ms most_ms")
#: Bodies by size, as stored. bucket: `contents.bucket_of`. bytes: of the bodies.
SIZES = _table("sizes", "'topic bucket", "messages bytes")
#: The message with the largest body of each topic, the first one of equal ones. size: of the whole record. msg_id: ""
#: without one.
LARGEST = _table("largest", "'topic", "body_bytes size queue_id queue_offset at_ms 'msg_id")
#: Ids that several messages of a topic have, among sampled ids: one of `one_in`. ids: that were sampled; repeated: of
#: them, those of several messages; copies: messages beyond the first of each.
REPEATS = _table("repeats", "'topic", "ids repeated copies one_in")
#: The most frequent texts. what: "id" (of several messages), "key", "shard" (sharding key). messages: among the sampled
#: ones; one_in: times so many is the estimate of all.
FREQUENT = _table("frequent", "'what 'topic 'text", "messages one_in")
#: Parts that could not be read: docs/facts.md lists kinds and places. count, bytes: 0 if they cannot be counted.
FINDINGS = _table("findings", "'kind 'place", "count bytes")

TABLES = (
    TRAFFIC, RETRIES, DEAD_LETTERS, LATENCY, LAG, INCIDENTS, QUEUES, GROUPS, DISK, DELETED_UNREAD, PRODUCERS, SIZES,
    LARGEST, REPEATS, FREQUENT, FINDINGS,
)  # fmt: skip
#: Tables that `contents.Contents` counts.
CONTENTS = (PRODUCERS, SIZES, LARGEST, REPEATS, FREQUENT)
#: Tables that days of older versions lack.
ADDED = frozenset((DELETED_UNREAD.name, INCIDENTS.name, *(table.name for table in CONTENTS)))

#: A row: its values in the order of the columns.
Row = tuple[str | int, ...]
#: Rows by table name, sorted by their keys.
DayFacts = dict[str, list[Row]]


def t0_of(facts: DayFacts | None) -> int | None:
    """Return when queues, groups and the disk were read, None if unknown."""
    rows = facts.get(DISK.name) if facts else None
    return int(rows[-1][-1]) if rows else None
