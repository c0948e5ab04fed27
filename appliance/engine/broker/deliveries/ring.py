"""The files of delivery events: written by one thread, read by any.

    DATA/rocketbox/deliveries/0000000001 ...

The file with the highest number is written; the one with the lowest is deleted when the budget is used up. The files
are never synced: a power cut may take the last half minute of events, and a file is read up to its first batch that is
not whole.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from ...disk import Disk
from ...journal_file import NumberedFiles
from ...named_tuple import NamedTuple
from .event_format import (
    BATCH_HEADER_BYTES,
    EVENT_BYTES,
    HEADER_BYTES,
    MOST_LOST,
    Definition,
    FileHeader,
    decode_header,
    encode_batch,
    encode_definitions,
    encode_header,
    whole_bytes,
)
from .recorder import Taken

logger = logging.getLogger(__name__)

#: The budget is shared by this many files: with each file that is deleted, such a part of the past is lost.
FILES = 16
#: A smaller budget counts as this one.
LEAST_BUDGET_BYTES = 1 << 20
#: Largest file, because a file is read as a whole; a larger budget has more files. RocketBox writes no larger ones.
MOST_FILE_BYTES = 64 << 20


class RingFile(NamedTuple):
    """A file by its number."""

    number: int
    path: Path


class DeliveryRing(NumberedFiles):
    """`write` and `open` belong to one thread."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        super().__init__(directory, disk)
        # Owned by the thread that writes.
        self._published = 0
        self._defined: set[int] = set()
        self._sizes: dict[int, int] = {}

    # --- writing

    def open(self, published: int, wall_ms: int, on: bool = True) -> None:
        """Go on behind the last whole batch of the newest file. Raises OSError.

        published: published end of the recovered log. It is written into the file: messages from there on have not been
        delivered before, even if older events of a log that was longer say so. on: True if deliveries are recorded. If
        they are not, or the last batch says that they were not, a gap is noted in the file.
        """
        self.close()
        self._disk.make_directory(self.directory)
        self._sizes = {file.number: file.path.stat().st_size for file in self.files()}
        self._number = max(self._sizes, default=0)
        self._defined, self._published = set(), published
        if self._number == 0:
            return
        path = self._path(self._number)
        data = read_file(RingFile(self._number, path))
        if data is None or decode_header(data) is None:
            return  # the next write begins another file
        end, lost = whole_bytes(data)
        gap = MOST_LOST if lost == MOST_LOST or not on else 0
        try:
            self._open_newest()
            if end < self._end:
                logger.info("deliveries: %s: %d bytes behind its last whole batch were cut off", path, self._end - end)
                self._cut(end)
            self._add(encode_batch(published, wall_ms, gap, b"", b""))
        except OSError:
            self.close()
            raise
        self._sizes[self._number] = self._end

    def write(self, taken: Taken, budget_bytes: int) -> None:
        """Append recorded events, and delete the oldest files that are beyond the budget. Raises OSError."""
        file_bytes = min(max(budget_bytes, LEAST_BUDGET_BYTES) // FILES, MOST_FILE_BYTES)
        self._append(taken, memoryview(taken.events), taken.lost, file_bytes)
        self._keep(max(budget_bytes, LEAST_BUDGET_BYTES) - file_bytes)

    def _append(self, taken: Taken, events: memoryview, lost: int, file_bytes: int) -> None:
        assert len(events) % EVENT_BYTES == 0, "a batch is whole events"
        used = numbers_in(events)
        batch = self._encode(taken, events, lost, used - self._defined)
        if self._fd < 0 or self._end + len(batch) > file_bytes:
            batch = self._encode(taken, events, lost, used)
            if HEADER_BYTES + len(batch) > file_bytes and len(events) > EVENT_BYTES:
                middle = len(events) // EVENT_BYTES // 2 * EVENT_BYTES
                self._append(taken, events[:middle], lost, file_bytes)
                self._append(taken, events[middle:], 0, file_bytes)
                return
            self._begin(taken)
        self._add(batch)
        self._published = taken.published
        self._sizes[self._number] = self._end
        self._defined |= used

    @staticmethod
    def _encode(taken: Taken, events: memoryview, lost: int, numbers: set[int]) -> bytes:
        known: dict[int, Definition] = taken.definitions
        definitions = encode_definitions((number, known[number]) for number in sorted(numbers))
        return encode_batch(taken.published, taken.wall_ms, lost, definitions, events)

    def _begin(self, taken: Taken) -> None:
        """Begin another file, whose first batch defines what it needs."""
        self._begin_file(encode_header(FileHeader(self._published, taken.wall_ms)))
        self._defined = set()
        self._sizes[self._number] = HEADER_BYTES

    def _keep(self, older_bytes: int) -> None:
        """Delete the oldest files that the budget has no room for beside the one being written."""
        older = sum(self._sizes.values()) - self._sizes.get(self._number, 0)
        for number in sorted(self._sizes):
            if older <= older_bytes or number == self._number:
                return
            try:
                self._disk.unlink(self._path(number))
            except FileNotFoundError:
                pass
            older -= self._sizes.pop(number)

    def close(self) -> None:
        """Close the file; nothing has to be synced."""
        self._close()

    # --- reading

    def files(self) -> list[RingFile]:
        """Return the ring's files, oldest first."""
        return [RingFile(number, self._path(number)) for number in self.numbers()]


def numbers_in(events: memoryview) -> set[int]:
    """Return the numbers in events. A struct of that many fields would keep all other threads waiting, and `struct`
    would remember it."""
    words = set(events.cast("I")[:: EVENT_BYTES // 4]) if events else set()
    return {int.from_bytes(word.to_bytes(4, sys.byteorder), "big") for word in words}


def read_file(file: RingFile) -> bytes | None:
    """Return all of a file; None if it has gone meanwhile, or is larger than any file of a ring. Raises OSError."""
    try:
        if file.path.stat().st_size > MOST_FILE_BYTES:
            return None
        return file.path.read_bytes()
    except FileNotFoundError:
        return None


assert HEADER_BYTES + BATCH_HEADER_BYTES < LEAST_BUDGET_BYTES // FILES
