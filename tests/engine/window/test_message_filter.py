"""Messages that match an expression, page by page over a fixed snapshot, within a time and honestly counted."""

import gzip
import time
import zlib

import pytest
import zstandard

from appliance.engine.errors import InvalidInput
from appliance.engine.protocol.properties import encode_properties
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine, send_fields


def put_orders(running):
    """600 messages in four queues; every third has the tag t0, every one a number in a property and in its body."""
    running.put("Orders", b'{"n": 0}', properties=encode_properties({"TAGS": "t0", "KEYS": "k0 all", "n": "0"}))
    sender = running.peers[-1]
    for n in range(1, 600):
        text = encode_properties({"TAGS": f"t{n % 3}", "KEYS": f"k{n} all", "n": str(n)})
        assert sender.ask(310, send_fields("Orders", n % 4, text), b'{"n": %d}' % n).code == 0
    return running


@pytest.fixture(scope="module")
def orders(request):
    """Messages for tests that only read."""
    running = RunningEngine(shared_directory(request, "orders"))
    yield put_orders(running)
    running.stop()


@pytest.fixture
def own_orders(running):
    return put_orders(running)


def walk(admin, text, topic="Orders", **options):
    """Return (the n of the messages found, pages)."""
    pages = [admin.messages.page(topic, filter_text=text, **options)]
    limit = options.get("limit", 50)
    budget = options.get("budget_ms", 60_000.0)
    while pages[-1].next_cursor:
        cursor = pages[-1].next_cursor
        pages.append(admin.messages.page(topic, filter_text=text, cursor=cursor, limit=limit, budget_ms=budget))
    return [int(row.keys[0][1:]) for page in pages for row in page.rows], pages


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("limit", [3, 50, 500])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tag = 't1'", lambda n: n % 3 == 1),
        ("n BETWEEN 90 AND 110 AND key = 'all'", lambda n: 90 <= n <= 110),
        ("key REGEXP '^k[0-9]7$'", lambda n: 9 < n < 100 and n % 10 == 7),
        ("body('$.n') > 590 OR key = 'k5'", lambda n: n > 590 or n == 5),
        ("NOT body CONTAINS '1'", lambda n: "1" not in str(n)),
        ("tag = 'nobody'", lambda n: False),
    ],
)
def test_every_message_that_fits_is_found_once_and_in_order(orders, text, wanted, limit, newest_first):
    found, pages = walk(orders.window, text, limit=limit, newest_first=newest_first)
    expected = [n for n in range(600) if wanted(n)]
    assert found == (expected[::-1] if newest_first else expected)
    assert pages[-1].seen == pages[-1].total == 600 == sum(page.scanned for page in pages)
    assert pages[-1].seen_bytes == pages[-1].total_bytes > 600 * 100
    assert not any(page.skipped or page.undecided for page in pages)


def test_a_page_that_runs_out_of_time_says_so_and_the_next_goes_on(orders):
    found, pages = walk(orders.window, "n >= 550", limit=500, budget_ms=0.0)
    assert sorted(found) == list(range(550, 600))
    assert len(pages) == 600
    assert all(page.truncated for page in pages[:-1])
    assert not pages[-1].truncated
    assert pages[9].seen == 10
    assert 0.8 < pages[99].total_bytes / pages[-1].seen_bytes < 1.2


def test_new_messages_do_not_come_into_a_walk(own_orders):
    first = own_orders.window.messages.page("Orders", filter_text="tag = 't0'", limit=10)
    own_orders.put("Orders", b"x", properties=encode_properties({"TAGS": "t0", "KEYS": "k999"}))
    rest = own_orders.window.messages.page("Orders", filter_text="tag = 't0'", cursor=first.next_cursor, limit=500)
    assert len(first.rows) + len(rest.rows) == 200
    assert rest.next_cursor is None


def test_a_cursor_goes_with_its_filter_only(orders):
    cursor = orders.window.messages.page("Orders", filter_text="tag = 't0'", limit=1).next_cursor
    for other in ("tag = 't1'", None):
        with pytest.raises(InvalidInput, match="another filter"):
            orders.window.messages.page("Orders", filter_text=other, cursor=cursor)
    plain = orders.window.messages.page("Orders", limit=1).next_cursor
    with pytest.raises(InvalidInput, match="another filter"):
        orders.window.messages.page("Orders", filter_text="tag = 't0'", cursor=plain)


def test_a_wrong_expression_names_line_and_column(orders):
    with pytest.raises(InvalidInput, match=r"line 1, column 7") as refused:
        orders.window.messages.page("Orders", filter_text="tag = 'a OR x")
    assert refused.value.field == "filter"
    assert orders.window.messages.filter_reads_bodies("body('$.n') = 1")
    assert not orders.window.messages.filter_reads_bodies("tag = 'body'")
    assert not orders.window.messages.filter_reads_bodies("  ")


@pytest.mark.parametrize(
    ("body", "flag"),
    [
        (zlib.compress(b'{"city": "Ulm"}'), 1),
        (zlib.compress(b'{"city": "Ulm"}'), 1 | 3 << 8),
        (zstandard.compress(b'{"city": "Ulm"}'), 1 | 2 << 8),
        (gzip.compress(b'{"city": "Ulm"}'), 0),
        (b'{"city": "Ulm"}', 0),
    ],
)
def test_bodies_are_looked_at_without_their_compression(running, body, flag):
    running.put("Orders", body, properties=encode_properties({"KEYS": "k1"}), f=flag)
    assert walk(running.window, "body('$.city') = 'Ulm' AND body CONTAINS 'Ulm'")[0] == [1]


def test_a_bomb_is_undecided_and_costs_little(running):
    bomb = zlib.compress(bytes(64 << 20), 9)
    running.put("Orders", *[bomb] * 20, properties=encode_properties({"KEYS": "k1"}), f=1)
    begin = time.process_time()
    found, pages = walk(running.window, "body CONTAINS 'x'")
    assert found == []
    assert sum(page.undecided for page in pages) == 20
    assert time.process_time() - begin < 2


def test_a_hostile_pattern_does_not_hold_a_page(running):
    running.put("Orders", *[b"a" * 100_000] * 30)
    begin = time.process_time()
    page = running.window.messages.page("Orders", filter_text="body REGEXP '(a|aa)+$b'", limit=500)
    assert time.process_time() - begin < 3
    assert not page.rows
    assert page.scanned


def test_records_that_are_gone_are_counted(own_orders):
    store = own_orders.engine.broker.store
    store._flush_queues.stop()  # later messages stay in the tail
    own_orders.put("Orders", b"100", properties=encode_properties({"TAGS": "t0"}))
    queue = store.find_queue("Orders", 0)
    queue.tail[-12:-8] = (0x7FFFFFF0).to_bytes(4, "big")
    found, pages = walk(own_orders.window, "tag = 't0'", limit=500)
    assert len(found) == 200
    assert sum(page.skipped for page in pages) == 1
