"""R1, digest: did anything go wrong on this day? Six figures with their week, and the groups and topics that got worse.

The six answer a person's questions in the morning: did the work arrive (messages, bytes), did it wait (worst behind,
groups over their limit), did it fail (retries, new dead letters). The time that a group was behind is shown rather than
the time of a delivery: it has a name and an hour, it includes messages that were not fetched yet, and it needs no
delivery events.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction

from ..facts.tables import DEAD_LETTERS, DELETED_UNREAD, FINDINGS, INCIDENTS, RETRIES, TRAFFIC, DayFacts
from . import group_health
from .days import MOST_ROWS, View, for_people, select
from .document import Document, Note, Table, Value
from .trends import trend_tile

#: Smallest growth that is worth a line; it is also added to both values, so that growth from nothing counts less.
FLOORS = {"behind": 60_000, "over_limit": 60_000, "dead_letters": 10, "retries": 100, "fewer_messages": 1000}
UNITS = {"behind": "ms", "over_limit": "ms"}
#: Rows of the tables of the worst, and of what got worse.
MOST_WORSENED = 5
#: Findings by which messages of the day may be missing: then it is unknown whether fewer were sent.
FEWER_BY_THEM = {"gap", "corrupt", "log begins"}
COLUMNS = (
    ("group", "group"), ("topic", "topic"), ("what", "word"), ("before", "in_unit"), ("now", "in_unit"),
    ("unit", "unit"),
)  # fmt: skip
WORST_COLUMNS = (("group", "group"), ("what", "word"), ("now", "in_unit"), ("unit", "unit"))
UNREAD_COLUMNS = (
    ("group", "group"), ("topic", "topic"), ("messages", "messages"), ("queues", "text"), ("at", "time_ms"),
)  # fmt: skip
#: Incidents in the order in which they are listed, with their units.
INCIDENT_UNITS = {"refused_sends": "messages", "forced_deletions": "count", "starts": "count", "down": "ms"}
INCIDENT_COLUMNS = (
    ("what", "word"), ("count", "in_unit"), ("first_hour", "time_ms"), ("last_hour", "time_ms"), ("unit", "unit"),
)  # fmt: skip
TILES = (
    ("messages", "messages"),
    ("bytes", "bytes"),
    ("worst_behind_ms", "ms"),
    ("groups_over_limit", "count"),
    ("retries", "messages"),
    ("dead_letters", "messages"),
)


def user_traffic(view: View, facts: DayFacts | None) -> dict[str, tuple[int, int]]:
    """Return (messages, bytes) by topic, of topics to which people send."""
    kinds = view.kind_of()
    found: dict[str, tuple[int, int]] = {}
    for topic, messages, size in select(facts, TRAFFIC, "topic messages bytes"):
        if for_people(topic, kinds):
            before = found.get(topic, (0, 0))
            found[topic] = (before[0] + messages, before[1] + size)
    return found


def figures(view: View) -> dict[str, int | None]:
    """Return the figures of this day that later digests show."""
    traffic = user_traffic(view, view.today).values()
    return {
        "messages": sum(messages for messages, _ in traffic),
        "bytes": sum(size for _, size in traffic),
        **group_health.figures(view.today),
        "retries": sum(_retries(view.today).values()),
        "dead_letters": sum(_dead_letters(view.today).values()),
        **_incident_figures(incidents(view.today)),
    }


def _retries(facts: DayFacts | None) -> Counter[str]:
    """Return retries by group, without copies that a replay made, which are not failures."""
    found: Counter[str] = Counter()
    for group, messages, replayed in select(facts, RETRIES, "group messages replayed"):
        found[group] += messages - replayed
    return found


def _dead_letters(facts: DayFacts | None) -> Counter[str]:
    found: Counter[str] = Counter()
    for group, messages in select(facts, DEAD_LETTERS, "group messages"):
        found[group] += messages
    return found


def make(view: View) -> Document:
    now = figures(view)
    where = {"worst_behind_ms": group_health.where_worst(group_health.health_of(view.today))}
    tiles = tuple(trend_tile(view, key, unit, now[key], where.get(key, ())) for key, unit in TILES)
    notes: list[Note] = []
    yesterday = view.before(1)
    if yesterday is None:
        notes.append(Note("no_day_before", (("day", view.day_before(1)),)))
    if now["worst_behind_ms"] is None:
        notes.append(Note("lag_not_measured"))
    rows = _worsened(view, yesterday) if yesterday is not None else []
    table = Table(
        "worsened",
        COLUMNS,
        tuple(_row(*found) for found in rows),
        tuple(_acts(kind, what) for kind, _, what, _, _ in rows),
    )
    worst = _worst(view)
    worst_table = Table(
        "worst",
        WORST_COLUMNS,
        tuple((group, what, now, UNITS.get(what, "messages")) for group, what, now in worst),
        tuple(_acts("group", what) for _, what, _ in worst),
    )
    unread = deleted_unread(view.today)
    happened = incidents(view.today)
    tables, first = [worst_table, table], []
    if unread:
        tables.append(_unread_table(unread))
        first.append(_unread_note(unread))
    if happened.keys() & INCIDENT_UNITS.keys():
        tables.append(_incident_table(happened))
        first.append(_incident_note(happened))
    document = view.document("digest", tiles, (), tables, notes, now)
    # Lost messages, and what happened to the broker, come before all other notes.
    return replace(document, notes=(*first, *document.notes))


@dataclass
class Unread:
    """Deleted messages of a topic that a group had not consumed. queues: their ids, ascending. at_ms: the last time."""

    messages: int = 0
    queues: tuple[int, ...] = ()
    at_ms: int = 0


def deleted_unread(facts: DayFacts | None) -> dict[tuple[str, str], Unread]:
    """Return the messages that retention deleted before they were consumed, by (group, topic), the most first."""
    found: dict[tuple[str, str], Unread] = {}
    columns = "group topic queue_id messages at_ms"
    for group, topic, queue_id, messages, at_ms in select(facts, DELETED_UNREAD, columns):
        one = found.setdefault((group, topic), Unread())
        one.messages += messages
        one.queues = tuple(sorted({*one.queues, queue_id}))
        one.at_ms = max(one.at_ms, at_ms)
    return dict(sorted(found.items(), key=lambda pair: (-pair[1].messages, pair[0])))


def _unread_note(unread: dict[tuple[str, str], Unread]) -> Note:
    (group, topic), worst = next(iter(unread.items()))
    messages = sum(one.messages for one in unread.values())
    values = (("messages", messages), ("pairs", len(unread)), ("group", group), ("topic", topic))
    return Note("deleted_unread", (*values, ("most", worst.messages)))


def _unread_table(unread: dict[tuple[str, str], Unread]) -> Table:
    rows = tuple(
        (group, topic, one.messages, ", ".join(map(str, one.queues)), one.at_ms)
        for (group, topic), one in unread.items()
    )[:MOST_ROWS]
    acts = tuple(("open-group", "retention") for _ in rows)
    return Table("deleted_unread", UNREAD_COLUMNS, rows, acts, len(unread) - len(rows))


@dataclass
class Incident:
    """count: in the unit of INCIDENT_UNITS. first_ms, last_ms: begins of the first hour and of the last one."""

    count: int
    first_ms: int
    last_ms: int


def incidents(facts: DayFacts | None) -> dict[str, Incident]:
    """Return what happened to the broker by kind, and "measured" if that is known."""
    found: dict[str, Incident] = {}
    for what, hour_ms, count in select(facts, INCIDENTS, "what hour_ms count"):
        one = found.setdefault(what, Incident(0, hour_ms, hour_ms))
        one.count += count
        one.first_ms, one.last_ms = min(one.first_ms, hour_ms), max(one.last_ms, hour_ms)
    return found


def _incident_figures(found: dict[str, Incident]) -> dict[str, int | None]:
    """Return the number of each kind; None if nothing was measured that day."""
    return {what: (found[what].count if what in found else 0) if found else None for what in INCIDENT_UNITS}


def _incident_note(found: dict[str, Incident]) -> Note:
    return Note("incidents", tuple(_incident_figures(found).items()))


def _incident_table(found: dict[str, Incident]) -> Table:
    rows = tuple(
        (what, found[what].count, found[what].first_ms, found[what].last_ms, unit)
        for what, unit in INCIDENT_UNITS.items() if what in found
    )  # fmt: skip
    return Table("incidents", INCIDENT_COLUMNS, rows)


def _worst(view: View) -> list[tuple[str, str, int]]:
    """Return (group, what, value) of the day alone: for each group the value that is the most times its floor. Groups
    with a client come first, then those whose value is the most times its floor."""
    health, letters, retries = group_health.health_of(view.today), _dead_letters(view.today), _retries(view.today)
    found = []
    for group in {*health, *letters, *retries}:
        one = health.get(group) or group_health.Health()
        values = {
            "dead_letters": letters[group], "over_limit": one.over_ms, "behind": one.worst_ms or 0,
            "retries": retries[group],
        }  # fmt: skip
        times, what = max(((Fraction(value, FLOORS[what]), what) for what, value in values.items()), key=lambda x: x[0])
        if times >= 1:
            found.append((not one.clients, -times, group, what, values[what]))
    return [(group, what, value) for _, _, group, what, value in sorted(found)[:MOST_WORSENED]]


Worse = tuple[str, str, str, int, int]


def _worsened(view: View, yesterday: DayFacts) -> list[Worse]:
    """Return (kind, name, what, before, now) for each group or topic: the value that grew by the largest factor; the
    worst first."""
    best: dict[tuple[str, str], tuple[Fraction, Worse]] = {}

    def consider(kind: str, name: str, what: str, before: int, now: int) -> None:
        grew = now - before if what != "fewer_messages" else before - now
        floor = FLOORS[what]
        if grew < floor:
            return
        low, high = sorted((before, now))
        factor = Fraction(high + floor, low + floor)
        found = (factor, (kind, name, what, before, now))
        # At the same factor the first one considered stays.
        if (kind, name) not in best or factor > best[kind, name][0]:
            best[kind, name] = found

    health, health_before = group_health.health_of(view.today), group_health.health_of(yesterday)
    letters, letters_before = _dead_letters(view.today), _dead_letters(yesterday)
    retries, retries_before = _retries(view.today), _retries(yesterday)
    for group in sorted({*health, *letters, *retries}):
        consider("group", group, "dead_letters", letters_before[group], letters[group])
        consider("group", group, "retries", retries_before[group], retries[group])
        one, before = health.get(group), health_before.get(group)
        # A group that was not measured the day before is left out: it is unknown whether it got worse.
        if one and before and one.worst_ms is not None and before.worst_ms is not None:
            consider("group", group, "behind", before.worst_ms, one.worst_ms)
            consider("group", group, "over_limit", before.over_ms, one.over_ms)
    lost = {kind for kind, _ in select(view.today, FINDINGS, "kind count")} & FEWER_BY_THEM
    if not view.unfinished and not lost:
        traffic, traffic_before = user_traffic(view, view.today), user_traffic(view, yesterday)
        for topic in sorted(traffic_before):
            before_count, count = traffic_before[topic][0], traffic.get(topic, (0, 0))[0]
            if count * 4 <= before_count:
                consider("topic", topic, "fewer_messages", before_count, count)
    order = sorted(best.values(), key=lambda found: (-found[0], found[1]))
    return [row for _, row in order[:MOST_WORSENED]]


def _row(kind: str, name: str, what: str, before: int, now: int) -> tuple[Value, ...]:
    group, topic = (name, None) if kind == "group" else (None, name)
    return (group, topic, what, before, now, UNITS.get(what, "messages"))


def _acts(kind: str, what: str) -> tuple[str, ...]:
    if kind == "topic":
        return ("open-topic",)
    return ("open-group", {"dead_letters": "dead-letters", "retries": "retries"}.get(what, "set-alert"))
