"""Finds the messages for a pull: at once, after a read of the disk, or when a message comes or its time is over.

The outcome goes to the request's `reply_to`, which renders the answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ...errors import RefusedRequest
from ...protocol.codes import ResponseCode
from ...remoting.event_loop import EventLoop
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ConsumeQueue
from ...store.results import GetResult, GetStatus
from ..long_polling import BUCKET_MS, LONGEST_HOLD_MS, LongPolling
from ..offsets import ConsumerOffsetManager
from .cold_pulls import ColdPulls, overloaded
from .request import Allowance, Metered, PullRequest

#: Held pulls of a group are only looked for in queues with at most this many held pulls.
_MOST_ANSWERED = 200
#: A tick judges records for held pulls until it has judged this many or has judged for this long. For the other pulls
#: the pool looks.
_JUDGED_A_TICK = 64
_JUDGING_S = 0.0005
#: Status of a held pull that none of the new messages is for.
_NOTHING_THERE = ""
#: Most reads of the pool for a pull whose queue is another one each time the entries come back.
_COLD_TRIES = 3


class PullPath:
    """Owned by remoting-io. flush_answers: sends what was answered in this tick so far."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsetManager,
        loop: EventLoop,
        cold: ColdPulls,
        filtering: ColdPulls,
        flush_answers: Callable[[], None],
    ) -> None:
        """filtering, cold: read what is not at hand, for filters that look at records and for all others."""
        # Constant after construction.
        self._store = store
        self._loop = loop
        self._offsets = offsets
        self._cold = cold
        self._filtering = filtering
        self._pulled = offsets.pulled.note
        #: Answers a woken pull that finds messages, in the compiled twin; set before the loop runs.
        self.answer_woken: Callable[[PullRequest], bool] | None = None
        #: Returns the refusal of a held pull that may no longer be served; set before the loop runs.
        self.refusal_of: Callable[[PullRequest], RefusedRequest | None] = lambda request: None
        self.long_polling = LongPolling(loop, self._resume, flush_answers, self._finds_something)
        # Owned by remoting-io: held pulls for which the pool looks at records, and whether more came meanwhile.
        self._looked_at: dict[PullRequest, bool] = {}
        # (topic, group) -> monotonic time of the last change of its filter; of the last two minutes, in this order.
        self._changed: dict[tuple[str, str], float] = {}
        # The present tick, how many records had been judged before it, and how long it has judged for held pulls.
        self._tick = self._judged_before = self._judging_s = 0.0

    def pull(self, request: PullRequest, hold_ms: int = 0) -> None:
        """Answer a pull, hold it for at most `hold_ms`, or have the disk read for it."""
        store = self._store
        queue = store.find_queue(request.topic.topic_name, request.queue_id)
        result = store.get(queue, request.offset, request.max_count, request.wanted)
        if result is None:
            self._read(request, queue)
            return
        self._pulled(request.group.group_name, queue, result.next_offset)
        code = ResponseCode.SUCCESS if result.runs else _code_of(result.status, request.offset)
        if hold_ms > 0 and code == ResponseCode.PULL_NOT_FOUND:
            self._hold(request, queue, hold_ms)
        else:
            request.reply_to.found(request, code, result)

    def _hold(self, request: PullRequest, queue: ConsumeQueue | None, hold_ms: int) -> None:
        request.queue = queue or self._store.queues.get_or_create(request.topic.topic_name, request.queue_id)
        if not self.long_polling.hold(request, hold_ms):
            # After "not found" a client would ask again at once.
            remark = "[HELD]too many pulls of this client, or of all, are being held"
            request.reply_to.refused(request, RefusedRequest(ResponseCode.SYSTEM_BUSY, remark))

    def _resume(self, request: PullRequest) -> None:
        """Answer a held pull that was woken or is out of time, with what there is now."""
        conn = request.conn
        if conn.closed:
            return
        if conn.full:  # earlier answers go first
            conn.when_room(lambda: self._resume(request))
            return
        if (refusal := self.refusal_of(request)) is not None:
            request.reply_to.refused(request, refusal)
            return
        if self._offsets.resets and self.answer_reset(request):
            return
        if isinstance(request.reply_to, Metered):
            if request.queue is not request.reply_to.allowance:
                request.reply_to.parks = False
            self._go_on(request, request.reply_to)
            return
        if request.plan is None or self.answer_woken is None or not self.answer_woken(request):
            self.pull(request)

    # --- of users with quotas

    def pull_metered(self, request: PullRequest, hold_ms: int) -> None:
        """Serve a pull whose outcome goes to a `Metered` as `pull` does, or hold it while its user is over a quota."""
        reply = request.reply_to
        assert isinstance(reply, Metered)
        reply.since = self._loop.monotonic
        reply.until = reply.since + min(hold_ms, LONGEST_HOLD_MS) / 1000
        reply.is_admitted = reply.allowance.admits_pull()
        self._go_on(request, reply)

    def _go_on(self, request: PullRequest, reply: Metered) -> None:
        """Serve a pull of a user with quotas, have it wait on, or answer that there is nothing for it now.

        It is not answered that there is no message: clients take that for the end of the queue. Nor is one that was
        held served by a filter that its group no longer has: it would step over messages for the new one.
        """
        left_ms = int((reply.until - self._loop.monotonic) * 1000)
        left_ms = left_ms if left_ms >= BUCKET_MS else 0
        changed_at = self._changed.get((request.topic.topic_name, request.group.group_name), -math.inf)
        if changed_at < reply.since or request.queue is None:
            if reply.is_admitted and reply.allowance.may_read():
                self.pull(request, left_ms if reply.parks else 0)
                return
            request.queue = reply.allowance
            if left_ms and self.long_polling.hold(request, left_ms):
                reply.allowance.over(self)
                return
            reply.allowance.over(None)
        low, high = self._store.offset_range(request.topic.topic_name, request.queue_id)
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, request.offset, low, high, [], 0, 0)
        reply.found(request, ResponseCode.PULL_RETRY_IMMEDIATELY, result)

    def first_held(self, place: Allowance) -> PullRequest | None:
        """Return the pull that has been held for longest at a quota."""
        return self.long_polling.first_at(place)

    def is_admitted(self, request: PullRequest) -> bool:
        """True if the quota has counted this pull."""
        return isinstance(request.reply_to, Metered) and request.reply_to.is_admitted

    def let_go(self, request: PullRequest) -> None:
        """Serve a pull that its quota has held and counted."""
        if isinstance(request.reply_to, Metered):
            request.reply_to.is_admitted = True
        self.long_polling.wake(request)

    @property
    def judged_now(self) -> int:
        """Records judged on remoting-io."""
        return self._store.settling.scanned

    def _finds_something(self, request: PullRequest, queue: ConsumeQueue) -> bool:
        """True if one of the new messages is for a held pull whose filter looks at records. Moves the pull's offset
        behind those that are not. False also while the pool looks at them: it wakes the pull."""
        if request in self._looked_at:
            self._looked_at[request] = True
            return False
        if self._loop.monotonic != self._tick:
            self._tick, self._judged_before, self._judging_s = self._loop.monotonic, self.judged_now, 0.0
        if self.judged_now - self._judged_before < _JUDGED_A_TICK and self._judging_s < _JUDGING_S:
            begun = time.monotonic()
            result = self._store.get(queue, request.offset, request.max_count, request.wanted)
            self._judging_s += time.monotonic() - begun
            if result is not None:
                return self._moved_on(request, result) != _NOTHING_THERE
        self._looked_at[request] = False
        if not self._filtering.look_ahead(request, queue, lambda entries: self._looked(request, queue, entries)):
            del self._looked_at[request]
            return True  # woken, the pull is refused because there is no room
        return False

    def _moved_on(self, request: PullRequest, result: GetResult) -> str:
        """If no message matched, move the pull's offset on and return _NOTHING_THERE; otherwise return the status."""
        if result.status != GetStatus.NO_MATCHED_MESSAGE:
            return result.status
        request.offset = result.next_offset
        return _NOTHING_THERE

    def _looked(self, request: PullRequest, queue: ConsumeQueue, entries: bytes | None) -> None:
        """Take over what the pool has read for a held pull, and wake the pull if a message is for it."""
        more_came = self._looked_at.pop(request)
        if not request.bucket or entries is None:
            return  # answered meanwhile; or its entries cannot be read, and it waits on
        result = self._store.get(queue, request.offset, request.max_count, request.wanted, entries)
        assert result is not None, "what was read is an answer"
        if result.status == GetStatus.OFFSET_OVERFLOW_ONE and not more_came:
            return  # the queue's files are being rebuilt; when they are, the pull is woken
        found = self._moved_on(request, result) != _NOTHING_THERE
        if found or (request.offset < queue.max_offset and self._finds_something(request, queue)):
            self.long_polling.wake(request)

    def answer_held(self, topic: str, group: str) -> None:
        """Answer a group's held pulls of a topic with what there is now, except in queues with very many held pulls.
        Those over a quota are answered when they are let go."""
        now, changed = self._loop.monotonic, self._changed
        changed.pop((topic, group), None)
        changed[(topic, group)] = now
        while now - next(iter(changed.values())) > LONGEST_HOLD_MS / 1000:  # no pull is held for longer
            del changed[next(iter(changed))]
        for queue in self._store.queues.of_topic(topic):
            if self.long_polling.count_at(queue) <= _MOST_ANSWERED:
                self.long_polling.release(queue, group)

    def answer_reset(self, request: PullRequest) -> bool:
        """Answer with the offset that an administrator moved the group to, if any; False if there is none."""
        topic, queue_id = request.topic.topic_name, request.queue_id
        offset = self._offsets.pending.answer((request.group.group_name, topic, queue_id), request.offset)
        if offset is None:
            return False
        low, high = self._store.offset_range(topic, queue_id)
        result = GetResult(GetStatus.OFFSET_RESET, offset, low, high, [], 0, 0)
        request.reply_to.found(request, _code_of(result.status, offset), result)
        return True

    def _read(self, request: PullRequest, queue: ConsumeQueue | None, tries: int = _COLD_TRIES) -> None:
        """Have the pool read the queue's entries, and answer from what it read: one round, whatever is cached."""
        assert queue is not None, "there is nothing to wait for where there is no queue"

        def look(entries: bytes) -> None:
            if request.conn.closed:
                return
            store = self._store
            now = store.find_queue(queue.topic, queue.queue_id)
            if now is queue:
                result = store.get(queue, request.offset, request.max_count, request.wanted, entries)
            else:  # deleted, and perhaps made again, meanwhile
                result = store.get(now, request.offset, request.max_count, request.wanted)
            if result is not None:
                self._pulled(request.group.group_name, now, result.next_offset)
                request.reply_to.found(request, _code_of(result.status, request.offset), result)
            elif tries > 1:
                self._read(request, now, tries - 1)
            else:
                request.reply_to.refused(request, overloaded())

        cold = self._filtering if request.wanted.reads_records else self._cold
        cold.read_entries(request, queue, look)


def _code_of(status: str, offset: int) -> int:
    """Return the response code of a read. Source: 5.3.3 `PullMessageProcessor.composeResponseHeader`."""
    if status == GetStatus.FOUND:
        return ResponseCode.SUCCESS
    if status in (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING):
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    if status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    if status in (GetStatus.OFFSET_FOUND_NULL, GetStatus.OFFSET_OVERFLOW_ONE):
        return ResponseCode.PULL_NOT_FOUND
    return ResponseCode.PULL_OFFSET_MOVED
