"""A member of a group: the queues that it shares with the others, the loop that fetches each, and offsets. PURE.

    position   where the next pull goes on
    passed     behind the last message that the user is done with, and all before it
    committed  as it is stored

Only passed offsets are committed: what was not done when the process died comes again. Each queue has one loop, which
pulls while its cache has room; a loop ends when its queue is given up. `PullGroup` and `PushGroup` say what becomes of
messages.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from ..allocation import Allocation, average
from ..errors import (
    BadAnswer,
    BrokerAway,
    ClientError,
    InvalidOption,
    NoRoute,
    NotPermitted,
    RequestRefused,
    RequestTimeout,
)
from ..message import MessageQueue
from ..wire import RETRY_PREFIX, ResponseCode
from . import inspection, requests
from .answers import failure, refusal
from .directory import Directory, first_error
from .figures import Rates
from .pulling import Pulled, ask_committed, ask_offset
from .rebalance import difference, named, read_connections, read_members, share
from .requests import Member, Subscription
from .steps import Call, CallFailed, Clock, Sleep, Start, Steps, Together

Begin: TypeAlias = Literal["last", "first"] | datetime


def check_begin(start: Begin) -> None:
    """Raise InvalidOption if a consumer cannot begin there."""
    if isinstance(start, str) and start not in ("last", "first"):
        raise InvalidOption(f'start is "last", "first" or a datetime, not {start!r}.')


#: Time that a broker holds a pull for which it has nothing.
WAIT_S = 20.0
#: Time between two rebalances, as Java has it; shorter while a topic, its members or its queues are not to be had.
_REBALANCE_S = 20.0
_LOOK_S = 1.0
#: Time between two comparisons of what this member and the others subscribe to. Brokers keep what the last heartbeat of
#: any member said: this is no multiple of the 30 s between these, or it would always see the same member's.
_COMPARE_S = 40.0
#: Pause after a broker could not be reached: doubled each time, up to a second.
_FIRST_PAUSE_S = 0.01
_PAUSE_S = 1.0
#: Pause after a broker answered without messages at once, although it should have waited.
_EMPTY_PAUSE_S = 0.1
#: Codes of a broker that does not have the subscription, as after its restart: a heartbeat mends it.
_NOT_KNOWN = (
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.FILTER_DATA_NOT_EXIST,
    ResponseCode.FILTER_DATA_NOT_LATEST,
)
#: Codes of a broker that is asked again: it knows no member, as after its restart, or is busy.
_NOT_NOW = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_BUSY)
#: Rounds after which offsets that did not move are written again: a group's offsets at a broker may be lost.
_ROUNDS_TO_ALL = 12
#: Time between two looks for the end of a queue's commit.
_COMMIT_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of a client that the members of its groups use. timeout: seconds for one request. beat: sends a
    heartbeat of one member to an address. note: takes a sentence for the log."""

    client_id: str
    directory: Directory
    clock: Clock
    timeout: float
    beat: Callable[[str, Group[Any]], Steps[None]]
    note: Callable[[str], None]


class Held:
    """A queue that this member reads."""

    __slots__ = ("committed", "dropped", "epoch", "is_committing", "is_pulling", "position", "pulled_ms", "queue")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.position: int | None = None
        self.committed: int | None = None
        #: True while a commit is on its way.
        self.is_committing = False
        #: Increased when it goes on elsewhere: loops and answers from before it no longer count.
        self.epoch = 0
        self.is_pulling = False
        self.dropped = False
        #: Wall time of the last pull.
        self.pulled_ms = 0

    @property
    def passed(self) -> int | None:
        raise NotImplementedError

    def begin_at(self, offset: int) -> None:
        self.position = offset


HeldQueue = TypeVar("HeldQueue", bound=Held)


