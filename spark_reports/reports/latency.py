"""R4, latency: the time from store to delivery, by group, compared with a week ago.

Times lie in buckets (`LATENCY_BOUNDS_MS`). A percentile is the geometric middle of its bucket, which is within a tenth
of the true value; it is None if it lies above the last bound, and then "longer" is the number of messages that took
longer. Messages that still waited at T0 count as slower than all others, so a percentile that lies among them is None,
too. Days that older versions counted have wider buckets: their messages are spread evenly over the present ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import isqrt

from ..facts.tables import FIRST_BUCKET, GROUPS, LATENCY, LATENCY_BOUNDS_MS, WIDE_BOUNDS_MS, DayFacts
from .days import MOST_ROWS, View, kind_by_name, late_recording, not_told, own_group, select
from .digest import lost
from .document import SERIES, Document, Note, Plot, Table, Tile

REPORT = "latency"
#: Groups with a curve of their own; rows of the plot of changes.
MOST_CURVES, MOST_CHANGES = len(SERIES), 20
#: With fewer messages than this no change is computed.
FEW = 20
WEEK = 7
#: Of this share of a week's messages the delivery is to take no longer than the group's limit; the rest is its budget.
OBJECTIVE_PERMILLE = 990

#: Number of messages by bucket; the last one is for times above all bounds.
Buckets = list[int]
ByGroup = dict[tuple[str, str, str], Buckets]


def buckets_of(facts: DayFacts | None, by_topic: bool = False) -> ByGroup:
    """Return buckets by (group, topic or "", which); those of "late" and "waiting" have all messages in the first
    bucket. Retries are left out: they were delivered before."""
    found: ByGroup = {}
    for group, topic, which, bucket, messages in select(facts, LATENCY, "group topic which bucket messages"):
        if messages and not own_group(group) and kind_by_name(topic) == "user":
            one = found.setdefault((group, topic if by_topic else "", which), [0] * (len(LATENCY_BOUNDS_MS) + 1))
            _add(one, bucket, messages)
    return found


def _add(found: Buckets, bucket: int, messages: int) -> None:
    if bucket >= FIRST_BUCKET:
        found[min(bucket - FIRST_BUCKET, len(LATENCY_BOUNDS_MS))] += messages
        return
    if bucket >= len(WIDE_BOUNDS_MS):
        found[-1] += messages
        return
    lower, upper = WIDE_BOUNDS_MS[bucket - 1] if bucket > 0 else 0, WIDE_BOUNDS_MS[max(bucket, 0)]
    done = 0
    for index, bound in enumerate(LATENCY_BOUNDS_MS):
        if lower < bound <= upper:
            upto = messages * (bound - lower) // (upper - lower)
            found[index] += upto - done
            done = upto


def percentile(buckets: Sequence[int], permille: int, waiting: int = 0) -> int | None:
    """Return a percentile in ms; None without messages, if it is above the last bound, or among the `waiting` messages
    that were not delivered."""
    rank = -(-(sum(buckets) + waiting) * permille // 1000)
    below = 0
    for index, bound in enumerate(LATENCY_BOUNDS_MS):
        if buckets[index] and below + buckets[index] >= rank:
            least = LATENCY_BOUNDS_MS[index - 1] + 1 if index else 1
            return (isqrt(4 * least * bound) + 1) // 2  # rounded
        below += buckets[index]
    return None


@dataclass(frozen=True, slots=True)
class Times:
    """Delivery times of a group, or of a group and topic. late: messages that were not delivered by the day's end;
    waiting: those of them that were not delivered by T0."""

    first: Buckets
    last: Buckets
    late: int = 0
    waiting: int = 0

    def percentile(self, permille: int) -> int | None:
        return percentile(self.first, permille, self.waiting)


def times_of(found: ByGroup) -> dict[tuple[str, str], Times]:
    """Return times by (group, topic)."""
    none = [0] * (len(LATENCY_BOUNDS_MS) + 1)
    return {
        (group, topic): Times(
            found.get((group, topic, "first"), none), found.get((group, topic, "last"), none),
            sum(found.get((group, topic, "late"), ())), sum(found.get((group, topic, "waiting"), ())),
        )
        for group, topic in dict.fromkeys((group, topic) for group, topic, _ in found)
    }  # fmt: skip


def by_group(facts: DayFacts | None) -> dict[str, Times]:
    return {group: times for (group, _), times in times_of(buckets_of(facts)).items()}


def make(view: View) -> Document:
    now, week_ago = by_group(view.today), by_group(view.before(WEEK))
    order = sorted(now, key=lambda group: (*_slowness(now[group]), group))
    # A group with only a few messages gets a curve only if there are not enough others.
    delivered = [group for group in order if sum(now[group].first)]
    curved = sorted(delivered, key=lambda group: sum(now[group].first) < FEW)[:MOST_CURVES]
    not_known = not_told(view.today)
    rows = tuple(_row(group, now[group], week_ago.get(group), group not in not_known) for group in order)
    changed = tuple(_change(row) for row in rows if row[_CHANGE] is not None)
    changed = tuple(sorted(changed, key=lambda row: (-_factor(int(row[1] or 1), int(row[2] or 1)), str(row[0]))))
    tables = [
        Table("groups", _COLUMNS, rows[:MOST_ROWS], tuple(("open-group",) for _ in rows[:MOST_ROWS]),
              max(0, len(rows) - MOST_ROWS)),
        _topics(times_of(buckets_of(view.today, by_topic=True)), not_known),
    ]  # fmt: skip
    budgets = objectives(view)
    if budgets.rows:
        tables.append(budgets)
    plots, notes = [], [Note("percentiles_interpolated")]
    if curved:
        tables.append(_curves(curved, now))
        legend = [(css, "group", group) for css, group in zip(SERIES, curved, strict=False)]
        if any(any(now[group].last) and now[group].last != now[group].first for group in curved):
            legend.append((f"{SERIES[0]} dash", "word", "last_delivery"))
            notes.append(Note("last_deliveries"))
        plots.append(Plot("shares", f"{REPORT}-shares.svg", "shares", tuple(legend)))
        if len(delivered) > len(curved):
            notes.append(Note("groups_left_out", (("shown", len(curved)), ("of", len(delivered)))))
    else:
        notes.append(Note("deliveries_not_measured"))
    if changed:
        tables.append(Table("changes", _CHANGES, changed[:MOST_CHANGES], (), max(0, len(changed) - MOST_CHANGES)))
        plots.append(Plot("changes", f"{REPORT}-changes.svg", "changes", _CHANGES_LEGEND))
    if not week_ago:
        notes.append(Note("no_week_before", (("day", view.day_before(WEEK)),)))
    longer = sum(found.first[-1] for found in now.values())
    if longer:
        notes.append(Note("longer_than_the_last_bound", (("messages", longer), ("ms", LATENCY_BOUNDS_MS[-1]))))
    if budgets.rows:
        notes.append(objective_note())
    if gone := lost(view.today):
        notes.insert(0, Note("lost_not_in_times", (("messages", gone),)))
    if late := sum(found.late for found in now.values()):
        group = _latest(now)
        values = (("messages", late), ("group", group), ("most", now[group].late))
        notes.insert(0, Note("not_delivered", values))
    return view.document(REPORT, _tiles(view, now, order), plots, tables, notes)


_COLUMNS = (
    ("group", "group"), ("messages", "messages"), ("late", "messages"), ("p50", "ms"), ("p95", "ms"), ("p99", "ms"),
    ("last_p95", "ms"), ("longer", "messages"), ("p95_week_ago", "ms"), ("change", "permille"),
)  # fmt: skip
_P95, _WEEK_AGO, _CHANGE = ([key for key, _ in _COLUMNS].index(key) for key in ("p95", "p95_week_ago", "change"))
_CHANGES = (("group", "group"), ("p95_week_ago", "ms"), ("p95", "ms"), ("change", "permille"))
_CHANGES_LEGEND = (("worse", "word", "slower"), ("better", "word", "faster"))


def _latest(now: dict[str, Times]) -> str:
    """Return the group with the most messages that were not delivered by the day's end."""
    return min(now, key=lambda group: (-now[group].late, group))


