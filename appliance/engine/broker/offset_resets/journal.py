"""The journal of offset resets: the moves of the last day, so that they can be taken back and survive a kill.

`DATA/rocketbox/offset-resets.journal`, an act or a note in each line (`records.py`; docs/formats/offset-resets.md). An
act is written and synced before it is done: if the process ends in between, its next start does the whole act. A note
says that members took a move over; it is written once the offsets since then are in consumerOffset.json. Until then
each start does the move again, and the group goes back to where it was sent, never elsewhere.

Lines older than a day are dropped when the file is rewritten, as a whole and under the same name.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ...clock import AgeClock, Clock
from ...disk import Disk
from ...journal_file import JournalFile
from .records import Line, Move, ResetRecord, decode_line, encode_line

logger = logging.getLogger(__name__)

#: Time in which an act can be taken back.
KEPT_MS = 24 * 3600 * 1000
#: Largest file, some 700,000 moves; beyond it the oldest acts are dropped before their day is over.
MOST_BYTES = 32 << 20
#: The file is rewritten when it has grown by this much.
_ANEW_BYTES = 256 << 10


class ResetJournal:
    """Any thread but remoting-io; one at a time."""

    def __init__(self, path: Path, clock: Clock, disk: Disk | None = None, most_bytes: int = MOST_BYTES) -> None:
        """Open and read the file; a torn last line is cut, a damaged one left out. Raises OSError."""
        # Constant after construction.
        self._path = path
        self._clock = clock
        self._most_bytes = most_bytes
        # Held by whoever writes; _lock is taken inside. Owns the file.
        self._writing = threading.Lock()
        # Guarded by _lock; changed by whoever holds _writing, too, who may read them without.
        self._lock = threading.Lock()
        self._records: dict[int, ResetRecord] = {}
        #: reset id -> (topic, queue id) that members have not taken over yet; no entry for a reset without any.
        self._open: dict[int, set[tuple[str, int]]] = {}
        #: (group, topic, queue id) of these queues -> the reset id.
        self._open_by: dict[tuple[str, str, int], int] = {}
        #: reset id -> topics that were deleted since.
        self._gone: dict[int, set[str]] = {}
        self._last_id = 0
        self._file = JournalFile("offset resets", path, most_bytes, self._content, disk)
        self._file.load(self._take_raw)
        self._size_last_time = self._file.size
        #: Guarded by _lock. A clock that is set forward makes no act a day old at once.
        self._ages = AgeClock(clock, max((record.at_ms for record in self._records.values()), default=0))

    @property
    def failure(self) -> str | None:
        """Reason why the last write failed; None if it did not."""
        return self._file.failure

    def _take_raw(self, raw: bytes) -> bool:
        line = decode_line(raw)
        if line is None:
            # The damaged line may have superseded the moves before it: these are not done again.
            self._open.clear()
            self._open_by.clear()
            return False
        self._take(line)
        return True

    def _take(self, line: Line) -> None:
        if line.reset is not None:
            record = line.reset
            if record.id in self._records:  # its moves lead elsewhere; which of them are over stays as it is
                self._records[record.id] = record
                return
            self._records[record.id] = record
            self._last_id = max(self._last_id, record.id)
            moved = {(move.topic, move.queue_id) for move in record.moves}
            for place in moved:
                earlier = self._open_by.get((record.group, *place))
                if earlier is not None:  # the earlier move of this queue is over
                    self._close(earlier, place)
                self._open_by[(record.group, *place)] = record.id
            if moved:
                self._open[record.id] = moved
        for number, topic, queue_id in line.over:
            self._close(number, (topic, queue_id))
        for number, topic in line.gone:
            if number in self._records:
                self._gone.setdefault(number, set()).add(topic)
                for place in [place for place in self._open.get(number, ()) if place[0] == topic]:
                    self._close(number, place)

    def _close(self, number: int, place: tuple[str, int]) -> None:
        """Note that a move is over: no member has to take it over."""
        waiting = self._open.get(number)
        if waiting is None or place not in waiting:
            return
        waiting.discard(place)
        del self._open_by[(self._records[number].group, *place)]
        if not waiting:
            del self._open[number]

    # --- reading

    def next_id(self) -> int:
        """Return the id for the next act."""
        with self._lock:
            return max(self._last_id + 1, self._clock.wall_ms())

    def get(self, number: int) -> ResetRecord | None:
        with self._lock:
            return self._records.get(number)

    def of_group(self, group: str) -> list[ResetRecord]:
        """Return the group's acts that can still be taken back or were, the newest first."""
        oldest = self.oldest_ms()
        with self._lock:
            found = [r for r in self._records.values() if r.group == group and r.at_ms > oldest]
        return sorted(found, key=lambda record: -record.id)

    def undone_by(self, number: int) -> int:
        """Return the id of the act that took this one back; 0 if none did."""
        with self._lock:
            return next((record.id for record in self._records.values() if record.undoes == number), 0)

    def gone(self, number: int) -> set[str]:
        """Return the topics of an act that were deleted since."""
        with self._lock:
            return set(self._gone.get(number, ()))

    def is_too_old(self, record: ResetRecord) -> bool:
        return record.at_ms <= self.oldest_ms()

    def oldest_ms(self) -> int:
        """Return the time before which acts are too old; wall ms."""
        with self._lock:
            return self._ages.now_ms() - KEPT_MS

    def waiting(self, number: int) -> int:
        """Return the number of queues that no member has taken over yet, or for which that is not written down yet."""
        with self._lock:
            return len(self._open.get(number, ()))

    def unfinished(self) -> list[tuple[ResetRecord, Move]]:
        """Return the moves that no member has taken over, the oldest first."""
        with self._lock:
            found = []
            for number in sorted(self._records):
                record = self._records[number]
                waiting = self._open.get(number, set())
                found += [(record, move) for move in record.moves if (move.topic, move.queue_id) in waiting]
            return found

    # --- writing

    def append(self, record: ResetRecord) -> None:
        """Write an act down; durable on return. Raises OSError, and then it is not in the journal."""
        with self._writing:
            self._trim()
            self._add(Line(reset=record))

    def correct(self, moves: Iterable[tuple[int, str, int, int]]) -> None:
        """Write down where moves lead from now on, (reset id, topic, queue id, offset). Durable on return; raises
        OSError."""
        with self._writing:
            found: dict[int, dict[tuple[str, int], int]] = {}
            for number, topic, queue_id, target in moves:
                found.setdefault(number, {})[topic, queue_id] = target
            for number, targets in found.items():
                record = self._records.get(number)
                if record is not None:
                    changed = tuple(
                        msgspec.structs.replace(move, target=targets.get((move.topic, move.queue_id), move.target))
                        for move in record.moves
                    )
                    self._add(Line(reset=msgspec.structs.replace(record, moves=changed)))

    def note(self, over: Iterable[tuple[int, str, int]], gone: Iterable[tuple[str, str]] = ()) -> None:
        """Write down which moves members took over, with their offsets saved, and which ("topic", name) or ("group",
        name) was deleted. Durable on return; raises OSError. Afterwards drop what is too old."""
        with self._writing:
            known = tuple(place for place in over if place[0] in self._records)
            lost = tuple(self._lost(gone))
            if known or lost:
                self._add(Line(over=known, gone=lost))
            self._trim()

    def _lost(self, gone: Iterable[tuple[str, str]]) -> Iterator[tuple[int, str]]:
        """Yield (reset id, topic) of the moves of a deleted topic or group."""
        for kind, name in gone:
            for number, record in self._records.items():
                if kind == "group" and record.group != name:
                    continue
                for topic in {move.topic for move in record.moves}:
                    if kind == "group" or topic == name:
                        yield number, topic

    def _add(self, line: Line) -> None:
        self._file.append(encode_line(line))
        with self._lock:
            self._take(line)

    def _trim(self) -> None:
        """Rewrite the file without the acts that are too old, when that is worth it or there is no room."""
        full = self._file.size > self._most_bytes // 2
        if not full and self._file.size - self._size_last_time < _ANEW_BYTES:
            old = next(iter(self._records.values()), None)
            # The acts of a quiet day are dropped, too, though at most once an hour.
            if old is None or old.at_ms > self.oldest_ms() - 3_600_000:
                return
        size = self._file.size
        oldest = self.oldest_ms()
        with self._lock:
            for number in sorted(self._records):
                record = self._records[number]
                if record.at_ms > oldest and (not full or size <= self._most_bytes // 4):
                    break
                size -= len(encode_line(Line(reset=record)))
                for place in self._open.get(number, ()):
                    self._open_by.pop((record.group, *place), None)
                for table in (self._records, self._open, self._gone):
                    table.pop(number, None)
        try:
            self._file.begin_anew()
        except OSError as error:
            logger.error("offset resets: the journal cannot be written anew path=%s: %s", self._path, error)
            return
        self._size_last_time = self._file.size

    def _content(self) -> bytes:
        """Return the content of the file as it would be written now."""
        lines = []
        for record in self._records.values():
            lines.append(encode_line(Line(reset=record)))
        for number, record in self._records.items():
            waiting = self._open.get(number, set())
            over = tuple(
                (number, move.topic, move.queue_id)
                for move in record.moves
                if (move.topic, move.queue_id) not in waiting
            )
            gone = tuple((number, topic) for topic in sorted(self._gone.get(number, ())))
            if over or gone:
                lines.append(encode_line(Line(over=over, gone=gone)))
        return b"".join(lines)

    def close(self) -> None:
        """Close the file, after the last write."""
        self._file.close()
