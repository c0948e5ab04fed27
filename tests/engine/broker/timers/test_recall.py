"""370: which messages a client may take back, in upstream's order of checks, and the record stored for it."""

import time
from contextlib import closing

import pytest

from appliance.engine.broker.timers.claims import RECALLS, Claim
from appliance.engine.broker.timers.recall import mark_of
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.recall_handle import encode_recall_handle
from tests.support.directories import shared_directory
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.waiting import wait_for

KEY = "7F0000016AB14E0E2F2A69208FBA0000"
TOPIC, OTHER, WHEEL = "Timed", "Other", "rmq_sys_wheel_timer"
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def engine(request):
    engine = start_engine(shared_directory(request, "engine"))
    with closing(Peer(engine.broker_address)) as peer:
        for topic in (TOPIC, OTHER):
            assert peer.ask(310, send_fields(topic), b"x").code == 0
    yield engine
    engine.stop()


@pytest.fixture
def peer(engine):
    with closing(Peer(engine.broker_address)) as found:
        yield found


def now_ms():
    return time.time_ns() // 1_000_000


def handle(out_ms, topic=TOPIC, broker="broker-a", key=KEY):
    return encode_recall_handle(topic, broker, out_ms, key)


def recall(peer, text, topic=TOPIC, **fields):
    return peer.ask(370, {"topic": topic, "recallHandle": text, "producerGroup": "P", **fields})


def marks(peer):
    answer = peer.ask(11, pull_fields(WHEEL, 0, 0))
    return records(answer.body) if answer.code == 0 else []


def test_a_mark_is_stored_and_the_unique_key_answered(engine, peer):
    before = len(marks(peer))
    out_ms = now_ms() + 3_600_000
    answer = recall(peer, handle(out_ms))
    assert (answer.code, answer.remark) == (0, None)
    assert answer.ext_fields == {"msgId": KEY, "MSG_REGION": "DefaultRegion"}
    [mark] = marks(peer)[before:]
    found = decode_properties(mark.properties)
    assert int(found.pop("BORN_TIMESTAMP")) <= now_ms()
    assert (mark.body, mark.queue_id) == (b"0", 0)
    assert found == {
        "TIMER_DEL_UNIQKEY": f"{TOPIC}+{KEY}", "UNIQ_KEY": KEY, "TIMER_DELIVER_MS": str(out_ms + 1), "PGROUP": "P",
        "TAGS": "_RECALL_TAG_", "TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": TOPIC, "REAL_QID": "0",
    }  # fmt: skip
    # No mark is left behind that could hold up delivery.
    assert engine.broker.timers.claims.claim(f"{TOPIC}+{KEY}", out_ms, "test") is Claim.YOURS
    engine.broker.timers.claims.release(f"{TOPIC}+{KEY}", out_ms, 0)


def refused(peer, answer, code, remark, before):
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.ext_fields == {"MSG_REGION": "DefaultRegion"}
    assert len(marks(peer)) == before, "a mark was stored"


def test_what_is_refused(peer):
    before = len(marks(peer))
    later = now_ms() + 3_600_000
    illegal = ResponseCode.ILLEGAL_OPERATION
    cases = [
        (recall(peer, "damaged", "NoSuchTopic"), ResponseCode.TOPIC_NOT_EXIST,
         "recall failed, the topic[NoSuchTopic] not exist"),
        (recall(peer, "damaged"), illegal, "recall handle is invalid"),
        (recall(peer, ""), illegal, "recall handle is invalid"),
        (recall(peer, handle(0, OTHER, "broker-b")), illegal, "recall failed, topic not match"),
        (recall(peer, handle(0, broker="broker-b")), illegal, "recall failed, broker service not available"),
        (recall(peer, handle(now_ms() - 5)), illegal, "recall failed, timestamp invalid"),
        (recall(peer, handle(later + 4 * DAY_MS)), illegal, "recall failed, timestamp invalid"),
        (recall(peer, handle(later), ""), ResponseCode.SYSTEM_ERROR, "the header field topic is missing"),
    ]  # fmt: skip
    for answer, code, remark in cases:
        refused(peer, answer, code, remark, before)


