"""Parked pulls: who waits for messages of which queue, what wakes them, when they give up.

A pull waits at its queue and in a bucket of its deadline. Publication of a tick wakes the pulls of the queues it
touched whose tags match; the end of a bucket wakes the rest of it. A woken pull is answered with whatever it finds and
never parks again. Differs from RocketMQ's PullRequestHoldService: no 5 s scan, so no pull is held longer than it asked
for.
"""

from __future__ import annotations

from collections.abc import Callable

from ..remoting.connection import Connection
from ..remoting.event_loop import EventLoop, Timer
from ..store.consume_queue import ConsumeQueue, unpack_entries

#: Deadlines are kept in steps of this size, rounded down: early, never late.
BUCKET_MS = 100


class ParkedPull:
    """One pull that waits. codes: tag codes it wants, None for all. offset: nothing below it is wanted.

    Ten thousand of them are common: no header, no dictionary, no text of its own. Those of one connection are a list
    linked through `previous` and `following`, whose head the connection holds.
    """

    __slots__ = ("bucket", "codes", "conn", "following", "group", "max_count", "offset", "opaque", "previous", "queue")

    def __init__(
        self,
        conn: Connection,
        opaque: int,
        group: str,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        codes: frozenset[int] | None,
        bucket: int,
    ) -> None:
        self.conn = conn
        self.opaque = opaque
        self.group = group
        self.queue = queue
        self.offset = offset
        self.max_count = max_count
        self.codes = codes
        self.bucket = bucket
        self.previous: ParkedPull | None = None
        self.following: ParkedPull | None = None


class LongPolling:
    """Owned by remoting-io. `resume(parked)` answers a woken pull."""

    def __init__(self, loop: EventLoop, resume: Callable[[ParkedPull], None]) -> None:
        self._loop = loop
        self._resume = resume
        self._buckets: dict[int, dict[ParkedPull, None]] = {}
        self._timer: Timer | None = None
        self._timer_bucket = 0
        self.count = 0

    def hold(
        self,
        conn: Connection,
        opaque: int,
        group: str,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        codes: frozenset[int] | None,
        timeout_ms: int,
    ) -> None:
        """Park a pull for at most `timeout_ms`. group: the table's own text, so that it is kept once."""
        now = int(self._loop.monotonic * 1000)
        bucket = max(now + timeout_ms, now + BUCKET_MS) // BUCKET_MS
        parked = ParkedPull(conn, opaque, group, queue, offset, max_count, codes, bucket)
        if queue.waiters is None:
            queue.waiters = {}
        queue.waiters[parked] = None
        self._buckets.setdefault(bucket, {})[parked] = None
        head = conn.parked
        if head is not None:
            parked.following = head
            head.previous = parked
        conn.parked = parked
        self.count += 1
        if self._timer is None or bucket < self._timer_bucket:
            self._arm(bucket)

    def _arm(self, bucket: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_bucket = bucket
        self._timer = self._loop.call_later(max(0.0, bucket * BUCKET_MS / 1000 - self._loop.monotonic), self._expire)

    def _remove(self, parked: ParkedPull) -> None:
        """Take a pull out of its three places."""
        waiters = parked.queue.waiters
        if waiters is not None:
            waiters.pop(parked, None)
            if not waiters:
                parked.queue.waiters = None
        bucket = self._buckets.get(parked.bucket)
        if bucket is not None:
            bucket.pop(parked, None)
            if not bucket:
                del self._buckets[parked.bucket]
        previous, following = parked.previous, parked.following
        if previous is not None:
            previous.following = following
        elif parked.conn.parked is parked:
            parked.conn.parked = following
        if following is not None:
            following.previous = previous
        parked.previous = parked.following = None
        self.count -= 1

    def notify(self, touched: dict[ConsumeQueue, int]) -> None:
        """A tick was published: wake the pulls of its queues that would find something."""
        for queue in touched:
            if queue.waiters is None:
                continue
            for parked in list(queue.waiters):
                if parked.offset < queue.max_offset and self._matches(parked, queue):
                    self._remove(parked)
                    self._resume(parked)

    @staticmethod
    def _matches(parked: ParkedPull, queue: ConsumeQueue) -> bool:
        """Whether an entry the pull has not seen carries one of its tags; moves its offset behind those that do not."""
        codes = parked.codes
        if codes is None or parked.offset < queue.tail_base:
            return True
        entries = queue.tail_entries(parked.offset, queue.max_offset - parked.offset)
        if any(code in codes for _, _, code in unpack_entries(entries)):
            return True
        parked.offset = queue.max_offset
        return False

    def _expire(self) -> None:
        """Answer the pulls whose time is over."""
        self._timer = None
        due = int(self._loop.monotonic * 1000) // BUCKET_MS
        for bucket in [bucket for bucket in self._buckets if bucket <= due]:
            for parked in list(self._buckets.get(bucket, ())):
                self._remove(parked)
                self._resume(parked)
        if self._buckets and self._timer is None:
            self._arm(min(self._buckets))

    def release(self, queue: ConsumeQueue, group: str) -> None:
        """Answer a group's parked pulls of a queue now."""
        for parked in list(queue.waiters or ()):
            if parked.group == group:
                self._remove(parked)
                self._resume(parked)

    def forget(self, conn: Connection) -> None:
        """A connection closed: drop its pulls."""
        while (parked := conn.parked) is not None:
            self._remove(parked)

    def release_all(self) -> None:
        """Answer every parked pull now (shutdown: a 4.9 client would not notice an orderly close)."""
        for bucket in list(self._buckets.values()):
            for parked in list(bucket):
                self._remove(parked)
                self._resume(parked)
