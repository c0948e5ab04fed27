"""What became of a put, as a value, and who is told (D19).

The protocol that asked makes its answer of it when that is due: a frame of the remoting protocol, a future.
Source: RocketMQ `PutMessageResult`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...protocol.codes import ResponseCode


class PutOutcome(msgspec.Struct, gc=False):
    """One message's or one batch's fate.

    code: SUCCESS; FLUSH_DISK_TIMEOUT (stored, not yet known to be durable); any other says that nothing is promised,
    and `reason` why. Where it is stored: queue_offset, of the first message; physical_offsets, one a message;
    unique_key, of the message or as the batch as a whole has it.
    """

    code: int
    queue_id: int = -1
    queue_offset: int = -1
    physical_offsets: Sequence[int] = ()
    unique_key: str = ""
    reason: str = ""


class ReplyTo(Protocol):
    """Who waits for a put."""

    def put_ended(self, outcome: PutOutcome) -> None:
        """Called once, on remoting-io: at once when it is refused, else when its tick is published or has failed."""


def refused(code: int, reason: str) -> PutOutcome:
    """Nothing was stored, or nothing that may be relied on."""
    return PutOutcome(code, reason=reason)


def store_unavailable(reason: str) -> PutOutcome:
    """The log cannot take it: a client tries another broker after this code (D6)."""
    return refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {reason}")
