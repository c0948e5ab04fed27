"""The record of the clocks that stamped the log."""

import errno
import os

import pytest

from appliance.engine.crc_lines import line_of
from appliance.engine.disk import Disk
from appliance.engine.store.clock_steps import MOST_SPANS, NAME, ClockSteps, Stamped
from tests.engine.test_format_pages import blocks_of

HOUR_MS = 3_600_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / NAME


def loaded(path, begin=0, end=1 << 40):
    steps = ClockSteps(path, Disk())
    steps.load(begin, end)
    return steps


def test_what_was_said_of_places_is_said_after_a_restart(path):
    steps = ClockSteps(path, Disk())
    steps.stamped(1000, HOUR_MS)
    steps.stamped(3000, 0)
    for known in (steps, loaded(path)):
        assert [known.ahead_ms(at) for at in (0, 999, 1000, 2999, 3000, 1 << 30)] == [0, 0, HOUR_MS, HOUR_MS, 0, 0]


def test_a_clock_that_is_set_is_ahead_of_all_there_is_by_as_much_more(path):
    steps = ClockSteps(path, Disk())
    steps.stamped(1000, HOUR_MS)
    steps.set_by(-10)
    assert [steps.ahead_ms(at) for at in (0, 1000)] == [-10, HOUR_MS - 10]


@pytest.mark.parametrize(("ms", "between"), [(500, 500), (-500, 0)])
def test_what_was_stored_around_a_step_is_late_rather_than_early(path, ms, between):
    steps = ClockSteps(path, Disk())
    steps.set_while_appending(ms, 1000, 2000)
    assert [steps.ahead_ms(at) for at in (0, 1500, 2000)] == [ms, between, 0]
    steps.set_while_appending(-ms, 3000, 3000)
    assert [steps.ahead_ms(at) for at in (0, 2500, 3000)] == [0, -ms, 0]


def test_a_step_is_saved_in_one(path):
    """With the first half alone, all later records would count as stamped by the old clock."""
    found = []

    class Watched(Disk):
        def replace(self, path, data, durable=True):
            super().replace(path, data, durable)
            found.append([loaded(path).ahead_ms(at) for at in (500, 2500)])

    ClockSteps(path, Watched()).set_while_appending(-HOUR_MS, 1000, 2000)
    assert found == [[-HOUR_MS, 0]]


def test_what_was_cut_off_and_what_was_deleted_is_forgotten(path):
    steps = ClockSteps(path, Disk())
    for begin, ahead_ms in ((1000, 1), (2000, 2), (3000, 3)):
        steps.stamped(begin, ahead_ms)
    assert loaded(path, 2500, 2800).spans == (Stamped(2000, 2),)
    steps.stamped(4000, 4, log_begin=3500)
    assert steps.spans == (Stamped(3000, 3), Stamped(4000, 4))


def test_the_file_is_the_one_of_its_page(path):
    steps = ClockSteps(path, Disk())
    steps.stamped(4096, HOUR_MS)
    steps.stamped(90112, 0)
    [example] = blocks_of("clock-steps.md")
    assert path.read_text() == example


def test_clocks_that_agree_leave_no_file(path):
    steps = ClockSteps(path, Disk())
    steps.stamped(1000, 0)
    assert not path.exists()
    assert loaded(path).spans == ()


@pytest.mark.parametrize("data", [b"", b"x", b"00000000 {}\n", b"\0" * 100])
def test_a_damaged_file_is_as_good_as_none(path, data):
    path.write_bytes(data)
    assert loaded(path).spans == ()


@pytest.mark.parametrize("text", [b"{}", b'{"spans": [[1]]}', b'{"spans": 3}', b"[]"])
def test_a_file_of_something_else_is_as_good_as_none(path, text):
    path.write_bytes(line_of(text))
    assert loaded(path).spans == ()


def test_a_full_disk_holds_up_nobody(path, monkeypatch):
    steps = ClockSteps(path, Disk())

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Disk, "replace", full)
    steps.stamped(1000, 5)
    assert steps.ahead_ms(1000) == 5


def test_spans_are_bounded(path):
    steps = ClockSteps(path, Disk())
    for n in range(2 * MOST_SPANS):
        steps.stamped(100 * n, n % 7 + 1)
    assert len(steps.spans) == MOST_SPANS
    assert len(loaded(path).spans) == MOST_SPANS
    assert steps.ahead_ms(0) >= 1
