"""The target of a move: requested in one of six ways, worked out queue by queue."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from ...named_tuple import NamedTuple
from .records import NONE


class Earliest(Struct, frozen=True):
    """The first message that is still there."""


class Latest(Struct, frozen=True):
    """Behind the last message: all of the backlog is skipped."""


class AtTime(Struct, frozen=True):
    """The first message stored at this time or later; behind the last one where all are older. ms since 1970."""

    ms: int


class Exactly(Struct, frozen=True):
    """An offset for each queue, by its id; queues without one stay."""

    offsets: Mapping[int, int] = field(default_factory=dict)


class Skip(Exactly, frozen=True):
    """The same, behind one message of each queue. Refused if the group has gone on behind it: it never goes back."""


class Shift(Struct, frozen=True):
    """This many messages forward, or back when it is negative; queues without an offset stay."""

    by: int


Target = Earliest | Latest | AtTime | Exactly | Shift


class PlannedMove(NamedTuple):
    """before: the group's offset now, NONE without one. asked: the requested offset; target: the nearest one within
    [low, high], the queue's first offset and the one behind its last message. A target of NONE removes the offset."""

    topic: str
    queue_id: int
    before: int
    asked: int
    target: int
    low: int
    high: int

    @property
    def is_beyond(self) -> bool:
        """True if the requested offset is not in the queue."""
        return self.asked != self.target


def text_of(target: Target) -> str:
    """Return the target as the journal has it."""
    if isinstance(target, AtTime):
        return f"time {target.ms}"
    if isinstance(target, Shift):
        return f"shift {target.by:+d}"
    if isinstance(target, Exactly):
        return "offsets"
    return "earliest" if isinstance(target, Earliest) else "latest"


def within(offset: int, low: int, high: int) -> int:
    """Return the nearest offset that a queue has; NONE stays NONE."""
    return NONE if offset == NONE else min(max(offset, low), high)
