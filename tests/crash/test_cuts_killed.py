"""Power cuts and kills at every operation of a cut: the tail never comes back, and nothing below it changes."""

import pytest

from appliance.engine.failover import truncation
from appliance.engine.store import tail_cut
from tests.crash.crashes import TIMES
from tests.crash.cut_life import Cuts
from tests.crash.life import Violation

pytestmark = pytest.mark.usefixtures("quiet")

STEPS = 25


def run_cuts(cuts, name, count, steps=STEPS):
    for seed in range(count):
        cuts.run_cut(f"{name} {seed}", seed % 2 == 0, steps)


def test_every_crash_of_a_cut_leaves_all_or_nothing_of_it(record_testsuite_property):
    cuts = Cuts()
    run_cuts(cuts, "cut", 16 * TIMES)
    print(f"cuts: {len(cuts.seen)} distinct images, {cuts.recoveries} recoveries")
    record_testsuite_property("images of cuts", len(cuts.seen))
    assert len(cuts.seen) >= 1200 * TIMES
    # Else the next start would read the whole log.
    print(f"cuts below a recovery position: {len(cuts.positions)}, with one behind them: {sum(cuts.positions)}")
    assert sum(cuts.positions) >= 0.8 * len(cuts.positions) > 0


def cut_in_memory_only(monkeypatch):
    """The log's bytes stay on the disk."""
    monkeypatch.setattr(tail_cut, "_cut_log", lambda store, point: None)


def leave_zeros_unsynced(monkeypatch):
    """Do not make the zeroed bytes durable before the intent is removed."""
    cut_log = tail_cut._cut_log

    def cut(store, point):
        sync, store.disk.fdatasync = store.disk.fdatasync, lambda fd: None
        cut_log(store, point)
        store.disk.fdatasync = sync

    monkeypatch.setattr(tail_cut, "_cut_log", cut)


def leave_queues(monkeypatch):
    """Queue entries of what is cut off stay."""
    monkeypatch.setattr(tail_cut._QueueCut, "_cut_queues", lambda self: None)


def leave_index(monkeypatch):
    monkeypatch.setattr(tail_cut, "cut_index", lambda *_: None)


def leave_seals(monkeypatch):
    monkeypatch.setattr(tail_cut.BlockChecksums, "remove", lambda self, start: None)


def forget_the_intent(monkeypatch):
    """A crash on the way is not gone on from."""
    monkeypatch.setattr(truncation.StoreCut, "_note", lambda self, intent: self.__dict__.update(intent=intent))
    monkeypatch.setattr(truncation.StoreCut, "_intent", lambda self: self.__dict__.get("intent"))
    monkeypatch.setattr(truncation.StoreCut, "_intent_path", property(lambda self: self._files.directory / "seen"))


def remove_the_intent_early(monkeypatch):
    """It is gone before the work is done."""
    cut = truncation.StoreCut._cut

    def unlink_first(self, intent):
        self._disk.unlink(self._intent_path)
        self._disk.sync_directory(self._files.directory)
        cut(self, intent)
        self._note(intent)

    monkeypatch.setattr(truncation.StoreCut, "_cut", unlink_first)


def trust_the_old_position(monkeypatch):
    """The recovery position and the ledger still speak of what was cut off."""
    monkeypatch.setattr(tail_cut._QueueCut, "run", lambda self, trusted: None)


@pytest.mark.parametrize(
    "sabotage",
    [
        cut_in_memory_only,
        leave_zeros_unsynced,
        leave_queues,
        leave_index,
        leave_seals,
        forget_the_intent,
        remove_the_intent_early,
        trust_the_old_position,
    ],
    ids=lambda sabotage: sabotage.__name__,
)
def test_a_sabotaged_cut_is_found_out(sabotage, monkeypatch):
    sabotage(monkeypatch)
    with pytest.raises(Violation):
        run_cuts(Cuts(), "cut", 16)
