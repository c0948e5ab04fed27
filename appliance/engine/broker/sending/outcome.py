"""The outcome of a put as a value, and its receiver (D19).

The protocol of the request turns the outcome into an answer when that is due: a frame of the remoting protocol, a
future.
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
    """The outcome for one message or one batch.

    code: SUCCESS; FLUSH_DISK_TIMEOUT (stored, not yet known to be durable); FLUSH_SLAVE_TIMEOUT (stored, and durable
    where sends wait for that, not yet known to be with a slave). With any other code nothing is promised, and `reason`
    says why. Where it is stored: queue_offset, of the first message; physical_offsets, one a message; unique_key, of
    the message or as the batch as a whole has it; recall_handle, of one that waits for its time.
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
        """True if it is in the log, durable now or soon."""
        return self.code in STORED


class ReplyTo(Protocol):
    """Receives the outcome of a put."""

    def put_ended(self, outcome: PutOutcome) -> None:
        """Called once, on remoting-io: at once when it is refused, else when its tick is published or has failed."""


class Awaited:
    """Receives the outcome of a put for another thread, which waits for the future."""

    def __init__(self) -> None:
        self.future: Future[PutOutcome] = Future()

    def put_ended(self, outcome: PutOutcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)


def refused(code: int, reason: str) -> PutOutcome:
    """Return the outcome of a put that stored nothing, or nothing that may be relied on."""
    return PutOutcome(code, reason=reason)


def store_unavailable(reason: str) -> PutOutcome:
    """Return the outcome for a log that cannot take a message: a client tries another broker after this code (D6)."""
    return refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {reason}")
