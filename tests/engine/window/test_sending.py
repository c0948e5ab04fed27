"""Test messages are stored as the broker's own are: the same staging and publication as a client's."""

import json
import threading
import time

import pytest

from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.errors import InvalidInput, NotFound, Unavailable
from tests.support.engine import pull_fields, records
from tests.support.store import sync_by
from tests.support.waiting import wait_for


@pytest.fixture
def orders(running):
    running.window.topic_commands.create("Orders", read_queues=2, write_queues=2)
    return running


def test_a_consumer_gets_what_was_sent(orders):
    sent = orders.window.sender.send(
        "Orders", b"hello", tags="paid", keys=["k1", "k2"], properties={"colour": "red"}, queue_id=1
    )
    assert (sent.status, sent.queue_id, sent.queue_offset) == ("SEND_OK", 1, 0)
    answer = orders.peer().ask(11, pull_fields("Orders", 1, 0))
    record = records(answer.body)[0]
    assert record.body == b"hello"
    detail = orders.window.messages.detail(sent.offset_id)
    assert detail.unique_id == sent.unique_id
    assert (detail.tags, detail.keys, detail.properties["colour"]) == ("paid", ("k1", "k2"), "red")


def test_a_parked_pull_is_woken(orders):
    peer = orders.peer()
    peer.send(11, pull_fields("Orders", 0, 0, sysFlag=6, suspendTimeoutMillis=10_000))
    wait_for(lambda: orders.engine.broker.pull.long_polling.count, "the pull to be held")
    orders.window.sender.send("Orders", b"wake up", queue_id=0)
    assert records(peer.receive().body)[0].body == b"wake up"


def test_in_sync_flush_it_returns_when_the_log_is_durable(make_running):
    running = make_running(store={"flush_disk_type": "SYNC_FLUSH"})
    running.window.topic_commands.create("Orders")
    log = running.engine.broker.store.log
    synced = threading.Event()

    def slow_sync():
        time.sleep(0.2)
        done = sync()
        synced.set()
        return done

    sync = sync_by(running.engine.broker.store, slow_sync)
    sent = running.window.sender.send("Orders", b"x")
    assert synced.is_set()
    assert sent.took_ms >= 200
    assert log.durable == log.written


def test_a_broken_log_refuses_it(orders):
    orders.engine.broker.store.log.fail("the disk is gone")
    with pytest.raises(Unavailable, match="the disk is gone"):
        orders.window.sender.send("Orders", b"x")


def test_no_answer_in_time_is_said_so(orders):
    held = threading.Event()
    orders.engine.loop.call_soon(lambda: held.wait(60))
    try:
        with pytest.raises(Unavailable, match="may have been stored"):
            orders.window.sender.send("Orders", b"x", timeout_s=0.05)
    finally:
        held.set()


def test_at_most_64_are_under_way(orders):
    held = threading.Event()
    orders.engine.loop.call_soon(lambda: held.wait(60))
    appends = orders.engine.broker.sending.appends
    message = OwnMessage("Orders", 0, b"x", "", "", 1)
    try:
        futures = [appends.submit([message]) for _ in range(64)]
        with pytest.raises(Unavailable):
            orders.window.sender.send("Orders", b"x")
    finally:
        held.set()
    assert {outcome.code for future in futures for outcome in future.result(60)} == {0}
    assert orders.window.sender.send("Orders", b"x").status == "SEND_OK"


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
        ("properties", {"properties": {"TIMER_OUT_MS": "1"}, "deliver_at_ms": 1 << 42}),
        ("properties", {"properties": {"ROCKETBOX_TIMER_OF": "0"}}),
        ("properties", {"properties": {"": "x"}}),
        ("properties", {"properties": {"x": "y\x02z\x01w"}}),
        ("properties", {"properties": {"x": "y" * 40_000}}),
        ("properties", {"properties": {"x": "\ud800"}}),
    ],
)
def test_what_may_not_be_sent(orders, field, options):
    before = orders.engine.broker.store.put_count
    with pytest.raises(InvalidInput) as refused:
        orders.window.sender.send("Orders", **({"body": b"x"} | options))
    assert refused.value.field == field
    assert orders.engine.broker.store.put_count == before


def test_topics_that_cannot_be_sent_to(orders):
    with pytest.raises(NotFound):
        orders.window.sender.send("Nope", b"x")
    assert orders.engine.broker.topics.get("Nope") is None, "a test message makes no topic"
    orders.window.topic_commands.edit("Orders", writable=False)
    for topic in ("Orders", "SCHEDULE_TOPIC_XXXX"):
        with pytest.raises(InvalidInput):
            orders.window.sender.send(topic, b"x")


