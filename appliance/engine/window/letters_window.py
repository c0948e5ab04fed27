"""The part of the window for dead letters and their replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import InvalidInput
from ..protocol.names import DLQ_PREFIX
from . import snapshots as s
from .dead_letters import snapshots as r
from .dead_letters.views import filter_of
from .messages import snapshots as m
from .messages.views import copy_of
from .sentences import say
from .transactions_window import TransactionsWindow


class LettersWindow(TransactionsWindow):
    """Any thread; reads in the caller's."""

    def dead_letter_groups(self, q: str = "", sort: str = "-count", page: int = 1, page_size: int = 50) -> s.Page:
        """Return a page of DeadLetterGroup: the groups that have dead letters, deleted groups too.

        q: part of the name. sort: group, count; "-" before it for the largest first.
        """
        return self._running().dead_letters.groups(q, sort, page, page_size)

    def dead_letters(
        self,
        group: str,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        wanted: Mapping[str, Any] | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> r.DeadLetterPage:
        """Return a page of a group's dead letters stored in [from_ms, to_ms], newest first, over a snapshot as
        `messages`.

        wanted: fields of a filter: topic (that it was first sent to; "" if its properties lack that), retries, key (or
        unique id, or its original offset id), replayed ("no", "yes": from its place; "again": it is the copy of a
        replay). With a filter a page ends after 250 ms, and may be empty although there is a next one. No bodies:
        `message_body(row.message.offset_id)`. NotFound (group; its dead letter topic), InvalidInput.
        """
        return self._running().dead_letters.page(group, from_ms, to_ms, filter_of(wanted), cursor, limit)

    def dead_letter_copies(
        self,
        group: str,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        wanted: Mapping[str, Any] | None = None,
        cursor: str | None = None,
        limit: int = 50,
        budget_ms: float = 250.0,
    ) -> r.DeadLetterCopies:
        """As `dead_letters`, with body and all properties: needs the grants to read bodies and to export. budget_ms:
        time after which the page ends, 250 at most; it may be empty although there is a next one."""
        return self._running().dead_letters.copies(group, from_ms, to_ms, filter_of(wanted), cursor, limit, budget_ms)

    def dead_letter_copy(self, group: str, queue_id: int, offset: int) -> m.MessageCopy:
        """Return one dead letter with body and all properties. NotFound. Needs the same grants."""
        views = self._running().dead_letters
        views.check(group)
        return copy_of(self._running().messages.record(f"{DLQ_PREFIX}{group}/{queue_id}/{offset}")[0])

    def check_retries(self, group: str, places: Sequence[tuple[int, int, str | None]]) -> None:
        """Raise InvalidInput if one of these waiting messages is not a retry of the group; NotFound (group)."""
        self._running().waiting.ladder(group)
        if any(row is not None and row.group != group for row in self.waiting_at(places)):
            raise InvalidInput("places", say("retry_of_another"))

    def dead_letter_summary(self, group: str) -> r.DeadLetterSummary:
        """Count a group's dead letters by origin topic, retries and hour. The first calls on a large backlog are
        `truncated`: each continues the count for a quarter of a second. NotFound."""
        return self._running().dead_letters.summary(group)

    def expiring_dead_letters(self, within_ms: int = 24 * 3_600_000) -> r.ExpiringLetters:
        """Return by group how many dead letters may be deleted within the next hours. Cheap enough to be called every
        second for a page: it reads next to nothing."""
        return self._running().dead_letters.expiring(within_ms)

    def start_replay(
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
    ) -> r.ReplayPlan:
        """Send dead letters of a group again, as a job that survives restarts; it is durable when this returns.

        target: "group" (only this group gets them, through its retry topic, at once and as at the first try),
        "original" (each to the topic it was sent to: every group there gets it), "topic" (to `topic`). The job sends
        all present dead letters, those stored in [from_ms, to_ms], or `offsets`: (queue id, offset) of at most 10,000.
        wanted: a filter for the first two cases; it judges each message when the job comes to it. rate: messages a
        second, 1 to 10,000. max_replays: messages replayed this often are skipped (1 to 1,000). The dead letters stay
        where they are. dry_run: only look, for two seconds at most. by: the user. NotFound (group, topic),
        InvalidInput (field), Conflict (a job of this group is not finished), Unavailable.
        """
        return self._changing().replays.start(
            group, target, topic, from_ms, to_ms, offsets, filter_of(wanted), rate, max_replays, dry_run, by
        )

    def replay_jobs(self, group: str | None = None) -> r.ReplayJobs:
        """Return all jobs or those of one group, and the jobs whose journal cannot be read."""
        return self._running().replays.jobs(group)

    def replay_job(self, job: str) -> r.ReplayJob:
        """Return a job as it is now. NotFound; Unavailable if its journal cannot be read."""
        return self._running().replays.job(job)

    def replay_results(
        self, job: str, *, result: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> r.ReplayResultPage:
        """Return the result of each message of a job. result: only those of this kind; "chosen" for all that the filter
        matches. limit: 1 to 500."""
        return self._running().replays.results(job, result, cursor, limit)

    def pause_replay(self, job: str, *, by: str = "") -> r.ReplayJob:
        """Pause a job; it sends nothing after this returns. NotFound, Conflict (it is not running)."""
        return self._changing().replays.pause(job, by)

    def resume_replay(self, job: str, *, by: str = "") -> r.ReplayJob:
        """Resume a paused job. NotFound, Conflict (it is not paused), Unavailable (its journal)."""
        return self._changing().replays.resume(job, by)

    def cancel_replay(self, job: str, *, by: str = "") -> r.ReplayJob:
        """End a job for good; messages that it sent stay. NotFound, Conflict (it has ended)."""
        return self._changing().replays.cancel(job, by)
