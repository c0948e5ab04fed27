"""The journal of administrators' acts on transactions: what was decided, by whom and why.

`DATA/rocketbox/transactions/decisions.journal`, in each line an act or its outcome; docs/formats/transactions.md. An
act is written and synced before it is done: a process that ends in between does it at its next start. Its outcome is
written when the log is durable, and synced only if it was refused: any other act that is done again is then refused,
because each half message is decided once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ...clock import AgeClock, Clock
from ...crc_lines import line_of, text_of
from ...disk import Disk
from ...journal_file import JournalFile

#: Time for which acts stay, unless there are too many.
KEPT_MS = 7 * 24 * 3600 * 1000
#: Largest file. It is written anew at half of it; then the oldest finished acts go, until a quarter is left.
MOST_BYTES = 4 << 20
#: Most characters of a reason.
MOST_REASON = 500

#: Values of `Ended.outcome`.
DONE, REFUSED, TOO_LATE = "done", "refused", "decided_before"


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """One act. id: grows with each; about the time in ms. action: "commit", "roll_back" or "resume". half_offset,
    physical_offset, unique_key and stored_ms together identify the half message (of a resume: the discarded one)."""

    id: int
    action: str
    by: str
    reason: str
    at_ms: int
    half_offset: int
    physical_offset: int
    unique_key: str
    stored_ms: int
    topic: str
    group: str


class Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """Outcome of an act."""

    id: int
    outcome: str
    why: str = ""


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line; exactly one of its fields is there."""

    act: Act | None = None
    ended: Ended | None = None


class DecisionJournal:
    """The journal. Any thread but remoting-io; one at a time."""

    def __init__(self, path: Path, clock: Clock, disk: Disk | None = None, most_bytes: int = MOST_BYTES) -> None:
        """Open and read it; a torn last line is cut, a damaged one left out. Raises OSError."""
        # Constant after construction.
        self._clock = clock
        self._most_bytes = most_bytes
        # Held by whoever writes; _lock is taken inside. Owns the file.
        self._writing = threading.Lock()
        # Guarded by _lock; changed by whoever holds _writing, too.
        self._lock = threading.Lock()
        self._acts: dict[int, Act] = {}
        self._ended: dict[int, Ended] = {}
        self._last_id = 0
        disk = Disk(path.parent.parent) if disk is None else disk
        if not disk.exists(path):
            disk.make_directory(path.parent)
            disk.sync_directory(path.parent.parent)  # a process that died may have made it without a sync
        self._file = JournalFile("decisions", path, most_bytes, self._content, disk)
        self._file.load(self._take_raw)
        #: Used by whoever holds _writing.
        self._ages = AgeClock(clock, max((act.at_ms for act in self._acts.values()), default=0))

    @property
    def failure(self) -> str | None:
        """Reason why the last write failed; None if it did not."""
        return self._file.failure

    def _take_raw(self, raw: bytes) -> bool:
        line = decode_line(raw)
        if line is not None:
            self._take(line)
        return line is not None

    def _take(self, line: Line) -> None:
        if line.act is not None:
            self._acts[line.act.id] = line.act
            self._last_id = max(self._last_id, line.act.id)
        if line.ended is not None and line.ended.id in self._acts:
            self._ended[line.ended.id] = line.ended

    # --- reading

    def unfinished(self) -> list[Act]:
        """Return the acts without a known outcome, the oldest first."""
        with self._lock:
            return [act for number, act in self._acts.items() if number not in self._ended]

    def of(self, physical: int) -> Act | None:
        """Return the act that decided a half message, or resumed a discarded one; None if no act did."""
        with self._lock:
            for number in reversed(self._acts):
                ended = self._ended.get(number)
                if self._acts[number].physical_offset == physical and (ended is None or ended.outcome == DONE):
                    return self._acts[number]
        return None

    def newest(self, count: int) -> list[tuple[Act, Ended | None]]:
        """Return the last acts with their outcomes, the newest first."""
        with self._lock:
            numbers = sorted(self._acts, reverse=True)[:count]
            return [(self._acts[number], self._ended.get(number)) for number in numbers]

    # --- writing

    def next_ids(self, count: int) -> range:
        """Return the ids of the next acts. Each call reserves new ones, and all of them are to be written."""
        with self._lock:
            first = max(self._last_id + 1, self._clock.wall_ms())
            self._last_id = first + count - 1
            return range(first, first + count)

    def append(self, acts: Iterable[Act]) -> None:
        """Write acts down; durable on return. Raises OSError, and then none of them is in the journal."""
        self._write([Line(act=act) for act in acts], sync=True)

    def end(self, ended: Iterable[Ended], sync: bool = False) -> None:
        """Write the outcomes of acts. Raises OSError; then they are known only until the process ends."""
        lines = [Line(ended=one) for one in ended]
        with self._lock:
            for line in lines:
                self._take(line)
        self._write(lines, sync)

    def _write(self, lines: list[Line], sync: bool) -> None:
        with self._writing:
            oldest_ms = self._ages.now_ms() - KEPT_MS
            anew = self._file.is_broken or self._file.size > self._most_bytes // 2
            if anew:
                self._trim(oldest_ms)
            self._file.append(b"".join(map(encode_line, lines)), sync, anew)
            with self._lock:
                for line in lines:
                    self._take(line)

    def _trim(self, oldest_ms: int) -> None:
        """Drop finished acts from before this time, and those for which there is no room."""
        with self._lock:
            size = sum(map(self._size_of, self._acts))
            for number in sorted(self._ended):
                if self._acts[number].at_ms > oldest_ms and size <= self._most_bytes // 4:
                    break
                size -= self._size_of(number)
                del self._acts[number], self._ended[number]

    def _size_of(self, number: int) -> int:
        ended = self._ended.get(number)
        return len(encode_line(Line(act=self._acts[number]))) + (len(encode_line(Line(ended=ended))) if ended else 0)

    def _content(self) -> bytes:
        """Return the content with which the file would be written now."""
        with self._lock:
            lines = [Line(act=act) for act in self._acts.values()]
            lines += [Line(ended=ended) for ended in self._ended.values()]
        return b"".join(map(encode_line, lines))

    def close(self) -> None:
        """Close the file; writes are refused from now on."""
        with self._writing:
            self._file.close()


def encode_line(line: Line) -> bytes:
    """Return a line's bytes, with its CRC and newline."""
    return line_of(msgspec.json.encode(line))


def decode_line(raw: bytes) -> Line | None:
    """Return a line from its bytes without the newline; None if it is damaged."""
    text = text_of(raw)
    try:
        return None if text is None else msgspec.json.decode(text, type=Line)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None
