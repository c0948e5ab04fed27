"""Sends with a delay level: which ones Apache takes, where they wait, and which values are no level."""

import struct

import pytest

from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.command import decode_frame
from appliance.engine.protocol.properties import decode_properties
from tests.support.directories import shared_directory
from tests.support.engine import Peer, pull_fields, queue_entry, records, send_fields, start_engine
from tests.support.golden import GOLDEN, VERSIONS, frames
from tests.support.waiting import wait_for

UNIQ = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture(scope="module")
def engine(request):
    engine = start_engine(shared_directory(request, "engine"))
    yield engine
    engine.stop()


@pytest.fixture
def topic(request):
    return "T_" + request.node.name.encode().hex()[-100:]


def stored(engine, answer):
    """The record that a send's answer names."""
    return engine.broker.store.records.get(int(answer.ext_fields["msgId"][16:], 16)).record


def entry(engine, record):
    return queue_entry(engine, record.topic, record.queue_id, record.queue_offset)


def plain(peer, topic, queue_id=0):
    answer = peer.ask(11, pull_fields(topic, queue_id, 0))
    return records(answer.body) if answer.code == 0 else []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_delayed_send_is_answered_and_stored_as_recorded(engine, peer, version):
    """Level 1, and level 99, which is the highest one there is. The answer names the queue that was asked for, and the
    offset in the queue of the level."""
    asked = {}
    found = []
    for line, frame in frames(GOLDEN / "wire" / version / "producer.jsonl.gz"):
        command = decode_frame(frame)
        if line["dir"] == "request" and "DELAY\x01" in command.ext_fields.get("i", ""):
            asked[line["conn"], line["opaque"]] = command
        elif line["dir"] == "response" and (line["conn"], line["opaque"]) in asked:
            found.append((asked.pop((line["conn"], line["opaque"])), command))
    assert len(found) == 2
    for (request, theirs), level in zip(found, (1, 18), strict=True):
        peer.ask(310, send_fields(request.ext_fields["b"]), b"so that the topic is there")
        ours = peer.ask(request.code, request.ext_fields, request.body)
        assert (ours.code, ours.remark) == (theirs.code, theirs.remark)
        assert ours.ext_fields["queueId"] == theirs.ext_fields["queueId"] == request.ext_fields["e"]
        record = stored(engine, ours)
        assert (record.topic, record.queue_id) == (SCHEDULE, level - 1)
        assert str(record.queue_offset) == ours.ext_fields["queueOffset"]
        properties = decode_properties(record.properties)
        own = decode_properties(request.ext_fields["i"])
        assert {name: properties[name] for name in own} == own | {"DELAY": str(level)}
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == (request.ext_fields["b"], request.ext_fields["e"])
        due = record.store_time_ms + (1000 if level == 1 else 2 * 3600 * 1000)
        assert entry(engine, record) == (record.physical_offset, record.size, due)


@pytest.mark.parametrize(
    ("text", "level"), [("3", 3), ("+3", 3), ("003", 3), ("18", 18), ("19", 18), ("2147483647", 18)]
)
def test_a_level_is_what_java_reads(engine, peer, topic, text, level):
    answer = peer.ask(310, send_fields(topic, 2, UNIQ + f"DELAY\x01{text}\x02"), b"x")
    assert (answer.code, answer.ext_fields["queueId"]) == (0, "2")
    record = stored(engine, answer)
    assert (record.topic, record.queue_id) == (SCHEDULE, level - 1)
    assert decode_properties(record.properties)["DELAY"] == str(level)
    assert plain(peer, topic, 2) == []


@pytest.mark.parametrize("text", ["0", "-1", "-2147483648", "-0", "+0", "00"])
def test_no_level_is_no_delay(engine, peer, topic, text):
    answer = peer.ask(310, send_fields(topic, 0, UNIQ + f"DELAY\x01{text}\x02"), b"x")
    assert answer.code == 0
    (record,) = plain(peer, topic)
    assert decode_properties(record.properties)["DELAY"] == text
    assert "REAL_TOPIC" not in decode_properties(record.properties)


