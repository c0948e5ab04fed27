"""Finds out by pulls of single messages how many bytes of its broker's log lie between two offsets of a queue.

A broker says where a message lies only with the message itself. Offsets and places in the log ascend together, so a few
messages are enough: the last one, and from the first one on those in steps that double, then halve.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from appliance.engine.protocol.codes import RequestCode, ResponseCode
from appliance.engine.protocol.record import FIXED_BYTES, PHYSICAL_OFFSET_AT

from .access import Access
from .brokers import tried
from .connection import Connection, number, refused
from .errors import Garbled
from .offsets import Offsets
from .pulls import pull_of
from .routes import Addresses, Queue

#: A record's size, and its place in the log.
_SIZE_PLACE = struct.Struct(f">i{PHYSICAL_OFFSET_AT - 4}xq")
_NOTHING = (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_NOT_FOUND)


class _Place(NamedTuple):
    """offset: of a message in its queue, or one behind messages that are gone. begin, behind: in the log."""

    offset: int
    begin: int
    behind: int


def within_bytes(
    access: Access, brokers: Mapping[str, Addresses], backlog: Mapping[Queue, tuple[int, int]], most: int
) -> Offsets:
    """Return for some of the queues, to read in the order of the log, an offset up to which their messages lie within
    `most` bytes of it, or one message. Brokers have equal shares.

    backlog: the next offset of each queue and the one behind its last, which is higher. Raises NetworkError.
    """
    by_broker: dict[str, dict[Queue, tuple[int, int]]] = {}
    for queue, bounds in backlog.items():
        by_broker.setdefault(queue.broker, {})[queue] = bounds
    found: Offsets = {}
    for broker, queues in by_broker.items():
        ask = partial(_of_broker, queues=queues, most=max(1, most // len(by_broker)))
        found |= tried(broker, brokers[broker], access, ask)
    return found


def _of_broker(connection: Connection, queues: Mapping[Queue, tuple[int, int]], most: int) -> Offsets:
    firsts = {queue: _place(connection, queue, *bounds) for queue, bounds in queues.items()}
    # What has nothing to read any more is left to the task, which says so.
    found = {queue: queues[queue][1] for queue, first in firsts.items() if first is None}
    there = {queue: first for queue, first in firsts.items() if first is not None}
    if not there:
        return found
    oldest = min(there, key=lambda queue: there[queue].begin)
    limit = there[oldest].begin + most
    for queue, first in there.items():
        if first.behind <= limit:
            found[queue] = _end(connection, queue, first.offset, queues[queue][1], limit)
    return found or {oldest: there[oldest].offset + 1}


def _end(connection: Connection, queue: Queue, low: int, end: int, limit: int) -> int:
    """Return the offset behind the last message before `end` that lies below `limit`; the one at `low` does."""

    def fits(offset: int) -> bool:
        place = _place(connection, queue, offset, end)
        return place is not None and place.behind <= limit

    if fits(end - 1):
        return end
    high, step = end - 1, 1
    while low + step < high:
        if not fits(low + step):
            high = low + step
            break
        low, step = low + step, step * 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return high


def _place(connection: Connection, queue: Queue, offset: int, end: int) -> _Place | None:
    """Return the place of the first message in [offset, end), None without one."""
    while offset < end:
        answer = connection.ask(RequestCode.PULL_MESSAGE, pull_of(queue, offset, 1))
        if answer.code == ResponseCode.SUCCESS:
            if len(answer.body) < FIXED_BYTES:
                raise Garbled(f"{connection.address} answered the pull at offset {offset} of {queue} with none")
            size, place = _SIZE_PLACE.unpack_from(answer.body)
            return _Place(offset, place, place + size)
        if answer.code not in _NOTHING:
            raise refused(connection.address, f"messages of {queue}", answer)
        after = number(connection.address, answer, "nextBeginOffset")
        if after <= offset:
            return None
        offset = after
    return None
