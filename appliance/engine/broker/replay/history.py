"""Finds the jobs that have replayed a dead letter before, for the loop guard and for views of dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ...errors import CorruptFile
from ...protocol.properties import decode_properties
from ...protocol.record import Record
from .job import JobState, Numbering, Result, Span
from .journal import JobJournal
from .provenance import provenance_of

logger = logging.getLogger(__name__)

#: Most jobs whose results are read: the newest ones whose spans hold one of the dead letters.
MOST_JOBS = 20

#: (queue id, offset) of a dead letter.
Place = tuple[int, int]


class History:
    """Looks up earlier replays in the journals. For any thread; reads files in the caller's."""

    def __init__(self, journal: JobJournal, states: Callable[[], Iterable[JobState]]) -> None:
        """states: returns the states of all jobs whose journals can be read."""
        self._journal = journal
        self._states = states

    def of(self, group: str, spans: Iterable[Span], besides: str = "") -> dict[Place, list[JobState]]:
        """Return place -> the jobs that replayed the dead letter there, newest first, without the job `besides`."""
        found: dict[Place, list[JobState]] = {}
        wanted = list(spans)
        jobs = [
            state
            for state in self._states()
            if state.spec.group == group and state.spec.id != besides and state.counts[Result.REPLAYED]
        ]
        jobs.sort(key=lambda state: (state.spec.created_ms, state.spec.id), reverse=True)
        looked_at = 0
        for state in jobs:
            numbering = Numbering(state.spec.spans)
            overlaps = [piece for span in wanted for piece in numbering.overlaps(span)]
            for first, overlap in overlaps:
                self._add(found, state, first, overlap)
            looked_at += bool(overlaps)
            if looked_at == MOST_JOBS:
                break
        return found

    def _add(self, found: dict[Place, list[JobState]], state: JobState, first: int, span: Span) -> None:
        try:
            results = self._journal.results(state.spec.id, first, first + span.end - span.begin)
        except (OSError, CorruptFile) as error:
            logger.warning("replay: the results of job %s cannot be read: %s", state.spec.id, error)
            return
        for index, result in enumerate(results):
            if result == Result.REPLAYED:
                found.setdefault((span.queue_id, span.begin + index), []).append(state)


def replays_of(record: Record, jobs: Iterable[JobState]) -> list[JobState]:
    """Return the jobs that replayed this record, and not another one that lay there before its topic was deleted."""
    return [state for state in jobs if state.spec.created_ms >= record.store_time_ms]


def times_replayed(record: Record, jobs: Iterable[JobState]) -> int:
    """Return how often a dead letter was replayed, before it came here and since. jobs: from `of`, for its place."""
    return provenance_of(decode_properties(record.properties)).times + len(replays_of(record, jobs))
