"""R3, failures: what fails and where, does it grow, and which dead letters expired before a person looked at them?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from appliance.engine.protocol.names import DLQ_PREFIX

from ..facts.tables import DEAD_LETTERS, QUEUES, RETRIES, DayFacts
from .days import MOST_ROWS, View, select
from .document import RUNNING_SHARE, Document, Note, Plot, Table
from .trends import trend_tile

DAYS = 14
#: Retries deeper than 5.3.3's sixteen are counted together, as this depth.
DEEPEST = 17
REPORT = "failures"


@dataclass(slots=True)
class Failures:
    """Failures of one day: messages by (group, topic); depths: (retries, copies of replays) by depth."""

    letters: Counter[tuple[str, str]] = field(default_factory=Counter)
    letter_bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    retries: Counter[tuple[str, str]] = field(default_factory=Counter)
    replayed: Counter[tuple[str, str]] = field(default_factory=Counter)
    depths: dict[int, tuple[int, int]] = field(default_factory=dict)


def failures_of(facts: DayFacts | None) -> Failures:
    found = Failures()
    for group, topic, messages, size in select(facts, DEAD_LETTERS, "group topic messages bytes"):
        found.letters[group, topic] += messages
        found.letter_bytes[group, topic] += size
    for group, topic, depth, messages, replayed in select(facts, RETRIES, "group topic depth messages replayed"):
        found.retries[group, topic] += messages - replayed
        found.replayed[group, topic] += replayed
        before = found.depths.get(min(depth, DEEPEST), (0, 0))
        found.depths[min(depth, DEEPEST)] = (before[0] + messages - replayed, before[1] + replayed)
    return found


Ends = dict[tuple[str, int], tuple[int, int]]


def letter_queues(facts: DayFacts | None) -> Ends:
    """Return (min, max) offset of each queue of dead letters."""
    rows = select(facts, QUEUES, "topic queue_id min_offset max_offset")
    return {(topic, queue): (low, high) for topic, queue, low, high in rows if topic.startswith(DLQ_PREFIX)}


def _kept(ends: Ends) -> Counter[str]:
    """Return the number of dead letters that are kept, by group."""
    found: Counter[str] = Counter()
    for (topic, _), (low, high) in ends.items():
        found[topic.removeprefix(DLQ_PREFIX)] += max(0, high - low)
    return found


def expired_since(before: Ends, now: Ends) -> tuple[Counter[str], int]:
    """Return the dead letters that retention deleted between two runs, by group: offsets are never used again, so it is
    the rise of the lowest offset. Second: number of queues for which it is unknown, since they were made, deleted or
    made anew in between."""
    found: Counter[str] = Counter()
    unknown = 0
    for key in sorted(before.keys() | now.keys()):
        (low_before, high_before), (low, _) = before.get(key, (-1, -1)), now.get(key, (-1, -1))
        if key not in now:
            unknown += high_before > low_before
        elif key not in before:
            unknown += low > 0
        elif low < low_before or now[key][1] < high_before:
            unknown += 1
        else:
            found[key[0].removeprefix(DLQ_PREFIX)] += low - low_before
    return found, unknown


def make(view: View) -> Document:
    days = view.last_days(DAYS)
    by_day = {day: failures_of(found) for day in days if (found := view.whole(day)) is not None}
    today = by_day[days[-1]]
    yesterday = by_day.get(days[-2])
    looks = {day: view.in_time(day) for day in [view.day_before(DAYS), *days]}
    ends = {day: letter_queues(found) for day, found in looks.items() if found is not None}
    expired: dict[str, Counter[str]] = {}
    unknown = 0
    for before, day in zip([view.day_before(DAYS), *days], days, strict=False):
        if before in ends and day in ends:
            expired[day], more = expired_since(ends[before], ends[day])
            unknown += more
    kept = _kept(letter_queues(view.today))
    kept_before = _kept(ends[days[-2]]) if days[-2] in ends else None
    long: Counter[tuple[str, str]] = Counter()
    for failures in by_day.values():
        long.update(failures.letters)
    new, gone = today.letters.total(), expired.get(days[-1])
    tiles = (
        trend_tile(view, "dead_letters", "messages", new),
        trend_tile(view, "retries", "messages", today.retries.total()),
        view.tile("kept_dead_letters", kept.total(), "messages", None if kept_before is None else kept_before.total()),
        view.tile("expired", None if gone is None else gone.total(), "messages",
                  expired[days[-2]].total() if days[-2] in expired else None),
        view.tile("replayed", today.replayed.total(), "messages",
                  yesterday.replayed.total() if yesterday else None),
    )  # fmt: skip
    notes = []
    if kept.total() or new:
        notes.append(Note("letters_kept", (("until", view.snapshot.t0_ms),)))
    if missing := [day for day in days if day not in by_day]:
        notes.append(Note("days_missing", (("days", len(missing)), ("of", DAYS))))
    if unknown:
        notes.append(Note("expired_not_known", (("queues", unknown),)))
    if any(one.replayed.total() for one in by_day.values()):
        notes.append(Note("replayed_to_groups_only"))
    tables = [
        _pairs(today, yesterday, long),
        _groups(today, kept, gone),
        Table(
            "days",
            (("day", "day"), ("in", "messages"), ("replayed", "messages"), ("expired", "messages")),
            tuple(_day(day, by_day.get(day), expired.get(day)) for day in days),
        ),
        Table(
            "depths",
            (("depth", "count"), ("retries", "messages"), ("replayed", "messages")),
            tuple((depth, *today.depths[depth]) for depth in sorted(today.depths)),
        ),
    ]
    plots = []
    if new:
        several = sum(bool(row[2]) for row in tables[0].rows) > 1
        plots.append(Plot("where", f"{REPORT}-where.svg", "pairs", RUNNING_SHARE if several else ()))
    else:
        notes.append(Note("no_dead_letters"))
    if any(value for row in tables[2].rows for value in row[1:]):
        plots.append(Plot("days", f"{REPORT}-days.svg", "days", _DAYS_LEGEND))
    if any(map(any, today.depths.values())):
        plots.append(Plot("depths", f"{REPORT}-depths.svg", "depths", _DEPTHS_LEGEND))
    else:
        notes.append(Note("no_retries"))
    figures: dict[str, int | None] = {"dead_letters": new, "retries": today.retries.total()}
    return view.document(REPORT, tiles, plots, tables, notes, figures)


_DAYS_LEGEND = (("c0", "word", "in"), ("c2", "word", "replayed"), ("rest", "word", "expired"))
_DEPTHS_LEGEND = (("c0", "word", "retries"), ("c2", "word", "replayed"))


def _pairs(today: Failures, yesterday: Failures | None, long: Counter[tuple[str, str]]) -> Table:
    pairs = sorted(
        (pair for pair in {*long, *today.retries} if long[pair] or today.retries[pair]),
        key=lambda pair: (-today.letters[pair], -long[pair], -today.retries[pair], pair),
    )
    rows = tuple(
        (
            *pair, today.letters[pair], yesterday.letters[pair] if yesterday else None, long[pair],
            today.letter_bytes[pair], today.retries[pair],
        )
        for pair in pairs[:MOST_ROWS]
    )  # fmt: skip
    return Table(
        "pairs",
        (
            ("group", "group"), ("topic", "topic"), ("dead_letters", "messages"), ("day_before", "messages"),
            ("fourteen_days", "messages"), ("bytes", "bytes"), ("retries", "messages"),
        ),
        rows, tuple(("dead-letters",) for _ in rows), len(pairs) - len(rows),
    )  # fmt: skip


def _groups(today: Failures, kept: Counter[str], expired: Counter[str] | None) -> Table:
    new, retries, replayed = (_by_group(found) for found in (today.letters, today.retries, today.replayed))
    names = sorted(
        (name for name in {*kept, *new, *retries, *replayed, *(expired or ())}),
        key=lambda name: (-new[name], -kept[name], -retries[name], name),
    )
    shown = names[:MOST_ROWS]
    return Table(
        "groups",
        (
            ("group", "group"), ("dead_letters", "messages"), ("kept", "messages"), ("expired", "messages"),
            ("replayed", "messages"), ("retries", "messages"),
        ),
        tuple(
            (name, new[name], kept[name], None if expired is None else expired[name], replayed[name], retries[name])
            for name in shown
        ),
        tuple(("dead-letters", "replay", "archive") if kept[name] else ("open-group",) for name in shown),
        len(names) - len(shown),
    )  # fmt: skip


def _by_group(found: Counter[tuple[str, str]]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for (group, _), count in found.items():
        sums[group] += count
    return sums


def _day(day: str, found: Failures | None, expired: Counter[str] | None) -> tuple[str | int | None, ...]:
    gone = None if expired is None else expired.total()
    return (day, found.letters.total(), found.replayed.total(), gone) if found else (day, None, None, gone)
