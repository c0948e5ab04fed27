"""The tables of facts. Whole numbers and texts only, so that two ways of counting can be compared row by row.

Times are ms since 1970; `hour_ms` is the begin of an hour of the clock in the reports' time zone. A row's day is not in
it: it is the directory's.
"""

from __future__ import annotations

from typing import NamedTuple

#: Of days that older versions counted: upper bounds of buckets of delivery times, in ms, bucket 0 the first of them;
#: the last bucket has none. Curves are drawn through these.
WIDE_BOUNDS_MS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 120_000, 300_000, 600_000,
    1_800_000, 3_600_000, 21_600_000, 86_400_000,
)  # fmt: skip
#: The number of the first bucket now, so that a number tells which bounds are meant.
FIRST_BUCKET = 100


def _bounds() -> tuple[int, ...]:
    """From 1 ms to a day, each a fifth above the one before, and the wide ones among them: no bucket spans more."""
    found, bound = set(WIDE_BOUNDS_MS), 1
    while bound < WIDE_BOUNDS_MS[-1]:
        found.add(bound)
        bound = max(bound + 1, bound * 6 // 5)
    return tuple(sorted(found))


#: Upper bounds of the buckets of delivery times, in ms; the last bucket has none.
LATENCY_BOUNDS_MS = _bounds()


class Table(NamedTuple):
    """columns: (name, "string" or "long"). keys: which of them tell rows apart; rows are kept in their order."""

    name: str
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]


def _table(name: str, keys: str, values: str) -> Table:
    """Names of texts begin with a quote."""
    names = [*keys.split(), *values.split()]
    columns = tuple((one.lstrip("'"), "string" if one.startswith("'") else "long") for one in names)
    return Table(name, columns, tuple(one.lstrip("'") for one in keys.split()))


#: Records of the log by store time, all topics: system topics as they are called. bytes: whole records.
TRAFFIC = _table("traffic", "'topic queue_id hour_ms", "messages bytes body_bytes")
#: Records of %RETRY% topics. topic: where the message came from (RETRY_TOPIC), "" where it is not said. depth:
#: reconsume times. replayed: of these, copies that a replay of dead letters made.
RETRIES = _table("retries", "'group 'topic depth hour_ms", "messages replayed")
#: Records of %DLQ% topics.
DEAD_LETTERS = _table("dead_letters", "'group 'topic hour_ms", "messages bytes")
#: How long from store to delivery, of messages stored within the day. which: "first" or "last" delivery by T0. bucket:
#: FIRST_BUCKET and the index in LATENCY_BOUNDS_MS of the lowest bound that is not below the time, or its length for
#: longer ones; below FIRST_BUCKET the same of WIDE_BOUNDS_MS.
LATENCY = _table("latency", "'group 'topic 'which bucket", "messages")
#: How far behind, by the samples that the console took (each 30 s); -1 without one. over_ms: how long above the
#: group's limit.
LAG = _table("lag", "'group hour_ms", "samples p95_ms max_ms over_ms rebalances")
#: Ends of queues at T0, of all topics.
QUEUES = _table("queues", "'topic queue_id", "min_offset max_offset")
#: One row a group at T0. lag, oldest_unread_ms: -1 where they are not known.
GROUPS = _table("groups", "'group", "clients lag oldest_unread_ms limit_ms")
#: One row: the disk at T0, in bytes; and T0, when this, QUEUES and GROUPS were looked at.
DISK = _table("disk", "", "total free store_bytes log_bytes retention_ms t0_ms")
#: Messages that retention deleted before a group had consumed them, by when. begin, end: the first queue offset, and
#: the one behind the last; at_ms: when the last of them went.
DELETED_UNREAD = _table("deleted_unread", "'group 'topic queue_id hour_ms", "messages begin end at_ms")
#: What could not be read: docs/facts.md tells kinds and places. count: what can be counted, else 0; bytes: likewise.
FINDINGS = _table("findings", "'kind 'place", "count bytes")

TABLES = (TRAFFIC, RETRIES, DEAD_LETTERS, LATENCY, LAG, QUEUES, GROUPS, DISK, DELETED_UNREAD, FINDINGS)
#: Days of older versions lack these.
ADDED = frozenset((DELETED_UNREAD.name,))

#: A row: its values in the order of the columns.
Row = tuple[str | int, ...]
#: By table name; rows sorted by their keys.
DayFacts = dict[str, list[Row]]


def t0_of(facts: DayFacts | None) -> int | None:
    """When queues, groups and the disk were looked at; None where it is not known."""
    rows = facts.get(DISK.name) if facts else None
    return int(rows[-1][-1]) if rows else None
