"""The wall clock is set an hour forward or back while the broker runs: no deadline passes early or never."""

import json
import threading
import time
from types import SimpleNamespace

import pytest

from appliance.engine import clock as clock_module
from tests.support.engine import Peer, pull_fields, send_fields, start_engine
from tests.support.store import sync_by

HOUR_S = 3600


@pytest.fixture
def wall(monkeypatch):
    """The wall clock's error in seconds, for all users of `Clock`."""
    error = SimpleNamespace(seconds=0)
    shim = SimpleNamespace(**{name: getattr(time, name) for name in dir(time) if not name.startswith("_")})
    shim.time = lambda: time.time() + error.seconds
    monkeypatch.setattr(clock_module, "time", shim)
    return error


@pytest.mark.parametrize("hours", [1, -1])
def test_nobody_is_closed_no_broker_dropped_and_no_lock_freed(tmp_path, wall, hours):
    engine = start_engine(tmp_path)
    try:
        peer = Peer(engine.broker_address)
        assert peer.ask(310, send_fields("T"), b"before").code == 0
        body = {"clientID": "c@1", "producerDataSet": [{"groupName": "PG"}], "consumerDataSet": []}
        assert peer.ask(34, body=json.dumps(body).encode()).code == 0
        assert peer.ask(11, pull_fields("T", 0, 0)).code == 0
        queues = [{"topic": "T", "brokerName": "broker-a", "queueId": 0}]
        lock = {"consumerGroup": "CG", "clientId": "c@1", "mqSet": queues}
        assert json.loads(peer.ask(41, body=json.dumps(lock).encode()).body)["lockOKMQSet"]
        wall.seconds = hours * HOUR_S
        time.sleep(0.2)
        for look in (engine.server._close_idle, engine.broker.clients.scan_expired):
            engine._on_loop(look)
        assert engine.namesrv.routes.expire() == []
        assert engine.namesrv.routes.broker_count == 1
        assert engine.broker.clients.producer_groups() == ["PG"]
        other = json.dumps(lock | {"clientId": "c@2"}).encode()
        assert not json.loads(peer.ask(41, body=other).body)["lockOKMQSet"], "the lock was freed early"
        begin = time.monotonic()
        parked = peer.send(11, pull_fields("T", 0, 1, sysFlag=6, suspendTimeoutMillis=400))
        wall.seconds = -wall.seconds
        assert peer.receive().opaque == parked
        assert time.monotonic() - begin > 0.2
        assert peer.ask(310, send_fields("T"), b"after").code == 0
    finally:
        engine.stop()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_sync_is_late_when_its_time_is_over_not_when_the_clock_is_set(tmp_path, wall, monkeypatch, hours):
    engine = start_engine(tmp_path, store={"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout_ms": 60_000})
    release = threading.Event()
    try:
        peer = Peer(engine.broker_address)
        assert peer.ask(310, send_fields("T"), b"before").code == 0
        if hours < 0:
            monkeypatch.setattr(engine.broker.durability, "_timeout_ms", lambda: 500)
        real = sync_by(engine.broker.store, lambda: (release.wait(60), real())[1])
        peer.send(310, send_fields("T"), b"slow")
        time.sleep(0.2)
        wall.seconds = hours * HOUR_S
        if hours > 0:
            assert peer.is_silent(2.5), "it was given up early"
            release.set()
            assert peer.receive().code == 0
        else:
            assert peer.receive().code == 10, "no user has read that it takes long"
    finally:
        release.set()
        engine.stop()
