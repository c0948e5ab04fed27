"""Publication: up to which place of the log readers see messages, and who has to agree before they do.

A watermark is a physical offset that only grows: so far the log has come in one respect. `written` is what pwrite took,
`durable` what was synced; a replica's acknowledgements would be a third one. A tick is published when every watermark
has reached its end, so that what a reader saw is never taken back by what a watermark guards against:

    published <= every watermark <= written

In async flush `written` is the only one, and a tick is published where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Publication:
    """Written by remoting-io, and by recovery before it runs; read by anyone."""

    __slots__ = ("last_record_offset", "messages", "published", "watermarks")

    def __init__(self, watermarks: Mapping[str, Callable[[], int]]) -> None:
        #: Name -> how to ask for it. Constant once the store is open; one that joins later comes in another table.
        self.watermarks = dict(watermarks)
        self.published = 0
        #: Where the last published record begins; -1 in an empty log.
        self.last_record_offset = -1
        #: Messages published since the start.
        self.messages = 0

    def limit(self) -> int:
        """Up to where ticks may be published."""
        return min([watermark() for watermark in self.watermarks.values()])

    def allows(self, end: int) -> bool:
        """Whether a tick that ends there may be published: as `limit`, and cheaper, for the end of each tick."""
        for watermark in self.watermarks.values():  # noqa: SIM110 - all() of a generator takes twice as long
            if watermark() < end:
                return False
        return True

    def begin(self, end: int, last_record_offset: int) -> None:
        """The log as recovery found it is durable, and published."""
        self.published, self.last_record_offset = end, last_record_offset

    def advance(self, end: int, last_record_offset: int, messages: int) -> None:
        """A tick is published whose last record begins at `last_record_offset`, and which ends at `end`."""
        assert self.published <= last_record_offset < end, (self.published, last_record_offset, end)
        self.published, self.last_record_offset = end, last_record_offset
        self.messages += messages
