"""One pull: the request, and the meaning of its answer. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import BadAnswer, BrokerAway
from ..message import MessageQueue, ReceivedMessage
from ..wire import RemotingCommand, ResponseCode
from . import requests
from .answers import failure, number, refusal
from .directory import Directory
from .records import read_messages
from .requests import Subscription
from .steps import Call, CallFailed, Clock, Steps

#: Time-out beyond the time that the broker may wait: it has answered by then, or hangs.
_PATIENCE_S = 10.0
_ANSWERED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@dataclass(frozen=True, slots=True)
class Pulled:
    """messages: may be none. next_offset: where to go on. min_offset, max_offset: of the queue; max is that of the next
    message. moved: the requested offset is not in the queue, but next_offset is."""

    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    moved: bool = False


class PullFrom(NamedTuple):
    """A pull of a queue's messages from `offset` on, `most` at the most. wait: seconds that the broker may wait for the
    first. subscription: None for all messages."""

    group: str
    queue: MessageQueue
    offset: int
    most: int
    wait: float
    subscription: Subscription | None = None


def pull(directory: Directory, clock: Clock, asked: PullFrom) -> Steps[Pulled]:
    """Pull messages. Raises BrokerAway, RequestTimeout, RequestRefused, BadAnswer."""
    group, queue, offset, most, wait, subscription = asked
    wanted = subscription or Subscription(queue.topic)

    def make(address: str) -> RemotingCommand:
        version = directory.versions.get(address, 0)
        return requests.pull(group, queue, offset, most, int(wait * 1000), wanted, broker_version=version)

    return (yield from pull_by(directory, clock, make, queue, offset, wait, frozenset(wanted.tag_set())))


def pull_by(
    directory: Directory,
    clock: Clock,
    make: Callable[[str], RemotingCommand],
    queue: MessageQueue,
    offset: int,
    wait: float,
    tag_set: frozenset[str],
) -> Steps[Pulled]:
    """Pull as `pull`, with a request that is made for the address of a broker."""
    who = f"broker {queue.broker_name}"
    address = directory.readable(queue)
    if address is None:
        raise BrokerAway(f"{who} is in no route of {queue.topic} any more.")
    who = f"{who} at {address}"
    answer = yield Call(address, make(address), clock.monotonic() + wait + _PATIENCE_S)
    if isinstance(answer, CallFailed):
        raise failure(answer, who, f"a pull of {queue.topic}")
    if answer.code not in _ANSWERED:
        raise refusal(answer, who, f"a pull of {queue.topic}")
    found = (
        read_messages(answer.body, queue, tag_set, directory.verifies) if answer.code == ResponseCode.SUCCESS else []
    )
    following = number(answer, "nextBeginOffset", who)
    kept = [message for message in found if offset <= message.queue_offset < following]
    if len(kept) < len(found):
        highest = max(message.queue_offset for message in found)
        if highest >= following:  # its commit would skip what is in between
            raise BadAnswer(f"{who} sends message {highest} of {queue} in an answer that ends before {following}.")
    return Pulled(
        kept,
        following,
        number(answer, "minOffset", who),
        number(answer, "maxOffset", who),
        answer.code == ResponseCode.PULL_OFFSET_MOVED,
    )


def ask_offset(directory: Directory, clock: Clock, timeout: float, queue: MessageQueue, what: str | int) -> Steps[int]:
    """Return the queue's "min" or "max" offset, or that of the first message stored at or after a wall time in ms.

    Raises BrokerAway, RequestTimeout, RequestRefused, BadAnswer.
    """
    if isinstance(what, int):
        request = requests.offset_at(queue, what)
    else:
        request = {"min": requests.min_offset, "max": requests.max_offset}[what](queue)
    who = f"broker {queue.broker_name}"
    address = directory.master(queue)
    if address is None:
        raise BrokerAway(f"{who} has no master in the route of {queue.topic}.")
    who = f"{who} at {address}"
    answer = yield Call(address, request, clock.monotonic() + timeout)
    if isinstance(answer, CallFailed):
        raise failure(answer, who, f"the question for an offset of {queue}")
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(answer, who, f"the question for an offset of {queue}")
    return number(answer, "offset", who)


def ask_committed(
    directory: Directory, clock: Clock, timeout: float, group: str, queue: MessageQueue
) -> Steps[int | None]:
    """Return the offset that a group has committed at the queue's broker, None if there is none.

    Raises BrokerAway, RequestTimeout, RequestRefused, BadAnswer.
    """
    address = directory.readable(queue)
    who = f"broker {queue.broker_name} at {address}"
    if address is None:
        raise BrokerAway(f"broker {queue.broker_name} is in no route of {queue.topic} any more.")
    what = f"the question for the offset of {group}"
    answer = yield Call(address, requests.committed_offset(group, queue), clock.monotonic() + timeout)
    if isinstance(answer, CallFailed):
        raise failure(answer, who, what)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(answer, who, what)
    return number(answer, "offset", who)
