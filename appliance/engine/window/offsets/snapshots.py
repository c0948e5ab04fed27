"""Offsets moved by administrators, as the window returns them."""

from __future__ import annotations

from ...lazy_dataclass import dataclass
from ..sentences import Sentence

#: waiting: no client has asked for the queue since; the next one that does begins there. told: a client was notified,
#: and has not pulled from there yet. reached: a client pulls from there. given_up: clients were notified repeatedly and
#: do not follow. replaced: moved by a later reset. gone: the topic or its queue is gone. forgotten: the queue has no
#: offset, as intended.
STATES = ("waiting", "told", "reached", "given_up", "replaced", "gone", "forgotten")
#: States that do not change by themselves.
ENDED = ("reached", "given_up", "replaced", "gone", "forgotten")


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """One queue. before, to, now: the group's offset before the act, after it, and at present; None without one.
    replays, skips: messages that come again, or no longer come. passed_over: messages before the place where a queue
    without an offset begins. first_offset, first_at_ms: of the first of them. state: waiting (no client has asked for
    the queue since), told (a client was notified, and has not pulled from there yet; told_s: for how long), reached,
    given_up (clients were notified and do not follow), replaced (moved again since), gone (the queue is), forgotten (it
    has no offset, as it was asked for); "" of a preview."""

    # now: in a preview the same as `before`. replays, skips: at most one of them is not 0, and both are 0 without an
    # offset before. first_at_ms: only in a preview and in the result of the act, None if that message is gone. told_s:
    # seconds.
    topic: str
    queue_id: int
    before: int | None
    to: int | None
    now: int | None
    min_offset: int
    max_offset: int
    replays: int
    skips: int
    passed_over: int
    first_offset: int | None
    first_at_ms: int | None
    state: str
    told_s: float | None
    note: Sentence | None


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Offsets of one group, moved as one act, or to be moved (applied False).

    id: None in a preview. kind: "reset", "undo" or "clone". by, at_ms: the user and the time (ms since 1970). asked:
    the target: "earliest", "latest", "time <ms>", "offsets", "shift <n>"; for an undo the id of the undone act, for a
    clone the source group. revision: of a preview, to be passed to the act. undo_until_ms: until when it can be undone;
    None if it was (undone_by: the id of that act). waiting: number of queues whose consumers have not come for it yet.
    clients: number of the group's connected clients.
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
        """Number of queues by state, in the order of STATES; they add up to all queues."""
        found = dict.fromkeys(STATES, 0)
        for move in self.moves:
            found[move.state] = found.get(move.state, 0) + 1
        return {state: count for state, count in found.items() if count}

    @property
    def finished(self) -> bool:
        """True if the state of every queue is final."""
        return all(move.state in ENDED for move in self.moves)

    @property
    def passed_over(self) -> int:
        """The sum of `passed_over` of all queues."""
        return sum(move.passed_over for move in self.moves)

    @property
    def replays(self) -> int:
        """Number of messages delivered again, of all queues."""
        return sum(move.replays for move in self.moves)

    @property
    def skips(self) -> int:
        """Number of messages skipped, of all queues."""
        return sum(move.skips for move in self.moves)
