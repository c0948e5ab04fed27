"""Timers against a plain model: which messages come, when and in which order over restarts, kills, jumps and rolls."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from appliance.engine.broker.timers import schedule
from tests.support.clock import FakeClock
from tests.support.store import StoreUnderTest
from tests.support.timers import TARGET, Timers

STEP = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([1, 5, 50, 51, 400, 3000, 40_000, 400_000_000])),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("pass"), st.sampled_from([1, 10, 49, 400, 5000, 60_000])),
    st.tuples(st.just("save"), st.just(0)),
    st.tuples(st.just("stop"), st.just(0)),
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("lose the index"), st.just(0)),
    st.tuples(st.just("roll"), st.just(0)),
)


class Model:
    """The messages that should come: (due, number) of each, in that order."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, bytes]] = []
        self.came: list[bytes] = []
        self.sent: list[tuple[int, bytes]] = []

    def until(self, now_ms: int) -> None:
        self.waiting.sort()
        while self.waiting and self.waiting[0][0] <= now_ms:
            self.came.append(self.waiting.pop(0)[2])


def without_repeats(bodies):
    return list(dict.fromkeys(bodies))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEP, max_size=40))
# A rolled message has come a moment ago, and is not in the index yet.
@example(steps=[("send", 400_000_000), ("stop", 0), ("send", 400_000_000), ("roll", 0)])
def test_what_comes_is_what_a_plain_list_says(steps, tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "MOST_INLINE", 3)
    clock = FakeClock()
    under_test = StoreUnderTest(Path(tempfile.mkdtemp(dir=tmp_path))).open()
    timers, model = Timers(under_test, clock), Model()
    repeats = False
    try:
        for what, value in steps:
            if what == "send":
                body = b"m%d" % len(model.sent)
                due = timers.wait(body, value)
                model.waiting.append((due, len(model.sent), body))
                model.sent.append((due, body))
            elif what == "cancel" and model.sent:
                due, body = model.sent[value % len(model.sent)]
                if due > clock.wall_ms() and any(one[2] == body for one in model.waiting):
                    key = f"TIMER_DEL_UNIQKEY\x01{TARGET}+{body.decode()}\x02"
                    timers.send(b"0", f"TIMER_DELIVER_MS\x01{due}\x02{key}UNIQ_KEY\x01mark\x02")
                    model.waiting = [one for one in model.waiting if one[2] != body]
            elif what == "pass":
                clock.advance(value)
                model.until(clock.wall_ms())
                timers.rounds(4)
            elif what == "save":
                timers.save()
            elif what == "roll":
                timers.roll.keep(under_test.store.log.written)
                timers.roll_on(12)
            elif what in ("stop", "kill", "lose the index"):
                if what == "stop":
                    timers.rounds(4)
                    timers.save()
                timers.close()
                if what == "lose the index" and (timers.directory / "state").exists():
                    (timers.directory / "state").unlink()
                repeats |= what != "stop"
                timers = Timers(under_test, clock)
                timers.rounds(8)
        clock.advance(500_000_000)
        model.until(clock.wall_ms())
        timers.rounds(12)
        arrived = timers.arrived()
        assert without_repeats(arrived) == model.came
        assert repeats or len(arrived) == len(set(arrived))
        assert sum(timers.delivery.given_up.values()) == 0
    finally:
        timers.close()
        under_test.stop()
