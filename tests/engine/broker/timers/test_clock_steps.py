"""The clock is set while messages wait for a time of their own: earlier answers about them stay true."""

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.engine.broker.timers import delivery, schedule
from appliance.engine.broker.timers.recall import Asked, RecallPath, mark_of
from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.disk import Disk
from appliance.engine.errors import RefusedRequest
from appliance.engine.protocol.properties import encode_properties
from appliance.engine.protocol.recall_handle import encode_recall_handle
from tests.support.clock import FakeClock
from tests.support.delays import Delays
from tests.support.store import StoreUnderTest
from tests.support.timers import TARGET, Timers

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
STEPS_MS = [-DAY_MS, -10 * MINUTE_MS, -3000, -300, 300, 3000, HOUR_MS, DAY_MS]


def step(timers, ms):
    """Set the clock and have the timers' thread look at it."""
    timers.pass_time(100)
    timers.clock.jump(ms)
    timers.pass_time(200)


class Answers:
    """The answers that producers get."""

    def __init__(self):
        self.codes = []

    def put_ended(self, outcome):
        self.codes.append(outcome.code)


def recall(timers, key, due_ms, max_delay_s=10**9):
    """Send 370 and return the code of its answer."""
    path = RecallPath(
        timers.appends,
        timers.delivery.claims,
        timers.topics.get,
        lambda: EngineConfig(Path("/data"), store=StoreConfig(timer_max_delay_sec=max_delay_s)),
        timers.clock.wall_ms,
        timers.delivery,
    )
    answers = Answers()
    handle = encode_recall_handle(TARGET, BrokerConfig().broker_name, due_ms - 1, key)
    try:
        path.recall(Asked(TARGET, handle, "P", b""), answers)
    except RefusedRequest as refusal:
        return refusal.code
    # As a tick does: staged by remoting-io, published at its end.
    acks = list(timers.store.tick.acks)
    timers.store.end_tick()
    assert acks
    [code] = answers.codes
    return code


