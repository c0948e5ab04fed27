"""R5, capacity: when is the disk full, which topics fill it, and are messages deleted before they are read?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from zoneinfo import ZoneInfo

from ..facts.hours import day_of
from ..facts.tables import DISK, GROUPS, TRAFFIC, DayFacts
from . import forecast
from .days import DAY_MS, MOST_ROWS, View, by_size, day_bounds, kind_by_name, own_group, select
from .digest import deleted_unread, unread_note
from .document import REST, SERIES, Document, Note, Plot, Table, Tile, Value

REPORT = "capacity"
#: Days of the plots: past ones, and expected ones.
DAYS, AHEAD = forecast.PAST, 28
#: Used share of the retention (permille) from which a group is worth a look.
NEAR = 800


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes."""

    total: int
    used: int
    log: int


def disk_of(facts: DayFacts | None) -> Disk | None:
    """Return the disk as last measured, None if it was not."""
    rows = sorted(select(facts, DISK, "total free log_bytes"))
    if not rows or rows[-1][0] <= 0:
        return None
    total, free, log = rows[-1]
    return Disk(total, max(0, total - free), log)


def stored_by_topic(facts: DayFacts | None) -> Counter[str]:
    """Return bytes by topic, of all topics: retries, dead letters and the broker's own fill the disk like others."""
    found: Counter[str] = Counter()
    for topic, count in select(facts, TRAFFIC, "topic bytes"):
        found[topic] += count
    return found


def make(view: View) -> Document:
    days = view.last_days(DAYS)
    stored = {day: stored_by_topic(facts) for day in days if (facts := view.whole(day)) is not None}
    disks = {day: disk_of(view.in_time(day)) for day in days[:-1]} | {days[-1]: disk_of(view.today)}
    notes = [*unread_note(view.today), *_soon_note(view)]
    if missing := len(days) - len(stored):
        notes.append(Note("days_missing", (("days", missing), ("of", DAYS))))
    outlook = _outlook(view, days, stored, disks, notes)
    margins = _margins(view)
    sums: Counter[str] = Counter()
    for found in stored.values():
        sums.update(found)
    top = [topic for topic in by_size(sums) if sums[topic]][: len(SERIES)]
    tables = [_topics(view, sums, stored[days[-1]]), margins, _days(days, stored, disks)]
    plots = []
    if top:
        tables.append(_topic_days(days, stored, top))
        legend = tuple((css, "topic", topic) for css, topic in zip(SERIES, top, strict=False))
        others = ((REST, "word", "others"),) if len([topic for topic in sums if sums[topic]]) > len(top) else ()
        plots.append(Plot("stored", f"{REPORT}-stored.svg", "topic_days", (*legend, *others)))
    else:
        notes.append(Note("nothing_stored"))
    disk = disks[days[-1]]
    if disk is not None:
        plots.append(
            Plot(
                "disk",
                f"{REPORT}-disk.svg",
                "expected",
                _DISK_LEGEND if outlook.rows else (_DISK_LEGEND[0], _DISK_LEGEND[-1]),
            )
        )
        tables.append(_expected(view, days, disks, outlook))
    if any(row[4] is not None for row in margins.rows):
        plots.append(Plot("margins", f"{REPORT}-margins.svg", "margins", _MARGINS_LEGEND))
    return view.document(
        REPORT, _tiles(view, disk, stored, margins, outlook), plots, tables, notes,
        {"limit": outlook.limit, "total": disk.total if disk else None, "retention_ms": view.snapshot.retention_ms},
    )  # fmt: skip


_DISK_LEGEND = (
    ("b", "word", "used"),
    ("b dash", "word", "expected"),
    ("band", "word", "band"),
    ("limit", "word", "limit"),
)
_MARGINS_LEGEND = (("c2", "text", "< 80%"), ("c0", "word", "near"), ("worse", "text", "≥ 100%"))


@dataclass(frozen=True, slots=True)
class Outlook:
    """rows: (low, middle, high) of days to come. full, earliest, latest: days until the limit is reached; 0: now."""

    limit: int | None = None
    rows: tuple[tuple[int, int, int], ...] = ()
    full: int | None = None
    earliest: int | None = None
    latest: int | None = None


