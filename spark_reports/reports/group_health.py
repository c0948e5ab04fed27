"""R2, group-health: which consumers fell behind, when, and by how much."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ..facts.tables import DEAD_LETTERS, GROUPS, LAG, LATENCY, DayFacts
from .days import MOST_ROWS, View, hours_of, kind_by_name, late_recording, not_told, own_group, select
from .document import UNMEASURED, Document, Note, Plot, Table
from .trends import trend_tile

#: Rows of the heat map.
MOST_SHOWN = 20


@dataclass(slots=True)
class Health:
    """A group on one day. hours: p95 in ms by hour. worst_ms: None without a sample; worst_at: its hour, None if the
    group was never behind. messages: stored that day and delivered by T0, retries left out; None if unknown. limit_ms:
    how far behind the group may be; None for one that is gone. clients: at T0."""

    hours: dict[int, int] = field(default_factory=dict)
    worst_ms: int | None = None
    worst_at: int | None = None
    over_ms: int = 0
    rebalances: int = 0
    messages: int | None = 0
    limit_ms: int | None = None
    clients: int = 0


def health_of(facts: DayFacts | None) -> dict[str, Health]:
    """Return the health by group, the broker's own groups left out."""
    found: dict[str, Health] = {}
    for group, clients, limit in select(facts, GROUPS, "group clients limit_ms"):
        one = found.setdefault(group, Health())
        one.clients, one.limit_ms = clients, limit
    rows = sorted(select(facts, LAG, "group hour_ms samples p95_ms max_ms over_ms rebalances"))
    for group, hour, samples, p95, worst, over, rebalances in rows:
        one = found.setdefault(group, Health())
        one.rebalances += rebalances
        if not samples:
            continue
        one.hours[hour] = max(p95, one.hours.get(hour, 0))
        one.over_ms += over
        if worst > (one.worst_ms or 0):
            one.worst_at = hour
        one.worst_ms = max(worst, one.worst_ms or 0)
    for group, topic, which, messages in select(facts, LATENCY, "group topic which messages"):
        if which == "first" and kind_by_name(topic) == "user":
            one = found.setdefault(group, Health())
            one.messages = (one.messages or 0) + messages
    unknown, begins_late = not_told(facts), late_recording(facts)
    for group, one in found.items():
        if group in unknown or (begins_late and not one.messages):
            one.messages = None
    return {group: one for group, one in found.items() if not own_group(group)}


def figures(facts: DayFacts | None) -> dict[str, int | None]:
    """Return the day's figures; all of them are None if no group was measured."""
    health = health_of(facts)
    measured = [one for one in health.values() if one.worst_ms is not None]
    return {
        "worst_behind_ms": max((one.worst_ms or 0 for one in _in_use(measured)), default=None),
        "groups_over_limit": sum(one.over_ms > 0 for one in measured) if measured else None,
        "rebalances": sum(one.rebalances for one in health.values()) if measured else None,
    }


def _in_use(health: Collection[Health]) -> Collection[Health]:
    """Return those with a client; all of them if none has one. A group that was abandoned is ever further behind, and
    would hide those that are in use."""
    return [one for one in health if one.clients] or health


def where_worst(health: dict[str, Health]) -> tuple[tuple[str, str | int | None], ...]:
    """Return the group that was furthest behind, and when; () if none was behind."""
    of = {id(one) for one in _in_use([one for one in health.values() if one.worst_ms is not None])}
    behind = sorted((-(one.worst_ms or 0), group) for group, one in health.items() if one.worst_ms and id(one) in of)
    if not behind:
        return ()
    group = behind[0][1]
    return (("group", group), ("time_ms", health[group].worst_at))


def make(view: View) -> Document:
    health = health_of(view.today)
    now = figures(view.today)
    now["dead_letters"] = sum(count for _, count in select(view.today, DEAD_LETTERS, "group messages"))
    order = sorted(
        health,
        key=lambda group: (
            not health[group].clients, -health[group].over_ms, -_or_below(health[group].worst_ms), group,
        ),
    )  # fmt: skip
    shown = [group for group in order if health[group].hours][:MOST_SHOWN]
    measured = sum(bool(one.hours) for one in health.values())
    hours = sorted({*hours_of(view.snapshot), *(hour for group in shown for hour in health[group].hours)})
    report = "group-health"
    tiles = (
        trend_tile(view, "groups_over_limit", "count", now["groups_over_limit"]),
        trend_tile(view, "worst_behind_ms", "ms", now["worst_behind_ms"], where_worst(health)),
        trend_tile(view, "rebalances", "count", now["rebalances"]),
        trend_tile(view, "dead_letters", "messages", now["dead_letters"]),
    )
    notes = [] if shown else [Note("lag_not_measured")]
    notes += [Note("groups_left_out", (("shown", len(shown)), ("of", measured)))] if measured > len(shown) else []
    table = Table(
        "groups",
        (
            ("group", "group"), ("worst_ms", "ms"), ("worst_at", "time_ms"), ("over_ms", "ms"), ("limit_ms", "ms"),
            ("hours", "count"), ("rebalances", "count"), ("messages", "messages"),
        ),
        tuple(_row(group, health[group]) for group in order[:MOST_ROWS]),
        tuple(("open-group", "set-alert") for _ in order[:MOST_ROWS]),
        max(0, len(order) - MOST_ROWS),
    )  # fmt: skip
    by_hour = Table(
        "hours",
        (("group", "group"), ("hour", "time_ms"), ("p95_ms", "ms")),
        tuple((group, hour, health[group].hours.get(hour)) for group in shown for hour in hours),
    )
    plot = Plot("behind", f"{report}-behind.svg", "hours", _LEGEND)
    return view.document(report, tiles, (plot,) if shown else (), (table, by_hour) if shown else (table,), notes, now)


_LEGEND = (
    ("h0", "word", "none_behind"),
    *((css, "text", text) for css, text in (("h1", "≤ 1 min"), ("h2", "≤ 5 min"), ("h3", "≤ 15 min"))),
    ("h4", "text", "> 15 min"),
    (UNMEASURED, "word", "not_measured"),
)


def _or_below(value: int | None) -> int:
    return -1 if value is None else value


def _row(group: str, one: Health) -> tuple[str | int | None, ...]:
    measured = one.worst_ms is not None
    over = one.over_ms if measured else None
    return (group, one.worst_ms, one.worst_at, over, one.limit_ms, len(one.hours), one.rebalances, one.messages)
