"""The files from which an Apache broker of 5.x goes on with a store's timers: `timercheck`, `timerlog`, `timerwheel`.

RocketBox has its own schedule and needs none of them. While it runs, and so after a crash, there is `timercheck` alone,
with lower bounds, so that an old one is as safe as a new one: Apache reads the topic from there, schedules what it
finds, and delivers again what was delivered behind that place. At a clean stop `timerlog` is written as well, with a
unit for each record that waits, and `timercheck` names the topic's end. Then Apache delivers each of these once, and no
other. It makes `timerwheel` from the units.

    config/timercheck                4096 bytes: before it nothing is due, wall ms 8 | flushed position of timerlog 8
        queue offset, before it nothing waits 8 | the same for slaves 8 | data version: state 8, time 8, counter 8
    timerlog/<position, 20 digits>   files of `mappedFileSizeTimerLog`, 100 MiB, of units of 52 bytes:
        52 4 | position of the unit before it in its second, or -1 8 | 1, plus 2 for one to be rolled 4
        write time ms 8 | delay from it ms 4 | physical offset 8 | record size 4 | hash of the topic 4 | 0 8
    a file's rest of less than 68 bytes begins with: its length 4 | 0 8 | 0xCBD43194 4

A slave, and a member of a set, has behind the 56 bytes of its `timercheck` what its master had delivered, which no
Apache broker reads: "RBdone-1" 8 | wall ms 8 | queue offset 8 | crc32 of the 56 bytes 4 | "RBdone-2" 8 | how many
parts 4 | wall ms 8 and queue offset of its end 8, of each | crc32 of all before 4. Older versions wrote the first
alone. Apache's bounds begin at the first record that waits, however many records behind it were delivered. One bound is
enough while one clock stamped all: messages come in the order of their TIMER_OUT_MS. After a clock was set those stored
before and behind that come by two orders, so each part of the topic that was stamped by one clock has a bound of its
own. A mark goes by the single bound: it must not be left out while its message, in another part, is not.

A wheel or log that Apache has left would be delivered besides, so both are removed once RocketBox's checkpoint is
durable.
Source: RocketMQ 5.3.3 `TimerMessageStore.recover` and `doEnqueue`, `TimerLog`, `TimerWheel`.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from zlib import crc32

from ...disk import Disk
from ...named_tuple import NamedTuple

CHECKPOINT_BYTES = 4096
UNIT_BYTES = 52
#: mappedFileSizeTimerLog.
LOG_FILE_BYTES = 100 << 20
#: timerRollWindowSlot: a message that is due later is put into the topic again before then.
ROLL_WINDOW_S = 172_800
_SLOT_MS = 1000
_CHECKPOINT = struct.Struct(">7q")
_UNIT = struct.Struct(">iqiqiqiiq")
_BLANK = struct.Struct(">iqi")
_BLANK_MAGIC = 0xCBD43194 - (1 << 32)
_NORMAL, _ROLL = 1, 2
#: Fields of the answer to 60, which Apache's slaves ignore: `OUT_MS:QUEUE_OFFSET`, and `OUT_MS:END` for each part,
#: separated by `;`. Versions before the second know the first alone.
TIMERS_DONE, TIMERS_PARTS = "rocketboxTimersDone", "rocketboxTimersParts"
#: Most parts of what a master has delivered; the oldest ones are joined.
MOST_PARTS = 64
_ONE_DONE = struct.Struct(">8sqqI")
_ONE_DONE_MAGIC = b"RBdone-1"
_MANY = struct.Struct(">8sI")
_MANY_MAGIC = b"RBdone-2"
_PART = struct.Struct(">qq")
_CRC_BYTES = 4
#: RocketBox's mark, in place of a state version, which a master without a controller never has.
_OURS = int.from_bytes(b"RBtimer1", "big")
#: Apache looks back seven days. A message that is overdue by more than six is put where it still looks.
_OVERDUE_S = 6 * 86_400
_PASSED_MS = 8 * 86_400_000


class Part(NamedTuple):
    """Of the messages from the part before up to the queue offset `end`, those with a TIMER_OUT_MS before `out_ms` were
    delivered, cancelled or given up."""

    out_ms: int
    end: int


class Done(NamedTuple):
    """Each message whose TIMER_OUT_MS is before `out_ms` and whose record lies below `queue_offset` was delivered,
    cancelled or given up, and no message waits for a mark of such a time. parts: closer bounds of messages alone, by
    ascending end; empty where one bound is enough."""

    out_ms: int = 0
    queue_offset: int = 0
    parts: tuple[Part, ...] = ()

    def holds(self, out_ms: int, queue_offset: int, is_mark: bool = False) -> bool:
        """True for a record that is left out. is_mark: it does nothing but cancel a message."""
        if self.parts and not is_mark:
            at = bisect_right(self.parts, queue_offset, key=lambda one: one.end)
            return at < len(self.parts) and out_ms < self.parts[at].out_ms
        return out_ms < self.out_ms and queue_offset < self.queue_offset

    def until(self, end: int) -> Done:
        """Return the same for a topic that ends at this queue offset."""
        parts = tuple(one._replace(end=min(one.end, end)) for one in self.parts)
        return Done(self.out_ms, min(self.queue_offset, end), parts)

    def fields(self) -> dict[str, str]:
        """Return the fields of the answer to 60."""
        found = {TIMERS_DONE: f"{self.out_ms}:{self.queue_offset}"}
        if self.parts:
            found[TIMERS_PARTS] = ";".join(f"{out_ms}:{end}" for out_ms, end in self.parts)
        return found

    def packed(self, checkpoint: bytes) -> bytes:
        """Return the bytes that are kept behind the 56 bytes of a checkpoint."""
        one = _ONE_DONE.pack(_ONE_DONE_MAGIC, self.out_ms, self.queue_offset, crc32(checkpoint))
        many = _MANY.pack(_MANY_MAGIC, len(self.parts)) + b"".join(_PART.pack(*part) for part in self.parts)
        return one + many + crc32(checkpoint + one + many).to_bytes(_CRC_BYTES, "big")


class Checkpoint(NamedTuple):
    """Contents of `timercheck`. ours: RocketBox wrote it last, and no Apache broker ran since. done: what the master
    of a former slave had delivered; None if it is not there."""

    last_read_ms: int
    queue_offset: int
    ours: bool
    done: Done | None = None


class Unit(NamedTuple):
    """A record of the timer topic. due_ms: when it is due, wall ms; Apache's second for it is the one before."""

    due_ms: int
    physical_offset: int
    size: int


