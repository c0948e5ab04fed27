"""Merges two counts of a day, when less of it may be left than at the first one. PURE.

Logs, deliveries and samples are deleted when they are old. Until then the counts of a day that is over can only grow;
so if one became smaller, something was deleted, and the earlier rows are the right ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from .tables import (
    CONTENTS,
    DEAD_LETTERS,
    DELETED_UNREAD,
    DISK,
    FINDINGS,
    GROUPS,
    INCIDENTS,
    LAG,
    LATENCY,
    QUEUES,
    RETRIES,
    TRAFFIC,
    DayFacts,
    Row,
    Table,
    t0_of,
)

#: Kind of the finding that rows of an earlier run were kept; its place says which ones.
EARLIER = "earlier run"
DAY_MS = 86_400_000


def best_of(before: DayFacts | None, now: Mapping[str, list[Row]], to_ms: int) -> DayFacts:
    """Return the facts for the reports. before: of an earlier run. to_ms: the day's end. QUEUES, GROUPS and DISK are
    those of now."""
    found = {name: list(rows) for name, rows in now.items()}
    if before is None or (t0_of(before) or 0) < to_ms:  # counts of a part of the day
        return found
    findings = now[FINDINGS.name]
    earlier = []
    if _sum(before, TRAFFIC, "messages") > _sum(now, TRAFFIC, "messages"):
        for table in (TRAFFIC, RETRIES, DEAD_LETTERS, LATENCY, *CONTENTS):
            found[table.name] = before.get(table.name, [])
        findings = before[FINDINGS.name]
        earlier.append("messages")
    elif _delivered(before) > _delivered(now):
        found[LATENCY.name] = before[LATENCY.name]
        findings = [row for row in findings if not _of_deliveries(row)]
        findings += [row for row in before[FINDINGS.name] if _of_deliveries(row)]
        earlier.append("deliveries")
    if _sum(before, LAG, "samples") > _sum(now, LAG, "samples"):
        found[LAG.name] = before[LAG.name]
        earlier.append("lag")
    for table, column in ((DELETED_UNREAD, "messages"), (INCIDENTS, "count")):
        if _sum(before, table, column) > _sum(now, table, column):
            found[table.name] = before[table.name]
    rows = {row for row in findings if row[0] != EARLIER} | {(EARLIER, what, 0, 0) for what in earlier}
    found[FINDINGS.name] = sorted(rows)
    return found


def to_keep(before: DayFacts | None, best: DayFacts, to_ms: int) -> DayFacts:
    """Return the facts with which later reports compare theirs: queues, groups and the disk as read nearest to the
    day's end."""
    was, now = (None if before is None else t0_of(before)), t0_of(best)
    if before is None or was is None or now is None or not to_ms <= was < now:
        return best
    return {**best, **{table.name: before[table.name] for table in (QUEUES, GROUPS, DISK)}}


def is_late(t0_ms: int, to_ms: int) -> bool:
    """True if queues, groups and the disk are those of another day: read a day or more after the day's end."""
    return t0_ms >= to_ms + DAY_MS


def _sum(facts: Mapping[str, list[Row]], table: Table, column: str) -> int:
    at = [name for name, _ in table.columns].index(column)
    return sum(int(row[at]) for row in facts.get(table.name, ()))


def _delivered(facts: Mapping[str, list[Row]]) -> int:
    """Return the number of first deliveries. Messages that wait may become fewer without any being deleted."""
    names = [name for name, _ in LATENCY.columns]
    which, messages = names.index("which"), names.index("messages")
    return sum(int(row[messages]) for row in facts.get(LATENCY.name, ()) if row[which] == "first")


def _of_deliveries(row: Row) -> bool:
    return str(row[0]).startswith("deliveries")
