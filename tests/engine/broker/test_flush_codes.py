"""The answer to a sender about the disk: stored, stored but not yet durable, not stored."""

import errno
import threading

import pytest

from appliance.engine.protocol.codes import ResponseCode
from tests.support.engine import pull_fields, records, send_fields, start_engine
from tests.support.store import sync_in_python

NOT_WAITING = "WAIT\x01false\x02"


@pytest.fixture
def engine(tmp_path):
    engine = start_engine(tmp_path, store={"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout_ms": 60_000})
    yield engine
    engine.stop()


@pytest.fixture
def slow(engine, monkeypatch):
    """A log whose syncs wait for `slow.set()`, and fail then if `slow.failing` is set."""
    done = threading.Event()
    done.failing = False
    disk, log = engine.broker.store.disk, engine.broker.store.log
    real = disk.fdatasync

    def fdatasync(fd):
        if fd in [segment.fd for segment in log.segments]:
            done.wait(60)
            if done.failing:
                raise OSError(errno.EIO, "Input/output error")
        real(fd)

    monkeypatch.setattr(disk, "fdatasync", fdatasync)
    sync_in_python(engine.broker.store)
    yield done
    done.set()


def test_stored_but_slow_is_10_with_all_a_success_has(peer, slow, engine, monkeypatch):
    with monkeypatch.context() as impatient:
        impatient.setattr(engine.broker.durability, "_timeout_ms", lambda: 300)
        answer = peer.ask(310, send_fields("T"), b"slow")
    assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"} <= set(answer.ext_fields)
    assert answer.ext_fields["queueOffset"] == "0"
    assert peer.ask(11, pull_fields("T", 0, 0)).code != 0, "no reader gets what a power cut may take back"
    slow.set()
    assert peer.is_silent(0.5), "one request, one answer"
    assert [r.body for r in records(peer.ask(11, pull_fields("T", 0, 0)).body)] == [b"slow"]
    assert peer.ask(310, send_fields("T"), b"fast").code == 0


def test_who_does_not_wait_is_answered_when_it_is_written(peer, slow):
    answer = peer.ask(310, send_fields("T", properties=NOT_WAITING), b"a")
    assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "0")
    waiting = peer.send(310, send_fields("T"), b"b")
    answer = peer.ask(310, send_fields("T", properties=NOT_WAITING), b"c")
    assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "2")
    slow.set()
    answer = peer.receive()
    assert (answer.opaque, answer.code) == (waiting, 0)
    assert [r.body for r in records(peer.ask(11, pull_fields("T", 0, 0)).body)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("properties", ["WAIT\x01true\x02", "XWAIT\x01false\x02", "A\x01WAIT\x02"])
def test_any_other_property_waits(peer, slow, properties):
    peer.send(310, send_fields("T", properties=properties), b"a")
    assert peer.is_silent(0.2)
    slow.set()
    assert peer.receive().code == 0


def test_what_is_not_stored_is_14(peer, slow, engine):
    first = peer.send(310, send_fields("T"), b"lost")
    slow.failing = True
    slow.set()
    answer = peer.receive()
    assert (answer.opaque, answer.code) == (first, ResponseCode.SERVICE_NOT_AVAILABLE)
    assert "Input/output error" in answer.remark
    for properties in ("", NOT_WAITING):
        answer = peer.ask(310, send_fields("T", properties=properties), b"later")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
    assert not engine.health()["store"]["ok"]
    assert peer.ask(11, pull_fields("T", 0, 0)).code != 0
