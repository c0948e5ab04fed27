"""Replay of dead letters: checks requests and passes them to the replay service."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ...broker.group_config import SubscriptionGroupConfig
from ...broker.groups import SubscriptionGroupManager
from ...broker.replay import job as j
from ...broker.replay.copies import is_kept, is_writable, origin_topic
from ...broker.replay.dead_letters import DeadLetterReader
from ...broker.replay.history import replays_of, times_replayed
from ...broker.replay.job import JobSpec, Numbering, Result, Span, spans_of
from ...broker.replay.letter_filter import LetterFilter
from ...broker.replay.service import PASSING, JobView, Refused, ReplayService, new_job_id
from ...broker.topics import TopicConfigManager
from ...cursors import decode_cursor, encode_cursor
from ...errors import AdminError, Conflict, CorruptFile, InvalidInput, NotFound, QueueBroken, Unavailable
from ...protocol.names import DLQ_PREFIX, PERM_READ, PERM_WRITE, RETRY_PREFIX
from ...protocol.properties import KEYS, ORIGIN_MESSAGE_ID, RETRY_TOPIC, UNIQUE_KEY, decode_properties
from ...protocol.record import Record
from ...store.message_store import MessageStore
from ..figures.measures import Budget
from ..messages.queue_reader import QueueReader
from ..sentences import Sentence, say
from .snapshots import ReplayJob, ReplayJobs, ReplayPlan, ReplayResult, ReplayResultPage, UnreadableReplay
from .views import DeadLetterViews, check_filter

#: Time after which a dry run ends.
DRY_RUN_MS = 2000.0
MAX_LIMIT = 500
_MAX_I64 = (1 << 63) - 1
_CHUNK = 256

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


class ReplayCommands:
    """Any thread; waits in the caller's. See EngineAdmin for arguments and errors."""

    def __init__(
        self,
        service: ReplayService,
        letters: DeadLetterViews,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        store: MessageStore,
    ) -> None:
        # Constant after construction.
        self._service = service
        self._letters = letters
        self._topics = topics
        self._groups = groups
        self._store = store

    # --- asking

    def jobs(self, group: str | None) -> ReplayJobs:
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
        return job_of(self._view(job))

    def _view(self, job: str) -> JobView:
        if not self._service.wait_loaded():
            raise Unavailable(say("too_busy"))
        view = self._service.job(job)
        if view is None:
            for one in self._service.unread():
                if one.id == job:
                    raise Unavailable(say("replay_journal_damaged", reason=one.reason))
            raise NotFound("replay job", job[:64])
        return view

    def results(self, job: str, result: str | None, cursor: str | None, limit: int) -> ReplayResultPage:
        if not 1 <= limit <= MAX_LIMIT:
            raise InvalidInput("limit", say("out_of_range", field="limit", low=1, high=MAX_LIMIT))
        names = [CHOSEN, *sorted({name for name, _ in _SHOWN.values()})]
        if result is not None and result not in names:
            raise InvalidInput("result", say("one_of", field="result", choices=", ".join(names)))
        view = self._view(job)
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

    # --- doing

    def start(
        self,
        group: str,
        target: str,
        topic: str | None,
        from_ms: int | None,
        to_ms: int | None,
        offsets: Iterable[tuple[int, int]] | None,
        wanted: LetterFilter,
        rate: int,
        max_replays: int,
        dry_run: bool,
        by: str,
    ) -> ReplayPlan:
        self._letters.check(group)
        if offsets is not None and not wanted.all:
            raise InvalidInput("offsets", say("replay_offsets_or_filter"))
        check_filter(wanted)
        if target not in j.TARGETS:
            raise InvalidInput("target", say("one_of", field="target", choices=", ".join(j.TARGETS)))
        _check_range("rate", rate, j.MOST_RATE)
        _check_range("max_replays", max_replays, j.MOST_REPLAYS)
        aim, warnings = self._aim(group, target, topic)
        spans = self._selected(group, from_ms, to_ms, offsets)
        now_ms = int(time.time() * 1000)
        # A message that dies in this very millisecond is not one that an earlier job replayed.
        spec = JobSpec(
            new_job_id(now_ms), group, target, aim, spans, rate, max_replays, by, now_ms, None if wanted.all else wanted
        )
        if dry_run:
            return self._look(spec, warnings)
        if target == j.TO_GROUP:
            self._make_retry_topic(group)
        view = self._ask(lambda: self._service.start_job(spec))
        return ReplayPlan(spec.total, 0, False, (), 0, 0, 0, 0, warnings, job_of(view))

    def pause(self, job: str, by: str) -> ReplayJob:
        self._view(job)
        return job_of(self._ask(lambda: self._service.pause(job, by)))

    def resume(self, job: str, by: str) -> ReplayJob:
        self._view(job)
        return job_of(self._ask(lambda: self._service.resume(job, by)))

    def cancel(self, job: str, by: str) -> ReplayJob:
        self._view(job)
        return job_of(self._ask(lambda: self._service.cancel(job, by)))

    @staticmethod
    def _ask(command: Callable[[], JobView]) -> JobView:
        try:
            return command()
        except Refused as refused:
            raise _error_of(refused) from None

    # --- where copies go

    def _aim(self, group: str, target: str, topic: str | None) -> tuple[str, tuple[Sentence, ...]]:
        """Return (topic of all copies, "" if each has its own; warnings). Raises InvalidInput, NotFound."""
        if target == j.TO_TOPIC:
            if not topic:
                raise InvalidInput("topic", say("replay_topic_missing"))
            config = self._topics.get(topic)
            if config is None:
                raise NotFound("topic", topic)
            if is_kept(topic):
                raise InvalidInput("topic", say("topic_kept"))
            if not is_writable(config):
                raise InvalidInput("topic", say("topic_not_writable"))
            return topic, (say("replay_other_topic", topic=topic),)
        if topic:
            raise InvalidInput("topic", say("replay_topic_unused", target=target))
        if target == j.TO_ORIGINAL:
            return "", (say("replay_to_everybody"),)
        known = self._groups.get(group)
        if known is None:
            raise NotFound("group", group)
        return RETRY_PREFIX + group, () if known.consume_enable else (say("consumption_off"),)

    def _make_retry_topic(self, group: str) -> None:
        known = self._groups.get(group) or SubscriptionGroupConfig(group_name=group)
        name = RETRY_PREFIX + group
        if self._topics.get(name) is None:
            made = self._topics.create_retry_topic(name, known.retry_queue_nums, PERM_READ | PERM_WRITE)
            if made is None:
                raise NotFound("topic", name)

    # --- which messages

    def _selected(
        self,
        group: str,
        from_ms: int | None,
        to_ms: int | None,
        offsets: Iterable[tuple[int, int]] | None,
    ) -> tuple[Span, ...]:
        """Return the spans of the selected dead letters. Raises InvalidInput, also if there are none or too many."""
        topic = DLQ_PREFIX + group
        if offsets is not None:
            if from_ms is not None or to_ms is not None:
                raise InvalidInput("offsets", say("replay_offsets_or_times"))
            spans = self._listed(topic, offsets)
        else:
            for name, value in (("from_ms", from_ms), ("to_ms", to_ms)):
                if value is not None and not 0 <= value < _MAX_I64:
                    raise InvalidInput(name, say("not_a_time", field=name))
            if from_ms is not None and to_ms is not None and from_ms > to_ms:
                raise InvalidInput("to_ms", say("times_reversed"))
            spans = self._between(topic, from_ms, to_ms)
        total = sum(span.end - span.begin for span in spans)
        if not total:
            raise InvalidInput("" if offsets is None else "offsets", say("replay_nothing"))
        if total > j.MOST_MESSAGES:
            raise InvalidInput("", say("replay_too_many", count=total, limit=j.MOST_MESSAGES))
        return spans

    def _listed(self, topic: str, offsets: Iterable[tuple[int, int]]) -> tuple[Span, ...]:
        places: list[tuple[int, int]] = []
        for queue_id, offset in offsets:
            end = self._store.offset_range(topic, queue_id)[1]
            if not 0 <= offset < end:
                raise InvalidInput("offsets", say("replay_no_such_offset", queue=queue_id, offset=offset, end=end))
            places.append((queue_id, offset))
            if len(places) > j.MOST_SPANS:
                raise InvalidInput("offsets", say("replay_long_list", limit=j.MOST_SPANS))
        return spans_of(places)

    def _between(self, topic: str, from_ms: int | None, to_ms: int | None) -> tuple[Span, ...]:
        config = self._topics.get(topic)
        spans = []
        with QueueReader(self._store) as reader:
            for queue_id in range(0 if config is None else max(config.read_queue_nums, config.write_queue_nums)):
                queue = self._store.find_queue(topic, queue_id)
                if queue is None:
                    continue
                begin = queue.min_offset if from_ms is None else reader.offset_at(queue, from_ms)
                end = queue.max_offset if to_ms is None else reader.end_at(queue, to_ms)
                if begin < end:
                    spans.append(Span(queue_id, begin, end))
        return tuple(spans)

    # --- a dry run

    def _look(self, spec: JobSpec, warnings: tuple[Sentence, ...]) -> ReplayPlan:
        budget = Budget(DRY_RUN_MS)
        topics: Counter[str | None] = Counter()
        guard = gone = failed = left_out = at = 0
        numbering = Numbering(spec.spans)
        try:
            with DeadLetterReader(self._store, spec.group, spec.spans) as reader:
                while at < spec.total and not budget.spent:
                    end = min(spec.total, at + _CHUNK)
                    earlier = self._service.history.of(spec.group, [span for _, span in numbering.pieces(at, end)])
                    for _, found in reader.read(at, end):
                        if isinstance(found, Record):
                            jobs = earlier.get((found.queue_id, found.queue_offset), [])
                            if spec.filter is not None and not (
                                spec.filter.fits(found) and spec.filter.fits_replays(len(replays_of(found, jobs)))
                            ):
                                left_out += 1
                                continue
                            origin = origin_topic(found)
                            if times_replayed(found, jobs) >= spec.max_replays:
                                guard += 1
                            elif spec.target == j.TO_ORIGINAL and not self._takes(origin):
                                failed += 1
                            else:
                                topics[origin] += 1
                        elif found is Result.GONE:
                            gone += 1
                        else:
                            failed += 1
                    at = end
        except (OSError, QueueBroken) as error:
            raise Unavailable(say("replay_unreadable", reason=str(error))) from None
        return ReplayPlan(
            total=spec.total,
            scanned=at,
            truncated=at < spec.total,
            by_topic=tuple(topics.most_common()),
            skipped_by_guard=guard,
            gone=gone,
            failed=failed,
            not_chosen=left_out,
            warnings=warnings,
            job=None,
        )

    def _takes(self, topic: str | None) -> bool:
        """True if a message may go back to the topic it was sent to."""
        if topic is None or is_kept(topic):
            return False
        config = self._topics.get(topic)
        return config is not None and is_writable(config)


def _check_range(field: str, value: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidInput(field, say("out_of_range", field=field, low=1, high=most))


def _error_of(refused: Refused) -> AdminError:
    sentence = say(refused.why.code, **refused.why.args) if refused.why.code else say("too_busy")
    return Conflict(sentence) if refused.kind == "conflict" else Unavailable(sentence)


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
        filter=None if spec.filter is None else spec.filter.given,
        by=spec.by,
        created_ms=spec.created_ms,
        changed_ms=state.changed_ms,
    )


def _why(code: Result, spec: JobSpec) -> tuple[str, Sentence | None]:
    """Return (a result's name on a page, its reason)."""
    name, sentence = _SHOWN[code]
    if sentence == "replay_guarded":
        return name, say(sentence, count=spec.max_replays)
    return name, say(sentence) if sentence else None
