"""SIGKILL while a large replay runs: no dead letter is sent twice, none is forgotten, and the results add up."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from appliance.engine.broker.replay.provenance import REPLAY_SEQ
from appliance.engine.protocol.properties import find_property
from tests.support.engine import read_queue
from tests.support.engine_process import EngineProcess
from tests.support.waiting import wait_for

#: At this rate it is not done before the last kill.
COUNT, KILLS, RATE = 20_000, 5, 3_000
RETRY = "%RETRY%G"


def end_of(engine: EngineProcess, topic: str) -> int:
    peer = engine.peer()
    try:
        return int(peer.ask(30, {"topic": topic, "queueId": 0}).ext_fields["offset"])
    finally:
        peer.close()


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", pytest.param("ASYNC_FLUSH", marks=pytest.mark.nightly)])
def test_a_large_job_killed_again_and_again(tmp_path: Path, flush: str) -> None:
    chance = random.Random(7)
    engine = EngineProcess(tmp_path / "data", store={"flush_disk_type": flush})
    with engine:
        engine.do("letters", group="G", count=COUNT)
        job = engine.do("replay_commands.start", group="G", rate=RATE)["job"]["id"]
        sent = 0
        for kill in range(KILLS):
            # Some of it was done in this life, and it is killed at any moment of what follows.
            wait_for(lambda least=sent: end_of(engine, RETRY) > least, "it goes on")
            time.sleep(chance.uniform(0.0, 0.5))
            sent = end_of(engine, RETRY)
            engine.kill()
            if kill % 2:  # and a start that looks for what is stored
                engine.start()
                time.sleep(chance.uniform(0.0, 0.1))
                engine.kill()
            engine.start()
        wait_for(lambda: engine.do("replays.job", job=job)["state"] not in ("running", "paused"), "it ends")
        view = engine.do("replays.job", job=job)
        found = read_queue(engine.peer(), RETRY)
    numbers = Counter(int(find_property(record.properties, REPLAY_SEQ) or -1) for record in found)
    print(f"{flush}: before the last life {sent} of {COUNT}")
    assert (view["state"], view["replayed"], view["total"]) == ("done", COUNT, COUNT)
    assert 0 < sent < COUNT, "the kills were too late, or too early, to tell anything"
    assert numbers == Counter(range(COUNT))
    assert {record.body for record in found} == {b"body %d" % number for number in range(COUNT)}
