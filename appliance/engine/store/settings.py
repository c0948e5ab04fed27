"""What the store is given: its settings, the part of the event loop it uses, further services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..named_tuple import NamedTuple


class StoreSettings(NamedTuple):
    """What the store needs of the configuration; sizes in bytes."""

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
    #: Readers of what is no longer in memory are told of a slave that they may read from.
    slave_reads: bool = False
    index_enabled: bool = False
    #: Of an index file: hash slots, and entries plus one.
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    #: Queue files open for reading, and for writing.
    queue_descriptors: int = 1024


class Scheduler(Protocol):
    """The part of the event loop the store uses."""

    wall_ms: int

    def call_soon(self, callback: Callable[[], None]) -> None: ...


class Service(Protocol):
    """A thread that works behind the log."""

    def start(self) -> None: ...

    def stop(self) -> bool:
        """End it; False when it still runs, and the store is not left clean. All that was sent is published by now."""
        ...
