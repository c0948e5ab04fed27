"""SIGKILL between a send-back and the retry: no acknowledged one is lost, whether it waits or was just delivered."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from appliance.engine.protocol.properties import decode_properties
from tests.support.engine import Peer, read_queue, send_fields
from tests.support.server import Server
from tests.support.waiting import wait_for

GROUP, TOPIC = "Billing", "Orders"
ROUNDS, EACH = 2, 80


def saved(data: Path) -> int:
    """Return how many entries of the first retry's level are delivered for good."""
    found = re.search(r'"?\b3"?:\s*(\d+)', (data / "store/config/delayOffset.json").read_text())
    return int(found[1]) if found else 0


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_kill_between_send_backs_and_their_retries(tmp_path: Path, flush: str) -> None:
    settings = tmp_path / "settings.toml"
    # Level 3 is the first retry's.
    settings.write_text('[store]\nmessageDelayLevel = "1s 1s 1s 1s"\n')
    acknowledged: dict[str, int] = {}
    with Server(tmp_path / "data", "-c", str(settings), "--flush", flush) as server:
        for number in range(ROUNDS):
            peer = Peer(server.broker)
            places = []
            for n in range(EACH):
                body = f"{number}.{n}"
                answer = peer.ask(310, send_fields(TOPIC, 0, f"UNIQ_KEY\x01{body}\x02"), body.encode())
                assert answer.code == 0
                places.append((body, answer.ext_fields["msgId"]))
            for record in read_queue(Peer(server.broker), TOPIC):
                body = record.body.decode()
                if not body.startswith(f"{number}."):
                    continue
                fields = {
                    "group": GROUP, "offset": record.physical_offset, "delayLevel": 0, "originMsgId": body,
                    "originTopic": TOPIC, "unitMode": "false", "maxReconsumeTimes": 16,
                }  # fmt: skip
                # The last ones of a round are under way when the process dies.
                if body == f"{number}.{EACH - 1}":
                    peer.send(36, fields)
                    break
                assert peer.ask(36, fields).code == 0
                acknowledged[body] = number
                time.sleep(0.01)
            if number:
                # From here on no kill repeats what the earlier rounds left.
                wait_for(
                    lambda done=number * EACH: saved(tmp_path / "data") >= done,
                    "the progress is saved",
                    not_yet=(FileNotFoundError,),
                )
            server.kill()
            peer.close()
            server.start()
        retry = f"%RETRY%{GROUP}"
        wait_for(
            lambda: acknowledged.keys() <= {record.body.decode() for record in read_queue(Peer(server.broker), retry)},
            "all that was acknowledged comes",
        )
        found = read_queue(Peer(server.broker), retry)
    times: dict[str, int] = {}
    for record in found:
        body = record.body.decode()
        times[body] = times.get(body, 0) + 1
        properties = decode_properties(record.properties)
        assert (properties["RETRY_TOPIC"], record.reconsume_times) == (TOPIC, 1)
    print(f"{flush}: {len(acknowledged)} acknowledged, {len(found) - len(times)} came twice")
    # Saved deliveries are never repeated: each message has one copy, and one more for the kill of its round.
    assert max(times.values()) <= 2
    assert len(times) <= len(acknowledged) + ROUNDS
