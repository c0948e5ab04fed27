"""Topics in the window."""

import time

import pytest

from appliance.engine.cursors import PART_SIZE
from appliance.engine.errors import InvalidInput, NotFound


def names(page):
    return [row.name for row in page.rows]


def test_a_topic_shows_its_messages_bytes_and_age(running):
    before = int(time.time() * 1000)
    running.put("Orders", b"a" * 100, b"b" * 50)
    row = running.window.topics.page().rows[0]
    assert (row.name, row.messages, row.read_queues, row.perm, row.category) == ("Orders", 2, 4, "RW-", "user")
    assert row.bytes == running.engine.broker.store.published
    assert not row.bytes_estimated
    assert before <= row.oldest_at_ms <= int(time.time() * 1000)


def test_an_empty_topic_has_no_age_and_says_why(running):
    running.window.topic_commands.create("Empty")
    row = running.window.topics.page().rows[0]
    assert (row.messages, row.bytes, row.oldest_at_ms) == (0, 0, None)
    assert row.oldest_why.code == "no_messages"


def test_rates_are_unknown_before_two_samples_and_zero_when_nothing_moves(running):
    running.put("Orders", b"x")
    sampler = running.window._parts.sampler
    with sampler._sampling:  # its thread takes none in between
        sampler.count = 1
        assert running.window.topics.page().rows[0].in_rate is None
    running.sample()
    assert running.window.topics.page(q="SELF_TEST", show="system").rows[0].in_rate == 0


def test_what_comes_in_is_counted_per_topic(running):
    running.sample()
    running.put("Orders", *[b"x"] * 30, queue=0)
    running.put("Orders", *[b"x"] * 10, queue=3)
    running.put("Others", b"x")
    running.sample()
    series = running.window.charts.series("in", topic="Orders")
    steps = [after - before for before, after in zip(series.times_at_ms, series.times_at_ms[1:], strict=False)]
    assert len(steps) == len(series.values) - 1
    sampler = running.window._parts.sampler
    assert sampler.topics["Orders"].moved(sampler.count) == 40
    assert sampler.topics["Others"].moved(sampler.count) == 1
    with sampler._sampling:  # one page, one count of samples
        rows = {row.name: row for row in running.window.topics.page(sort="-in_rate").rows}
    assert next(iter(rows)) == "Orders"
    assert rows["Orders"].in_rate == pytest.approx(40 * rows["Others"].in_rate)


def test_system_retry_and_dead_letter_topics_are_on_their_own_lists(running):
    running.put("Orders", b"x")
    running.put("%RETRY%CG", b"x", j=1)
    assert names(running.window.topics.page()) == ["Orders"]
    assert names(running.window.topics.page(show="retry")) == ["%RETRY%CG"]
    assert "SELF_TEST_TOPIC" in names(running.window.topics.page(show="system"))
    assert running.window.topics.page(show="all").total == len(running.engine.broker.topics.all())


def test_lists_are_filtered_sorted_and_cut(running):
    for n, name in enumerate(("b-1", "b-2", "a-1", "c-1")):
        running.window.topic_commands.create(
            name, read_queues=n + 1, write_queues=n + 1, kind="FIFO" if n == 2 else "NORMAL"
        )
    running.put("c-1", b"x", b"x")
    time.sleep(0.01)
    running.put("b-1", b"x")
    admin = running.window
    assert names(admin.topics.page(q="B-")) == ["b-1", "b-2"]
    assert names(admin.topics.page(kind="FIFO")) == ["a-1"]
    assert names(admin.topics.page(sort="-queues")) == ["c-1", "a-1", "b-2", "b-1"]
    assert names(admin.topics.page(sort="-messages"))[:2] == ["c-1", "b-1"]
    assert names(admin.topics.page(sort="-bytes"))[:2] == ["c-1", "b-1"]
    assert names(admin.topics.page(sort="oldest"))[:2] == ["c-1", "b-1"], "topics without an age come last"
    page = admin.topics.page(page=2, page_size=3)
    assert (names(page), page.total, page.page, page.pages) == (["c-1"], 4, 2, 2)
    assert admin.topics.page(page=99, page_size=3).page == 2
    assert len(admin.topics.page(page_size=PART_SIZE).rows) == 4, "for those who read it whole"
    for wrong in ({"sort": "colour"}, {"page_size": 0}, {"page_size": 501}, {"show": "mine"}):
        with pytest.raises(InvalidInput):
            admin.topics.page(**wrong)


