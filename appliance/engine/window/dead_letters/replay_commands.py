"""Starts, pauses, resumes and cancels replays of dead letters: checks requests, then passes them to the service."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...broker.group_config import SubscriptionGroupConfig
from ...broker.replay import job as j
from ...broker.replay.copies import is_kept, is_writable, origin_topic
from ...broker.replay.dead_letters import DeadLetterReader
from ...broker.replay.history import replays_of, times_replayed
from ...broker.replay.job import JobSpec, Numbering, Result, Span, spans_of
from ...broker.replay.service import JobView, Refused, ReplayService, new_job_id
from ...errors import AdminError, Conflict, InvalidInput, NotFound, QueueBroken, Unavailable
from ...protocol.names import DLQ_PREFIX, PERM_READ, PERM_WRITE, RETRY_PREFIX
from ...protocol.record import Record
from ..figures.measures import Budget
from ..messages.queue_reader import QueueReader
from ..refusals import require_one_of, require_span
from ..sentences import Sentence, say
from ..snapshots import ByTopic
from ..sources import Sources
from .replays import ReplayViews, job_of
from .snapshots import ReplayJob, ReplayPlan
from .views import DeadLetterViews, filter_of

#: Time after which a dry run ends.
DRY_RUN_MS = 2000.0
_CHUNK = 256


class ReplayCommands:
    """Any thread; waits in the caller's."""

    def __init__(
        self,
        sources: Sources,
        service: ReplayService,
        views: ReplayViews,
        letters: DeadLetterViews,
    ) -> None:
        # Constant after construction.
        self._topics, self._groups, self._store = sources.topics, sources.groups, sources.store
        self._service = service
        self._views = views
        self._letters = letters

    def start(
        self,
        group: str,
        *,
        target: str = "group",
        topic: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        offsets: Iterable[tuple[int, int]] | None = None,
        wanted: Mapping[str, Any] | None = None,
        rate: int = 100,
        max_replays: int = 3,
        dry_run: bool = False,
        by: str = "",
    ) -> ReplayPlan:
        """Send dead letters of a group again, as a job that survives restarts; it is durable when this returns.

        target: "group" (only this group gets them, through its retry topic, at once and as at the first try),
        "original" (each to the topic it was sent to: every group there gets it), "topic" (to `topic`). The job sends
        all present dead letters, those stored in [from_ms, to_ms], or `offsets`: (queue id, offset) of at most 10,000.
        wanted: a filter for the first two cases; it judges each message when the job comes to it. rate: messages a
        second, 1 to 10,000. max_replays: messages replayed this often are skipped (1 to 1,000). The dead letters stay
        where they are. dry_run: only look, for two seconds at most. by: the user. NotFound (group, topic),
        InvalidInput (field), Conflict (a job of this group is not finished), Unavailable.
        """
        chosen = filter_of(wanted)
        self._letters.check(group)
        if offsets is not None and not chosen.all:
            raise InvalidInput("offsets", say("replay_offsets_or_filter"))
        require_one_of("target", target, j.TARGETS)
        _check_range("rate", rate, j.MOST_RATE)
        _check_range("max_replays", max_replays, j.MOST_REPLAYS)
        aim, warnings = self._aim(group, target, topic)
        spans = self._selected(group, from_ms, to_ms, offsets)
        now_ms = int(time.time() * 1000)
        # A message that dies in this very millisecond is not one that an earlier job replayed.
        spec = JobSpec(
            new_job_id(now_ms), group, target, aim, spans, rate, max_replays, by, now_ms, None if chosen.all else chosen
        )
        if dry_run:
            return self._look(spec, warnings)
        if target == j.TO_GROUP:
            self._make_retry_topic(group)
        view = self._ask(lambda: self._service.start_job(spec))
        return ReplayPlan(spec.total, 0, False, (), 0, 0, 0, 0, warnings, job_of(view))

    def pause(self, job: str, *, by: str = "") -> ReplayJob:
        """Pause a job; it sends nothing after this returns. NotFound, Conflict (it is not running)."""
        self._views.view(job)
        return job_of(self._ask(lambda: self._service.pause(job, by)))

    def resume(self, job: str, *, by: str = "") -> ReplayJob:
        """Resume a paused job. NotFound, Conflict (it is not paused), Unavailable (its journal)."""
        self._views.view(job)
        return job_of(self._ask(lambda: self._service.resume(job, by)))

    def cancel(self, job: str, *, by: str = "") -> ReplayJob:
        """End a job for good; messages that it sent stay. NotFound, Conflict (it has ended)."""
        self._views.view(job)
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
            require_span(from_ms, to_ms)
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
            by_topic=tuple(ByTopic(*one) for one in topics.most_common()),
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
