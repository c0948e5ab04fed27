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
from .trends import DAYS, trend_tile

#: Smallest growth that is worth a line; it is also added to both values, so that growth from nothing counts less.
FLOORS = {"behind": 60_000, "over_limit": 60_000, "dead_letters": 10, "retries": 100, "fewer_messages": 1000}
UNITS = {"behind": "ms", "over_limit": "ms"}
#: A topic is named if its messages fell to one in so many.
FALLEN = 4
#: Rows of the tables of the worst, and of what got worse.
MOST_WORSENED = 5
#: Findings by which messages of the day may be missing: then it is unknown whether fewer were sent.
FEWER_BY_THEM = {"gap", "corrupt", "log begins"}
#: Retries, and the lag of a group without a client, are named first only if they are so many times those of the day
#: before: some groups always need retries, and one that was abandoned is ever further behind.
NEWS_TIMES = 2
COLUMNS = (
    ("group", "group"), ("topic", "topic"), ("what", "word"), ("before", "in_unit"), ("now", "in_unit"),
    ("unit", "unit"),
)  # fmt: skip
WORST_COLUMNS = (("group", "group"), ("what", "word"), ("now", "in_unit"), ("unit", "unit"))
UNREAD_COLUMNS = (
    ("group", "group"), ("topic", "topic"), ("messages", "messages"), ("queues", "text"), ("at", "time_ms"),
)  # fmt: skip
#: Group and topic of what the broker summed up over all.
REST = ("*", "*")
#: Incidents in the order in which they are listed, with their units.
INCIDENT_UNITS = {
    "refused_sends": "messages", "forced_deletions": "count", "role_changes": "count", "starts": "count", "down": "ms",
}  # fmt: skip
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
    health = group_health.health_of(view.today)
    where = {"worst_behind_ms": group_health.where_worst(health)}
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
        tuple(_row(*found) for found in rows[:MOST_WORSENED]),
        tuple(_acts(kind, what) for kind, _, what, _, _ in rows[:MOST_WORSENED]),
    )
    worst = _worst(view.today, health)
    of_groups = {one[0]: one for one in reversed(worst)}  # the worst of each group
    listed = [one for one in worst if of_groups[one[0]] is one][:MOST_WORSENED]
    worst_table = Table(
        "worst",
        WORST_COLUMNS,
        tuple((group, what, now, UNITS.get(what, "messages")) for group, what, now in listed),
        tuple(_acts("group", what) for _, what, _ in listed),
    )
    unread = deleted_unread(view.today)
    happened = incidents(view.today)
    tables = []
    # Damage, lost messages, and what happened to the broker come before all other notes.
    document = view.document("digest", tiles, (), (), notes, now)
    first = [note for note in document.notes if note.key == "corrupt"]
    if unread:
        tables.append(_unread_table(unread))
        first += unread_note(view.today)
    if happened.keys() & INCIDENT_UNITS.keys():
        tables.append(_incident_table(happened))
        first += [Note(what, (("count", happened[what].count),)) for what in INCIDENT_UNITS if what in happened]
    first += _worst_note(health, worst, yesterday)
    first += _fallen_note(view, rows)
    if not first and _is_known(view, happened):
        first.append(Note("nothing_wrong"))
    others = (note for note in document.notes if note not in first)
    return replace(document, tables=(*tables, worst_table, table), notes=(*first, *others))


def _worst_note(
    health: dict[str, group_health.Health], worst: list[tuple[str, str, int]], yesterday: DayFacts | None
) -> list[Note]:
    """Return a note of the worst group; without those that stayed within their limit or are as they were the day
    before."""
    before, retries = group_health.health_of(yesterday), _retries(yesterday)
    none = group_health.Health()
    for group, what, value in worst:
        now, then = health.get(group, none), before.get(group, none)
        was = {"retries": retries[group], "behind": then.worst_ms or 0, "over_limit": then.over_ms}.get(what, 0)
        is_lag = what in ("behind", "over_limit")
        if (not is_lag or now.over_ms) and ((is_lag and now.clients) or value >= NEWS_TIMES * was):
            return [Note(f"worst_{what}", (("count", value), ("group", group)))]
    return []


def _fallen_note(view: View, worsened: list[Worse]) -> list[Note]:
    """Return a note of the topic that fell most, unless it had as few messages on that day of the week before."""
    week_before = view.before(DAYS)
    then = user_traffic(view, week_before)
    for _, topic, what, before, now in worsened:
        if what == "fewer_messages" and (week_before is None or now * FALLEN <= then.get(topic, (0, 0))[0]):
            return [Note("fewer_messages", (("count", now), ("topic", topic), ("before", before)))]
    return []


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
        if queue_id >= 0:  # else it is a sum of several
            one.queues = tuple(sorted({*one.queues, queue_id}))
        one.at_ms = max(one.at_ms, at_ms)
    return dict(sorted(found.items(), key=lambda pair: (-pair[1].messages, pair[0])))


