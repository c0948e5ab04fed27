"""A queue file that is cut short while the broker runs: its queue is rebuilt, and reading it does not loop."""

import os

import pytest

from appliance.engine.filter.message_filter import EVERYTHING, MessageFilter
from appliance.engine.store.results import GetStatus
from tests.support.store import StoreUnderTest
from tests.support.waiting import wait_for


@pytest.mark.parametrize("cold", [False, True], ids=["cached", "cold"])
def test_a_reader_that_has_a_lost_file_open_reads_the_one_that_was_built_anew(tmp_path, cold):
    """It once went on reading the old file, which gets no new entries, and had the queue rebuilt each time."""
    store = StoreUnderTest(tmp_path).open()
    store.disk.reads_without_waiting = store.disk.reads_without_waiting and not cold
    bodies = [b"%d" % i for i in range(30)]
    store.write("T", 0, *bodies)
    store.wait_recovery_position()
    assert store.bodies("T", 0) == bodies
    queue = store.store.find_queue("T", 0)
    (tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    repaired = []
    store.store.on_repaired = repaired.append
    store.store.queues.on_broken(queue)
    store.wait_whole()
    store.write("T", 0, b"sent since")
    store.wait_recovery_position()
    assert queue.tail_base == 31
    assert store.bodies("T", 0) == [*bodies, b"sent since"]
    assert not queue.broken
    assert repaired == [queue], "once"
    store.stop()


@pytest.mark.parametrize("wanted", [EVERYTHING, MessageFilter(frozenset((0,)))], ids=["all", "tagged"])
@pytest.mark.parametrize("cold", [False, True], ids=["cached", "cold"])
def test_a_reader_of_a_cut_queue_file_gets_an_answer_and_then_its_messages(tmp_path, wanted, cold):
    """The answer was once always None, "not in the page cache": the pull went round between loop and pool."""
    store = StoreUnderTest(tmp_path).open()
    bodies = [b"%d" % i for i in range(60)]
    store.write("T", 0, *bodies)
    store.wait_recovery_position()
    queue = store.store.find_queue("T", 0)
    assert queue.tail_base == 60, "all entries are in the file"
    assert store.bodies("T", 0) == bodies, "the reader has the file open"
    store.disk.reads_without_waiting = store.disk.reads_without_waiting and not cold
    assert store.get(queue, 0, 60, wanted).message_count == 32, "the reader in the pool has it open, too"
    os.truncate(tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}", 25 * 20 + 7)
    result = store.get(queue, 20, 32, wanted)
    assert result is not None
    assert (result.status, result.message_count) == (GetStatus.FOUND, 5)
    result = store.get(queue, 25, 32, wanted)
    assert result is not None
    assert result.status == GetStatus.OFFSET_OVERFLOW_ONE, "as if nothing had come since"
    wait_for(lambda: not queue.broken, "the queue to be whole")
    assert store.bodies("T", 0) == bodies
    path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    assert path.stat().st_size == 2000, "or whoever opens it anew takes it for cut short again"
    store.stop()
