"""R14, week: the seven days that end with this one, beside the seven before.

The figures of earlier days are those of their digests, or else of their facts; groups and topics come from facts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..facts.tables import DEAD_LETTERS, DELETED_UNREAD, LAG, RETRIES
from . import digest, latency
from .days import View, listed, own_group, select
from .document import Document, Note, Plot, Value

REPORT = "week"
DAYS = 7
#: Figures of digests, with their units: columns of the table of days.
FIGURES = (
    ("messages", "messages"), ("bytes", "bytes"), ("worst_behind_ms", "ms"), ("groups_over_limit", "count"),
    ("retries", "messages"), ("dead_letters", "messages"), ("refused_sends", "messages"), ("down", "ms"),
)  # fmt: skip
#: Figures of which a week has the largest, not the sum.
LARGEST = ("worst_behind_ms", "groups_over_limit")


def make(view: View) -> Document:
    days = view.last_days(2 * DAYS)
    found = {day: _figures(view, day) for day in days}
    rows: list[tuple[Value, ...]] = [
        (day, *(found[day].get(key) for key, _ in FIGURES), _unread(view, day)) for day in days
    ]
    now, before = days[DAYS:], days[:DAYS]
    objectives = latency.objectives(view)
    tables = [
        listed("days", (("day", "day"), *FIGURES, ("deleted_unread", "messages")), rows),
        listed("groups", _GROUPS, _groups(view, now), ("open-group", "set-alert")),
        objectives,
        listed("topics", _TOPICS, _topics(view, now, before), ("open-topic",)),
    ]
    worst = objectives.rows[0] if objectives.rows else None
    tiles = (
        *(view.tile(key, _of_week(found, now, key), unit, _of_week(found, before, key)) for key, unit in FIGURES[:3]),
        *(view.tile(key, _of_week(found, now, key), unit, _of_week(found, before, key)) for key, unit in FIGURES[4:6]),
        view.tile("budget", int(worst[-1] or 0) if worst else None, "permille", None,
                  (("group", worst[0]),) if worst else ()),
    )  # fmt: skip
    notes = []
    missing = sum(not found[day] for day in days)
    if missing:
        notes.append(Note("days_missing", (("days", missing), ("of", 2 * DAYS))))
    if objectives.rows:
        notes.append(latency.objective_note())
    legend = (("c0", "word", "this_week"), ("rest", "word", "week_before"))
    plots = [Plot("week", f"{REPORT}-week.svg", "days", legend)] if any(row[1] for row in rows) else []
    return view.document(REPORT, tiles, plots, tables, notes)


_GROUPS = (
    ("group", "group"), ("over_ms", "ms"), ("worst_ms", "ms"), ("dead_letters", "messages"), ("retries", "messages"),
    ("deleted_unread", "messages"),
)  # fmt: skip
_TOPICS = (("topic", "topic"), ("messages", "messages"), ("week_before", "messages"), ("change", "permille"))


def _figures(view: View, day: str) -> dict[str, int | None]:
    """Return the figures of a day's digest; of an earlier day whose digest is gone, those that its facts give."""
    known = view.snapshot.earlier.get(day) if day != view.snapshot.day else None
    if known is None and view.whole(day) is not None:
        return digest.figures(replace(view, snapshot=replace(view.snapshot, day=day)))
    return known or {}


def _of_week(found: dict[str, dict[str, int | None]], days: list[str], key: str) -> int | None:
    """Return the sum of a figure over the days that have it, or the largest; None if none has it."""
    known = [value for day in days if (value := found[day].get(key)) is not None]
    return None if not known else max(known) if key in LARGEST else sum(known)


def _unread(view: View, day: str) -> int | None:
    """Return the number of messages that were deleted unread; None of a day for which that was not counted."""
    facts = view.whole(day)
    return None if facts is None or DELETED_UNREAD.name not in facts else digest.lost(facts)


def _groups(view: View, days: list[str]) -> list[tuple[Value, ...]]:
    """Return the groups that had anything wrong in the week, the longest over their limits first."""
    over: Counter[str] = Counter()
    worst: Counter[str] = Counter()
    letters, tries, unread = Counter[str](), Counter[str](), Counter[str]()
    is_counted = False
    for facts in filter(None, map(view.whole, days)):
        is_counted = is_counted or DELETED_UNREAD.name in facts
        for group, max_ms, over_ms in select(facts, LAG, "group max_ms over_ms"):
            over[group] += max(0, over_ms)
            worst[group] = max(worst[group], max_ms)
        for group, messages in select(facts, DEAD_LETTERS, "group messages"):
            letters[group] += messages
        for group, messages, replayed in select(facts, RETRIES, "group messages replayed"):
            tries[group] += messages - replayed
        for group, messages in select(facts, DELETED_UNREAD, "group messages"):
            unread[group] += messages
    names = {*(+over), *(+letters), *(+tries), *(+unread)}
    rows: list[tuple[Value, ...]] = [
        (group, over[group], worst[group], letters[group], tries[group], unread[group] if is_counted else None)
        for group in names if not own_group(group) and group != digest.REST[0]
    ]  # fmt: skip
    return sorted(
        rows, key=lambda row: (*(-int(value or 0) for value in (row[1], row[3], row[5], row[4])), str(row[0]))
    )


def _topics(view: View, now: list[str], before: list[str]) -> list[tuple[Value, ...]]:
    """Return messages by topic of both weeks, the most first. A change is given only between weeks of the same days."""
    sums = []
    for days in (now, before):
        sums.append(Counter[str]())
        for facts in filter(None, map(view.whole, days)):
            sums[-1].update({topic: messages for topic, (messages, _) in digest.user_traffic(view, facts).items()})
    is_counted = any(view.whole(day) is not None for day in before)
    whole = all(view.whole(day) is not None for day in (*now, *before)) and not view.unfinished
    rows: list[tuple[Value, ...]] = []
    for topic in sorted({*sums[0], *sums[1]}, key=lambda topic: (-sums[0][topic], topic)):
        count, then = sums[0][topic], sums[1][topic]
        rows.append(
            (topic, count, then if is_counted else None, (count - then) * 1000 // then if whole and then else None)
        )
    return rows
