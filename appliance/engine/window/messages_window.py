"""The part of the window about many messages at once: those that an expression finds, copies of them, and imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import message_snapshots as m
from .letters_window import LettersWindow
from .message_looks import query_of
from .messages import copy_of

#: How many times as long as a page works it rests in between: people page by page, so they may have more than jobs.
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
        """A page of a topic's messages stored in [from_ms, to_ms], over a snapshot that new messages do not change.

        The first call fixes the snapshot; `next_cursor` goes on in it and carries the times, queue and direction, so
        only topic and limit go with it. The cursor is no secret and gives no access: it is checked, and good for this
        topic only. limit: 1 to 500. No bodies. filter_text: only what this expression of `filter/query` finds; it goes
        with the cursor, and a page ends after budget_ms or 64 MiB, however few it found by then. Who may not read
        bodies may not filter by them; the caller checks that with `filter_reads_bodies`. since: only what lies at or
        behind this place of the log (`log_span`). gentle: rest so many times as long as it works, many times within the
        budget. NotFound (topic, queue), InvalidInput (cursor, limit, times, filter).
        """
        return self._running().messages.page(
            topic, queue_id, from_ms, to_ms, newest_first, cursor, limit, None, filter_text, budget_ms, since, gentle
        )

    @staticmethod
    def filter_reads_bodies(filter_text: str | None) -> bool:
        """Whether an expression looks into bodies. InvalidInput where it is wrong."""
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
        """As `messages`, its rows `MessageCopy`: all there is of each, the body among it. Needs the grants to read
        bodies and to export; the caller checks that."""
        return self._running().messages.page(
            topic, queue_id, from_ms, to_ms, newest_first, cursor, limit, copy_of, filter_text, budget_ms, 0, gentle
        )

    def log_span(self) -> tuple[int, int]:
        """Where the log begins and what is published of it ends: places for `since`."""
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
        """Send copies of messages to a topic, as a producer of ours; what became of each, durable in sync flush.

        An item has `body`, and may have `tags`, `keys`, `properties`, `flag`, `queue_id` (that queue, as far as the
        topic has it) and `unique_id`, which the copy gets. Properties that clients and brokers set are left out, and
        named. dry_run: only checks. NotFound (topic), InvalidInput (topic), Unavailable: some of them may have been
        stored then; `messages(since=...)` tells.
        """
        return self._changing().imports.send(topic, items, dry_run, timeout_s, by)
