"""The measured figures, kept over restarts and wrong clocks, in a file of a fixed size."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator

import pytest

from appliance.console.history import codes, recorder, series
from appliance.console.history.file import DAY_MS, FINE_MS, HOUR_MS, NAME, HistoryFile
from appliance.console.history.recorder import Recorder
from appliance.engine.clock import Clock
from appliance.engine.errors import InvalidInput, Unavailable
from appliance.engine.window.figures.measurements import Measurement
from tests.support.clock import FakeClock
from tests.support.waiting import wait_for

#: A Monday at midnight, UTC.
MONDAY = 1_800_000_000_000 // DAY_MS * DAY_MS


class Restless(FakeClock):
    """A clock that does not wait."""

    def wait(self, gate, seconds):
        return False


class Broker:
    """A broker whose figures the test sets."""

    def __init__(self) -> None:
        self.figures: dict[tuple[str, str], float | None] = {}
        self.runs = True

    def measure(self) -> Iterator[list[Measurement]]:
        if not self.runs:
            raise Unavailable("no broker")
        for (name, label), value in self.figures.items():
            yield [Measurement(name, label, value)]


class Kept:
    """A recorder on a clock that the test turns."""

    def __init__(self, directory, max_bytes: int = 64 << 20) -> None:
        self.directory, self.max_bytes = directory, max_bytes
        self.clock = Restless(MONDAY)
        self.broker = Broker()
        self.start()

    def start(self) -> None:
        self.recorder = Recorder(self.directory, self.broker.measure, self.clock, self.max_bytes)
        series.use(self.recorder)

    def restart(self) -> None:
        """Stop and start the recorder."""
        self.recorder._close()
        self.start()

    def kill(self) -> None:
        """Start anew without what was in memory only."""
        assert self.recorder._file is not None
        self.recorder._file.close()
        self.start()

    def pass_time(self, ms: int, every_ms: int = FINE_MS) -> None:
        for _ in range(ms // every_ms):
            self.recorder.step()
            self.clock.advance(every_ms)

    def of(self, name: str, label: str = "", *, back_ms: int = HOUR_MS, step_ms: int | None = FINE_MS):
        now = self.clock.wall_ms()
        return series.series(name, label, now - back_ms, now, step_ms=step_ms)


@pytest.fixture
def kept(tmp_path):
    made = Kept(tmp_path)
    yield made
    if made.recorder._file is not None:
        made.recorder._file.close()
    series.use(None)


class Soon(Clock):
    """The real clock, set so that the next sample is due in a moment."""

    def __init__(self) -> None:
        super().__init__()
        now = super().wall_ms()
        self._ahead_ms = FINE_MS - 200 - (now - FINE_MS // 2) % FINE_MS

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms


def test_what_is_in_memory_is_written_for_who_asks(tmp_path):
    broker = Broker()
    broker.figures[("in_rate", "")] = 5.0
    recorder = Recorder(tmp_path, broker.measure, Soon())
    assert not recorder.flush(1), "nobody would write"
    recorder.start()
    try:
        wait_for(lambda: recorder.samples, "a sample")
        reader = HistoryFile(tmp_path, reading=True)
        assert reader.all_series() == []
        assert recorder.flush(60)
        ((number, name, _),) = reader.all_series()
        assert name == "in_rate"
        assert len(reader.rows_of("fine", number, 0, 1 << 40)) == 1
        reader.close()
    finally:
        recorder.stop()


def test_of_more_series_than_are_followed_the_last_ones_are_left_out(kept, monkeypatch):
    monkeypatch.setattr(recorder, "MOST_SERIES", 2)
    kept.broker.figures = {("group_lag", "g"): 3.0, ("in_rate", ""): 5.0, ("topic_in_rate", "a"): 7.0}
    kept.pass_time(3 * FINE_MS)
    assert [max(kept.of(*one).averages[-2:]) for one in (("group_lag", "g"), ("in_rate", ""))] == [3, 5]
    assert kept.of("topic_in_rate", "a").averages[-2:] == (None, None)


def test_figures_come_back_as_four_digits_and_small_counts_as_they_were():
    for value in [*range(1000), 0.5, 0.013, 12_904, 8_412.37, 412 << 30, 3.5e14]:
        assert codes.decode(codes.encode(value)) == pytest.approx(value, rel=6e-4, abs=6e-4), value
    assert [codes.decode(codes.encode(value)) for value in range(1000)] == list(range(1000))
    assert codes.decode(codes.encode(None)) is None
    assert codes.decode(codes.encode(float("nan"))) is None
    assert codes.decode(codes.encode(-1)) == 0
    assert codes.decode(codes.encode(1e300)) is not None


def test_what_was_measured_is_told_and_what_was_not_is_a_gap(kept):
    kept.broker.figures = {("group_lag", "billing"): 7, ("group_lag", "shipping"): None, ("in_rate", ""): 0}
    kept.pass_time(2 * FINE_MS)
    kept.broker.figures["group_lag", "shipping"] = 3
    kept.broker.runs = False
    kept.pass_time(2 * FINE_MS)
    kept.broker.runs = True
    kept.broker.figures["group_lag", "billing"] = 0
    kept.pass_time(2 * FINE_MS)
    back = 6 * FINE_MS
    assert kept.of("group_lag", "billing", back_ms=back).averages == (7, 7, None, None, 0, 0)
    assert kept.of("group_lag", "shipping", back_ms=back).averages == (None, None, None, None, 3, 3)
    assert kept.of("in_rate", back_ms=back).averages == (0, 0, None, None, 0, 0)
    assert not kept.of("group_lag", "nobody", back_ms=back).measured
    assert series.labels("group_lag") == ["billing", "shipping"]


def test_a_topic_that_is_gone_is_a_gap_and_not_zero(kept):
    kept.broker.figures = {("topic_in_rate", "a"): 0, ("topic_in_rate", "b"): 0}
    kept.pass_time(2 * FINE_MS)
    del kept.broker.figures["topic_in_rate", "a"]
    kept.pass_time(2 * FINE_MS)
    kept.broker.figures["topic_in_rate", "a"] = 0
    kept.pass_time(FINE_MS)
    assert kept.of("topic_in_rate", "a", back_ms=5 * FINE_MS).averages == (0, 0, None, None, 0)
    assert kept.of("topic_in_rate", "b", back_ms=5 * FINE_MS).averages == (0, 0, 0, 0, 0)


def test_it_is_there_after_a_restart_in_the_same_hour_and_the_time_between_is_a_gap(kept):
    kept.broker.figures = {("lag", ""): 5, ("retries", ""): 0}
    kept.pass_time(4 * FINE_MS)
    kept.restart()
    kept.clock.advance(2 * FINE_MS)
    kept.pass_time(2 * FINE_MS)
    assert kept.of("lag", back_ms=8 * FINE_MS).averages == (5, 5, 5, 5, None, None, 5, 5)
    kept.restart()
    assert kept.of("retries", back_ms=8 * FINE_MS).averages == (0, 0, 0, 0, None, None, 0, 0)


def test_a_kill_loses_the_last_minutes_only(kept):
    kept.broker.figures = {("lag", ""): 5}
    kept.pass_time(15 * 60_000)
    kept.kill()
    told = kept.of("lag", back_ms=15 * 60_000).averages
    assert told.count(5) >= 20 - 1
    assert told[-1] is None


def test_a_clock_that_was_wrong_drops_nothing_that_was_measured(kept):
    kept.broker.figures = {("lag", ""): 5}
    kept.pass_time(3 * HOUR_MS)
    kept.clock.jump(400 * DAY_MS)
    kept.pass_time(HOUR_MS)
    kept.clock.jump(-400 * DAY_MS - 2 * HOUR_MS)
    kept.broker.figures["lag", ""] = 9
    kept.pass_time(HOUR_MS)
    told = kept.of("lag", back_ms=3 * HOUR_MS, step_ms=HOUR_MS)
    assert told.averages == (5, 5, 9)
    kept.recorder._tidied = None
    kept.recorder.write()
    assert kept.recorder._file.span_numbers("fine") == [MONDAY // HOUR_MS + n for n in range(3)]
    assert kept.of("lag", back_ms=3 * HOUR_MS, step_ms=HOUR_MS).averages == (5, 5, 9)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_was_set_back_for_a_while_drops_nothing_that_was_measured(kept, is_restarted):
    """A machine may boot in 1970, before its clock is set."""
    for n in range(10):  # coarse days, of which the first have no hours any more
        kept.broker.figures = {("lag", ""): n}
        kept.pass_time(DAY_MS, HOUR_MS)
    kept.recorder.write()
    file = kept.recorder._file
    file.drop("fine", [hour for hour in file.span_numbers("fine") if hour < MONDAY // HOUR_MS + 5 * 24])
    then = kept.clock.wall_ms()
    days = file.span_numbers("coarse")
    assert len(days) == 9
    back_ms = kept.clock.wall_ms() - MONDAY
    before = series.series("lag", "", MONDAY, then, step_ms=DAY_MS)
    kept.clock.jump(-400 * DAY_MS)
    if is_restarted:
        kept.restart()
    kept.pass_time(50 * 60_000)
    kept.clock.jump(400 * DAY_MS)
    kept.pass_time(2 * HOUR_MS)
    kept.recorder._tidied = None
    kept.recorder.write()
    assert set(days) <= set(kept.recorder._file.span_numbers("coarse"))
    assert series.series("lag", "", MONDAY, MONDAY + back_ms, step_ms=DAY_MS) == before


def test_days_that_are_over_are_kept_as_quarters_of_an_hour_when_their_seconds_are_gone(kept):
    for n in range(2 * 24 * 4):  # a sample a quarter
        kept.broker.figures = {("lag", ""): n % 8, ("retries", ""): 0}
        kept.pass_time(15 * 60_000, 15 * 60_000)
    kept.broker.figures = {("lag", ""): 100, ("retries", ""): 0}
    kept.pass_time(HOUR_MS)
    file = kept.recorder._file
    assert file.span_numbers("coarse") == [MONDAY // DAY_MS, MONDAY // DAY_MS + 1]
    before = kept.of("lag", back_ms=kept.clock.wall_ms() - MONDAY, step_ms=2 * HOUR_MS)
    assert (before.averages[0], before.lows[0], before.highs[0]) == (3.5, 0, 7)
    file.drop("fine", [hour for hour in file.span_numbers("fine") if hour < MONDAY // HOUR_MS + 24])
    after = kept.of("lag", back_ms=kept.clock.wall_ms() - MONDAY, step_ms=2 * HOUR_MS)
    assert after == before
    quarters = series.series("lag", "", MONDAY, MONDAY + 2 * HOUR_MS, step_ms=5 * 60_000)
    assert quarters.averages == tuple(n for n in range(8) for _ in range(3))
    assert kept.of("retries", back_ms=DAY_MS, step_ms=DAY_MS).averages[-1] == 0


def test_the_file_keeps_to_its_size_and_gives_up_the_oldest(tmp_path):
    kept = Kept(tmp_path, max_bytes=1 << 20)
    noise = random.Random(7)
    try:
        for hour in range(60):
            for n in range(4):
                kept.broker.figures = {("topic_in_rate", f"t{i}"): noise.random() * 1e6 for i in range(60)}
                kept.pass_time(15 * 60_000 // 4 * 4, 15 * 60_000)
                del n
            # Every slot is noise, as a busy hour's would be.
            for row in kept.recorder.hour.rows.values():
                for slot in range(120):
                    row[slot] = noise.randrange(60_000)
            kept.recorder.hour.changed |= kept.recorder.hour.rows.keys()
            kept.recorder._tidied = None
            kept.recorder.write()
            assert kept.recorder._file.used_bytes < 1.2 * (1 << 20), hour
        hours = kept.recorder._file.span_numbers("fine")
        assert hours[-1] == (kept.clock.wall_ms() - 1) // HOUR_MS
        assert 5 < len(hours) < 60
        assert hours[0] > MONDAY // HOUR_MS
        assert (tmp_path / NAME).stat().st_size < 2.5 * (1 << 20)
    finally:
        kept.recorder._close()
        series.use(None)


def test_no_more_hours_and_days_are_kept_than_were_promised(tmp_path):
    file = HistoryFile(tmp_path)
    first = MONDAY // HOUR_MS
    for n in range(200):
        file.put("fine", first + n, file_span(), [(1, b"x")])
    for n in range(450):
        file.put("coarse", first // 24 - 450 + n, file_span(), [(1, b"x")])
    file.make_room(first + 199, first + 199)
    assert file.span_numbers("fine") == list(range(first + 31, first + 200))
    assert len(file.span_numbers("coarse")) == 396
    assert file.db.execute("SELECT count(*) FROM coarse").fetchone() == (396,)
    file.close()


def file_span():
    from appliance.console.history.file import Span

    return Span(bytes(120), b"")


def test_series_of_what_was_deleted_long_ago_are_forgotten_and_their_numbers_never_given_again(kept):
    kept.broker.figures = {("topic_in_rate", f"t{n}"): n + 1 for n in range(5)}
    kept.pass_time(HOUR_MS)
    kept.recorder.write()
    file = kept.recorder._file
    file.drop("fine", file.span_numbers("fine"))
    assert file.forget_series({2}) == [1, 3, 4]
    assert [number for number, _, _ in file.all_series()] == [2, 5]


def test_a_file_that_cannot_be_written_is_said_once_and_loses_nothing_in_memory(kept, caplog):
    kept.broker.figures = {("lag", ""): 5}
    kept.pass_time(2 * FINE_MS)
    kept.recorder._file.db.execute("PRAGMA query_only = ON")
    kept.pass_time(20 * 60_000)
    assert kept.recorder.failure is not None
    assert caplog.text.count("cannot be kept") == 1
    kept.recorder._file.db.execute("PRAGMA query_only = OFF")
    kept.pass_time(10 * 60_000)
    assert kept.recorder.failure is None
    kept.kill()
    assert kept.of("lag", back_ms=30 * 60_000).averages.count(5) > 40


def test_wrong_questions_are_refused(kept):
    for wrong in (
        {"name": "love"},
        {"name": "group_lag"},
        {"name": "lag", "label": "x"},
        {"name": "lag", "step_ms": 7},
        {"name": "lag", "points": 0},
        {"name": "lag", "to_ms": MONDAY - 1},
        {"name": "lag", "to_ms": MONDAY + 400 * DAY_MS, "step_ms": FINE_MS},
    ):
        asked = {"label": "", "from_ms": MONDAY, "to_ms": MONDAY + HOUR_MS} | wrong
        with pytest.raises(InvalidInput):
            series.series(**asked)


@pytest.mark.parametrize("when", ["at the start", "while it runs"])
def test_a_damaged_file_is_set_aside_and_a_new_one_goes_on(tmp_path, when):
    junk = b"this is no database" * 500
    kept = Kept(tmp_path)
    kept.broker.figures = {("lag", ""): 5, ("group_lag", "g"): 7, ("group_lag", "idle"): 0}
    try:
        if when == "while it runs":
            kept.pass_time(4 * 60_000)
            assert kept.recorder._file is not None
            kept.recorder._file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            kept.recorder._file.db.execute("PRAGMA journal_mode = DELETE")
            kept.recorder._file.db.execute("PRAGMA cache_size = 0")
        (tmp_path / NAME).write_bytes(junk)
        if when == "at the start":
            with pytest.raises(sqlite3.DatabaseError):
                HistoryFile(tmp_path)
            kept.pass_time(FINE_MS)
            assert "not a database" in kept.recorder.failure
            assert kept.recorder.newest(["group_lag"])[1] == {"group_lag": {"g": 7, "idle": 0}}, "alerts are judged"
        kept.pass_time(20 * 60_000)
        assert kept.recorder.failure is None
        assert (tmp_path / f"{NAME}.damaged").read_bytes() == junk
        kept.restart()
        kept.pass_time(FINE_MS)
        assert kept.of("lag").averages.count(5) >= 40
        assert kept.of("group_lag", "g").averages.count(7) >= 40
        assert kept.of("group_lag", "idle").averages.count(0) >= 40
    finally:
        if kept.recorder._file is not None:
            kept.recorder._file.close()
        series.use(None)


def test_a_file_that_comes_late_takes_what_was_measured_before(kept, monkeypatch):
    """As on a full disk: figures are kept in memory, under numbers that the file then gives to others."""
    kept.broker.figures = {("lag", ""): 5}
    kept.pass_time(10 * 60_000)
    kept.recorder._close()
    kept.start()
    kept.broker.figures = {("group_lag", "g"): 7, ("lag", ""): 6}
    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "_open", lambda self: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        kept.pass_time(10 * 60_000)
        assert "No space" in kept.recorder.failure
        assert kept.recorder.newest(["lag"])[1] == {"lag": {"": 6}}
    kept.pass_time(10 * 60_000)
    kept.restart()
    kept.pass_time(FINE_MS)
    told = kept.of("lag", back_ms=35 * 60_000).averages
    assert told.count(5) >= 19
    assert told.count(6) >= 39
    assert kept.of("group_lag", "g", back_ms=35 * 60_000).averages.count(7) >= 39


def test_the_begin_is_that_of_the_first_figure_also_when_only_days_are_left(kept):
    assert series.begin_ms() is None
    kept.pass_time(20 * 60_000)
    assert series.begin_ms() == MONDAY
    kept.restart()
    kept.pass_time(FINE_MS)
    assert series.begin_ms() == MONDAY
    kept.clock.advance(3 * DAY_MS)
    kept.pass_time(2 * FINE_MS)
    assert series.begin_ms() == MONDAY
