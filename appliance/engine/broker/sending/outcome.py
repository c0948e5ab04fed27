"""What became of a put, as a value, and who is told (D19).

The protocol that asked makes its answer of it when that is due: a frame of the remoting protocol, a future.
Source: RocketMQ `PutMessageResult`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

import msgspec

from ...protocol.codes import ResponseCode

STORED = (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT)


class PutOutcome(msgspec.Struct, gc=False):
    """One message's or one batch's fate.

    code: SUCCESS; FLUSH_DISK_TIMEOUT (stored, not yet known to be durable); FLUSH_SLAVE_TIMEOUT (stored, and durable
    where sends wait for that, not yet known to be with a slave); any other says that nothing is promised,
    and `reason` why. Where it is stored: queue_offset, of the first message; physical_offsets, one a message;
    unique_key, of the message or as the batch as a whole has it; recall_handle, of one that waits for its time.
    """

    code: int
    queue_id: int = -1
    queue_offset: int = -1
    physical_offsets: Sequence[int] = ()
    unique_key: str = ""
    reason: str = ""
    recall_handle: str = ""

    @property
    def is_stored(self) -> bool:
        """Whether it is in the log, durable or soon."""
        return self.code in STORED


class ReplyTo(Protocol):
    """Who waits for a put."""

    def put_ended(self, outcome: PutOutcome) -> None:
        """Called once, on remoting-io: at once when it is refused, else when its tick is published or has failed."""


class Awaited:
    """Who waits for a put on another thread."""

    def __init__(self) -> None:
        self.future: Future[PutOutcome] = Future()

    def put_ended(self, outcome: PutOutcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)


def refused(code: int, reason: str) -> PutOutcome:
    """Nothing was stored, or nothing that may be relied on."""
    return PutOutcome(code, reason=reason)


def store_unavailable(reason: str) -> PutOutcome:
    """The log cannot take it: a client tries another broker after this code (D6)."""
    return refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {reason}")
