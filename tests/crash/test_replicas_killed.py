"""Power cuts and kills at every operation of a slave that copies a log: it is the master's up to a record's end, what
was reported is there, and it goes on from there to the master's end."""

import pytest

from tests.crash.crashes import TIMES, Crashes, least, nothing
from tests.crash.life import Violation
from tests.crash.replica_life import MasterLog, replica_of

pytestmark = pytest.mark.usefixtures("quiet")

STEPS = 16


def run_replicas(name, count, faults=False, sabotage=nothing):
    seen, recoveries = set(), 0
    for seed in range(count):
        for synchronous in (True, False):
            crashes = Crashes(sabotage, replica_of(MasterLog(f"{name} {seed}", STEPS)))
            crashes.run(f"{name} {seed}", synchronous, STEPS, faults)
            seen |= crashes.seen
            recoveries += crashes.recoveries
    return seen, recoveries


@pytest.mark.parametrize(("faults", "seeds", "floor"), [(False, 3, 1000), (True, 1, 700)], ids=["sound", "faulty disk"])
def test_a_copy_is_a_beginning_of_the_masters_log(faults, seeds, floor, record_testsuite_property):
    seen, recoveries = run_replicas("replica", seeds * TIMES, faults)
    print(f"replicas: {len(seen)} distinct images, {recoveries} recoveries")
    record_testsuite_property(f"images of replicas, {'faulty disk' if faults else 'sound disk'}", len(seen))
    assert len(seen) >= least(floor)


def written(life):
    """In sync flush, too: the page cache passes for the disk."""
    life.report = lambda: life.store.log.written


def staged(life):
    """Report what has come, whether it is written or not."""
    life.report = lambda: life.store.log.stage_base + life.store.log.staged + 10_000


@pytest.mark.parametrize("sabotage", [written, staged], ids=lambda sabotage: sabotage.__name__)
def test_a_report_of_more_than_is_kept_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_replicas("sabotage", 6, sabotage=sabotage)
