"""However the wall clock is set, no message comes early or twice, and none much too late."""

import random

import pytest

from appliance.engine.broker.delays.waiting_time import MOST_SPANS, WaitingTime
from appliance.engine.disk import Disk
from appliance.engine.store.clock_steps import NAME, ClockSteps
from appliance.engine.store.tick_gaps import TickGaps
from tests.support.clock import FakeClock
from tests.support.delays import LEVELS_MS, Delays
from tests.support.store import StoreUnderTest

HOUR_MS = 3_600_000
#: Largest delay of a message that was stored around a jump: the time between two looks at the clocks.
LATE_MS = 1100


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def under_test(tmp_path):
    under_test = StoreUnderTest(tmp_path, segment_bytes=1 << 20).open()
    yield under_test
    under_test.stop()


class Sent:
    """When each message was sent by the steady clock, its level's delay, and when it came."""

    def __init__(self, delays, clock):
        self.delays, self.clock = delays, clock
        self.sent = {}
        self.came = {}
        self._seen = 0

    def send(self, level):
        body = b"%d/%d" % (len(self.sent), level)
        self.sent[body] = (self.clock.monotonic() * 1000, LEVELS_MS[level - 1])
        self.delays.delay(level, body)

    def look(self):
        # Counts messages that arrived: the times in the copy itself are from the clock that jumps.
        count = self.delays.arrived_so_far()
        if count > self._seen:
            for body in self.delays.arrived()[self._seen :]:
                assert body not in self.came, f"{body!r} came twice"
                self.came[body] = self.clock.monotonic() * 1000
            self._seen = count

    def pass_time(self, ms, step_ms=50):
        for _ in range(0, ms, step_ms):
            self.clock.advance(step_ms)
            self.delays.rounds(2)
            self.look()

    def judge(self, step_ms=50):
        assert set(self.came) == set(self.sent)
        for body, (at, delay) in self.sent.items():
            waited = self.came[body] - at
            assert waited > delay - 1, f"{body!r} came {delay - waited} ms early"
            assert waited <= delay + LATE_MS + step_ms, f"{body!r} came {waited - delay} ms late"


@pytest.fixture
def sent(under_test, clock):
    return Sent(Delays(under_test, clock), clock)


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 3000, -3000, 500, -500])
def test_two_jumps_that_cancel_out_between_two_looks_change_nothing(sent, clock, jump_ms):
    sent.send(1)
    sent.pass_time(600)
    clock.advance(20)
    clock.jump(jump_ms)
    sent.send(2)
    clock.advance(20)
    clock.jump(-jump_ms)
    sent.pass_time(7000)
    sent.judge()


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 3000, -3000, 500, -500])
def test_a_jump_while_messages_wait_changes_nothing(sent, clock, jump_ms):
    sent.send(1)
    sent.send(2)
    sent.pass_time(600)
    clock.jump(jump_ms)
    sent.pass_time(6000)
    sent.judge()
    assert abs(sent.came[b"0/1"] - 1000) <= 50, "what was stored before is exact"
    assert abs(sent.came[b"1/2"] - 5000) <= 50


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 3000, -3000])
def test_what_is_sent_after_a_jump_waits_its_time(sent, clock, jump_ms):
    sent.send(2)
    sent.pass_time(600)
    clock.jump(jump_ms)
    for _ in range(40):
        sent.send(1)
        sent.send(2)
        sent.pass_time(100)
    sent.pass_time(6000)
    sent.judge()


@pytest.mark.parametrize("seed", range(6))
def test_a_clock_that_jumps_all_the_time(sent, clock, seed):
    chance = random.Random(seed)
    for _ in range(120):
        for _ in range(chance.randrange(3)):
            sent.send(chance.choice((1, 2)))
        if chance.random() < 0.15:
            clock.jump(chance.choice((-1, 1)) * chance.choice((200, 5000, HOUR_MS)))
        sent.pass_time(chance.choice((50, 100, 400)))
    sent.pass_time(7000)
    sent.judge()


def test_a_clock_that_is_slewed_is_followed(sent, clock):
    """ntpd slews a clock by half a millisecond a second. Due times follow the wall clock then."""
    sent.send(2)
    for _ in range(100):
        sent.pass_time(50)
        clock.jump(0)
    sent.judge()


def test_a_store_of_a_clock_that_was_ahead_waits_once_more_and_not_until_that_time(under_test, clock):
    clock.jump(HOUR_MS)
    before = Delays(under_test, clock)
    before.delay(1, b"x")
    before.delay(2, b"y")
    clock.jump(-HOUR_MS)
    delays = Delays(under_test, clock)
    delays.pass_time(900)
    assert delays.arrived() == []
    delays.pass_time(200)
    assert delays.arrived() == [b"x"]
    delays.pass_time(3800)
    assert delays.arrived() == [b"x"]
    delays.pass_time(200)
    assert delays.arrived() == [b"x", b"y"]


def test_a_message_of_an_earlier_life_comes_at_its_time(under_test, clock):
    Delays(under_test, clock).delay(2, b"x")
    clock.advance(3000)
    delays = Delays(under_test, clock)
    delays.pass_time(1900)
    assert delays.arrived() == []
    delays.pass_time(200)
    assert delays.arrived() == [b"x"]


