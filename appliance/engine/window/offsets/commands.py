"""Moves a group's offsets, copies them to another group, and moves them back: checks, previews, then calls the service
of requests 222 and 314."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from ...broker.offset_resets.journal import KEPT_MS
from ...broker.offset_resets.records import NONE, Move, ResetRecord
from ...broker.offset_resets.service import MOST_QUEUES, OffsetResets
from ...broker.offset_resets.targets import AtTime, Exactly, Latest, PlannedMove, Shift, Skip, Target, text_of
from ...broker.offsets import ConsumerOffsetManager, is_brokers_own
from ...errors import Conflict, InvalidInput, NotFound, QueueBroken, Unavailable
from ..admin_pool import AdminPool
from ..figures.lag import never_committed
from ..messages.queue_reader import QueueReader
from ..sentences import Sentence, say
from ..sources import Sources
from .snapshots import OffsetMove, OffsetReset
from .views import known_or_none, moved_counts, passed_over, record_of

#: Queues whose oldest message is looked up for one preview; each look-up may read the disk.
_MOST_TIMES = 512
_Check = Callable[[Sequence[PlannedMove | Move]], None]


def _check_nothing(_moves: Sequence[PlannedMove | Move]) -> None:
    pass


def _check_not_passed(moves: Sequence[PlannedMove | Move]) -> None:
    """Raise Conflict if a queue is there already, or beyond."""
    for move in moves:
        if move.before >= move.target:
            raise Conflict(say("offset_passed", topic=move.topic, queue=move.queue_id, now=move.before))


class OffsetCommands:
    """Any thread; waits in the caller's."""

    def __init__(
        self,
        sources: Sources,
        resets: OffsetResets,
        offsets: ConsumerOffsetManager,
        pool: AdminPool,
    ) -> None:
        # Constant after construction.
        self._groups, self._topics, self._store = sources.groups, sources.topics, sources.store
        self._lag = sources.lag
        self._resets = resets
        self._offsets = offsets
        self._pool = pool

    # --- moving

    def reset(
        self,
        group: str,
        topic: str | Sequence[str] | None,
        to: Target,
        *,
        queue_id: int | Sequence[int] | None = None,
        revision: str | None = None,
        dry_run: bool = False,
        by: str = "",
    ) -> OffsetReset:
        """Move a group's offsets of a topic, or of several (its %RETRY% topic, too), as one act: all queues or none.
        topic None: all topics that it subscribes to or has offsets of, its %RETRY% topic left out.

        to: `Earliest()`, `Latest()`, `AtTime(ms)`, `Exactly({queue: offset})`, `Skip({queue: offset})`, `Shift(n)` of
        `broker.offset_resets.targets`. queue_id: only this queue, or these. Durable when it returns. Connected members
        get the new offsets at once and start over from there (Java 5.x and C++ within a second, 4.9 and Go within some
        11 s); commits that they send for the time before do not count. The reset is kept for 24 h, for `undo`.
        revision: of the preview; Conflict if there was another reset since, or if other queues or offsets would result.
        The group's own progress does not matter.

        An offset that has expired, or a shift beyond an end, becomes the nearest offset, which the queue's `note` says.
        NotFound (group, topic, queue), InvalidInput (to: outside of the queue; group: it consumes by broadcast),
        Unavailable (a queue's files are being rebuilt), Conflict (also of a `Skip` if the group has gone on).
        """
        self._check_group(group)
        if topic is None:
            names = [name for name in self._lag.snapshot().topics_of(group) if self._topics.get(name) is not None]
        else:
            names = [topic] if isinstance(topic, str) else list(dict.fromkeys(topic))
        if not names:
            raise InvalidInput("topic", say("offsets_nothing"))
        self._check_target(to)
        chosen = [queue_id] if isinstance(queue_id, int) else queue_id
        planned = self._planned(group, names, to, None if chosen is None else list(dict.fromkeys(chosen)))
        check = _check_not_passed if isinstance(to, Skip) else _check_nothing
        check(planned)
        preview = self._preview("reset", group, by, text_of(to), planned, self._revision(group, to, planned))
        if dry_run:
            return preview
        if revision is not None and revision != preview.revision:
            raise Conflict(say("changed_since"))
        return self._done(preview, planned, 0, check)

    def _planned(
        self, group: str, topics: Sequence[str], to: Target, queue_ids: Sequence[int] | None
    ) -> list[PlannedMove]:
        planned: list[PlannedMove] = []
        for name in topics:
            config = self._topics.get(name)
            if config is None:
                raise NotFound("topic", name)
            ids = [] if queue_ids is None else list(queue_ids)
            if isinstance(to, Exactly):
                ids += to.offsets
            for number in ids:
                if not 0 <= number < config.read_queue_nums:
                    raise NotFound("queue", f"{name}/{number}")
            try:
                for one in [None] if queue_ids is None else queue_ids:
                    planned += self._resets.plan(group, name, to, one)
            except QueueBroken as error:
                raise Unavailable(str(error)) from None
        if not planned:
            raise InvalidInput("to", say("offsets_none" if isinstance(to, Shift) else "offsets_nothing"))
        if len(planned) > MOST_QUEUES:
            raise InvalidInput("topic", say("offsets_too_many", count=len(planned), limit=MOST_QUEUES))
        if isinstance(to, Exactly):
            for move in planned:
                if move.is_beyond:
                    raise InvalidInput(
                        "to",
                        say(
                            "offset_beyond",
                            topic=move.topic,
                            queue=move.queue_id,
                            offset=move.asked,
                            low=move.low,
                            high=move.high,
                        ),
                        1,
                    )
        return planned

    def _check_target(self, to: Target) -> None:
        if isinstance(to, AtTime) and not 0 <= to.ms < 1 << 63:
            raise InvalidInput("to", say("not_a_time", field="to"))
        if isinstance(to, Shift) and (not to.by or abs(to.by) >= 1 << 62):
            raise InvalidInput("to", say("offsets_no_shift"))

    def _check_group(self, group: str, field: str = "group") -> None:
        if self._groups.get(group) is None:
            raise NotFound("group", group)
        if is_brokers_own(group):
            raise InvalidInput(field, say("system_group", name=group))
        if self._resets.is_broadcasting(group):
            raise InvalidInput(field, say("broadcast_keeps_offsets"))

    def clone(
        self,
        source: str,
        target: str,
        topic: str | None = None,
        *,
        revision: str | None = None,
        dry_run: bool = False,
        new: bool = False,
        by: str = "",
    ) -> OffsetReset:
        """Set the offsets of `target` to those of `source`, in a topic or in all that `source` has offsets of. As
        `reset`. new: a preview for a group that is still to be made."""
        if self._groups.get(source) is None and source not in {entry.group for entry in self._offsets.all()}:
            raise NotFound("group", source)
        if source == target:
            raise InvalidInput("target", say("offsets_same_group"))
        if not (new and dry_run and self._groups.get(target) is None):
            self._check_group(target, "target")
        if topic is not None and self._topics.get(topic) is None:
            raise NotFound("topic", topic)
        planned = self._resets.plan_clone(source, target, topic, subscribed_only=False)
        if not planned:
            raise InvalidInput("source", say("offsets_none"))
        if len(planned) > MOST_QUEUES:
            raise InvalidInput("topic", say("offsets_too_many", count=len(planned), limit=MOST_QUEUES))
        # The source's offsets move on meanwhile, so the revision covers only the queues.
        preview = self._preview("clone", target, by, source, planned, self._revision(target, Latest(), planned))
        if dry_run:
            return preview
        if revision is not None and revision != preview.revision:
            raise Conflict(say("changed_since"))
        return self._done(preview, planned, 0)

    # --- taking back

    def undo(self, number: int, *, revision: str | None = None, dry_run: bool = False, by: str = "") -> OffsetReset:
        """Move the queues of a reset, clone or undo back to where they were, as one act of its own.

        `move.before` is where the queue is now; `note` is set if that is not where the reset had moved it. A queue that
        had no offset has none again, unless the group is connected or has gone on from there. NotFound (reset; also
        after 24 h), Conflict (already undone; none of its queues exists now; revision), InvalidInput as
        `reset`.
        """
        journal = self._resets.journal
        record = record_of(journal, number)
        if journal.undone_by(number):
            raise Conflict(say("offsets_undone"))
        self._check_group(record.group)
        online = record.group in self._lag.snapshot().online
        planned = []
        left = 0
        for move in self._resets.plan_undo(record):
            if move.asked == NONE and (online or move.before != self._target_of(record, move)):
                left += 1  # it had no offset before the reset, and the group may have gone on from the new one
                continue
            planned.append(move)
        lost = len(record.moves) - len(planned) - left
        if not planned:
            raise Conflict(say("offsets_all_gone"))
        warnings = [say("offsets_lost_queues", count=lost)] if lost else []
        if left:
            warnings.append(say("offsets_left", count=left))
        preview = self._preview(
            "undo", record.group, by, str(number), planned, self._revision(record.group, Exactly(), planned), record
        )
        preview = replace(preview, warnings=(*preview.warnings, *warnings))
        if dry_run:
            return preview
        if revision is not None and revision != preview.revision:
            raise Conflict(say("changed_since"))
        return self._done(preview, planned, number)

    @staticmethod
    def _target_of(record: ResetRecord, move: PlannedMove) -> int:
        return next(one.target for one in record.moves if (one.topic, one.queue_id) == (move.topic, move.queue_id))

    # --- a preview, and what was done

    def _done(
        self, preview: OffsetReset, planned: Sequence[PlannedMove], undoes: int, check: _Check = _check_nothing
    ) -> OffsetReset:
        def job() -> ResetRecord:
            if undoes and self._resets.journal.undone_by(undoes):
                raise Conflict(say("offsets_undone"))
            return self._resets.apply(
                preview.kind, preview.group, planned, preview.by or "console", preview.asked, undoes, check
            )

        record = self._pool.run(job)
        done = {(move.topic, move.queue_id): move for move in record.moves}
        moves = []
        for move in preview.moves:
            made = done[move.topic, move.queue_id]
            before, to = known_or_none(made.before), known_or_none(made.target)
            replays, skips = moved_counts(made.before, made.target, move.min_offset)
            passed = passed_over(made.before, made.target, move.min_offset)
            moves.append(replace(move, before=before, to=to, now=to, replays=replays, skips=skips, passed_over=passed))
        return replace(
            preview,
            id=record.id,
            by=record.by,
            at_ms=record.at_ms,
            applied=True,
            moves=tuple(moves),
            revision=None,
            undo_until_ms=record.at_ms + KEPT_MS,
            waiting=self._resets.journal.waiting(record.id),
        )

    def _revision(self, group: str, to: Target, planned: Sequence[PlannedMove]) -> str:
        """Return a digest of what a preview promises: the queues, their targets unless those move with the group or its
        queues, and the group's last reset. Progress that members make meanwhile does not change it."""
        fixed = not isinstance(to, (Latest, Shift))
        places = [(move.topic, move.queue_id, move.target if fixed else None) for move in planned]
        last = next((record.id for record in self._resets.journal.of_group(group)), 0)
        return hashlib.sha256(msgspec.json.encode((group, text_of(to), places, last))).hexdigest()[:16]

    def _preview(
        self,
        kind: str,
        group: str,
        by: str,
        asked: str,
        planned: Sequence[PlannedMove],
        revision: str,
        undone: ResetRecord | None = None,
    ) -> OffsetReset:
        progress = self._lag.snapshot()
        begun = {topic for topic in {move.topic for move in planned} if progress.committed(group, topic)}
        with QueueReader(self._store) as reader:
            moves = tuple(
                self._move(move, undone, begun, reader if number < _MOST_TIMES else None)
                for number, move in enumerate(planned)
            )
        warnings: list[Sentence] = []
        info = progress.online.get(group)
        if info is not None:
            warnings.append(say("offsets_online", count=len(info.channels)))
        return OffsetReset(
            id=None,
            kind=kind,
            group=group,
            by=by,
            at_ms=None,
            asked=asked,
            applied=False,
            moves=moves,
            warnings=tuple(warnings),
            revision=revision,
            undo_until_ms=None,
            undone_by=None,
            waiting=0,
            clients=0 if info is None else len(info.channels),
        )

    def _move(
        self, move: PlannedMove, undone: ResetRecord | None, begun: set[str], reader: QueueReader | None
    ) -> OffsetMove:
        replays, skips = moved_counts(move.before, move.target, move.low)
        first = first_at_ms = None
        queue = self._store.find_queue(move.topic, move.queue_id)
        if replays + skips:
            first = max(move.low, min(move.before, move.target))
            if reader is not None and queue is not None:
                first_at_ms = reader.stored_at_ms(queue, first)
        return OffsetMove(
            topic=move.topic,
            queue_id=move.queue_id,
            before=known_or_none(move.before),
            to=known_or_none(move.target),
            now=known_or_none(move.before),
            min_offset=move.low,
            max_offset=move.high,
            replays=replays,
            skips=skips,
            passed_over=passed_over(move.before, move.target, move.low),
            first_offset=first,
            first_at_ms=first_at_ms,
            state="",
            told_s=None,
            note=self._note(move, undone, begun),
        )

    def _note(self, move: PlannedMove, undone: ResetRecord | None, begun: set[str]) -> Sentence | None:
        """begun: topics of which the group has an offset."""
        if move.is_beyond:
            code = "offset_expired" if move.asked < move.low else "offset_behind_end"
            return say(code, offset=move.asked, target=move.target)
        if undone is not None and move.before != (sent := self._target_of(undone, move)):
            return say("offset_moved_on", sent=sent, now=move.before)
        if move.before == NONE:
            return never_committed(move.queue_id, move.topic in begun)
        return None
