"""Acts that counted as done because of a record that was cut off are done again; all others are not."""

import pytest

from appliance.engine.broker.timers.apache_files import (
    Checkpoint,
    Done,
    checkpoint_answer,
    checkpoint_path,
    copied_checkpoint,
    read_checkpoint,
    save_checkpoint,
)
from appliance.engine.failover.truncation import LeaderLog
from appliance.engine.fastjson import encode_pretty, loads
from appliance.engine.protocol.names import CHECK_GROUP, HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.engine.failover.test_truncation import LEADERS, Member


@pytest.fixture
def member(tmp_path):
    one = Member(tmp_path)
    (one.paths.config).mkdir()
    return one


def put(member, topic, queue_id, body, properties=b""):
    place = member.box.put(topic, queue_id, body, properties)
    member.box.tick()
    return place


def delayed(number):
    return b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02UNIQ_KEY\x01U%d\x02" % number


def delivered(number):
    return delayed(number).replace(b"DELAY\x011\x02", b"")


def write(member, name, document):
    (member.paths.config / name).write_text(encode_pretty(document))


def read(member, name):
    return loads((member.paths.config / name).read_bytes())["offsetTable"]


@pytest.mark.parametrize("copied", [delivered, delayed], ids=["as they are", "as Apache leaves them"])
def test_delayed_messages_whose_copies_were_cut_off_are_delivered_again(member, copied):
    for number in range(10):
        put(member, SCHEDULE_TOPIC, 0, b"m%d" % number, delayed(number))
        put(member, SCHEDULE_TOPIC, 1, b"n%d" % number, delayed(100 + number))
    for number in range(5):
        put(member, "T", 0, b"m%d" % number, copied(number))
    point = put(member, "T", 0, b"m5", copied(5))
    put(member, "T", 0, b"m7", copied(7))  # 6 was settled, and has no copy
    put(member, "T", 0, b"other", b"UNIQ_KEY\x01U2\x02")
    write(member, "delayOffset.json", {"offsetTable": {1: 8, 2: 3}})
    member.box.stop()
    member.cut(point)
    assert read(member, "delayOffset.json") == {"1": 5, "2": 3}


def test_delayed_messages_that_were_cut_off_are_not_passed_over(member):
    for number in range(6):
        put(member, SCHEDULE_TOPIC, 0, b"m%d" % number, delayed(number))
    point = put(member, SCHEDULE_TOPIC, 0, b"m6", delayed(6))
    put(member, "T", 0, b"m6", delivered(6))
    write(member, "delayOffset.json", {"offsetTable": {1: 7}})
    member.box.stop()
    member.cut(point)
    assert read(member, "delayOffset.json") == {"1": 6}


def test_progress_that_rests_on_nothing_that_was_cut_off_stays(member):
    for number in range(6):
        put(member, SCHEDULE_TOPIC, 0, b"m%d" % number, delayed(number))
        put(member, "T", 0, b"m%d" % number, delivered(number))
    point = put(member, "T", 0, b"another")
    write(member, "delayOffset.json", {"offsetTable": {1: 6}})
    write(member, "consumerOffset.json", {"offsetTable": {"T@G": {0: 7}}})
    save_checkpoint(member.box.disk, member.paths.root, 9_000_000, 4, 1)
    before = {path.name: path.read_bytes() for path in member.paths.config.iterdir()}
    member.box.stop()
    member.cut(point)
    assert {path.name: path.read_bytes() for path in member.paths.config.iterdir()} == before


@pytest.mark.parametrize("name", [b"ROCKETBOX_TIMER_OUT_MS", b"TIMER_OUT_MS"], ids=["as they are", "as Apache's are"])
def test_timers_go_back_to_the_earliest_whose_copy_was_cut_off(member, name):
    put(member, TIMER_TOPIC, 0, b"a", b"TIMER_OUT_MS\x014999\x02REAL_TOPIC\x01T\x02")
    point = put(member, "T", 0, b"a", name + b"\x014999\x02REAL_TOPIC\x01T\x02")
    put(member, "T", 0, b"b", name + b"\x017999\x02REAL_TOPIC\x01T\x02")
    save_checkpoint(member.box.disk, member.paths.root, 9_000_000, 4, 1)
    timers = member.paths.own / "timers"
    timers.mkdir()
    (timers / "state").write_text("it was done")
    (member.paths.root / "timerlog").mkdir()
    (member.paths.root / "timerlog" / "00000000000000000000").write_text("units")
    member.box.stop()
    member.cut(point)
    # An index that is rebuilt leaves out records due before that, by whole seconds.
    assert read_checkpoint(member.box.disk, member.paths.root) == Checkpoint(4000, 4, True)
    assert list(timers.iterdir()) == []
    assert list((member.paths.root / "timerlog").iterdir()) == []


def test_half_messages_that_were_decided_there_are_open_again(member):
    for number in range(6):
        put(member, HALF_TOPIC, 0, b"h%d" % number)
    put(member, OP_HALF_TOPIC, 0, b"0")
    point = put(member, OP_HALF_TOPIC, 0, b"4,3,")
    put(member, OP_HALF_TOPIC, 0, b"5")
    halves, ops = f"{HALF_TOPIC}@{CHECK_GROUP}", f"{OP_HALF_TOPIC}@{CHECK_GROUP}"
    write(member, "consumerOffset.json", {"offsetTable": {"T@G": {0: 7}, halves: {0: 6}, ops: {0: 3}}})
    member.box.stop()
    member.cut(point)
    assert read(member, "consumerOffset.json") == {"T@G": {"0": 7}, halves: {"0": 3}, ops: {"0": 0}}


def test_a_tail_whose_copy_somebody_deleted_does_not_keep_the_broker_from_starting(member):
    point = put(member, "T", 0, b"m")
    put(member, "T", 0, b"n")
    member.box.stop()
    member.cutter.begin(point, LeaderLog("leader", 3, LEADERS, point), "a test")
    for path in member.paths.quarantine.iterdir():
        path.unlink()
    assert member.cutter.finish()
    assert member.files.epochs == LEADERS


def test_what_a_leader_said_of_its_timers_goes_when_some_of_them_were_cut_off(member):
    point = put(member, "T", 0, b"a")
    put(member, TIMER_TOPIC, 0, b"b", b"TIMER_OUT_MS\x017999\x02REAL_TOPIC\x01T\x02")
    left = copied_checkpoint(checkpoint_answer(5000, 0, 1), Done(9_000_000, 1))
    checkpoint_path(member.paths.root).write_bytes(left)
    member.box.stop()
    member.cut(point)
    assert read_checkpoint(member.box.disk, member.paths.root) == Checkpoint(5000, 0, True)
