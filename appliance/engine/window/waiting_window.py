"""The part of the window about messages that wait: at a delay level, delayed ones and retries on their way back, or for
a time of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import waiting_snapshots as w
from .process_window import ProcessWindow
from .waiting import Wanted

#: One message; also as (level, queue offset, unique id or None), for callers that import nothing of the engine.
WaitingPlaceLike = w.WaitingPlace | tuple[int, int, str | None]


def _places(places: Iterable[WaitingPlaceLike]) -> list[w.WaitingPlace]:
    return [one if isinstance(one, w.WaitingPlace) else w.WaitingPlace(*one) for one in places]


class WaitingWindow(ProcessWindow):
    """Any thread; reads in the caller's, and ends a question after 250 ms."""

    def delay_levels(self) -> tuple[w.DelayLevel, ...]:
        """Every delay level: how many wait, when the next is due."""
        return self._running().waiting.levels()

    def retry_ladder(self, group: str) -> w.RetryLadder:
        """A group's messages on their way back to it: how many wait at each level, when the next is due, which topics
        they are of, and how many came back and are not consumed yet. NotFound.

        The first calls on a large backlog are `truncated`: each counts on from the one before.
        """
        return self._running().waiting.ladder(group)

    def waiting(
        self,
        *,
        group: str | None = None,
        topic: str | None = None,
        level: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        retries: bool | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> w.WaitingPage:
        """A page of messages that wait, delayed ones, retries and those with a time of their own; those due first come
        first.

        group: only its retries. topic: only those that go there. level: 0 for a time of their own. from_ms, to_ms: due
        in this span, by the wall clock, ends included. retries: only those on their way back to a group, or only
        others. The list is live: what is delivered or handled meanwhile is left out. `next_cursor` goes with the same
        filter. limit: 1 to 500. No bodies: `message(row.offset_id)` has them. InvalidInput.
        """
        views = self._running().waiting
        return views.page(views.wanted(group, topic, level, from_ms, to_ms, retries), cursor, limit)

    def waiting_at(self, places: Sequence[WaitingPlaceLike]) -> tuple[w.WaitingRow | None, ...]:
        """What is at each of these places (1000 at most), whether it still waits or not; None where there is nothing.
        No time limit: each takes two reads."""
        return self._running().waiting.rows_at(_places(places[:1000]))

    def find_waiting(self, text: str, limit: int = 50) -> w.WaitingPage:
        """Messages that wait, by a key, unique id or offset id; those due first come first.

        There is no next page: with more than `limit` (1 to 500), or without the time to look at all, it is `truncated`.
        InvalidInput, Unavailable.
        """
        return self._running().waiting.by_name(text, limit)

    def pending_by_due(
        self,
        bucket_ms: int = 60_000,
        buckets: int = 120,
        *,
        begin_ms: int | None = None,
        group: str | None = None,
        topic: str | None = None,
        level: int | None = None,
        retries: bool | None = None,
    ) -> w.PendingByDue:
        """How many messages come due when: `buckets` (1 to 1000) of `bucket_ms` from `begin_ms` (now) on.

        A recall of an unknown message counts as one less; messages before and behind the buckets that were taken back
        still count, when no topic is asked for.
        """
        views = self._running().waiting
        return views.by_due(views.wanted(group, topic, level, None, None, retries), begin_ms, bucket_ms, buckets)

    def act_on_waiting(
        self,
        action: str,
        places: Sequence[WaitingPlaceLike] = (),
        *,
        group: str | None = None,
        topic: str | None = None,
        level: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        retries: bool | None = None,
        cursor: str | None = None,
        limit: int = 1000,
        dry_run: bool = False,
        by: str = "",
    ) -> w.WaitingAct:
        """Handle messages before they are due; durable when it returns.

        action: "deliver_now" (stored at once where it was to go), "to_dead_letters" (retries only), "drop" (it never
        arrives). Either `places`, or a filter as of `waiting` (something in it must be given): its first `limit` (1
        to 1000) messages, those due first; while there are `more` ask again with `next_cursor` as the cursor, so that
        neither what was handled nor what cannot be is looked at again. dry_run: the same checks, nothing changes. by:
        who asked, for the log.

        Each message has its result, and `counts` add up to `asked`: one that was delivered in the same moment is no
        error among others. Of a single place it is: NotFound (no such message), Conflict (delivered, handled, or
        another unique id), InvalidInput (action, limit, no retry, no such topic), Unavailable (the log or the list of
        handled messages cannot be written; it is delivered when due). A crash on the way delivers twice at worst. When
        Apache's broker takes the directory over, messages of levels that were handled early and are not due yet are
        delivered by it once more; those with a time of their own are not.
        """
        parts = self._changing()
        wanted: Wanted | None = None
        asked = (group, topic, level, from_ms, to_ms, retries)
        if any(one is not None for one in asked):
            wanted = parts.waiting.wanted(*asked)
        return parts.waiting_commands.run(action, _places(places), wanted, cursor, limit, dry_run, by)
