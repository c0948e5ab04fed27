"""Offsets moved by administrators, as the window shows them."""

from __future__ import annotations

from dataclasses import dataclass

from .sentences import Sentence

#: waiting: nobody has asked for the queue since; the next client that does begins there. told: a client was told, and
#: has not pulled from there yet. reached: a client pulls from there, and goes on. given_up: clients were told again and
#: again and do not do it. replaced: moved once more since. gone: the topic or its queue is gone. forgotten: it has no
#: offset, which is what was asked for.
STATES = ("waiting", "told", "reached", "given_up", "replaced", "gone", "forgotten")
#: Nothing more happens to these.
ENDED = ("reached", "given_up", "replaced", "gone", "forgotten")


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """One queue's. before, to: the group's offset at the time of the act (of a preview: now) and after it; None without
    one. now: its offset at present. min_offset, max_offset: the queue's first offset and the one behind its last.

    replays, skips: messages that are delivered again, or not any more; at most one of them is not 0. Where there was no
    offset both are 0. oldest_ms: when the oldest of those was stored, None without any or when it is gone; only of a
    preview and of what has just been done. note: what is worth saying of this queue.

    first_offset: of the first message that comes again or is skipped, None without any. state: of what was done, one of
    STATES; "" of a preview. told_s: for how long members have known, while they have not taken it over.
    """

    topic: str
    queue_id: int
    before: int | None
    to: int | None
    now: int | None
    min_offset: int
    max_offset: int
    replays: int
    skips: int
    oldest_ms: int | None
    note: Sentence | None
    first_offset: int | None = None
    state: str = ""
    told_s: float | None = None

    @property
    def passed_over(self) -> int:
        """Messages before the place where a queue without an offset begins: whether the group would have got them
        depends on where its clients begin."""
        return 0 if self.before is not None or self.to is None else max(0, self.to - self.min_offset)


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Offsets of one group, moved as one act, or to be moved (applied False).

    id: None of a preview. kind: "reset", "undo" or "clone". by, at_ms: who and when (ms since 1970). asked: what for:
    "earliest", "latest", "time <ms>", "offsets", "shift <n>"; of an undo the id of what is taken back, of a clone the
    group it was taken from. revision: of a preview, for the act to go with. undo_until_ms: until when it can be taken
    back; None when it was (undone_by: the id of that act). waiting: queues whose consumers have not come for it yet.
    clients: of the group, connected now.
    """

    id: int | None
    kind: str
    group: str
    by: str
    at_ms: int | None
    asked: str
    applied: bool
    moves: tuple[OffsetMove, ...]
    warnings: tuple[Sentence, ...]
    revision: str | None
    undo_until_ms: int | None
    undone_by: int | None
    waiting: int
    clients: int = 0

    @property
    def states(self) -> dict[str, int]:
        """Queues by state, in the order of STATES; they add up to all of them."""
        found = dict.fromkeys(STATES, 0)
        for move in self.moves:
            found[move.state] = found.get(move.state, 0) + 1
        return {state: count for state, count in found.items() if count}

    @property
    def finished(self) -> bool:
        """Nothing more happens to any of its queues."""
        return all(move.state in ENDED for move in self.moves)

    @property
    def passed_over(self) -> int:
        """Of all queues."""
        return sum(move.passed_over for move in self.moves)

    @property
    def replays(self) -> int:
        """Messages delivered again, of all queues."""
        return sum(move.replays for move in self.moves)

    @property
    def skips(self) -> int:
        """Messages not delivered any more, of all queues."""
        return sum(move.skips for move in self.moves)
