"""R4, latency: the time from store to delivery, by group, compared with a week ago.

Times lie in buckets (`LATENCY_BOUNDS_MS`). A percentile is the geometric middle of its bucket, which is within a tenth
of the true value; it is None if it lies above the last bound, and then "longer" is the number of messages that took
longer. Days that older versions counted have wider buckets: their messages are spread evenly over the present ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import isqrt

from ..facts.tables import FIRST_BUCKET, LATENCY, LATENCY_BOUNDS_MS, WIDE_BOUNDS_MS, DayFacts
from . import bars, curves
from .days import MOST_ROWS, View, kind_by_name, late_recording, own_group, select
from .document import Document, Note, Plot, Table, Tile
from .plots import SERIES
from .text import duration

REPORT = "latency"
#: Groups with a curve of their own; rows of the plot of changes.
MOST_CURVES, MOST_CHANGES = len(SERIES), 20
#: With fewer messages than this no change is computed.
FEW = 20
WEEK = 7

#: Number of messages by bucket; the last one is for times above all bounds.
Buckets = list[int]
ByGroup = dict[tuple[str, str, str], Buckets]


def buckets_of(facts: DayFacts | None, by_topic: bool = False) -> ByGroup:
    """Return buckets by (group, topic or "", "first" or "last"). Retries are left out: they were delivered before."""
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


def percentile(buckets: Sequence[int], permille: int) -> int | None:
    """Return a percentile in ms; None without messages, or if it is above the last bound."""
    rank = -(-sum(buckets) * permille // 1000)
    below = 0
    for index, bound in enumerate(LATENCY_BOUNDS_MS):
        if buckets[index] and below + buckets[index] >= rank:
            least = LATENCY_BOUNDS_MS[index - 1] + 1 if index else 1
            return (isqrt(4 * least * bound) + 1) // 2  # rounded
        below += buckets[index]
    return None


def make(view: View) -> Document:
    now, week_ago = buckets_of(view.today), buckets_of(view.before(WEEK))
    firsts = {group: found for (group, _, which), found in now.items() if which == "first"}
    order = sorted(firsts, key=lambda group: (*_slowness(firsts[group]), group))
    # A group with only a few messages gets a curve only if there are not enough others.
    curved = sorted(order, key=lambda group: sum(firsts[group]) < FEW)[:MOST_CURVES]
    rows = tuple(_row(group, now, week_ago) for group in order)
    changed = tuple(_change(row) for row in rows if row[-1] is not None)
    changed = tuple(sorted(changed, key=lambda row: (-_factor(int(row[1] or 1), int(row[2] or 1)), str(row[0]))))
    tables = [
        Table("groups", _COLUMNS, rows[:MOST_ROWS], tuple(("open-group",) for _ in rows[:MOST_ROWS]),
              max(0, len(rows) - MOST_ROWS)),
        _topics(buckets_of(view.today, by_topic=True)),
    ]  # fmt: skip
    plots, notes = [], [Note("percentiles_interpolated")]
    if curved:
        tables.append(_curves(curved, now))
        plots.append(Plot("shares", f"{REPORT}-shares.svg", "shares", tuple(
            (css, "group", group) for css, group in zip(SERIES, curved, strict=False)
        )))  # fmt: skip
        if len(order) > len(curved):
            notes.append(Note("groups_left_out", (("shown", len(curved)), ("of", len(order)))))
    else:
        notes.append(Note("deliveries_not_measured"))
    if changed:
        tables.append(Table("changes", _CHANGES, changed[:MOST_CHANGES], (), max(0, len(changed) - MOST_CHANGES)))
        plots.append(Plot("changes", f"{REPORT}-changes.svg", "changes", _CHANGES_LEGEND))
    if not week_ago:
        notes.append(Note("no_week_before", (("day", view.day_before(WEEK)),)))
    longer = sum(found[-1] for found in firsts.values())
    if longer:
        notes.append(Note("longer_than_the_last_bound", (("messages", longer), ("ms", LATENCY_BOUNDS_MS[-1]))))
    return view.document(REPORT, _tiles(view, firsts, order), plots, tables, notes)


_COLUMNS = (
    ("group", "group"), ("messages", "messages"), ("p50", "ms"), ("p95", "ms"), ("p99", "ms"), ("last_p95", "ms"),
    ("longer", "messages"), ("p95_week_ago", "ms"), ("change", "permille"),
)  # fmt: skip
_CHANGES = (("group", "group"), ("p95_week_ago", "ms"), ("p95", "ms"), ("change", "permille"))
_CHANGES_LEGEND = (("worse", "word", "slower"), ("better", "word", "faster"))


def _slowness(buckets: Buckets) -> tuple[int, int, int]:
    """Return a key that sorts the slowest first; a percentile above the last bound counts as the slowest."""
    p95, p99 = percentile(buckets, 950), percentile(buckets, 990)
    above = LATENCY_BOUNDS_MS[-1] + 1
    return (-(above if p95 is None else p95), -(above if p99 is None else p99), -sum(buckets))


def _row(group: str, now: ByGroup, week_ago: ByGroup) -> tuple[str | int | None, ...]:
    first, last, then = now[group, "", "first"], now.get((group, "", "last")), week_ago.get((group, "", "first"))
    p50, p95, p99 = (percentile(first, permille) for permille in (500, 950, 990))
    before = percentile(then, 950) if then else None
    comparable = p95 and before and sum(first) >= FEW and then and sum(then) >= FEW
    change = (p95 - before) * 1000 // before if comparable and p95 and before else None
    return (
        group, sum(first), p50, p95, p99, percentile(last, 950) if last else None, first[-1], before, change
    )  # fmt: skip


def _factor(before: int, now: int) -> Fraction:
    """Return the size of a change: twice as slow is as large as twice as fast."""
    return Fraction(max(before, now), min(before, now))


def _change(row: tuple[str | int | None, ...]) -> tuple[str | int | None, ...]:
    return (row[0], row[7], row[3], row[8])


def _topics(found: ByGroup) -> Table:
    firsts = {(group, topic): one for (group, topic, which), one in found.items() if which == "first"}
    order = sorted(firsts, key=lambda pair: (*_slowness(firsts[pair]), pair))
    rows = tuple(
        (*pair, sum(firsts[pair]), *(percentile(firsts[pair], permille) for permille in (500, 950, 990)))
        for pair in order[:MOST_ROWS]
    )
    names = (("group", "group"), ("topic", "topic"), ("messages", "messages"))
    return Table(
        "topics", (*names, ("p50", "ms"), ("p95", "ms"), ("p99", "ms")), rows, (), len(order) - len(rows)
    )  # fmt: skip


def _curves(groups: Sequence[str], now: ByGroup) -> Table:
    """Return the messages delivered within each wide bound, and the number of all."""
    rows: list[tuple[str | int | None, ...]] = []
    for group in groups:
        for which in ("first", "last"):
            buckets = now.get((group, "", which))
            if not buckets:
                continue
            below = list(accumulate(buckets))
            for bound in WIDE_BOUNDS_MS:
                rows.append((group, which, bound, below[LATENCY_BOUNDS_MS.index(bound)], sum(buckets)))
    return Table(
        "shares",
        (("group", "group"), ("which", "word"), ("within", "ms"), ("messages", "messages"), ("of", "messages")),
        tuple(rows),
    )


def _tiles(view: View, firsts: dict[str, Buckets], order: list[str]) -> tuple[Tile, ...]:
    yesterday = {group: one for (group, _, which), one in buckets_of(view.before(1)).items() if which == "first"}
    known = view.before(1) is not None

    def slowest(found: dict[str, Buckets]) -> int | None:
        """Return the slowest group's p95 in ms; None without any, and if one is above all bounds."""
        known = [percentile(one, 950) for one in found.values()]
        return None if None in known else max((p95 for p95 in known if p95 is not None), default=None)

    worst, where = slowest(firsts), order[0] if order else None
    return (
        view.tile("slowest_p95", worst, "ms", slowest(yesterday), (("group", where),) if where else ()),
        view.tile("delivered", None if not firsts and late_recording(view.today) else sum(map(sum, firsts.values())),
                  "messages",
                  sum(map(sum, yesterday.values())) if known else None),
        view.tile("groups", len(firsts), "count", len(yesterday) if known else None),
    )  # fmt: skip


