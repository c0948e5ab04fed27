"""A pull consumer: for each of its queues the messages fetched, given to the user, and passed. PURE.

    messages   fetched, not given yet
    given      behind the last message given

A message is passed when the user takes the next one. `seek` starts another loop in place of the queue's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from ..allocation import Allocation, average
from ..errors import ClientError, NoRoute
from ..message import MessageQueue, ReceivedMessage
from .directory import first_error
from .group import WAIT_S, Begin, Group, Held, Surroundings
from .inspection import queue_info
from .pulling import Pulled, PullFrom, ask_offset, pull
from .requests import PULL_MOST, Member, Subscription
from .steps import Steps, Together


class PullHeld(Held):
    __slots__ = ("given", "is_paused", "messages", "passed")

    def __init__(self, queue: MessageQueue) -> None:
        super().__init__(queue)
        self.messages: deque[ReceivedMessage] = deque()
        self.given: int | None = None
        self.passed: int | None = None
        self.is_paused = False

    def begin_at(self, offset: int) -> None:
        self.position = self.given = self.passed = offset

    def is_settled(self) -> bool:
        """True if the user is done with all fetched messages."""
        return not self.messages and self.given == self.passed


class PullGroup(Group[PullHeld]):
    """Guarded by the client's lock."""

    def __init__(
        self,
        group: str,
        client: Surroundings,
        *,
        begin: Begin,
        wake: Callable[[], None],
        cache: int,
        allocation: Allocation = average,
    ) -> None:
        """cache: number of messages fetched ahead for each queue. wake: called with the lock held when there are
        messages or an error."""
        super().__init__(group, client, begin=begin, wake=wake, allocation=allocation)
        self._cache = cache
        #: Queues in the order in which messages are taken from them next.
        self._turn: deque[PullHeld] = deque()
        self._trouble: ClientError | None = None
        #: Messages of the last `take` that may not have reached the user: (queue, its epoch, messages).
        self.taken: list[tuple[PullHeld, int, list[ReceivedMessage]]] = []

    def member(self) -> Member:
        return Member(self.group, tuple(self.subscriptions.values()))

    def start_assigned(self, queues: Iterable[MessageQueue]) -> Steps[None]:
        """Read these queues, no matter which other consumers do. Raises NoNameServer, NoRoute."""
        deadline = self._clock.monotonic() + self._timeout
        for topic in {queue.topic for queue in queues}:
            found = yield from self._directory.read_queues(topic, deadline)
            unknown = [str(queue) for queue in queues if queue.topic == topic and queue not in found]
            if unknown:
                raise NoRoute(f"The topic {topic} has no queue {', '.join(unknown)}; it has {len(found)} queues.")
        self.is_joining = False
        yield from self._beat_all()
        for queue in queues:
            yield from self._take_on(queue)

    # --- fetching

    def _make(self, queue: MessageQueue) -> PullHeld:
        held = PullHeld(queue)
        self._turn.append(held)
        return held

    def _release(self, held: PullHeld) -> None:
        held.messages.clear()
        self._turn.remove(held)

    def _has_room(self, held: PullHeld) -> bool:
        return len(held.messages) < self._cache and not held.is_paused

    def _ask(self, held: PullHeld, offset: int) -> Steps[Pulled]:
        subscription = self.subscriptions.get(held.queue.topic) or Subscription(held.queue.topic)
        asked = PullFrom(self.group, held.queue, offset, PULL_MOST, WAIT_S, subscription)
        return (yield from pull(self._directory, self._clock, asked))

    def _took(self, held: PullHeld, pulled: Pulled) -> None:
        self._trouble = None
        settled = held.is_settled()
        held.position = pulled.next_offset
        held.messages += pulled.messages
        if pulled.messages:
            self._wake()
        elif settled:  # messages that were filtered out need not be pulled again
            held.given = held.passed = pulled.next_offset

    def info_of(self, held: PullHeld) -> dict[str, Any]:
        return queue_info(held.messages, (), held.passed, lastPullTimestamp=held.pulled_ms)

    def _needs_a_person(self, error: ClientError) -> None:
        self._trouble = error
        self._wake()

    # --- giving

    def take(self, most: int) -> list[ReceivedMessage]:
        """Return fetched messages, of queues in turn; they count as given, and those given before as passed."""
        self.pass_given()
        found: list[ReceivedMessage] = []
        for _ in range(len(self._turn)):
            held = self._turn[0]
            self._turn.rotate(-1)
            own: list[ReceivedMessage] = []
            if held.messages and not held.is_paused:
                self.taken.append((held, held.epoch, own))
                # In one step: a signal's handler that raises comes before this, or when `taken` has them.
                own += map(deque.popleft, repeat(held.messages, min(len(held.messages), most - len(found))))
                held.given = own[-1].queue_offset + 1
                found += own
            if len(found) == most:
                break
        return found

    def take_back(self) -> None:
        """Have the messages in `taken` given again, since they have not reached the user."""
        taken, self.taken = self.taken, []
        for held, epoch, messages in taken:
            if not held.dropped and held.epoch == epoch:
                held.messages.extendleft(reversed(messages))
                held.given = held.passed

    def pass_given(self) -> None:
        """Count all given messages as passed. A queue whose cache is empty is passed up to its position."""
        for held in self.held.values():
            if held.given is not None:
                if not held.messages and held.position is not None:
                    held.given = held.position
                held.passed = held.given

    def take_trouble(self) -> ClientError | None:
        """Return an error that needs a person, only once; None without one."""
        trouble, self._trouble = self._trouble, None
        return trouble

    def seek(self, queue: MessageQueue, offset: int) -> Steps[None]:
        """Go on at an offset; fetched messages are dropped, and the next commit is of this place. Raises KeyError for a
        queue that this consumer does not hold."""
        yield from self._move(self.held[queue], offset)

    def _of(self, queues: Iterable[MessageQueue] | None) -> list[PullHeld]:
        """queues: None for all. Raises KeyError for one that this consumer does not hold."""
        if queues is None:
            return list(self.held.values())
        return [self.held[queue] for queue in dict.fromkeys(queues)]

    def seek_all(self, queues: Iterable[MessageQueue] | None, what: str | int) -> Steps[None]:
        """Go on in these queues, None for all, at "min", "max", or the first message stored at or after a wall time in
        ms. All places are asked for before any queue moves; one that goes to another member meanwhile, or was moved by
        a later `seek`, is left out.

        Raises KeyError, BrokerAway, RequestTimeout, RequestRefused, BadAnswer.
        """
        moving = [(held, held.epoch) for held in self._of(queues)]
        asking = [ask_offset(self._directory, self._clock, self._timeout, held.queue, what) for held, _ in moving]
        offsets = yield Together(asking)
        error = first_error(offsets)
        if error is not None:
            raise error
        for (held, epoch), offset in zip(moving, offsets, strict=True):
            if not held.dropped and held.epoch == epoch:
                yield from self._move(held, offset)

    def _move(self, held: PullHeld, offset: int) -> Steps[None]:
        held.epoch += 1
        held.messages.clear()
        held.begin_at(offset)
        held.is_pulling = False
        yield from self._resume(held)

    # --- resting

    def pause(self, queues: Iterable[MessageQueue] | None) -> None:
        """Neither give nor fetch messages of these queues, None for all; fetched ones are kept. Raises KeyError: then
        none rests."""
        for held in self._of(queues):
            held.is_paused = True

    def unpause(self, queues: Iterable[MessageQueue] | None) -> Steps[None]:
        """queues: None for all. Raises KeyError."""
        for held in self._of(queues):
            held.is_paused = False
        self._wake()
        yield from self.resume_all()

    def paused(self) -> list[MessageQueue]:
        return [held.queue for held in self.held.values() if held.is_paused]
