"""The place from which store times are known to ascend."""

import pytest

from appliance.engine.disk import Disk
from appliance.engine.hotpath import RecordWalk
from appliance.engine.store import replica
from appliance.engine.store.replica import Incoming, ReplicaAppender
from appliance.engine.store.time_order import NAME, TimeOrder, read_begin
from tests.engine.test_format_pages import blocks_of
from tests.support.store import StoreUnderTest

HOUR_MS = 3_600_000


def fill(under, count=5):
    """Write messages a second apart; return the physical offset of the first."""
    first = -1
    for _ in range(count):
        under.scheduler.wall_ms += 1000
        physical = under.put("orders", 0, b"body")
        first = physical if first < 0 else first
        under.tick()
    return first


def step_back(under, ms=HOUR_MS):
    """Stamp as Apache's broker does when its clock is set back."""
    under.scheduler.wall_ms -= ms
    under.store.store_ms = 0


def noted(directory):
    return read_begin(directory / "rocketbox" / NAME, Disk())


def test_a_store_of_ours_ascends_from_its_first_byte_whatever_its_clock_does(tmp_path):
    under = StoreUnderTest(tmp_path).open()
    fill(under)
    under.scheduler.wall_ms -= HOUR_MS
    fill(under)
    under.die()
    under.open()
    assert under.store.time_order.begin == noted(tmp_path) == 0
    under.stop()


def test_what_was_there_before_is_not_known_to_ascend(tmp_path):
    under = StoreUnderTest(tmp_path).open()
    fill(under)
    end = under.store.log.written
    under.stop()
    (tmp_path / "rocketbox" / NAME).unlink()
    under.open()
    fill(under)
    under.stop()
    assert noted(tmp_path) == end


def test_what_recovery_reads_is_compared(tmp_path):
    """Another broker has continued the log, and its clock was set back."""
    under = StoreUnderTest(tmp_path).open()
    fill(under)
    under.wait_recovery_position()
    step_back(under)
    back = fill(under)
    under.die()
    under.open()
    assert under.store.time_order.begin == noted(tmp_path) == back
    under.stop()


@pytest.mark.parametrize("walk", ["pure", "compiled"])
def test_what_is_copied_is_compared(tmp_path, walk, monkeypatch):
    if walk == "pure":
        monkeypatch.setattr(replica, "RecordWalk", None)
    elif RecordWalk is None:
        pytest.skip("nothing was compiled")
    leader = StoreUnderTest(tmp_path / "leader").open()
    fill(leader)
    step_back(leader, 2500)
    fill(leader)
    back = [fill(leader)]
    step_back(leader)
    back.append(fill(leader))
    copy = StoreUnderTest(tmp_path / "copy").open()
    end = leader.store.log.written
    incoming, appender = Incoming(copy.settings.segment_bytes), ReplicaAppender(copy.store)
    incoming.begin(0)
    incoming.feed(0, memoryview(leader.store.log.read(0, end)))
    while (piece := incoming.take()) is not None:
        appender.append(piece)
        copy.tick()
    assert copy.store.log.written == end
    assert copy.store.time_order.begin == noted(tmp_path / "copy") == back[1]
    leader.stop()
    copy.stop()


def test_what_lay_behind_the_end_is_forgotten(tmp_path):
    order = TimeOrder(tmp_path / NAME, Disk())
    order.goes_back(5000)
    order.load(0, 3000, None)
    assert order.begin == 3000


@pytest.mark.parametrize("data", [b"", b"x", b"00000000 {}\n", b'c4b81a65 {"begin":-1}\n'])
def test_a_damaged_file_is_as_good_as_none(tmp_path, data):
    (tmp_path / NAME).write_bytes(data)
    order = TimeOrder(tmp_path / NAME, Disk())
    order.load(0, 3000, None)
    assert order.begin == 3000


def test_the_file_is_the_one_of_its_page(tmp_path):
    TimeOrder(tmp_path / NAME, Disk()).goes_back(90112)
    [example] = blocks_of("time-order.md")
    assert (tmp_path / NAME).read_text() == example
