"""When groups had members: a message that waits is late only as far as somebody was there to take it.

A client that comes back, or a server that was stopped for a while, does not begin the count anew: the time is added up
over connections, and with `standing_queues.py` over restarts.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..clock import Clock
from ..named_tuple import NamedTuple

#: Spells that are kept of a group; the two oldest become one beyond it.
MOST_SPELLS = 8
#: Groups remembered after their last member has left, some 500 bytes each; the longest gone are forgotten first.
MOST_GONE = 10_000


class Spell(NamedTuple):
    """Somebody was there. Monotonic seconds, before the start of the process as well."""

    began: float
    ended: float


class Attendance:
    """`came` and `left` belong to remoting-io, `take_earlier` to the start, the rest to any thread: each step on the
    tables is one C call, and lists of spells are replaced whole."""

    def __init__(self, clock: Clock) -> None:
        # Constant after construction.
        self._clock = clock
        # Groups with members: (earlier spells, oldest first; since when somebody is there).
        self._here: dict[str, tuple[tuple[Spell, ...], float]] = {}
        # Groups without members, in the order in which they left: their spells.
        self._gone: dict[str, tuple[Spell, ...]] = {}

    def came(self, group: str) -> None:
        """Its first member is there."""
        self._here[group] = self._gone.get(group, ()), self._clock.monotonic()
        self._gone.pop(group, None)

    def left(self, group: str) -> None:
        """Its last member has gone."""
        spells = self.spells(group)
        self._gone[group] = spells if len(spells) <= MOST_SPELLS else (_as_one(*spells[:2]), *spells[2:])
        self._here.pop(group, None)
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def take_over(self, other: Attendance) -> None:
        """Know what another broker of this process knew, who has ended."""
        self._here, self._gone = other._here, other._gone

    def take_earlier(self, group: str, spells: Iterable[Spell]) -> None:
        """What an earlier process saw of a group without members."""
        self._gone[group] = tuple(spells)[-MOST_SPELLS:]

    @property
    def knows_any(self) -> bool:
        """Whether any group had a member."""
        return bool(self._here or self._gone)

    def spells(self, group: str) -> tuple[Spell, ...]:
        """Oldest first; one that goes on ends now."""
        here = self._here.get(group)
        return self._gone.get(group, ()) if here is None else (*here[0], Spell(here[1], self._clock.monotonic()))

    def attended_s(self, group: str, since: float) -> float:
        """For how many seconds somebody was there since then (monotonic)."""
        return sum(max(0.0, ended - max(began, since)) for began, ended in self.spells(group))


def _as_one(first: Spell, second: Spell) -> Spell:
    """As long as both together."""
    return Spell(second.began - (first.ended - first.began), second.ended)
