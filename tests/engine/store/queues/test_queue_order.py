"""Records whose queue offset or queue id a flipped bit altered: they lose their place, and no other record does."""

import shutil
import struct

import pytest

from appliance.engine.protocol.record import QUEUE_OFFSET_AT
from appliance.engine.store.queues.queue_inspector import QueueInspector
from tests.support.directories import shared_directory
from tests.support.offline import change
from tests.support.store import StoreUnderTest
from tests.support.waiting import wait_for

QUEUE_ID_AT = 12
COUNT = 40


@pytest.fixture(scope="module")
def filled(request):
    """Return a stopped store's directory, and the places of its records by (queue, offset)."""
    store = StoreUnderTest(shared_directory(request, "filled"), segment_bytes=128 * 1024).open()
    places = {}
    for i in range(COUNT):
        for queue_id in (0, 1):
            places[queue_id, i] = store.put("T", queue_id, b"%d %d" % (queue_id, i))
        store.tick()
    store.wait_recovery_position()
    store.stop()
    return store.directory, places


@pytest.fixture
def harmed(tmp_path, filled):
    """Alter records of a stopped store whose queues must be rebuilt, and open it; return each queue's bodies."""
    directory, places = filled
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    store = StoreUnderTest(tmp_path, segment_bytes=128 * 1024)

    def alter(*changes, cut_to=None):
        path = tmp_path / "store" / "commitlog" / f"{0:020d}"
        for queue_id, offset, at, data in changes:
            change(path, places[queue_id, offset] + at, data)
        if cut_to is not None:
            end = places[cut_to]
            change(path, end, bytes(128 * 1024 - end))
        for file in (tmp_path / "rocketbox").iterdir():  # so that the whole log is read
            if file.is_file():
                file.unlink()
        store.open()
        found = [store.bodies("T", queue_id) for queue_id in (0, 1)]
        bounds = [(q.min_offset, q.max_offset) for q in (store.store.find_queue("T", i) for i in (0, 1))]
        store.stop()
        return found, bounds

    return alter


def offset_of(value):
    return QUEUE_OFFSET_AT, struct.pack(">q", value)


def without(queue_id, *offsets):
    return [b"%d %d" % (queue_id, i) for i in range(COUNT) if i not in offsets]


@pytest.mark.parametrize("bit", [0, 1, 2, 3, 5, 6, 20, 40, 62, 63])
def test_a_flipped_queue_offset_costs_its_own_message_only(harmed, bit):
    """The upper bits once made recovery fill 2**60 holes, the lower ones took every message before away."""
    value = struct.unpack(">q", struct.pack(">Q", 10 ^ 1 << bit))[0]
    found, bounds = harmed((0, 10, *offset_of(value)))
    assert found == [without(0, 10), without(1)]
    assert bounds == [(0, COUNT), (0, COUNT)]


@pytest.mark.parametrize("offset", [0, 1, 8, COUNT - 1])
def test_of_any_record_of_the_queue(harmed, offset):
    for value in (offset + 1, offset + 3, offset - 1, 1 << 40):
        found, _ = harmed((1, offset, *offset_of(value)))
        assert found[0] == without(0)
        lost = set(without(1)) - set(found[1])
        assert lost <= {b"1 %d" % offset, b"1 %d" % value}, (value, lost)


def test_a_record_that_went_over_to_another_queue(harmed):
    found, bounds = harmed((1, 20, QUEUE_ID_AT, struct.pack(">i", 0)))
    assert found == [without(0), without(1, 20)]
    assert bounds == [(0, COUNT), (0, COUNT)]


@pytest.mark.parametrize("offset", [0, 20, COUNT - 1])
def test_a_record_that_took_the_next_place_of_another_queue(harmed, offset):
    """The altered record comes first in the log, but the old queue file shows which record belongs there."""
    found, bounds = harmed((0, offset, QUEUE_ID_AT, struct.pack(">i", 1)))
    assert found == [without(0, offset), without(1)]
    assert bounds[1] == (0, COUNT)


