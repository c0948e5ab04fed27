"""Decides when a rule fires and when it is over. Pure: the running watch and the dry run on the past use the same
steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, NamedTuple

from ...engine.lazy_dataclass import dataclass

#: A wait ends if the figure is not known for longer than this: it may not have been above the limit all the time.
GAP_MS = 5 * 60_000

Event = Literal["fired", "resolved"]


@dataclass(frozen=True, slots=True)
class Limit:
    """above: a rule fires if the figure is larger than this for `for_ms` without a break."""

    above: float
    for_ms: int


@dataclass(frozen=True, slots=True)
class Watched:
    """One subject under one rule. Times are milliseconds since 1970.

    above_since_ms: the time since which the figure is above the limit; None while it is not. firing: the rule has
    fired. worst: the largest figure since then. seen_ms: when the figure was last known.
    """

    above_since_ms: int | None = None
    firing: bool = False
    worst: float = 0.0
    value: float | None = None
    seen_ms: int = 0


QUIET = Watched()


def step(watched: Watched, limit: Limit, at_ms: int, value: float | None) -> tuple[Watched, Event | None]:
    """Return the state after one more figure, and the event it causes. value: None for a figure that is not known,
    which causes no event."""
    if value is None:
        if watched.above_since_ms is not None and not watched.firing and at_ms - watched.seen_ms > GAP_MS:
            return QUIET, None
        return replace(watched, value=None), None
    if value <= limit.above:
        return Watched(value=value, seen_ms=at_ms), "resolved" if watched.firing else None
    since = watched.above_since_ms
    if since is None or since > at_ms or (not watched.firing and at_ms - watched.seen_ms > GAP_MS):
        since = at_ms  # also when the clock was set back
    worst = max(watched.worst, value)
    fires = not watched.firing and at_ms - since >= limit.for_ms
    return Watched(since, watched.firing or fires, worst, value, at_ms), "fired" if fires else None


class Period(NamedTuple):
    """A time for which an alert would have been on. ended_ms: None if it would still be on at the end."""

    subject: str
    fired_ms: int
    ended_ms: int | None
    worst: float


def periods(subject: str, limit: Limit, figures: Iterable[tuple[int, float | None]]) -> list[Period]:
    """Return the periods for which a rule would have fired over these figures, in the order of time."""
    found: list[Period] = []
    watched = QUIET
    fired_ms = 0
    for at_ms, value in figures:
        before, (watched, event) = watched, step(watched, limit, at_ms, value)
        if event == "fired":
            fired_ms = at_ms
        elif event == "resolved":
            found.append(Period(subject, fired_ms, at_ms, before.worst))
    if watched.firing:
        found.append(Period(subject, fired_ms, None, watched.worst))
    return found
