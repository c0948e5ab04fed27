"""Too many bytes wait for their sync: senders wait; consumers, heartbeats and the name server go on."""

import json
import threading
import time

import pytest

from appliance.engine.protocol.command import CODEC_ROCKETMQ, RemotingCommand, encode_command
from appliance.engine.remoting import server as server_module
from appliance.engine.remoting.server import PRESSURE_READ_BYTES
from appliance.engine.store import message_store as store_module
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.store import sync_by
from tests.support.waiting import wait_for

PULL, HEARTBEAT, ROUTE = 11, 34, 105


@pytest.fixture
def engine(tmp_path):
    engine = start_engine(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"})
    yield engine
    engine.stop()


def press(engine, on=True):
    """Set back-pressure; the store, which has none, does not take it back by itself."""
    engine.broker.store._look_at_pressure = lambda: None
    engine._on_loop(lambda: engine.broker.store._set_pressure(on))


@pytest.fixture
def pressed(engine):
    """The engine with a message in it and back-pressure on."""
    peer = Peer(engine.broker_address)
    assert peer.ask(310, send_fields("T"), b"before").code == 0
    peer.close()
    press(engine)
    return engine


def heartbeat(peer, client_id):
    body = {"clientID": client_id, "producerDataSet": [{"groupName": "PG"}], "consumerDataSet": []}
    return peer.send(HEARTBEAT, body=json.dumps(body).encode())


LONG_NAMES = {
    "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
    "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "", "reconsumeTimes": 0, "unitMode": "false",
}  # fmt: skip
BATCH = b"\0\0\0\x1d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07message\0\0"
SENDS = {
    "310": (310, send_fields("T"), b"message", 0),
    "10": (10, LONG_NAMES, b"message", 0),
    "320": (320, send_fields("T", m="true"), BATCH, 0),
    "binary": (310, send_fields("T"), b"message", CODEC_ROCKETMQ),
    "large": (310, send_fields("T"), b"message" * 100_000, 0),
    "36": (36, {"offset": 0, "group": "CG", "delayLevel": -1}, b"", 0),
    "binary 36": (36, {"offset": 0, "group": "CG", "delayLevel": -1}, b"", CODEC_ROCKETMQ),
}


def test_consumers_heartbeats_and_the_name_server_go_on(pressed):
    consumer, name_server = Peer(pressed.broker_address), Peer(pressed.namesrv_address)
    (record,) = records(consumer.ask(PULL, pull_fields("T", 0, 0)).body)
    assert record.body == b"before"
    heartbeat(consumer, "c@1")
    assert consumer.receive().code == 0
    # Another thread registers the new topic.
    wait_for(lambda: name_server.ask(ROUTE, {"topic": "T"}).code == 0, "the route")
    assert consumer.ask(15, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1}).code == 0
    parked = consumer.send(PULL, pull_fields("T", 0, 1, sysFlag=6, suspendTimeoutMillis=300))
    assert consumer.receive().opaque == parked, "timers go on, too"


@pytest.mark.parametrize("name", SENDS)
def test_a_send_waits_and_is_stored_once_when_the_pressure_has_gone(pressed, name):
    code, fields, body, codec = SENDS[name]
    producer, consumer = Peer(pressed.broker_address), Peer(pressed.broker_address)
    heartbeat(producer, "p@1")
    assert producer.receive().code == 0, "what comes before the send is answered"
    sent = producer.send(code, fields, body, codec=codec)
    beat = heartbeat(producer, "p@1")
    assert producer.is_silent(0.4)
    assert pressed.broker.store.put_count == 1
    assert consumer.ask(PULL, pull_fields("T", 0, 0)).code == 0
    press(pressed, False)
    assert {producer.receive().opaque, producer.receive().opaque} == {sent, beat}
    topic, offset = ("%DLQ%CG", 0) if code == 36 else ("T", 1)
    stored = records(consumer.ask(PULL, pull_fields(topic, 0, offset)).body)
    assert [record.body for record in stored] == [{320: b"message", 36: b"before"}.get(code, body)]
    wait_for(lambda: pressed.server._partial_total == 0, "something is still counted")


def test_hundreds_of_sends_behind_the_first_are_stored_in_order(pressed):
    producer, consumer = Peer(pressed.broker_address), Peer(pressed.broker_address)
    opaques = [producer.send(310, send_fields("T"), b"%d" % n * 100) for n in range(500)]
    assert producer.is_silent(0.3)
    wait_for(lambda: pressed.server.held_back, "not held back")
    conn = next(iter(pressed.server.held_back))
    wait_for(lambda: conn.partial_bytes, "nothing waits behind the first")
    assert conn.partial_bytes <= PRESSURE_READ_BYTES
    for _ in range(3):  # it comes, goes, and comes again before they have been let go
        press(pressed, False)
        press(pressed)
    press(pressed, False)
    assert sorted(producer.receive().opaque for _ in opaques) == opaques
    found, offset = [], 1
    while len(found) < 500:
        answer = consumer.ask(PULL, pull_fields("T", 0, offset))
        found += [record.body for record in records(answer.body)]
        offset = int(answer.ext_fields["nextBeginOffset"])
    assert found == [b"%d" % n * 100 for n in range(500)]


