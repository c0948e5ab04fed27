"""Crashes at every step of acts on messages with a time of their own: what was acknowledged holds, nothing is lost."""

import pytest

from appliance.engine.broker.timers import early
from tests.crash.crashes import TIMES, Crashes, least, run_lives
from tests.crash.early_timer_life import EarlyTimerLife
from tests.crash.life import Violation

pytestmark = pytest.mark.usefixtures("quiet")

STEPS = 40
SEEDS = 1
#: Distinct disk images over all seeds and both flush modes.
FLOOR = 1_500


@pytest.mark.parametrize("faults", [False, True])
def test_recalls_and_acts_on_timers_survive_any_crash(faults):
    crashes = Crashes(kind=EarlyTimerLife)
    run_lives(crashes, f"early timer life {faults}", SEEDS * TIMES, STEPS, faults)
    assert len(crashes.seen) >= least(FLOOR)


# --- on purpose


def mark_first(life):
    """The mark is in the log before the copy."""
    if not hasattr(life, "acts"):
        return
    acts = life.acts
    do = acts._do

    def mark_and_do(work, ended, claimed):
        marks = {n: early.mark_of(one.topic, one.unique_key, one.timed.out_ms, 1) for n, one in work.items()}
        acts._append(marks, work, {}, dict(claimed))
        do(work, ended, claimed)

    acts._do = mark_and_do


def do_not_wait(life):
    """Nobody waits until the log is durable."""
    if hasattr(life, "acts"):
        life.acts._durable = lambda end: True


def answer_at_once(life):
    """A recall is answered when it is staged."""
    if not hasattr(life, "recalls"):
        return
    appends = life.appends
    put = appends.put

    def answer_and_put(message, reply_to):
        if message.body == b"0":
            life.disk.mark(("kept", f"settled {message.unique_key}"))
        put(message, reply_to)

    appends.put = answer_and_put


def mark_another(life):
    """The mark names another time."""
    if hasattr(life, "claims"):
        make = early.mark_of
        life.acts._do = lambda work, ended, claimed: _do_with(
            life,
            lambda topic, key, out, *rest, **named: make(topic, key, out + 1000, *rest, **named),
            work,
            ended,
            claimed,
        )


def _do_with(life, make, work, ended, claimed):
    kept, early.mark_of = early.mark_of, make
    try:
        type(life.acts)._do(life.acts, work, ended, claimed)
    finally:
        early.mark_of = kept


@pytest.mark.parametrize(
    "sabotage", [mark_first, do_not_wait, answer_at_once, mark_another], ids=lambda sabotage: sabotage.__name__
)
def test_a_sabotaged_act_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage, EarlyTimerLife), "sabotage", 8, 30)