def unread_note(facts: DayFacts) -> list[Note]:
    """Return a note of what was deleted unread, if anything was."""
    unread = deleted_unread(facts)
    if not unread:
        return []
    (group, topic), worst = next((one for one in unread.items() if one[0] != REST), next(iter(unread.items())))
    if (group, topic) == REST:
        return [Note("deleted_unread_by_some", (("messages", worst.messages),))]
    if len(unread) == 1:
        return [Note("deleted_unread_by_one", (("messages", worst.messages), ("group", group), ("topic", topic)))]
    values = (("messages", lost(facts)), ("pairs", len(unread)), ("group", group), ("topic", topic))
    return [Note("deleted_unread", (*values, ("most", worst.messages)))]


def lost(facts: DayFacts) -> int:
    """Return the number of messages that were deleted unread, each once, however many groups had not read it. The
    offsets of a topic that was made anew begin again; of one group's messages none is counted twice."""
    ranges: dict[tuple[str, int], list[tuple[int, int]]] = {}
    sums: dict[tuple[str, int], Counter[str]] = {}
    # Of sums over queues the offsets are not known: as many as the group lost that lost the most.
    whole: dict[str, Counter[str]] = {}
    columns = "group topic queue_id messages begin end"
    for group, topic, queue_id, messages, begin, end in select(facts, DELETED_UNREAD, columns):
        if queue_id < 0:
            whole.setdefault(topic, Counter())[group] += messages
            continue
        ranges.setdefault((topic, queue_id), []).append((begin, end))
        sums.setdefault((topic, queue_id), Counter())[group] += messages
    found = 0
    for queue, places in ranges.items():
        of = sums[queue]
        found += max(min(of.total(), _covered(places)), *of.values())
    return found + sum(max(groups.values()) for groups in whole.values())


def _covered(ranges: list[tuple[int, int]]) -> int:
    """Return the number of offsets that are in at least one of the ranges [begin, end)."""
    count, done = 0, -1
    for begin, end in sorted(ranges):
        count += max(0, end - max(begin, done))
        done = max(done, end)
    return count


def _unread_table(unread: dict[tuple[str, str], Unread]) -> Table:
    rows = tuple(
        (*((None, None) if pair == REST else pair), one.messages, ", ".join(map(str, one.queues)), one.at_ms)
        for pair, one in unread.items()
    )[:MOST_ROWS]
    acts = tuple(
        ("open-group", "set-unread-alert", "retention") if row[0] is not None else ("retention",) for row in rows
    )
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


def _is_known(view: View, found: dict[str, Incident]) -> bool:
    """True if there are samples of nearly all of the day: a busy machine may leave single ones out."""
    day_ms = view.snapshot.to_ms - view.snapshot.from_ms
    return "measured" in found and found["measured"].count * 20 >= day_ms * 19


def _incident_table(found: dict[str, Incident]) -> Table:
    rows = tuple(
        (what, found[what].count, found[what].first_ms, found[what].last_ms, unit)
        for what, unit in INCIDENT_UNITS.items() if what in found
    )  # fmt: skip
    return Table("incidents", INCIDENT_COLUMNS, rows)


def _worst(today: DayFacts, health: dict[str, group_health.Health]) -> list[tuple[str, str, int]]:
    """Return (group, what, value) of the day alone, of values that reach their floors: a group's dead letters, retries,
    and the worse value of its lag. Groups with a client come first, then values that are the most times their floor."""
    letters, retries = _dead_letters(today), _retries(today)
    found = []
    for group in {*health, *letters, *retries}:
        one = health.get(group) or group_health.Health()
        lag = {"over_limit": one.over_ms, "behind": one.worst_ms or 0}
        worse = max(lag, key=lambda what: Fraction(lag[what], FLOORS[what]))
        values = {"dead_letters": letters[group], worse: lag[worse], "retries": retries[group]}
        for place, (what, value) in enumerate(values.items()):
            if value >= FLOORS[what]:
                found.append((not one.clients, -Fraction(value, FLOORS[what]), group, place, what, value))
    return [(group, what, value) for _, _, group, _, what, value in sorted(found)]


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
            if count * FALLEN <= before_count:
                consider("topic", topic, "fewer_messages", before_count, count)
    order = sorted(best.values(), key=lambda found: (-found[0], found[1]))
    return [row for _, row in order]


def _row(kind: str, name: str, what: str, before: int, now: int) -> tuple[Value, ...]:
    group, topic = (name, None) if kind == "group" else (None, name)
    return (group, topic, what, before, now, UNITS.get(what, "messages"))


def _acts(kind: str, what: str) -> tuple[str, ...]:
    if kind == "topic":
        return ("open-topic",)
    return ("open-group", {"dead_letters": "dead-letters", "retries": "retries"}.get(what, "set-alert"))
