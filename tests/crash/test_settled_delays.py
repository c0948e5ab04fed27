"""Crashes at every step of acts on waiting messages: what was acknowledged holds, and nothing is lost by it."""

from pathlib import Path

import pytest

from appliance.engine.broker.delays.settled import How, Settled
from tests.crash.crashes import TIMES, Crashes, least, run_lives
from tests.crash.life import Violation
from tests.crash.settled_life import SettledLife

pytestmark = pytest.mark.usefixtures("quiet")

STEPS = 40
SEEDS = 2
#: Distinct disk images over all seeds and both flush modes.
FLOOR = 4_000


@pytest.mark.parametrize("faults", [False, True])
def test_acts_on_waiting_messages_survive_any_crash(faults):
    crashes = Crashes(kind=SettledLife)
    run_lives(crashes, f"settled life {faults}", SEEDS * TIMES, STEPS, faults)
    assert len(crashes.seen) >= least(FLOOR)


# --- on purpose


def settle_first(life):
    """A message is settled before its copy is in the log."""
    if not hasattr(life, "acts"):
        return
    acts = life.acts
    append, settle = acts._append, acts._settled.settle

    def settle_then_append(copies, work, ended, claimed):
        settle(
            [
                Settled(
                    one.chosen.level,
                    one.chosen.queue_offset,
                    one.record.physical_offset,
                    one.record.store_time_ms,
                    How.DELIVERED,
                )
                for one in work.values()
            ]
        )
        return append(copies, work, ended, claimed)

    acts._append = settle_then_append


def do_not_wait(life):
    """Nobody waits until the log is durable."""
    if hasattr(life, "acts"):
        life.acts._durable = lambda end: True


def forget_the_sync(life):
    """The list of what was settled is written, not synced."""
    if not hasattr(life, "settled"):
        return
    disk, sync = life.disk, type(life.disk).fdatasync

    def fdatasync(fd):
        if Path(disk._open[fd][1]).name.startswith("settled-delays"):
            return
        sync(disk, fd)

    disk.fdatasync = fdatasync


def hold_everything(life):
    """What is read from the file at a start is one too many."""
    if not hasattr(life, "settled"):
        return
    holds = life.settled.holds
    life.settled.holds = lambda level, offset: holds(level, offset) or holds(level, offset - 1)


@pytest.mark.parametrize(
    "sabotage", [settle_first, do_not_wait, forget_the_sync, hold_everything], ids=lambda sabotage: sabotage.__name__
)
def test_a_sabotaged_act_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage, SettledLife), "sabotage", 8, 30)