@pytest.mark.parametrize(
    "text", ["soon", "3.5", " 3", "3 ", "1_0", "0x3", "2147483648", "-2147483649", "٣", "+", "--1"]
)
def test_what_is_no_number_is_refused(engine, peer, topic, text):
    answer = peer.ask(310, send_fields(topic, 0, UNIQ + f"DELAY\x01{text}\x02"), b"x")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "is no number" in answer.remark
    # The log may grow by messages of other tests, which are delivered meanwhile. This one would lie before the next.
    assert peer.ask(310, send_fields(topic, 0, UNIQ), b"y").code == 0
    log = engine.broker.store.log
    assert log.read(log.min_offset, log.written - log.min_offset).count(topic.encode()) == 1


def member(body, properties=""):
    raw = properties.encode()
    return (
        struct.pack(">iiiii", 22 + len(body) + len(raw), 0, 0, 0, len(body)) + body + struct.pack(">h", len(raw)) + raw
    )


def test_a_batch_has_no_level(engine, peer, topic):
    batch = member(b"a") + member(b"b")
    for properties, body in (
        (UNIQ + "DELAY\x013\x02", batch),
        ("", member(b"a") + member(b"b", "DELAY\x013\x02")),
    ):
        assert peer.ask(320, send_fields(topic, 0, properties, m="true"), body).code == ResponseCode.MESSAGE_ILLEGAL
    assert peer.ask(320, send_fields(topic, 0, UNIQ + "DELAY\x010\x02", m="true"), batch).code == 0
    assert [record.body for record in plain(peer, topic)] == [b"a", b"b"]
    # Nothing lies before these two. The log may grow by messages of other tests, which are delivered meanwhile.
    log = engine.broker.store.log
    assert log.read(log.min_offset, log.written - log.min_offset).count(topic.encode()) == 2


def test_a_level_wins_over_a_timer(engine, peer, topic):
    """As in 5.3.3, which drops the timer's properties."""
    timer = "TIMER_DELAY_SEC\x015\x02TIMER_DELIVER_MS\x011\x02"
    answer = peer.ask(310, send_fields(topic, 0, UNIQ + timer + "DELAY\x013\x02"), b"x")
    assert answer.code == 0
    record = stored(engine, answer)
    assert (record.topic, record.queue_id) == (SCHEDULE, 2)
    assert "TIMER_" not in record.properties


def test_a_one_way_send_waits_like_any_other(engine, peer, topic):
    queue = engine.broker.store.queues.get_or_create(SCHEDULE, 16)
    before = queue.max_offset
    peer.send(310, send_fields(topic, 0, UNIQ + "DELAY\x0117\x02"), b"x", flag=2)
    wait_for(lambda: queue.max_offset == before + 1, "it is stored")
    assert plain(peer, topic) == []


def test_a_send_that_does_not_wait_for_the_disk(engine, peer, topic):
    answer = peer.ask(310, send_fields(topic, 0, UNIQ + "DELAY\x0117\x02WAIT\x01false\x02"), b"x")
    assert stored(engine, answer).queue_id == 16


@pytest.mark.parametrize("levels", ["2s", "1s 5s 10s", "1d 2h 3m 4s 0s", " 7s   8s "])
def test_any_list_of_levels_will_do(tmp_path, levels):
    engine = start_engine(tmp_path, store={"message_delay_level": levels})
    peer = Peer(engine.broker_address)
    delays = [int(word[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[word[-1]] * 1000 for word in levels.split()]
    for level, delay in [*enumerate(delays, 1), (len(delays) + 1, delays[-1])]:
        answer = peer.ask(310, send_fields("T", 0, UNIQ + f"DELAY\x01{level}\x02"), b"x")
        record = stored(engine, answer)
        assert record.queue_id == min(level, len(delays)) - 1
        assert entry(engine, record)[2] == record.store_time_ms + delay
    peer.close()
    engine.stop()


def test_more_levels_than_the_schedule_topic_had_queues(tmp_path):
    engine = start_engine(tmp_path, store={"message_delay_level": " ".join(["1h"] * 19 + ["0s"])})
    peer = Peer(engine.broker_address)
    assert peer.ask(310, send_fields("T", 0, UNIQ + "DELAY\x0120\x02"), b"x").code == 0
    wait_for(lambda: plain(peer, "T"), "it is due")
    peer.close()
    engine.stop()
