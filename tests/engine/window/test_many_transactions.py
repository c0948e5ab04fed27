"""A hundred thousand open transactions: a page reads only what it shows, and a query ends in time."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator

import pytest

from appliance.engine.broker.delays.levels import Place
from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.broker.transactions.half import make_half
from appliance.engine.loop_calls import run_on_loop
from appliance.engine.protocol.properties import encode_properties
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine

COUNT, PART = 100_000, 1000


@pytest.fixture(autouse=True)
def _answers_have_time() -> None:
    """An answer has as long as it has for people."""


@pytest.fixture(scope="module")
def crowded(request: pytest.FixtureRequest) -> Iterator[RunningEngine]:
    found = RunningEngine(shared_directory(request, "crowded"), broker={"transaction_time_out_ms": 3_600_000})
    found.window.topic_commands.create("Orders")
    broker = found.engine.broker
    for begin in range(0, COUNT, PART):
        messages = [half(number) for number in range(begin, begin + PART)]
        for outcome in broker.sending.appends.submit(messages).result(60):
            assert outcome.is_stored

        def note(messages: list[OwnMessage] = messages, begin: int = begin) -> None:
            for number, message in enumerate(messages, begin):
                broker.transactions.check.stored(number, message.properties)

        assert run_on_loop(found.engine.loop.call_soon, note, lambda: False)
    yield found
    found.stop()


def half(number: int) -> OwnMessage:
    properties = {"UNIQ_KEY": f"K{number}", "TRAN_MSG": "true", "PGROUP": f"PG{number % 10}"}
    make_half(properties, Place("Orders", 0))
    text = encode_properties(properties)
    return OwnMessage("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"x", text, properties["UNIQ_KEY"], 0)


def test_a_page_reads_what_it_shows(crowded):
    page = crowded.window.transactions.open(limit=50)
    assert (page.open, len(page.rows), page.scanned) == (COUNT, 50, 51)
    assert all(row.next_check_at_ms is not None for row in page.rows)
    begin = time.process_time()
    for _ in range(10):
        crowded.window.transactions.open(limit=50)
    assert (time.process_time() - begin) / 10 < 0.25


def test_a_question_without_an_answer_ends_in_time_and_goes_on(crowded):
    cursor, asked, scanned, found = None, 0, 0, []
    while True:
        begin = time.process_time()
        page = crowded.window.transactions.open(key=f"K{COUNT - 1}", cursor=cursor, limit=50)
        assert time.process_time() - begin < 2.0
        asked, scanned, cursor = asked + 1, scanned + page.scanned, page.next_cursor
        found += [row.half_offset for row in page.rows]
        if cursor is None:
            break
        assert page.truncated
    assert (found, scanned) == ([COUNT - 1], COUNT)
    assert asked > 1


def test_the_last_page_is_as_quick_as_the_first(crowded):
    first = crowded.window.transactions.open(group="PG9", limit=1)
    assert [row.half_offset for row in first.rows] == [9]
    act = crowded.window.transaction_commands.act("check", group="PG3", limit=20, dry_run=True)
    assert [one.half_offset for one in act.results] == list(range(3, 203, 10))
    assert act.more


def test_what_is_asked_costs_no_memory_that_stays(crowded):
    crowded.window.transactions.open(limit=500)
    tracemalloc.start()
    crowded.window.transactions.open(limit=500)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(3):
        crowded.window.transactions.open(limit=500)
        crowded.window.overview.snapshot()
        crowded.window.metrics()
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left - before < 2_000_000
    assert peak - before < 10_000_000


def test_counting_is_quick(crowded):
    begin = time.process_time()
    for _ in range(100):
        counts = crowded.window.transactions.counts()
    assert counts.open == COUNT
    assert (time.process_time() - begin) / 100 < 0.02
