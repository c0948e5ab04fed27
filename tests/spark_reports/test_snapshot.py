"""The file between the console and a run."""

from __future__ import annotations

from spark_reports import snapshot as snapshots
from spark_reports.snapshot import GroupFacts, Snapshot, WaitingFacts


def test_a_name_that_is_no_text_ends_no_run(tmp_path):
    """JSON in another program's store may contain "\\ud800"; a page cannot, nor can a table of facts."""
    waiting = WaitingFacts("g", "t", 3, 7, (1, -2))
    group = GroupFacts("billing-\ud800-ü", "", (), None, None, 1)
    made = Snapshot(1, "2026-01-31", "UTC", 0, 1, "/store", "", 0, 0, 1, 1, 1, 1, groups=(group,), waiting=(waiting,))
    made.save(tmp_path)
    loaded = snapshots.load(tmp_path)
    (found,) = loaded.groups
    assert found.name == "billing-?-ü"
    assert loaded.waiting == (waiting,)