def test_a_topic_with_batch_queues_is_refused_as_a_producer_is(make_running, tmp_path):
    config = tmp_path / "0" / "store" / "config"
    config.mkdir(parents=True)
    topic = {"topicName": "Batches", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    table = {"Batches": topic | {"attributes": {"queue.type": "BatchCQ"}}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    running = make_running()
    with pytest.raises(InvalidInput, match=r"queue\.type=BatchCQ") as refused:
        running.window.sender.send("Batches", b"x")
    assert refused.value.rocketmq_code == 29
    assert running.engine.broker.store.log.written == 0


def test_an_ordered_topic_of_a_broker_that_may_not_be_written_is_refused_as_a_producer_is(orders):
    orders.window.topic_commands.edit("Orders", order=True)
    orders.window.option_commands.change({"brokerPermission": 4})
    with pytest.raises(InvalidInput) as refused:
        orders.window.sender.send("Orders", b"x")
    assert (refused.value.field, refused.value.rocketmq_code) == ("topic", 16)
    assert orders.engine.broker.store.log.written == 0


def test_a_topic_deleted_in_between_is_not_made_again(orders, monkeypatch):
    monkeypatch.setattr(orders.window._parts.sender, "_check", lambda *args: 1)
    with pytest.raises(InvalidInput) as refused:
        orders.window.sender.send("Gone", b"x")
    assert refused.value.rocketmq_code == 17
    assert orders.engine.broker.topics.get("Gone") is None


def test_a_message_with_a_delay_level_waits_and_then_comes(make_running):
    running = make_running(store={"message_delay_level": "1h 0s"})
    running.window.topic_commands.create("Orders", read_queues=2, write_queues=2)
    waits = running.window.sender.send("Orders", b"later", queue_id=1, delay_level=1)
    assert (waits.status, waits.topic, waits.queue_id, waits.queue_offset) == ("SEND_OK", "SCHEDULE_TOPIC_XXXX", 0, 0)
    properties = running.window.messages.detail(waits.offset_id).properties
    assert (properties["DELAY"], properties["REAL_TOPIC"], properties["REAL_QID"]) == ("1", "Orders", "1")
    running.window.sender.send("Orders", b"at once", queue_id=1, delay_level=2)
    peer = running.peer()
    fields = pull_fields("Orders", 1, 0)
    wait_for(lambda: records(peer.ask(11, fields).body), "it is due")
    assert [record.body for record in records(peer.ask(11, fields).body)] == [b"at once"]
    for level in (-1, 3):
        with pytest.raises(InvalidInput) as refused:
            running.window.sender.send("Orders", b"x", delay_level=level)
        assert refused.value.field == "delay_level"


def test_a_half_message_is_left_open_on_purpose(orders):
    sent = orders.window.sender.send("Orders", b"paid", queue_id=1, keys=["k"], half_of="PG", by="alice")
    assert (sent.topic, sent.queue_id, sent.queue_offset) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
    [one] = orders.window.transactions.open().rows
    assert (one.message.offset_id, one.message.unique_id, one.message.keys) == (sent.offset_id, sent.unique_id, ("k",))
    assert (one.message.topic, one.message.queue_id, one.message.group) == ("Orders", 1, "PG")
    producer = orders.produce_as("p1", "PG")
    orders.window.transaction_commands.act("check")
    asked = next(frame for frame in iter(producer.receive, None) if frame.code == 39)
    fields = {name: asked.ext_fields[name] for name in ("tranStateTableOffset", "commitLogOffset")}
    end = {"producerGroup": "PG", "commitOrRollback": "8", "fromTransactionCheck": "true"}
    assert producer.ask(37, fields | end).code == 0
    [record] = records(orders.peer().ask(11, pull_fields("Orders", 1, 0)).body)
    assert record.body == b"paid"


@pytest.mark.parametrize(
    ("more", "field"),
    [({"half_of": "no spaces"}, "half_of"), ({"half_of": "x" * 256}, "half_of"),
     ({"half_of": "PG", "delay_level": 1}, "half_of"),
     ({"half_of": "PG", "deliver_at_ms": 1 << 42}, "half_of")],
)  # fmt: skip
def test_half_messages_that_cannot_be(orders, more, field):
    with pytest.raises(InvalidInput) as refused:
        orders.window.sender.send("Orders", b"x", **more)
    assert refused.value.field == field
    assert refused.value.sentence is not None


def test_half_messages_are_refused_where_transactions_are(make_running):
    running = make_running(broker={"reject_transaction_message": True})
    running.window.topic_commands.create("Orders")
    with pytest.raises(InvalidInput) as refused:
        running.window.sender.send("Orders", b"x", half_of="PG")
    assert (refused.value.field, refused.value.rocketmq_code) == ("half_of", 16)
