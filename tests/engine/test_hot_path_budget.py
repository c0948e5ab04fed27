"""The hot path stays short: calls a send and a pull cost, counted, not timed.

A figure that grows is looked at before its limit is raised; docs/decisions.md and the bench say why.
"""

import socket
import struct
import sys

import pytest

from appliance.engine.broker.processors.pull import PullProcessor
from appliance.engine.broker.processors.send import SendProcessor
from appliance.engine.protocol.command import RemotingCommand, encode_command
from appliance.engine.remoting import connection
from appliance.engine.remoting.connection import Connection
from tests.support.engine import Peer, pull_fields, send_fields, start_engine

UNIQ = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02WAIT\x01true\x02TAGS\x01TagA\x02"
SENDS = 64

#: Calls of Python and C functions for each of 64 sends parsed from one buffer, the end of their tick included.
SEND_CALLS = 48
#: For a pull of 32 adjacent messages.
PULL_CALLS = 75
#: For each message of a batch of 32.
BATCH_CALLS = 15


def java_frame(code: int, fields: dict, body: bytes = b"") -> bytes:
    return encode_command(
        RemotingCommand(code, opaque=7, ext_fields={name: str(value) for name, value in fields.items()}, body=body)
    )


class Counter:
    """Counts calls between start and stop on this thread."""

    def __init__(self) -> None:
        self.calls = 0

    def _event(self, frame, event, argument) -> None:
        if event in ("call", "c_call"):
            self.calls += 1

    def __enter__(self) -> "Counter":
        sys.setprofile(self._event)
        return self

    def __exit__(self, *exc) -> None:
        sys.setprofile(None)


@pytest.fixture
def rig(tmp_path, monkeypatch):
    """An engine whose loop has ended, so that this thread may stand in for it, and a connection to it."""
    # One turn takes all frames, however slow the machine is: no other turn would follow here.
    monkeypatch.setattr(connection, "TURN_S", 3600.0)
    monkeypatch.setattr(connection, "LONG_TICK_S", 7200.0)
    engine = start_engine(tmp_path)
    peer = Peer(engine.broker_address)
    assert peer.ask(310, send_fields("Budget", properties=UNIQ), b"x").code == 0
    peer.close()
    engine.loop.stop()
    engine.loop._ident = __import__("threading").get_ident()
    dispatcher = engine.server._listeners[0].dispatcher
    near, far = socket.socketpair()
    near.setblocking(False)
    conn = Connection(engine.server, near, dispatcher, bytes(8))
    yield engine, conn
    near.close()
    far.close()
    engine.broker.store.end_tick()
    engine.server.dirty.clear()
    engine.stop()


def run(engine, conn, frame: bytes, count: int) -> int:
    """Count the calls of one tick that parses `count` frames."""
    view = memoryview(bytearray(frame * count))
    with Counter() as counter:
        conn._consume(view, len(view))
        engine.broker.store.end_tick()
        engine.server.flush_dirty()
    return counter.calls


def test_a_send_costs_few_calls(rig):
    engine, conn = rig
    frame = java_frame(310, send_fields("Budget", 1, UNIQ), b"x" * 1024)
    run(engine, conn, frame, SENDS)
    before = engine.broker.store.put_count
    calls = run(engine, conn, frame, SENDS)
    assert engine.broker.store.put_count - before == SENDS
    assert calls / SENDS <= SEND_CALLS, f"{calls / SENDS:.1f} calls a send"
    assert isinstance(engine.broker.sending.processor, SendProcessor)


def test_a_batched_message_costs_fewer(rig):
    engine, conn = rig
    member = b"x" * 1024
    raw = UNIQ.encode()
    inner = (
        struct.pack(">iiiii", 22 + len(member) + len(raw), 0, 0, 0, len(member))
        + member
        + struct.pack(">h", len(raw))
        + raw
    )
    frame = java_frame(320, send_fields("Budget", 1, UNIQ, m="true"), inner * 32)
    run(engine, conn, frame, 1)
    before = engine.broker.store.put_count
    calls = run(engine, conn, frame, 1)
    assert engine.broker.store.put_count - before == 32
    assert calls / 32 <= BATCH_CALLS, f"{calls / 32:.1f} calls a message"


def test_a_pull_costs_few_calls(rig):
    engine, conn = rig
    run(engine, conn, java_frame(310, send_fields("Budget", 2, UNIQ), b"x" * 1024), SENDS)
    frame = java_frame(11, pull_fields("Budget", 2, 0))
    run(engine, conn, frame, 1)
    before = engine.broker.pull.message_count
    calls = run(engine, conn, frame, 1)
    assert engine.broker.pull.message_count - before == 32
    assert calls <= PULL_CALLS, f"{calls} calls a pull"
    assert isinstance(engine.broker.pull, PullProcessor)