def test_who_is_not_read_from_is_not_closed_as_silent(pressed, monkeypatch):
    monkeypatch.setattr(server_module, "IDLE_SECONDS", 100.0)
    monkeypatch.setattr(server_module, "PARTIAL_IDLE_SECONDS", 100.0)
    pressed.broker.clients._expiry_s = 100.0

    def age():
        """Have all been silent for longer than that: real seconds may pass anywhere."""
        for conn in pressed.server.connections.values():
            conn.last_active -= 1000.0
            conn.listening_since -= 1000.0
        for presence in pressed.broker.clients._presence.values():
            presence.heard_at -= 1000.0

    producer, idle = Peer(pressed.broker_address), Peer(pressed.broker_address)
    heartbeat(producer, "p@1")
    assert producer.receive().code == 0
    sent = producer.send(310, send_fields("T"), b"message")
    # This peer gets no answer when it is let go, and only half a frame followed its message.
    mute = Peer(pressed.broker_address)
    mute.send(310, send_fields("T"), b"one-way", flag=2)
    half = encode_command(RemotingCommand(ROUTE, opaque=4))
    mute.send_bytes(half[:20])
    wait_for(lambda: len(pressed.server.held_back) == 2, "not held back")
    for _ in range(2):
        pressed._on_loop(age)
        pressed._on_loop(pressed.server._close_idle)
        pressed._on_loop(pressed.broker.clients.scan_expired)
    assert pressed.broker.clients.producer_groups() == ["PG"]
    press(pressed, False)
    pressed._on_loop(pressed.server._close_idle)
    pressed._on_loop(pressed.broker.clients.scan_expired)
    assert producer.receive().opaque == sent, "its clock starts anew"
    pressed._on_loop(pressed.server._close_idle)
    mute.send_bytes(half[20:])
    assert mute.receive().opaque == 4
    with pytest.raises(ConnectionError):
        idle.receive()


def test_a_producer_that_goes_while_it_waits_is_forgotten(pressed):
    producer = Peer(pressed.broker_address)
    producer.send(310, send_fields("T"), b"message")
    wait_for(lambda: pressed.server.held_back, "not held back")
    (conn,) = pressed.server.held_back
    pressed._on_loop(conn.close)
    assert not pressed.server.held_back
    assert pressed.server._partial_total == 0
    press(pressed, False)
    assert pressed.broker.store.put_count == 1


def test_a_stop_under_pressure_stops_everybody_and_ends(tmp_path):
    engine = start_engine(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"})
    producer, other = Peer(engine.broker_address), Peer(engine.broker_address)
    assert producer.ask(310, send_fields("T"), b"before").code == 0
    press(engine)
    producer.send(310, send_fields("T"), b"never acknowledged")
    wait_for(lambda: engine.server.held_back, "not held back")
    engine._on_loop(engine._stop_reading)
    press(engine, False)
    other.send(PULL, pull_fields("T", 0, 0))
    assert other.is_silent(0.3)
    assert producer.is_silent(0.1)
    engine.stop()
    assert engine.broker.store.put_count == 1


def test_a_disk_that_is_too_slow_stops_producers_and_nobody_else(engine, monkeypatch):
    """The real case: a sync that does not return, and more bytes than may wait for it."""
    monkeypatch.setattr(store_module, "UNSYNCED_HIGH_BYTES", 1 << 20)
    monkeypatch.setattr(store_module, "UNSYNCED_LOW_BYTES", 1 << 19)
    first = Peer(engine.broker_address)
    assert first.ask(310, send_fields("T"), b"first").code == 0
    release = threading.Event()
    real = sync_by(engine.broker.store, lambda: (release.wait(60), real())[1])
    body = bytes(10_000)
    frame = encode_command(
        RemotingCommand(310, opaque=5, ext_fields={k: str(v) for k, v in send_fields("T", 1).items()}, body=body)
    )
    first.sock.setblocking(False)
    sent = 0
    end, held_for = time.monotonic() + 60, 0
    pending = b""
    while time.monotonic() < end and sent < 4000 and held_for < 100:
        held_for += engine.server.producers_held
        pending = pending or frame * 10
        try:
            pending = pending[first.sock.send(pending) :]
            sent += 10 if not pending else 0
        except BlockingIOError:
            time.sleep(0.01)
    log = engine.broker.store.log
    assert log.written - log.durable < 3 << 20, "everything it sent was taken"
    assert engine.server.producers_held
    consumer = Peer(engine.broker_address)
    assert consumer.ask(PULL, pull_fields("T", 0, 0)).code == 0
    assert consumer.ask(PULL, pull_fields("T", 1, 0)).code != 0, "nothing that is not durable is shown"
    release.set()
    wait_for(lambda: not engine.server.producers_held, "the pressure stays")