class Group(Generic[HeldQueue]):
    """Guarded by the client's lock."""

    def __init__(
        self,
        group: str,
        client: Surroundings,
        *,
        begin: Begin,
        wake: Callable[[], None],
        allocation: Allocation = average,
    ) -> None:
        """begin: where a queue begins without a committed offset. allocation: how members share queues. wake: called
        with the lock held when something changed that the user may wait for."""
        self.group = group
        self._client_id = client.client_id
        self._directory = client.directory
        self._clock = client.clock
        self._timeout = client.timeout
        self._beat = client.beat
        self._note = client.note
        self._begin = begin
        self._wake = wake
        self._allocation = allocation
        self.subscriptions: dict[str, Subscription] = {}
        self.held: dict[MessageQueue, HeldQueue] = {}
        self.is_closed = False
        #: True until heartbeats may name it.
        self.is_joining = True
        self._is_balancing = False
        self._balance_again = False
        self._is_complete = True
        self._balanced_at = 0.0
        #: False while this is the only member; True where it is not known.
        self._has_others = True
        self._compared_at = -math.inf
        #: Differences that were said.
        self._said: set[str] = set()
        #: True if a loop may have ended because its cache was full.
        self._is_stalled = False
        self._rounds = 0
        #: (Broker, topic) of commits that were begun, and of those that are the first ones there and on their way.
        self._places: set[tuple[str, str]] = set()
        self._first_commits: set[tuple[str, str]] = set()
        #: By subscribed topic.
        self.rates: dict[str, Rates] = {}
        #: Settings that consoles show, by the names of Java's.
        self.settings: dict[str, str] = {}

    # --- what kinds of groups differ in

    def member(self) -> Member:
        """Return what heartbeats say of this member."""
        raise NotImplementedError

    def _make(self, queue: MessageQueue) -> HeldQueue:
        raise NotImplementedError

    def _has_room(self, held: HeldQueue) -> bool:
        """True if the queue may be pulled."""
        raise NotImplementedError

    def _ask(self, held: HeldQueue, offset: int) -> Steps[Pulled]:
        """Pull from an offset on."""
        raise NotImplementedError

    def _took(self, held: HeldQueue, pulled: Pulled) -> None:
        """Keep what a pull brought, and set the position."""
        raise NotImplementedError

    def _release(self, held: HeldQueue) -> None:
        """Forget the messages of a queue that was given up."""
        raise NotImplementedError

    def _before_leaving(self) -> Steps[None]:
        """Do what comes between the last commit and the end of the membership."""
        yield from ()

    def info_of(self, held: HeldQueue) -> dict[str, Any]:
        """Return what an answer to 307 says of a queue."""
        raise NotImplementedError

    def _have_changed(self, topic: str) -> Steps[None]:
        """React to other queues of a topic than before."""
        yield from ()

    def _needs_a_person(self, error: ClientError) -> None:
        """Take an error that does not mend itself; it is noted as well."""

    # --- beginning

    def start(self) -> Steps[None]:
        """Subscribe at all brokers and take the first queues. A topic that does not exist yet is looked up again from
        then on.

        Raises NoNameServer; RequestRefused if a broker does not take a condition of SQL92, and BrokerAway or
        RequestTimeout if it cannot be asked.
        """
        self.settings["PROP_CONSUMER_START_TIMESTAMP"] = str(self._clock.wall_ms())
        deadline = self._clock.monotonic() + self._timeout
        for topic in self.subscriptions:
            yield from self._directory.look_up(topic, deadline)
        yield from self._check_conditions()
        yield from self._compare_at_start()
        self.is_joining = False
        yield from self._beat_all()
        yield from self.rebalance()
        yield Start(self._keep_balanced())

    def _check_conditions(self) -> Steps[None]:
        for subscription in self.subscriptions.values():
            route = self._directory.known(subscription.topic)
            # A topic that was just made may not have reached the name server; every broker can check conditions.
            addresses = route.addresses() if route else iter(self._directory.addresses(masters_only=True))
            address = next(addresses, None)
            if subscription.sql is None or address is None:
                continue
            who, what = f"broker at {address}", f"the condition {subscription.sql[:200]!r}"
            request = requests.check_filter(self._client_id, self.group, subscription)
            answer = yield Call(address, request, self._clock.monotonic() + self._timeout)
            if isinstance(answer, CallFailed):
                raise failure(answer, who, what)
            if answer.code != ResponseCode.SUCCESS:
                raise refusal(answer, who, what)

    def _beat_all(self) -> Steps[None]:
        yield Together([self._beat(address, self) for address in self._directory.addresses()])

    # --- whose queues

    def _keep_balanced(self) -> Steps[None]:
        while not self.is_closed:
            yield Sleep(self._clock.monotonic() + _LOOK_S)
            if not self._is_complete or self._clock.monotonic() >= self._balanced_at + _REBALANCE_S:
                yield from self.rebalance()
            yield from self.compare(_COMPARE_S)

    def _broker(self) -> str | None:
        """Return the address of a broker that knows all members; None if there is none now."""
        routes = (self._directory.known(topic) for topic in self.subscriptions)
        return next((one for route in routes if route is not None for one in route.addresses()), None)

    def _compare_at_start(self) -> Steps[None]:
        """Compare with the members so far, while the broker has what they say."""
        address = self._broker()
        if address is not None:
            answer = yield Call(address, requests.members(self.group), self._clock.monotonic() + self._timeout)
            try:
                is_known = not isinstance(answer, CallFailed) and answer.code == ResponseCode.SUCCESS
                members = read_members(answer.body) if is_known else []
            except BadAnswer:
                return  # it is asked again, and the error noted then
            if any(one != self._client_id for one in members):
                yield from self.compare(0.0)

    def compare(self, seconds: float) -> Steps[None]:
        """Say if other members subscribe to something else, each difference once: messages are missed then. seconds:
        that have to have passed since the last comparison."""
        address, now = self._broker(), self._clock.monotonic()
        if address is None or not self._has_others or now < self._compared_at + seconds:
            return
        self._compared_at = now
        answer = yield Call(address, requests.connections(self.group), self._clock.monotonic() + self._timeout)
        if isinstance(answer, CallFailed) or answer.code in _NOT_NOW or self.is_closed:
            return
        try:
            if answer.code != ResponseCode.SUCCESS:
                raise refusal(answer, f"broker at {address}", f"the question for what {self.group} subscribes to")
            members, subscriptions = read_connections(answer.body)
        except ClientError:  # it does not know this question, or this user may not ask it
            self._compared_at = math.inf
            return
        others = sorted({*members} - {self._client_id})
        found = difference(self.subscriptions, subscriptions) if others else ""
        if found and found not in self._said:
            self._said.add(found)
            self._note(
                f"members of group {self.group} do not subscribe to the same, so that they miss messages: {found}. "
                f"The others are {named(others)}"
            )

    def rebalance(self) -> Steps[None]:
        """Give up and take on queues as the group's members share them; queues stay as they are if routes or members
        cannot be read now. A second call while one is under way makes that one begin again."""
        if self._is_balancing:
            self._balance_again = True
            return
        self._is_balancing = True
        try:
            self._balance_again = True
            while self._balance_again and not self.is_closed:
                self._balance_again = False
                complete = True
                for topic in list(self.subscriptions):
                    try:
                        complete &= yield from self._rebalance_topic(topic)
                    except ClientError as error:
                        complete = False
                        self._note(f"queues of {topic} for group {self.group} stay as they are: {error}")
                self._is_complete = complete
                self._balanced_at = self._clock.monotonic()
            if self._is_stalled:  # queues that were given up may have left room for the others
                yield from self.resume_all()
        finally:
            self._is_balancing = False

    def _rebalance_topic(self, topic: str) -> Steps[bool]:
        deadline = self._clock.monotonic() + self._timeout
        try:
            queues = yield from self._directory.read_queues(topic, deadline)
        except NoRoute as error:
            if not topic.startswith(RETRY_PREFIX):  # that one comes with the first heartbeat
                self._note(f"group {self.group} waits for the topic {topic}: {error}")
            return False
        members = yield from self._members(queues, deadline)
        if self._client_id not in members:  # a broker that was restarted has no members until the next heartbeat
            yield from self._beat_all()
            members = yield from self._members(queues, deadline)
        if not members:
            return False
        self._has_others = any(one != self._client_id for one in members)
        mine = share(self._allocation, queues, members, self._client_id)
        before = {queue for queue in self.held if queue.topic == topic}
        own = set(mine)
        for held in [one for one in self.held.values() if one.queue.topic == topic and one.queue not in own]:
            yield from self._give_up(held)
        complete = self._client_id in members
        for queue in mine:
            if queue not in self.held:
                complete &= yield from self._take_on(queue)
        if before != {queue for queue in self.held if queue.topic == topic}:
            yield from self._have_changed(topic)
        return complete

    def _members(self, queues: Sequence[MessageQueue], deadline: float) -> Steps[list[str]]:
        """Return the client ids of the group's members, from the first broker that answers."""
        error: ClientError | None = None
        for name, queue in {queue.broker_name: queue for queue in queues}.items():
            address = self._directory.readable(queue)
            if address is None:
                continue
            who = f"broker {name} at {address}"
            what = f"the question for the members of {self.group}"
            answer = yield Call(address, requests.members(self.group), deadline)
            if isinstance(answer, CallFailed):
                error = failure(answer, who, what)
            elif answer.code == ResponseCode.SUCCESS:
                return read_members(answer.body)
            elif answer.code == ResponseCode.SYSTEM_ERROR:
                return []  # it has no member
            else:
                error = refusal(answer, who, what)
        raise error or BrokerAway(f"No broker of {queues[0].topic} has an address.")

    def _take_on(self, queue: MessageQueue) -> Steps[bool]:
        """Begin to read a queue; False if another member has it still."""
        held = self._make(queue)
        self.held[queue] = held
        yield from self._resume(held)
        return True

    def _give_up(self, held: HeldQueue) -> Steps[None]:
        """Commit the passed offset and stop reading; another member goes on from there."""
        if held.dropped:
            return
        passed = held.passed
        held.dropped = True
        del self.held[held.queue]
        self._release(held)
        yield from self._commit_last(held, passed)

    def _commit_last(self, held: HeldQueue, passed: int | None) -> Steps[None]:
        if passed is not None and passed != held.committed:
            try:
                yield from self._commit_one(held, passed)
            except ClientError as error:
                self._note(f"{held.queue} was given up, and some of its messages come again: {error}")

    # --- fetching

    def _resume(self, held: HeldQueue) -> Steps[None]:
        if not held.is_pulling and not held.dropped and not self.is_closed:
            held.is_pulling = True
            try:
                yield Start(self._fetch(held, held.epoch))
            except BaseException:  # a signal has ended this: the loop may run, or not
                held.epoch += 1
                held.is_pulling = False
                self._is_stalled = True
                raise

    @property
    def may_resume(self) -> bool:
        """True if `resume_all` may find something to do."""
        return self._is_stalled

    def resume_all(self) -> Steps[None]:
        """Restart loops that ended because their cache was full."""
        self._is_stalled = False
        for held in list(self.held.values()):
            if self._has_room(held):
                yield from self._resume(held)
            else:
                self._is_stalled = True

    def _fetch(self, held: HeldQueue, epoch: int) -> Steps[None]:
        pause = _FIRST_PAUSE_S
        while self._goes_on(held, epoch) and self._has_room(held):
            try:
                began = self._clock.monotonic()
                if held.position is None:
                    begin = yield from self._begin_of(held)
                    if self._goes_on(held, epoch):
                        held.begin_at(begin)
                    continue
                is_idle = yield from self._pull(held, epoch)
                pause = _FIRST_PAUSE_S
                if is_idle and self._clock.monotonic() - began < _FIRST_PAUSE_S:
                    yield Sleep(began + _EMPTY_PAUSE_S)
            except ClientError as error:
                if not self._goes_on(held, epoch):
                    break
                seconds = yield from self._mend(held, error, pause)
                pause = min(_PAUSE_S, pause * 2)
                yield Sleep(self._clock.monotonic() + seconds * random.uniform(0.5, 1.0))
        if held.epoch == epoch:
            held.is_pulling = False
            self._is_stalled = True

    def _goes_on(self, held: HeldQueue, epoch: int) -> bool:
        return not held.dropped and held.epoch == epoch and not self.is_closed

    def _pull(self, held: HeldQueue, epoch: int) -> Steps[bool]:
        """Do one pull; True if it brought nothing new."""
        asked = held.position or 0
        held.pulled_ms, began = self._clock.wall_ms(), self._clock.monotonic()
        pulled = yield from self._ask(held, asked)
        now = self._clock.monotonic()
        self._rates_of(held.queue.topic).add_pull(now, len(pulled.messages), now - began)
        if not self._goes_on(held, epoch):
            return False
        if pulled.moved:
            self._note(f"{held.queue} has no offset {asked}: group {self.group} goes on at {pulled.next_offset}")
        elif pulled.next_offset < asked:
            raise BadAnswer(f"broker {held.queue.broker_name} sends {held.queue} back from {asked}.")
        self._took(held, pulled)
        return pulled.next_offset == asked

    def _begin_of(self, held: HeldQueue) -> Steps[int]:
        """Return the offset to begin at: the committed one, or else by `begin`."""
        queue = held.queue
        committed = yield from self.committed(queue)
        if committed is not None:
            held.committed = committed
            return committed
        is_retry = queue.topic.startswith(RETRY_PREFIX)  # these are never skipped
        what: str | int = "min" if self._begin == "first" or is_retry else "max"
        if isinstance(self._begin, datetime) and not is_retry:
            what = int(self._begin.timestamp() * 1000)
        begin = yield from ask_offset(self._directory, self._clock, self._timeout, queue, what)
        if not is_retry:
            self._directory.tell(f"group {self.group} has no offset in {queue} yet, and begins at {begin}")
        return begin

    def _mend(self, held: HeldQueue, error: ClientError, pause: float) -> Steps[float]:
        """React to a failed pull; return the seconds to wait before the next."""
        if isinstance(error, BrokerAway | RequestTimeout):
            self._note(f"{error} Group {self.group} tries again.")
            if pause > _FIRST_PAUSE_S:  # it is not gone for a moment only, and may have another address
                try:
                    yield from self._directory.look_up(held.queue.topic, self._clock.monotonic() + self._timeout)
                except ClientError as another:
                    self._note(str(another))
            return pause
        if isinstance(error, RequestRefused):
            if error.code in _NOT_KNOWN:
                yield from self._beat_all()
                return 0.05
            if error.code == ResponseCode.FLOW_CONTROL:
                return 0.02
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                yield from self._look_again(held.queue.topic)
        if isinstance(error, NotPermitted | BadAnswer) or (
            isinstance(error, RequestRefused) and error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        ):
            self._needs_a_person(error)
        self._note(f"{error} Group {self.group} tries again.")
        return _PAUSE_S

    def _look_again(self, topic: str) -> Steps[None]:
        try:
            yield from self._directory.look_up(topic, self._clock.monotonic() + self._timeout)
        except ClientError as error:
            self._note(str(error))

    # --- for consoles

    def _rates_of(self, topic: str) -> Rates:
        found = self.rates.get(topic)
        if found is None:
            found = Rates()
            if topic in self.subscriptions:  # others are of messages that say where they come from
                self.rates[topic] = found
        return found

    def passed_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return how far this member is in the queues of a topic, "" for all."""
        held = [one for one in self.held.values() if topic in ("", one.queue.topic)]
        return {one.queue: one.passed for one in held if one.passed is not None}

    def running_info(self, properties: Mapping[str, str], stacks: str | None) -> str:
        """Return the body of an answer to 307. properties: the client's. stacks: of its threads, if they are wanted."""
        member, now = self.member(), self._clock.monotonic()
        own = {
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY" if member.is_push else "CONSUME_ACTIVELY",
            "PROP_CONSUMEORDERLY": "false",
            "consumeFromWhere": member.begins,
            "consumerGroup": self.group,
            "messageModel": "BROADCASTING" if member.broadcasts else "CLUSTERING",
        }
        infos = {queue: self.info_of(held) for queue, held in self.held.items()}
        rates = {topic: (self.rates.get(topic) or Rates()).status(now) for topic in sorted(self.subscriptions)}
        subscriptions = [one for _, one in sorted(self.subscriptions.items())]
        return inspection.running_info(infos, {**properties, **own, **self.settings}, rates, subscriptions, stacks)

    # --- offsets

    def committed(self, queue: MessageQueue) -> Steps[int | None]:
        """Return the group's offset at the broker, None if there is none."""
        return (yield from ask_committed(self._directory, self._clock, self._timeout, self.group, queue))

    def commit(self, everything: bool = False) -> Steps[list[ClientError]]:
        """Write the passed offsets that have moved, or those of all queues; return the errors."""
        moved = [
            held
            for held in self.held.values()
            if held.passed is not None and (everything or held.passed != held.committed)
        ]
        outcomes = yield Together([self._commit_passed(held) for held in moved])
        return [one for one in outcomes if isinstance(one, ClientError)]

    def _commit_passed(self, held: HeldQueue) -> Steps[None]:
        """Commit how far it is when its turn comes. A queue that was given up is committed by what gave it up."""
        return self._commit_in_turn(held, lambda: None if held.dropped else held.passed)

    def _commit_one(self, held: HeldQueue, offset: int) -> Steps[None]:
        return self._commit_in_turn(held, lambda: offset)

    def _commit_in_turn(self, held: HeldQueue, offset: Callable[[], int | None]) -> Steps[None]:
        """Write an offset, None for none. Apache's brokers take commits side by side, and in any order: so a queue has
        one on its way, and the first in a topic at a broker is alone, since of several with which a group begins there
        they forget some. Raises BrokerAway, RequestTimeout, RequestRefused, BadAnswer."""
        place = held.queue.broker_name, held.queue.topic
        while held.is_committing or place in self._first_commits:
            yield Sleep(self._clock.monotonic() + _COMMIT_LOOK_S)
        found = offset()
        if found is None:
            return
        held.is_committing = True
        if place not in self._places:
            self._places.add(place)
            self._first_commits.add(place)
        try:
            yield from self._write_offset(held, found)
        finally:
            held.is_committing = False
            self._first_commits.discard(place)

    def _write_offset(self, held: HeldQueue, offset: int) -> Steps[None]:
        queue = held.queue
        address = self._directory.readable(queue)
        if address is None:
            raise BrokerAway(f"broker {queue.broker_name} is in no route of {queue.topic} any more.")
        who = f"broker {queue.broker_name} at {address}"
        what = f"offset {offset} of {queue} for group {self.group}"
        request = requests.commit(self.group, queue, offset)
        # Until it is answered, and without an answer, any offset may be stored: the next commit writes it again.
        held.committed = None
        answer = yield Call(address, request, self._clock.monotonic() + self._timeout)
        if isinstance(answer, CallFailed):
            raise failure(answer, who, what)
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer, who, what)
        held.committed = offset

    def _has_closed(self) -> bool:
        return self.is_closed

    def keep_committed(self, seconds: float) -> Steps[None]:
        """Commit again and again, until the consumer is closed."""
        while not self.is_closed:
            yield Sleep(self._clock.monotonic() + seconds)
            if self._has_closed():  # meanwhile
                return
            self._rounds += 1
            error = first_error((yield from self.commit(everything=self._rounds % _ROUNDS_TO_ALL == 0)))
            if error is not None:
                self._note(f"offsets of {self.group} are committed later: {error}")

    # --- the end

    def leave(self, commit: bool) -> Steps[int]:
        """Stop fetching, commit passed offsets, unregister; return the number of queues that were not committed."""
        self.is_closed = True
        self._wake()
        uncommitted = len((yield from self.commit())) if commit else 0
        yield from self._before_leaving()
        yield Together([self._unregister_at(address) for address in self._directory.addresses()])
        return uncommitted

    def _unregister_at(self, address: str) -> Steps[None]:
        request = requests.unregister(self._client_id, consumer=self.group)
        yield Call(address, request, self._clock.monotonic() + self._timeout)
