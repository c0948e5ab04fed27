"""The jobs that replay dead letters, and the result of each message."""

from __future__ import annotations

from collections.abc import Iterator

from ...broker.replay import job as j
from ...broker.replay.job import JobSpec, Numbering, Result
from ...broker.replay.service import PASSING, JobView, ReplayService
from ...cursors import decode_cursor, encode_cursor
from ...errors import CorruptFile, InvalidInput, NotFound, Unavailable
from ...protocol.names import DLQ_PREFIX
from ...protocol.properties import KEYS, ORIGIN_MESSAGE_ID, RETRY_TOPIC, UNIQUE_KEY, decode_properties
from ...store.message_store import MessageStore
from ..messages.queue_reader import QueueReader
from ..refusals import require_within
from ..sentences import Sentence, say
from .snapshots import ReplayFilter, ReplayJob, ReplayJobs, ReplayResult, ReplayResultPage, UnreadableReplay
from .views import DeadLetterViews

MAX_LIMIT = 500

_FAILED = (
    Result.UNREADABLE,
    Result.NO_ORIGIN,
    Result.NO_TOPIC,
    Result.NOT_WRITABLE,
    Result.TOO_LONG,
    Result.REFUSED,
)
#: Result -> (its name on a page, code of the sentence with the reason).
_SHOWN = {
    Result.NOT_REACHED: ("not_reached", "replay_not_reached"),
    Result.REPLAYED: ("replayed", ""),
    Result.GUARD: ("skipped_by_guard", "replay_guarded"),
    Result.GONE: ("gone", "message_gone"),
    Result.UNREADABLE: ("failed", "replay_record_unreadable"),
    Result.NO_ORIGIN: ("failed", "replay_no_origin"),
    Result.NO_TOPIC: ("failed", "replay_no_topic"),
    Result.NOT_WRITABLE: ("failed", "topic_not_writable"),
    Result.TOO_LONG: ("failed", "replay_too_long"),
    Result.REFUSED: ("failed", "replay_refused"),
    Result.UNKNOWN: ("unknown", "replay_outcome_unknown"),
    Result.NOT_CHOSEN: ("not_chosen", "replay_not_chosen"),
}


#: All results but those of messages that a job's filter leaves out.
CHOSEN = "chosen"


