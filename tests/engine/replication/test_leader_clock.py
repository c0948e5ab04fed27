"""A follower's estimate of its leader's clock, from its requests."""

import pytest

from appliance.engine.disk import Disk
from appliance.engine.replication.leader_clock import MOST_LOOKS, LeaderClock
from appliance.engine.store.clock_steps import NAME, ClockSteps
from tests.support.clock import FakeClock

HOUR_MS = 3_600_000


class Rig:
    """A follower whose clock is ahead of its leader's. written: the end of its log."""

    def __init__(self, path):
        self.clock = FakeClock()
        self.ahead_ms = 0
        self.written = self.leader_end = 5000
        self.path, self.epoch_start = path, 1000
        self.steps = ClockSteps(path, Disk())
        self.begin()

    def begin(self):
        self.known = LeaderClock(self.clock, self.steps, lambda: self.written, lambda: 0)

    def ask(self, there_ms=1, back_ms=1):
        """Send a request and its answer, each under way for so long."""
        asked = self.known.moment()
        self.clock.advance(there_ms)
        said = self.clock.wall_ms() - self.ahead_ms
        self.clock.advance(back_ms)
        self.known.said(asked, said, self.epoch_start, lambda: max(self.leader_end, self.written))
        self.clock.advance(1000)

    def restarted(self):
        self.steps = ClockSteps(self.path, Disk())
        self.steps.load(0, self.written)
        self.begin()


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path / NAME)


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS, 250, -250])
@pytest.mark.parametrize(("there_ms", "back_ms"), [(0, 0), (1, 1), (0, 90), (90, 0)])
def test_the_difference_is_known_within_a_round_trip_and_never_too_small(rig, ahead_ms, there_ms, back_ms):
    rig.ahead_ms = ahead_ms
    rig.ask(there_ms, back_ms)
    assert ahead_ms <= rig.steps.ahead_ms(4000) <= ahead_ms + there_ms + back_ms + 1
    assert rig.steps.ahead_ms(999) == 0, "of the leader before nothing was said"


def test_the_shortest_round_trip_counts(rig):
    rig.ahead_ms = HOUR_MS
    rig.ask(50, 400)
    rig.ask(1, 1)
    rig.ask(300, 300)
    assert HOUR_MS <= rig.steps.ahead_ms(4000) <= HOUR_MS + 30


def test_clocks_that_may_agree_leave_no_file(rig):
    for ahead_ms, there_ms, back_ms in ((0, 0, 0), (5, 30, 30), (-5, 30, 30), (0, 2000, 0)):
        rig.ahead_ms = ahead_ms
        rig.ask(there_ms, back_ms)
    assert rig.steps.spans == ()
    assert not rig.path.exists()


@pytest.mark.parametrize(
    ("step_ms", "between"),
    [pytest.param(-HOUR_MS, 200, id="forward"), pytest.param(HOUR_MS, 200 + HOUR_MS, id="back")],
)
def test_what_a_leader_stored_around_the_time_when_its_clock_was_set_comes_late_rather_than_early(
    rig, step_ms, between
):
    rig.ahead_ms = 200
    for _ in range(MOST_LOOKS):
        rig.ask()
    rig.written, rig.leader_end, rig.ahead_ms = 9000, 9500, 200 + step_ms
    rig.ask()
    assert 200 <= rig.steps.ahead_ms(4999) <= 210
    for on_its_way_or_here in (5000, 8999, 9499):
        assert between <= rig.steps.ahead_ms(on_its_way_or_here) <= between + 10
    assert 200 + step_ms <= rig.steps.ahead_ms(9500) <= 210 + step_ms


def test_a_leader_that_does_not_answer_where_its_log_ends_is_asked_again(rig):
    rig.ask()
    rig.ahead_ms = -HOUR_MS
    rig.leader_end = None
    with pytest.raises(TypeError):
        rig.ask()
    assert rig.steps.spans == ()
    rig.leader_end = 6000
    rig.ask()
    assert [one.begin for one in rig.steps.spans] == [6000]


def test_what_leaders_before_stamped_is_theirs_though_it_is_still_on_its_way(rig):
    rig.epoch_start = 7000
    for ahead_ms in (0, HOUR_MS):
        rig.ahead_ms = ahead_ms
        rig.ask()
    assert rig.steps.ahead_ms(6999) == 0
    assert rig.steps.ahead_ms(7000) >= HOUR_MS


def test_a_follower_whose_clock_is_set_is_ahead_of_all_that_was_stamped(rig):
    rig.ask()
    rig.clock.jump(HOUR_MS)
    rig.ahead_ms += HOUR_MS
    rig.written = 9000
    rig.ask()
    for physical in (0, 4000, 9000):
        assert abs(rig.steps.ahead_ms(physical) - HOUR_MS) <= 10


def test_a_step_behind_the_last_question_is_noted_at_the_end(rig):
    rig.ask()
    rig.clock.jump(HOUR_MS)
    rig.known.look()
    rig.restarted()
    assert abs(rig.steps.ahead_ms(4000) - HOUR_MS) <= 10


def test_crystals_that_differ_are_no_step(rig):
    for _ in range(200):
        rig.ahead_ms += 5
        rig.written += 100
        rig.ask()
    assert {one.begin for one in rig.steps.spans} == {1000}
    assert 1000 <= rig.steps.ahead_ms(rig.written) <= 1030


def test_what_is_known_is_kept_and_another_leader_has_a_clock_of_its_own(rig):
    rig.ahead_ms = HOUR_MS
    rig.ask()
    rig.restarted()
    assert abs(rig.steps.ahead_ms(4000) - HOUR_MS) <= 10
    rig.epoch_start, rig.written, rig.ahead_ms = 7000, 8000, 0
    rig.ask()
    assert abs(rig.steps.ahead_ms(6999) - HOUR_MS) <= 10
    assert rig.steps.ahead_ms(7000) == 0
