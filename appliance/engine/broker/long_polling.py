"""Parked pulls: which pulls wait at which queue, what wakes them, and when their time is over.

A pull waits at its queue and in a bucket of its deadline. Publication of a tick wakes the pulls of the queues it
touched whose tags match; the end of a bucket wakes the rest of it. A woken pull is answered with whatever it finds and
never parks again. A pull of a user over a quota waits at that instead of its queue, and goes on when it is let go.
Differs from RocketMQ's PullRequestHoldService: no 5 s scan, so no pull is held longer than it asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from ..remoting.connection import Connection
from ..remoting.event_loop import EventLoop, Timer
from ..shares import Shares
from ..store.queues.consume_queue import ConsumeQueue, unpack_entries
from .pulling.request import Allowance, PullRequest

#: Deadlines are kept in steps of this size, rounded down: early, never late.
BUCKET_MS = 100
#: The limit of the time that a pull asks to wait. Apache's clients ask for 15 to 30 s; a client that is silent for
#: longer than this counts as gone (channelExpiredTimeout).
LONGEST_HOLD_MS = 120_000
#: Pulls held for one connection. A client has one for each queue: ten times those of 2,000 queues.
MOST_OF_A_CONNECTION = 20_000
#: Pulls held in all, shared by connection and address (`Shares`). One takes some 250 bytes: 50 MB.
MOST_IN_ALL = 200_000
#: Pulls that each connection may have held in any case: those of most consumers. Pulls beyond them are counted in steps
#: of this size, since counting each would cost as much as a tenth of its answer.
FEW_OF_A_CONNECTION = 64
#: If a tick may wake more pulls than this, the answers to senders are flushed before the pulls', not after.
_MANY = 32
#: Pulls that one tick looks at in any case, some 10 us each if they are answered.
_FEW = 100
#: Time that a tick gives to further pulls, and the number of pulls between two looks at the clock.
_SLICE_S, _STEP = 0.001, 20


class LongPolling:
    """Owned by remoting-io. `resume(request)` answers a woken pull; `flush_answers` sends what was answered so far.

    A held pull is in three places, and in all or in none of them: with those of its queue, with those of its deadline,
    and in the list of its connection, which is linked through the pulls themselves.
    """

    def __init__(
        self,
        loop: EventLoop,
        resume: Callable[[PullRequest], None],
        flush_answers: Callable[[], None],
        finds_something: Callable[[PullRequest, ConsumeQueue], bool],
    ) -> None:
        """finds_something: returns True if a pull whose filter looks at records is to be woken, now that some came. It
        moves the pull's offset on, and may call `wake` later instead."""
        self._loop = loop
        self._finds_something = finds_something
        self._resume = resume
        self._flush_answers = flush_answers
        #: Looks at a queue's pulls in the compiled twin: takes both, then `_look_at`, `_remove` and `_resume`, for what
        #: it leaves to Python. Set before the loop runs.
        self.wake_usual: Callable[..., None] | None = None
        # A place -> the pulls that wait there; for one that waits alone, as at most queues, itself: a dictionary of one
        # entry takes more than the pull.
        self._waiting: dict[ConsumeQueue | Allowance, PullRequest | dict[PullRequest, None]] = {}
        self._buckets: dict[int, dict[PullRequest, None]] = {}
        self._timer: Timer | None = None
        self._timer_bucket = self._newest_bucket = 0
        self.count = 0
        self._shares = Shares()  # of those beyond a connection's few
        self._ended = False
        # Queues with more pulls than a tick looks at -> those still to be looked at, in the order they came.
        self._rounds: dict[ConsumeQueue, Iterator[PullRequest]] = {}
        # Queues of `_rounds` with messages that were published since their round began.
        self._again: set[ConsumeQueue] = set()

    def hold(self, request: PullRequest, hold_ms: int) -> bool:
        """Hold a pull at its `queue` for at most `hold_ms`; False if there is no room."""
        conn, queue = request.conn, request.queue
        assert queue is not None
        assert not request.bucket, "it is held already"
        held = conn.parked_count
        if held >= MOST_OF_A_CONNECTION or self._ended:
            return False
        few = FEW_OF_A_CONNECTION
        if held >= few and not held % few and not self._shares.take(conn.born_host, MOST_IN_ALL, few):
            return False
        now = int(self._loop.monotonic * 1000)
        bucket = max(now + min(hold_ms, LONGEST_HOLD_MS), now + BUCKET_MS) // BUCKET_MS
        if bucket == self._newest_bucket:
            bucket = self._newest_bucket  # one object for all pulls that came together
        self._newest_bucket = request.bucket = bucket
        waiting = self._waiting.setdefault(queue, request)
        if isinstance(waiting, dict):
            waiting[request] = None
        elif waiting is not request:
            self._waiting[queue] = {waiting: None, request: None}
        self._buckets.setdefault(bucket, {})[request] = None
        head = conn.parked
        if head is not None:
            request.following = head
            head.previous = request
        conn.parked = request
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

    def _remove(self, request: PullRequest) -> None:
        """Take a held pull out of its three places."""
        queue = request.queue
        assert queue is not None
        waiting = self._waiting[queue]
        if isinstance(waiting, dict):
            del waiting[request]
        if waiting is request or not waiting:
            del self._waiting[queue]
        bucket = self._buckets[request.bucket]
        del bucket[request]
        if not bucket:
            del self._buckets[request.bucket]
        request.bucket = 0
        conn, previous, following = request.conn, request.previous, request.following
        if previous is not None:
            previous.following = following
        else:
            conn.parked = following
        if following is not None:
            following.previous = previous
        request.previous = request.following = None
        conn.parked_count = held = conn.parked_count - 1
        self.count -= 1
        few = FEW_OF_A_CONNECTION
        if held >= few and not held % few:
            self._shares.give(conn.born_host, few)

    def held_at(self, queue: ConsumeQueue) -> list[PullRequest]:
        """Return a queue's held pulls, in the order they came."""
        waiting = self._waiting.get(queue, ())
        return list(waiting) if isinstance(waiting, (dict, tuple)) else [waiting]

    def first_at(self, place: Allowance) -> PullRequest | None:
        """Return the pull that has been held for longest at a quota."""
        waiting = self._waiting.get(place)
        return next(iter(waiting)) if isinstance(waiting, dict) else waiting

    def count_at(self, queue: ConsumeQueue) -> int:
        """Return the number of pulls held at a queue."""
        waiting = self._waiting.get(queue, ())
        return len(waiting) if isinstance(waiting, (dict, tuple)) else 1

    def notify(self, touched: Iterable[ConsumeQueue]) -> None:
        """Wake the pulls of a published tick's queues that would find something."""
        if not self.count:
            return
        held = [(queue, self.count_at(queue)) for queue in touched if queue in self._waiting]
        if sum(count for _, count in held) > _MANY:
            self._flush_answers()
        room = _FEW
        for queue, count in held:
            if count > room or queue in self._rounds:
                self._begin_round(queue)
                continue
            room -= count
            self._look_at_all(self.held_at(queue), queue)

    def _look_at_all(self, some: list[PullRequest], queue: ConsumeQueue) -> None:
        if self.wake_usual is not None:
            self.wake_usual(queue, some, self._look_at, self._remove, self._resume)
            return
        for request in some:
            self._look_at(request, queue)

    def _look_at(self, request: PullRequest, queue: ConsumeQueue) -> None:
        if request.bucket and request.offset < queue.max_offset and self._matches(request, queue):
            self._wake(request)

    def _begin_round(self, queue: ConsumeQueue) -> None:
        """Look at a queue's pulls a slice a tick: any client can have as many there as it likes."""
        if queue in self._rounds:
            self._again.add(queue)
            return
        if not self._rounds:
            self._loop.call_soon(self._continue)
        self._rounds[queue] = iter(self.held_at(queue))

    def _continue(self) -> None:
        """Look at the next slice of the rounds that have begun."""
        ends = time.monotonic() + _SLICE_S
        while self._rounds:
            queue, waiting = next(iter(self._rounds.items()))
            some = list(islice(waiting, _STEP))
            self._look_at_all(some, queue)
            if not some:
                del self._rounds[queue]
                if queue in self._again:  # behind the other queues
                    self._again.discard(queue)
                    if queue in self._waiting:
                        self._rounds[queue] = iter(self.held_at(queue))
            if time.monotonic() >= ends:
                break
        if self._rounds:
            self._loop.call_soon(self._continue)

    def _wake(self, request: PullRequest) -> None:
        """Answer a pull now, unless it is no longer held: the answer to one before it may have closed their connection.

        An exception closes the pull's connection, and leaves those of others alone.
        """
        if not request.bucket:
            return
        self._remove(request)
        try:
            self._resume(request)
        except Exception:
            request.conn.fail()

    def wake(self, request: PullRequest) -> None:
        """Answer a held pull now, because something was found for it."""
        self._wake(request)

    def _matches(self, request: PullRequest, queue: ConsumeQueue) -> bool:
        """True if an entry that the pull has not seen may carry one of its tags; if none does, move its offset behind
        these entries."""
        if request.wanted.reads_records:
            return self._finds_something(request, queue)
        codes = request.wanted.codes
        if codes is None or request.offset < queue.tail_base:
            return True
        entries = queue.tail_entries(request.offset, queue.max_offset - request.offset)
        if any(code in codes for _, _, code in unpack_entries(entries)):
            return True
        request.offset = queue.max_offset
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
                for request in list(islice(waiting, _STEP)):
                    self._wake(request)
        if self._buckets and self._timer is None:
            self._arm(min(self._buckets))

    def release(self, queue: ConsumeQueue, group: str) -> None:
        """Answer a group's parked pulls of a queue now."""
        for request in self.held_at(queue):
            if request.group.group_name == group:
                self._wake(request)

    def forget(self, conn: Connection) -> None:
        """Drop the pulls of a closed connection."""
        while (request := conn.parked) is not None:
            self._remove(request)

    def end(self) -> None:
        """Answer every held pull, and hold no other one: another broker takes over here."""
        self.release_all()
        assert not self._waiting, "a held pull is in all of its three places, or in none"
        assert not self._buckets, "a held pull is in all of its three places, or in none"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def release_all(self) -> None:
        """Answer every parked pull now, and hold no other one (shutdown: a 4.9 client would not notice an orderly
        close)."""
        self._ended = True
        for bucket in list(self._buckets.values()):
            for request in list(bucket):
                self._wake(request)
