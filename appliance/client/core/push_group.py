"""A push consumer: messages are handed to handlers, and the offset of the first one not done is committed. PURE.

    messages   fetched, waiting for a handler, in order
    running    handed to a handler, or on their way back to the broker

A queue with messages that wait has one ticket with `dispatch`; who takes it gets the next batch by `begin_batch`,
handles it, and starts `finish`. Batches of one queue run side by side; `OrderedGroup` has one at a time.

What became of a batch counts only while its messages are in `running`: after the queue was given up, or its offset was
set, the broker delivers them again, or no longer wants them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from ..allocation import Allocation, average
from ..errors import ClientError
from ..message import MessageQueue, ReceivedMessage
from ..wire import RETRY_PREFIX, RemotingCommand, ResponseCode
from . import requests
from .group import WAIT_S, Begin, Group, Held, Surroundings
from .handling import Outcome
from .inspection import queue_info
from .pulling import Pulled, pull_by
from .requests import Member, Subscription
from .send_back import send_back
from .steps import Do, Sleep, Start, Steps, Together

#: Offsets between the first message not done and the last one fetched: if one handler is stuck, not more come again.
_MOST_SPAN = 2000
#: Pause before a message that no broker took is sent back again.
_SEND_BACK_PAUSE_S = 1.0
#: Level for a message whose handler does not end, as Java has it.
_STUCK_LEVEL = 3
#: Shortest time between two comparisons with other members.
_COMPARE_PAUSE_S = 1.0
#: Own limit of messages that administrators have handled and that wait for a worker.
_MOST_DIRECTS = 100
#: Time for running handlers before a queue begins again elsewhere, as Java waits, and between two looks; attempts to
#: commit its new offset.
_RESET_WAIT_S = 10.0
_RESET_LOOK_S = 0.05
_RESET_ATTEMPTS = 10
#: Part of the handler's time-out after which it is looked at again, and the longest time between two looks.
_LOOKS, _HANDLER_LOOK_S = 10, 10.0
#: Time after which a handler that goes on is said, with its stack.
_SLOW_S = 60.0


class OffsetFile(Protocol):
    """Offsets of a broadcasting consumer, kept on this machine."""

    def read(self, queue: MessageQueue) -> int | None: ...
    def save(self, offsets: Mapping[MessageQueue, int]) -> str | None: ...


class PushHeld(Held):
    __slots__ = ("busy", "consumed_ms", "has_ticket", "locked_at", "messages", "rests_until", "running")

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(queue)
        self.messages: deque[ReceivedMessage] = deque()
        #: By offset; offsets grow from the first to the last.
        self.running: dict[int, Batch] = {}
        self.has_ticket = False
        #: Wall time when a handler last got a message.
        self.consumed_ms = 0
        # Of an ordered consumer: the batch that is handled, and monotonic times.
        self.busy: Batch | None = None
        self.locked_at = 0.0
        self.rests_until = 0.0

    @property
    def passed(self) -> int | None:
        """Behind the last message before which, and with which, all are done."""
        if self.running:
            return next(iter(self.running))
        return self.messages[0].queue_offset if self.messages else self.position


class Batch:
    """Messages of one topic that are handled together."""

    __slots__ = ("began", "has_ended", "held", "is_settled", "is_slow", "messages", "thread", "topic")

    def __init__(self, held: PushHeld, messages: list[ReceivedMessage], began: float) -> None:
        self.held = held
        self.topic = messages[0].full_topic
        self.messages = messages
        self.began = began
        #: True once it is known what becomes of it: its handler ended, or took too long.
        self.is_settled = False
        #: True once its handler has ended.
        self.has_ended = False
        #: True once it was said that its handler takes long.
        self.is_slow = False
        #: Number of the thread that handles it.
        self.thread: int | None = None

    def counts(self) -> bool:
        """True if it matters what becomes of it."""
        return any(self.held.running.get(message.queue_offset) is self for message in self.messages)


@dataclass(frozen=True, slots=True)
class Direct:
    """A message that an administrator has this member handle. reply: takes the answer, in any thread, without the
    lock."""

    message: ReceivedMessage
    reply: Callable[[RemotingCommand], None]


class Handling(NamedTuple):
    """Bounds of a push consumer. cache: number of messages fetched and not done, for each queue; cache_bytes: their
    bodies, of all queues. batch: most messages handled together. most_retries: deliveries after the first, before a
    message becomes a dead letter. timeout_s: after which a message is sent back though its handler goes on."""

    cache: int
    cache_bytes: int
    batch: int
    most_retries: int
    timeout_s: float


class PushGroup(Group[PushHeld]):
    """Guarded by the client's lock."""

    _most_span: float = _MOST_SPAN

    def __init__(
        self,
        group: str,
        client: Surroundings,
        *,
        begin: Begin,
        wake: Callable[[], None],
        handling: Handling,
        offsets: OffsetFile | None,
        dispatch: Callable[[PushHeld | Direct], None],
        allocation: Allocation = average,
    ) -> None:
        """offsets: of a broadcasting consumer, which has all queues for itself; None for one that shares. dispatch:
        takes a queue with messages that wait; called with the lock held, as wake is when the last handler has ended."""
        super().__init__(group, client, begin=begin, wake=wake, allocation=allocation)
        self._cache, self._cache_bytes, self._batch, self._most_retries, self._handler_timeout = handling
        self._offsets = offsets
        self._dispatch = dispatch
        #: Bytes of all messages that are fetched and not done.
        self._bytes = 0
        #: Batches whose `finish` has not ended.
        self.active = 0
        #: Number of messages that administrators had handed in, and whose handler has not ended.
        self.directs = 0
        #: Queues that begin again at other offsets, with these, and are not taken meanwhile.
        self._resetting: dict[PushHeld, int] = {}
        #: Versions of subscriptions in heartbeats, by topic, since its queues changed.
        self._versions: dict[str, int] = {}
        self.is_paused = False
        self.is_stopping = False
        #: Returns what a thread does, as text.
        self.stack_of: Callable[[int], str] = _no_stack

    def member(self) -> Member:
        begins = self._begin.upper() if isinstance(self._begin, str) else ""
        versions = self._versions
        return Member(
            self.group,
            tuple(replace(one, version=versions.get(one.topic, one.version)) for one in self.subscriptions.values()),
            is_push=True,
            broadcasts=self._offsets is not None,
            begins=f"CONSUME_FROM_{begins}_OFFSET" if begins else "CONSUME_FROM_TIMESTAMP",
        )

    # --- beginning

    def start(self) -> Steps[None]:
        """Join the group, as `Group.start`."""
        if self._offsets is None:
            topic = RETRY_PREFIX + self.group
            self.subscriptions[topic] = Subscription(topic, version=self._clock.wall_ms())
        yield from super().start()
        if self._offsets is None:
            yield Start(self._watch())

    def _members(self, queues: Sequence[MessageQueue], deadline: float) -> Steps[list[str]]:
        if self._offsets is not None:
            return [self._client_id]
        return (yield from super()._members(queues, deadline))

    def _have_changed(self, topic: str) -> Steps[None]:
        """Renew the subscription, as Java does: of what members say brokers keep the newest, and filter by that of one
        that has left, until another is newer."""
        if not self._balanced_at:  # heartbeats have just said it
            return
        yield from self.compare(_COMPARE_PAUSE_S)  # first: from then on the broker has this member's
        self._versions[topic] = self._clock.wall_ms()
        yield from self._beat_all()

    # --- fetching

    def _make(self, queue: MessageQueue) -> PushHeld:
        return PushHeld(queue)

    def _goes_on(self, held: PushHeld, epoch: int) -> bool:
        return super()._goes_on(held, epoch) and not self.is_stopping

    def _has_room(self, held: PushHeld) -> bool:
        if self.is_paused or self.is_stopping or self._bytes >= self._cache_bytes:
            return False
        passed = held.passed
        span = 0 if passed is None or held.position is None else held.position - passed
        return len(held.messages) + len(held.running) < self._cache and span <= self._most_span

    def _ask(self, held: PushHeld, offset: int) -> Steps[Pulled]:
        queue = held.queue
        subscription = self.subscriptions[queue.topic]

        def make(_address: str) -> RemotingCommand:
            return requests.push_pull(self.group, queue, offset, int(WAIT_S * 1000), subscription)

        tags = frozenset(subscription.tag_set())
        return (yield from pull_by(self._directory, self._clock, make, queue, offset, WAIT_S, tags))

    def _took(self, held: PushHeld, pulled: Pulled) -> None:
        if pulled.moved:  # the group's offset was set, or messages went: what is here no longer counts
            self._release(held)
        held.position = pulled.next_offset
        held.messages += pulled.messages
        self._bytes += _size(pulled.messages)
        self._offer(held)

    def _release(self, held: PushHeld) -> None:
        running = (one for batch in set(held.running.values()) for one in batch.messages)
        self._bytes -= _size(held.messages)
        self._bytes -= _size(one for one in running if one.queue_offset in held.running)
        held.messages.clear()
        held.running.clear()

    # --- handling

    def begin_batch(self, held: PushHeld) -> Batch | None:
        """Take the next messages of a queue that had a ticket, to handle them; None if there are none now."""
        held.has_ticket = False
        if held.dropped or self.is_stopping or not held.messages or not self._may_begin(held):
            return None
        waiting, found = held.messages, [held.messages.popleft()]
        while waiting and len(found) < self._batch and waiting[0].full_topic == found[0].full_topic:
            found.append(waiting.popleft())
        batch = Batch(held, found, self._clock.monotonic())
        for message in found:
            held.running[message.queue_offset] = batch
        held.consumed_ms = self._clock.wall_ms()
        self.active += 1
        self._begun(batch)
        return batch

    def _may_begin(self, held: PushHeld) -> bool:
        return True

    def _begun(self, batch: Batch) -> None:
        self._offer(batch.held)

    def _offer(self, held: PushHeld) -> None:
        """Give a queue a ticket, unless it has one: with several it would keep other queues from the workers."""
        if held.messages and not held.has_ticket:
            held.has_ticket = True
            self._dispatch(held)

    def has_done(self, batch: Batch) -> Steps[None] | None:
        """Do the same as `finish` for a batch whose handler returned, in little time; return what is left to do."""
        messages, began, held = batch.messages, batch.began, batch.held
        now, is_full = self._clock.monotonic(), self._bytes >= self._cache_bytes
        batch.has_ended = True
        self._rates_of(batch.topic).add_call(now, len(messages), 0, now - began)
        if not batch.is_settled:
            batch.is_settled = True
            self._done(batch, messages)
        self.active -= 1
        if self.is_stopping:
            if not self.active:
                self._wake()
        elif self._is_stalled:
            if is_full and self._bytes < self._cache_bytes:
                return self.resume_all()
            if not held.is_pulling and self._has_room(held):
                return self._resume(held)
        return None

    def finish(self, batch: Batch, outcome: Outcome | None) -> Steps[None]:
        """Take what became of a batch: send back what failed, then count it as done. outcome: None if its handler was
        cancelled."""
        batch.has_ended = True
        try:
            if outcome is not None:
                failed, now = len(outcome.failed), self._clock.monotonic()
                done = len(batch.messages) - failed
                self._rates_of(batch.topic).add_call(now, done, failed, now - batch.began)
            if outcome is None and not self.is_stopping:
                outcome = self._of_cancelled(batch)
            if outcome is not None and not batch.is_settled and batch.counts():
                batch.is_settled = True
                yield from self._settle(batch, outcome)
            yield from self._ended(batch)
            if self._is_stalled:
                yield from self.resume_all()
        finally:
            self.active -= 1
            if not self.active:
                self._wake()

    def _of_cancelled(self, batch: Batch) -> Outcome | None:
        """Return what becomes of a batch whose handler was cancelled; None: it is not done, as at the end."""
        return Outcome(batch.messages) if self._offsets is None else None

    def _settle(self, batch: Batch, outcome: Outcome) -> Steps[None]:
        if self._offsets is None:
            for message in outcome.failed:
                if not (yield from self._send_back(batch, message, outcome.level)):
                    return
        self._done(batch, batch.messages)

    def _ended(self, batch: Batch) -> Steps[None]:
        yield from ()

    def _send_back(self, batch: Batch, message: ReceivedMessage, level: int) -> Steps[bool]:
        """Send a message back, again and again until a broker takes it; False if it no longer matters."""
        while batch.counts():
            try:
                yield from self._send_back_once(message, level)
                return True
            except ClientError as error:
                if self.is_stopping:
                    return False
                self._note(f"{error} Group {self.group} sends the message back once more.")
                yield Sleep(self._clock.monotonic() + _SEND_BACK_PAUSE_S)
        return False

    def _send_back_once(self, message: ReceivedMessage, level: int) -> Steps[None]:
        return send_back(self._directory, self._clock, self.group, message, level, self._most_retries)

    def _done(self, batch: Batch, messages: Sequence[ReceivedMessage]) -> None:
        running = batch.held.running
        for message in messages:
            if running.get(message.queue_offset) is batch:
                del running[message.queue_offset]
                self._bytes -= len(message.record.body)

    def _watch(self) -> Steps[None]:
        """Send back messages whose handlers do not end."""
        while not self.is_closed:
            yield Sleep(self._clock.monotonic() + min(self._handler_timeout / _LOOKS, _HANDLER_LOOK_S))
            began = self._clock.monotonic() - self._handler_timeout
            batches = {batch for held in self.held.values() for batch in held.running.values()}
            self._say_which_are_slow(batches)
            for batch in batches:
                if batch.began <= began and not batch.is_settled and batch.held.busy is None:
                    batch.is_settled = True
                    self._note(
                        f"a handler of {batch.topic} does not end within {self._handler_timeout:g} s: group "
                        f"{self.group} gets {batch.messages[0]!r} again"
                    )
                    yield Start(self._give_back(batch))

    def _say_which_are_slow(self, batches: Iterable[Batch]) -> None:
        until = self._clock.monotonic() - _SLOW_S
        for batch in batches:
            if batch.began <= until and not batch.is_slow and not batch.has_ended:
                batch.is_slow = True
                stack = "" if batch.thread is None else self.stack_of(batch.thread)
                where = f". It is here:\n{stack.rstrip()}" if stack else ""
                self._note(
                    f"a handler of {batch.topic} has not ended after {_SLOW_S:g} s, group {self.group}, "
                    f"{batch.messages[0]!r}{where}"
                )

    def _give_back(self, batch: Batch) -> Steps[None]:
        yield from self._settle(batch, Outcome(batch.messages, _STUCK_LEVEL))
        if self._is_stalled:
            yield from self.resume_all()

    # --- what administrators want

    def info_of(self, held: PushHeld) -> dict[str, Any]:
        handled = (message for batch in dict.fromkeys(held.running.values()) for message in batch.messages)
        running = [message for message in handled if message.queue_offset in held.running]
        return self._info(held, [*running, *held.messages], ())

    def _info(
        self, held: PushHeld, cached: Sequence[ReceivedMessage], busy: Sequence[ReceivedMessage], **more: Any
    ) -> dict[str, Any]:
        times = {"lastPullTimestamp": held.pulled_ms, "lastConsumeTimestamp": held.consumed_ms}
        return queue_info(cached, busy, held.passed, **times, **more)

    def consume_directly(self, direct: Direct) -> RemotingCommand | None:
        """Have a message handled, without a trace in offsets; None, or the answer if that is not possible now."""
        if self.is_stopping or self.directs >= _MOST_DIRECTS:
            answer = requests.request(ResponseCode.SYSTEM_BUSY, None)
            answer.remark = f"group {self.group} is closing, or {self.directs} messages wait to be handled directly"
            return answer
        self.directs += 1
        self._dispatch(direct)
        return None

    def reset(self, topic: str, offsets: Mapping[MessageQueue, int]) -> Steps[None]:
        """Begin again at these offsets in the queues of the topic that this member has: wait for running handlers, for
        10 s at most, and commit the offsets in place of what they did. If the consumer leaves meanwhile, or other
        offsets come, these are committed then."""
        for held in self._resetting:
            if held.queue in offsets and held.queue.topic == topic:
                self._resetting[held] = offsets[held.queue]
        moved = [held for queue, held in self.held.items() if queue in offsets and queue.topic == topic]
        busy = {batch for held in moved for batch in held.running.values()}
        self._resetting |= {held: offsets[held.queue] for held in moved}
        try:
            for held in moved:
                held.dropped = True
                del self.held[held.queue]
                self._release(held)
            until = self._clock.monotonic() + _RESET_WAIT_S
            while any(not batch.has_ended for batch in busy) and self._clock.monotonic() < until:
                yield Sleep(self._clock.monotonic() + _RESET_LOOK_S)
            done: dict[PushHeld, int] = {}
            while not self.is_closed and (left := self._left_to_reset(moved, done)):
                yield Together([self._reset_one(held, offset) for held, offset in left.items()])
                done |= left
        finally:
            if not self.is_closed:  # else what comes before leaving needs them
                for held in moved:
                    del self._resetting[held]
        self._note(f"group {self.group} begins again in {len(moved)} queues of {topic}, as an administrator wants it")
        yield from self.rebalance()

    def _left_to_reset(self, moved: Iterable[PushHeld], done: Mapping[PushHeld, int]) -> dict[PushHeld, int]:
        return {held: self._resetting[held] for held in moved if done.get(held) != self._resetting[held]}

    def _reset_one(self, held: PushHeld, offset: int) -> Steps[None]:
        for left in reversed(range(_RESET_ATTEMPTS)):
            try:
                yield from self._commit_one(held, offset)
                return
            except ClientError as error:
                if not left or self.is_closed:
                    self._note(f"{held.queue} stays where it was for group {self.group}: {error}")
                    return
            yield Sleep(self._clock.monotonic() + _SEND_BACK_PAUSE_S)

    def _take_on(self, queue: MessageQueue) -> Steps[bool]:
        if any(held.queue == queue for held in self._resetting):
            return False
        return (yield from super()._take_on(queue))

    def _before_leaving(self) -> Steps[None]:
        yield Together([self._reset_one(held, offset) for held, offset in self._resetting.items()])

    # --- offsets

    def committed(self, queue: MessageQueue) -> Steps[int | None]:
        if self._offsets is not None:
            return self._offsets.read(queue)
        return (yield from super().committed(queue))

    def commit(self, everything: bool = False) -> Steps[list[ClientError]]:
        if self._offsets is None:
            return (yield from super().commit(everything))
        moved = {held: held.passed for held in self.held.values() if held.passed not in (None, held.committed)}
        return [] if not moved else (yield from self._save(moved))

    def _commit_one(self, held: PushHeld, offset: int) -> Steps[None]:
        if self._offsets is None:
            yield from super()._commit_one(held, offset)
            return
        for error in (yield from self._save({held: offset})):
            raise error

    def _save(self, moved: Mapping[PushHeld, int | None]) -> Steps[list[ClientError]]:
        assert self._offsets is not None, "only a broadcasting consumer has a file"
        offsets = {held.queue: offset for held, offset in moved.items() if offset is not None}
        why = yield Do(partial(self._offsets.save, offsets))
        if why is not None:
            return [ClientError(f"offsets are not saved: {why}")] * len(offsets)
        for held in moved:
            held.committed = offsets[held.queue]
        return []

    # --- the end

    def stop(self) -> None:
        """Stop fetching and handing out: messages that no handler has come again."""
        self.is_stopping = True
        for held in self.held.values():
            self._drop_waiting(held)

    def _drop_waiting(self, held: PushHeld) -> None:
        if held.messages:
            held.position = held.messages[0].queue_offset
            self._bytes -= _size(held.messages)
            held.messages.clear()


def _no_stack(_thread: int) -> str:
    return ""


def _size(messages: Iterable[ReceivedMessage]) -> int:
    return sum(len(message.record.body) for message in messages)
