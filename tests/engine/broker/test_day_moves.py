"""How many messages moved in an hour and in a day, and which moves count."""

import json

import pytest

from appliance.engine.broker.day_moves import DAY_S, HOUR_S, DayMoves
from tests.support.engine import RunningEngine, pull_fields
from tests.support.waiting import wait_for


def test_all_of_the_last_hour_and_day_is_counted_and_little_that_is_older():
    moves, now = DayMoves(), 10 * DAY_S
    for second in range(0, 3 * DAY_S, 60):
        moves.add(now + second, 1)
        if second % 7 == 0:
            hour, day = moves.last_hour(now + second), moves.last_day(now + second)
            for found, span, piece in ((hour, HOUR_S, 600), (day, DAY_S, HOUR_S)):
                assert span <= found.seconds < span + piece
                assert found.moved == min(second // 60, found.seconds // 60) + 1
    assert len(moves._tens) + len(moves._hours) <= 2 * (8 + 26)
    assert moves.last_hour(now + 4 * DAY_S).moved == 0
    assert moves.last_day(now + 3 * DAY_S + 6 * HOUR_S).moved > 0 == moves.last_day(now + 5 * DAY_S).moved


@pytest.fixture
def running(tmp_path):
    found = RunningEngine(tmp_path)
    yield found
    found.stop()


def asked(running, name, key):
    answer = running._ours().ask(315, {"statsName": name, "statsKey": key})
    assert answer.code == 0, answer
    return {span: row["sum"] for span, row in json.loads(answer.body).items()}


def test_315_has_hours_and_days(running):
    peer = running._ours()
    running.put("T", *[b"x"] * 5)
    running.sample()
    assert asked(running, "TOPIC_PUT_NUMS", "T") == {"statsMinute": 5, "statsHour": 5, "statsDay": 5}
    for odd in ("T@", "T@G", "@"):
        assert peer.ask(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": odd}).code == 1, "no topic is called that"
    peer.ask(200, {}, b'{"groupName":"G"}')
    for offset in (0, 3):
        running.commit("G", "T", 0, offset)
        running.sample()
    assert asked(running, "GROUP_GET_NUMS", "T@G") == {"statsMinute": 3, "statsHour": 3, "statsDay": 3}
    assert peer.ask(36, {"offset": "0", "group": "G", "delayLevel": "1", "originTopic": "T"}).code == 0
    assert asked(running, "SNDBCK_PUT_NUMS", "T@G") == {"statsMinute": 1, "statsHour": 1, "statsDay": 1}


def test_what_an_administrator_skips_is_not_consumed(running):
    peer = running._ours()
    running.put("T", *[b"x"] * 9)
    peer.ask(200, {}, b'{"groupName":"G"}')
    for offset in (0, 2):
        running.commit("G", "T", 0, offset)
        running.sample()
    skip = {"topic": "T", "group": "G", "timestamp": -1, "isForce": "true"}
    assert peer.ask(222, skip).code == 0
    running.sample()
    assert running.engine.broker.offsets.get("G", "T", 0) == 9
    assert asked(running, "GROUP_GET_NUMS", "T@G") == {"statsMinute": 2, "statsHour": 2, "statsDay": 2}


def test_what_tools_look_at_is_not_consumed(running):
    running.put("T", b"1", b"2")
    pull = running.engine.broker.pull
    for _ in range(3):  # the compiled twin has learnt the pull by then
        assert running._ours().ask(11, pull_fields("T", 0, 0, consumerGroup="TOOLS_CONSUMER")).code == 0
    assert (pull.message_count, pull.found_count) == (0, 3)
    assert running._ours().ask(11, pull_fields("T", 0, 0, consumerGroup="G")).code == 0
    wait_for(lambda: pull.message_count == 2, "it counts")