def _slowness(times: Times) -> tuple[int, int, int]:
    """Return a key that sorts the slowest first; a percentile that is not known counts as the slowest."""
    p95, p99 = times.percentile(950), times.percentile(990)
    above = LATENCY_BOUNDS_MS[-1] + 1
    return (-(above if p95 is None else p95), -(above if p99 is None else p99), -sum(times.first) - times.waiting)


def _row(group: str, times: Times, then: Times | None, is_known: bool) -> tuple[str | int | None, ...]:
    """Make a group's row. is_known: False if an SQL filter chose its messages, so that nothing is known to wait."""
    first = times.first
    p50, p95, p99 = (times.percentile(permille) for permille in (500, 950, 990))
    before = then.percentile(950) if then else None
    comparable = p95 and before and sum(first) >= FEW and then and sum(then.first) >= FEW
    change = (p95 - before) * 1000 // before if comparable and p95 and before else None
    last = percentile(times.last, 950, times.waiting)
    late = times.late if is_known else None
    return (group, sum(first), late, p50, p95, p99, last, first[-1], before, change)


def _factor(before: int, now: int) -> Fraction:
    """Return the size of a change: twice as slow is as large as twice as fast."""
    return Fraction(max(before, now), min(before, now))


def _change(row: tuple[str | int | None, ...]) -> tuple[str | int | None, ...]:
    return (row[0], row[_WEEK_AGO], row[_P95], row[_CHANGE])


