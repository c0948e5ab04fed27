"""Test messages are stored as the broker's own are: same staging, same publication as a client's."""

import json
import threading
import time

import pytest

from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.errors import InvalidInput, NotFound, Unavailable
from tests.support.engine import pull_fields, records


@pytest.fixture
def orders(running):
    running.window.create_topic("Orders", read_queues=2, write_queues=2)
    return running


def test_a_consumer_gets_what_was_sent(orders):
    sent = orders.window.send_test_message(
        "Orders", b"hello", tags="paid", keys=["k1", "k2"], properties={"colour": "red"}, queue_id=1
    )
    assert (sent.status, sent.queue_id, sent.queue_offset) == ("SEND_OK", 1, 0)
    answer = orders.peer().ask(11, pull_fields("Orders", 1, 0))
    record = records(answer.body)[0]
    assert record.body == b"hello"
    detail = orders.window.message(sent.offset_id)
    assert detail.row.unique_id == sent.unique_id
    assert (detail.row.tags, detail.row.keys, detail.properties["colour"]) == ("paid", ("k1", "k2"), "red")


def test_a_parked_pull_is_woken(orders):
    peer = orders.peer()
    peer.send(11, pull_fields("Orders", 0, 0, sysFlag=6, suspendTimeoutMillis=10_000))
    time.sleep(0.05)
    orders.window.send_test_message("Orders", b"wake up", queue_id=0)
    assert records(peer.receive(3).body)[0].body == b"wake up"


def test_in_sync_flush_it_returns_when_the_log_is_durable(make_running):
    running = make_running(store={"flush_disk_type": "SYNC_FLUSH"})
    running.window.create_topic("Orders")
    log = running.engine.broker.store.log
    synced = threading.Event()
    sync = log.sync

    def slow_sync():
        time.sleep(0.2)
        done = sync()
        synced.set()
        return done

    log.sync = slow_sync
    sent = running.window.send_test_message("Orders", b"x")
    assert synced.is_set()
    assert sent.took_ms >= 200
    assert log.durable == log.written


def test_a_broken_log_refuses_it(orders):
    orders.engine.broker.store.log.fail("the disk is gone")
    with pytest.raises(Unavailable, match="the disk is gone"):
        orders.window.send_test_message("Orders", b"x")


def test_no_answer_in_time_is_said_so(orders):
    held = threading.Event()
    orders.engine.loop.call_soon(lambda: held.wait(2))
    try:
        with pytest.raises(Unavailable, match="may have been stored"):
            orders.window.send_test_message("Orders", b"x", timeout_s=0.05)
    finally:
        held.set()


def test_at_most_64_are_under_way(orders):
    held = threading.Event()
    orders.engine.loop.call_soon(lambda: held.wait(5))
    appends = orders.engine.broker.own_appends
    message = OwnMessage("Orders", 0, b"x", "", "", 1)
    try:
        futures = [appends.submit([message]) for _ in range(64)]
        with pytest.raises(Unavailable):
            orders.window.send_test_message("Orders", b"x")
    finally:
        held.set()
    assert {outcome.code for future in futures for outcome in future.result(5)} == {0}
    assert orders.window.send_test_message("Orders", b"x").status == "SEND_OK"


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("body", {"body": b""}),
        ("body", {"body": b"x" * 5_000_000}),
        ("queue_id", {"queue_id": 2}),
        ("queue_id", {"queue_id": -1}),
        ("tags", {"tags": "a||b"}),
        ("tags", {"tags": "a\x02DELAY\x013"}),
        ("keys", {"keys": ["a b"]}),
        ("keys", {"keys": ["\x01"]}),
        ("properties", {"properties": {"DELAY": "3"}}),
        ("properties", {"properties": {"TRAN_MSG": "true"}}),
        ("properties", {"properties": {"": "x"}}),
        ("properties", {"properties": {"x": "y\x02z\x01w"}}),
        ("properties", {"properties": {"x": "y" * 40_000}}),
        ("properties", {"properties": {"x": "\ud800"}}),
    ],
)
def test_what_may_not_be_sent(orders, field, options):
    before = orders.engine.broker.store.put_count
    with pytest.raises(InvalidInput) as refused:
        orders.window.send_test_message("Orders", **({"body": b"x"} | options))
    assert refused.value.field == field
    assert orders.engine.broker.store.put_count == before


def test_topics_that_cannot_be_sent_to(orders):
    with pytest.raises(NotFound):
        orders.window.send_test_message("Nope", b"x")
    assert orders.engine.broker.topics.get("Nope") is None, "a test message makes no topic"
    orders.window.edit_topic("Orders", writable=False)
    for topic in ("Orders", "SCHEDULE_TOPIC_XXXX"):
        with pytest.raises(InvalidInput):
            orders.window.send_test_message(topic, b"x")


def test_a_topic_with_batch_queues_is_refused_as_a_producer_is(make_running, tmp_path):
    config = tmp_path / "0" / "store" / "config"
    config.mkdir(parents=True)
    topic = {"topicName": "Batches", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    table = {"Batches": topic | {"attributes": {"queue.type": "BatchCQ"}}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    running = make_running()
    with pytest.raises(InvalidInput, match=r"queue\.type=BatchCQ") as refused:
        running.window.send_test_message("Batches", b"x")
    assert refused.value.rocketmq_code == 29
    assert running.engine.broker.store.log.written == 0


def test_an_ordered_topic_of_a_broker_that_may_not_be_written_is_refused_as_a_producer_is(orders):
    orders.window.edit_topic("Orders", order=True)
    orders.window.change_configuration({"brokerPermission": 4})
    with pytest.raises(InvalidInput) as refused:
        orders.window.send_test_message("Orders", b"x")
    assert (refused.value.field, refused.value.rocketmq_code) == ("topic", 16)
    assert orders.engine.broker.store.log.written == 0


def test_a_topic_deleted_in_between_is_not_made_again(orders, monkeypatch):
    monkeypatch.setattr(orders.window._parts.sender, "_check", lambda *args: 1)
    with pytest.raises(InvalidInput) as refused:
        orders.window.send_test_message("Gone", b"x")
    assert refused.value.rocketmq_code == 17
    assert orders.engine.broker.topics.get("Gone") is None