def checkpoint_path(store_dir: Path) -> Path:
    return store_dir / "config" / "timercheck"


def read_checkpoint(disk: Disk, store_dir: Path) -> Checkpoint | None:
    """Return the checkpoint; None without one, or if it holds what no broker writes. Raises OSError."""
    path = checkpoint_path(store_dir)
    if not disk.exists(path):
        return None
    data = disk.read(path, CHECKPOINT_BYTES)
    if len(data) < _CHECKPOINT.size:
        return None
    last_read_ms, _, offset, master_offset, state, _, _ = _CHECKPOINT.unpack_from(data)
    if last_read_ms < 0 or offset < 0 or master_offset < 0:
        return None
    done = unpack_done(data[: _CHECKPOINT.size], data[_CHECKPOINT.size :])
    return Checkpoint(last_read_ms, min(offset, master_offset), state == _OURS, done)


def unpack_done(checkpoint: bytes, data: bytes) -> Done | None:
    """Return what lies behind a checkpoint; None if it is not there or damaged, or the checkpoint was changed."""
    if len(data) < _ONE_DONE.size:
        return None
    magic, out_ms, offset, crc = _ONE_DONE.unpack_from(data)
    if magic != _ONE_DONE_MAGIC or crc != crc32(checkpoint) or out_ms < 0 or offset < 0:
        return None
    parts = _unpack_parts(checkpoint, data)
    return None if parts is None else Done(out_ms, offset, parts)


def _unpack_parts(checkpoint: bytes, data: bytes) -> tuple[Part, ...] | None:
    """Return the parts; none in a file of an older version. None if it is damaged."""
    begin = _ONE_DONE.size + _MANY.size
    if not data[_ONE_DONE.size :].strip(b"\0"):
        return ()
    if len(data) < begin:
        return None
    magic, count = _MANY.unpack_from(data, _ONE_DONE.size)
    end = begin + count * _PART.size
    if magic != _MANY_MAGIC or count > MOST_PARTS or len(data) < end + _CRC_BYTES:
        return None
    if crc32(checkpoint + data[:end]).to_bytes(_CRC_BYTES, "big") != data[end : end + _CRC_BYTES]:
        return None
    return tuple(Part(*_PART.unpack_from(data, at)) for at in range(begin, end, _PART.size))


def done_of_fields(fields: Mapping[str, str]) -> Done | None:
    """Return what a master's answer says; None if it says nothing. Raises ValueError."""
    first, *parts = [fields.get(TIMERS_DONE, ""), *fields.get(TIMERS_PARTS, "").split(";")]
    if not first:
        return None
    found = tuple(Part(*_two(part)) for part in parts if part)
    if len(found) > MOST_PARTS or any(left.end > right.end for left, right in pairwise(found)):
        raise ValueError(f"{TIMERS_PARTS}: {len(found)} parts, or not in order")
    return Done(*_two(first), found)


def _two(text: str) -> tuple[int, int]:
    out_ms, _, offset = text.partition(":")
    found = int(out_ms), int(offset)
    if not all(0 <= number < 1 << 63 for number in found):
        raise ValueError(f"{text[:50]} is no time and queue offset")
    return found


def copied_checkpoint(answer: bytes, done: Done | None) -> bytes:
    """Return a whole `timercheck` of a slave or member: its master's answer to 60, and what the master had delivered;
    None if that is not known."""
    return (answer + (b"" if done is None else done.packed(answer))).ljust(CHECKPOINT_BYTES, b"\0")


