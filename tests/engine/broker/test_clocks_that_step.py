"""The clock is set, brokers restart, and members with other clocks take over while messages wait at levels, for times
of their own, and as halves of transactions: each comes once, and not before its time."""

import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from appliance.engine.broker.delays.delivery import DeliverDelayed
from appliance.engine.broker.delays.levels import Place, make_wait
from appliance.engine.broker.delays.progress import DelayProgress, SaveDelays
from appliance.engine.broker.timers.apache_files import checkpoint_answer, checkpoint_path, copied_checkpoint
from appliance.engine.broker.transactions.check import CheckSettings, CheckTransactions
from appliance.engine.broker.transactions.decisions import NOBODY, Decisions
from appliance.engine.broker.transactions.half import HALF_QUEUE, make_half
from appliance.engine.broker.transactions.open_halves import OpenHalves
from appliance.engine.disk import Disk
from appliance.engine.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from appliance.engine.protocol.properties import encode_properties
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.store.dispatch import SCHEDULE_TOPIC
from appliance.engine.store.time_search import Boundary, TimeSearch
from tests.support.clock import FakeClock
from tests.support.store import StoreUnderTest
from tests.support.timers import TARGET, Timers

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
LEVELS_MS = (1000, 5 * MINUTE_MS, 2 * HOUR_MS)
TIMES_MS = (2000, 10 * MINUTE_MS, DAY_MS)
#: Times for which the producer of a half is not asked.
HALVES_MS = (2000, 10 * MINUTE_MS, 2 * HOUR_MS)
STEPS_MS = (-DAY_MS, -HOUR_MS, -3000, -300, 300, 3000, HOUR_MS, DAY_MS)
#: A timer's time is rounded to timerPrecisionMs, and a step is seen at the next look.
EARLY_MS, LATE_MS = 1, 1500


class Sent(NamedTuple):
    at_ms: float
    delay_ms: int
    is_exact: bool


