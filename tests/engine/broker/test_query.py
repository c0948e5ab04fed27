"""12 and 33 through a whole engine: Apache's recorded answers, keys, hash collisions, offsets without a message."""

import time

import pytest

from appliance.engine.broker.processors.query import QueryMessageProcessor
from appliance.engine.errors import RefusedRequest
from appliance.engine.protocol.command import decode_frame
from appliance.engine.protocol.message_id import decode_offset_id
from tests.support.engine import Peer, records, send_fields, start_engine
from tests.support.golden import GOLDEN, VERSIONS, frames
from tests.support.waiting import wait_for

from .test_recorded_tables import conversation

FOREVER = (1 << 63) - 1


@pytest.fixture
def engine(tmp_path):
    engine = start_engine(tmp_path, broker={"auto_create_topic_enable": True})
    yield engine
    engine.stop()


def query(peer, topic, key, limit=32, begin=0, end=FOREVER, unique=False):
    ext = {"topic": topic, "key": key, "maxNum": limit, "beginTimestamp": begin, "endTimestamp": end}
    return peer.ask(12, ext | {"_UNIQUE_KEY_QUERY": "true" if unique else "false"})


def send(peer, topic, body, keys="", unique="", queue_id=0):
    text = (f"KEYS\x01{keys}\x02" if keys else "") + (f"UNIQ_KEY\x01{unique}\x02" if unique else "")
    answer = peer.ask(310, send_fields(topic, queue_id, properties=text), body)
    assert answer.code == 0
    return decode_offset_id(answer.ext_fields["msgId"])[2]


def bodies(answer):
    return [record.body for record in records(answer.body)]


def test_a_range_that_reaches_to_now_has_what_was_stored_while_the_clock_was_ahead(engine, peer):
    now = int(time.time() * 1000)
    send(peer, "Ahead", b"before", keys="k")
    engine.broker.store.store_ms = now + 86_400_000  # and it was corrected
    send(peer, "Ahead", b"since", keys="k")
    assert bodies(query(peer, "Ahead", "k", begin=now - 3_600_000, end=now + 10_000)) == [b"before", b"since"]
    assert bodies(query(peer, "Ahead", "k", begin=now + 43_200_000)) == [b"since"]
    assert query(peer, "Ahead", "k", begin=now - 7_200_000, end=now - 3_600_000).code != 0
    for ms in (0, 100):
        assert peer.ask(29, {"topic": "Ahead", "queueId": 0, "timestamp": now + 5000 + ms}).ext_fields["offset"] == "2"


@pytest.mark.parametrize("unique", [True, False])
def test_what_is_cached_is_answered_without_the_pool(tmp_path, monkeypatch, unique):
    def in_the_pool(processor, request, conn):
        raise RefusedRequest(1, "in the pool")

    monkeypatch.setattr(QueryMessageProcessor, "handle_query", in_the_pool)
    engine = start_engine(tmp_path, broker={"auto_create_topic_enable": True})
    peer = Peer(engine.broker_address)
    try:
        send(peer, "Cached", b"x", keys="word", unique="7F01")
        # Until the thread has indexed it, the pool would have to.
        answer = wait_for(
            lambda: (found := query(peer, "Cached", "7F01", unique=unique)).code == 0 and found, "it is indexed"
        )
        assert bodies(answer) == [b"x"]
        assert query(peer, "Cached", "nobody's", unique=unique).remark == "in the pool"
    finally:
        peer.close()
        engine.stop()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_recorded_conversation_is_answered_alike(peer, version):
    """Physical offsets and times are those of Apache's broker, moved by the difference at the first message."""
    offsets, shift, asked = {}, None, []
    for _, request, theirs in conversation("query", version):
        if request.code == 310:
            ours = peer.ask(310, request.ext_fields, request.body)
            their_offset = decode_offset_id(theirs.ext_fields["msgId"])[2]
            offsets[their_offset] = decode_offset_id(ours.ext_fields["msgId"])[2]
            if shift is None:
                shift = int(time.time() * 1000) - int(request.ext_fields["g"])
        # 4.9.8 finds other offsets by time.
        if request.code not in (12, 33) and (version != "5.3.3" or request.code not in (29, 32)):
            continue
        ext = dict(request.ext_fields)
        if request.code == 33:
            ext["offset"] = offset = offsets.get(int(ext["offset"]), int(ext["offset"]))
        for name in ("beginTimestamp", "endTimestamp", "timestamp"):
            if 0 < int(ext.get(name, 0)) < FOREVER:
                ext[name] = int(ext[name]) + shift
        ours = peer.ask(request.code, ext)
        asked.append((request.code, ours.code))
        remark = (
            theirs.remark.replace(request.ext_fields["offset"], str(offset))
            if request.code == 33 and theirs.remark
            else theirs.remark
        )
        assert (ours.code, ours.remark, set(ours.ext_fields)) == (theirs.code, remark, set(theirs.ext_fields))
        assert bodies(ours) == bodies(theirs)
        if request.code == 29:
            assert ours.ext_fields == theirs.ext_fields
        if request.code == 32:
            assert (ours.ext_fields["timestamp"] == "-1") == (theirs.ext_fields["timestamp"] == "-1")
        if request.code == 12:
            assert ours.ext_fields["indexLastUpdatePhyoffset"] == str(
                offsets.get(int(theirs.ext_fields["indexLastUpdatePhyoffset"]), 0)
            )
    assert len(asked) >= 6
    assert len({*asked}) == (6 if version == "5.3.3" else 4)


