"""SIGKILL while delayed messages come: none is lost, and at most the last second of deliveries is repeated."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.crash.deliveries import TOPIC, all_of, delivered, judge, judge_a_stop
from tests.support.engine import Peer, send_fields
from tests.support.server import Server

COUNT, SECONDS = 900, 3.0


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_kill_while_delayed_messages_come(tmp_path: Path, flush: str) -> None:
    with Server(tmp_path / "data", "--flush", flush) as server:
        peer = Peer(server.broker)
        begin = time.monotonic()
        for number in range(COUNT):
            fields = send_fields(TOPIC, 0, f"DELAY\x011\x02UNIQ_KEY\x01{number}\x02")
            assert peer.ask(310, fields, b"%d" % number).code == 0
            time.sleep(max(0.0, begin + number * SECONDS / COUNT - time.monotonic()))
        peer.close()
        server.kill()
        server.start()
        at_start = delivered(server)
        found = all_of(server, COUNT)
    repeated = judge(found, [b"%d" % number for number in range(COUNT)])
    print(f"{flush}: {repeated} of {len(at_start)} repeated")


def test_a_stop_repeats_nothing_and_waits_for_no_due_time(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--flush", "async") as server:
        peer = Peer(server.broker)
        for number in range(200):
            assert peer.ask(310, send_fields(TOPIC, 0, "DELAY\x011\x02"), b"%d" % number).code == 0
        assert peer.ask(310, send_fields(TOPIC, 0, "DELAY\x0118\x02"), b"in two hours").code == 0
        peer.close()
        judge_a_stop(server, 200)
