"""A queue file that is cut short while the broker runs: its queue is built anew, nobody asks for it for ever."""

import os
import time

from appliance.engine.store.results import GetStatus
from tests.support.store import StoreUnderTest


def test_a_reader_of_a_cut_queue_file_gets_an_answer_and_then_its_messages(tmp_path):
    """The answer was None, "not in the page cache", for ever: the pull went round between loop and pool."""
    store = StoreUnderTest(tmp_path).open()
    bodies = [b"%d" % i for i in range(60)]
    store.write("T", 0, *bodies)
    store.wait_recovery_position()
    queue = store.store.find_queue("T", 0)
    assert queue.tail_base == 60, "all entries are in the file"
    assert store.bodies("T", 0) == bodies, "the reader has the file open"
    os.truncate(tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}", 25 * 20 + 7)
    result = store.store.get(queue, 20, 32, None)
    assert result is not None
    assert (result.status, result.message_count) == (GetStatus.FOUND, 5)
    result = store.store.get(queue, 25, 32, None)
    assert result is not None
    assert result.status == GetStatus.OFFSET_OVERFLOW_ONE, "as if nothing had come since"
    end = time.monotonic() + 10
    while queue.broken:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert store.bodies("T", 0) == bodies
    path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    assert path.stat().st_size == 2000, "or whoever opens it anew takes it for cut short again"
    store.stop()