def test_one_topic_shows_each_queue(running):
    running.put("Orders", b"x", b"y", queue=1)
    running.window.topic_commands.edit("Orders", write_queues=1)
    detail = running.window.topics.detail("Orders")
    assert [(row.queue_id, row.messages, row.readable, row.writable) for row in detail.queues] == [
        (0, 0, True, True),
        (1, 2, True, False),
        (2, 0, True, False),
        (3, 0, True, False),
    ]
    one = detail.queues[1]
    assert one.oldest_at_ms <= one.newest_at_ms
    assert one.bytes > 0
    assert detail.queues[0].time_why.code == "no_messages"
    assert detail.editable
    assert not running.window.topics.detail("SELF_TEST_TOPIC").editable


def test_producers_are_those_who_sent_the_newest_messages(running):
    sender = running.produce_as("checkout-7f", "PG")
    from tests.support.engine import send_fields

    assert sender.ask(310, send_fields("Orders"), b"x").code == 0
    running.put("Orders", b"y")
    producers = running.window.topics.detail("Orders").producers
    known = [row for row in producers if row.client_id is not None]
    assert [(row.client_id, row.groups, row.messages_seen) for row in known] == [("checkout-7f", ("PG",), 1)]
    assert len(producers) == 2, "the other one sent without a heartbeat: only its address is known"


def test_consumers_of_a_topic_are_those_who_subscribe_or_have_offsets(running):
    running.put("Orders", *[b"x"] * 5)
    running.join("ship-01", "shipping", tags="paid || sent")
    running.join("ship-01", "audit", topic="Other")
    running.commit("shipping", "Orders", 0, 2)
    running.engine.broker.groups.find("reports")
    running.commit("reports", "Orders", 0, 5)
    rows = {row.group: row for row in running.window.topics.detail("Orders").consumers}
    assert set(rows) == {"shipping", "reports"}
    assert (rows["shipping"].clients, rows["shipping"].subscription, rows["shipping"].lag) == (1, "paid || sent", 3)
    assert rows["shipping"].lag_ms >= 0
    assert (rows["reports"].clients, rows["reports"].subscription, rows["reports"].lag) == (0, None, 0)
    assert rows["reports"].lag_ms == 0
    assert running.window.topics.page().rows[0].consumers == 2


def test_the_route_is_what_clients_are_told(running):
    running.window.topic_commands.create("Orders", read_queues=3, write_queues=2)
    route = running.window.route("Orders")
    assert route.brokers[0].addresses == {"0": running.engine.broker_address}
    assert (route.queues[0].read_queues, route.queues[0].write_queues, route.queues[0].perm) == (3, 2, "RW-")
    with pytest.raises(NotFound):
        running.window.route("Nowhere")


def test_sizes_of_long_queues_are_estimates_that_say_so(running):
    broker = running.engine.broker
    running.put("Orders", b"x" * 100)
    queue = broker.store.find_queue("Orders", 0)

    def fill():
        for _ in range(5000):
            broker.store.put(queue, b"\6Orders", b"x" * 100, b"UNIQ_KEY\1A\2", 0, 0, 0, 1, bytes(8), 0)

    running.engine.loop.call_soon(fill)
    from tests.support.waiting import wait_for

    wait_for(lambda: queue.max_offset == 5001, "5,001 messages")
    row = running.window.topics.page().rows[0]
    assert row.bytes_estimated
    assert row.bytes == pytest.approx(broker.store.published, rel=0.05)


def test_an_unknown_topic_is_not_found(running):
    for question in (
        running.window.topics.detail,
        running.window.topics.settings,
        running.window.topics.queue_rows,
        running.window.topics.consumer_rows,
    ):
        with pytest.raises(NotFound, match="There is no topic Nope"):
            question("Nope")
