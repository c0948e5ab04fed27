"""The schedule index: the messages that wait in the timer topic, by due time, in little memory, across crashes.

The timer topic in the log is the truth. The index leads into it, is kept in `DATA/rocketbox/timers/`, and is rebuilt
from the topic when it is missing or damaged. Format page: docs/formats/timers.md.

    topic --- add ---> fresh (a heap for each lane, in memory)       indexed: every record below its offset was added
                         | more than MOST_INLINE: `save` makes a file, with a run for each lane
                       runs (sorted, read a block at a time; files of about one size are merged)
                         | take: due entries, from the lanes in turns, in order within a lane
                       taken (in memory) --- done: dropped when the log is durable past the copy
                                         --- back: to fresh, to be tried again

A lane holds the entries of one topic or of a few (`runs.lane_of`), so that no topic waits behind the crowd of another.

`state` lists the runs and how many entries at the front of each were taken, and holds the entries in memory: the fresh
ones, and the taken ones whose copy is not durable. So a crash loses no message that has no durable copy, and after
SIGKILL at most the messages delivered since the last save are delivered again.
"""

from __future__ import annotations

import heapq
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, groupby
from pathlib import Path
from typing import Any
from zlib import crc32

from ...disk import Disk
from ...errors import CorruptFile
from ...named_tuple import NamedTuple
from .apache_files import MOST_PARTS, Done, Part
from .runs import (
    ENTRY_BYTES,
    Run,
    RunFile,
    RunWriter,
    TimerEntry,
    due_of_bytes,
    is_mark,
    lane_of_bytes,
    merged,
    pack_entry,
    place_of,
    split_entries,
    unpack_entry,
)

logger = logging.getLogger(__name__)

DIRECTORY = "timers"
STATE = "state"
_TITLE = b"rocketbox timers 2\n"
#: Title of a state file of versions without lanes: all its entries are in lane 0.
_OLD_TITLE = b"rocketbox timers 1\n"
#: Entries written to a file at a time.
_PIECE = 2048
#: Most fresh entries that `save` leaves in the state file itself; more become runs.
MOST_INLINE = 2048
#: Limit for the entries in memory that are not in a run file on the disk yet; nothing is added beyond.
MOST_IN_MEMORY = 65_536
#: Number of run files of one size class at which they are merged, and the factor between two size classes.
_MERGED_AT = 8
_SIZE_STEP = 8
#: A merge drops entries whose record is gone, unless they are due within this time and may be taken while it works.
_NOT_TAKEN_MS = 3_600_000
#: Messages due within this time are not rolled, but left to delivery.
NEAR_MS = 5000
#: The largest timerPrecisionMs.
_MOST_ROUNDED_MS = 60_000
_NEVER_MS = 1 << 62
#: A save waits until the log is durable past the last indexed record: pause between two looks, most looks.
_DURABLE_S, _DURABLE_TRIES = 0.01, 300
#: Longest state file that is read. It never holds more than what can be in memory.
_MOST_STATE_BYTES = 64 << 20


class Indexed(NamedTuple):
    """End of the indexed part of the topic: every record below queue_offset. physical_offset: of the last one, or -1;
    size: of the last one, or 0."""

    queue_offset: int = 0
    physical_offset: int = -1
    size: int = 0


class Stretch(NamedTuple):
    """All records from a queue offset on, up to the next stretch, have this shift; None if it is one of several."""

    begin: int
    shift_ms: int | None


class Standing(NamedTuple):
    """An entry that waits. is_taken: delivery has taken it. due_ms: on the wall clock less its jumps; for a taken entry
    by the wall clock of when it was stored."""

    is_taken: bool
    due_ms: int


class _Lane:
    """Waiting entries of one lane. Guarded by the index's lock."""

    __slots__ = ("_first", "_is_known", "fresh", "runs")

    def __init__(self) -> None:
        self.fresh: list[bytes] = []
        self.runs: list[Run] = []
        self._first: tuple[int, bytes, Run | None] | None = None
        self._is_known = False

    def changed(self) -> None:
        """Drop the cached first entry, as the lane's entries have changed."""
        self._is_known = False

    def first(self, shift_ms: int) -> tuple[int, bytes, Run | None] | None:
        """Return the first entry as (due, entry, its run or None for a fresh one); None for an empty lane.

        shift_ms: of fresh entries. Raises OSError, CorruptFile.
        """
        if self._is_known:
            return self._first
        best: tuple[int, bytes, Run | None] | None = None
        if self.fresh:
            best = (due_of_bytes(self.fresh[0]) - shift_ms, self.fresh[0], None)
        for run in self.runs:
            head = run.head()
            if head is not None:
                due = due_of_bytes(head) - run.shift_ms
                if best is None or (due, head) < best[:2]:
                    best = (due, head, run)
        self._first, self._is_known = best, True
        return best

    def pop(self, run: Run | None) -> None:
        """Take the first entry. run: its run, None for a fresh one."""
        if run is None:
            heapq.heappop(self.fresh)
        else:
            run.pop()
        self._is_known = False


