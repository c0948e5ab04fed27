"""A push consumer that keeps the order of each queue: one batch at a time, and only while the queue is locked. PURE.

A lock is this member's for 60 s after the broker granted it, and renewed each 20 s; 30 s after the last grant no new
batch begins. So another member has the queue only when no handler of this one still works on it, unless a handler
outlasts a lock that cannot be renewed. A queue that is given up is unlocked behind its handler's end and the last
commit.

A broadcasting consumer shares nothing, so it locks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from ..errors import ClientError
from ..message import MessageQueue, ReceivedMessage
from ..wire import ResponseCode
from . import requests
from .answers import failure, refusal
from .handling import DEAD, Outcome
from .push_group import Batch, PushGroup, PushHeld
from .rebalance import read_locked
from .steps import Call, CallFailed, Sleep, Start, Steps, Together

_LOCK_TIMEOUT_S = 1.0
_RENEW_S = 20.0
_RENEW_SOON_S = 1.0
#: Time after a grant in which batches begin; brokers keep the lock for 60 s.
_LOCK_LIVES_S = 30.0


class OrderedGroup(PushGroup):
    """Guarded by the client's lock."""

    _most_span = float("inf")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Takes what `PushGroup` takes."""
        super().__init__(*arguments, **options)
        #: Queues that were given up while a handler works on them.
        self._ending: dict[MessageQueue, PushHeld] = {}

    def start(self) -> Steps[None]:
        yield from super().start()
        if self._locks:
            yield Start(self._keep_locked())

    @property
    def _locks(self) -> bool:
        return self._offsets is None

    # --- whose queues

    def _take_on(self, queue: MessageQueue) -> Steps[bool]:
        if self._locks:
            try:
                if queue in self._ending or queue not in (yield from self._lock([queue])):
                    return False
            except ClientError as error:  # other brokers have queues, too
                self._note(f"{queue} is locked for group {self.group} later: {error}")
                return False
            if self.is_closed:
                yield from self._unlock([queue])
                return False
        return (yield from super()._take_on(queue))

    def _make(self, queue: MessageQueue) -> PushHeld:
        held = super()._make(queue)
        held.locked_at = self._clock.monotonic()
        return held

    def _give_up(self, held: PushHeld) -> Steps[None]:
        if held.dropped:
            return
        if self._locks and held.busy is not None:
            held.dropped = True
            del self.held[held.queue]
            self._drop_waiting(held)
            self._ending[held.queue] = held
            return
        yield from super()._give_up(held)
        if self._locks:
            yield from self._unlock([held.queue])

    # --- locks

    def _keep_locked(self) -> Steps[None]:
        pause = _RENEW_S
        while not self.is_closed:
            yield Sleep(self._clock.monotonic() + pause)
            pause = _RENEW_S if (yield from self._renew()) else _RENEW_SOON_S

    def _renew(self) -> Steps[bool]:
        """Lock again what this member has; False if a broker did not answer."""
        complete = True
        for queues in _by_broker([*self.held, *self._ending]):
            asked = self._clock.monotonic()
            try:
                locked = yield from self._lock(queues)
            except ClientError as error:
                complete = False
                self._note(f"queues of group {self.group} are locked again later: {error}")
                continue
            for queue in queues:
                held = self.held.get(queue) or self._ending.get(queue)
                if held is None:
                    continue
                if queue in locked:
                    held.locked_at = asked
                    self._offer(held)
                else:
                    self._lose(held)
        return complete

    def _lose(self, held: PushHeld) -> None:
        """Stop reading a queue whose lock another member has. Until its handler ends it is not taken again, and then
        nothing is committed."""
        queue = held.queue
        self._note(f"{queue} has another owner now: group {self.group} stops reading it")
        held.dropped = True
        self._release(held)
        held.position = None
        self.held.pop(queue, None)
        if held.busy is not None:
            self._ending[queue] = held
        self._is_complete = False

    def _lock(self, queues: list[MessageQueue]) -> Steps[set[MessageQueue]]:
        """Ask the broker of the queues for them; return those that it granted. Raises BrokerAway, RequestTimeout,
        RequestRefused, BadAnswer."""
        address = self._directory.master(queues[0])
        if address is None:
            return set()
        request = requests.lock(self.group, self._client_id, queues)
        answer = yield Call(address, request, self._clock.monotonic() + _LOCK_TIMEOUT_S)
        who, what = f"broker {queues[0].broker_name} at {address}", f"a lock of {queues[0]}"
        if isinstance(answer, CallFailed):
            raise failure(answer, who, what)
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer, who, what)
        return read_locked(answer.body)

    def _unlock(self, queues: Iterable[MessageQueue]) -> Steps[None]:
        yield Together([self._unlock_at(of_one) for of_one in _by_broker(queues)])

    def _unlock_at(self, queues: list[MessageQueue]) -> Steps[None]:
        address = self._directory.master(queues[0])
        if address is not None:  # an error is not looked at: the lock ends by itself
            request = requests.unlock(self.group, self._client_id, queues)
            yield Call(address, request, self._clock.monotonic() + _LOCK_TIMEOUT_S)

    def _before_leaving(self) -> Steps[None]:
        yield from super()._before_leaving()
        if self._locks:  # a handler that goes on has its queue still
            every = [*self.held.values(), *self._resetting]
            yield from self._unlock([held.queue for held in every if held.busy is None])

    def info_of(self, held: PushHeld) -> dict[str, Any]:
        since = self._clock.monotonic() - held.locked_at
        locked = {"locked": since < _LOCK_LIVES_S, "lastLockTimestamp": self._clock.wall_ms() - int(since * 1000)}
        busy = [
            message for message in (held.busy.messages if held.busy else ()) if message.queue_offset in held.running
        ]
        return self._info(held, list(held.messages), busy, **(locked if self._locks else {}))

    # --- handling

    def _may_begin(self, held: PushHeld) -> bool:
        now = self._clock.monotonic()
        if held.busy is not None or now < held.rests_until:
            return False
        return not self._locks or now < held.locked_at + _LOCK_LIVES_S

    def _begun(self, batch: Batch) -> None:
        batch.held.busy = batch

    def _offer(self, held: PushHeld) -> None:
        if held.busy is None and not held.dropped:
            super()._offer(held)

    def _of_cancelled(self, batch: Batch) -> Outcome | None:
        return Outcome(batch.messages)

    def _settle(self, batch: Batch, outcome: Outcome) -> Steps[None]:
        failed = list(outcome.failed)
        self._done(batch, [message for message in batch.messages if message not in failed])
        left = []
        for message in failed:
            dead = outcome.level == DEAD or message.attempt > self._most_retries
            if dead and (yield from self._bury(message)):
                self._done(batch, [message])
            else:
                left.append(message)
        if left and batch.counts():
            self._put_back(batch, left, outcome.rest_s)

    def _bury(self, message: ReceivedMessage) -> Steps[bool]:
        """Make a message a dead letter; False if no broker takes it."""
        if self._offsets is not None:
            return True  # of a broadcasting consumer there are none
        try:
            yield from self._send_back_once(message, DEAD)
        except ClientError as error:
            self._note(f"{error} Group {self.group} tries the message once more.")
            return False
        return True

    def _put_back(self, batch: Batch, messages: list[ReceivedMessage], rest_s: float) -> None:
        held = batch.held
        for message in messages:
            message.handled_before += 1
            del held.running[message.queue_offset]
        held.messages.extendleft(reversed(messages))
        held.rests_until = self._clock.monotonic() + rest_s

    def _ended(self, batch: Batch) -> Steps[None]:
        held = batch.held
        held.busy = None
        if self._ending.get(held.queue) is held:
            passed = held.passed
            self._release(held)
            yield from self._commit_last(held, passed)
            del self._ending[held.queue]
            yield from self._unlock([held.queue])
        elif self.is_closed and self._locks:
            yield from self._unlock([held.queue])
        elif self._clock.monotonic() < held.rests_until:
            yield Start(self._rest(held))
        else:
            self._offer(held)

    def _rest(self, held: PushHeld) -> Steps[None]:
        yield Sleep(held.rests_until)
        self._offer(held)


def _by_broker(queues: Iterable[MessageQueue]) -> list[list[MessageQueue]]:
    in_order = sorted(queues, key=lambda queue: (queue.broker_name, queue.topic, queue.queue_id))
    return [list(some) for _, some in groupby(in_order, key=lambda queue: queue.broker_name)]
