"""Results of the store: expected outcomes are values.

Source: RocketMQ `PutMessageStatus`, `GetMessageStatus`.
"""

from __future__ import annotations

from ..named_tuple import NamedTuple


class GetStatus:
    """Outcome of a read; the text is the remark of the response."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    #: Not set by the store: an administrator moved the group's offset.
    OFFSET_RESET = "OFFSET_RESET"


class GetResult(NamedTuple):
    """Result of reading one queue.

    runs: (physical offset, size in bytes) of adjacent matching records, in order. message_count: matching records.
    next_offset: behind the last scanned entry. min_offset, max_offset: of the queue, max being the next to come.
    read_elsewhere: these records are no longer in memory, and slaves may be read from.
    """

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    runs: list[tuple[int, int]]
    message_count: int
    size: int
    read_elsewhere: bool = False
