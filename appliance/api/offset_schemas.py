"""Moves of groups' offsets, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..engine.window.offsets.snapshots import OffsetMove
from .schemas import In, Out, SentenceOut, Text
from .times import Moment

_MOST = (1 << 62) - 1


class OffsetResetIn(In):
    """The target of a reset. topics: by default all that the group subscribes to or has offsets of, except its retry
    topic. queues: by default all. to: time needs at_ms, shift needs by, offset needs offset and queues. skip needs
    these as well, and goes behind the message at that offset; 409 when the group has gone on."""

    topics: list[str] | None = Field(None, min_length=1, max_length=1000)
    queues: list[int] | None = Field(None, min_length=1, max_length=4096)
    to: Literal["earliest", "latest", "time", "offset", "skip", "shift"]
    at_ms: Moment | None = None
    offset: int | None = Field(None, ge=0, le=_MOST)
    by: int | None = Field(None, ge=-_MOST, le=_MOST)


class OffsetResetRowOut(Out):
    """An act in a list. kind: reset, undo or clone. asked: what for; of an undo what it took back, of a clone from
    which group. states: queues by state. undo_until_at_ms: null when it was taken back, by the act undone_by."""

    id: int | None
    kind: str
    group: Text
    by: Text
    at_ms: int | None
    asked: Text
    applied: bool
    replays: int
    skips: int
    states: dict[str, int]
    finished: bool
    undo_until_at_ms: int | None = Field(validation_alias="undo_until_ms")
    undone_by: int | None
    clients: int


class OffsetResetOut(OffsetResetRowOut):
    """One act, previewed (applied: false) or done, queue by queue. revision: also the ETag; of a preview, for If-Match.
    finished: nothing more happens to any queue."""

    warnings: list[SentenceOut]
    revision: str | None
    moves: list[OffsetMove]


class OffsetResetList(Out):
    items: list[OffsetResetRowOut]