def _outlook(
    view: View, days: list[str], stored: dict[str, Counter[str]], disks: dict[str, Disk | None], notes: list[Note]
) -> Outlook:
    """Return the outlook, and add the note that states it: full on a day, never, not within the horizon, or too few
    days for a forecast."""
    now = disks[days[-1]]
    if now is None:
        notes.append(Note("disk_not_measured"))
        return Outlook()
    limit = now.total * view.snapshot.disk_limit_percent // 100
    # A day that is not over does not show how much a whole day brings.
    last = 1 if view.unfinished else 0
    daily = {n - DAYS + 1: stored[day].total() for n, day in enumerate(days[: DAYS - last]) if day in stored}
    others = {n - DAYS + 1: max(0, disk.used - disk.log) for n, day in enumerate(days) if (disk := disks[day])}
    least = min(len(daily), len(others))
    if now.used >= limit:
        notes.append(Note("full_now", (("percent", view.snapshot.disk_limit_percent),)))
    if view.late:
        notes.append(Note("forecast_late"))
        return Outlook(limit, full=0 if now.used >= limit else None)
    if least < forecast.LEAST:
        notes.append(Note("forecast_needs_days", (("have", least), ("need", forecast.LEAST))))
        notes += _overview_note(view, None)
        return Outlook(limit, full=0 if now.used >= limit else None)
    past = forecast.Past(
        daily, others, now.log, Fraction(max(0, view.snapshot.retention_ms), DAY_MS), view.snapshot.log_file_bytes
    )
    rows = tuple(forecast.expect(past))
    if now.used >= limit:
        return Outlook(limit, rows, 0, 0, 0)
    lows, middles, highs = ([row[n] for row in rows] for n in range(3))
    full, earliest, latest = (forecast.first_above(values, limit) for values in (middles, highs, lows))
    if full is not None:
        notes.append(Note("full_on", (("day", view.day_before(-full)), ("percent", view.snapshot.disk_limit_percent))))
    elif earliest is None and forecast.levels_off(past):
        notes.append(Note("never_full"))
    else:
        notes.append(Note("not_full_within", (("days", forecast.HORIZON),)))
    notes += _overview_note(view, full)
    return Outlook(limit, rows, full, earliest, latest)


def _overview_note(view: View, full: int | None) -> list[Note]:
    """Return a note if the overview, which goes by the last minutes, expected the disk to be full on another day. full:
    days until the forecast expects that; None for not within the horizon, or unknown."""
    at_ms = view.snapshot.disk_full_ms
    if at_ms is None or (not at_ms and full is None):
        return []
    if not at_ms:
        return [Note("overview_not_full", (("days", forecast.PAST),))]
    day = day_of(at_ms, ZoneInfo(view.snapshot.zone))
    if full is not None and day == view.day_before(-full):
        return []
    return [Note("overview_full_on", (("day", day), ("days", forecast.PAST)))]


def _soon_note(view: View) -> list[Note]:
    """Return a note of the group that will lose messages first, as the overview's needs said at T0."""
    found = [
        (group.ahead.left_ms, group.name, group.ahead.topic)
        for group in view.snapshot.groups
        if group.ahead is not None and group.ahead.soon
    ]
    if not found or view.late:
        return []
    left_ms, group, topic = min(found)
    return [Note("deleted_soon", (("groups", len(found)), ("left", left_ms), ("group", group), ("topic", topic)))]