def test_a_record_that_went_over_and_ahead(harmed):
    """It takes the place of a later record; that one and those between get their own."""
    found, _ = harmed((1, 5, QUEUE_ID_AT, struct.pack(">i", 0)), (1, 5, *offset_of(9)))
    assert set(without(0)) - set(found[0]) <= {b"0 9"}
    assert found[1] == without(1, 5)


def test_two_altered_records_one_after_the_other(harmed):
    found, _ = harmed((0, 10, *offset_of(3)), (0, 11, *offset_of(1 << 30)))
    assert found == [without(0, 10, 11), without(1)]


def test_the_last_record_altered_to_an_earlier_place(harmed):
    found, bounds = harmed((0, COUNT - 1, *offset_of(7)))
    assert found[0] == without(0, COUNT - 1)
    assert bounds[0] == (0, COUNT - 1)


def test_a_topic_made_anew_begins_again(tmp_path):
    """Apache leaves it so: the old messages' records are still in the log."""
    for count in (1, 2, 30):
        store = StoreUnderTest(tmp_path / str(count)).open()
        store.write("T", 0, *[b"old %d" % i for i in range(130)])
        store.store.queues.remove_topic("T")
        store.write("T", 0, *[b"new %d" % i for i in range(count)])
        store.stop()
        for directory in ("store/consumequeue", "rocketbox"):
            for file in (tmp_path / str(count) / directory).rglob("*"):
                if file.is_file():
                    file.unlink()
        store.open()
        assert store.bodies("T", 0) == [b"new %d" % i for i in range(count)]
        store.stop()


@pytest.mark.parametrize("new", [True, False])
def test_nothing_of_a_deleted_topic_stays_behind_the_entries_of_the_new_one(tmp_path, monkeypatch, new):
    """A later start would take them for valid. new: the queue has no directory, so that recovery makes one."""
    store = StoreUnderTest(tmp_path).open()
    store.write("T", 0, *[b"old %d" % i for i in range(130)])
    store.write("U", 0, b"another")
    store.store.queues.remove_topic("T")
    store.write("T", 0, b"new")
    store.stop()
    shutil.rmtree(tmp_path / "rocketbox")
    queues = tmp_path / "store" / "consumequeue"
    shutil.rmtree(queues) if new else (queues / "T" / "0" / f"{0:020d}").unlink()
    looked_behind, real = [], QueueInspector.cut
    monkeypatch.setattr(
        QueueInspector, "cut", lambda self, queue, *more: looked_behind.append(queue.topic) or real(self, queue, *more)
    )
    store.open()
    assert sorted(looked_behind) == (["T"] if new else ["T", "U"]), "others that are new have nothing there"
    assert store.bodies("T", 0) == [b"new"]
    store.stop()
    assert not (queues / "T" / "0" / f"{0:020d}").read_bytes()[20:].strip(b"\0")


@pytest.mark.parametrize("offset", [0, 3, 20, COUNT - 1])
def test_queues_that_are_built_anew_behind_the_start(tmp_path, offset):
    """Found by a random flip: the last record had 32 instead of 34, and everything before 32 was gone."""
    store = StoreUnderTest(tmp_path).open()
    places = [store.put("T", 0, b"0 %d" % i) for i in range(COUNT)]
    store.tick()
    store.wait_recovery_position()
    store.stop()
    known = 0
    for value in (offset - 2, offset + 2, 0):
        if 0 <= value != offset:
            change(
                tmp_path / "store" / "commitlog" / f"{0:020d}",
                places[offset] + QUEUE_OFFSET_AT,
                struct.pack(">q", value),
            )
            (tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
            store.open()
            queue = store.store.find_queue("T", 0)
            found = store.store.files.findings
            wait_for(lambda queue=queue, known=known: not queue.broken and len(found()) > known, "it to be rewritten")  # noqa: B023
            known = len(store.store.files.findings())
            lost = set(without(0)) - set(store.bodies("T", 0))
            assert lost <= {b"0 %d" % offset, b"0 %d" % value}, value
            assert len(lost) <= 1
            store.stop()
