"""Reads measured figures by name: `series("group_lag", "billing", from_ms, to_ms)`."""

from __future__ import annotations

import sqlite3
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from ... import runtime
from ...engine.errors import InvalidInput
from ...engine.figures import KEPT
from ...engine.lazy_dataclass import dataclass
from . import codes
from .file import (
    COARSE_MS,
    COARSE_SLOTS,
    DAY_MS,
    FINE_MS,
    FINE_SLOTS,
    HOUR_MS,
    HOURS_OF_A_DAY,
    NAME,
    HistoryFile,
)
from .recorder import Recorder

#: Most points of one answer.
MOST_POINTS = 2000
#: Steps that `step_for` chooses from, in seconds.
STEPS_S = (30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)
_EACH = COARSE_MS // FINE_MS
_WHOSE = {
    "broker": gettext_noop("%(name)s is measured of the broker; name no topic and no group."),
    "topic": gettext_noop("%(name)s is measured of a topic; name one."),
    "group": gettext_noop("%(name)s is measured of a group; name one."),
}


@dataclass(frozen=True, slots=True)
class History:
    """Values in equal steps, oldest first. times_at_ms: when each step begins. averages, lows, highs: of the figures
    measured in a step; None if there are none, since nothing ran or the figure was not known. step_ms: length of a
    step."""

    name: str
    label: str
    unit: str
    step_ms: int
    times_at_ms: tuple[int, ...]
    averages: tuple[float | None, ...]
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]

    @property
    def measured(self) -> bool:
        """True if any step has a value."""
        return any(value is not None for value in self.averages)


_recorder: Recorder | None = None


def use(recorder: Recorder | None) -> None:
    """Set the recorder whose file and hour under way are read. Called at the start, and by tests."""
    global _recorder
    _recorder = recorder


def recorder() -> Recorder | None:
    """Return this process's recorder; None if there is none."""
    return _recorder


def _directory() -> Path:
    return runtime.place().directory if _recorder is None else _recorder.directory