def draw(document: Document) -> dict[str, bytes]:
    rows = {table.key: table.rows for table in document.tables}
    found = {}
    for plot in document.plots:
        if plot.key == "shares":
            classes = {name: css for css, _, name in plot.legend}
            found[plot.svg] = curves.shares(WIDE_BOUNDS_MS, _drawn(rows["shares"], classes))
        else:
            found[plot.svg] = bars.changes([_change_drawn(row) for row in rows["changes"]])
    return found


def _change_drawn(row: tuple[str | int | None, ...]) -> tuple[str, int, int, str]:
    before, now = int(row[1] or 1), int(row[2] or 1)
    return str(row[0]), before, now, f"{duration(before)} → {duration(now)}"


def _drawn(rows: Sequence[tuple[str | int | None, ...]], classes: dict[str, str]) -> list[curves.Curve]:
    """Return the curves to draw; that of last deliveries only if it differs from that of first ones."""
    points: dict[tuple[str, str], list[int]] = {}
    for group, which, _, messages, of in rows:
        points.setdefault((str(group), str(which)), []).append(int(messages or 0) * 1000 // int(of or 1))
    found = []
    for (group, which), permille in points.items():
        if which == "first" or permille != points.get((group, "first")):
            css = classes[group] + (" dash" if which == "last" else "")
            found.append(curves.Curve(f"{group} · {'1' if which == 'first' else 'n'}", css, tuple(permille)))
    return found
