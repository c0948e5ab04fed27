"""The part of the window for many messages at once: pages with a filter, copies, and imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .letters_window import LettersWindow
from .messages import snapshots as m
from .messages.matching import query_of
from .messages.views import copy_of

#: Rest as a multiple of a page's work: a user asks for one page at a time, so a page rests less than a job.
PAGE_GENTLE = 0.5


class MessagesWindow(LettersWindow):
    """Any thread; reads and waits in the caller's."""

    def messages(
        self,
        topic: str,
        *,
        queue_id: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        newest_first: bool = True,
        cursor: str | None = None,
        limit: int = 50,
        filter_text: str | None = None,
        budget_ms: float = 250.0,
        since: int = 0,
        gentle: float = PAGE_GENTLE,
    ) -> m.MessagePage:
        """Return a page of a topic's messages stored in [from_ms, to_ms], over a snapshot without later messages.

        The first call fixes the snapshot; `next_cursor` continues in it and holds the times, queue and direction, so
        only topic, limit and filter go with it. The cursor is no secret and gives no access: it is checked, and valid
        for this topic and filter only. limit: 1 to 500. No bodies. filter_text: an expression of `filter/query` that
        messages must match. A page ends after budget_ms, with a filter also after 64 MiB, however few it has found by
        then. A user without the grant to read bodies may not filter by them; the caller checks that with
        `filter_reads_bodies`. since: only messages at or behind this physical offset (`log_span`). gentle: time of a
        rest as a multiple of the work; there are many rests within the budget. NotFound (topic, queue), InvalidInput
        (cursor, limit, times, filter).
        """
        return self._running().messages.page(
            topic, queue_id, from_ms, to_ms, newest_first, cursor, limit, None, filter_text, budget_ms, since, gentle
        )

    @staticmethod
    def filter_reads_bodies(filter_text: str | None) -> bool:
        """True if an expression looks into bodies. InvalidInput if it is wrong."""
        query = query_of(filter_text)
        return query is not None and query.reads_bodies

    def message_copies(
        self,
        topic: str,
        *,
        queue_id: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        newest_first: bool = False,
        cursor: str | None = None,
        limit: int = 50,
        filter_text: str | None = None,
        budget_ms: float = 250.0,
        gentle: float = PAGE_GENTLE,
    ) -> m.MessagePage:
        """As `messages`, but its rows are `MessageCopy`: whole messages with their bodies. Needs the grants to read
        bodies and to export; the caller checks that."""
        return self._running().messages.page(
            topic, queue_id, from_ms, to_ms, newest_first, cursor, limit, copy_of, filter_text, budget_ms, 0, gentle
        )

    def log_span(self) -> tuple[int, int]:
        """Return the physical offsets (begin of the log, end of its published part), for use as `since`."""
        return self._running().messages.log_span()

    def import_messages(
        self,
        topic: str,
        items: Sequence[Mapping[str, Any]],
        *,
        dry_run: bool = False,
        timeout_s: float = 15.0,
        by: str = "",
    ) -> tuple[m.Imported, ...]:
        """Send copies of messages to a topic as the broker's own producer. Return the result of each; durable in sync
        flush.

        An item has `body`, and may have `tags`, `keys`, `properties`, `flag`, `queue_id` (used modulo the topic's
        number of queues) and `unique_id`, which the copy gets. Properties that clients and brokers set are left out;
        the result names them. dry_run: only checks. NotFound (topic), InvalidInput (topic), Unavailable: some copies
        may have been stored then; find them with `messages(since=...)`.
        """
        return self._changing().imports.send(topic, items, dry_run, timeout_s, by)