@pytest.mark.parametrize("ms", STEPS_MS)
@pytest.mark.parametrize("is_saved", [False, True])
def test_what_was_recalled_does_not_come_when_the_clock_was_set_in_between(timers, clock, ms, is_saved, monkeypatch):
    monkeypatch.setattr(schedule, "MOST_INLINE", 1 if is_saved else 2048)
    due_ms = clock.wall_ms() + 2 * DAY_MS
    for key in ("gone", "stays", "stays too"):
        timers.wait(key.encode(), 2 * DAY_MS)
    timers.rounds()
    timers.save()
    step(timers, ms)
    for key in ("gone", "nobody"):
        mark = mark_of(TARGET, key, due_ms - 1, clock.wall_ms())
        timers.put(mark.body, mark.properties)
    timers.rounds()
    timers.save()
    timers.pass_time(2 * DAY_MS - 400, DAY_MS // 8)
    timers.pass_time(2 * abs(ms) + 2000, max(500, abs(ms) // 8))
    assert timers.arrived() == [b"stays", b"stays too"]


@pytest.mark.parametrize("ms", STEPS_MS)
def test_what_was_stored_once_more_comes_once_when_the_clock_was_set_in_between(timers, clock, ms):
    timers.wait(b"long", 2 * DAY_MS)
    timers.rounds()
    step(timers, ms)
    timers.roll.keep(timers.store.log.written)
    timers.roll_on(20)
    assert timers.roll.rolled == 1
    timers.pass_time(2 * DAY_MS, DAY_MS // 8)
    timers.pass_time(2 * abs(ms) + 2000, max(500, abs(ms) // 8))
    assert timers.arrived() == [b"long"]


@pytest.mark.parametrize("ms", [MINUTE_MS, HOUR_MS, DAY_MS])
def test_what_waits_is_not_dropped_with_its_file_after_the_clock_was_set_forward(tmp_path, clock, ms):
    """A younger message in front of it is due earlier."""
    under_test = StoreUnderTest(tmp_path, segment_bytes=8192, disk=Disk()).open()
    timers = Timers(under_test, clock)
    timers.wait(b"waits", ms // 2)
    timers.rounds()
    step(timers, ms)
    timers.wait(b"younger", ms // 4)
    timers.rounds()
    for n in range(60):
        timers.wait(b"%d" % n + b"." * 300, 1)
        timers.pass_time(5, 5)
    end = under_test.store.log.segments[1].end
    timers.roll.keep(end)
    timers.roll_on(60)
    assert timers.roll.keep(end) is None
    under_test.store.log.remove_before(end)
    timers.save()
    timers.pass_time(2 * ms, ms // 16)
    assert [body for body in timers.arrived() if body in (b"waits", b"younger")] == [b"younger", b"waits"]
    assert sum(timers.delivery.given_up.values()) == 0
    timers.close()
    under_test.stop()


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("ms", [-10 * MINUTE_MS, 10 * MINUTE_MS])
@pytest.mark.parametrize("kind", ["a delay", "a time of day"])
def test_what_is_stored_once_more_while_the_clock_is_set_waits_as_long(timers, clock, monkeypatch, ms, is_stored, kind):
    if kind == "a delay":
        timers.wait(b"hour", HOUR_MS)
    else:
        timers.send(b"hour", encode_properties({"TIMER_DELIVER_MS": str(clock.wall_ms() + HOUR_MS)}))
    timers.pass_time(1000)
    submit, steps = timers.appends.submit, []

    def submit_beside(messages, frees=False):
        if frees and not steps and not is_stored:
            steps.append(clock.jump(ms))
        found = submit(messages, frees)
        if frees and not steps:
            steps.append(clock.jump(ms))
        return found

    monkeypatch.setattr(timers.appends, "submit", submit_beside)
    timers.roll.keep(timers.store.log.written)
    timers.roll_on(20)
    assert steps
    assert timers.roll.rolled == 1
    timers.pass_time(HOUR_MS - 2000, 1000)
    assert timers.arrived() == []
    timers.pass_time(4000, 1000)
    assert timers.arrived() == [b"hour"]


@pytest.mark.parametrize("life", ["this one", "the next one"])
@pytest.mark.parametrize("ms", [-HOUR_MS, HOUR_MS])
def test_what_was_stored_once_more_after_a_step_waits_as_long_when_the_index_is_made_again(timers, clock, ms, life):
    """The next leader of a set has no index of its own."""
    steps = Delays(timers.under_test, clock).delivery  # its thread records steps
    timers.wait(b"day", DAY_MS)
    timers.pass_time(1000)
    clock.jump(ms)
    steps.round()
    timers.pass_time(1000)
    for _ in range(2):
        timers.roll.keep(timers.store.log.written)
        timers.roll_on(20)
        timers.wait(b"another", 1)
        timers.pass_time(100)
    assert timers.roll.rolled == 2
    if life == "this one":
        timers.index.damaged = "a page of it is gone"
    else:
        timers.index.close()
        for path in timers.directory.iterdir():
            path.unlink()
        timers = Timers(timers.under_test, clock)
    timers.pass_time(DAY_MS - 10_000, HOUR_MS // 4)
    assert b"day" not in timers.arrived()
    timers.pass_time(20_000, 1000)
    assert timers.arrived().count(b"day") == 1
    assert timers.delivery.failure is None


def test_what_waits_can_be_recalled_after_the_clock_was_set_back(timers, clock):
    timers.wait(b"delivered", 1000)
    timers.pass_time(2000)
    delivered_due_ms = clock.wall_ms() - 1000
    step(timers, -10 * MINUTE_MS)
    due_ms = timers.wait(b"waits", 5 * MINUTE_MS)
    timers.wait(b"stays", 5 * MINUTE_MS)
    timers.rounds()
    assert recall(timers, "waits", due_ms) == 0
    assert recall(timers, "delivered", delivered_due_ms) != 0
    timers.pass_time(15 * MINUTE_MS, MINUTE_MS)
    assert timers.arrived() == [b"delivered", b"stays"]


@pytest.mark.parametrize("saved", [False, True])
def test_what_waits_as_long_as_allowed_can_be_recalled_after_the_clock_was_set_back(timers, clock, monkeypatch, saved):
    monkeypatch.setattr(schedule, "MOST_INLINE", 1)  # a save makes a file
    due_ms = timers.wait(b"waits", DAY_MS - 1000)
    timers.rounds()
    if saved:
        timers.save()
    step(timers, -HOUR_MS)
    day_s = DAY_MS // 1000
    assert recall(timers, "waits", due_ms + 2 * HOUR_MS, day_s) != 0  # no timer that waits can have this time
    assert recall(timers, "waits", due_ms, day_s) == 0
    timers.pass_time(2 * DAY_MS, HOUR_MS)
    assert timers.arrived() == []


def test_what_was_stored_a_moment_ago_waits_though_the_queue_is_half_in_its_file(timers):
    """Entries in a file and entries in memory are read in two steps."""
    timers.wait(b"in the file", DAY_MS)
    timers.under_test.wait_recovery_position()
    due_ms = timers.wait(b"in memory", DAY_MS)
    assert timers.delivery.waits(f"{TARGET}+in memory", due_ms - 1)
    assert not timers.delivery.waits(f"{TARGET}+nobody", due_ms - 1)


def test_what_waits_can_be_recalled_after_the_clock_was_set_forward(timers, clock):
    due_ms = timers.wait(b"waits", 5 * MINUTE_MS)
    timers.wait(b"stays", 5 * MINUTE_MS)
    delivered_due_ms = timers.wait(b"delivered", 1000)
    timers.pass_time(2000)
    step(timers, HOUR_MS)
    assert recall(timers, "waits", due_ms) == 0
    assert recall(timers, "delivered", delivered_due_ms) != 0
    timers.pass_time(6 * MINUTE_MS, MINUTE_MS)
    assert timers.arrived() == [b"delivered", b"stays"]


@pytest.mark.parametrize("before_ms", [0, -2 * HOUR_MS])
def test_what_was_sent_just_after_a_step_is_not_late_by_it_in_the_next_life(timers, clock, before_ms):
    """The process ended before the index was saved. Store times stand still once the clock was set back."""
    steps = Delays(timers.under_test, clock).delivery  # its thread records steps
    timers.wait(b"before", 1000)
    for ms in (before_ms, HOUR_MS):
        timers.pass_time(100)
        steps.round()
        clock.jump(ms)
        timers.wait(b"after %d" % ms, 5000)
        clock.advance(60)
        steps.round()
    following = Timers(timers.under_test, clock)
    following.pass_time(4800)
    assert b"after %d" % HOUR_MS not in following.arrived()
    following.pass_time(200)
    assert b"after %d" % HOUR_MS in following.arrived()
    following.close()


@pytest.mark.parametrize("ms", [-HOUR_MS, -3000, -300, 300, 3000, HOUR_MS])
@pytest.mark.parametrize("idle_ms", [1000, 2 * HOUR_MS])
def test_two_steps_that_cancel_out_between_two_looks_make_no_delay_shorter_or_longer(timers, clock, ms, idle_ms):
    timers.wait(b"before", 1)
    timers.pass_time(idle_ms, max(100, idle_ms // 100))
    clock.advance(60)
    clock.jump(ms)
    timers.wait(b"x", 5000)
    clock.advance(60)
    clock.jump(-ms)
    timers.pass_time(4800)
    assert timers.arrived() == [b"before"]
    timers.pass_time(1300)
    assert timers.arrived() == [b"before", b"x"]


def test_merging_leaves_out_nothing_that_is_due_soon_after_the_clock_was_set_back(timers, clock, monkeypatch):
    """The messages look as if they were due tomorrow, and some of them are taken meanwhile."""
    monkeypatch.setattr(schedule, "MOST_INLINE", 1)
    bodies = [b"%d" % n for n in range(6)]
    for n in (0, 2, 4):
        timers.wait(bodies[n], 5000)
        timers.wait(bodies[n + 1], 5000)
        timers.rounds()
        timers.save()
    step(timers, -DAY_MS)
    index = timers.index
    clock.advance(6000)
    taken = []

    def pause():
        taken.extend(one for _, one in index.take(timers.delivery.now_ms(), 1))
        return True

    # Merge whatever lies in front: these could belong to deleted files, and be stored again.
    assert index.merge(timers.store.log.written, clock.wall_ms(), pause, everything=True)
    assert taken
    index.back(taken)
    timers.rounds()
    assert sorted(timers.arrived()) == bodies


def test_what_is_gone_is_left_out_of_files_from_before_and_after_a_step(timers, clock, monkeypatch):
    monkeypatch.setattr(schedule, "MOST_INLINE", 1)
    for hours in (0, -1, -1):
        step(timers, hours * 60 * MINUTE_MS)
        for n in range(2):
            timers.wait(b"%d-%d" % (hours, n), 2 * DAY_MS)
        timers.rounds()
        timers.save()
    index = timers.index
    assert index.pending == 6
    assert len({run.shift_ms for run in index._runs}) > 1
    assert index.merge(timers.store.log.written, clock.wall_ms(), lambda: True, everything=True)
    assert index.pending == 0


def test_what_came_after_the_clock_was_set_back_cannot_be_recalled_any_more(timers, clock):
    due_ms = timers.wait(b"x", MINUTE_MS)
    timers.rounds()
    step(timers, -10 * MINUTE_MS)
    timers.pass_time(2 * MINUTE_MS, MINUTE_MS)
    assert timers.arrived() == [b"x"]
    assert recall(timers, "x", due_ms) != 0


STEP = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([0, 1, 2]), st.sampled_from([400, 5000, 60_000, 86_400_000])),
    st.tuples(st.just("recall"), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("set"), st.sampled_from(STEPS_MS), st.just(0)),
    st.tuples(st.just("pass"), st.sampled_from([100, 900, 5000, 60_000, HOUR_MS]), st.just(0)),
    st.tuples(st.just("roll"), st.just(0), st.just(0)),
    st.tuples(st.just("save"), st.just(0), st.just(0)),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEP, max_size=25))
def test_whatever_the_clock_is_set_to_each_comes_once_or_was_taken_back(steps, tmp_path, monkeypatch):
    """Includes twins of one key and time. A message that 370 took back never comes; all others come once, not early."""
    monkeypatch.setattr(schedule, "MOST_INLINE", 3)
    clock = FakeClock()
    under_test = StoreUnderTest(Path(tempfile.mkdtemp(dir=tmp_path)), disk=Disk()).open()
    timers = Timers(under_test, clock)
    #: (body, key, due by the wall clock, least steady time when it may come)
    sent: list[tuple[bytes, str, int, float]] = []
    recalled: set[bytes] = set()
    came: dict[bytes, float] = {}

    def look():
        for body in timers.arrived()[len(came) :]:
            assert body not in came, "twice"
            assert body not in recalled, "taken back"
            came[body] = clock.steady()

    try:
        for what, value, delay_ms in steps:
            if what == "send":
                body, key = b"m%d" % len(sent), f"key-{value}"
                due_ms = timers.wait(body, delay_ms, UNIQ_KEY=key)
                sent.append((body, key, due_ms, clock.steady() + delay_ms / 1000))
                timers.rounds(1)
            elif what == "recall" and sent:
                _, key, due_ms, _ = sent[value % len(sent)]
                look()
                if recall(timers, key, due_ms) == 0:
                    these = {body for body, one, due, _ in sent if (one, due) == (key, due_ms)}
                    assert not these <= came.keys(), "370 said done of what had come"
                    recalled |= these - came.keys()
            elif what == "set":
                step(timers, value)
            elif what == "pass":
                timers.pass_time(value, max(100, value // 10))
            elif what == "roll":
                timers.roll.keep(under_test.store.log.written)
                timers.roll_on(12)
            elif what == "save":
                timers.save()
            look()
        for _ in range(8):
            timers.pass_time(DAY_MS, DAY_MS // 6)
            look()
        assert came.keys() == {body for body, _, _, _ in sent} - recalled
        assert sum(timers.delivery.given_up.values()) == 0
        for body, _, _, least in sent:
            # A jump is seen at the next look: messages stored around it are early or late by at most the time between
            # two looks.
            assert body not in came or came[body] >= least - 1.0, "early"
    finally:
        timers.close()
        under_test.stop()


def test_many_that_are_due_later_than_they_were_indexed_leave_few_files(timers, clock, monkeypatch):
    """Apache's times were rounded to another timerPrecisionMs, and the clock was set since."""
    precision = [1]
    monkeypatch.setattr(timers.delivery, "precision_ms", lambda: precision[0])
    first_ms = (clock.wall_ms() // 10_000 + 2) * 10_000
    for n in range(20):
        waits = {"REAL_TOPIC": TARGET, "REAL_QID": "0", "TIMER_OUT_MS": str(first_ms + n * 10_000), "UNIQ_KEY": f"K{n}"}
        timers.put(b"%d" % n, encode_properties(waits))
    timers.rounds()
    step(timers, HOUR_MS)
    precision[0] = 10_000
    came = []
    for n in range(60):
        timers.wait(b"far %d" % n, DAY_MS)
        timers.pass_time(5000, 2500)
        came.append(len(timers.arrived()))
        if n % 10 == 9:
            timers.save()
            assert timers.index.run_count <= 2 * (n // 10 + 1)
    assert timers.arrived() == [b"%d" % n for n in range(20)]
    assert max(after - before for before, after in pairwise(came)) == 1, "not all at once, and none too early"
    timers.pass_time(2 * DAY_MS, HOUR_MS)
    assert len(timers.arrived()) == 80


def test_many_that_go_back_in_small_parts_after_the_clock_was_set_are_one_file(timers, clock, monkeypatch):
    monkeypatch.setattr(delivery, "MOST_MESSAGES", 4)
    precision = [1]
    monkeypatch.setattr(timers.delivery, "precision_ms", lambda: precision[0])
    out_ms = (clock.wall_ms() // 10_000 + 2) * 10_000
    bodies = [b"%d" % n for n in range(60)]
    for body in bodies:
        waits = {"REAL_TOPIC": TARGET, "REAL_QID": "0", "TIMER_OUT_MS": str(out_ms), "UNIQ_KEY": body.decode()}
        timers.put(body, encode_properties(waits))
    timers.rounds()
    step(timers, HOUR_MS)
    precision[0] = 10_000
    timers.wait(b"far", DAY_MS)
    timers.pass_time(out_ms - clock.wall_ms() + HOUR_MS + 5000, 500)
    assert timers.arrived() == []
    assert timers.index.run_count > 10
    written, write = [], timers.index._write
    monkeypatch.setattr(timers.index, "_write", lambda path, pieces: written.append(path) or write(path, pieces))
    timers.save()
    assert len(written) == 1
    timers.pass_time(10_000, 500)
    assert sorted(timers.arrived()) == sorted(bodies)
