"""Power cuts and kills at every operation of seeded lives, in recovery too: nothing acknowledged is lost or altered."""

import pytest

from tests.crash.broker_life import BrokerLife
from tests.crash.crashes import TIMES, Crashes, least, run_lives
from tests.crash.delay_life import DelayLife
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
from tests.crash.send_life import SendBackLife, SendLife
from tests.crash.services_life import ServicesLife
from tests.crash.timer_life import TimerLife

pytestmark = pytest.mark.usefixtures("quiet")

STEPS = 40
#: Kind of life -> its class, whether the disk fails now and then, seeds, distinct images at least. Each seed is a life
#: in either flush mode.
LIVES = {
    "store": (Life, False, 6, 7_000),
    "store, faulty disk": (Life, True, 2, 2_000),
    "broker": (BrokerLife, False, 2, 3_000),
    "broker, faulty disk": (BrokerLife, True, 1, 2_000),
    "hostile sends": (SendLife, False, 6, 4_000),
    "delays": (DelayLife, False, 2, 2_000),
    "delays, faulty disk": (DelayLife, True, 1, 1_000),
    "timers": (TimerLife, False, 1, 1_000),
    "timers, faulty disk": (TimerLife, True, 1, 1_000),
    "sent back": (SendBackLife, False, 2, 4_000),
    "services": (ServicesLife, False, 1, 6_000),
    "services, faulty disk": (ServicesLife, True, 1, 1_000),
    "replay": (ReplayLife, False, 2, 2_000),
    "replay, faulty disk": (ReplayLife, True, 1, 1_000),
}


@pytest.mark.parametrize("name", LIVES)
def test_every_crash_keeps_what_was_acknowledged(name, record_testsuite_property):
    kind, faults, seeds, floor = LIVES[name]
    crashes = Crashes(kind=kind)
    run_lives(crashes, name, seeds * TIMES, STEPS, faults)
    record_testsuite_property(f"images of {name}", len(crashes.seen))
    assert len(crashes.seen) >= least(floor)


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_a_sabotaged_store_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage), "sabotage", 12, 25)


@pytest.mark.parametrize("sabotage", TABLE_SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_a_sabotaged_broker_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage, BrokerLife), "sabotage", 12, 25)


@pytest.mark.parametrize("sabotage", SERVICE_SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_a_sabotaged_service_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage, ServicesLife), "sabotage", 6, 40)


@pytest.mark.parametrize("sabotage", DELAY_SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_a_sabotaged_delivery_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage, DelayLife), "sabotage", 6, 40)


@pytest.mark.parametrize("sabotage", TIMER_SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_sabotaged_timers_are_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage, TimerLife), "sabotage", 6, 40)


@pytest.mark.parametrize("sabotage", REPLAY_SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_a_sabotaged_replay_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage, ReplayLife), "sabotage", 6, 40)
