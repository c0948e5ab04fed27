"""Messages that were cut off the log, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from .schemas import Out, Text


class KeptMessageOut(Out):
    """One message that was cut off. offset: where it lay in the log. keys, unique_key, tags: "" without."""

    offset: int
    size: int
    topic: Text
    queue_id: int
    queue_offset: int
    keys: Text
    unique_key: Text
    tags: Text
    store_time_ms: int
    born_time_ms: int


class QuarantinePageOut(Out):
    """next_offset: send it as `offset` for the next page; null on the last page."""

    name: Text
    epoch: int
    from_offset: int
    to_offset: int
    records: int
    reason: Text
    cut_at_ms: int
    messages: list[KeptMessageOut]
    next_offset: int | None