def test_a_recorded_refusal_is_ours_too(peer):
    asked = 0
    for line, frame in frames(GOLDEN / "wire" / "5.3.3" / "errors.jsonl.gz"):
        request = decode_frame(frame)
        if line["dir"] == "request" and request.code == 33:
            asked += 1
            answer = peer.ask(33, request.ext_fields)
            offset = request.ext_fields["offset"]
            assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")
    assert asked
    answer = query(peer, "ProducerTopic", "absent")
    assert (answer.code, answer.remark) == (22, "can not find message, maybe time range not correct")
    assert answer.ext_fields == {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}


def test_the_newest_of_a_key_come_oldest_first(peer):
    for number in range(70):
        send(peer, "T", b"%d" % number, keys=f"all k{number % 2}")
    assert bodies(query(peer, "T", "all", limit=3)) == [b"67", b"68", b"69"]
    assert bodies(query(peer, "T", "k1", limit=2)) == [b"67", b"69"]
    assert len(bodies(query(peer, "T", "all", limit=1000))) == 64  # maxMsgsNumBatch
    assert len(bodies(query(peer, "T", "all", limit=1, unique=True))) == 32  # defaultQueryMaxNum
    assert query(peer, "T", "all", limit=0).code == 22
    assert query(peer, "Other", "all").code == 22


def test_a_unique_key_is_found_at_once_and_in_its_time_only(peer):
    unique = "7F0000016AB14E0E2F2A69208FBA0000"
    send(peer, "T", b"it", unique=unique)
    answer = query(peer, "T", unique, unique=True)
    assert bodies(answer) == [b"it"]
    stored = records(answer.body)[0].store_time_ms
    assert int(answer.ext_fields["indexLastUpdateTimestamp"]) == stored
    for begin, end, code in ((stored, stored, 0), (stored + 1, FOREVER, 22), (0, stored - 1, 22), (FOREVER, 0, 22)):
        assert query(peer, "T", unique, begin=begin, end=end).code == code, (begin - stored, end - stored)


def test_a_key_of_the_same_hash_never_shows(peer):
    # "Aa" and "BB" have one hash code in Java, whatever stands before them.
    send(peer, "T", b"first", keys="keyAa")
    send(peer, "T", b"second", keys="keyBB")
    assert bodies(query(peer, "T", "keyAa")) == [b"first"]
    assert bodies(query(peer, "T", "keyBB", limit=1)) == [b"second"]
    assert query(peer, "T", "keyC#").code == 22
    # The collision may also lie in a topic's end and a key's beginning.
    send(peer, "XAa", b"third", keys="k")
    assert query(peer, "XBB", "k").code == 22


def test_a_place_inside_a_record_is_no_message(peer):
    offset = send(peer, "T", b"x" * 500)
    whole = peer.ask(33, {"offset": offset, "topic": "T"})
    assert whole.code == 0
    assert bodies(whole) == [b"x" * 500]
    # This record lies in another one's body, but names its old place. One that named its place in the body would be
    # another case.
    inner = send(peer, "T", whole.body)
    for bad in (offset + 1, offset + 100, inner + 88, inner + len(whole.body) + 5, -1, 1 << 62):
        answer = peer.ask(33, {"offset": bad})
        assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {bad}")


def test_large_answers_are_cut_to_a_frame(peer):
    for number in range(6):
        send(peer, "T", bytes([number]) * 3_500_000, keys="big")
    answer = query(peer, "T", "big")
    assert [body[0] for body in bodies(answer)] == [2, 3, 4, 5]


def test_missing_and_bad_fields_are_refused(peer):
    for ext in ({}, {"topic": "T"}, {"topic": "T", "key": "k", "maxNum": "x", "beginTimestamp": 0, "endTimestamp": 0}):
        assert peer.ask(12, ext).code == 1
    assert peer.ask(33, {}).code == 1


def test_without_an_index_nothing_is_found_and_nothing_waits(tmp_path):
    engine = start_engine(tmp_path, store={"message_index_enable": False})
    peer = Peer(engine.broker_address)
    try:
        send(peer, "T", b"x", keys="k")
        assert query(peer, "T", "k").code == 22
        assert not (tmp_path / "store" / "index").exists()
    finally:
        peer.close()
        engine.stop()
