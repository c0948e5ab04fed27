"""The part of the window for waiting messages: delayed ones and retries at a delay level, and timed ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .access_window import AccessWindow
from .waiting import snapshots as w
from .waiting.views import Wanted

#: One message; also as (level, queue offset, unique id or None), for callers that import nothing of the engine.
WaitingPlaceLike = w.WaitingPlace | tuple[int, int, str | None]


def _places(places: Iterable[WaitingPlaceLike]) -> list[w.WaitingPlace]:
    return [one if isinstance(one, w.WaitingPlace) else w.WaitingPlace(*one) for one in places]


class WaitingWindow(AccessWindow):
    """Any thread; reads in the caller's, and ends a request after 250 ms."""

    def delay_levels(self) -> tuple[w.DelayLevel, ...]:
        """Return every delay level: how many messages wait, when the next is due."""
        return self._running().waiting.levels()

    def retry_ladder(self, group: str) -> w.RetryLadder:
        """Return a group's messages on their way back to it: how many wait at each level, when the next is due, their
        origin topics, and how many came back and are not consumed yet. NotFound.

        The first calls on a large backlog are `truncated`: each continues the count.
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
        """Return a page of waiting messages, delayed ones, retries and timed ones, in the order in which they are due.

        group: only its retries. topic: only messages that go there. level: 0 for timed messages. from_ms, to_ms: due in
        this span, by the wall clock, ends included. retries: True for messages on their way back to a group only, False
        for others only. The list is live: messages delivered or handled meanwhile are left out. `next_cursor` goes with
        the same filter. limit: 1 to 500. No bodies: `message_body(row.offset_id)` has them. InvalidInput.
        """
        views = self._running().waiting
        return views.page(views.wanted(group, topic, level, from_ms, to_ms, retries), cursor, limit)

    def waiting_at(self, places: Sequence[WaitingPlaceLike]) -> tuple[w.WaitingRow | None, ...]:
        """Return the message at each of these places (1000 at most), also one that waits no longer; None for an empty
        place. No time limit: each takes two reads."""
        return self._running().waiting.rows_at(_places(places[:1000]))

    def find_waiting(self, text: str, limit: int = 50) -> w.WaitingPage:
        """Find waiting messages by a key, unique id or offset id; those due first come first.

        There is no next page: the result is `truncated` if there are more than `limit` (1 to 500), or if the time did
        not suffice to look at all. InvalidInput, Unavailable.
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
        """Count messages by the time they are due, in `buckets` (1 to 1000) of `bucket_ms` from `begin_ms` (now) on.

        A recall of an unknown message counts as one less. Without a topic, recalled messages before and behind the
        buckets still count.
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

        action: "deliver_now" (store it at once where it goes when due), "to_dead_letters" (retries only), "drop" (it is
        never delivered). Either `places`, or a filter as of `waiting` with at least one field: the act takes its first
        `limit` (1 to 1000) messages, those due first; while there are `more`, call again with `next_cursor` as the
        cursor, so that neither handled messages nor impossible ones are looked at again. dry_run: the same checks,
        nothing changes. by: the user, for the log.

        Each message has its result, and `counts` add up to `asked`: among several, one that was delivered at the same
        moment is no error. For a single place it is an error: NotFound (no such message), Conflict (delivered, handled,
        or another unique id), InvalidInput (action, limit, no retry, no such topic), Unavailable (the log or the list
        of handled messages cannot be written; it is delivered when due). A crash meanwhile delivers twice at worst. If
        Apache's broker takes over the directory, it delivers messages of delay levels again that were handled early and
        are not due yet; timed messages it does not.
        """
        parts = self._changing()
        wanted: Wanted | None = None
        asked = (group, topic, level, from_ms, to_ms, retries)
        if any(one is not None for one in asked):
            wanted = parts.waiting.wanted(*asked)
        return parts.waiting_commands.run(action, _places(places), wanted, cursor, limit, dry_run, by)
