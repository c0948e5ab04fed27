"""A stop while thousands of messages are due at once and a replay runs; and what leaves the schedule topic alone."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.test_replay_killed import end_of
from tests.support.engine import read_queue, send_fields
from tests.support.engine_process import EngineProcess, Refused
from tests.support.waiting import wait_for

TOPIC, COUNT, LETTERS = "Later", 5_000, 5_000
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def test_a_stop_among_deliveries_and_a_replay_loses_and_repeats_nothing(tmp_path: Path) -> None:
    engine = EngineProcess(tmp_path / "data", store={"message_delay_level": "8s"})
    with engine:
        engine.do("letters", group="G", count=LETTERS)
        peer = engine.peer()
        for begin in range(0, COUNT, 100):
            for number in range(begin, begin + 100):
                peer.send(310, send_fields(TOPIC, 0, f"DELAY\x011\x02UNIQ_KEY\x01{number}\x02"), b"%d" % number)
            assert {peer.receive().code for _ in range(100)} == {0}
        peer.close()
        job = engine.do("replay_commands.start", group="G", rate=1000)["job"]["id"]
        wait_for(lambda: end_of(engine, TOPIC) > 100, "they are due")
        second = EngineProcess(tmp_path / "data")
        with pytest.raises(Refused):
            second.start()
        assert engine.stop() == 0
        engine.start()
        wait_for(lambda: end_of(engine, TOPIC) >= COUNT, "all come")
        wait_for(lambda: engine.do("replays.job", job=job)["state"] == "done", "it ends")
        time.sleep(1.0)
        assert Counter(int(record.body) for record in read_queue(engine.peer(), TOPIC)) == Counter(range(COUNT))
        assert Counter(record.body for record in read_queue(engine.peer(), "%RETRY%G")) == Counter(
            b"body %d" % number for number in range(LETTERS)
        )


def test_administrators_and_clients_leave_the_schedule_topic_as_it_is(tmp_path: Path) -> None:
    with EngineProcess(tmp_path / "data", store={"message_delay_level": "3s"}) as engine:
        peer = engine.peer()
        assert peer.ask(310, send_fields(TOPIC, 0, "DELAY\x011\x02"), b"waits").code == 0
        change = {
            "topic": SCHEDULE, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 0,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        assert peer.ask(17, change).code != 0
        assert peer.ask(215, {"topic": SCHEDULE}).code != 0
        assert peer.ask(310, send_fields(SCHEDULE, 0), b"direct").code != 0
        [record] = read_queue(engine.peer(), SCHEDULE)
        assert record.body == b"waits"
        fields = {"group": "G", "offset": record.physical_offset, "delayLevel": 0, "originTopic": SCHEDULE}
        assert peer.ask(36, fields | {"originMsgId": "x", "unitMode": "false"}).code == 1
        assert peer.ask(200, body=b'{"groupName":"G"}').code == 0
        peer.ask(222, {"group": "G", "topic": SCHEDULE, "queueId": 0, "offset": 1, "timestamp": -1, "isForce": "true"})
        wait_for(lambda: end_of(engine, TOPIC), "it comes")
        assert [record.body for record in read_queue(engine.peer(), TOPIC)] == [b"waits"]
