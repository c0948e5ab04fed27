"""The outcome of a pull is a value: callers receive it in their own way, and need no frames."""

from __future__ import annotations

import queue

import pytest

from appliance.engine.broker.pulling.fields import SUBSCRIPTION, PullFields
from appliance.engine.broker.pulling.request import PullRequest
from appliance.engine.errors import RefusedRequest
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.record import decode_record
from appliance.engine.store.results import GetResult, GetStatus
from tests.support.engine import Peer, send_fields, start_engine


class Outcomes:
    """A caller in this process."""

    def __init__(self) -> None:
        self._arrived: queue.Queue[tuple[int, int, GetResult | None]] = queue.Queue()

    def found(self, request: PullRequest, code: int, result: GetResult) -> None:
        self._arrived.put((request.opaque, code, result))

    def refused(self, request: PullRequest, refusal: RefusedRequest) -> None:
        self._arrived.put((request.opaque, refusal.code, None))

    def next(self) -> tuple[int, int, GetResult | None]:
        return self._arrived.get(timeout=60)

    @property
    def nothing_yet(self) -> bool:
        return self._arrived.empty()


@pytest.fixture
def engine(tmp_path):
    engine = start_engine(tmp_path)
    yield engine
    engine.stop()


def test_a_caller_that_speaks_no_frames_is_told_what_its_pulls_came_to(engine):
    peer, outcomes, pull = Peer(engine.broker_address), Outcomes(), engine.broker.pull
    assert peer.ask(310, send_fields("T"), b"first").code == 0
    host, port = peer.sock.getsockname()
    (conn,) = (conn for conn in engine.server.connections.values() if conn.remote_host == f"{host}:{port}")

    def ask(opaque, offset, hold_ms=0, queue_id=0):
        fields = PullFields("G", "T", queue_id, offset, 32, SUBSCRIPTION, subscription="*")

        def on_loop():
            pull._path.pull(pull._admission.admit(outcomes, conn, opaque, fields), hold_ms)

        engine.loop.call_soon(on_loop)

    def bodies(result):
        return [decode_record(engine.broker.store.log.read(*run)).body for run in result.runs]

    ask(1, 0)
    opaque, code, result = outcomes.next()
    assert (opaque, code, result.status, bodies(result)) == (1, 0, GetStatus.FOUND, [b"first"])
    ask(2, 5)
    assert outcomes.next()[:2] == (2, ResponseCode.PULL_OFFSET_MOVED)
    ask(3, 1, hold_ms=10_000)
    other = Peer(engine.broker_address)
    assert other.ask(310, send_fields("T", 1), b"elsewhere").code == 0
    assert outcomes.nothing_yet
    assert pull.long_polling.count == 1
    assert other.ask(310, send_fields("T"), b"second").code == 0
    opaque, code, result = outcomes.next()
    assert (opaque, code, bodies(result)) == (3, 0, [b"second"])
    assert peer.is_silent(0.1), "nothing was rendered for the connection"
    with pytest.raises(RefusedRequest) as refusal:
        pull._admission.admit(outcomes, conn, 4, PullFields("G", "T", 99, 0, 32, SUBSCRIPTION))
    assert refusal.value.code == ResponseCode.INVALID_PARAMETER
    for one in (peer, other):
        one.close()
