"""Parked pulls: who waits for messages of which queue, what wakes them, when they give up.

A pull waits at its queue and in a bucket of its deadline. Publication of a tick wakes the pulls of the queues it
touched whose tags match; the end of a bucket wakes the rest of it. A woken pull is answered with whatever it finds and
never parks again. Differs from RocketMQ's PullRequestHoldService: no 5 s scan, so no pull is held longer than it asked
for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice

from ..filter.message_filter import MessageFilter
from ..remoting.connection import Connection, HeldRequest
from ..remoting.event_loop import EventLoop, Timer
from ..store.queues.consume_queue import ConsumeQueue, unpack_entries

#: Deadlines are kept in steps of this size, rounded down: early, never late.
BUCKET_MS = 100
#: However long a pull says it would wait. Clients of Apache's ask for 15 to 30 s; a client that says nothing for longer
#: than this counts as gone (channelExpiredTimeout).
LONGEST_HOLD_MS = 120_000
#: Pulls held for one connection. A client holds one a queue: ten times what 2,000 queues take.
MOST_OF_A_CONNECTION = 20_000
#: Pulls held in all. One takes some 250 bytes: 50 MB.
MOST_IN_ALL = 200_000
#: Pulls that one tick looks at in any case, some 10 us each where they are answered.
_FEW = 100
#: What a tick gives to more of them, and after how many it looks at the clock.
_SLICE_S, _STEP = 0.001, 20


class ParkedPull(HeldRequest):
    """One pull that waits. offset: nothing below it is wanted.

    Ten thousand of them are common: no header, no dictionary, no text of its own.
    """

    __slots__ = ("bucket", "group", "max_count", "offset", "opaque", "queue", "wanted")

    def __init__(
        self,
        conn: Connection,
        opaque: int,
        group: str,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        wanted: MessageFilter,
        bucket: int,
    ) -> None:
        self.conn = conn
        self.opaque = opaque
        self.group = group
        self.queue = queue
        self.offset = offset
        self.max_count = max_count
        self.wanted = wanted
        self.bucket = bucket
        self.previous = None
        self.following = None


class LongPolling:
    """Owned by remoting-io. `resume(parked)` answers a woken pull."""

    def __init__(self, loop: EventLoop, resume: Callable[[ParkedPull], None]) -> None:
        self._loop = loop
        self._resume = resume
        self._buckets: dict[int, dict[ParkedPull, None]] = {}
        self._timer: Timer | None = None
        self._timer_bucket = 0
        self.count = 0
        # Queues with more pulls than a tick looks at -> those still to be looked at, in the order of `waiters`.
        self._rounds: dict[ConsumeQueue, Iterator[ParkedPull]] = {}
        # Those of them that were published to since their round began.
        self._again: set[ConsumeQueue] = set()

    def hold(
        self,
        conn: Connection,
        opaque: int,
        group: str,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        wanted: MessageFilter,
        timeout_ms: int,
    ) -> bool:
        """Park a pull for at most `timeout_ms`; False when there is no room. group: the table's own text, so that it is
        kept once."""
        if conn.parked_count >= MOST_OF_A_CONNECTION or self.count >= MOST_IN_ALL:
            return False
        now = int(self._loop.monotonic * 1000)
        bucket = max(now + min(timeout_ms, LONGEST_HOLD_MS), now + BUCKET_MS) // BUCKET_MS
        parked = ParkedPull(conn, opaque, group, queue, offset, max_count, wanted, bucket)
        if queue.waiters is None:
            queue.waiters = {}
        queue.waiters[parked] = None
        self._buckets.setdefault(bucket, {})[parked] = None
        head = conn.parked
        if head is not None:
            parked.following = head
            head.previous = parked
        conn.parked = parked
        conn.parked_count += 1
        self.count += 1
        if self._timer is None or bucket < self._timer_bucket:
            self._arm(bucket)
        return True

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
        conn, previous, following = parked.conn, parked.previous, parked.following
        if previous is not None:
            previous.following = following
        elif conn.parked is parked:
            conn.parked = following
        if following is not None:
            following.previous = previous
        parked.previous = parked.following = None
        conn.parked_count -= 1
        self.count -= 1

    def notify(self, touched: dict[ConsumeQueue, int]) -> None:
        """A tick was published: wake the pulls of its queues that would find something."""
        room = _FEW
        for queue in touched:
            waiters = queue.waiters
            if waiters is None:
                continue
            if len(waiters) > room or queue in self._rounds:
                self._begin_round(queue)
                continue
            room -= len(waiters)
            for parked in list(waiters):
                self._look_at(parked, queue)

    def _look_at(self, parked: ParkedPull, queue: ConsumeQueue) -> None:
        if parked.offset < queue.max_offset and self._matches(parked, queue):
            self._wake(parked)

    def _begin_round(self, queue: ConsumeQueue) -> None:
        """Look at a queue's pulls a slice a tick: strangers can have as many there as they like."""
        if queue in self._rounds:
            self._again.add(queue)
            return
        if not self._rounds:
            self._loop.call_soon(self._continue)
        self._rounds[queue] = iter(list(queue.waiters or ()))

    def _continue(self) -> None:
        """The next slice of the rounds that have begun."""
        ends = time.monotonic() + _SLICE_S
        while self._rounds:
            queue, waiting = next(iter(self._rounds.items()))
            some = list(islice(waiting, _STEP))
            for parked in some:
                if queue.waiters is not None and parked in queue.waiters:
                    self._look_at(parked, queue)
            if not some:
                del self._rounds[queue]
                if queue in self._again:  # behind the other queues
                    self._again.discard(queue)
                    if queue.waiters is not None:
                        self._rounds[queue] = iter(list(queue.waiters))
            if time.monotonic() >= ends:
                break
        if self._rounds:
            self._loop.call_soon(self._continue)

    def _wake(self, parked: ParkedPull) -> None:
        """Answer a pull now. An error of ours costs its connection and no other's pulls."""
        self._remove(parked)
        try:
            self._resume(parked)
        except Exception:
            parked.conn.fail()

    @staticmethod
    def _matches(parked: ParkedPull, queue: ConsumeQueue) -> bool:
        """Whether an entry the pull has not seen carries one of its tags; moves its offset behind those that do not."""
        codes = parked.wanted.codes
        if codes is None or parked.offset < queue.tail_base:
            return True
        entries = queue.tail_entries(parked.offset, queue.max_offset - parked.offset)
        if any(code in codes for _, _, code in unpack_entries(entries)):
            return True
        parked.offset = queue.max_offset
        return False

    def _expire(self) -> None:
        """Answer the pulls whose time is over, a slice a tick."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = int(self._loop.monotonic * 1000) // BUCKET_MS
        ends = time.monotonic() + _SLICE_S
        for bucket in [bucket for bucket in self._buckets if bucket <= due]:
            while waiting := self._buckets.get(bucket):
                if time.monotonic() >= ends:
                    self._loop.call_soon(self._expire)
                    return
                for parked in list(islice(waiting, _STEP)):
                    self._wake(parked)
        if self._buckets and self._timer is None:
            self._arm(min(self._buckets))

    def release(self, queue: ConsumeQueue, group: str) -> None:
        """Answer a group's parked pulls of a queue now."""
        for parked in list(queue.waiters or ()):
            if parked.group == group:
                self._wake(parked)

    def forget(self, conn: Connection) -> None:
        """A connection closed: drop its pulls."""
        while (parked := conn.parked) is not None:
            assert isinstance(parked, ParkedPull)
            self._remove(parked)

    def release_all(self) -> None:
        """Answer every parked pull now (shutdown: a 4.9 client would not notice an orderly close)."""
        for bucket in list(self._buckets.values()):
            for parked in list(bucket):
                self._wake(parked)
