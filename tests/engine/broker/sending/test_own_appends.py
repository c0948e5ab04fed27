"""Messages that the broker itself stores: one way in, one future a batch."""

import pytest

from appliance.engine.broker.sending import own_appends
from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.broker.topic_config import BATCH_QUEUES, QUEUE_TYPE, TopicConfig
from appliance.engine.errors import Unavailable
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import decode_record
from tests.support.engine import pull_fields, records

QUEUES = 2


def message(body: bytes, queue_id: int = 0, topic: str = "Own", **fields) -> OwnMessage:
    return OwnMessage(topic, queue_id, body, "TAGS\x01TagA\x02", "KEY", 1, **fields)


@pytest.fixture
def appends(engine):
    engine.broker.topics.update(TopicConfig(topic_name="Own", read_queue_nums=QUEUES, write_queue_nums=QUEUES))
    return engine.broker.sending.appends


def test_a_batch_is_stored_in_order_and_published_as_one_tick(engine, peer, appends):
    outcomes = appends.submit([message(b"one"), message(b"two"), message(b"other", queue_id=1)]).result(60)
    assert [(o.code, o.queue_id, o.queue_offset, o.unique_key) for o in outcomes] == [
        (0, 0, 0, "KEY"),
        (0, 0, 1, "KEY"),
        (0, 1, 0, "KEY"),
    ]
    found = records(peer.ask(11, pull_fields("Own", 0, 0)).body)
    assert [(r.body, r.properties) for r in found] == [(b"one", "TAGS\x01TagA\x02"), (b"two", "TAGS\x01TagA\x02")]
    assert [r.physical_offset for r in found] == [o.physical_offsets[0] for o in outcomes[:2]]
    assert records(peer.ask(11, pull_fields("Own", 0, 0, subscription="TagB")).body) == []


def test_every_field_reaches_the_record(engine, appends):
    born = encode_host("2001:db8::7", 4711)
    own = message(b"x", born_host=born, flag=9, sys_flag=8, reconsume_times=3, prepared_transaction_offset=1 << 40)
    [outcome] = appends.submit([own]).result(60)
    record = decode_record(engine.broker.store.log.read(outcome.physical_offsets[0], 300))
    assert (record.born_host, record.flag, record.sys_flag & 0xF) == (("2001:db8::7", 4711), 9, 8)
    assert (record.reconsume_times, record.prepared_transaction_offset, record.body) == (3, 1 << 40, b"x")


def test_the_flags_of_hosts_are_the_brokers_own(engine, appends):
    [outcome] = appends.submit([message(b"x", sys_flag=0x38)]).result(60)
    record = decode_record(engine.broker.store.log.read(outcome.physical_offsets[0], 300))
    assert (record.sys_flag, record.body) == (0x8, b"x")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (message(b"x", topic="Gone"), ResponseCode.TOPIC_NOT_EXIST),
        (message(b"x", queue_id=QUEUES), ResponseCode.INVALID_PARAMETER),
        (message(b"x", queue_id=-1), ResponseCode.INVALID_PARAMETER),
        (message(b"x", flag=1 << 40), ResponseCode.MESSAGE_ILLEGAL),
        (OwnMessage("Own", 0, b"x", "a\x01" + "\0" * 600 + "\x02", "", 1), ResponseCode.MESSAGE_ILLEGAL),
        (OwnMessage("Own", 0, b"x", "a\x01" + "b" * 40_000 + "\x02", "", 1), ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_one_that_cannot_be_stored_is_refused_and_the_others_are_stored(engine, appends, wrong, code):
    first, refused, last = appends.submit([message(b"a"), wrong, message(b"b")]).result(60)
    assert (first.code, first.queue_offset) == (0, 0)
    assert (refused.code, refused.physical_offsets) == (code, ())
    assert (last.code, last.queue_offset) == (0, 1)


def test_a_broken_log_refuses_all_of_them(engine, appends):
    engine.broker.store.log.fail("the disk is gone")
    outcomes = appends.submit([message(b"a"), message(b"b")]).result(60)
    assert {outcome.code for outcome in outcomes} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    assert all("the disk is gone" in outcome.reason for outcome in outcomes)


def test_a_log_that_takes_nothing_for_now_refuses_all_of_them(engine, appends):
    log = engine.broker.store.log
    engine._on_loop(lambda: log.refuse("the disk is full", "test"))
    outcomes = appends.submit([message(b"a"), message(b"b")]).result(60)
    assert {(outcome.code, outcome.reason) for outcome in outcomes} == {
        (ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: the disk is full")
    }
    engine._on_loop(lambda: log.refuse(None, "test"))
    assert appends.submit([message(b"a")]).result(60)[0].queue_offset == 0


def test_what_a_batch_may_hold_is_bounded(appends, monkeypatch):
    with pytest.raises(ValueError):
        appends.submit([])
    with pytest.raises(ValueError):
        appends.submit([message(b"x")] * (own_appends.MAX_BATCH_MESSAGES + 1))
    with pytest.raises(ValueError):
        appends.submit([message(b"x"), message(b"x" * (own_appends.MAX_BATCH_BYTES + 1))])
    assert appends.submit([message(b"x" * (own_appends.MAX_BATCH_BYTES + 1))]).result(60)[0].code == 0


def test_nothing_is_taken_once_the_io_thread_has_ended(engine, appends):
    engine.loop.stop()
    with pytest.raises(Unavailable):
        appends.submit([message(b"x")])


def test_a_topic_with_batch_queues_gets_no_entry_of_the_plain_kind(engine, appends):
    """Its queues are files of another kind, left by Apache 5.x."""
    batches = TopicConfig(topic_name="Batches", attributes={QUEUE_TYPE: BATCH_QUEUES})
    engine.broker.topics._configs["Batches"] = batches
    [outcome] = appends.submit([message(b"x", topic="Batches")]).result(60)
    assert (outcome.code, outcome.physical_offsets) == (ResponseCode.INVALID_PARAMETER, ())
    assert "BatchCQ" in outcome.reason
    assert engine.broker.store.find_queue("Batches", 0) is None
