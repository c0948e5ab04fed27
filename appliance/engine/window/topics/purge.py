"""Purges a topic: its messages are no longer shown, up to now or up to a time. Shown first, then done."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace

from ...broker.topic_service import TopicService
from ...clock import SYSTEM
from ...errors import Conflict, InvalidInput, NotFound, Unavailable
from ...named_tuple import NamedTuple
from ...protocol.names import RETRY_PREFIX
from ...store.queues.consume_queue import ConsumeQueue
from .. import snapshots as s
from ..admin_pool import AdminPool
from ..changes import preview, refuse_if_blocked
from ..figures.lag import LagSnapshot, next_of
from ..messages.queue_reader import QueueReader
from ..sentences import Sentence, say
from ..sources import Sources

logger = logging.getLogger(__name__)

#: Longest wait for the cleaner's thread: below the pool's own limit, so that the error has a reason.
_WAIT_S = 12.0


class _Part(NamedTuple):
    """The messages [begin, end) of a queue, by queue offset. place: behind the beginning of the last one's record."""

    queue: ConsumeQueue
    begin: int
    end: int
    place: int


class TopicPurges:
    """Any thread but the pool's; waits in the caller's."""

    def __init__(
        self,
        sources: Sources,
        service: TopicService,
        pool: AdminPool,
    ) -> None:
        # Constant after construction.
        self._topics, self._store, self._index = sources.topics, sources.store, sources.sampler.index
        self._lag = sources.lag
        self._service = service
        self._pool = pool

    def purge(
        self,
        name: str,
        *,
        before_ms: int | None = None,
        revision: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        by: str = "",
    ) -> s.Change:
        """Show a topic's messages no longer; durable here and at the members in sync when it returns.

        before_ms: only those stored before that time (ms since 1970); None: all so far. The queues' minimum offsets
        move behind them, and groups that were behind go on there. Records stay on disk until their log files expire; a
        message that is asked for by its id or key is found until then. Messages that wait for a time, a retry or the
        end of a transaction are in other topics, and stay.

        revision: of a dry run, whose time then counts: later messages stay. Blocked without `force` if groups have not
        read all of them. NotFound, InvalidInput for a system topic, Conflict if other messages would go than were
        shown, Unavailable.
        """
        if self._topics.get(name) is None:
            raise NotFound("topic", name)
        if self._topics.is_system_topic(name):
            raise InvalidInput("name", say("system_topic", name=name))
        if revision is not None:
            before_ms = _time_in(revision)
        elif before_ms is None and dry_run:
            before_ms = SYSTEM.wall_ms() + 1  # so that the act means these messages, whatever comes meanwhile
        parts = self._parts(name, before_ms)
        present = None if before_ms is None else _revision_of(before_ms, parts)
        if revision not in (None, present):
            raise Conflict(say("changed_since"))
        change = self._change(name, parts, present)
        if dry_run:
            return change
        refuse_if_blocked(change, say("unread_would_go", name=name), force)
        places = {name: {part.queue.queue_id: part.place for part in parts}} if parts else {}
        self._pool.run(lambda: self._purge(places))
        if parts:
            logger.info("admin: topic purged %s %s by=%s", name, [(one.queue.queue_id, one.end) for one in parts], by)
        return replace(change, applied=True, revision=None)

    def _purge(self, places: Mapping[str, Mapping[int, int]]) -> None:
        if places:
            try:
                self._store.cleaner.purge(places, _WAIT_S)
            except OSError as error:
                raise Unavailable(say("purge_failed", reason=error.strerror or str(error))) from None
        # Also when all is gone here already: members may show it, if they did not confirm an earlier purge in time.
        self._service.tell_members("purged")

    def _parts(self, name: str, before_ms: int | None) -> list[_Part]:
        """Return what would go of each queue. Unavailable if the place in a queue cannot be read."""
        found = []
        with QueueReader(self._store) as reader:
            for queue in self._index.of(name):
                begin = queue.min_offset
                end = queue.max_offset if before_ms is None else reader.offset_at(queue, before_ms)
                if end <= begin:
                    continue
                entries = reader.entries(queue, end - 1, 1)
                if not entries or entries[0][1] <= 0:
                    raise Unavailable(say("purge_unknown", topic=name, queue=queue.queue_id))
                found.append(_Part(queue, begin, end, entries[0][0] + 1))
        return found

    def _change(self, name: str, parts: list[_Part], revision: str | None) -> s.Change:
        lag = self._lag.snapshot()
        goes = sum(part.end - part.begin for part in parts)
        all_there = sum(queue.max_offset - queue.min_offset for queue in self._index.of(name))
        warnings = [say("purged_stay_on_disk")] if goes else []
        for group in sorted(group for group, entries in lag.entries.items() if name in entries):
            pending = lag.retries(group)
            if pending:
                warnings.append(say("leftover_topic", topic=f"{RETRY_PREFIX}{group}", count=pending))
        before, after = {"messages": str(all_there)}, {"messages": str(max(0, all_there - goes))}
        return preview(name, before, after, warnings, _unread(name, parts, lag), revision)


def _unread(name: str, parts: list[_Part], lag: LagSnapshot) -> list[Sentence]:
    """Return a blocker for each group that has not read all of these messages."""
    found = []
    groups = {group for group, entries in lag.entries.items() if name in entries}
    if name.startswith(RETRY_PREFIX) and lag.has(name.removeprefix(RETRY_PREFIX)):
        groups.add(name.removeprefix(RETRY_PREFIX))
    for group in sorted(groups):
        offsets = lag.committed(group, name)
        unread = 0
        for part in parts:
            committed = offsets.get(part.queue.queue_id)
            if committed is not None or name.startswith(RETRY_PREFIX):
                unread += max(0, part.end - max(part.begin, next_of(part.queue, committed)))
        if unread:
            found.append(say("group_unread", group=group, topic=name, count=unread))
    return found


def _revision_of(before_ms: int, parts: list[_Part]) -> str:
    """Return a text that differs for other messages, and begins with the time before which they were stored."""
    what = repr([(part.queue.queue_id, part.place) for part in parts])
    return f"{before_ms:x}-{hashlib.sha256(what.encode()).hexdigest()[:16]}"


def _time_in(revision: str) -> int:
    """Return the time in a revision. Conflict if it has none."""
    try:
        found = int(revision.partition("-")[0], 16)
    except ValueError:
        found = -1
    if not 0 <= found < 1 << 60:
        raise Conflict(say("changed_since"))
    return found
