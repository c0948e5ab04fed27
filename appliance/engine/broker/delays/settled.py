"""Waiting messages that were handled before they were due: delivered early, made dead letters, dropped, moved.

Entries of SCHEDULE_TOPIC_XXXX are never taken out or changed, as Apache may open the directory. So the entries that
delivery must step over are kept here, in `DATA/rocketbox/settled-delays`; format page: docs/formats/settled-delays.md.

    header 32: "rocketbox settled delays 1\\n", filled with zeros
    then records of 32: CRC-32 of what follows 4 | level 2 | how 2 | queue offset 8 | physical offset 8 | store time 8

All big-endian; how: 1 delivered early, 2 made a dead letter, 3 dropped, 4 waits for a time of its own since. The last
three fields identify the message: a log that was cut, or another one, may hold another message at that place, and that
one is delivered.

Delivery and those who act on a message exclude each other, in memory:

    delivery                                        an operator or the cleaner
      end = enter(level, begin, wanted_end)           claim(level, offset)      refused below what delivery entered
      (begin == end: the first one is claimed: soon)  append the copy, wait until it is durable
      submits [begin, end), leaving out those         settle([...])             on the disk when it returns
        that `holds`; progress passes both            or release(...)           delivery goes on with it
      trim(level, progress) once that is saved

A crash between the copy and `settle` delivers twice and loses nothing. The caller of `settle` ensures that the message
itself is durable; otherwise its place in the queue could be another message's after a power cut.

Apart from the journals of lines (`journal_file.py`): records have one size, and members of the set read the file while
records are added to it.
"""

from __future__ import annotations

import enum
import errno
import logging
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from ...disk import Disk
from ...named_tuple import NamedTuple
from ...store.dispatch import SCHEDULE_TOPIC
from ...store.record_reader import Missing, RecordReader
from .levels import queue_of_level

logger = logging.getLogger(__name__)

NAME = "settled-delays"
#: Name that a file with a damaged header gets.
DAMAGED_NAME = NAME + ".damaged"
RECORD_BYTES = 32
HEADER = b"rocketbox settled delays 1\n".ljust(RECORD_BYTES, b"\0")
_BODY = struct.Struct(">HHqqq")
_CRC = struct.Struct(">I")
#: Records read at a time.
_READ_RECORDS = 2048
#: Records no longer needed that may stay in the file before it is written anew.
_SPARE_RECORDS = 4096
#: Largest file: four million records, read in some seconds. No act makes it larger; a larger one counts as damaged.
MOST_BYTES = 128 << 20
#: Offsets in a block of a level, a bit each.
_BLOCK = 4096
#: Most records kept that could not be written and wait for the next write.
_OWED_LIMIT = 10_000
#: Longest wait of a member of the set for records that are being written.
_ASKED_S = 0.5


class How(enum.IntEnum):
    """The way in which a message was handled."""

    DELIVERED = 1
    DEAD_LETTER = 2
    DROPPED = 3
    MOVED = 4


class Settled(NamedTuple):
    """One message: its level (from 1 on), its offset in that level's queue, and its record's place and store time."""

    level: int
    queue_offset: int
    physical_offset: int
    store_time_ms: int
    how: How


class Claim(enum.Enum):
    """Result of a claim on a message that waits."""

    YOURS = "yours"
    DELIVERED = "delivery has it, or had it"
    SETTLED = "it was handled before"
    TAKEN = "somebody else acts on it"


