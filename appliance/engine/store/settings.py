"""Parameters of the store: its settings, the part of the event loop it uses, further services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..named_tuple import NamedTuple


class StoreSettings(NamedTuple):
    """Configuration of the store; sizes in bytes."""

    synchronous: bool
    segment_bytes: int
    queue_file_bytes: int
    max_bytes_in_memory: int
    max_count_in_memory: int
    max_bytes_on_disk: int
    max_count_on_disk: int
    max_scan_bytes: int
    memory_bytes: int
    delay_levels_ms: list[int]
    #: Suggest a slave to readers of messages that are no longer in memory.
    slave_reads: bool = False
    index_enabled: bool = False
    #: Sizes of an index file: number of hash slots, and of entries plus one.
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    #: Limit on queue files open for reading, and on those for writing.
    queue_descriptors: int = 1024


class Scheduler(Protocol):
    """The part of the event loop that the store uses."""

    wall_ms: int

    def call_soon(self, callback: Callable[[], None]) -> None: ...

    def new_wake_fd(self) -> int | None:
        """Return a descriptor that wakes the loop when 8 bytes are written to it, for the caller to close. None if
        there is no such thing."""
        ...


class Service(Protocol):
    """A further thread of the store, such as the cleaner."""

    def start(self) -> None: ...

    def stop(self) -> bool:
        """Stop it; False if it still runs and so the store is not left clean. All sends are published by now."""
        ...