def test_what_delivery_has_is_not_recalled(engine, peer):
    before = len(marks(peer))
    claims, out_ms = engine.broker.timers.claims, now_ms() + 60_000
    assert claims.claim(f"{TOPIC}+{KEY}", out_ms, "test") is Claim.YOURS
    try:
        answer = recall(peer, handle(out_ms))
        refused(peer, answer, ResponseCode.ILLEGAL_OPERATION, "recall failed, the message is delivered", before)
    finally:
        claims.release(f"{TOPIC}+{KEY}", out_ms, 0)
    assert recall(peer, handle(out_ms)).code == 0


def test_the_switches(tmp_path):
    engine = start_engine(tmp_path / "data", broker={"recall_message_enable": False})
    try:
        with closing(Peer(engine.broker_address)) as peer:
            answer = recall(peer, "damaged", "NoSuchTopic")
            assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
    finally:
        engine.stop()
    options = {"broker_permission": 4, "allow_recall_when_broker_not_writeable": False}
    engine = start_engine(tmp_path / "data", broker=options)
    try:
        with closing(Peer(engine.broker_address)) as peer:
            answer = recall(peer, "damaged", "NoSuchTopic")
            reason = "recall failed, broker service not available"
            assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, reason)
    finally:
        engine.stop()
    engine = start_engine(tmp_path / "data", broker={"broker_permission": 4})
    try:
        with closing(Peer(engine.broker_address)) as peer:
            assert recall(peer, "damaged", "NoSuchTopic").code == ResponseCode.TOPIC_NOT_EXIST
    finally:
        engine.stop()


def timed(peer, body, due_ms):
    """Send a message with a time of its own; return its recall handle. None if it was due by then, and has come."""
    properties = f"UNIQ_KEY\x01{body.decode()}\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
    answer = peer.ask(310, send_fields(TOPIC, properties=properties), body)
    assert answer.code == 0
    return answer.ext_fields.get("recallHandle")


def arrived(peer):
    found = []
    while (answer := peer.ask(11, pull_fields(TOPIC, 0, len(found)))).code == 0:
        found += records(answer.body)
    return [record.body for record in found]


def test_delivery_leaves_what_somebody_claimed_and_nothing_else_and_meets_the_mark(engine, peer):
    claims, broker = engine.broker.timers.claims, engine.broker
    for seconds in range(1, 60):  # until both wait before they are due
        claimed, free, due_ms = b"claimed-%d" % seconds, b"free-%d" % seconds, now_ms() + 1000 * seconds
        key = f"{TOPIC}+{claimed.decode()}"
        assert claims.claim(key, due_ms - 1, "test") is Claim.YOURS
        if all(timed(peer, body, due_ms) for body in (claimed, free)):
            break
        claims.release(key, due_ms - 1, 0)
    wait_for(lambda: free in arrived(peer), "the other one")
    assert claims.claim(f"{TOPIC}+{free.decode()}", due_ms - 1, RECALLS) is not Claim.TAKEN
    mark = mark_of(TOPIC, claimed.decode(), due_ms - 1, now_ms())
    [stored] = broker.sending.appends.submit([mark]).result(60)
    assert stored.code == 0
    claims.release(key, due_ms - 1, stored.queue_offset + 1)
    timed(peer, b"behind", now_ms() + 100)
    wait_for(lambda: b"behind" in arrived(peer), "one that is due later")
    assert claimed not in arrived(peer)


def test_recalls_against_delivery(engine, peer):
    """Messages are recalled around their time: either the answer confirms it and they never come, or they come."""
    begin = now_ms() + 700
    handles = {b"race-%d" % number: (timed(peer, b"race-%d" % number, begin + number * 5)) for number in range(120)}
    recalled = set()
    for number, (body, text) in enumerate(handles.items()):
        wait_for(lambda due=begin + number * 5: now_ms() >= due - 3, "nearly due", every=0.0005)
        if text is not None and recall(peer, text).code == 0:
            recalled.add(body)
    wait_for(lambda: set(handles) - recalled <= set(arrived(peer)), "all that were not taken back")
    timed(peer, b"end", now_ms() + 200)
    wait_for(lambda: b"end" in arrived(peer), "the last one")
    assert recalled.isdisjoint(arrived(peer))
    print(f"{len(recalled)} of {len(handles)} taken back")
