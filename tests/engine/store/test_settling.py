"""A filter's verdicts on queue entries: the same with and without the compiled twin, and within its bounds."""

from types import SimpleNamespace

import pytest

from appliance.engine.filter.message_filter import MessageFilter
from appliance.engine.filter.sql_filter import sql_filter
from appliance.engine.hotpath import COMPILED
from appliance.engine.store import settling as settling_module
from appliance.engine.store.queues.consume_queue import ENTRY, HOLE
from appliance.engine.store.settling import Settling
from tests.support.store import StoreUnderTest

COUNT = 600


#: The compiled part reads values in place; its twin decodes records.
WAYS = ["by values", "by records"] if COMPILED else ["by records"]


@pytest.fixture(params=WAYS)
def under_test(request, tmp_path, monkeypatch):
    """Return (store, its queue's entries, a Settling)."""
    monkeypatch.setattr(settling_module, "_LONG_BYTES", 10_000)
    store = StoreUnderTest(tmp_path).open()
    log = store.store.log
    assert log.reads_values == COMPILED
    for number in range(COUNT):
        body = b"b" * (20_000 if number % 100 == 7 else 50)
        store.put("T", 0, body, b"n\x01%d\x02" % number)
        if number % 50 == 0:
            store.tick()
    store.tick()
    queue, entries = store.store.find_queue("T", 0), b""
    while len(entries) < COUNT * ENTRY.size:
        entries += store.store.queues.read_entries(queue, len(entries) // ENTRY.size, COUNT)
    yield store, entries, Settling(log.read, log.property_values if request.param == "by values" else None)
    store.stop()


def verdicts(settled):
    return [code for _, _, code in ENTRY.iter_unpack(settled)]


def test_each_entry_has_its_verdict_and_stays_where_it_is(under_test):
    _, entries, settling = under_test
    settled = settling.settle(entries, sql_filter("n >= 5 AND n < 10"), COUNT, 10.0)
    assert verdicts(settled) == [int(5 <= number < 10) for number in range(COUNT)]
    places = [(physical, size) for physical, size, _ in ENTRY.iter_unpack(entries)]
    assert [(physical, size) for physical, size, _ in ENTRY.iter_unpack(settled)] == places
    assert (settling.scanned, settling.matched) == (COUNT, 5)


def test_no_more_than_an_answer_holds_is_looked_for(under_test):
    _, entries, settling = under_test
    settled = settling.settle(entries, sql_filter("n >= 0"), 32, 10.0)
    assert 32 <= len(verdicts(settled)) <= 200
    assert settling.scanned <= 200


def test_when_the_time_is_over_the_rest_is_left_to_the_next_pull(under_test):
    _, entries, settling = under_test
    settled = settling.settle(entries, sql_filter("n < 0"), 32, 0.0)
    assert 0 < len(verdicts(settled)) < COUNT
    assert set(verdicts(settled)) == {0}


def test_what_is_no_record_passes_to_who_picks_the_entries(under_test):
    _, entries, settling = under_test
    gone = ENTRY.pack(1 << 40, 200, 5)
    some = entries[: 3 * ENTRY.size] + HOLE + gone + entries[3 * ENTRY.size : 6 * ENTRY.size]
    assert verdicts(settling.settle(some, sql_filter("n < 0"), COUNT, 10.0)) == [0, 0, 0, 1, 1, 0, 0, 0]


def test_a_file_of_the_log_ends_between_two(under_test):
    store, entries, settling = under_test
    segments = {store.store.log.segment_at(physical).start for physical, _, _ in ENTRY.iter_unpack(entries)}
    assert len(segments) > 1
    settled = settling.settle(entries, sql_filter(f"n = {COUNT - 1} OR n = 107"), COUNT, 10.0)
    assert [number for number, verdict in enumerate(verdicts(settled)) if verdict] == [107, COUNT - 1]


class Slow(MessageFilter):
    """A filter that takes a hundredth of a second for each record, by the test's clock."""

    def __init__(self, clock):
        super().__init__(None, reads_records=True, costly=True)
        self.clock = clock
        self.names = (b"n",)

    def verdicts_of(self, keys):
        self.clock.now += 0.01 * len(keys)
        return [False] * len(keys)

    def matches(self, properties):
        self.clock.now += 0.01
        return False


@pytest.mark.parametrize("most", [1, 32, 1_000_000])
def test_verdicts_that_take_long_are_counted_while_they_are_made(under_test, monkeypatch, most):
    """One pull must not keep the pool for longer than its slice and one verdict."""
    _, entries, settling = under_test
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(settling_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    settled = settling.settle(entries, Slow(clock), most, 0.05)
    assert 4 <= len(verdicts(settled)) <= 7
    assert clock.now < 0.08


def test_what_has_many_properties_is_not_told_at_once(under_test):
    store, entries, _ = under_test
    some = entries[: 10 * ENTRY.size]
    wanted = sql_filter("n < 5")
    assert verdicts(Settling(store.store.log.read, most_bytes=1000).settle(some, wanted, 32, 10.0)) == [1] * 5 + [0] * 5
    assert Settling(store.store.log.read, most_bytes=20).settle(some, wanted, 32, 10.0) is None
