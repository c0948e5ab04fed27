"""Takes a sample of all figures every 30 seconds. The hour under way is in memory and is written every few minutes.

A figure belongs to the slot of the wall clock in which it was taken. A slot without a sample, because RocketBox did not
run, stays empty; so does the slot of a figure that was not known. When the clock jumps, another hour is begun with the
figures that the file has of it already.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ... import runtime
from ...engine.clock import SYSTEM, Clock
from ...engine.errors import AdminError
from ...engine.service_thread import ServiceThread
from . import codes
from .file import (
    DAY_MS,
    FINE_MS,
    FINE_SLOTS,
    HOUR_MS,
    HOURS_OF_A_DAY,
    MAX_BYTES,
    HistoryFile,
    Span,
    bits,
    coarse_of,
    set_aside,
)

if TYPE_CHECKING:
    from ...engine.window.figures.measurements import Measurement

logger = logging.getLogger(__name__)

#: Seconds between two writes of the hour under way; a kill loses at most the figures of this time.
WRITE_EVERY_S = 300.0
#: A clock that was set, or that a start finds, is believed after this long; a smaller step is none.
BELIEVED_AFTER_S, _STEP_MS = 3600.0, 600_000
#: Seconds of rest between lists of figures, and between pieces of a write, so that other threads can run.
REST_S = 0.005
#: Rows made, or read, in one piece.
PIECE = 100
#: Most series of a sample, which bounds memory; of more, those that were measured last are kept.
MOST_SERIES = 30_000
_RETRY_S = 60.0


class Hour:
    """The figures of one hour, slot by slot. A series that was zero in every slot has no array."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.taken = bytearray(FINE_SLOTS)
        self.rows: dict[int, array[int]] = {}
        #: Series that were zero in every slot that was taken.
        self.zeros: set[int] = set()
        #: Rows that changed since they were written.
        self.changed: set[int] = set()

    def put(self, slot: int, figures: Iterable[tuple[int, int]]) -> None:
        """Set all figures of a slot, given as (series, code)."""
        first = not any(self.taken)
        again = bool(self.taken[slot])
        seen = set()
        for series, code in figures:
            seen.add(series)
            row = self.rows.get(series)
            if row is None:
                if code == 0 and (first or series in self.zeros):
                    self.zeros.add(series)
                    continue
                row = self._row(series)
            if again or code != codes.NONE:
                row[slot] = code
                self.changed.add(series)
        for series in [series for series in self.zeros if series not in seen]:
            self._row(series)  # it is gone, or was not known
        if again:
            for series, row in self.rows.items():
                if series not in seen:
                    row[slot] = codes.NONE
        self.taken[slot] = 1

    def _row(self, series: int) -> array[int]:
        """Give a series its own array, filled with the zeros that it had so far."""
        row = codes.blank(FINE_SLOTS)
        if series in self.zeros:
            self.zeros.discard(series)
            for slot, taken in enumerate(self.taken):
                if taken:
                    row[slot] = 0
        self.rows[series] = row
        self.changed.add(series)
        return row

    def codes_of(self, series: int) -> array[int] | None:
        """Return a copy of the codes of a series; None if it was not measured."""
        row = self.rows.get(series)
        if row is not None:
            return array("H", row)
        if series not in self.zeros:
            return None
        return array("H", [0 if taken else codes.NONE for taken in self.taken])