def step_for(from_ms: int, to_ms: int, points: int) -> int:
    """Return the smallest step, in ms, that makes about `points` points at most."""
    span_s = max(1, (to_ms - from_ms) // 1000)
    longest = STEPS_S[-1]
    return 1000 * next(
        (step for step in STEPS_S if span_s <= step * points), -(-span_s // (longest * points)) * longest
    )


def kind_of(name: str) -> str:
    """Return the kind of thing that a figure measures: "broker", "topic" or "group". Raises InvalidInput."""
    figure = KEPT.get(name)
    if figure is None:
        raise InvalidInput("metric", _("Nothing is measured under this name. There are: %s.") % ", ".join(KEPT))
    return figure.of


def series(name: str, label: str, from_ms: int, to_ms: int, points: int = 300, step_ms: int | None = None) -> History:
    """Return one figure's history in [from_ms, to_ms), in about `points` steps at most, or in steps of `step_ms`.

    label: the topic or group; "" for the broker. 30 seconds is the smallest step. A series that was never measured has
    no values; it is not checked whether the topic or group exists. Any thread. Raises InvalidInput.
    """
    kind = kind_of(name)
    if (kind == "broker") == bool(label):
        raise InvalidInput("metric", _(_WHOSE[kind]) % {"name": name})
    if from_ms >= to_ms:
        raise InvalidInput("to", _("The end time is before the start time."))
    if not 1 <= points <= MOST_POINTS:
        raise InvalidInput("points", _("There may be 1 to %d points.") % MOST_POINTS)
    step = step_for(from_ms, to_ms, points) if step_ms is None else step_ms
    if step < FINE_MS or step % FINE_MS:
        raise InvalidInput("step", _("A step is 30 seconds, or several times that."))
    first = from_ms // step * step
    count = -(-(to_ms - first) // step)
    if count > MOST_POINTS:
        raise InvalidInput(
            "step",
            _("These are %(count)d steps; at most %(limit)d are told at once.")
            % {"count": count, "limit": MOST_POINTS},
        )
    steps = _Steps(first, step, count)
    try:
        _read(steps, name, label)
    except (sqlite3.Error, FileNotFoundError):
        pass  # the file cannot be read now: only figures in memory are used
    _add_present(steps, name, label)
    times = tuple(range(first, first + count * step, step))
    return History(name, label, KEPT[name].unit, step, times, *steps.columns())


def labels(name: str) -> list[str]:
    """Return the topics or groups for which this figure was measured."""
    known = set() if _recorder is None else set(_recorder.labels(name))
    try:
        with _Reader() as file:
            known.update(file.labels(name))
    except (sqlite3.Error, FileNotFoundError):
        pass
    return sorted(known)


def begin_ms() -> int | None:
    """Return the time of the oldest stored figure, in wall ms; None if there is none yet. Any thread."""
    found = []
    try:
        with _Reader() as file:
            for table, span_ms, slot_ms in (("coarse", DAY_MS, COARSE_MS), ("fine", HOUR_MS, FINE_MS)):
                for number in file.span_numbers(table)[:1]:
                    span = file.span(table, number)
                    slot = -1 if span is None else span.taken.find(1)
                    found.append(number * span_ms + max(0, slot) * slot_ms)
    except (sqlite3.Error, FileNotFoundError):
        pass  # the file cannot be read now: only figures in memory are used
    if _recorder is not None:
        with _recorder.lock:
            hour = _recorder.hour
            slot = -1 if hour is None else hour.taken.find(1)
            if hour is not None and slot >= 0:
                found.append(hour.number * HOUR_MS + slot * FINE_MS)
    return min(found, default=None)


class _Reader:
    """Gives the file to one reader at a time. The connection is kept, since a page reads a dozen series."""

    _lock = threading.Lock()
    # Guarded by _lock. _of: path and inode of the open file.
    _file: HistoryFile | None = None
    _of: tuple[str, int] | None = None

    def __enter__(self) -> HistoryFile:
        kind = type(self)
        self._lock.acquire()
        try:
            path = _directory() / NAME
            of = (str(path), path.stat().st_ino)
            if kind._file is None or kind._of != of:
                if kind._file is not None:
                    kind._file.close()
                    kind._file = None
                kind._file, kind._of = HistoryFile(path.parent, reading=True), of
            return kind._file
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *error: object) -> None:
        kind = type(self)
        if error[0] is not None and kind._file is not None:
            kind._file.close()
            kind._file = None
        self._lock.release()


class _Steps:
    """Sums up the figures of each step."""

    def __init__(self, first: int, step: int, count: int) -> None:
        self.first, self.step, self.count = first, step, count
        self.end = first + step * count
        self._sums = array("d", bytes(8 * count))
        self._counts = array("L", bytes(array("L").itemsize * count))
        self._lows = array("d", bytes(8 * count))
        self._highs = array("d", bytes(8 * count))

    def add(self, at_ms: int, value: float, low: float, high: float, weight: int = 1) -> None:
        place = (at_ms - self.first) // self.step
        if not 0 <= place < self.count:
            return
        counts = self._counts
        if not counts[place] or low < self._lows[place]:
            self._lows[place] = low
        if not counts[place] or high > self._highs[place]:
            self._highs[place] = high
        counts[place] += weight
        self._sums[place] += value * weight

    def add_fine(self, hour: int, row: array[int]) -> None:
        base = hour * HOUR_MS
        for slot, code in enumerate(row):
            if code != codes.NONE:
                value = codes.decode(code) or 0.0
                self.add(base + slot * FINE_MS, value, value, value)

    def add_coarse(self, day: int, row: array[int]) -> None:
        """Add a day's quarters of an hour. Each counts as its 30 samples; if steps are shorter than a quarter, each of
        them gets the quarter's values."""
        base = day * DAY_MS
        for slot in range(COARSE_SLOTS):
            code = row[slot]
            if code == codes.NONE:
                continue
            at = base + slot * COARSE_MS
            value, low, high = (
                codes.decode(row[slot + column]) or 0.0 for column in (0, COARSE_SLOTS, 2 * COARSE_SLOTS)
            )
            if self.step >= COARSE_MS:
                self.add(at, value, low, high, _EACH)
            else:
                for n in range(COARSE_MS // self.step):
                    self.add(at + n * self.step, value, low, high)

    def columns(self) -> Iterator[tuple[float | None, ...]]:
        counts = self._counts
        yield tuple(
            None if not count else float(f"{total / count:.6g}")
            for total, count in zip(self._sums, counts, strict=True)
        )
        for column in (self._lows, self._highs):
            yield tuple(None if not count else value for value, count in zip(column, counts, strict=True))


def _read(steps: _Steps, name: str, label: str) -> None:
    """Add the file's figures. For a day that was made coarse, the coarse ones are used if the steps are a quarter of an
    hour or longer, or if no fine ones of that day are left."""
    with _Reader() as file:
        series = file.series_id(name, label)
        if series is None:
            return
        present = None if _recorder is None else _recorder.hour_number
        first_day, last_day = steps.first // DAY_MS, (steps.end - 1) // DAY_MS
        first_hour, last_hour = steps.first // HOUR_MS, (steps.end - 1) // HOUR_MS
        days = file.spans("coarse", first_day, last_day)
        if present is not None:  # leave out days to come: the clock was set back
            days = {day: span for day, span in days.items() if day < present // HOURS_OF_A_DAY}
        fine_days = {hour // HOURS_OF_A_DAY for hour in file.span_numbers("fine")}
        coarse = {day for day in days if steps.step >= COARSE_MS or day not in fine_days}
        rows = file.rows_of("coarse", series, first_day, last_day) if coarse else {}
        for day in coarse:
            if day in rows:
                steps.add_coarse(day, codes.unpack(rows[day]))
            elif days[day].is_zero(series):
                none, zero = codes.NONE, 0
                steps.add_coarse(day, array("H", [zero if one else none for one in days[day].taken] * 3))
        hours = {
            hour: span
            for hour, span in file.spans("fine", first_hour, last_hour).items()
            if hour // HOURS_OF_A_DAY not in coarse and hour != present
        }
        rows = file.rows_of("fine", series, first_hour, last_hour) if hours else {}
        for hour, span in hours.items():
            if hour in rows:
                steps.add_fine(hour, codes.unpack(rows[hour]))
            elif span.is_zero(series):
                steps.add_fine(hour, array("H", [0 if one else codes.NONE for one in span.taken]))


def _add_present(steps: _Steps, name: str, label: str) -> None:
    if _recorder is None:
        return
    series = _recorder.series_id(name, label)
    found = None if series is None else _recorder.present(series)
    if found is not None:
        steps.add_fine(*found)


assert FINE_SLOTS * FINE_MS == HOUR_MS
