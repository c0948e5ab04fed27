"""What a pull finds: at once, after a read of the disk, or when a message comes or its time is over.

The outcome goes to the request's `reply_to`. Nothing here knows how an answer looks.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import RefusedRequest
from ...protocol.codes import ResponseCode
from ...remoting.event_loop import EventLoop
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ConsumeQueue
from ...store.results import GetResult, GetStatus
from ..long_polling import LongPolling
from ..offsets import ConsumerOffsetManager
from .cold_pulls import ColdPulls, overloaded
from .request import PullRequest

#: How often a pull is read for in the pool when its queue is another one each time the entries come back.
_COLD_TRIES = 3


class PullPath:
    """Owned by remoting-io. flush_answers: sends what was answered in this tick so far."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsetManager,
        loop: EventLoop,
        cold: ColdPulls,
        flush_answers: Callable[[], None],
    ) -> None:
        # Constant after construction.
        self._store = store
        self._offsets = offsets
        self._cold = cold
        self._pulled = offsets.pulled.note
        #: The compiled twin's, for those that find messages; set before the loop runs.
        self.answer_woken: Callable[[PullRequest], bool] | None = None
        self.long_polling = LongPolling(loop, self._resume, flush_answers)

    def pull(self, request: PullRequest, hold_ms: int = 0) -> None:
        """Answer it, hold it for at most `hold_ms`, or have the disk read for it."""
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
            # Told that nothing was found a client would ask again at once.
            remark = "[HELD]too many pulls of this client, or of all, are being held"
            request.reply_to.refused(request, RefusedRequest(ResponseCode.SYSTEM_BUSY, remark))

    def _resume(self, request: PullRequest) -> None:
        """A held pull was woken or is out of time: answer with what there is now."""
        conn = request.conn
        if conn.closed:
            return
        if conn.full:  # what it asked for before comes first
            conn.when_room(lambda: self._resume(request))
            return
        if self._offsets.resets and self.answer_reset(request):
            return
        if request.plan is None or self.answer_woken is None or not self.answer_woken(request):
            self.pull(request)

    def answer_reset(self, request: PullRequest) -> bool:
        """An administrator moved the group's offset: say where to, instead of what was asked for; False otherwise."""
        topic, queue_id = request.topic.topic_name, request.queue_id
        offset = self._offsets.resets.pop((request.group.group_name, topic, queue_id), None)
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

        self._cold.read_entries(request, queue, look)


def _code_of(status: str, offset: int) -> int:
    """The response code of a read. Source: 5.3.3 `PullMessageProcessor.composeResponseHeader`."""
    if status == GetStatus.FOUND:
        return ResponseCode.SUCCESS
    if status in (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING):
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    if status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    if status in (GetStatus.OFFSET_FOUND_NULL, GetStatus.OFFSET_OVERFLOW_ONE):
        return ResponseCode.PULL_NOT_FOUND
    return ResponseCode.PULL_OFFSET_MOVED
