"""Times at which groups had members: the wait of a message counts only while a member was connected to take it.

A client that reconnects, or a server that was stopped for a while, does not begin the count anew: the time is added up
over connections, and with `standing_queues.py` over restarts.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..clock import Clock
from ..named_tuple import NamedTuple

#: Spells that are kept of a group; beyond it the two oldest are merged.
MOST_SPELLS = 8
#: Groups remembered after their last member has left, some 500 bytes each; those gone longest are forgotten first.
MOST_GONE = 10_000


class Spell(NamedTuple):
    """A time in which a group had members. Monotonic seconds, which may lie before the start of the process."""

    began: float
    ended: float


class Attendance:
    """`came` and `left` belong to remoting-io, `take_earlier` to the start, the rest to any thread: each step on the
    tables is one C call, and lists of spells are replaced whole."""

    def __init__(self, clock: Clock) -> None:
        # Constant after construction.
        self._clock = clock
        # Groups with members: (earlier spells, oldest first; when the present spell began).
        self._here: dict[str, tuple[tuple[Spell, ...], float]] = {}
        # Groups without members, in the order in which they left: their spells.
        self._gone: dict[str, tuple[Spell, ...]] = {}

    def came(self, group: str) -> None:
        """Begin a spell: the group's first member has come."""
        self._here[group] = self._gone.get(group, ()), self._clock.monotonic()
        self._gone.pop(group, None)

    def left(self, group: str) -> None:
        """End the spell: the group's last member has left."""
        spells = self.spells(group)
        self._gone[group] = spells if len(spells) <= MOST_SPELLS else (_as_one(*spells[:2]), *spells[2:])
        self._here.pop(group, None)
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def take_over(self, other: Attendance) -> None:
        """Take over the spells of another broker of this process, which has ended."""
        self._here, self._gone = other._here, other._gone

    def take_earlier(self, group: str, spells: Iterable[Spell]) -> None:
        """Take the spells that an earlier process saw of a group that has no members now."""
        self._gone[group] = tuple(spells)[-MOST_SPELLS:]

    @property
    def knows_any(self) -> bool:
        """True if any group has or had a member."""
        return bool(self._here or self._gone)

    def spells(self, group: str) -> tuple[Spell, ...]:
        """Return a group's spells, oldest first; one that goes on ends now."""
        here = self._here.get(group)
        return self._gone.get(group, ()) if here is None else (*here[0], Spell(here[1], self._clock.monotonic()))

    def attended_s(self, group: str, since: float) -> float:
        """Return how many seconds since then (monotonic) the group had members."""
        return sum(max(0.0, ended - max(began, since)) for began, ended in self.spells(group))


def _as_one(first: Spell, second: Spell) -> Spell:
    """Return a spell as long as both together, with the end of the second."""
    return Spell(second.began - (first.ended - first.began), second.ended)