class TimerIndex:
    """The index. The thread that delivers adds and takes, the one that saves saves; any thread may read numbers."""

    def __init__(
        self,
        directory: Path,
        disk: Disk,
        durable: Callable[[], int],
        until_durable: Callable[[int], bool] | None = None,
    ) -> None:
        """durable: the log's durable position. until_durable: waits until the log is durable past a physical offset;
        False if it does not get there. Nothing is read before `load`."""
        # Constant after construction.
        self._directory = directory
        self._disk = disk
        self._durable = durable
        self._until_durable = until_durable or self._wait_durable
        # Guarded by _lock, which is held for arithmetic, and for reading a block of a run.
        self._lock = threading.Lock()
        self._lanes: dict[int, _Lane] = {}
        self._fresh_count = 0
        #: The lane that is served first the next time.
        self._turn = 0
        self._shift_ms = 0
        #: Taken entry -> its shift, if that is not 0.
        self._taken_shifts: dict[bytes, int] = {}
        #: The largest shift so far.
        self.most_shift_ms = 0
        self._jumps_ms = 0
        self._runs: list[Run] = []
        #: Taken entry -> physical offset of its copy, -1 while there is none.
        self._taken: dict[bytes, int] = {}
        self._done = 0
        #: Total size of the records of waiting messages and of marks; of a rolled one only the newest record counts.
        self.bytes = 0
        self.indexed = Indexed()
        #: Messages that were delivered before the index was made: they are left out.
        self.skip = Done()
        #: Of the indexed records. No entry has another shift than the stretch of its record.
        self._stretches: list[Stretch] = []
        self.rolled_to = 0
        #: Owned by the thread that delivers: queue offsets of records that are being rolled. Delivery leaves them alone
        #: until their copies are in the index, or there will be none.
        self.rolling: set[int] = set()
        #: Owned by the same: for messages that are being rolled, by the queue offset of their first record, what the
        #: wall clock had jumped by when they were stored.
        self.shifts: dict[int, int] = {}
        #: No entry is due more than this after its message's TIMER_OUT_MS; never decreases.
        self.rounded_ms = 1
        self._version = 0
        self._next_number = 1
        # Owned by whoever saves.
        self._saving = threading.Lock()
        self._saved_version = 0
        self._obsolete: list[RunFile] = []
        #: Damage that the thread that saves has found: the index has to be rebuilt. None without any.
        self.damaged: str | None = None
        #: Called when there is something to save, or memory is short.
        self.on_unsaved: Callable[[], None] = lambda: None

    # --- at the start

    def load(self, end: int) -> bool:
        """Load the index from the disk. False if there is none or it is damaged; the index is empty then.

        end: where the topic's queue ended when the store was opened. Raises OSError.
        """
        self._disk.make_directory(self._directory)
        path = self._directory / STATE
        try:
            if not self._disk.exists(path):
                self._remove_strangers()
                return False
            self._take_state(self._read(path), end)
        except (CorruptFile, ValueError, KeyError, TypeError, FileNotFoundError) as error:
            logger.error("timers: the schedule index is damaged and is made again from the log: %s", error)
            self.clear()
            self._remove_strangers()
            self._obsolete = []
            return False
        self._remove_strangers()
        return True

    def _read(self, path: Path) -> bytes:
        data = self._disk.read(path, _MOST_STATE_BYTES + 1)
        if not len(_TITLE) + 4 <= len(data) <= _MOST_STATE_BYTES:
            raise CorruptFile(f"timers: a state of {len(data)} bytes")
        return data

    def _take_state(self, data: bytes, end: int) -> None:
        text, crc = data[:-4], data[-4:]
        if not text.startswith((_TITLE, _OLD_TITLE)) or crc32(text).to_bytes(4, "big") != crc:
            raise CorruptFile("timers: the state file does not match its CRC")
        line, _, inline = text[len(_TITLE) :].partition(b"\n")
        state = json.loads(line)
        shifts = {int(number): int(shift) for number, shift in state.get("shifts", {}).items()}
        self.most_shift_ms = max([0, *shifts.values()])
        files: dict[int, RunFile] = {}
        for number, run_end, begin, low_physical, low_offset, *lane in state["runs"]:
            file = files.get(number)
            if file is None:
                file = files[number] = RunFile(self._disk, self._path(number), number, shifts.get(number, 0))
            self._add_runs([Run(file, lane[0] if lane else 0, begin, run_end, low_physical, low_offset)])
        for file in files.values():
            file.open(max(run.end for run in self._runs if run.file is file))
        self.indexed = Indexed(*state["indexed"])
        if self.indexed.queue_offset > end:
            raise CorruptFile("timers: the index is ahead of the log")
        self.skip = Done(*state["skip"])._replace(parts=tuple(Part(*one) for one in state.get("skipParts", [])))
        # Versions before did not note them.
        self._stretches = [Stretch(*one) for one in state.get("stretches", [(0, None)])]
        self.rolled_to = int(state["rolledTo"])
        self.rounded_ms = int(state.get("roundedMs", _MOST_ROUNDED_MS))
        self._next_number = max(files, default=0) + 1
        self._take_inline(split_entries(inline), state.get("pieces", []))
        self.bytes = int(state["bytes"]) if "bytes" in state else self._sum()

    def _take_inline(self, entries: list[bytes], pieces: list[tuple[int, int]]) -> None:
        """Add the entries of a state file. pieces: as `_inline` returns them."""
        for shift, count in pieces:
            some, entries = entries[:count], entries[count:]
            if shift and some:
                self.most_shift_ms = max(self.most_shift_ms, shift)
                self._add_file(some, shift)
            else:
                for one in some:
                    self._push(one)
        for one in entries:
            self._push(one)

    def _sum(self) -> int:
        """Return the value of `bytes`, for a state file without it."""

        def counted() -> Iterator[TimerEntry]:
            pieces = chain([self._all_fresh()], *(run.walk(run.begin) for run in self._runs))
            entries = (unpack_entry(one) for piece in pieces for one in piece)
            return (entry for entry in entries if entry.queue_offset >= self.rolled_to)

        marks = {entry.queue_offset: entry.size for entry in counted() if entry.is_mark}
        found = 0
        for entry in counted():
            if not entry.is_mark:
                found += entry.size
                marks.pop(entry.queue_offset, None)  # of the same record
        return found + sum(marks.values())

    def clear(self) -> None:
        """Empty the index, so that it can be rebuilt. Waits for a save or a merge that is under way."""
        with self._saving, self._lock:
            self.damaged = None
            for file in self._files():
                file.close()
                self._obsolete.append(file)
            self._runs, self._lanes, self._taken, self._taken_shifts = [], {}, {}, {}
            self._fresh_count = self._done = 0
            self._shift_ms = self.most_shift_ms = 0
            self.bytes = 0
            self.indexed, self.skip, self.rolled_to = Indexed(), Done(), 0
            self._stretches = []
            self._version += 1

    def start_at(self, indexed: Indexed, skip: Done) -> None:
        """Set where an empty index begins, and which messages it leaves out."""
        with self._lock:
            self.indexed, self.skip = indexed, skip
            self._version += 1

    def _remove_strangers(self) -> None:
        """Remove files that are not part of the index. One that cannot be removed stays, which delays no message."""
        known = {file.path.name for file in self._files()} | {STATE}
        for name in self._disk.names(self._directory):
            if name not in known:
                try:
                    self._disk.unlink(self._directory / name)
                except OSError as error:
                    logger.warning("timers: %s cannot be removed: %s", name, error)

    def _path(self, number: int) -> Path:
        return self._directory / f"run-{number:016d}"

    # --- questions, from any thread

    @property
    def jumps_ms(self) -> int:
        """Ms by which the wall clock has jumped in all; saved shifts are relative to it. Written by the thread that
        delivers."""
        return self._jumps_ms

    @jumps_ms.setter
    def jumps_ms(self, jumps_ms: int) -> None:
        if jumps_ms != self._jumps_ms:
            with self._lock:
                self._jumps_ms = jumps_ms
                self._version += 1
            self.on_unsaved()

    @property
    def pending(self) -> int:
        """Number of entries that are not done with."""
        return self._fresh_count + sum(run.left for run in list(self._runs)) + len(self._taken) - self._done

    def sources(self) -> tuple[list[bytes], list[tuple[int, int, int, Sequence[bytes] | None, Path]]]:
        """Return the waiting entries, in pieces that do not change: those in memory, sorted; and for each run its lane,
        the position of the first entry that was not taken, its end, the entries of its file while they are in memory,
        and the path of the file."""
        with self._lock:
            fresh = sorted([*self._all_fresh(), *(one for one, copy in self._taken.items() if copy < 0)])
            return fresh, [(run.lane, run.begin, run.end, run.file.entries, run.file.path) for run in self._runs]

    @property
    def run_count(self) -> int:
        """Number of run files."""
        return len(self._files())

    def _files(self) -> list[RunFile]:
        """Return the run files in the order in which they were made."""
        return list(dict.fromkeys(run.file for run in self._runs))

    def _all_fresh(self) -> list[bytes]:
        return [one for lane in self._lanes.values() for one in lane.fresh]

    def lowest(self) -> tuple[int, int]:
        """Return a (physical offset, queue offset) before which no record has an entry; large numbers without entries.

        A taken entry counts until its copy is durable. Both numbers may be lower than the lowest record.
        """
        with self._lock:
            durable = self._durable()
            lows = [(run.low_physical, run.low_offset) for run in self._runs if run.left]
            memory = [*self._all_fresh(), *(one for one, copy in self._taken.items() if not 0 <= copy < durable)]
        for one in memory:
            entry = unpack_entry(one)
            lows.append((entry.physical_offset, entry.queue_offset))
        none = 1 << 62
        return min((low for low, _ in lows), default=none), min((low for _, low in lows), default=none)

    def settled(self) -> Done:
        """Return bounds of the messages that were delivered, given up or cancelled for good. For an index that is
        ready."""
        with self._lock:
            durable = self._durable()
            in_hand = [one for one, copy in self._taken.items() if not 0 <= copy < durable]
            dues = [(self._taken_shifts.get(one, 0), due_of_bytes(one)) for one in in_hand if not is_mark(one)]
            dues += [(self._shift_ms, due_of_bytes(lane.fresh[0])) for lane in self._lanes.values() if lane.fresh]
            dues += [(run.shift_ms, due_of_bytes(head)) for run in self._runs if (head := run.head()) is not None]
            # A mark that was taken stays until no message of its time waits, under whatever clock.
            marks = [due_of_bytes(one) for one in in_hand if is_mark(one)]
            stretches, end = self._stretches, self.indexed.queue_offset
        first = min([due for _, due in dues], default=_NEVER_MS)
        parts: list[Part] = []
        if len(stretches) > 1:
            firsts: dict[int | None, int] = {None: first}
            for shift_ms, due in dues:
                firsts[shift_ms] = min(due, firsts.get(shift_ms, _NEVER_MS))
            ends = [*(one.begin for one in stretches[1:]), end]
            parts = [
                Part(self._before(firsts.get(one.shift_ms, _NEVER_MS)), stop)
                for one, stop in zip(stretches, ends, strict=True)
            ]
        return Done(self._before(min([first, *marks])), end, tuple(parts))

    def _before(self, due_ms: int) -> int:
        """Return a TIMER_OUT_MS before which no message is due then or later."""
        return max(0, due_ms - self.rounded_ms)

    def is_needed_below(self, physical: int) -> bool:
        """True if a record before a physical offset, below which everything was rolled, is still to be delivered:
        delivery has taken it, or it lies at a queue offset that the roll has not reached."""
        with self._lock:
            durable = self._durable()
            memory = [(one, False) for one in self._all_fresh()]
            memory += [(one, not is_mark(one)) for one, copy in self._taken.items() if not 0 <= copy < durable]
        for one, is_in_hand in memory:
            entry = unpack_entry(one)
            if entry.physical_offset < physical and (is_in_hand or entry.queue_offset >= self.rolled_to):
                return True
        return False

    def find(self, entry: TimerEntry, out_ms: int) -> Standing | None:
        """Return how the entry of a record stands; None if it no longer waits. `entry.due_ms` may differ from the one
        in the index, as timerPrecisionMs may have changed since. Raises OSError, CorruptFile."""
        due_ms, mark, offset = entry.due_ms, entry.is_mark, entry.queue_offset
        spans = [(place_of(due_ms, mark, offset), place_of(due_ms, mark, offset + 1))]
        spans.append((place_of(out_ms, True, 0), place_of(out_ms + _MOST_ROUNDED_MS + 1, True, 0)))

        def is_it(one: bytes) -> bool:
            found = unpack_entry(one)
            return found.queue_offset == offset and found.is_mark == mark

        with self._lock:
            for begin, end in spans:
                for one, copy in self._taken.items():
                    if copy < 0 and begin <= one < end and is_it(one):
                        return Standing(True, due_of_bytes(one))
                for lane in self._some_lanes(entry.lane):
                    for one in lane.fresh:
                        if begin <= one < end and is_it(one):
                            return Standing(False, due_of_bytes(one) - self._shift_ms)
                    for run in lane.runs:
                        for one in run.between(begin, end):
                            if is_it(one):
                                return Standing(False, due_of_bytes(one) - run.shift_ms)
        return None

    @property
    def drift_ms(self) -> tuple[int, int]:
        """Longest times by which waiting messages may look too late, and too early, by the wall clock, which was set.
        Any thread."""
        shifts = [self._shift_ms, *(run.shift_ms for run in self._runs)]
        return max(0, self._jumps_ms - min(shifts)), max(0, max(shifts) - self._jumps_ms)

    def _some_lanes(self, lane: int) -> list[_Lane]:
        """Return a topic's lane and lane 0, where the entries of older versions are, as far as they have entries."""
        return [self._lanes[number] for number in {0, lane} if number in self._lanes]

    def first_of_all_ms(self) -> int:
        """Return the earliest due time of the entries that wait, or were taken and have no copy yet, by the wall clock
        of when they were stored. Marks that were taken do not count. Raises OSError, CorruptFile."""
        with self._lock:
            dues = [due_of_bytes(one) for one, copy in self._taken.items() if copy < 0 and not is_mark(one)]
            dues += [due_of_bytes(lane.fresh[0]) for lane in self._lanes.values() if lane.fresh]
            dues += [due_of_bytes(head) for run in self._runs if (head := run.head()) is not None]
        return min(dues, default=_NEVER_MS)

    def later_marks(self, due_ms: int, shift_ms: float, lane: int, topic_lane: int) -> list[TimerEntry]:
        """Return marks of a due time that come after the messages they are for, or are in another lane: the clock was
        set after those messages were stored, or an older version left the message or the mark.

        due_ms: by the wall clock. shift_ms, lane: of the message. topic_lane: of its topic. Raises OSError,
        CorruptFile.
        """
        begin, end = place_of(due_ms, True, 0), place_of(due_ms, False, 0)
        found: list[bytes] = []
        with self._lock:
            for number in {0, topic_lane} & self._lanes.keys():
                one_lane, is_beside = self._lanes[number], number != lane
                if is_beside or self._shift_ms < shift_ms:
                    found += [one for one in one_lane.fresh if begin <= one < end]
                for run in one_lane.runs:
                    if is_beside or run.shift_ms < shift_ms:
                        found += run.between(begin, end)
        return [unpack_entry(one) for one in found]

    @property
    def is_shifted(self) -> bool:
        """True if the clock was set before some of the waiting messages were stored."""
        return self._shift_ms != 0 or any(run.shift_ms for run in self._runs)

    def has_later(self, shift_ms: float, lane: int, topic_lane: int) -> bool:
        """True if `later_marks` may find marks for messages with this shift and these lanes."""
        for number in (0, topic_lane):
            found = self._lanes.get(number)
            if found is not None and (number != lane or self._shift_ms < shift_ms) and found.fresh:
                return True
            if found is not None and any(
                run.left and (number != lane or run.shift_ms < shift_ms) for run in found.runs
            ):
                return True
        return False

    # --- the thread that delivers

    @property
    def is_full(self) -> bool:
        """True if nothing may be added before the next save."""
        in_files = sum(run.left for run in self._runs if run.file.is_in_memory)
        return self._fresh_count + in_files >= MOST_IN_MEMORY

    def add(
        self,
        entries: Sequence[TimerEntry],
        indexed: Indexed,
        shift_ms: int = 0,
        others: Mapping[int, Sequence[TimerEntry]] = {},
        stretches: Sequence[Stretch] = (),
    ) -> None:
        """Add the entries of the records up to `indexed`. shift_ms: what the wall clock had jumped by when they were
        stored. others: entries with another shift, by that shift: of records that were rolled, or stored by another
        leader. stretches: of these records."""
        packed = [pack_entry(entry) for entry in entries]
        with self._lock:
            known = self._stretches
            if new := [one for one in stretches if one is not stretches[0] or not known or known[-1][1] != one[1]]:
                known = [*known, *new]
                while len(known) > MOST_PARTS:
                    known[:2] = [Stretch(known[0].begin, None)]
                self._stretches = known
            if shift_ms != self._shift_ms:
                self._seal()
                self._shift_ms = shift_ms
                self.most_shift_ms = max(self.most_shift_ms, shift_ms)
            for one in packed:
                self._push(one)
            for shift, some in others.items():
                self.most_shift_ms = max(self.most_shift_ms, shift)
                self._add_file(list(map(pack_entry, some)), shift)
                packed += map(pack_entry, some)
            self.bytes += _record_bytes([*entries, *(one for some in others.values() for one in some)])
            assert indexed.queue_offset >= self.indexed.queue_offset, "the index only goes forward, until it is cleared"
            self.indexed = indexed
            self._version += 1
        self.on_unsaved()

    def _lane(self, number: int) -> _Lane:
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = _Lane()
        lane.changed()
        return lane

    def _push(self, one: bytes) -> None:
        heapq.heappush(self._lane(lane_of_bytes(one)).fresh, one)
        self._fresh_count += 1

    def next_due_ms(self) -> int | None:
        """Return when the first entry is due, on the wall clock less its jumps; None without any. Raises OSError,
        CorruptFile."""
        with self._lock:
            first = self._first()
            return None if first is None else first[0]

    def lowest_due_ms(self) -> int | None:
        """Return when the first entry is due by the wall clock, or a taken one that is due earlier; None without
        any."""
        with self._lock:
            first = self._first()
            dues = [due_of_bytes(one) for one in self._taken]
            if first is not None:
                dues.append(due_of_bytes(first[1]))
        return min(dues, default=None)

    def _first(self) -> tuple[int, bytes] | None:
        """Return the first entry of all lanes as (due, entry); None without any."""
        firsts = [first[:2] for lane in self._lanes.values() if (first := lane.first(self._shift_ms)) is not None]
        return min(firsts, default=None)

    def take(self, now_ms: float, limit: int, most_bytes: int = 1 << 62) -> list[tuple[int, bytes]]:
        """Take entries that are due and return them as (due, entry), in order; from the lanes in turns if not all can
        be taken. Raises OSError, CorruptFile.

        now_ms: on the wall clock less its jumps. limit, most_bytes: most entries, and most bytes of their records; one
        entry is taken whatever its size. The first lane that these leave out is served first the next time.
        """
        found: list[tuple[int, bytes]] = []
        size, left_out = 0, -1
        with self._lock:
            due_lanes = self._due_lanes(now_ms)
            while due_lanes:
                again: list[int] = []
                for number in due_lanes:
                    lane = self._lanes[number]
                    try:
                        first = lane.first(self._shift_ms)
                    except OSError:
                        if not found:
                            raise
                        first = None  # the next call raises it; raised here, what was taken would be lost
                    if first is None or first[0] > now_ms:
                        continue
                    due, one, run = first
                    record_bytes = unpack_entry(one).size
                    if len(found) >= limit or (found and size + record_bytes > most_bytes):
                        left_out = number if left_out < 0 else left_out
                        continue
                    size += record_bytes
                    lane.pop(run)
                    self._fresh_count -= run is None
                    self._taken[one] = -1
                    if shift_ms := self._shift_ms if run is None else run.shift_ms:
                        self._taken_shifts[one] = shift_ms
                    found.append((due, one))
                    again.append(number)
                due_lanes = again
            if left_out >= 0:
                self._turn = left_out
            if found:
                self._version += 1
        found.sort()
        return found

    def _due_lanes(self, now_ms: float) -> list[int]:
        due = [
            number
            for number, lane in self._lanes.items()
            if (first := lane.first(self._shift_ms)) is not None and first[0] <= now_ms
        ]
        return sorted(due, key=lambda number: (number < self._turn, number))

    def done(self, one: bytes, copy: int = -1, is_whole: bool = False) -> None:
        """Finish with a taken entry. copy: physical offset of its copy; -1 without one. is_whole: the entry is a mark,
        and its record is nothing but this mark."""
        with self._lock:
            if is_whole or not is_mark(one):
                self._waits_no_more(one)
            if copy < 0:
                del self._taken[one]
                self._taken_shifts.pop(one, None)
            else:
                self._taken[one] = copy
                self._done += 1
                assert self._done <= len(self._taken), "an entry stays among the taken ones until its copy is durable"
            self._version += 1
        self.on_unsaved()

    def back(self, ones: Sequence[bytes], later: Mapping[bytes, int] = {}) -> None:
        """Put taken entries back, to be taken again. later: entry -> the new, later due time of some of them."""
        if not ones:
            return
        with self._lock:
            shifted: dict[int, list[bytes]] = {}
            for one in ones:
                del self._taken[one]
                shift_ms = self._taken_shifts.pop(one, 0)
                if one in later:
                    one = pack_entry(unpack_entry(one)._replace(due_ms=later[one]))
                if shift_ms == self._shift_ms:
                    self._push(one)
                else:
                    shifted.setdefault(shift_ms, []).append(one)
            for shift_ms, some in shifted.items():
                self._add_file(some, shift_ms)
            self._version += 1
        if later:
            self.on_unsaved()

    def _waits_no_more(self, one: bytes) -> None:
        if unpack_entry(one).queue_offset >= self.rolled_to:
            self.bytes = max(0, self.bytes - unpack_entry(one).size)

    def rolled(self, queue_offset: int, old_bytes: int = 0) -> None:
        """Note that everything that waits below a queue offset was rolled. old_bytes: total size of the records that
        were copied."""
        with self._lock:
            self.bytes = max(0, self.bytes - old_bytes)
            self.rolled_to = max(self.rolled_to, queue_offset)
            self._version += 1
        self.on_unsaved()

    def _seal(self) -> None:
        """Turn the fresh entries into runs, in memory for now."""
        if not self._fresh_count:
            return
        entries = self._all_fresh()
        for lane in self._lanes.values():
            lane.fresh.clear()
        self._fresh_count = 0
        self._add_file(entries, self._shift_ms)

    def _add_file(self, entries: Sequence[bytes], shift_ms: int) -> None:
        """Add a file of these entries, in memory for now, with a run for each lane."""
        ordered = sorted(entries, key=lambda one: (lane_of_bytes(one), one))
        number = self._next_number
        self._next_number += 1
        file = RunFile(self._disk, self._path(number), number, shift_ms, ordered)
        runs, at = [], 0
        for lane, some in groupby(ordered, lane_of_bytes):
            ones = list(some)
            runs.append(Run(file, lane, at, at + len(ones), *_lowest(ones)))
            at += len(ones)
        self._add_runs(runs)

    def _join(self) -> None:
        """Join the files in memory that have the same shift. After the clock was set, `back` makes many small ones."""
        by_shift: dict[int, set[RunFile]] = {}
        for file in self._files():
            if file.is_in_memory:
                by_shift.setdefault(file.shift_ms, set()).add(file)
        for shift_ms, files in by_shift.items():
            if len(files) > 1:
                runs = [run for run in self._runs if run.file in files]
                entries = [one for run in runs for one in (run.file.entries or ())[run.begin : run.end]]
                self._remove_runs(runs.__contains__)
                self._obsolete += files
                if entries:
                    self._add_file(entries, shift_ms)

    def _add_runs(self, runs: Sequence[Run]) -> None:
        self._runs = [*self._runs, *runs]
        for run in runs:
            self._lane(run.lane).runs.append(run)

    def _remove_runs(self, gone: Callable[[Run], bool]) -> None:
        self._runs = [run for run in self._runs if not gone(run)]
        for lane in self._lanes.values():
            lane.runs = [run for run in lane.runs if not gone(run)]
            lane.changed()
        self._lanes = {number: lane for number, lane in self._lanes.items() if lane.fresh or lane.runs}

    # --- the thread that saves

    @property
    def is_unsaved(self) -> bool:
        return self._version != self._saved_version

    def save(self) -> bool:
        """Save the index; durable when it returns. False if it has to be saved again when the log is durable further.
        Raises OSError."""
        with self._saving:
            with self._lock:
                if self._version == self._saved_version:
                    return True
                if self._fresh_count > MOST_INLINE:
                    self._seal()
                self._join()
                durable = self._durable()
                for one in [one for one, copy in self._taken.items() if 0 <= copy < durable]:
                    del self._taken[one]
                    self._taken_shifts.pop(one, None)
                    self._done -= 1
                inline, pieces = self._inline()
                runs = [(run, run.begin) for run in self._runs]
                version, waits = self._version, bool(self._done)
                state: dict[str, Any] = {
                    "indexed": self.indexed,
                    "skip": self.skip[:2],
                    "stretches": [
                        (begin, None if shift is None else shift - self._jumps_ms) for begin, shift in self._stretches
                    ],
                    "roundedMs": self.rounded_ms,
                    "rolledTo": self.rolled_to,
                    "bytes": self.bytes,
                    "runs": [
                        (run.file.number, run.end, begin, run.low_physical, run.low_offset, run.lane)
                        for run, begin in runs
                        if begin < run.end
                    ],
                }
                shifts = {run.file.number: shift for run, _ in runs if (shift := run.shift_ms - self._jumps_ms)}
                if self.skip.parts:
                    state["skipParts"] = self.skip.parts
                if shifts or pieces:
                    # Left out as long as the clock was never set, because older versions do not know them.
                    state |= {"shifts": shifts, "pieces": pieces}
            # The saved index must never be ahead of the log, which a power cut may shorten.
            if state["indexed"][1] >= durable and not self._until_durable(state["indexed"][1]):
                return False
            files = dict.fromkeys(run.file for run, begin in runs if begin < run.end)
            written = [file for file in files if file.is_in_memory]
            for file in written:
                file.may_be_on_disk = True
                self._write(file.path, _in_pieces(file.entries or ()))
            if written:
                self._disk.sync_directory(self._directory)
            self._disk.replace(self._directory / STATE, _encode(state, inline))
            with self._lock:
                for file in written:
                    file.settle()
                over = {run for run, begin in runs if begin >= run.end}
                if over:
                    self._remove_runs(over.__contains__)
                self._saved_version = version - 1 if waits else version
            gone = [file for file in dict.fromkeys(run.file for run in over) if file not in files] + self._obsolete
            self._obsolete = []
            self._forget(gone)
        return not waits

    def _inline(self) -> tuple[list[bytes], list[tuple[int, int]]]:
        """Return the entries that are in no run, and (shift, count) for those of each shift, by the clock as it is now.
        The second list is empty if no entry has a shift."""
        by_shift: dict[int, list[bytes]] = {self._shift_ms: self._all_fresh()} if self._fresh_count else {}
        for one in self._taken:
            by_shift.setdefault(self._taken_shifts.get(one, 0), []).append(one)
        pieces = [(shift - self._jumps_ms, len(by_shift[shift])) for shift in sorted(by_shift)]
        inline = [one for shift in sorted(by_shift) for one in sorted(by_shift[shift])]
        return inline, pieces if any(shift for shift, _ in pieces) else []

    def _wait_durable(self, physical: int) -> bool:
        for _ in range(_DURABLE_TRIES):
            if self._durable() > physical:
                return True
            time.sleep(_DURABLE_S)
        return False

    def _write(self, path: Path, pieces: Iterable[Sequence[bytes]]) -> None:
        writer = RunWriter(self._disk, path)
        try:
            for piece in pieces:
                writer.add(piece)
            writer.finish()
        finally:
            writer.abandon()

    def _forget(self, files: Sequence[RunFile]) -> None:
        for file in files:
            file.close()
            try:
                if file.may_be_on_disk:
                    self._disk.unlink(file.path)
            except OSError as error:  # the next start removes it
                logger.warning("timers: %s cannot be removed: %s", file.path.name, error)

    def merge(self, log_begin: int, now_ms: int, pause: Callable[[], bool], everything: bool = False) -> bool:
        """Merge several files of about one size into one; True if something was merged. Raises OSError, CorruptFile.

        log_begin: records before it are gone, and their entries are dropped unless they are due soon. now_ms: of the
        wall clock. pause: called now and then, False to give up. everything: merge all files, into one for each shift.
        """
        with self._saving, self._noting_damage():
            with self._lock:
                groups = self._choose(everything)
            done = [self._merge(files, log_begin, now_ms, pause) for files in groups]
        return any(done)

    def _merge(self, chosen: list[RunFile], log_begin: int, now_ms: int, pause: Callable[[], bool]) -> bool:
        """Merge these files, which have the same shift; False if there is nothing to merge or `pause` ends it."""
        with self._lock:
            sources = sorted(
                ((run, run.begin) for run in self._runs if run.file in chosen), key=lambda source: source[0].lane
            )
            if not sources:
                return False
            number = self._next_number
            self._next_number += 1
            # By the clock as it was when these were stored.
            now_ms += sources[0][0].shift_ms - self._jumps_ms
        path = self._path(number)
        #: (lane, begin, end, lowest physical offset, lowest queue offset) of each lane in the new file.
        parts: list[tuple[int, int, int, int, int]] = []

        def pieces() -> Iterator[list[bytes]]:
            at = 0
            for lane, some in groupby(sources, lambda source: source[0].lane):
                begin, low_physical, low_offset = at, 1 << 62, 1 << 62
                for piece in merged(list(some)):
                    if not pause():
                        raise InterruptedError
                    kept = [one for one in piece if not _is_gone(one, log_begin, now_ms)]
                    if kept:
                        yield kept
                        at += len(kept)
                        physical, offset = _lowest(kept)
                        low_physical, low_offset = min(low_physical, physical), min(low_offset, offset)
                parts.append((lane, begin, at, low_physical, low_offset))

        try:
            self._write(path, pieces())
            self._disk.sync_directory(self._directory)
        except BaseException as error:  # a full disk would get fuller with each try
            with suppress(OSError):
                self._disk.unlink(path)
            if isinstance(error, InterruptedError):
                return False
            raise
        with self._lock:
            file = RunFile(self._disk, path, number, chosen[0].shift_ms)
            file.open(parts[-1][2])
            taken: dict[int, int] = {}  # lane -> how many of its first entries were taken meanwhile
            for run, begin in sources:
                taken[run.lane] = taken.get(run.lane, 0) + run.begin - begin
            self._remove_runs(lambda run: run.file in chosen)
            self._add_runs([Run(file, lane, begin + taken[lane], *rest) for lane, begin, *rest in parts])
            self._version += 1
        self._obsolete += chosen
        return True

    def _choose(self, everything: bool) -> list[list[RunFile]]:
        """Return groups of files to merge: the one of the smallest files among those that are large enough, or with
        `everything` one group for each shift."""
        left: dict[RunFile, int] = {}
        for run in self._runs:
            if not run.file.is_in_memory:
                left[run.file] = left.get(run.file, 0) + run.left
        by_size: dict[tuple[int, int], list[RunFile]] = {}
        for file, count in left.items():
            if count:
                size, step = count // MOST_INLINE, 0
                while size >= _SIZE_STEP and not everything:
                    size, step = size // _SIZE_STEP, step + 1
                by_size.setdefault((step if not everything else 0, file.shift_ms), []).append(file)
        if everything:
            return list(by_size.values())
        return next(([files] for _, files in sorted(by_size.items()) if len(files) >= _MERGED_AT), [])

    @contextmanager
    def _noting_damage(self) -> Iterator[None]:
        """Note damage that is found. Delivery may not read that place for days, and until then nothing could be
        merged."""
        try:
            yield
        except CorruptFile as error:
            self.damaged = str(error)
            raise

    def pending_in(self, begin: int, end: int, pause: Callable[[], bool]) -> bytearray:
        """Return a bit for each queue offset in [begin, end), set if it waits, or was taken and is not done with.
        Raises OSError, CorruptFile. Called on the thread that saves."""
        bits = bytearray((end - begin + 7) // 8)

        def mark(ones: Sequence[bytes]) -> None:
            for one in ones:
                at = unpack_entry(one).queue_offset - begin
                if 0 <= at < end - begin:
                    bits[at >> 3] |= 1 << (at & 7)

        with self._saving:
            with self._lock:
                sources = [(run, run.begin) for run in self._runs if run.low_offset < end]
                memory = [*self._all_fresh(), *(one for one, copy in self._taken.items() if copy < 0)]
            mark(memory)
            with self._noting_damage():
                for run, first in sources:
                    for piece in run.walk(first):
                        mark(piece)
                        if not pause():
                            return bits
        return bits

    def close(self) -> None:
        """Close the files; the threads that used the index have ended."""
        for file in [*self._files(), *self._obsolete]:
            file.close()


def _is_gone(one: bytes, log_begin: int, now_ms: int) -> bool:
    entry = unpack_entry(one)
    return entry.physical_offset < log_begin and entry.due_ms > now_ms + _NOT_TAKEN_MS


def _record_bytes(entries: Sequence[TimerEntry]) -> int:
    """Return the bytes of the records of some entries. A message that was rolled has two: a mark and its own."""
    messages = {one.queue_offset for one in entries if not one.is_mark}
    return sum(one.size for one in entries if not one.is_mark or one.queue_offset not in messages)


def _in_pieces(entries: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for at in range(0, len(entries), _PIECE):
        yield entries[at : at + _PIECE]


def _lowest(entries: Sequence[bytes]) -> tuple[int, int]:
    """Return the lowest physical offset and the lowest queue offset of the entries' records."""
    found = [unpack_entry(one) for one in entries]
    return min(one.physical_offset for one in found), min(one.queue_offset for one in found)


def _encode(state: dict[str, Any], inline: Sequence[bytes]) -> bytes:
    text = _TITLE + json.dumps(state, separators=(",", ":")).encode() + b"\n" + b"".join(inline)
    return text + crc32(text).to_bytes(4, "big")


assert ENTRY_BYTES == 32
