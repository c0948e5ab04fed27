"""Crashes at every step of transactions: what was acknowledged of them holds, and none is committed twice."""

import pytest

from tests.crash.crashes import TIMES, Crashes, least, run_lives
from tests.crash.life import Violation
from tests.crash.transaction_life import TransactionLife

pytestmark = pytest.mark.usefixtures("quiet")

STEPS = 30
SEEDS = 2
#: Distinct disk images over all seeds and both flush modes.
FLOOR = 2_000


@pytest.mark.parametrize("faults", [False, True])
def test_transactions_survive_any_crash(faults):
    crashes = Crashes(kind=TransactionLife)
    run_lives(crashes, f"transaction life {faults}", SEEDS * TIMES, STEPS, faults)
    assert len(crashes.seen) >= least(FLOOR)


# --- on purpose


def forget_the_log(life):
    """What a crash left without op message is not looked for."""
    if hasattr(life, "checks"):
        rebuild = life.rebuild

        def blind():
            found = rebuild()
            found._speaking = lambda begin: iter(())
            return found

        life.rebuild = blind


def save_early(life):
    """The offsets of CID_RMQ_SYS_TRANS do not wait for the log."""
    if hasattr(life, "checks"):
        save = life.checks._save

        def hasty():
            life.checks._progress = (0, *life.decisions.progress())
            save()

        life.checks._save = hasty


def acknowledge_early(life):
    """One that is rolled back is acknowledged before its op message is there."""
    if hasattr(life, "checks"):
        decisions = life.decisions
        end_tick, ticks = decisions.end_tick, [0]

        def late():
            life.store.tick.acks += decisions._rolled_back
            decisions._rolled_back = []
            ticks[0] += 1
            if ticks[0] % 10 == 0:
                end_tick()

        decisions.end_tick = late


def op_first(life):
    """The op message is staged before the copy, and another tick holds that."""
    if hasattr(life, "checks"):
        decisions = life.decisions
        stage = decisions._stage

        def late(half, place, properties, sys_flag, reply_to):
            decisions._put_op(half.record.queue_offset)
            type(life.store).end_tick(life.store)
            return stage(half, place, properties, sys_flag, reply_to)

        decisions._stage = late


def keep_the_old_place(life):
    """A half that was put back stays open where it lay."""
    if hasattr(life, "checks"):
        put_back, halves = life.decisions.put_back, life.halves

        def twice(half, checks, due_ms):
            done = put_back(half, checks, due_ms)
            halves.open(half.record.queue_offset, due_ms, checks)
            return done

        life.decisions.put_back = twice


@pytest.mark.parametrize(
    "sabotage",
    [forget_the_log, save_early, acknowledge_early, op_first, keep_the_old_place],
    ids=lambda sabotage: sabotage.__name__,
)
def test_a_sabotaged_transaction_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage, TransactionLife), "sabotage", 8, 30)
