"""One way to a published record: the record lies there and names its place, or there is a reason why not."""

import errno

import pytest

from appliance.engine.protocol.record import decode_record
from appliance.engine.store.record_reader import LONGEST_READ_AT_ONCE, Missing
from tests.support.page_cache import refuse_reads_that_never_wait
from tests.support.store import FailingDisk, StoreUnderTest


@pytest.fixture
def store(tmp_path):
    under_test = StoreUnderTest(tmp_path, disk=FailingDisk()).open()
    yield under_test
    under_test.disk.failing.clear()
    under_test.stop()


def test_a_record_is_found_by_its_place_alone(store):
    physical = store.put("T", 0, b"x" * 9000)
    store.tick()
    record, data = store.store.records.get(physical)
    assert record.body == b"x" * 9000
    assert decode_record(data) == record
    assert store.store.records.get(physical, record.size) == (record, data)
    assert store.store.records.store_time(physical) == record.store_time_ms


@pytest.mark.parametrize("born", [bytes(8), bytes(20)], ids=["IPv4", "IPv6"])
def test_a_record_is_read_without_its_body(store, born, monkeypatch):
    monkeypatch.setattr("tests.support.store.BORN", born)
    physical = store.put("T", 3, b"x" * 40_000)
    short = store.put("T", 3, b"y")
    store.tick()
    record = store.store.records.get(physical).record
    read = []
    log = store.store.log
    store.store.records._log = Counted(log, read)
    assert store.store.records.without_body(physical, record.size) == record._replace(body=b"")
    assert sum(read) < 1000
    one = store.store.records.get(short).record
    assert store.store.records.without_body(short, one.size) == one
    for place, size in ((physical, record.size - 1), (physical + 1, record.size), (physical, record.size + 9000)):
        assert store.store.records.without_body(place, size) is None
    assert store.store.records.without_body(store.store.published, 100_000) is None


def test_what_the_disk_does_not_give_has_a_few_lines_however_often_it_is_asked_for(store, caplog):
    places = [store.put("T", 0, b"x") for _ in range(20)]
    store.tick()
    store.disk.failing["pread"] = errno.EIO
    assert {store.store.records.find(place) for place in places} == {Missing.UNREADABLE}
    assert caplog.text.count("cannot be read") == 10


class Counted:
    """A log that counts the bytes read of it."""

    def __init__(self, log, read):
        self._log, self._read = log, read

    def read(self, at, size):
        self._read.append(size)
        return self._log.read(at, size)

    def __getattr__(self, name):
        return getattr(self._log, name)


def test_another_size_than_its_queue_entry_says_is_no_record(store):
    physical = store.put("T", 0, b"body")
    store.put("T", 0, b"body")
    store.tick()
    size = store.store.records.get(physical).record.size
    assert store.store.records.find(physical, size + 1) is Missing.NO_RECORD
    assert store.store.records.find(physical, size - 1) is Missing.NO_RECORD


def test_bytes_in_a_body_that_look_like_a_record_are_none(store):
    physical = store.put("T", 0, b"honest")
    store.tick()
    inner = store.store.records.get(physical).data
    outside = store.put("T", 0, inner)
    store.tick()
    at = store.store.log.read(outside, 2 * len(inner) + 200).index(inner) + outside
    assert store.store.records.find(at) is Missing.NO_RECORD


def test_what_is_not_published_is_not_read(store):
    store.write("T", 0, b"one")
    end = store.store.published
    physical = store.put("T", 0, b"staged")
    assert physical == end
    assert store.store.records.find(physical) is Missing.NOT_PUBLISHED
    store.tick()
    assert store.store.records.get(physical).record.body == b"staged"
    assert store.store.records.find(end + 1) is Missing.NO_RECORD


def test_what_has_left_the_log_has_expired(store):
    while len(store.store.log.segments) < 3:
        store.write("T", 0, b"x" * 10_000)
    store.wait_recovery_position()
    store.store.log.remove_before(store.store.log.segments[1].start)
    assert store.store.records.find(0) is Missing.EXPIRED
    assert store.store.records.get(store.store.log.min_offset) is not None


def test_a_disk_that_does_not_give_it_is_told_from_a_place_without_a_record(store):
    physical = store.put("T", 0, b"body")
    store.tick()
    store.disk.failing["pread"] = errno.EIO
    assert store.store.records.find(physical) is Missing.UNREADABLE
    with pytest.raises(OSError, match="EIO"):
        store.store.records.store_time(physical)


def test_the_blank_at_a_files_end_is_no_record(store):
    while len(store.store.log.segments) < 2 or store.store.published < store.store.log.segments[1].start:
        store.write("T", 0, b"x" * 10_000)
    end = store.store.log.segments[0].end
    behind = [record.physical_offset + record.size for record in store.records("T", 0) if record.physical_offset < end]
    assert behind[-1] < end
    assert store.store.records.find(behind[-1]) is Missing.NO_RECORD


def test_from_the_page_cache_alone_the_same_is_found(store, monkeypatch):
    short, long = store.put("T", 0, b"x" * 50), store.put("T", 0, b"y" * 9000)
    store.tick()
    records = store.store.records
    for physical in (short, long):
        assert records.find_now(physical) == records.find(physical) != Missing.NO_RECORD
    assert records.find_now(short + 1) is Missing.NO_RECORD
    assert records.find_now(store.store.published) is Missing.NOT_PUBLISHED
    if not store.store.disk.reads_without_waiting:
        return  # cached pages cannot be found out: recent ones count as cached
    refuse_reads_that_never_wait(monkeypatch, errno.EAGAIN)
    assert records.find_now(short).record.body == b"x" * 50, "it was written last: the stage still holds it"
    store.put("T", 0, b"z")
    store.tick()
    assert records.find_now(short) is None, "nobody knows before the disk was asked"
    assert records.find(short).record.body == b"x" * 50


def test_a_long_record_is_left_to_who_may_wait(tmp_path):
    under_test = StoreUnderTest(tmp_path, segment_bytes=1 << 20).open()
    physical = under_test.put("T", 0, b"x" * (LONGEST_READ_AT_ONCE + 1))
    under_test.tick()
    assert under_test.store.records.find_now(physical) is None
    assert len(under_test.store.records.find(physical).record.body) == LONGEST_READ_AT_ONCE + 1
    under_test.stop()