def _tiles(
    view: View, disk: Disk | None, stored: dict[str, Counter[str]], margins: Table, outlook: Outlook
) -> list[Tile]:
    before = disk_of(view.in_time(view.day_before(1)))
    yesterday = stored.get(view.day_before(1))
    worst = next((row for row in margins.rows if row[4] is not None), None)

    def moment(days: int | None) -> int | None:
        return None if days is None else day_bounds(view.day_before(-days), view.snapshot.zone)[0]

    around = (("earliest", moment(outlook.earliest)), ("latest", moment(outlook.latest)))
    return [
        view.tile("full_on", moment(outlook.full), "time_ms", None, around if outlook.earliest else ()),
        view.tile("disk_used", disk.used * 1000 // disk.total if disk else None, "permille",
                  before.used * 1000 // before.total if before else None),
        view.tile("stored", stored[view.snapshot.day].total(), "bytes",
                  None if yesterday is None else yesterday.total()),
        view.tile("least_margin", int(worst[4] or 0) if worst else None, "permille", None,
                  (("group", worst[0]),) if worst else ()),
    ]  # fmt: skip


def _margins(view: View) -> Table:
    """Return for each group the share of its oldest unread message's time until deletion that has passed, in permille:
    of the retention, or of less if it will be deleted sooner. From 1000 on messages are deleted unread. A group that
    lost messages that day has no less, since its next message is a younger one for that reason."""
    retention = view.snapshot.retention_ms
    ahead = {group.name: group.ahead for group in view.snapshot.groups}
    lost: Counter[str] = Counter()
    for (group, _), unread in deleted_unread(view.today).items():
        lost[group] += unread.messages
    found = []
    for group, lag, oldest in select(view.today, GROUPS, "group lag oldest_unread_ms"):
        if own_group(group):
            continue
        # If nothing is unread, nothing can be deleted unread.
        age = max(0, view.snapshot.t0_ms - oldest) if oldest >= 0 else 0 if lag == 0 else None
        permille = age * 1000 // retention if age is not None and retention > 0 else None
        soon = None
        if (one := ahead.get(group)) is not None:
            permille = max(permille or 0, one.age_ms * 1000 // max(1, one.age_ms + one.left_ms))
            soon = one.left_ms if one.soon else None
        if lost[group]:
            permille = max(permille or 0, 1000)
        found.append((group, lag if lag >= 0 else None, age, retention, permille, lost[group], soon))
    found.sort(key=lambda row: (-1 if row[4] is None else -2 - row[4], -(row[1] or 0), row[0]))
    rows = tuple(found[:MOST_ROWS])
    acts = tuple(
        ("retention", "open-group") if (row[4] or 0) >= NEAR or row[6] is not None else ("open-group",) for row in rows
    )
    names = (
        ("group", "group"),
        ("lag", "messages"),
        ("oldest_unread", "ms"),
        ("retention", "ms"),
        ("margin", "permille"),
        ("deleted_unread", "messages"),
        ("deleted_in", "ms"),
    )
    return Table("margins", names, rows, acts, len(found) - len(rows))


def _topics(view: View, sums: Counter[str], today: Counter[str]) -> Table:
    kinds = view.kind_of()
    of = {topic.name: topic for topic in view.snapshot.topics}
    names = [topic for topic in by_size(sums) if sums[topic]]
    total, rows, acts = max(1, sums.total()), [], []
    for topic in names[:MOST_ROWS]:
        kind = kinds.get(topic, kind_by_name(topic))
        own = of[topic].retention_ms if topic in of else None
        rows.append((topic, kind, today[topic], sums[topic], sums[topic] * 1000 // total, own))
        acts.append(("open-topic", "retention") if kind == "user" and topic in of else ())
    columns = (("topic", "topic"), ("kind", "word"), ("stored", "bytes"), ("fourteen_days", "bytes"))
    return Table(
        "topics", (*columns, ("share", "permille"), ("own_retention", "ms")), tuple(rows), tuple(acts),
        len(names) - len(rows),
    )  # fmt: skip


def _days(days: list[str], stored: dict[str, Counter[str]], disks: dict[str, Disk | None]) -> Table:
    rows = []
    for day in days:
        disk = disks[day]
        log, used, total = (disk.log, disk.used, disk.total) if disk else (None, None, None)
        rows.append((day, stored[day].total() if day in stored else None, log, used, total))
    units = (("stored", "bytes"), ("log", "bytes"), ("used", "bytes"), ("total", "bytes"))
    return Table("days", (("day", "day"), *units), tuple(rows))


def _topic_days(days: list[str], stored: dict[str, Counter[str]], top: list[str]) -> Table:
    """Return the rows of the plot's topics; a row without a topic is the sum of all others."""
    rows: list[tuple[Value, ...]] = []
    for day in days:
        found = stored.get(day)
        rows += [(day, topic, None if found is None else found[topic]) for topic in top]
        rest = None if found is None else found.total() - sum(found[topic] for topic in top)
        rows.append((day, None, rest))
    return Table("topic_days", (("day", "day"), ("topic", "topic"), ("stored", "bytes")), tuple(rows))


def _expected(view: View, days: list[str], disks: dict[str, Disk | None], outlook: Outlook) -> Table:
    rows: list[tuple[Value, ...]] = [
        (day, disk.used if (disk := disks[day]) else None, None, None, None) for day in days
    ]
    rows += [(view.day_before(-n), None, *row) for n, row in enumerate(outlook.rows[:AHEAD], 1)]
    units = (("used", "bytes"), ("low", "bytes"), ("expected", "bytes"), ("high", "bytes"))
    return Table("expected", (("day", "day"), *units), tuple(rows))
