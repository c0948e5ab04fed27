"""Sends with a time of their own: which ones Apache takes, where they wait, when they come, and which are refused."""

import pytest

from appliance.engine.protocol.properties import decode_properties
from appliance.engine.store.dispatch import tag_code
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine, pull_fields, queue_entry, records, send_fields, start_engine
from tests.support.figures import SkippingClock
from tests.support.waiting import wait_for

TIMERS = "rmq_sys_wheel_timer"
ILLEGAL = (
    "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; "
    "or if set del msg, the delay time should be bigger than the current time"
)


#: Times are so far off that nothing is due before the test skips them, and less than a connection may be idle.
FAR_MS = 60_000


@pytest.fixture(scope="module")
def clock():
    return SkippingClock()


@pytest.fixture(scope="module")
def engine(request, clock):
    engine = start_engine(shared_directory(request, "engine"), clock=clock)
    yield engine
    engine.stop()


@pytest.fixture
def topic(request, peer):
    topic = "T_" + request.node.name.encode().hex()[-100:]
    assert peer.ask(310, send_fields(topic, queue_id=1), b"first").code == 0
    return topic


def send(peer, topic, properties, body=b"x", **fields):
    return peer.ask(310, send_fields(topic, properties=properties, **fields), body)


def stored(engine, answer):
    return engine.broker.store.records.get(int(answer.ext_fields["msgId"][16:], 16)).record


def arrived(peer, topic, queue_id=0):
    answer = peer.ask(11, pull_fields(topic, queue_id, 0))
    return records(answer.body) if answer.code == 0 else []


@pytest.mark.parametrize(
    ("properties", "delay_ms"),
    [
        ("TIMER_DELAY_MS\x0160300\x02", 60_300),
        ("TIMER_DELAY_SEC\x0161\x02TIMER_DELAY_MS\x01200000\x02", 61_000),
        ("TIMER_DELAY_MS\x0160100\x02TIMER_DELIVER_MS\x011\x02", 60_100),
    ],
)
def test_it_waits_and_comes_when_it_is_due(engine, clock, peer, topic, properties, delay_ms):
    before = clock.wall_ms()
    answer = send(peer, topic, properties + "TAGS\x01A\x02UNIQ_KEY\x017F01\x02", b"body")
    after = clock.wall_ms()
    assert (answer.code, answer.ext_fields["queueId"]) == (0, "0")
    waiting = stored(engine, answer)
    assert (waiting.topic, waiting.queue_id) == (TIMERS, 0)
    found = decode_properties(waiting.properties)
    assert (found["REAL_TOPIC"], found["REAL_QID"]) == (topic, "0")
    due = int(found["TIMER_OUT_MS"]) + 1
    assert before + delay_ms <= due <= after + delay_ms + 1
    assert arrived(peer, topic) == []
    clock.skipped_ms += delay_ms
    wait_for(lambda: arrived(peer, topic), "what is due")
    [copy] = arrived(peer, topic)
    assert copy.body == b"body"
    assert due <= copy.store_time_ms <= clock.wall_ms()
    copied = decode_properties(copy.properties)
    assert int(copied.pop("TIMER_DEQUEUE_MS")) >= due
    assert int(copied.pop("TIMER_ENQUEUE_MS")) == waiting.store_time_ms
    assert copied.pop("ROCKETBOX_TIMER_OUT_MS") == found["TIMER_OUT_MS"]
    asked = {"TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS"}
    assert copied == {name: value for name, value in found.items() if name not in asked}
    assert queue_entry(engine, topic, 0, 0)[2] == tag_code("A")


@pytest.mark.parametrize(
    "asks", ["DELAY\x011", "TIMER_DELAY_SEC\x011", "TIMER_DELAY_MS\x01300", "TIMER_DELIVER_MS\x01{}"]
)
def test_a_consumer_passes_on_what_it_got_without_a_delay_or_with_one_of_its_own(engine, clock, peer, topic, asks):
    asks = asks.format(clock.wall_ms() + FAR_MS)
    assert send(peer, topic, f"{asks}\x02UNIQ_KEY\x017F01\x02", b"body").code == 0
    clock.skipped_ms += FAR_MS
    [copy] = wait_for(lambda: arrived(peer, topic), "what is due")
    answer = send(peer, topic, copy.properties, copy.body)
    passed_on = stored(engine, answer)
    assert passed_on.topic == topic, "passed on, it waits once more"
    assert "TIMER_OUT_MS" not in passed_on.properties, "timers would go back by it when the log is cut"
    name, _, value = asks.partition("\x01")
    later = str(clock.wall_ms() + FAR_MS) if name == "TIMER_DELIVER_MS" else value
    waiting = stored(engine, send(peer, topic, f"{copy.properties}\x02{name}\x01{later}\x02", copy.body))
    assert waiting.topic == ("SCHEDULE_TOPIC_XXXX" if name == "DELAY" else TIMERS), "a delay of its own does not count"


def test_a_consumer_sends_back_what_had_a_time(peer, topic):
    assert send(peer, topic, "TIMER_DELAY_MS\x01300\x02UNIQ_KEY\x017F02\x02").code == 0
    [copy] = wait_for(lambda: arrived(peer, topic), "what is due")
    assert "ROCKETBOX_TIMER_OUT_MS" in copy.properties
    fields = {"offset": copy.physical_offset, "group": topic, "delayLevel": -1, "originTopic": topic}
    assert peer.ask(36, fields).code == 0
    [dead] = arrived(peer, f"%DLQ%{topic}")
    assert "TIMER_OUT_MS" not in dead.properties


