"""Consumption in order, on the wire: leases of queues, takeover when a client dies or is cut off, giving up."""

import json

import pytest

from appliance.engine.broker.queue_locks import BELIEVED_S
from appliance.engine.config import BrokerConfig, EngineConfig, StoreConfig
from appliance.engine.engine import Engine
from appliance.engine.protocol.properties import decode_properties
from tests.support.engine import ROOMY, Peer, pull_fields, records, send_fields
from tests.support.figures import SkippingClock
from tests.support.waiting import wait_for

LOCK, UNLOCK, LIST, NOTICE = 41, 42, 38, 40
TOPIC, GROUP = "Orders", "CG"


@pytest.fixture
def clock():
    return SkippingClock()


@pytest.fixture
def engine(tmp_path, clock):
    store = StoreConfig(**ROOMY, flush_disk_type="ASYNC_FLUSH", mapped_file_size_commit_log=8 << 20)
    broker = BrokerConfig(broker_name="broker-a")
    engine = Engine(
        EngineConfig(data_dir=tmp_path, broker_port=0, namesrv_port=0, broker=broker, store=store), clock=clock
    )
    engine.start()
    yield engine
    engine.stop()


class Consumer:
    """A client that consumes in order as the Java client does."""

    def __init__(self, engine, client_id, heartbeat=True):
        self.client_id = client_id
        self.engine = engine
        self.peer = Peer(engine.broker_address)
        if heartbeat:
            self.connect()

    def connect(self):
        self.peer.close()
        self.peer = Peer(self.engine.broker_address)
        subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []}
        consumer = {
            "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription],
        }  # fmt: skip
        body = {"clientID": self.client_id, "consumerDataSet": [consumer], "producerDataSet": []}
        assert self.peer.ask(34, {}, json.dumps(body).encode()).code == 0

    def lock(self, *queues, code=LOCK):
        wanted = [{"brokerName": "broker-a", "queueId": number, "topic": TOPIC} for number in queues]
        body = {"clientId": self.client_id, "consumerGroup": GROUP, "mqSet": wanted}
        answer = self.peer.ask(code, {}, json.dumps(body).encode())
        assert answer.code == 0
        return sorted(q["queueId"] for q in json.loads(answer.body)["lockOKMQSet"]) if code == LOCK else None

    def consume(self, queue, count):
        """Return the next messages of a leased queue, and commit the group's offset behind them."""
        assert self.lock(queue) == [queue]
        asked = self.peer.ask(14, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue})
        offset = int(asked.ext_fields["offset"])
        found = records(self.peer.ask(11, pull_fields(TOPIC, queue, offset, maxMsgNums=count)).body)
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue, "commitOffset": offset + len(found)}
        assert self.peer.ask(15, fields).code == 0
        return [int(record.body) for record in found]

    def members(self):
        return sorted(json.loads(self.peer.ask(LIST, {"consumerGroup": GROUP}).body)["consumerIdList"])


@pytest.fixture
def orders(engine):
    producer = Peer(engine.broker_address)
    for number in range(40):
        assert producer.ask(310, send_fields(TOPIC, 0), b"%d" % number).code == 0
    producer.close()
    return engine


@pytest.fixture
def first(orders):
    return Consumer(orders, "first@1")


@pytest.fixture
def second(orders, first):
    return Consumer(orders, "second@1")


def test_a_queue_is_consumed_in_order_by_one_after_another(first, second):
    seen = first.consume(0, 7)
    assert second.lock(0) == []
    seen += first.consume(0, 7)
    first.lock(0, code=UNLOCK)
    seen += second.consume(0, 7)
    assert first.lock(0) == []
    second.lock(0, code=UNLOCK)
    seen += first.consume(0, 7)
    assert seen == list(range(28))


def test_who_signs_off_leaves_its_queue_to_another_at_once(first, second):
    seen = first.consume(0, 7)
    assert first.peer.ask(35, {"clientID": first.client_id, "consumerGroup": GROUP}).code == 0
    assert second.lock(0, 1) == [0, 1]
    assert seen + second.consume(0, 7) == list(range(14)), "from where the group was"