class ReplayViews:
    """Any thread; reads in the caller's."""

    def __init__(self, service: ReplayService, letters: DeadLetterViews, store: MessageStore) -> None:
        # Constant after construction.
        self._service = service
        self._letters = letters
        self._store = store

    def jobs(self, group: str | None = None) -> ReplayJobs:
        """Return all jobs or those of one group, and the jobs whose journal cannot be read."""
        if not self._service.wait_loaded():
            raise Unavailable(say("too_busy"))
        views = [view for view in self._service.jobs() if group is None or view.state.spec.group == group]
        views.sort(key=lambda view: (view.state.spec.created_ms, view.state.spec.id), reverse=True)
        unread = () if group is not None else sorted(self._service.unread(), reverse=True)
        return ReplayJobs(
            jobs=tuple(job_of(view) for view in views),
            unreadable=tuple(
                UnreadableReplay(one.id, say("replay_journal_damaged", reason=one.reason), one.modified_ms)
                for one in unread
            ),
        )

    def job(self, job: str) -> ReplayJob:
        """Return a job as it is now. NotFound; Unavailable if its journal cannot be read."""
        return job_of(self.view(job))

    def view(self, job: str) -> JobView:
        if not self._service.wait_loaded():
            raise Unavailable(say("too_busy"))
        view = self._service.job(job)
        if view is None:
            for one in self._service.unread():
                if one.id == job:
                    raise Unavailable(say("replay_journal_damaged", reason=one.reason))
            raise NotFound("replay job", job[:64])
        return view

    def results(
        self, job: str, *, result: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> ReplayResultPage:
        """Return the result of each message of a job. result: only those of this kind; "chosen" for all that the filter
        matches. limit: 1 to 500."""
        require_within("limit", limit, 1, MAX_LIMIT)
        names = [CHOSEN, *sorted({name for name, _ in _SHOWN.values()})]
        if result is not None and result not in names:
            raise InvalidInput("result", say("one_of", field="result", choices=", ".join(names)))
        view = self.view(job)
        spec = view.state.spec
        at = 0
        if cursor is not None:
            try:
                of, at = decode_cursor(cursor, tuple[str, int])
            except ValueError:
                raise InvalidInput("cursor", say("bad_cursor")) from None
            if of != job or not 0 <= at <= spec.total:
                raise InvalidInput("cursor", say("bad_cursor"))
        again = self._letters.died_again(spec.group, job) if spec.target == j.TO_GROUP else None
        rows: list[tuple[int, int, int, Result]] = []
        numbering = Numbering(spec.spans)
        wanted = (
            None
            if result is None
            else {
                code
                for code, (name, _) in _SHOWN.items()
                if name == result or (result == CHOSEN and name != "not_chosen")
            }
        )
        step = max(limit, 10_000) if wanted is not None else limit
        while at < spec.total and len(rows) < limit:
            end = min(spec.total, at + step)
            try:
                found = self._service.results(job, at, end)
            except (OSError, CorruptFile) as error:
                raise Unavailable(say("replay_journal_damaged", reason=str(error))) from None
            found = found.ljust(end - at, bytes((Result.NOT_REACHED,)))
            if wanted is not None and not any(code in found for code in wanted):
                at = end
                continue
            for first, span in numbering.pieces(at, end):
                for offset in range(span.begin, span.end):
                    number = first + offset - span.begin
                    code = Result(found[number - at])
                    if wanted is None or code in wanted:
                        rows.append((number, span.queue_id, offset, code))
                        if len(rows) >= limit:
                            break
                if len(rows) >= limit:
                    break
            at = rows[-1][0] + 1 if len(rows) >= limit else end
        return ReplayResultPage(
            rows=tuple(self._shown(spec, rows, again)),
            next_cursor=encode_cursor((job, at)) if at < spec.total else None,
            total=spec.total,
            died_again=None if again is None else len(again),
        )

    def _shown(
        self, spec: JobSpec, rows: list[tuple[int, int, int, Result]], again: frozenset[int] | None
    ) -> Iterator[ReplayResult]:
        """Yield results together with fields of their dead letters."""
        with QueueReader(self._store, 4) as reader:
            for number, queue_id, offset, code in rows:
                queue = self._store.find_queue(DLQ_PREFIX + spec.group, queue_id)
                found = None if queue is None else reader.record(queue, offset)
                # The topic may have been deleted and made again since.
                if found is not None and found[0].store_time_ms > spec.created_ms:
                    found = None
                properties = {} if found is None else decode_properties(found[0].properties)
                name, why = _why(code, spec)
                yield ReplayResult(
                    number=number,
                    queue_id=queue_id,
                    queue_offset=offset,
                    result=name,
                    why=why,
                    died_again=number in again if again is not None and code is Result.REPLAYED else None,
                    origin_topic=properties.get(RETRY_TOPIC),
                    origin_id=properties.get(ORIGIN_MESSAGE_ID),
                    unique_id=properties.get(UNIQUE_KEY),
                    keys=tuple(properties.get(KEYS, "").split()),
                )


def job_of(view: JobView) -> ReplayJob:
    """Return a job as a page shows it."""
    state, counts = view.state, view.counts
    spec = state.spec
    reached = sum(counts) - counts[Result.NOT_REACHED]
    why = state.why
    return ReplayJob(
        id=spec.id,
        group=spec.group,
        target=spec.target,
        topic=spec.topic or None,
        state=state.state,
        why=None if why is None else say(why.code, **why.args),
        checking=view.checking,
        total=spec.total,
        replayed=counts[Result.REPLAYED],
        skipped_by_guard=counts[Result.GUARD],
        gone=counts[Result.GONE],
        failed=sum(counts[code] for code in _FAILED),
        unknown=counts[Result.UNKNOWN],
        not_chosen=counts[Result.NOT_CHOSEN],
        not_reached=spec.total - reached,
        tries_again=state.state == j.PAUSED and why is not None and why.code in PASSING,
        rate=spec.rate,
        max_replays=spec.max_replays,
        filter=None if (one := spec.filter) is None else ReplayFilter(one.topic, one.retries, one.key, one.replayed),
        by=spec.by,
        created_at_ms=spec.created_ms,
        changed_at_ms=state.changed_ms,
    )


def _why(code: Result, spec: JobSpec) -> tuple[str, Sentence | None]:
    """Return (a result's name on a page, its reason)."""
    name, sentence = _SHOWN[code]
    if sentence == "replay_guarded":
        return name, say(sentence, count=spec.max_replays)
    return name, say(sentence) if sentence else None
