"""What a master has delivered of the timer topic: what slaves and members get with the answer to 60, and keep.

One bound is enough while one clock stamped all: messages come in the order of their TIMER_OUT_MS. After a clock was set
those stored before and behind that come by two orders, so each part of the topic that was stamped by one clock has a
bound of its own. A mark goes by the single bound: it must not be left out while its message, in another part, is not.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from zlib import crc32

from ...named_tuple import NamedTuple

#: Fields of the answer to 60, which Apache's slaves ignore: `OUT_MS:QUEUE_OFFSET`, and `OUT_MS:END` for each part,
#: separated by `;`. Versions before the second know the first alone.
TIMERS_DONE, TIMERS_PARTS = "rocketboxTimersDone", "rocketboxTimersParts"
#: Most parts; the oldest ones are joined.
MOST_PARTS = 64
_ONE = struct.Struct(">8sqqI")
_ONE_MAGIC = b"RBdone-1"
_MANY = struct.Struct(">8sI")
_MANY_MAGIC = b"RBdone-2"
_PART = struct.Struct(">qq")
_CRC_BYTES = 4


class Part(NamedTuple):
    """Of the messages from the part before up to the queue offset `end`, those with a TIMER_OUT_MS before `out_ms` were
    delivered, cancelled or given up."""

    out_ms: int
    end: int


class Done(NamedTuple):
    """Each message whose TIMER_OUT_MS is before `out_ms` and whose record lies below `queue_offset` was delivered,
    cancelled or given up, and each mark of such a time is needed no more. parts: the same of messages, more closely, by
    ascending end; empty if that says no more."""

    out_ms: int = 0
    queue_offset: int = 0
    parts: tuple[Part, ...] = ()

    def holds(self, out_ms: int, queue_offset: int, is_mark: bool = False) -> bool:
        """True for a record that is left out. is_mark: it does nothing but cancel a message."""
        if self.parts and not is_mark:
            at = bisect_right(self.parts, queue_offset, key=lambda one: one.end)
            return at < len(self.parts) and out_ms < self.parts[at].out_ms
        return out_ms < self.out_ms and queue_offset < self.queue_offset

    def until(self, end: int) -> Done:
        """Return the same for a topic that ends at this queue offset."""
        parts = tuple(one._replace(end=min(one.end, end)) for one in self.parts)
        return Done(self.out_ms, min(self.queue_offset, end), parts)

    def fields(self) -> dict[str, str]:
        """Return the fields of the answer to 60."""
        found = {TIMERS_DONE: f"{self.out_ms}:{self.queue_offset}"}
        if self.parts:
            found[TIMERS_PARTS] = ";".join(f"{out_ms}:{end}" for out_ms, end in self.parts)
        return found

    def packed(self, checkpoint: bytes) -> bytes:
        """Return the bytes that are kept behind the 56 bytes of a checkpoint (`apache_files.py`)."""
        one = _ONE.pack(_ONE_MAGIC, self.out_ms, self.queue_offset, crc32(checkpoint))
        if not self.parts:
            return one
        many = _MANY.pack(_MANY_MAGIC, len(self.parts)) + b"".join(_PART.pack(*part) for part in self.parts)
        return one + many + crc32(checkpoint + one + many).to_bytes(_CRC_BYTES, "big")


def done_of_fields(fields: Mapping[str, str]) -> Done | None:
    """Return what a master's answer says; None if it says nothing. Raises ValueError."""
    first, *parts = [fields.get(TIMERS_DONE, ""), *fields.get(TIMERS_PARTS, "").split(";")]
    if not first:
        return None
    found = tuple(Part(*_two(part)) for part in parts if part)
    if len(found) > MOST_PARTS or any(left.end > right.end for left, right in pairwise(found)):
        raise ValueError(f"{TIMERS_PARTS}: {len(found)} parts, or not in order")
    return Done(*_two(first), found)


def _two(text: str) -> tuple[int, int]:
    out_ms, _, offset = text.partition(":")
    return int(out_ms), int(offset)


def unpack_done(checkpoint: bytes, data: bytes) -> Done | None:
    """Return what lies behind a checkpoint; None if it is not there, or the checkpoint was written since."""
    if len(data) < _ONE.size:
        return None
    magic, out_ms, offset, crc = _ONE.unpack_from(data)
    if magic != _ONE_MAGIC or crc != crc32(checkpoint) or out_ms < 0 or offset < 0:
        return None
    return Done(out_ms, offset, _unpack_parts(checkpoint, data))


def _unpack_parts(checkpoint: bytes, data: bytes) -> tuple[Part, ...]:
    begin = _ONE.size + _MANY.size
    if len(data) < begin:
        return ()
    magic, count = _MANY.unpack_from(data, _ONE.size)
    end = begin + count * _PART.size
    if magic != _MANY_MAGIC or count > MOST_PARTS or len(data) < end + _CRC_BYTES:
        return ()
    if crc32(checkpoint + data[:end]).to_bytes(_CRC_BYTES, "big") != data[end : end + _CRC_BYTES]:
        return ()
    return tuple(Part(*_PART.unpack_from(data, at)) for at in range(begin, end, _PART.size))
