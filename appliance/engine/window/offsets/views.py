"""The resets of groups' offsets in the last 24 h, and how far their clients have followed them."""

from __future__ import annotations

import time

from ...broker.offset_resets.journal import KEPT_MS, ResetJournal
from ...broker.offset_resets.records import NONE, Move, ResetRecord
from ...broker.offset_resets.service import OffsetResets
from ...broker.offsets import ConsumerOffsetManager
from ...errors import NotFound
from ..sentences import say
from ..sources import Sources
from .snapshots import OffsetMove, OffsetReset


def record_of(journal: ResetJournal, number: int) -> ResetRecord:
    """Return the record of a reset; NotFound, also after 24 h."""
    record = journal.get(number)
    if record is None or journal.is_too_old(record):
        raise NotFound("reset", str(number))
    return record


class OffsetViews:
    """Any thread."""

    def __init__(
        self,
        sources: Sources,
        resets: OffsetResets,
        offsets: ConsumerOffsetManager,
    ) -> None:
        # Constant after construction.
        self._groups, self._topics, self._store = sources.groups, sources.topics, sources.store
        self._lag = sources.lag
        self._resets = resets
        self._offsets = offsets

    def of_group(self, group: str) -> tuple[OffsetReset, ...]:
        """Return the resets of a group's offsets in the last 24 h, also those over the wire; newest first. NotFound."""
        if self._groups.get(group) is None and not self._resets.journal.of_group(group):
            raise NotFound("group", group)
        return tuple(self._shown(record) for record in self._resets.journal.of_group(group))

    def one(self, number: int) -> OffsetReset:
        """Return a reset as it is now: each queue's `state` shows if clients have come for it. NotFound; also after
        24 h."""
        return self._shown(record_of(self._resets.journal, number))

    def _shown(self, record: ResetRecord) -> OffsetReset:
        journal = self._resets.journal
        later = {
            (move.topic, move.queue_id)
            for other in journal.of_group(record.group)
            if other.id > record.id
            for move in other.moves
        }
        gone = journal.gone(record.id)
        info = self._lag.snapshot().online.get(record.group)
        moves = []
        for move in record.moves:
            state, told_s = self._state_of(record, move, later, gone)
            low, high = self._store.offset_range(move.topic, move.queue_id)
            now = self._offsets.get(record.group, move.topic, move.queue_id)
            replays, skips = moved_counts(move.before, move.target, 0)
            moves.append(
                OffsetMove(
                    topic=move.topic,
                    queue_id=move.queue_id,
                    before=known_or_none(move.before),
                    to=known_or_none(move.target),
                    now=known_or_none(now),
                    min_offset=low,
                    max_offset=high,
                    replays=replays,
                    skips=skips,
                    passed_over=passed_over(move.before, move.target, low),
                    first_offset=max(low, min(move.before, move.target)) if replays + skips else None,
                    first_at_ms=None,
                    state=state,
                    told_s=told_s,
                    note=say("offset_moved_on", sent=move.target, now=now) if now != move.target else None,
                )
            )
        undone_by = journal.undone_by(record.id) or None
        return OffsetReset(
            id=record.id,
            kind=record.kind,
            group=record.group,
            by=record.by,
            at_ms=record.at_ms,
            asked=record.asked,
            applied=True,
            moves=tuple(moves),
            warnings=(),
            revision=None,
            undo_until_ms=None if undone_by else record.at_ms + KEPT_MS,
            undone_by=undone_by,
            waiting=journal.waiting(record.id),
            clients=0 if info is None else len(info.channels),
        )

    def _state_of(
        self, record: ResetRecord, move: Move, later: set[tuple[str, int]], gone: set[str]
    ) -> tuple[str, float | None]:
        """Return (one of STATES, seconds since members were notified; None unless the state is "told")."""
        config = self._topics.get(move.topic)
        if config is None or move.topic in gone or move.queue_id >= config.read_queue_nums:
            return "gone", None
        if (move.topic, move.queue_id) in later:
            return "replaced", None
        if move.target == NONE:
            return "forgotten", None
        key = (record.group, move.topic, move.queue_id)
        pending = self._offsets.pending.table.get(key)
        if pending is not None and pending.reset_id == record.id:
            if pending.tellings <= 0:
                return "waiting", None
            return "told", max(0.0, time.monotonic() - pending.told_at)
        return ("given_up" if self._offsets.pending.given_up.get(key) == record.id else "reached"), None


def known_or_none(offset: int) -> int | None:
    return None if offset == NONE else offset


def moved_counts(before: int, target: int, low: int) -> tuple[int, int]:
    """Return (number of messages delivered again, number of messages skipped). low: messages below it are gone."""
    if NONE in (before, target):
        return 0, 0
    before, target = max(before, low), max(target, low)
    return max(0, before - target), max(0, target - before)


def passed_over(before: int, target: int, low: int) -> int:
    """Return the number of messages before the target of a queue that had no offset. The group might have got them,
    depending on where its clients begin. low: messages below it are gone."""
    return max(0, target - low) if before == NONE and target != NONE else 0