def checkpoint_of(last_read_ms: int, queue_offset: int, now_ms: int) -> bytes:
    """Return a whole `timercheck`. last_read_ms: no record that waits is due before; cut to Apache's second."""
    read = max(0, last_read_ms) // _SLOT_MS * _SLOT_MS
    return _CHECKPOINT.pack(read, 0, queue_offset, queue_offset, _OURS, now_ms, 0).ljust(CHECKPOINT_BYTES, b"\0")


def checkpoint_answer(last_read_ms: int, queue_offset: int, now_ms: int) -> bytes:
    """Return the answer to a slave's request 60: the fields of a `timercheck`, without RocketBox's mark."""
    read = max(0, last_read_ms) // _SLOT_MS * _SLOT_MS
    return _CHECKPOINT.pack(read, 0, queue_offset, queue_offset, 0, now_ms, 0)


def save_checkpoint(disk: Disk, store_dir: Path, last_read_ms: int, queue_offset: int, now_ms: int) -> None:
    """Write `timercheck`; durable when it returns. Raises OSError."""
    disk.replace(checkpoint_path(store_dir), checkpoint_of(last_read_ms, queue_offset, now_ms))


def remove_schedule(disk: Disk, store_dir: Path) -> None:
    """Remove Apache's wheel and log; a checkpoint says by now where the topic is to be read from. Raises OSError."""
    wheel, log = store_dir / "timerwheel", store_dir / "timerlog"
    if disk.exists(wheel):
        disk.unlink(wheel)
        disk.sync_directory(store_dir)
    if disk.is_directory(log):
        names = disk.names(log)
        for name in names:
            disk.unlink(log / name)
        if names:
            disk.sync_directory(log)


def write_timer_log(
    disk: Disk, store_dir: Path, waiting: Iterable[Unit], last: Unit, now_ms: int, file_bytes: int = LOG_FILE_BYTES
) -> int:
    """Write `timerlog` anew, durable when it returns; return the first second that Apache has to read, wall ms.

    waiting: all records that wait; those of one second in the order of their delivery. last: the last record that the
    checkpoint will cover. A crash on the way leaves the checkpoint that was there, and messages are delivered twice at
    worst. Raises OSError.
    """
    remove_schedule(disk, store_dir)
    directory = store_dir / "timerlog"
    disk.make_directories(directory)
    layout = _Layout(now_ms // 1000, file_bytes)
    base = 0
    for data in layout.files(waiting, last):
        fd = disk.open(directory / f"{base:020d}", create=True)
        try:
            disk.write_all(fd, data, 0)
            disk.truncate(fd, file_bytes)  # as Apache maps it; sparse behind the last unit
            disk.fdatasync(fd)
        finally:
            disk.close(fd)
        base += file_bytes
    disk.sync_directory(directory)
    disk.sync_directory(store_dir)
    return layout.first_s * 1000


class _Layout:
    """Units in the order in which they come, chained by the second in which Apache looks at them."""

    def __init__(self, now_s: int, file_bytes: int) -> None:
        self._now_s = now_s
        self._file_bytes = file_bytes
        self.first_s = now_s
        #: Position of the last unit of each second: of those in the roll window, and of those that have passed.
        self._window = array("q", [-1]) * ROLL_WINDOW_S
        self._passed: dict[int, int] = {}

    def files(self, waiting: Iterable[Unit], last: Unit) -> Iterator[bytearray]:
        """Yield the files, each without the zeros behind its last unit.

        The very last unit names the topic's last record, behind which Apache goes on in the topic; it lies in a second
        at which Apache does not look.
        """
        now_s, half = self._now_s, ROLL_WINDOW_S // 2
        window, passed = self._window, self._passed
        write_ms = now_s * 1000
        data = bytearray()
        position = rolled = 0
        pack = _UNIT.pack
        room = self._file_bytes - UNIT_BYTES - 16
        for unit in waiting:
            if len(data) > room:
                yield self._closed(data)
                position += self._file_bytes - position % self._file_bytes
                data = bytearray()
            second = max((unit.due_ms - 1) // 1000, now_s - _OVERDUE_S)
            magic = _NORMAL
            if second - now_s >= ROLL_WINDOW_S:
                magic |= _ROLL
                second = now_s + half + rolled % half  # apart, so that they are not all rolled at once
                rolled += 1
            at = second - now_s
            if at >= 0:
                before, window[at] = window[at], position
            else:
                before, passed[at] = passed.get(at, -1), position
                self.first_s = min(self.first_s, second)
            data += pack(UNIT_BYTES, before, magic, write_ms, at * 1000, unit.physical_offset, unit.size, 0, 0)
            position += UNIT_BYTES
        if len(data) > room:
            yield self._closed(data)
            data = bytearray()
        data += pack(UNIT_BYTES, -1, _NORMAL, write_ms, -_PASSED_MS, last.physical_offset, last.size, 0, 0)
        yield data

    def _closed(self, data: bytearray) -> bytearray:
        return data + _BLANK.pack(self._file_bytes - len(data), 0, _BLANK_MAGIC)