class Recorder(ServiceThread):
    """The thread `metric-history` of the console. Owns the file and `hour`, which anyone reads under `lock`."""

    def __init__(
        self,
        directory: Path,
        measure: Callable[[], Iterator[list[Measurement]]] | None = None,
        clock: Clock = SYSTEM,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        super().__init__("metric-history", clock)
        # Constant after construction.
        self.directory = directory
        self._measure = measure or (lambda: runtime.window().measurements.take(FINE_MS // 1000))
        self._max_bytes = max_bytes
        # Guards `hour` and `_ids`, for the time of a few hundred steps.
        self.lock = threading.Lock()
        self.hour: Hour | None = None
        #: Slot of the last sample, in that hour.
        self._slot: int | None = None
        self._ids: dict[str, dict[str, int]] = {}
        # Owned by the thread.
        self._file: HistoryFile | None = None
        self._new: list[tuple[int, str, str]] = []
        self._last_id = 0
        self._tidied: int | None = None
        self._wrote_at = 0.0
        # The last reading of the clocks (wall ms, steady), and when a step was seen.
        self._read = clock.wall_ms(), clock.steady()
        self._set_at = clock.steady()
        # flush() waits for the hour under way to be written.
        self._wanted = False
        self._written = threading.Event()
        #: SQLite's or the system's reason why writing fails; None while it works. Set by the thread.
        self.failure: str | None = None
        #: Number of samples so far.
        self.samples = 0

    # --- the thread

    def run(self) -> None:
        while not self.stopped:
            now_ms = self.clock.wall_ms()
            # In the middle of a slot, so that no small step of the clock leaves one out.
            left = (FINE_MS - (now_ms - FINE_MS // 2) % FINE_MS) / 1000
            if self.wait(left):
                if self._wanted and not self.stopped:
                    self._write_for_others()
                continue
            if not self.stopped:
                self.step()
        self._close()

    def _write_for_others(self) -> None:
        self._wanted = False
        try:
            self.write()
        except (sqlite3.Error, OSError) as error:
            self._fail(error)
        finally:
            self._written.set()

    def step(self) -> None:
        """Take one sample, and write when it is time. A failure is logged, and the write is tried again later."""
        try:
            if self._file is None:
                self._try_to_open()
            self.sample(self._look_at_clock())
            if self.clock.monotonic() - self._wrote_at >= WRITE_EVERY_S:
                self.write()
        except (AdminError, runtime.EngineNotRunning):
            pass  # the engine starts or stops, or has no broker: a gap
        except (sqlite3.Error, OSError) as error:
            self._fail(error)
        except Exception:
            logger.exception("history: a sample failed")

    def _look_at_clock(self) -> int:
        wall_ms, steady = self.clock.wall_ms(), self.clock.steady()
        before_ms, before = self._read
        if abs(wall_ms - before_ms - (steady - before) * 1000) > _STEP_MS:
            self._set_at = steady
        self._read = wall_ms, steady
        return wall_ms

    def _try_to_open(self) -> None:
        """Open the file. If that fails, samples are still taken: alerts are judged by them."""
        try:
            self._open()
        except (sqlite3.Error, OSError) as error:
            self._fail(error)

    def _fail(self, error: sqlite3.Error | OSError) -> None:
        if self.failure is None:
            logger.warning("history: what is measured cannot be kept: %s", error)
        self.failure = str(error)
        self._wrote_at = self.clock.monotonic() - WRITE_EVERY_S + _RETRY_S
        # The lowest byte of an extended code is the primary code.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            self._set_aside()

    def _set_aside(self) -> None:
        """Rename a damaged file, which keeps its bytes; a new file will begin with the hour under way."""
        try:
            if self._file is not None:
                self._file.close()
            self._file = None
            logger.error("history: the file is damaged and was set aside: %s", set_aside(self.directory))
        except (sqlite3.Error, OSError) as error:
            logger.error("history: the damaged file cannot be set aside: %s", error)

    def _close(self) -> None:
        try:
            if self._file is not None:
                self.write(rest=False)
        except (sqlite3.Error, OSError) as error:
            logger.warning("history: the last minutes cannot be kept: %s", error)
        finally:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open(self) -> None:
        file = HistoryFile(self.directory, self._max_bytes)
        ids: dict[str, dict[str, int]] = {}
        for number, name, label in file.all_series():
            ids.setdefault(name, {})[sys.intern(label)] = number  # five figures of a group, one text
            self._last_id = max(self._last_id, number)
        with self.lock:
            before, self._ids = self._ids, ids
        self._new.clear()
        self._file = file
        self._wrote_at = self.clock.monotonic()
        if self.hour is not None:
            self._carry_over(self.hour, before)

    def _carry_over(self, hour: Hour, before: dict[str, dict[str, int]]) -> None:
        """Take over figures of this hour that were measured before the file was open: the file has other ids for their
        series."""
        taken_up = self._take_up(hour.number)
        with self.lock:
            numbers = [
                (old, self._id(name, label))
                for name, of_name in before.items()
                for label, old in of_name.items()
                if old in hour.rows or old in hour.zeros
            ]
        for slot in [slot for slot, taken in enumerate(hour.taken) if taken]:
            taken_up.put(slot, [(new, hour.rows[old][slot] if old in hour.rows else 0) for old, new in numbers])
        with self.lock:
            self.hour = taken_up

    # --- a sample

    def sample(self, wall_ms: int) -> None:
        """Measure every figure, and put all of them into their slot at once."""
        number, slot = wall_ms // HOUR_MS, wall_ms % HOUR_MS // FINE_MS
        series, figures = array("L"), array("H")
        for measurements in self._measure():
            with self.lock:
                series.extend([self._id(one.name, one.label) for one in measurements])
            figures.extend([codes.encode(one.value) for one in measurements])
            if self.stopped:
                return
            self.wait(REST_S)
        del series[MOST_SERIES:], figures[MOST_SERIES:]  # of topics: groups and the broker come first
        hour = self.hour
        if hour is None or hour.number != number:
            if hour is not None:
                self.write()
            hour = self._take_up(number)
        with self.lock:
            hour.put(slot, zip(series, figures, strict=True))
            self.hour, self._slot = hour, slot
        self.samples += 1

    def _id(self, name: str, label: str) -> int:
        known = self._ids.setdefault(name, {})
        number = known.get(label)
        if number is None:
            self._last_id += 1
            number = known[label] = self._last_id
            self._new.append((number, name, label))
        return number

    def _take_up(self, number: int) -> Hour:
        """Return an hour with the figures that the file has of it; empty if there are none."""
        hour = Hour(number)
        file = self._file
        known = None if file is None else file.span("fine", number)
        if file is None or known is None:
            return hour
        hour.taken[:] = known.taken
        for series, data in file.rows("fine", number):
            hour.rows[series] = codes.unpack(data)
        hour.zeros = {
            series for of_name in self._ids.values() for series in of_name.values() if known.is_zero(series)
        } - hour.rows.keys()
        return hour

    # --- writing

    def write(self, *, rest: bool = True) -> None:
        """Write the changes of the hour under way. Once an hour it also tidies: after midnight that writes the coarse
        rows of the day before."""
        file, hour = self._file, self.hour
        if file is None or hour is None:
            return
        with self.lock:
            new = self._new[:]
        changed = hour.changed
        with file.db:
            file.db.execute("BEGIN")
            file.add_series(new)
            file.put("fine", hour.number, Span(bytes(hour.taken), bits(hour.zeros)), ())
            rows = list(changed)
            for n in range(0, len(rows), PIECE):
                piece = rows[n : n + PIECE]
                file.put_rows("fine", hour.number, [(one, codes.pack(hour.rows[one])) for one in piece])
                if rest:
                    self.wait(REST_S)
        changed.clear()
        self.failure = None
        del self._new[: len(new)]
        self._wrote_at = self.clock.monotonic()
        if rest and self._tidied != hour.number:
            self._tidied = hour.number
            self._tidy(file, hour.number)

    def _tidy(self, file: HistoryFile, hour: int) -> None:
        """Once an hour: write the coarse rows of days that are over, and drop spans that have expired or do not fit."""
        today = hour // HOURS_OF_A_DAY
        for day in file.days_to_make(today):
            self._make_coarse(file, day)
            if self.stopped:
                return
        is_believed = self.clock.steady() - self._set_at >= BELIEVED_AFTER_S
        dropped = file.make_room(hour, today * HOURS_OF_A_DAY, is_believed)
        if dropped:
            logger.info("history: dropped %s", "; ".join(dropped))
        if len(file.all_series()) > MOST_SERIES:
            with self.lock:
                living = set() if self.hour is None else self.hour.rows.keys() | self.hour.zeros
            gone = set(file.forget_series(living))
            with self.lock:
                for of_name in self._ids.values():
                    for label in [label for label, number in of_name.items() if number in gone]:
                        del of_name[label]

    def _make_coarse(self, file: HistoryFile, day: int) -> None:
        first = day * HOURS_OF_A_DAY
        spans = file.spans("fine", first, first + HOURS_OF_A_DAY - 1)
        taken = bytearray(DAY_MS // (HOUR_MS // 4))
        for hour, span in spans.items():
            for quarter in range(4):
                each = FINE_SLOTS // 4
                taken[(hour - first) * 4 + quarter] = any(span.taken[quarter * each : (quarter + 1) * each])
        made: list[tuple[int, bytes]] = []
        zeros = []
        for n, (series, _, _) in enumerate(file.all_series(), 1):
            data = file.rows_of("fine", series, first, first + HOURS_OF_A_DAY - 1)
            measured = [hour for hour, span in spans.items() if hour in data or span.is_zero(series)]
            if not measured:
                continue
            if not data and len(measured) == len(spans):
                zeros.append(series)
                continue
            hours = {
                hour: codes.unpack(data[hour])
                if hour in data
                else array("H", [0 if one else codes.NONE for one in spans[hour].taken])
                for hour in measured
            }
            columns = coarse_of(hours, day)
            made.append((series, codes.pack(codes.encode(value) for column in columns for value in column)))
            if not n % PIECE:
                self.wait(REST_S)
                if self.stopped:
                    return
        with file.db:
            file.db.execute("BEGIN")
            file.put("coarse", day, Span(bytes(taken), bits(zeros)), made)

    # --- anyone

    def flush(self, seconds: float) -> bool:
        """Have the hour under way written now, so that another process can read it. Return True if the write was tried
        within `seconds`, even if it failed."""
        if not self.alive:
            return False
        self._written.clear()
        self._wanted = True
        self.wakeup()
        return self._written.wait(seconds)

    def series_id(self, name: str, label: str) -> int | None:
        with self.lock:
            return self._ids.get(name, {}).get(label)

    def labels(self, name: str) -> list[str]:
        """Return the topics or groups for which this figure is measured."""
        with self.lock:
            return list(self._ids.get(name, ()))

    @property
    def hour_number(self) -> int | None:
        """Number of the hour under way; None before the first sample."""
        hour = self.hour
        return None if hour is None else hour.number

    def newest(self, names: Iterable[str]) -> tuple[int, dict[str, dict[str, float]]]:
        """Return the number of this process's last sample, and its figures by name and label, without those that were
        not known. (0, {}) before the first sample."""
        found: dict[str, dict[str, float]] = {}
        number = self.samples
        for name in names:
            with self.lock:
                hour, slot = self.hour, self._slot
                if hour is None or slot is None:
                    return 0, {}
                taken = [
                    (label, hour.rows[series][slot] if series in hour.rows else 0)
                    for label, series in self._ids.get(name, {}).items()
                    if series in hour.rows or series in hour.zeros
                ]
            values = ((label, codes.decode(code)) for label, code in taken)
            found[name] = {label: value for label, value in values if value is not None}
        return number, found

    def present(self, series: int) -> tuple[int, array[int]] | None:
        """Return the number of the hour under way, and a series' codes of it; None if it was not measured."""
        with self.lock:
            hour = self.hour
            found = None if hour is None else hour.codes_of(series)
            return None if hour is None or found is None else (hour.number, found)
