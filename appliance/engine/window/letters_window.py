"""The part of the window about dead letters and sending them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import InvalidInput
from ..protocol.names import DLQ_PREFIX
from . import message_snapshots as m
from . import replay_snapshots as r
from . import snapshots as s
from .dead_letters import filter_of
from .messages import copy_of
from .sentences import say
from .transactions_window import TransactionsWindow


class LettersWindow(TransactionsWindow):
    """Any thread; reads in the caller's."""

    def dead_letter_groups(self, q: str = "", sort: str = "-count", page: int = 1, page_size: int = 50) -> s.Page:
        """A page of DeadLetterGroup: the groups that have dead letters, those of deleted groups too.

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
        """A page of a group's dead letters that died in [from_ms, to_ms], newest first, over a snapshot as `messages`.

        wanted: only those of a filter: topic (first sent to; "" for those that do not say), retries, key (or unique id,
        or the offset id it once had), replayed ("no", "yes": from where it lies; "again": the copy of a replay). Then a
        page ends after 250 ms, and may be empty with a next one. No bodies: `message_body(row.row.offset_id)`. NotFound
        (group; its dead letter topic), InvalidInput.
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
        it ends after so long, 250 at most; a page may be empty and have a next one."""
        return self._running().dead_letters.copies(group, from_ms, to_ms, filter_of(wanted), cursor, limit, budget_ms)

    def dead_letter_copy(self, group: str, queue_id: int, offset: int) -> m.MessageCopy:
        """All there is of one dead letter. NotFound. The grants are the same."""
        views = self._running().dead_letters
        views.check(group)
        return copy_of(self._running().messages.record(f"{DLQ_PREFIX}{group}/{queue_id}/{offset}")[0])

    def check_retries(self, group: str, places: Sequence[tuple[int, int, str | None]]) -> None:
        """InvalidInput when one of these messages that wait is not a retry of the group; NotFound (group)."""
        self._running().waiting.ladder(group)
        if any(row is not None and row.group != group for row in self.waiting_at(places)):
            raise InvalidInput("places", say("retry_of_another"))

    def dead_letter_summary(self, group: str) -> r.DeadLetterSummary:
        """A group's dead letters by origin topic, retries and hour. The first calls on a large backlog are `truncated`:
        each counts on from the one before, for a quarter of a second. NotFound."""
        return self._running().dead_letters.summary(group)

    def expiring_dead_letters(self, within_ms: int = 24 * 3_600_000) -> r.ExpiringLetters:
        """How many dead letters may go within the next hours, by group. Cheap: reads next to nothing, for a page that
        is shown every second."""
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
        "original" (each to the topic it was sent to: every group there gets it), "topic" (to `topic`). Which: all there
        are now; those that died in [from_ms, to_ms]; or `offsets`, (queue id, offset) of at most 10,000. wanted: of the
        first two only those that the filter means, as each is when the job comes to it. rate: messages a second, 1 to
        10,000. max_replays: messages that were replayed so often are skipped (1 to 1,000). The dead
        letters stay where they are. dry_run: only look, for two seconds at most. by: who asked. NotFound (group,
        topic), InvalidInput (field), Conflict (a job of this group is not finished), Unavailable.
        """
        return self._changing().replays.start(
            group, target, topic, from_ms, to_ms, offsets, filter_of(wanted), rate, max_replays, dry_run, by
        )

    def replay_jobs(self, group: str | None = None) -> r.ReplayJobs:
        """All jobs, or those of one group, and those whose journal cannot be read."""
        return self._running().replays.jobs(group)

    def replay_job(self, job: str) -> r.ReplayJob:
        """One job as it is now. NotFound; Unavailable when its journal cannot be read."""
        return self._running().replays.job(job)

    def replay_results(
        self, job: str, *, result: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> r.ReplayResultPage:
        """What became of each message of a job. result: only those of this kind;
        "chosen" for all but what the filter leaves out. limit: 1 to 500."""
        return self._running().replays.results(job, result, cursor, limit)

    def pause_replay(self, job: str, *, by: str = "") -> r.ReplayJob:
        """Stop sending; when this returns, nothing is sent any more. NotFound, Conflict (it is not running)."""
        return self._changing().replays.pause(job, by)

    def resume_replay(self, job: str, *, by: str = "") -> r.ReplayJob:
        """Have a paused job go on. NotFound, Conflict (it is not paused), Unavailable (its journal)."""
        return self._changing().replays.resume(job, by)

    def cancel_replay(self, job: str, *, by: str = "") -> r.ReplayJob:
        """End a job for good; what was sent stays sent. NotFound, Conflict (it has ended)."""
        return self._changing().replays.cancel(job, by)
