"""The ticks around a step of the clock."""

import pytest

from appliance.engine.store.tick_gaps import MOST_GAPS, TickGaps

HOUR_MS = 3_600_000


def gaps_of(*ticks, start=1000):
    """Ticks that stored records: (wall ms, end)."""
    gaps = TickGaps()
    gaps.start(start)
    for wall_ms, end in ticks:
        gaps.ended(wall_ms, end)
    return gaps


def test_what_a_tick_stored_after_the_clock_was_set_forward_is_not_in_doubt():
    gaps = gaps_of((5000, 1100), (5100, 1200), (5110 + HOUR_MS, 1300), (5120 + HOUR_MS, 1400))
    assert gaps.narrowed(HOUR_MS, 1000, 1400, 5200.0) == (1000, 1200)


@pytest.mark.parametrize("wall_ms", [5101, 5090 - HOUR_MS])
def test_the_last_tick_before_the_clock_was_set_back_stays_in_doubt(wall_ms):
    """The clock may have been set in the middle of it."""
    gaps = gaps_of((5000, 1100), (5100, 1200), (5102, 1300), (5110 - HOUR_MS, 1400), (wall_ms, 1500))
    assert gaps.narrowed(-HOUR_MS, 1000, 1500, 5000.0 - HOUR_MS / 2) == (1200, 1500)


def test_the_first_tick_of_a_life_may_be_the_one_after_the_step():
    assert gaps_of((5000 + HOUR_MS, 1100)).narrowed(HOUR_MS, 1000, 1100, 5200.0) == (1000, 1000)


def test_the_first_tick_of_a_life_may_be_the_one_after_a_step_back():
    before_ms, after_ms = 3 * HOUR_MS, 2 * HOUR_MS
    gaps = gaps_of((after_ms, 1100), (after_ms + 10, 1200), (after_ms - 1000, 1300))
    assert gaps.narrowed(after_ms - before_ms - 1000, 1000, 1300, (before_ms + after_ms) / 2) == (1000, 1300)


@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS])
def test_ticks_before_the_last_look_say_nothing(ms):
    gaps = gaps_of((5000 - ms, 1100), (5100, 1200), (5110 - ms, 1300), (5120, 1400), start=1000)
    assert gaps.narrowed(ms, 1400, 1500, 5150.0 - max(0, -ms) / 2) == (1400, 1500)


def test_without_a_tick_that_shows_it_all_is_in_doubt():
    gaps = gaps_of((5000, 1100), (5100, 1200), (5110, 1300))
    assert gaps.narrowed(15, 1000, 1300, 5130.0) == (1000, 1300)
    assert gaps.narrowed(-15, 1000, 1300, 5000.0) == (1000, 1300)


def test_what_is_kept_is_bounded():
    gaps = gaps_of(*((100 * n, 1000 + n) for n in range(3 * MOST_GAPS)))
    assert len(gaps.gaps) == MOST_GAPS
    assert gaps.gaps[-1].after_ms == 100 * (3 * MOST_GAPS - 1)