class Halves:
    """Open halves over a store, whose producer commits as soon as it is asked. It plays the thread that checks, its
    loop and the producer."""

    def __init__(self, timers: Timers, delays: DeliverDelayed) -> None:
        timers.topics[HALF_TOPIC] = timers.topics[OP_HALF_TOPIC] = timers.topics[TARGET]
        self._timers = timers
        self._asked: list[int] = []
        loop = cast(EventLoop, SimpleNamespace(call_soon=lambda call: call(), alive=True, clock=timers.clock))
        self._decisions = Decisions(
            timers.store, timers.appends, OpenHalves(), cast(Any, timers.topics), timers.places, timers.clock.wall_ms
        )
        producer = SimpleNamespace(conn=SimpleNamespace(closed=False, outbox_bytes=0, send_command=self._take))
        self._checks = CheckTransactions(
            timers.store,
            self._decisions,
            cast(Any, SimpleNamespace(producer_channels=lambda group: [producer])),
            cast(Any, SimpleNamespace(get=lambda group, topic, queue_id: -1)),  # all is read, as if none was saved
            loop,
            lambda: CheckSettings(6000, 30_000, 15, 1 << 40, "b"),
            delays.left_until_ms,
        )
        assert self._checks.ready or self._checks._find_open()

    def open_half(self, body: bytes, immunity_ms: int) -> None:
        properties = {"UNIQ_KEY": body.decode(), "PGROUP": "P", "TRAN_MSG": "true"}
        properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(immunity_ms // 1000)
        make_half(properties, Place(TARGET, 0))
        text, store = encode_properties(properties), self._timers.store
        offset = store.queues.get_or_create(HALF_TOPIC, HALF_QUEUE).next_offset
        self._timers.put(body, text, Place(HALF_TOPIC, HALF_QUEUE))
        self._checks.stored(offset, text)

    def round(self) -> None:
        self._checks._look_at_clock()
        self._checks._work()
        for offset in self._asked:
            half = self._checks._look(offset).half
            assert half is not None
            self._decisions.commit(half, NOBODY)
        if self._asked:
            self._asked.clear()
            self._decisions.end_tick()
            self._timers.store.end_tick()

    def _take(self, question: Any) -> None:
        self._asked.append(int(question.ext_fields["tranStateTableOffset"]))

    def close(self) -> None:
        self._checks._files.close()


class Waiting:
    """Delayed and timed messages and halves over one store; the broker is restarted, or another member takes over."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.sent: dict[bytes, Sent] = {}
        self.came: list[tuple[bytes, float, int]] = []
        self.under_test: StoreUnderTest
        self.begin()

    def begin(self) -> None:
        if not self.came and not self.sent:
            self.under_test = StoreUnderTest(self.directory, disk=Disk(), segment_bytes=1 << 20)
        self.under_test.open()
        self.serve()

    def serve(self) -> None:
        store = self.under_test.store
        self.timers = timers = Timers(self.under_test, self.clock, levels_ms=LEVELS_MS)
        timers.topics[SCHEDULE_TOPIC] = timers.topics[TARGET]
        progress = DelayProgress(self.directory / "store" / "config" / "delayOffset.json", timers.durable, self.clock)
        self.delays = DeliverDelayed(store, timers.appends, LEVELS_MS, progress, timers.topics.get, None, self.clock)
        self.saver = SaveDelays(progress, self.clock)
        self.halves = Halves(timers, self.delays)
        self.rounds()

    def rounds(self) -> None:
        for _ in range(3):
            self.delays.round()
            self.timers.delivery.round()
        self.halves.round()

    @property
    def now_ms(self) -> float:
        return self.clock.steady() * 1000

    def end(self) -> None:
        self.delays.stop()
        self.timers.delivery.stop()
        self.timers.save()
        self.saver.save_now()
        self.halves.close()
        self.timers.close()
        self.under_test.stop()

    def restart(self) -> None:
        self.end()
        self.begin()

    def take_over(self, ms: int) -> None:
        """Let a member take over that followed this one and whose clock is ahead by `ms`."""
        self.rounds()
        self.timers.save()
        done, indexed = self.timers.index.settled(), self.timers.index.indexed
        self.end()
        store = self.under_test.store
        answer = checkpoint_answer(0, indexed.queue_offset, self.clock.wall_ms())
        store.disk.replace(checkpoint_path(store.paths.root), copied_checkpoint(answer, done))
        shutil.rmtree(self.timers.directory)
        self.clock.jump(ms)
        self.under_test.open()
        store = self.under_test.store
        store.clock_steps.set_by(ms)
        store.clock_steps.stamped(store.log.written, 0)
        self.serve()

    def set_clock(self, ms: int) -> None:
        self.pass_time(100)
        self.clock.jump(ms)
        self.rounds()
        self.pass_time(200)

    def send(self, kind: str, delay_ms: int) -> None:
        body = b"m%d" % len(self.sent)
        is_stuck = self.under_test.store.store_ms > self.clock.wall_ms()
        if kind == "level":
            properties = {"UNIQ_KEY": body.decode()}
            level = LEVELS_MS.index(delay_ms) + 1
            make_wait(properties, level, Place(TARGET, 0))
            self.timers.put(body, encode_properties(properties), Place(SCHEDULE_TOPIC, level - 1))
        elif kind == "half":
            self.halves.open_half(body, delay_ms)
        else:
            self.timers.wait(body, delay_ms)
        self.sent[body] = Sent(self.now_ms, delay_ms, kind == "time" or not is_stuck)

    def pass_time(self, ms: int, step_ms: int = 100) -> None:
        """Pass the first 3 s in small steps, as a broker looks at its clock more than once a second."""
        near_ms = ms - 3000
        while ms > 0:
            passed = min(ms, step_ms if ms <= near_ms else 100)
            self.clock.advance(passed)
            ms -= passed
            self.rounds()
            now_ms = self.now_ms
            for body in self.timers.arrived()[len(self.came) :]:
                self.came.append((body, now_ms, passed))

    def judge(self) -> None:
        """Check that nothing is lost, given up, twice or early. Only a level's message that was stored while store
        times stood still may be late."""
        bodies = [body for body, _, _ in self.came]
        assert sorted(bodies) == sorted(self.sent)
        for body, at_ms, passed in self.came:
            sent = self.sent[body]
            waited = at_ms - sent.at_ms
            assert waited >= sent.delay_ms - EARLY_MS, f"{sent} came early, after {waited}"
            most = sent.delay_ms * (1 if sent.is_exact else 3) + LATE_MS + passed
            assert waited <= most, f"{sent} came late, after {waited}"

    def look_at_now(self) -> None:
        """Check that a reset to now goes to the end, whatever the store times are."""
        store = self.under_test.store
        search = TimeSearch(store.queues, store.records, self.clock.wall_ms)
        end = store.max_offset(TARGET, 0)
        assert search.offset_at(TARGET, 0, self.clock.wall_ms() + 1100, Boundary.LOWER) == end
        search.close()


STEP = st.one_of(
    st.tuples(st.just("level"), st.sampled_from(LEVELS_MS)),
    st.tuples(st.just("time"), st.sampled_from(TIMES_MS)),
    st.tuples(st.just("half"), st.sampled_from(HALVES_MS)),
    st.tuples(st.just("set"), st.sampled_from(STEPS_MS)),
    st.tuples(st.just("pass"), st.sampled_from([400, 900, 5000, 6 * MINUTE_MS, HOUR_MS])),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("set and restart"), st.sampled_from(STEPS_MS)),
    st.tuples(st.just("take over"), st.sampled_from([-HOUR_MS, -2000, 2000, HOUR_MS])),
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEP, max_size=16))
@example(steps=[("level", 2 * HOUR_MS), ("time", DAY_MS), ("take over", HOUR_MS)])
@example(steps=[("level", 1000), ("set", -DAY_MS), ("level", 1000)])
@example(steps=[("half", 2 * HOUR_MS), ("set", HOUR_MS), ("restart", 0)])
@example(steps=[("half", 2 * HOUR_MS), ("half", 2000), ("set and restart", -HOUR_MS), ("take over", HOUR_MS)])
@example(steps=[("level", 2 * HOUR_MS), ("time", DAY_MS), ("set and restart", HOUR_MS)])
@example(steps=[("level", 2 * HOUR_MS), ("time", DAY_MS), ("set and restart", -HOUR_MS)])
@example(steps=[("level", 2 * HOUR_MS), ("time", DAY_MS), ("set and restart", HOUR_MS), ("take over", -2000)])
@example(steps=[("level", 2 * HOUR_MS), ("time", DAY_MS), ("take over", -HOUR_MS)])
@example(steps=[("time", DAY_MS), ("set", HOUR_MS), ("restart", 0), ("set", -HOUR_MS), ("level", 5 * MINUTE_MS)])
@example(steps=[("time", DAY_MS), ("set", HOUR_MS), ("time", DAY_MS), ("take over", HOUR_MS), ("take over", -HOUR_MS)])
@example(steps=[("time", 2000), ("set", -HOUR_MS), ("time", 10 * MINUTE_MS), ("pass", 5000), ("take over", 2000)])
@example(steps=[("time", 10 * MINUTE_MS), ("set", HOUR_MS), ("time", 2000), ("pass", 5000), ("take over", 2000)])
@example(
    steps=[
        ("time", 2000),
        ("set", -HOUR_MS),
        ("time", 10 * MINUTE_MS),
        ("pass", 5000),
        ("restart", 0),
        ("take over", 9),
    ]
)
def test_each_comes_once_when_its_time_has_passed(steps, tmp_path):
    waiting = Waiting(Path(tempfile.mkdtemp(dir=tmp_path)))
    try:
        for what, value in steps:
            if what == "set":
                waiting.set_clock(value)
            elif what == "pass":
                waiting.pass_time(value, max(100, value // 10))
            elif what == "restart":
                waiting.restart()
            elif what == "set and restart":  # nobody looks at the clock in between
                waiting.pass_time(100)
                waiting.clock.jump(value)
                waiting.restart()
            elif what == "take over":
                waiting.take_over(value)
            else:
                waiting.send(what, value)
            waiting.look_at_now()
        waiting.pass_time(6 * HOUR_MS, 6 * MINUTE_MS)
        waiting.pass_time(DAY_MS, HOUR_MS)
        waiting.judge()
    finally:
        waiting.end()


@pytest.mark.parametrize("still_ms", [0, 2 * MINUTE_MS])
@pytest.mark.parametrize("ms", [HOUR_MS, 5000, -5000, -HOUR_MS])
@pytest.mark.parametrize(("kind", "delay_ms"), [("level", 5 * MINUTE_MS), ("time", 10 * MINUTE_MS)])
def test_a_delay_begun_in_the_moment_before_a_step_is_as_long_as_asked(tmp_path, kind, delay_ms, ms, still_ms):
    """And a machine that stands still meanwhile makes it longer by the step at most."""
    waiting = Waiting(tmp_path)
    waiting.pass_time(500)
    waiting.send(kind, delay_ms)
    waiting.clock.advance(20)
    waiting.clock.jump(ms)
    waiting.clock.advance(still_ms)
    waiting.send(kind, delay_ms)
    waiting.pass_time(2 * delay_ms, 1000)
    waits = [at_ms - waiting.sent[body].at_ms - delay_ms for body, at_ms, _ in waiting.came]
    assert len(waits) == 2
    assert all(-EARLY_MS <= late_ms <= LATE_MS + 1000 + min(abs(ms), still_ms) for late_ms in waits), waits
    waiting.end()
