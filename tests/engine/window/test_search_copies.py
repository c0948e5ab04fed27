"""One hit a message: copies by retries, dead letters, delays and transactions are shown with the message."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.engine.broker.replay.provenance import REPLAY_JOB
from appliance.engine.protocol.message_id import decode_offset_id
from appliance.engine.protocol.properties import encode_properties
from appliance.engine.store.index.index_file import IndexFile
from appliance.engine.window.waiting.snapshots import WaitingPlace
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

UNIQUE = "7F0000016AB14E0E2F2A69208FBA%04X"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def text(number: int, key: str = "C-1027", **properties: str) -> str:
    return encode_properties({"UNIQ_KEY": UNIQUE % number, "KEYS": key} | properties)


def told(hits):
    return [(hit.message.topic, hit.message.queue_offset, hit.state, hit.failed_tries, hit.copies) for hit in hits]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    engine = RunningEngine(tmp_path, store={"message_delay_level": "1s 2h 2h 2h"})
    yield engine
    engine.stop()


def send_back(running, group, place, level=-1):
    row = running.window.messages.detail(place, story=False)
    fields = {
        "group": group, "offset": decode_offset_id(row.offset_id)[2], "delayLevel": level, "originMsgId": row.offset_id,
        "originTopic": "payments", "unitMode": "false", "maxReconsumeTimes": 16,
    }  # fmt: skip
    answer = running.join(f"{group}@1", group, "payments").ask(36, fields)
    assert answer.code == 0, answer.remark


def retried(running, group):
    """Return a function that waits for the next retry to reach the group."""
    find = running.engine.broker.store.find_queue
    topic = f"%RETRY%{group}"
    before = 0 if (queue := find(topic, 0)) is None else queue.max_offset
    return lambda: wait_for(lambda: (q := find(topic, 0)) is not None and q.max_offset > before, "the retry is due")


@pytest.fixture
def shop(running):
    """Messages of payments with one key: one that was never sent back, a dead letter of shipping after two tries, one
    that billing retries, and one that waits for its time."""
    for number in range(3):
        running.put("payments", b"x", properties=text(number))
    due = retried(running, "shipping")
    send_back(running, "shipping", "payments/0/1", level=1)
    due()
    send_back(running, "shipping", "%RETRY%shipping/0/0")
    send_back(running, "billing", "payments/0/2", level=2)
    running.put("payments", b"later", properties=text(3, DELAY="2"))
    return running


def test_a_message_is_one_hit_with_what_became_of_it(shop):
    page = shop.window.search.page("C-1027")
    assert told(page.hits) == [
        (SCHEDULE, 1, "delayed", 0, 0),
        ("payments", 2, "retried", 1, 1),
        ("payments", 1, "dead", 2, 3),
        ("payments", 0, "stored", 0, 0),
    ]
    assert [hit.for_topic for hit in page.hits] == ["payments"] * 4
    assert [hit.dead_letter_of for hit in page.hits] == [(), (), ("shipping",), ()]
    waits = page.hits[0]
    assert waits.due_at_ms == waits.message.stored_at_ms + 7_200_000
    assert page.hits[1].due_at_ms is None


def test_copies_are_hits_where_they_are_asked_for(shop):
    page = shop.window.search.page("C-1027", copies=True)
    assert [f"{hit.message.topic}/{hit.message.queue_offset}" for hit in page.hits] == [
        f"{SCHEDULE}/1", f"{SCHEDULE}/0", "%DLQ%shipping/0", "%RETRY%shipping/0", f"{SCHEDULE}/0", "payments/2",
        "payments/1", "payments/0",
    ]  # fmt: skip
    assert {hit.copies for hit in page.hits} == {0}
    only = shop.window.search.page("C-1027", topic="%DLQ%shipping")
    assert [(hit.message.topic, hit.for_topic, hit.dead_letter_of) for hit in only.hits] == [
        ("payments", "payments", ("shipping",))
    ]
    only = shop.window.search.page("C-1027", topic="%DLQ%shipping", copies=True)
    assert [hit.message.topic for hit in only.hits] == ["%DLQ%shipping"]


def test_pages_hold_every_message_once(shop, monkeypatch):
    """However little a page reads, an original that was found by a copy is not shown again."""
    for limit, stretch in itertools.product((1, 2, 3, 500), (500, 4)):
        monkeypatch.setattr("appliance.engine.window.messages.search.MOST_RECORDS", stretch)
        found, cursor = [], None
        for _ in range(50):
            page = shop.window.search.page("C-1027", cursor=cursor, limit=limit)
            found += [(hit.for_topic, hit.message.unique_id) for hit in page.hits]
            if (cursor := page.next_cursor) is None:
                break
            assert page.truncated == (len(page.hits) < limit)
        assert sorted(found) == [("payments", UNIQUE % number) for number in range(4)], (limit, stretch)


def test_a_topic_finds_what_became_of_its_own_messages(shop):
    shop.put("orders", b"x", properties=text(9))
    hits = shop.window.search.page("C-1027", topic="payments").hits
    assert [(hit.for_topic, hit.state) for hit in hits] == [
        ("payments", "delayed"), ("payments", "retried"), ("payments", "dead"), ("payments", "stored"),
    ]  # fmt: skip
    assert told(shop.window.search.page("C-1027", topic="orders").hits) == [("orders", 0, "stored", 0, 0)]


def test_a_unique_id_leads_to_the_message_and_not_to_its_copies(shop):
    [hit] = shop.window.search.page(UNIQUE % 1).hits
    assert (hit.matched, hit.message.topic, hit.dead_letter_of) == ("unique_id", "payments", ("shipping",))
    [hit] = shop.window.search.page("%DLQ%shipping/0/0").hits
    assert (hit.matched, hit.message.topic, hit.dead_letter_of) == ("place", "%DLQ%shipping", ("shipping",))


def test_copies_out_of_reach_are_not_told(shop):
    own = shop.window.search.page("C-1027", may_see=lambda topic: topic == "payments").hits
    assert told(own) == [("payments", number, "stored", 0, 0) for number in (2, 1, 0)]
    letters = shop.window.search.page("C-1027", may_see=lambda topic: topic.startswith("%DLQ%")).hits
    assert told(letters) == [("%DLQ%shipping", 0, "dead", 2, 0)]


def test_messages_that_share_an_id_and_have_nothing_else_in_common_stay_apart(running):
    for born in (1_700_000_000_000, 1_700_000_000_001):
        running.put("payments", b"x", properties=text(1), g=born)
    assert len(running.window.search.page("C-1027").hits) == 2


def test_a_dead_letter_that_was_replayed_since_is_none_any_more(shop):
    shop.put("payments", b"x", properties=text(1, **{REPLAY_JOB: "1"}))
    [hit] = shop.window.search.page(UNIQUE % 1).hits
    assert (hit.state, hit.dead_letter_of, hit.message.queue_offset, hit.copies) == ("retried", (), 1, 4)


def test_a_message_that_waits_for_a_time_or_for_a_decision_is_one_of_its_topic(running):
    at = int(time.time() * 1000) + 3_600_000
    running.put("payments", b"x", properties=text(1, TIMER_DELIVER_MS=str(at)))
    running.put("payments", b"x", properties=text(2, TRAN_MSG="true", PGROUP="tills"), f=4)
    half, timed = running.window.search.page("C-1027").hits
    assert (half.state, half.for_topic, half.due_at_ms) == ("half", "payments", None)
    assert (timed.state, timed.for_topic) == ("delayed", "payments")
    assert abs(timed.due_at_ms - at) <= 1000


def test_a_record_whose_wait_is_over_is_not_said_to_wait(running):
    """Its message is a hit of its own, or outside the times of the search, or was dropped."""
    at_ms = int(time.time() * 1000) + 3_600_000
    running.put("payments", b"x", properties=text(1, DELAY="2"))
    running.put("payments", b"x", properties=text(2, TIMER_DELIVER_MS=str(at_ms)))
    running.put("payments", b"x", properties=text(3, TRAN_MSG="true", PGROUP="tills"), f=4)
    waiting = {SCHEDULE, "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"}
    assert {hit.message.topic: hit.state for hit in running.window.search.page("C-1027", copies=True).hits} == dict(
        zip(sorted(waiting), ("half", "delayed", "delayed"), strict=True)
    )
    wait_for(lambda: len(running.window.waiting.page(topic="payments").rows) == 2, "the timer is in its index")
    running.window.waiting_commands.run("deliver_now", [WaitingPlace(2, 0)])
    running.window.waiting_commands.run("drop", [WaitingPlace(0, 0)])
    running.window.transaction_commands.act("commit", [(0, UNIQUE % 3)], reason="the till has it")
    states = {
        hit.message.topic: (hit.state, hit.due_at_ms) for hit in running.window.search.page("C-1027", copies=True).hits
    }
    assert states == dict.fromkeys(("payments", *waiting), ("stored", None))
    assert {hit.state for hit in running.window.search.page("C-1027").hits} == {"stored"}, "the timer was dropped"
    [hit] = running.window.search.page(f"{SCHEDULE}/1/0").hits
    assert (hit.for_topic, hit.state) == ("payments", "stored")


def test_traces_are_copies_too(running):
    running.put("RMQ_SYS_TRACE_TOPIC", b"x", properties=text(1))
    assert running.window.search.page("C-1027").hits == ()
    assert len(running.window.search.page("C-1027", copies=True).hits) == 1
    assert len(running.window.search.page("C-1027", topic="RMQ_SYS_TRACE_TOPIC").hits) == 1


def test_a_page_reads_so_much_and_no_more(running, monkeypatch):
    monkeypatch.setattr("appliance.engine.window.messages.search.MOST_RECORDS", 10)
    for number in range(25):
        running.put(f"topic-{number % 3}", b"x", properties=text(number))
    read = []
    get = running.engine.broker.store.records.get
    monkeypatch.setattr(
        type(running.engine.broker.store.records), "get", lambda self, at: (read.append(at), get(at))[1]
    )
    page = running.window.search.page("C-1027")
    assert (len(page.hits), len(read), page.truncated) == (10, 10, True)
    page = running.window.search.page("C-1027", cursor=page.next_cursor, limit=3)
    assert (len(page.hits), len(read), page.truncated) == (3, 20, False)
    page = running.window.search.page("C-1027", limit=3, copies=True)
    assert (len(page.hits), len(read), page.truncated) == (3, 23, False)
    page = running.window.search.page("C-1027", limit=3, copies=True, cursor=page.next_cursor)
    assert (len(page.hits), len(read)) == (3, 26)


def test_a_page_reads_so_many_bytes_and_no_more(running, monkeypatch):
    monkeypatch.setattr("appliance.engine.window.messages.search.MOST_BYTES", 100_000)
    for number in range(4):
        running.put("payments", b"x" * 60_000, properties=text(number))
    page = running.window.search.page("C-1027")
    assert (len(page.hits), page.truncated) == (2, True)
    assert len(running.window.search.page("C-1027", cursor=page.next_cursor).hits) == 2


def test_a_page_looks_at_so_many_topics_at_a_time(running, monkeypatch):
    monkeypatch.setattr("appliance.engine.window.messages.search.BLOCK", 2)
    for number in range(5):
        running.put(f"topic-{number}", b"x", properties=text(number))
    assert len(running.window.search.page("C-1027").hits) == 5
    monkeypatch.setattr("appliance.engine.window.messages.search.PAGE_BUDGET_MS", 0.0)
    page = running.window.search.page("nobody's")
    assert (page.hits, page.truncated, page.searched_topics) == ((), True, 2)
    found, cursor = [], None
    for _ in range(100):
        page = running.window.search.page("C-1027", cursor=cursor)
        found += [hit.message.topic for hit in page.hits]
        if (cursor := page.next_cursor) is None:
            break
    assert sorted(found) == [f"topic-{number}" for number in range(5)]


def test_more_than_can_be_stepped_over_ends_a_search_and_says_so(running, monkeypatch):
    for number in range(200):
        running.put("payments", b"x", properties=text(number))
    alone = {"topic": "payments", "copies": True}
    first = running.window.search.page("C-1027", **alone)
    assert len(first.hits) == 50
    monkeypatch.setattr("appliance.engine.window.messages.search.STEP_OVER_S", -1.0)
    monkeypatch.setattr("appliance.engine.window.messages.search.MOST_RECORDS", 100)
    page = running.window.search.page("C-1027", cursor=first.next_cursor, limit=500, **alone)
    assert page.next_cursor is not None
    last = running.window.search.page("C-1027", cursor=page.next_cursor, **alone)
    assert (last.hits, last.next_cursor, last.truncated) == ((), None, True)


def test_a_disk_that_is_too_slow_for_all_topics_ends_a_page_and_the_next_looks_at_fewer(running, monkeypatch):
    for number in range(20):
        running.put(f"topic-{number}", b"x", properties=text(number))
    looked = []
    find = IndexFile.chain
    monkeypatch.setattr(IndexFile, "chain", lambda file, code, *more: (looked.append(code), find(file, code, *more))[1])
    monkeypatch.setattr("appliance.engine.window.messages.search.STEP_OVER_S", -1.0)
    page = running.window.search.page("C-1027")
    assert (page.hits, page.truncated, page.searched_topics) == ((), True, 0)
    assert len(looked) == 1
    monkeypatch.setattr("appliance.engine.window.messages.search.STEP_OVER_S", 60.0)
    monkeypatch.setattr("appliance.engine.window.messages.search.PAGE_BUDGET_MS", 0.0)
    page = running.window.search.page("C-1027", cursor=page.next_cursor)
    assert (page.truncated, page.searched_topics) == (True, 2)
    monkeypatch.setattr("appliance.engine.window.messages.search.PAGE_BUDGET_MS", 60_000.0)
    rest = running.window.search.page("C-1027", cursor=page.next_cursor)
    assert rest.next_cursor is None
    assert len({hit.message.topic for hit in page.hits + rest.hits}) == len(page.hits + rest.hits) == 20


def test_a_page_may_end_between_two_files_of_the_index(make_running, monkeypatch):
    running = make_running(store={"max_index_num": 9, "max_hash_slot_num": 8})
    for number in range(30):
        running.put(f"topic-{number % 3}", b"x", properties=text(number))
    assert running.window.search.page("nobody's").truncated is False
    assert len(running.engine.broker.store.index.files) > 5
    monkeypatch.setattr("appliance.engine.window.messages.search.PAGE_BUDGET_MS", 0.0)
    page = running.window.search.page("nobody's")
    assert (page.hits, page.truncated, page.searched_topics) == ((), True, 0)
    found, cursor, count = [], None, 0
    while count < 1000:
        page = running.window.search.page("C-1027", cursor=cursor)
        found += [hit.message.offset_id for hit in page.hits]
        count, cursor = count + 1, page.next_cursor
        if cursor is None:
            break
    assert len(found) == len(set(found)) == 30