def test_they_come_by_due_time_and_not_as_they_were_sent(clock, peer, topic):
    at = clock.wall_ms() + FAR_MS
    for n in (3, 1, 2, 0):
        assert send(peer, topic, f"TIMER_DELIVER_MS\x01{at + n * 50}\x02", b"%d" % n).code == 0
    clock.skipped_ms += FAR_MS
    wait_for(lambda: len(arrived(peer, topic)) == 4, "what is due")
    assert [record.body for record in arrived(peer, topic)] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("deliver", ["1", "-5", "0"])
def test_what_is_due_already_goes_to_its_topic_at_once(engine, peer, topic, deliver):
    answer = send(peer, topic, f"TIMER_DELIVER_MS\x01{deliver}\x02")
    assert answer.code == 0
    assert stored(engine, answer).topic == topic


@pytest.mark.parametrize(
    "properties",
    [
        "TIMER_DELAY_SEC\x01259201\x02",
        "TIMER_DELAY_MS\x01259200001\x02",
        "TIMER_DELAY_MS\x01soon\x02",
        "TIMER_DELAY_SEC\x0199999999999999999999\x02",
        "TIMER_DELIVER_MS\x01" + "9" * 19 + "\x02",
        "TIMER_DELIVER_MS\x011\x02TIMER_DEL_UNIQKEY\x01%(topic)s+K\x02",
    ],
)
def test_what_asks_too_much_is_refused_as_recorded(peer, topic, properties):
    answer = send(peer, topic, properties.replace("%(topic)s", topic))
    assert (answer.code, answer.remark) == (13, ILLEGAL)
    assert arrived(peer, topic) == []


def test_a_level_counts_more_than_a_time(engine, peer, topic):
    answer = send(peer, topic, "TIMER_DELAY_SEC\x01100\x02DELAY\x013\x02")
    record = stored(engine, answer)
    assert record.topic == "SCHEDULE_TOPIC_XXXX"
    assert "TIMER_" not in record.properties


def test_nobody_sends_to_the_timer_topic_itself(peer):
    assert send(peer, TIMERS, "TIMER_OUT_MS\x011\x02REAL_TOPIC\x01A\x02REAL_QID\x010\x02").code == 16


def test_a_mark_cancels_what_has_its_key_and_its_time(engine, clock, peer, topic):
    at = clock.wall_ms() + FAR_MS
    for key in ("A", "B"):
        assert send(peer, topic, f"TIMER_DELIVER_MS\x01{at}\x02UNIQ_KEY\x01{key}\x02", key.encode()).code == 0
    assert send(peer, topic, f"TIMER_DELIVER_MS\x01{at + 1}\x02UNIQ_KEY\x01A\x02", b"later").code == 0
    assert send(peer, topic, f"TIMER_DELIVER_MS\x01{at}\x02TIMER_DEL_UNIQKEY\x01{topic}+A\x02").code == 0
    clock.skipped_ms += FAR_MS
    wait_for(lambda: len(arrived(peer, topic)) >= 2, "what is due")
    wait_for(lambda: engine.broker.timers.deliver.pending == 0, "what is due")
    assert [record.body for record in arrived(peer, topic)] == [b"B", b"later"]


def test_a_mark_for_a_message_of_another_topic_is_refused(engine, clock, peer, topic):
    """Who may send to one topic takes nothing of others back."""
    at = clock.wall_ms() + FAR_MS
    assert send(peer, topic, f"TIMER_DELIVER_MS\x01{at}\x02UNIQ_KEY\x01A\x02", b"A").code == 0
    mark = send(peer, topic + "2", f"TIMER_DELIVER_MS\x01{at}\x02TIMER_DEL_UNIQKEY\x01{topic}+A\x02")
    assert (mark.code, mark.remark) == (13, "the message is illegal: TIMER_DEL_UNIQKEY is not of its own topic")
    clock.skipped_ms += FAR_MS
    wait_for(lambda: [record.body for record in arrived(peer, topic)] == [b"A"], "what is due")


def test_they_outlive_a_stop_and_come_late_when_nobody_was_there(tmp_path):
    clock = SkippingClock()
    running = RunningEngine(tmp_path, clock=clock)
    running.put("Orders", b"first", queue=1)
    at = clock.wall_ms() + 3_600_000  # none of them is due before the stop
    for n in range(300):
        running.put("Orders", b"%d" % n, properties=f"TIMER_DELIVER_MS\x01{at + n % 3 * 1500}\x02")
    running.hang_up()
    running.engine.stop()
    clock.skipped_ms += 3_600_000
    running = RunningEngine(tmp_path, clock=clock)
    peer = running.peer()
    wait_for(lambda: running.engine.broker.store.max_offset("Orders", 0) == 300, "what is due")
    bodies = []
    while len(bodies) < 300:
        bodies += [int(r.body) for r in records(peer.ask(11, pull_fields("Orders", 0, len(bodies))).body)]
    assert sorted(bodies, key=lambda n: (n % 3, n)) == bodies
    running.hang_up()
    running.engine.stop()