def test_who_dies_leaves_its_queue_to_another_when_it_would_not_believe_in_it_any_more(clock, first, second):
    seen = first.consume(0, 7)
    first.peer.sock.close()
    wait_for(lambda: second.members() == ["second@1"], "the group knows")
    clock.skipped_ms += int(BELIEVED_S * 1000) - 5_000
    assert second.lock(0, 1) == [1], "it may have lost its connection only, and be at work"
    clock.skipped_ms += 5_000
    assert second.lock(0, 1) == [0, 1]
    assert seen + second.consume(0, 7) == list(range(14))


def test_who_dies_before_its_first_heartbeat_leaves_its_queue_as_well(clock, orders, second):
    """After a restart of the broker a client renews its locks before it sends a heartbeat."""
    renewed = Consumer(orders, "first@1", heartbeat=False)
    assert renewed.lock(0) == [0]
    renewed.peer.sock.close()
    clock.skipped_ms += int(BELIEVED_S * 1000)
    wait_for(lambda: second.lock(0) == [0], "it is gone")


def test_who_is_cut_off_leaves_its_queue_to_another_after_a_minute(clock, first, second):
    """Its handler may still be at work: no other client gets the queue before."""
    seen = first.consume(0, 7)
    clock.skipped_ms += 59_000
    assert second.lock(0, 1) == [1]
    clock.skipped_ms += 1_000
    assert second.lock(0, 1) == [0, 1]
    assert seen + second.consume(0, 7) == list(range(14))


def test_who_comes_back_in_time_keeps_its_queue(clock, first, second):
    seen = first.consume(0, 7)
    first.peer.sock.close()
    clock.skipped_ms += 50_000
    first.connect()
    assert first.lock(0) == [0]
    clock.skipped_ms += 50_000
    second.connect()  # it was silent for too long, too
    assert second.lock(0) == []
    assert seen + first.consume(0, 7) == list(range(14))


def test_who_comes_back_too_late_has_lost_it(clock, first, second):
    first.consume(0, 7)
    first.peer.sock.close()
    clock.skipped_ms += 60_000
    assert second.lock(0) == [0]
    first.connect()
    assert first.lock(0) == []
    second.lock(0, code=UNLOCK)
    assert first.lock(0) == [0]


def test_a_broker_that_was_started_again_gives_queues_to_whoever_asks_first(tmp_path, clock):
    """Leases are in memory, as in Apache: clients ask for theirs every 20 s."""
    config = EngineConfig(
        data_dir=tmp_path / "again", broker_port=0, namesrv_port=0, broker=BrokerConfig(broker_name="broker-a"),
        store=StoreConfig(**ROOMY, mapped_file_size_commit_log=8 << 20),
    )  # fmt: skip
    for _ in range(2):
        engine = Engine(config, clock=clock)
        engine.start()
        producer = Peer(engine.broker_address)
        assert producer.ask(310, send_fields(TOPIC, 0), b"1").code == 0
        assert Consumer(engine, "first@1").lock(0) == [0]
        producer.close()
        engine.stop()


def give_up(peer, times, limit):
    properties = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02RETRY_TOPIC\x01Orders\x02DELAY\x0117\x02"
    fields = send_fields(f"%RETRY%{GROUP}", 0, properties, j=times, l=limit)
    assert peer.ask(310, fields, b"too much").code == 0


def dead_letters(peer):
    answer = peer.ask(11, pull_fields(f"%DLQ%{GROUP}", 0, 0))
    return records(answer.body) if answer.code == 0 else []


def test_a_consumer_in_order_gives_up_while_it_holds_a_queue(clock, first):
    """A 4.9 client sends its limit, a 5.x client one more: both make a dead letter at once."""
    first.consume(0, 1)
    give_up(first.peer, times=3, limit=3)
    give_up(first.peer, times=4, limit=3)
    assert len(dead_letters(first.peer)) == 2
    assert {decode_properties(record.properties)["DELAY"] for record in dead_letters(first.peer)} == {"-1"}


def test_without_a_lease_it_is_a_retry_up_to_the_limit(clock, first):
    first.consume(0, 1)
    clock.skipped_ms += 60_000
    first.connect()
    give_up(first.peer, times=3, limit=3)
    assert dead_letters(first.peer) == []
    give_up(first.peer, times=4, limit=3)
    assert len(dead_letters(first.peer)) == 1
