"""Where offsets are moved to: asked for in one of five ways, worked out queue by queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...named_tuple import NamedTuple
from .records import NONE


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first message that is still there."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Behind the last message: all of the backlog is skipped."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message stored at this time or later; behind the last one where all are older. ms since 1970."""

    ms: int


@dataclass(frozen=True, slots=True)
class Exactly:
    """An offset for each queue, by its id; queues without one stay."""

    offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shift:
    """So many messages forward, or back when it is negative; queues without an offset stay."""

    by: int


Target = Earliest | Latest | AtTime | Exactly | Shift


class PlannedMove(NamedTuple):
    """before: the group's offset now, NONE without one. asked: the offset as it was asked for; target: within [low,
    high], the queue's first offset and the one behind its last message. NONE as the target forgets the offset."""

    topic: str
    queue_id: int
    before: int
    asked: int
    target: int
    low: int
    high: int

    @property
    def is_beyond(self) -> bool:
        """What was asked for is not in the queue."""
        return self.asked != self.target


def text_of(target: Target) -> str:
    """As the journal has it."""
    if isinstance(target, AtTime):
        return f"time {target.ms}"
    if isinstance(target, Shift):
        return f"shift {target.by:+d}"
    if isinstance(target, Exactly):
        return "offsets"
    return "earliest" if isinstance(target, Earliest) else "latest"


def within(offset: int, low: int, high: int) -> int:
    """The nearest offset that a queue has."""
    return NONE if offset == NONE else min(max(offset, low), high)
