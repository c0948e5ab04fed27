"""Power cuts and kills at every operation of seeded lives, in recovery too: nothing acknowledged is lost or altered."""

from typing import NamedTuple

import pytest

from tests.crash.broker_life import BrokerLife
from tests.crash.crashes import TIMES, Crashes, least, run_lives
from tests.crash.delay_life import DelayLife
from tests.crash.early_timer_life import EarlyTimerLife
from tests.crash.life import Life, Violation
from tests.crash.replay_life import ReplayLife
from tests.crash.sabotage import (
    DELAY_SABOTAGES,
    REPLAY_SABOTAGES,
    SABOTAGES,
    SERVICE_SABOTAGES,
    TABLE_SABOTAGES,
    TIMER_SABOTAGES,
)
from tests.crash.sabotaged_acts import DELAY_ACT_SABOTAGES, TIMER_ACT_SABOTAGES, TRANSACTION_SABOTAGES
from tests.crash.send_life import SendBackLife, SendLife
from tests.crash.services_life import ServicesLife
from tests.crash.settled_life import SettledLife
from tests.crash.timer_life import TimerLife
from tests.crash.transaction_life import TransactionLife

pytestmark = pytest.mark.usefixtures("quiet")


class Lives(NamedTuple):
    """seeds: each is a life in either flush mode. images: the least number of distinct ones. faults: the disk fails at
    times. seed: what the seeds are made of, if not the name."""

    kind: type[Life]
    seeds: int
    images: int
    faults: bool = False
    steps: int = 40
    seed: str = ""


LIVES = {
    "store": Lives(Life, 4, 4_600),
    "store, faulty disk": Lives(Life, 2, 2_000, True),
    "broker": Lives(BrokerLife, 2, 3_000),
    "broker, faulty disk": Lives(BrokerLife, 1, 2_000, True),
    "hostile sends": Lives(SendLife, 4, 2_600),
    "delays": Lives(DelayLife, 2, 2_000),
    "delays, faulty disk": Lives(DelayLife, 1, 1_000, True),
    "timers": Lives(TimerLife, 1, 1_000),
    "timers, faulty disk": Lives(TimerLife, 1, 1_000, True),
    "sent back": Lives(SendBackLife, 2, 4_000),
    "services": Lives(ServicesLife, 1, 6_000),
    "services, faulty disk": Lives(ServicesLife, 1, 1_000, True),
    "replay": Lives(ReplayLife, 2, 2_000),
    "replay, faulty disk": Lives(ReplayLife, 1, 1_000, True),
    "acts on delays": Lives(SettledLife, 2, 4_000, seed="settled life False"),
    "acts on delays, faulty disk": Lives(SettledLife, 2, 4_000, True, seed="settled life True"),
    "acts on timers": Lives(EarlyTimerLife, 1, 1_500, seed="early timer life False"),
    "acts on timers, faulty disk": Lives(EarlyTimerLife, 1, 1_500, True, seed="early timer life True"),
    "transactions": Lives(TransactionLife, 2, 2_000, steps=30, seed="transaction life False"),
    "transactions, faulty disk": Lives(TransactionLife, 2, 2_000, True, 30, "transaction life True"),
}
#: Part that is sabotaged -> kind of life, seeds, steps, and the sabotages.
SABOTAGED = {
    "store": (Life, 12, 25, SABOTAGES),
    "broker": (BrokerLife, 12, 25, TABLE_SABOTAGES),
    "services": (ServicesLife, 6, 40, SERVICE_SABOTAGES),
    "delays": (DelayLife, 6, 40, DELAY_SABOTAGES),
    "timers": (TimerLife, 6, 40, TIMER_SABOTAGES),
    "replay": (ReplayLife, 6, 40, REPLAY_SABOTAGES),
    "acts on delays": (SettledLife, 8, 30, DELAY_ACT_SABOTAGES),
    "acts on timers": (EarlyTimerLife, 8, 30, TIMER_ACT_SABOTAGES),
    "transactions": (TransactionLife, 8, 30, TRANSACTION_SABOTAGES),
}
#: The life that shows a sabotage soonest, where the first ones take long: its seed, and whether it syncs.
SOONEST = {
    "acts on delays-do_not_wait": (0, False),
    "acts on delays-settle_first": (1, False),
    "acts on timers-do_not_wait": (0, False),
    "acts on timers-mark_first": (0, False),
    "delays-save_undurable_progress": (4, False),
    "replay-journal_before_sync": (0, False),
    "services-delete_young_files": (15, True),
    "services-unlink_in_any_order": (0, False),
    "store-leave_no_abort_file": (0, False),
    "timers-forget_undurable_timers": (26, False),
    "transactions-keep_the_old_place": (3, False),
    "transactions-save_early": (2, False),
}


@pytest.mark.parametrize("name", LIVES)
def test_every_crash_keeps_what_was_acknowledged(name, record_testsuite_property):
    lives = LIVES[name]
    crashes = Crashes(kind=lives.kind)
    run_lives(crashes, lives.seed or name, lives.seeds * TIMES, lives.steps, lives.faults)
    record_testsuite_property(f"images of {name}", len(crashes.seen))
    assert len(crashes.seen) >= least(lives.images)


@pytest.mark.parametrize(
    ("name", "sabotage"),
    [
        pytest.param(name, sabotage, id=f"{name}-{sabotage.__name__}")
        for name, (_, _, _, sabotages) in SABOTAGED.items()
        for sabotage in sabotages
    ],
)
def test_a_sabotage_is_found_out(name, sabotage):
    kind, seeds, steps, _ = SABOTAGED[name]
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage, kind), "sabotage", seeds, steps, first=SOONEST.get(f"{name}-{sabotage.__name__}"))