def _topics(found: dict[tuple[str, str], Times], not_known: set[str]) -> Table:
    order = sorted(found, key=lambda pair: (*_slowness(found[pair]), pair))
    rows = tuple(
        (*pair, sum(times.first), None if pair[0] in not_known else times.late,
         *(times.percentile(permille) for permille in (500, 950, 990)))
        for pair, times in ((pair, found[pair]) for pair in order[:MOST_ROWS])
    )  # fmt: skip
    names = (("group", "group"), ("topic", "topic"), ("messages", "messages"), ("late", "messages"))
    return Table(
        "topics", (*names, ("p50", "ms"), ("p95", "ms"), ("p99", "ms")), rows, (), len(order) - len(rows)
    )  # fmt: skip


def objective_note() -> Note:
    return Note("objective", (("percent", OBJECTIVE_PERMILLE // 10),))


def objectives(view: View) -> Table:
    """Return for each group with messages the share of those that were delivered within its limit, and how much of the
    week's error budget is used: 1000 is all of it."""
    limits = dict(select(view.today, GROUPS, "group limit_ms"))
    week = [by_group(facts) for day in view.last_days(WEEK) if (facts := view.whole(day)) is not None]
    today = by_group(view.today)
    rows: list[tuple[str | int | None, ...]] = []
    for group in sorted({group for found in week for group in found} & limits.keys()):
        limit = limits[group]
        days = [found[group] for found in week if group in found]
        messages, outside = (sum(counts) for counts in zip(*(_outside(one, limit) for one in days), strict=True))
        if not messages:
            continue
        of_day = _outside(today[group], limit) if group in today else (0, 0)
        share_of_day = (of_day[0] - of_day[1]) * 1000 // of_day[0] if of_day[0] else None
        used = outside * 1_000_000 // (messages * (1000 - OBJECTIVE_PERMILLE))
        rows.append((group, limit, share_of_day, (messages - outside) * 1000 // messages, outside, used))
    rows.sort(key=lambda row: (-int(row[5] or 0), str(row[0])))
    acts = tuple(("open-group", "set-alert") for _ in rows[:MOST_ROWS])
    names = (("group", "group"), ("limit_ms", "ms"), ("within_day", "permille"), ("within_week", "permille"))
    columns = (*names, ("outside", "messages"), ("budget", "permille"))
    return Table("objectives", columns, tuple(rows[:MOST_ROWS]), acts, max(0, len(rows) - MOST_ROWS))


def _outside(times: Times, limit_ms: int) -> tuple[int, int]:
    """Return the number of messages, and of those that took longer than the limit or still wait. A bucket in which the
    limit lies counts as longer."""
    messages = sum(times.first) + times.waiting
    return messages, messages - sum(times.first[: bisect_right(LATENCY_BOUNDS_MS, limit_ms)])


def _curves(groups: Sequence[str], now: dict[str, Times]) -> Table:
    """Return the messages delivered within each wide bound, and the number of all, those that still wait among them."""
    rows: list[tuple[str | int | None, ...]] = []
    for group in groups:
        for which, buckets in (("first", now[group].first), ("last", now[group].last)):
            if not any(buckets):
                continue
            below = list(accumulate(buckets))
            for bound in WIDE_BOUNDS_MS:
                within = below[LATENCY_BOUNDS_MS.index(bound)]
                rows.append((group, which, bound, within, below[-1] + now[group].waiting))
    return Table(
        "shares",
        (("group", "group"), ("which", "word"), ("within", "ms"), ("messages", "messages"), ("of", "messages")),
        tuple(rows),
    )


def _tiles(view: View, now: dict[str, Times], order: list[str]) -> tuple[Tile, ...]:
    yesterday = by_group(view.before(1))
    known = view.before(1) is not None

    def slowest(found: dict[str, Times]) -> int | None:
        """Return the slowest group's p95 in ms; None without any, and if that of one is not known."""
        known = [one.percentile(950) for one in found.values()]
        return None if None in known else max((p95 for p95 in known if p95 is not None), default=None)

    def delivered(found: dict[str, Times]) -> int:
        return sum(sum(one.first) for one in found.values())

    def groups(found: dict[str, Times]) -> int:
        return sum(1 for one in found.values() if any(one.first))

    worst, where = slowest(now), order[0] if order else None
    late = sum(one.late for one in now.values())
    latest = _latest(now) if late else None
    nothing = not groups(now) and late_recording(view.today)
    return (
        view.tile("slowest_p95", worst, "ms", slowest(yesterday), (("group", where),) if where else ()),
        # Of a day that an older version counted it is not known, so there is none of the day before.
        view.tile("late", late, "messages", None, (("group", latest),) if latest else ()),
        view.tile(
            "delivered", None if nothing else delivered(now), "messages", delivered(yesterday) if known else None
        ),
        view.tile("groups", groups(now), "count", groups(yesterday) if known else None),
    )
