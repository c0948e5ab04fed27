"""Searches by time when the clock that stamped the messages was set now and then, as in Apache's stores."""

from bisect import bisect_left, bisect_right
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.store.index.index_query import IndexQuery
from appliance.engine.store.time_search import (
    NEAR_MS,
    Boundary,
    TimeSearch,
    behind_last_before,
    first_as_of,
    first_not_before,
)
from appliance.engine.window.messages import queue_reader
from appliance.engine.window.messages.queue_reader import QueueReader
from tests.support.store import StoreUnderTest

MINUTE_MS, DAY_MS = 60_000, 86_400_000
BASE_MS = 1_700_000_000_000
COUNT = 400


def looker(times, seen):
    def look(offset):
        seen.append(offset)
        return offset, times[offset]

    return look


@given(times=st.lists(st.integers(0, 50), max_size=200).map(sorted), asked=st.integers(-1, 51))
def test_of_sorted_times_the_place_is_exact(times, asked):
    seen = []
    assert first_not_before(0, len(times), looker(times, seen), asked) == bisect_left(times, asked)
    assert behind_last_before(0, len(times), looker(times, seen), asked) == bisect_left(times, asked)
    assert behind_last_before(0, len(times), looker(times, seen), asked + 1) == bisect_right(times, asked)


@given(times=st.lists(st.integers(0, 50), max_size=200), asked=st.integers(-1, 51))
def test_whatever_the_times_are_nothing_is_passed_over_that_was_seen_to_be_wanted(times, asked):
    seen = []
    found = first_not_before(0, len(times), looker(times, seen), asked)
    assert all(times[at] < asked for at in seen if at < found)
    assert found == len(times) or times[found] >= asked
    seen.clear()
    end = behind_last_before(0, len(times), looker(times, seen), asked)
    assert all(times[at] >= asked for at in seen if at >= end)
    assert not end or times[end - 1] < asked
    assert len(seen) <= 4000


@given(
    old=st.integers(0, 150), recent=st.lists(st.integers(-20_000, 0), max_size=3), ahead=st.integers(0, 30),
    asked=st.integers(-25_000, 5000),
)  # fmt: skip
def test_a_search_for_about_now_finds_the_first_message_in_question_before_those_from_the_future(
    old, recent, ahead, asked
):
    """It is 0, and the clock was set back."""
    times = [-NEAR_MS] * old + sorted(recent) + [20_000] * ahead
    found = first_as_of(0, len(times), looker(times, []), asked, 0)
    place = bisect_left(times, asked)
    assert found == (place if place < old + len(recent) else len(times))


class Stamped(StoreUnderTest):
    """Messages a minute apart, some of them stamped while the clock was wrong."""

    def fill(self, first, last, wrong_ms):
        for n in range(COUNT):
            self.store.store_ms = 0  # Apache's brokers let store times go back
            self.scheduler.wall_ms = BASE_MS + n * MINUTE_MS + (wrong_ms if first <= n < last else 0)
            self.put("T", 0, b"%d" % n, b"KEYS\x01k%d" % n)
            self.tick()


@pytest.fixture
def store(tmp_path):
    under_test = Stamped(tmp_path, segment_bytes=1 << 20)
    under_test.settings = under_test.settings._replace(index_enabled=True, index_slots=1000, index_entries=10_000)
    under_test.open()
    yield under_test
    under_test.stop()


def at_ms(n):
    return BASE_MS + n * MINUTE_MS


@pytest.mark.parametrize(("first", "last"), [(100, 160), (160, 330), (190, 230)])
@pytest.mark.parametrize("wrong_ms", [-30 * DAY_MS, -2 * 60 * MINUTE_MS, 2 * 60 * MINUTE_MS, 30 * DAY_MS])
def test_a_time_leads_to_nothing_behind_what_was_stored_then(store, first, last, wrong_ms):
    store.fill(first, last, wrong_ms)
    search = TimeSearch(store.store.queues, store.store.records, lambda: at_ms(COUNT) + 90 * DAY_MS)
    queue = store.store.find_queue("T", 0)
    for n in [*range(0, COUNT, 17), first - 1, last]:
        if first <= n < last:
            continue
        assert search.offset_at("T", 0, at_ms(n), Boundary.LOWER) <= n
        assert search.offset_at("T", 0, at_ms(n), Boundary.UPPER) >= n
        with QueueReader(store.store) as reader:
            assert reader.offset_at(queue, at_ms(n)) <= n < reader.end_at(queue, at_ms(n))
        if n < first and wrong_ms < 0:
            assert search.offset_at("T", 0, at_ms(n), Boundary.LOWER) == n, "what follows is older by its time"
        if n >= last and wrong_ms > 0:
            assert search.offset_at("T", 0, at_ms(n), Boundary.UPPER) == n, "what lies before is newer by its time"
    search.close()


@pytest.mark.parametrize("wrong_ms", [-30 * DAY_MS, 30 * DAY_MS])
def test_a_key_is_found_by_the_time_of_its_message(store, wrong_ms):
    store.fill(100, 160, wrong_ms)
    query = IndexQuery(store.store.index, store.store.records)
    assert query.catch_up(30)
    for n in (0, 99, 100, 159, 160, COUNT - 1):
        stored = at_ms(n) + (wrong_ms if 100 <= n < 160 else 0)
        found = query.find("T", f"k{n}", 10, stored - MINUTE_MS, stored + MINUTE_MS)
        assert [one.record.body for one in found.records] == [b"%d" % n]


def test_a_key_is_found_that_many_messages_have_in_an_index_that_begins_ahead(store):
    for n, when in enumerate((BASE_MS + DAY_MS, BASE_MS, BASE_MS + MINUTE_MS, BASE_MS + 2 * DAY_MS)):
        store.store.store_ms = 0
        store.scheduler.wall_ms = when
        store.put("T", 0, b"%d" % n, b"KEYS\x01same")
        store.tick()
    query = IndexQuery(store.store.index, store.store.records)
    assert query.catch_up(30)

    def found(begin_ms, end_ms):
        return [one.record.body for one in query.find("T", "same", 10, begin_ms, end_ms).records]

    assert found(BASE_MS, BASE_MS + MINUTE_MS) == [b"1", b"2"]
    assert found(BASE_MS + DAY_MS, BASE_MS + DAY_MS) == [b"0"]
    assert found(BASE_MS + DAY_MS, BASE_MS + 2 * DAY_MS) == [b"0", b"3"]


def test_what_was_stored_just_before_messages_from_the_future_is_found_wherever_it_lies(store, monkeypatch):
    """The clock was set back by three seconds; a search looks at one message in two."""
    now_ms = BASE_MS + 100_000
    for n in range(27):
        store.scheduler.wall_ms = now_ms - 357 if n == 24 else now_ms + 2694 if n > 24 else BASE_MS + n
        store.put("T", 0, b"%d" % n)
        store.tick()
    search = TimeSearch(store.store.queues, store.store.records, lambda: now_ms)
    assert search.offset_at("T", 0, now_ms - 5000, Boundary.LOWER) == 24
    assert search.offset_at("T", 0, now_ms, Boundary.LOWER) == 27
    search.close()
    monkeypatch.setattr(queue_reader, "SYSTEM", SimpleNamespace(wall_ms=lambda: now_ms))
    with QueueReader(store.store) as reader:
        queue = store.store.find_queue("T", 0)
        assert [reader.offset_at(queue, at) for at in (now_ms - 5000, now_ms)] == [24, 27]