class _Level:
    """State of one level. bits: block number -> a bit for each settled offset of it."""

    __slots__ = ("bits", "claimed", "count", "entered", "floor")

    def __init__(self) -> None:
        self.bits: dict[int, bytearray] = {}
        self.count = 0
        self.claimed: set[int] = set()
        #: Delivery has everything below, or had it.
        self.entered = 0
        #: Delivery will not look up anything below.
        self.floor = 0

    def has(self, offset: int) -> bool:
        block = self.bits.get(offset // _BLOCK)
        return block is not None and bool(block[offset % _BLOCK >> 3] >> (offset & 7) & 1)

    def add(self, offset: int) -> None:
        if offset >= self.floor and not self.has(offset):
            block = self.bits.get(offset // _BLOCK)
            if block is None:
                block = self.bits[offset // _BLOCK] = bytearray(_BLOCK // 8)
            block[offset % _BLOCK >> 3] |= 1 << (offset & 7)
            self.count += 1

    def remove(self, offset: int) -> None:
        if self.has(offset):
            self.bits[offset // _BLOCK][offset % _BLOCK >> 3] &= ~(1 << (offset & 7))
            self.count -= 1

    def cut(self, below: int) -> None:
        """Drop the offsets below `below`."""
        self.floor = max(self.floor, below)
        for number in [number for number in self.bits if (number + 1) * _BLOCK <= below]:
            self.count -= int.from_bytes(self.bits.pop(number), "little").bit_count()
        block = self.bits.get(below // _BLOCK)
        if block is not None:
            rest = int.from_bytes(block, "little")
            kept = rest >> below % _BLOCK << below % _BLOCK
            self.count -= rest.bit_count() - kept.bit_count()
            block[:] = kept.to_bytes(_BLOCK // 8, "little")
            if not kept:
                del self.bits[below // _BLOCK]

    def between(self, begin: int, end: int) -> int:
        """Return how many offsets in [begin, end) are settled."""
        if not self.count:
            return 0
        found = 0
        for number in range(begin // _BLOCK, (end - 1) // _BLOCK + 1):
            block = self.bits.get(number)
            if block is not None:
                rest = int.from_bytes(block, "little")
                first = max(0, begin - number * _BLOCK)
                rest = rest >> first
                width = min(_BLOCK, end - number * _BLOCK) - first
                found += (rest & ((1 << width) - 1)).bit_count()
        return found


class SettledDelays:
    """Any thread. Memory: a bit for each message settled and not passed by delivery yet, and the blocks around them."""

    def __init__(self, path: Path, disk: Disk, report: Callable[[str], None]) -> None:
        """report: called with a sentence about each damage found. Nothing is read before `load`."""
        # Constant after construction.
        self._path = path
        self._disk = disk
        self._report = report
        # Guarded by _lock, which is held for arithmetic only.
        self._lock = threading.Lock()
        self._levels: dict[int, _Level] = {}
        # Guarded by _writing; _lock is taken inside.
        self._writing = threading.Lock()
        self._fd = -1
        #: Bytes of the file that are durable; anything behind them is left of a write that failed.
        self._end = 0
        #: A random number for the file's content: within one, records are only added.
        self._content = 0
        #: True while the file's content is in doubt, as after a failed sync: a new file takes its place before anything
        #: is added.
        self._doubtful = False
        self._closed = False
        self._owed: list[Settled] = []

    # --- at the start

    def load(self, is_there: Callable[[Settled], bool | None]) -> None:
        """Read the file, before delivery starts. is_there: like `is_in_log`. A file that cannot be read, or is damaged,
        is reported, and the messages are delivered."""
        try:
            records, damaged, untidy = self._read()
        except OSError as error:
            self._report(f"What was handled early of delayed messages cannot be read ({error}); it is delivered again.")
            self._doubtful = True
            return
        by_level: dict[int, list[Settled]] = {}
        for record in records:
            by_level.setdefault(record.level, []).append(record)
        kept: list[Settled] = []
        strangers = 0
        for found in by_level.values():
            # The log has the queue's order: if one message is where it was, all before it are.
            found.sort(key=lambda record: record.queue_offset)
            while found:
                there = is_there(found[-1])
                if there:
                    break
                if there is None:  # expired, and all before it with it
                    found.clear()
                    break
                found.pop()
                strangers += 1
            kept += found
        for record in kept:
            self._level(record.level).add(record.queue_offset)
        if damaged:
            self._report(
                f"Records of delayed messages that were handled early are damaged: {damaged}; these messages are "
                "delivered when they are due."
            )
        if strangers:
            self._report(
                f"Delayed messages that were handled early are no longer in the log: {strangers}; the messages in "
                "their place are delivered."
            )
        if untidy or damaged or len(kept) < len(records):
            try:
                self._begin_new_file(b"".join(map(encode, kept)))
            except OSError as error:
                logger.warning("settled delays: cannot be tidied up path=%s: %s", self._path, error)
                self._doubtful = True

    def _read(self) -> tuple[list[Settled], int, bool]:
        """Open the file if there is one; return (its records, count of damaged ones, True if anything else is in
        it)."""
        disk = self._disk
        if not disk.exists(self._path):
            return [], 0, False
        self._fd = disk.open(self._path)
        self._content = _random()
        # A process that died may have failed to sync. Anything read from here on must be durable.
        disk.fdatasync(self._fd)
        disk.forget_cached(self._fd)
        size = disk.size(self._fd)
        if not size:
            return [], 0, True
        if size > MOST_BYTES or disk.pread(self._fd, RECORD_BYTES, 0) != HEADER:
            disk.rename(self._path, self._path.with_name(DAMAGED_NAME))
            return [], max(1, size // RECORD_BYTES - 1), True
        records: list[Settled] = []
        pieces = damaged = 0
        for piece in self._pieces(size):
            pieces += 1
            record = decode(piece)
            if record is not None:
                records.append(record)
            elif any(piece):  # zeros are what a crash leaves of a write that was not acknowledged
                damaged += 1
        self._end = RECORD_BYTES + pieces * RECORD_BYTES
        if self._end != size:
            logger.warning("settled delays: torn tail cut path=%s bytes=%d", self._path, size - self._end)
        return records, damaged, self._end != size or pieces != len(records)

    def _pieces(self, size: int) -> Iterator[bytes]:
        """Yield the file's whole records."""
        at = RECORD_BYTES
        while at + RECORD_BYTES <= size:
            wanted = min(_READ_RECORDS * RECORD_BYTES, (size - at) // RECORD_BYTES * RECORD_BYTES)
            data = self._disk.pread(self._fd, wanted, at)
            if len(data) < RECORD_BYTES:
                return
            for begin in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
                yield data[begin : begin + RECORD_BYTES]
            at += len(data) // RECORD_BYTES * RECORD_BYTES

    # --- delivery

    def enter(self, level: int, begin: int, end: int) -> int:
        """Let delivery take [begin, ...) up to the offset returned, at most `end`: no one else can claim these from now
        on. Returns `begin` itself while the first one is claimed: call again soon."""
        with self._lock:
            found = self._level(level)
            if found.claimed:
                end = min((offset for offset in found.claimed if begin <= offset < end), default=end)
            found.entered = max(found.entered, end)
            assert begin <= end, "delivery never goes back"
            return end

    def holds(self, level: int, queue_offset: int) -> bool:
        """True if delivery steps over this entry."""
        found = self._levels.get(level)
        return found is not None and found.count > 0 and found.has(queue_offset)

    def between(self, level: int, begin: int, end: int) -> int:
        """Return how many of [begin, end) delivery steps over; mostly 0, and then at once."""
        found = self._levels.get(level)
        if found is None or not found.count or begin >= end:
            return 0
        with self._lock:
            return found.between(begin, end)

    def entered(self, level: int) -> int:
        """Return the queue offset below which delivery has everything, or had it."""
        found = self._levels.get(level)
        return 0 if found is None else found.entered

    def trim(self, level: int, below: int) -> None:
        """Drop everything below `below`: delivery has passed that, also after a crash."""
        with self._lock:
            found = self._level(level)
            before = found.count
            found.cut(below)
            found.entered = max(found.entered, below)
            empty = bool(before) and not any(one.count for one in self._levels.values())
        if empty and self._writing.acquire(blocking=False):
            try:
                self._empty()
            finally:
                self._writing.release()

    def _empty(self) -> None:
        with self._lock:
            if any(one.count for one in self._levels.values()):
                return
        if self._fd >= 0 and self._end > RECORD_BYTES and not self._doubtful:
            with suppress(OSError):  # records that stay are below delivery's progress and do no harm
                self._disk.truncate(self._fd, RECORD_BYTES)
                self._end, self._content = RECORD_BYTES, _random()

    # --- those who act

    def claim(self, level: int, offset: int) -> Claim:
        """Claim a message. YOURS: delivery waits before it until it is settled or released."""
        with self._lock:
            found = self._level(level)
            if found.has(offset):
                return Claim.SETTLED
            if offset < max(found.entered, found.floor):
                return Claim.DELIVERED
            if offset in found.claimed:
                return Claim.TAKEN
            found.claimed.add(offset)
            return Claim.YOURS

    def release(self, level: int, offsets: Iterable[int]) -> None:
        """Give claimed messages back to delivery; nothing happened to them."""
        with self._lock:
            self._level(level).claimed.difference_update(offsets)

    def settle(self, records: Iterable[Settled], for_now: bool = False) -> None:
        """Settle claimed messages that are done; durable when it returns. Blocks for a sync.

        Raises OSError if they cannot be written; they are still claimed then. for_now: even then they are settled until
        the process ends, and written with the next ones; for messages whose copy is in the log.
        """
        new = list(records)
        with self._writing:
            try:
                self._write([*self._owed, *new])
                self._owed.clear()
            except OSError:
                if not for_now:
                    raise
                self._owed += new[: max(0, _OWED_LIMIT - len(self._owed))]
                self._mark(new)
                raise
            self._mark(new)

    def _mark(self, records: list[Settled]) -> None:
        with self._lock:
            for record in records:
                found = self._level(record.level)
                found.add(record.queue_offset)
                found.claimed.discard(record.queue_offset)

    def _level(self, level: int) -> _Level:
        found = self._levels.get(level)
        if found is None:
            found = self._levels[level] = _Level()
        return found

    # --- members of a set

    def added_since(self, content: int, at: int) -> tuple[int, int, bytes]:
        """Return (content, place, records): what was added to the file behind a place of an earlier answer, at most
        _READ_RECORDS; all from the first on if another file took its place. Raises OSError; TimeoutError while a write
        hangs."""
        if not self._writing.acquire(timeout=_ASKED_S):
            raise TimeoutError("what was handled early is being written")
        try:
            if self._fd < 0 or self._doubtful:
                return 0, 0, b""
            if content != self._content:
                at = RECORD_BYTES
            wanted = min(_READ_RECORDS * RECORD_BYTES, max(0, self._end - at))
            data = self._disk.pread(self._fd, wanted, at) if wanted else b""
            return self._content, at + len(data), data
        finally:
            self._writing.release()

    def take_copies(self, data: bytes) -> None:
        """Settle what this broker's leader settled; durable when it returns. data: records. Raises OSError."""
        decoded = (decode(data[at : at + RECORD_BYTES]) for at in range(0, len(data), RECORD_BYTES))
        if new := [one for one in decoded if one is not None and self._is_new(one)]:
            self.settle(new)

    def _is_new(self, one: Settled) -> bool:
        return one.queue_offset >= self._level(one.level).floor and not self.holds(one.level, one.queue_offset)

    # --- the file

    def _write(self, records: list[Settled]) -> None:
        if self._closed:  # the file may be another broker's by now, and a new one would have these records only
            raise OSError(errno.EBADF, "the broker that would note it has stopped")
        assert self._end % RECORD_BYTES == 0, "the file is whole records, the header counted"
        data = b"".join(map(encode, records))
        live = sum(one.count for one in list(self._levels.values()))
        if (1 + live) * RECORD_BYTES + len(data) > MOST_BYTES:
            raise OSError(errno.EFBIG, "too many delayed messages were handled early and are not due yet")
        spare = self._end // RECORD_BYTES > 2 * live + _SPARE_RECORDS or self._end + len(data) > MOST_BYTES
        if self._fd < 0 or self._doubtful or spare:
            self._begin_new_file(b"".join(map(encode, self._live_records())) + data)
            return
        try:
            self._disk.write_all(self._fd, data, self._end)
        except OSError:
            try:  # none of them was acknowledged as settled
                self._disk.truncate(self._fd, self._end)
                self._disk.fdatasync(self._fd)
            except OSError:
                self._doubtful = True
            raise
        try:
            self._disk.fdatasync(self._fd)
        except OSError:
            self._doubtful = True  # the page cache may show what the disk does not hold
            raise
        self._end += len(data)

    def _live_records(self) -> Iterator[Settled]:
        """Yield the records that the file holds durably and delivery has not passed."""
        if self._fd < 0:
            return
        if self._doubtful:
            self._disk.forget_cached(self._fd)
        for piece in self._pieces(self._end):
            record = decode(piece)
            if record is not None and self.holds(record.level, record.queue_offset):
                yield record

    def _begin_new_file(self, content: bytes) -> None:
        """Put a new file in the old one's place, durable when it returns."""
        self._disk.replace(self._path, HEADER + content)
        fd = self._disk.open(self._path)
        old, self._fd = self._fd, fd
        self._end, self._content = RECORD_BYTES + len(content), _random()
        self._doubtful = False
        if old >= 0:
            self._disk.close(old)

    def close(self) -> None:
        """Close the file; who still comes to write is refused."""
        with self._writing:
            self._closed = True
            if self._fd >= 0:
                self._disk.close(self._fd)
                self._fd = -1


def _random() -> int:
    return int.from_bytes(os.urandom(6))


def is_in_log(settled: Settled, log: RecordReader) -> bool | None:
    """True if the log has that message at its place, or cannot be read there; None if the message has expired."""
    found = log.find(settled.physical_offset)
    if isinstance(found, Missing):
        return None if found is Missing.EXPIRED else found is Missing.UNREADABLE
    record = found.record
    place = (record.topic, record.queue_id, record.queue_offset, record.store_time_ms)
    return place == (SCHEDULE_TOPIC, queue_of_level(settled.level), settled.queue_offset, settled.store_time_ms)


def encode(record: Settled) -> bytes:
    """Return a record's bytes."""
    body = _BODY.pack(record.level, record.how, record.queue_offset, record.physical_offset, record.store_time_ms)
    return _CRC.pack(crc32(body)) + body


def decode(data: bytes) -> Settled | None:
    """Return the record in these bytes; None if they are damaged."""
    if len(data) < RECORD_BYTES or _CRC.unpack_from(data)[0] != crc32(data[_CRC.size : RECORD_BYTES]):
        return None
    level, how, queue_offset, physical, stored = _BODY.unpack_from(data, _CRC.size)
    try:
        return Settled(level, queue_offset, physical, stored, How(how))
    except ValueError:
        return None
