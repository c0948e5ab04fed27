"""When a rule fires: after the whole wait, once, and not across a gap or a clock that was set."""

from appliance.console.alerts.judging import GAP_MS, QUIET, Limit, Period, periods, step

LIMIT = Limit(above=10, for_ms=60_000)


def run(figures, limit=LIMIT):
    watched, events = QUIET, []
    for at_ms, value in figures:
        watched, event = step(watched, limit, at_ms, value)
        if event:
            events.append((at_ms, event))
    return watched, events


def test_it_fires_when_the_figure_was_above_all_the_time_and_once():
    figures = [(at * 1000, 11) for at in range(0, 181, 15)]
    assert run(figures)[1] == [(60_000, "fired")]


def test_the_limit_itself_is_not_above_it():
    assert run([(0, 10), (120_000, 10)])[1] == []


def test_a_break_begins_the_wait_anew():
    figures = [(0, 11), (45_000, 11), (50_000, 9), (55_000, 11), (105_000, 11), (115_000, 11)]
    assert run(figures)[1] == [(115_000, "fired")]


def test_without_a_wait_it_fires_at_once_and_is_over_at_once():
    assert run([(0, 1), (1000, 0), (2000, 5)], Limit(0, 0))[1] == [(0, "fired"), (1000, "resolved"), (2000, "fired")]


def test_what_is_not_known_neither_fires_nor_ends():
    figures = [(0, 11), (60_000, 11), (75_000, None), (GAP_MS * 3, None), (GAP_MS * 3 + 1, 11)]
    watched, events = run(figures)
    assert events == [(60_000, "fired")]
    assert watched.firing
    assert watched.above_since_ms == 0


def test_a_long_gap_is_no_time_above_the_limit():
    assert run([(0, 11), (15_000, None), (GAP_MS + 1, None), (GAP_MS + 2, 11)])[1] == []
    assert run([(0, 11), (GAP_MS + 1, 11)])[1] == []
    assert run([(0, 11), (61_000, 11)])[1] == [(61_000, "fired")]


def test_a_clock_that_was_set_back_begins_the_wait_anew():
    assert run([(1_000_000, 11), (900_000, 11), (959_999, 11), (960_000, 11)])[1] == [(960_000, "fired")]


def test_the_worst_is_kept():
    watched, _ = run([(0, 11), (30_000, 99), (60_000, 12)])
    assert (watched.worst, watched.value) == (99, 12)


def test_periods_of_the_past():
    figures = [(0, 11), (60_000, 40), (90_000, 3), (200_000, 11), (270_000, 12)]
    assert periods("g", LIMIT, figures) == [Period("g", 60_000, 90_000, 40), Period("g", 270_000, None, 12)]
