"""The disk's forecast, with figures that can be checked on paper."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from spark_reports.reports import forecast
from spark_reports.reports.forecast import Past, content, expect, first_above, levels_off, line_through, median


def past(stored, others=None, log=0, retention=3) -> Past:
    """stored, others: bytes of the last days, the report's day last."""

    def by_day(values):
        return {n - len(values) + 1: value for n, value in enumerate(values) if value is not None}

    return Past(by_day(stored), by_day(others or [100] * len(stored)), log, Fraction(retention))


def middles(of: Past, days: int) -> list[int]:
    return [middle for _, middle, _ in expect(of, days)]


def test_a_log_as_old_as_its_retention_stays_as_large_as_it_is():
    assert middles(past([10, 10, 10, 10, 10], log=30), 5) == [130] * 5


def test_a_young_log_grows_to_its_retention_and_no_further():
    assert middles(past([10, 10, 10], log=30, retention=5), 6) == [140, 150, 150, 150, 150, 150]


def test_what_was_stored_before_the_facts_begin_leaves_as_evenly_as_it_is_thought_to_have_come():
    # 30 from the last three days, 20 from the two before them.
    assert middles(past([10, 10, 10], log=50, retention=5), 3) == [150, 150, 150]


def test_a_retention_longer_than_what_the_facts_are_of():
    assert middles(past([10, 10, 10], log=200, retention=20), 4) == [300] * 4


def test_files_older_than_the_retention_are_thought_to_stay():
    # Only whole files are deleted: the log has 45, the days account for 30.
    assert middles(past([10, 10, 10, 10], log=45), 4) == [145] * 4


def test_after_the_retention_was_shortened_older_files_go():
    # From ten days to three: of the 70 beyond that, only as much as one file of 15 and one day explain stays.
    of = past([10] * 12, log=100)
    assert middles(of, 2) == [200, 200], "nobody knows how large a file is"
    assert middles(replace(of, file_bytes=15), 2) == [155, 155]


def test_a_log_that_lost_files_early_grows_back_to_its_retention():
    of = past([10, 10, 10, 10], log=15)
    assert content(of).by_day == {0: 10, -1: 5, -2: 0}
    assert middles(of, 4) == [125, 130, 130, 130]


def test_less_arrives_than_before_and_the_log_shrinks_with_it():
    # 90 now; in four days the log has two known days of 0, and four of 15.
    assert middles(past([30, 30, 30, 0, 0, 0], log=90, retention=6), 4)[-1] == 160


def test_a_day_that_is_missing_is_thought_to_be_like_the_rest_of_the_log():
    assert content(past([10, None, 10], log=27)).by_day == {0: 10, -1: 7, -2: 10}


def test_a_part_of_a_day_counts_as_a_part():
    # 36 hours: the whole of the newest day and half of the one before.
    of = past([10, 10, 10], log=15, retention=Fraction(3, 2))
    assert content(of) == forecast.Content({0: 10, -1: 10}, 0, 0)
    assert middles(of, 3) == [115] * 3


def test_the_rest_of_the_disk_goes_on_as_it_did():
    assert middles(past([0, 0, 0], others=[100, 110, 120]), 3) == [130, 140, 150]


def test_one_odd_day_does_not_bend_the_line():
    line = line_through({-4: 10, -3: 1000, -2: 14, -1: 16, 0: 18})
    assert (line.at, line.slope) == (18, 2)


def test_growth_of_the_daily_amount_needs_a_week():
    assert line_through({day: 10 + day for day in range(-5, 1)}, 7).slope == 0
    assert line_through({day: 10 + day for day in range(-6, 1)}, 7).slope == 1


def test_the_band_holds_the_middle_and_knows_how_odd_days_were():
    for low, middle, high in expect(past([10, 30, 20, 10, 30, 20], log=60, retention=3), 20):
        assert low <= middle <= high
    low, middle, high = expect(past([10, 30, 20], log=60), 9)[-1]
    # Once the log holds only future days: 3 days of 20, give or take 10.
    assert (low, middle, high) == (130, 160, 190)


def test_nothing_is_less_than_nothing():
    assert expect(past([10, 10, 10], others=[30, 20, 10], log=30), 90)[-1] == (30, 30, 30)


@pytest.mark.parametrize(("limit", "day"), [(5, 1), (20, 2), (21, None)])
def test_the_first_day_that_reaches_a_limit(limit: int, day: int | None):
    assert first_above([10, 20, 15], limit) == day


def test_never_is_said_only_when_nothing_grows():
    assert levels_off(past([10] * 8))
    assert not levels_off(past([10] * 8, others=list(range(8))))
    assert not levels_off(past(list(range(8))))


def test_no_retention_at_all_and_a_very_long_one():
    assert middles(past([10, 10, 10], log=7, retention=0), 2) == [107, 107]
    assert middles(past([10, 10, 10], log=30, retention=100_000), 90)[-1] == 100 + 30 + 900


def test_the_middle_of_an_even_number_lies_between_two():
    assert median([Fraction(1), Fraction(4), Fraction(2), Fraction(9)]) == 3
