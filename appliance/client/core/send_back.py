"""Sends a message back that a consumer could not handle: the broker delivers a copy to the group later. PURE."""

from __future__ import annotations

from ..errors import BrokerAway, ClientError
from ..message import ReceivedMessage
from ..wire import (
    DELAY_TIME_LEVEL,
    ORIGIN_MESSAGE_ID,
    RETRY_PREFIX,
    RETRY_TOPIC,
    SYS_COMPRESSED,
    TIMER_NAMES,
    ResponseCode,
    encode_properties,
)
from . import requests
from .answers import failure, refusal
from .directory import Directory
from .handling import DEAD
from .steps import Call, CallFailed, Clock, Steps

_TIMEOUT_S = 5.0
#: Level of the first retry, where the broker chooses it.
_FIRST_LEVEL = 3
#: Bits of the system flag that say how a body is compressed.
_COMPRESSION = SYS_COMPRESSED | 0x700


def send_back(
    directory: Directory, clock: Clock, group: str, message: ReceivedMessage, level: int, most_retries: int
) -> Steps[None]:
    """Send a message back to its broker; if that does not take it, to the group's retry topic at any broker.

    level: as of `requests.send_back`. Raises the error of the first way if both fail.
    """
    try:
        yield from _to_its_broker(directory, clock, group, message, level, most_retries)
    except ClientError:
        if not (yield from _as_new(directory, clock, group, message, level, most_retries)):
            raise


def _to_its_broker(
    directory: Directory, clock: Clock, group: str, message: ReceivedMessage, level: int, most_retries: int
) -> Steps[None]:
    queue = message.queue
    who = f"broker {queue.broker_name}"
    address = directory.master(queue)
    if address is None:
        raise BrokerAway(f"{who} has no master in the route of {queue.topic}.")
    request = requests.send_back(
        group, queue, message.full_topic, message.record.physical_offset, message.message_id, level, most_retries
    )
    answer = yield Call(address, request, clock.monotonic() + _TIMEOUT_S)
    what = f"a message of {queue} that comes again"
    if isinstance(answer, CallFailed):
        raise failure(answer, f"{who} at {address}", what)
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(answer, f"{who} at {address}", what)


def _as_new(
    directory: Directory, clock: Clock, group: str, message: ReceivedMessage, level: int, most_retries: int
) -> Steps[bool]:
    """Send a copy to the retry topic; False if no broker takes it."""
    record, times = message.record, message.attempt
    properties = {name: value for name, value in message.properties.items() if name not in TIMER_NAMES}
    properties[RETRY_TOPIC] = message.full_topic
    properties.setdefault(ORIGIN_MESSAGE_ID, message.offset_id)
    properties[DELAY_TIME_LEVEL] = str(level if level > 0 else _FIRST_LEVEL + times - 1)
    most = 0 if level == DEAD else most_retries
    topic = RETRY_PREFIX + group
    route = directory.known(topic)
    queues = route.publish_queues(topic) if route else ()
    for queue in {queue.broker_name: queue for queue in queues}.values():
        address = directory.master(queue)
        if address is None:
            continue
        request = requests.retry(
            queue, record.body, encode_properties(properties), record.sys_flag & _COMPRESSION, record.born_time_ms,
            times, most,
        )  # fmt: skip
        answer = yield Call(address, request, clock.monotonic() + _TIMEOUT_S)
        if not isinstance(answer, CallFailed) and answer.code == ResponseCode.SUCCESS:
            return True
    return False
