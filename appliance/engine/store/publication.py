"""Publication: up to which offset readers see the log's messages, and which watermarks must reach it first.

A watermark is a physical offset that only grows: the extent of the log in one respect. `written` was taken by pwrite,
`durable` was synced; acknowledgements of replicas are a third one. A tick is published when every watermark has reached
its end, so that a message once read is never lost by an event that a watermark guards against:

    published <= every watermark <= written

In async flush `written` is the only watermark, and a tick is published as soon as it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Publication:
    """Written by remoting-io, and by recovery before it runs; any thread may read."""

    __slots__ = ("last_record_offset", "messages", "published", "watermarks")

    def __init__(self, watermarks: Mapping[str, Callable[[], int]]) -> None:
        #: Name -> function that returns it. Constant once the store is open; a later one comes with a new table.
        self.watermarks = dict(watermarks)
        self.published = 0
        #: Physical offset of the last published record; -1 in an empty log.
        self.last_record_offset = -1
        #: Number of messages published since the start.
        self.messages = 0

    def limit(self) -> int:
        """Return the offset up to which ticks may be published."""
        return min([watermark() for watermark in self.watermarks.values()])

    def allows(self, end: int) -> bool:
        """True if a tick that ends at `end` may be published. Cheaper than `limit`, for the end of each tick."""
        for watermark in self.watermarks.values():  # noqa: SIM110 - all() of a generator takes twice as long
            if watermark() < end:
                return False
        return True

    def begin(self, end: int, last_record_offset: int) -> None:
        """Publish the log as recovery found it, which is durable."""
        self.published, self.last_record_offset = end, last_record_offset

    def advance(self, end: int, last_record_offset: int, messages: int) -> None:
        """Publish a tick whose last record begins at `last_record_offset`, and which ends at `end`."""
        assert self.published <= last_record_offset < end, (self.published, last_record_offset, end)
        self.published, self.last_record_offset = end, last_record_offset
        self.messages += messages