def comes_in_the_next_life(under_test, clock, after_ms, within_ms):
    """Check that x is not there yet after the one time, and is there after the other."""
    delays = Delays(under_test, clock)
    delays.pass_time(after_ms)
    assert b"x" not in delays.arrived()
    delays.pass_time(within_ms)
    assert b"x" in delays.arrived()


def test_what_was_sent_just_after_the_clock_was_set_forward_comes_at_its_time_in_the_next_life(under_test, clock):
    first = Delays(under_test, clock)
    first.delay(1, b"before")
    first.pass_time(2000)
    clock.jump(HOUR_MS)
    first.delay(2, b"x")
    first.pass_time(3000)
    comes_in_the_next_life(under_test, clock, after_ms=1900, within_ms=200)


def test_what_was_sent_between_a_large_step_back_and_a_small_one_comes_later_by_the_small_one(under_test, clock):
    """In the next life, since only the sum of both is seen."""
    first = Delays(under_test, clock)
    clock.jump(-HOUR_MS)
    first.delay(2, b"x")
    first.delay(1, b"a tick of its own")
    clock.advance(300)
    clock.jump(-3000)
    first.delay(1, b"y")
    first.pass_time(3000)
    comes_in_the_next_life(under_test, clock, after_ms=1600, within_ms=3200)


def test_what_was_sent_between_a_small_step_and_a_large_one_comes_at_its_time_in_the_next_life(under_test, clock):
    """Both come between two looks, and only their sum is seen."""
    first = Delays(under_test, clock)
    first.delay(1, b"before")
    first.pass_time(2000)
    clock.jump(300)
    first.delay(2, b"x")
    clock.advance(10)
    clock.jump(HOUR_MS)
    first.pass_time(3000)
    comes_in_the_next_life(under_test, clock, after_ms=1900, within_ms=500)


def test_what_was_sent_just_before_the_clock_was_set_back_comes_at_its_time_in_the_next_life(under_test, clock):
    first = Delays(under_test, clock)
    first.pass_time(100)
    first.delay(2, b"x")
    clock.advance(5)
    first.delay(1, b"y")  # the clock may have been set in the middle of this tick
    clock.jump(-HOUR_MS)
    first.delay(1, b"z")
    first.pass_time(3000)
    comes_in_the_next_life(under_test, clock, after_ms=1900, within_ms=200)


def test_a_sent_message_after_a_start_with_a_clock_behind_the_store_waits_its_time(under_test, clock):
    """Store times stand still until the clock has caught up with the store."""
    clock.jump(HOUR_MS)
    Delays(under_test, clock).delay(2, b"before")
    clock.jump(-HOUR_MS)
    sent = Sent(Delays(under_test, clock), clock)
    sent.sent[b"before"] = (clock.monotonic() * 1000, 5000)
    for _ in range(20):
        sent.send(1)
        sent.pass_time(250)
    sent.pass_time(3000)
    sent.judge()


@pytest.mark.parametrize("back_ms", [0, HOUR_MS])
@pytest.mark.parametrize("again_ms", [0, 600_000, -300_000])
def test_a_machine_that_stands_still_before_the_step_is_noticed(tmp_path, again_ms, back_ms):
    """The clock is set forward, a message is stored, and the machine stands still. again_ms: by which the clock is set
    for the next message, 10 s later; it is as good as the first. back_ms: by which it was set back before all."""
    clock, log, gaps = FakeClock(), [0, 0], TickGaps()
    time = WaitingTime(clock, lambda: log[0], lambda: log[1], ClockSteps(tmp_path / NAME, Disk()), gaps)

    def store():
        log[0] += 100
        log[1] = max(log[1], clock.wall_ms())
        gaps.ended(clock.wall_ms(), log[0], clock.monotonic())
        stored.append((log[0] - 100, log[1], clock.monotonic() * 1000))

    stored = []
    gaps.start(0)
    clock.jump(-back_ms)
    for ms in (1000, 20):
        clock.advance(ms)
        store()
        time.look()
    clock.advance(500)
    clock.jump(600_000)
    store()
    clock.advance(10_000)
    clock.jump(again_ms)
    store()
    clock.advance(30_000)
    time.look()
    begin = time.now_ms() - clock.monotonic() * 1000
    for physical, stamp, at in stored[2:]:
        late_ms = time.due_ms(physical, stamp + 30_000, 30_000) - begin - 30_000 - at
        # A clock that is set back leaves store times as they are, and it is unknown when the first message was stamped.
        assert -1 < late_ms < (LATE_MS if again_ms >= 0 else 40_000 + LATE_MS)


def test_the_spans_of_a_clock_that_stands_still_for_long_are_bounded(tmp_path):
    clock, log = FakeClock(), [0]
    stamped = clock.wall_ms() + 24 * HOUR_MS
    time = WaitingTime(clock, lambda: log[0], lambda: stamped, ClockSteps(tmp_path / NAME, Disk()), TickGaps())
    stored = []
    for _ in range(3 * MOST_SPANS):
        stored.append((log[0], clock.monotonic() * 1000))
        log[0] += 100
        clock.advance(100)
        time.look()
    assert len(time._spans) <= MOST_SPANS
    begin = time.now_ms() - clock.monotonic() * 1000
    for physical, at in stored:
        due = time.due_ms(physical, stamped + 1000, 1000)
        assert due is not None
        assert -1 < due - begin - 1000 - at < 4000
