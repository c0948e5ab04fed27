"""SIGKILL while messages with times of their own come: none is lost or early, and little is repeated; a start with many
that wait serves at once, also when the index has to be made again."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from appliance.engine.protocol.properties import TIMER_WAS_OUT_MS, find_property
from tests.crash.deliveries import TOPIC, all_of, delivered, judge, judge_a_stop, wait_for_some
from tests.support.engine import Peer, send_fields
from tests.support.server import Server
from tests.support.waiting import wait_for

COUNT = 600


def in_order(count: int, span_ms: int) -> list[bytes]:
    """Return the bodies of `send` in the order of delivery: by due time, within a millisecond as they were sent."""
    return [b"%d" % number for number in sorted(range(count), key=lambda n: (n * span_ms // count, -n))]


def send(broker: str, count: int, begin_ms: int, span_ms: int) -> None:
    """Messages whose times are spread over `span_ms`, those sent last due first."""
    peer = Peer(broker)
    try:
        for number in reversed(range(count)):
            due = begin_ms + number * span_ms // count
            text = f"TIMER_DELIVER_MS\x01{due}\x02UNIQ_KEY\x01{number}\x02"
            peer.send(310, send_fields(TOPIC, 0, text), b"%d" % number)
        # All in one go: on a busy machine the first ones would be due while the last are sent.
        assert {peer.receive().code for _ in range(count)} == {0}
    finally:
        peer.close()


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_kill_while_they_come(tmp_path: Path, flush: str) -> None:
    with Server(tmp_path / "data", "--flush", flush) as server:
        begin_ms = int(time.time() * 1000) + 6000
        send(server.broker, COUNT, begin_ms, 3000)
        wait_for_some(server, COUNT // 3)
        server.kill()
        server.start()
        found = all_of(server, COUNT)
    judge(found, in_order(COUNT, 3000))
    assert all(r.store_time_ms > int(find_property(r.properties, TIMER_WAS_OUT_MS) or "") for r in found), "none early"


def test_a_stop_repeats_nothing(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--flush", "async") as server:
        send(server.broker, 200, int(time.time() * 1000) + 1500, 1500)
        judge_a_stop(server, 200)


def test_an_index_that_is_gone_delays_no_send(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--flush", "async") as server:
        begin_ms = int(time.time() * 1000) + 12_000
        send(server.broker, 2000, begin_ms, 500)
        server.kill()
        shutil.rmtree(tmp_path / "data" / "rocketbox" / "timers")
        server.start()
        peer = Peer(server.broker)
        assert peer.ask(310, send_fields("Other"), b"x").code == 0
        peer.close()
        wait_for(lambda: len(delivered(server)) == 2000, "all are delivered")
        assert [record.body for record in delivered(server)] == in_order(2000, 500)
