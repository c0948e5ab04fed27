"""Every form of a registration's body, and malformed ones."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc
import zlib

import pytest

from appliance.engine.errors import RefusedRequest
from appliance.engine.namesrv import json_walker, register_body
from appliance.engine.namesrv.register_body import (
    MAX_TOPICS,
    RegisterBody,
    TopicShape,
    peek_data_version,
    read_register_body,
)
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.data_version import DataVersion

from .conftest import Desk
from .conftest import register_body as json_body

V409, V479 = 409, 479


def _block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _compressed(topics: list[bytes], mappings: list[bytes] | None = None, count: int | None = None) -> bytes:
    """Compress as Java's RegisterBrokerBody.encode(true) does: level 9."""
    parts = [_block(b'{"counter":3,"stateVersion":0,"timestamp":1700000000000}')]
    parts.append(struct.pack(">i", len(topics) if count is None else count))
    parts += [_block(topic) for topic in topics]
    parts.append(_block(b"[]"))
    if mappings is not None:
        parts += [struct.pack(">i", len(mappings)), *[_block(mapping) for mapping in mappings]]
    return zlib.compress(b"".join(parts), 9)


VERSION = DataVersion(1_700_000_000_000, 3)
PLAIN = _compressed([b"TopicA 8 4 6 SINGLE_TAG", b"%RETRY%g 1 1 6 SINGLE_TAG"])
SHAPES = {"TopicA": TopicShape(8, 4, 6, 0), "%RETRY%g": TopicShape(1, 1, 6, 0)}


# --- forms


def test_the_compressed_form_of_4_9_has_no_mappings() -> None:
    assert read_register_body(PLAIN, V409, True) == RegisterBody(VERSION, SHAPES, {})


def test_the_compressed_form_of_5_has_attributes_and_mappings() -> None:
    mapping = b'{"bname":"broker-a","currIdMap":{0:0},"topic":"Static"}'
    topics = [b'TopicA 8 4 6 SINGLE_TAG {"message.type":"FIFO","a":"b c"}', b"%RETRY%g 1 1 6 SINGLE_TAG {}"]
    read = read_register_body(_compressed(topics, [mapping]), V479, True)
    assert read.topics == SHAPES
    assert {topic: json.loads(text) for topic, text in read.mappings.items()} == {
        "Static": {"bname": "broker-a", "currIdMap": {"0": 0}, "topic": "Static"}
    }


@pytest.mark.parametrize("said", [True, False])
def test_the_first_byte_decides_not_the_header(said: bool) -> None:
    """5.x brokers with compressedRegister send the compressed form with compressed=false in the header."""
    assert read_register_body(PLAIN, V479, said).topics == SHAPES
    assert set(read_register_body(json_body(["A", "B"]), V479, said).topics) == {"A", "B"}


def test_senders_before_3_0_11_send_the_bare_wrapper() -> None:
    wrapper = json.dumps(json.loads(json_body(["A", "B"], (7, 5)))["topicConfigSerializeWrapper"]).encode()
    read = read_register_body(wrapper, 36, False)
    assert read.data_version == DataVersion(7, 5)
    assert set(read.topics) == {"A", "B"}
    assert read_register_body(wrapper, 37, False).topics == {}  # to later ones these are unknown keys


def test_absent_fields_have_javas_defaults_and_numbers_may_be_text() -> None:
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{},"B":{"perm":"4","readQueueNums":null}}}}'
    read = read_register_body(body, V479, False)
    assert read == RegisterBody(DataVersion(), {"A": TopicShape(16, 16, 6, 0), "B": TopicShape(16, 16, 4, 0)}, {})


def test_a_topic_with_numbers_of_its_own_keeps_no_other_out() -> None:
    topics = {
        "Odd": {"readQueueNums": -1, "writeQueueNums": -(1 << 31), "perm": -1, "topicSysFlag": -1},
        "Usual": {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0},
    }
    body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": topics}}).encode()
    found = read_register_body(body, V479, False).topics
    assert found == {"Odd": (-1, -(1 << 31), -1, -1), "Usual": (4, 4, 6, 0)}


def test_an_empty_body_is_an_empty_table() -> None:
    assert read_register_body(b"", V479, False) == RegisterBody(DataVersion(), {}, {})


def test_blanks_order_and_unknown_keys_do_not_matter() -> None:
    body = b"""
    { "topicConfigSerializeWrapper" : { "topicConfigTable" : { "A" : { "perm" : 4 } , "B":{} } ,
      "future" : [ {} , "x" ] , "dataVersion" : { "counter" : 9 } } , "filterServerList" : [ ] }  """
    read = read_register_body(body, V479, False)
    assert read.data_version == DataVersion(0, 9)
    assert read.topics["A"].perm == 4


def test_unquoted_ids_are_read_wherever_a_value_is_cut() -> None:
    """The reader examines 1 KiB first, then 64 KiB: put the unquoted ids around the first seam."""
    for length in range(900, 1100, 7):
        mapping = '{"pad":"' + "x{1:" * (length // 4) + '","currIdMap":{0:1,1:0},"topic":"A"}'
        second = '{"currIdMap":{7:8},"topic":"C"}'
        maps = '{"A":' + mapping + ',"C":' + second + "}"
        body = '{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":' + maps + ',"topicConfigTable":{"B":{}}}}'
        read = read_register_body(body.encode(), V479, False)
        assert json.loads(read.mappings["A"])["currIdMap"] == {"0": 1, "1": 0}
        assert json.loads(read.mappings["C"])["currIdMap"] == {"7": 8}
        assert set(read.topics) == {"B"}


def test_a_number_that_is_cut_at_the_first_look_is_read_whole() -> None:
    for digits in (1000, 1023, 1024, 1025, 2000):
        body = b'{"unknown":0.' + b"1" * digits + b',"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{}}}}'
        assert set(read_register_body(body, V479, False).topics) == {"A"}


def test_the_version_is_seen_without_reading_the_table() -> None:
    assert peek_data_version(json_body(["A", "B"], (7, 5)), False) == DataVersion(7, 5)
    assert peek_data_version(PLAIN, False) == VERSION
    behind = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"dataVersion":{}},"dataVersion":{"counter":1}}}'
    assert peek_data_version(behind, False) is None
    for broken in (b"", b"x\x9c", b'{"dataVersion":', b'{"dataVersion":[]}', b"\xff"):
        assert peek_data_version(broken, False) is None


# --- bodies that are none

_DEEP = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":'
BROKEN = {
    "no json": b"not json",
    "no object": b"[]",
    "half": json_body(["A", "B"])[:-30],
    "more behind the end": json_body(["A", "B"]) + b"{}",
    "not utf-8": b'{"\xff":1}',
    "half a surrogate pair": b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"\\ud800":{},"B":{}}}}',
    "deep lists": _DEEP + b"[" * 200_000,
    "deep objects with bare keys": _DEEP + b"{1:" * 200_000,
    "an endless string": b'{"a":' + b'"\\' * 500_000,
    "a value too long": b'{"a":"' + b"x" * 70_000 + b'"}',
    "a number too long": b'{"a":' + b"1" * 70_000 + b"}",
    "only blanks": b" " * 1_000_000,
    "a number below an int": _DEEP + b'{"perm":-2147483649}}}}',
    "a number too large": _DEEP + b'{"perm":2147483648}}}}',
    "a fraction": _DEEP + b'{"perm":1.5}}}}',
    "not a number": _DEEP + b'{"perm":true}}}}',
    "a topic that is no object": _DEEP + b"6}}}",
    "a table that is no object": b'{"topicConfigSerializeWrapper":{"topicConfigTable":[]}}',
    "a version that is no object": b'{"topicConfigSerializeWrapper":{"dataVersion":5}}',
    "no zlib": b"x garbage",
    "zlib cut short": PLAIN[:-20],
    "zlib with a flipped bit": PLAIN[:40] + bytes([PLAIN[40] ^ 0x10]) + PLAIN[41:],
    "fewer topics than announced": _compressed([b"A 1 1 6 SINGLE_TAG"], count=5),
    "a negative count": _compressed([], count=-1),
    "a huge count": _compressed([], count=2**31 - 1),
    "a topic without numbers": _compressed([b"A"]),
    "a topic with bad numbers": _compressed([b"A x y z SINGLE_TAG"]),
    "a huge block": zlib.compress(struct.pack(">i", 2**31 - 1)),
    "a negative block": zlib.compress(struct.pack(">i", -1)),
    "nothing inside": zlib.compress(b""),
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
def test_a_body_that_is_none_is_refused_and_changes_nothing(desk: Desk, body: bytes) -> None:
    desk.register(["A", "B"])
    answer = desk.ask(
        RequestCode.REGISTER_BROKER,
        body,
        brokerName="broker-a",
        brokerAddr="10.0.0.1:10911",
        clusterName="DefaultCluster",
        brokerId=0,
    )
    assert answer.code == 1
    assert str(answer.remark).startswith("Failed to decode RegisterBrokerBody: ")
    assert desk.topics() == {"A", "B"}
    assert desk.perms("A") == {"broker-a": 6}


def test_more_topics_than_a_broker_can_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_TOPICS >= 200_000
    monkeypatch.setattr(register_body, "MAX_TOPICS", 100)
    names = [f"T{n}" for n in range(101)]
    text = [b"%b 1 1 6 SINGLE_TAG" % name.encode() for name in names]
    assert len(read_register_body(json_body(names[:100]), V479, False).topics) == 100
    assert len(read_register_body(_compressed(text[:100]), V479, False).topics) == 100
    for body in (json_body(names), _compressed(text)):
        with pytest.raises(RefusedRequest, match="101 topics"):
            read_register_body(body, V479, False)


def test_a_zlib_bomb_is_refused_after_64_mebibytes_and_held_in_pieces() -> None:
    """100,000 announced topics of 60 KiB: 6 GB from 6 MB. Memory stays at a few pieces of 64 KiB."""
    topic = b"T 1 1 6 SINGLE_TAG " + b"x" * 61_000
    deflate = zlib.compressobj(9)
    pieces = [deflate.compress(_block(b'{"counter":1}') + struct.pack(">i", 100_000))]
    pieces += [deflate.compress(_block(topic)) for _ in range(2000)]
    bomb = b"".join([*pieces, deflate.flush()])
    assert len(bomb) < 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(RefusedRequest, match="holds more than 67108864 bytes"):
            read_register_body(bomb, V479, True)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_no_json_text_is_looked_at_twice() -> None:
    """A pattern that backtracks would take hours here, so that a reader in linear time needs no clock to show it."""
    text = '{"a":{"' + '\\"' * 30_000 + "{1:2"
    assert json_walker.quote_bare_keys(text)[0] == text
    assert json_walker.quote_bare_keys("{" * 30_000)[0] == "{" * 30_000
    assert json_walker.quote_bare_keys("{" + "1" * 60_000)[1] == []


# --- requests with wrong headers


def test_missing_and_bad_fields_are_refused_by_name(desk: Desk) -> None:
    header = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "c", "brokerId": "0", "bodyCrc32": "0"}
    body = json_body(["A", "B"])
    for name in ("brokerName", "brokerAddr", "clusterName", "brokerId"):
        for value in (None, ""):
            fields = {k: v for k, v in header.items() if k != name} | ({} if value is None else {name: value})
            answer = desk.ask(RequestCode.REGISTER_BROKER, body, **fields)
            assert answer.code == 1
            assert name in str(answer.remark)
    for name in ("brokerId", "bodyCrc32", "heartbeatTimeoutMillis"):
        answer = desk.ask(RequestCode.REGISTER_BROKER, body, **header | {name: "abc"})
        assert answer.code == 1
        assert name in str(answer.remark)
    assert desk.topics() == set()


@pytest.mark.parametrize("code", sorted({100, 101, 102, 103, 104, 205, 216, 217, 219, 224, 322, 327, 901, 904}))
def test_a_request_with_nothing_in_it_is_refused_without_harm(desk: Desk, code: int) -> None:
    desk.register(["A", "B"])
    for body in (b"", b"\xff\x00", b"[" * 10_000, b'{"queueDatas":[{"perm":-1}]}', b"x" * 300_000):
        answer = desk.ask(code, body)
        assert answer.code == 1, answer
        assert answer.remark
    assert desk.perms("A") == {"broker-a": 6}


def test_small_bodies_are_bounded(desk: Desk) -> None:
    desk.register(["A", "B"])
    who = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "DefaultCluster", "brokerId": "0"}
    for body in (b'{"counter":"a"}', b" " * 300_000, b"[" * 100_000):
        assert desk.ask(RequestCode.QUERY_DATA_VERSION, body, **who).code == 1
    for queue in ('{"brokerName":"broker-a","perm":-6}', '{"brokerName":5}', '{"perm":6}', "5"):
        body = b'{"queueDatas":[' + queue.encode() + b"]}"
        assert desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, body, topic="New").code == 1
    assert desk.route("New") is None


# --- bodies that expand


_DOUBLING = b",".join(b'"a%d":[{"$ref":"$.a%d"},{"$ref":"$.a%d"}]' % (n, n + 1, n + 1) for n in range(25))


def test_references_in_a_mapping_are_bounded_by_what_they_mean() -> None:
    mapping = b'{"topic":"T",%b,"a25":["x"]}' % _DOUBLING
    tracemalloc.start()
    try:
        with pytest.raises(RefusedRequest, match="its references make the document too large"):
            read_register_body(_compressed([], [mapping]), V479, True)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_all_mappings_of_a_broker_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_body, "MAX_MAPPING_BYTES", 10_000)
    mapping = b'{"topic":"T%d","a":"' + b"x" * 1000 + b'"}'
    assert len(read_register_body(_compressed([], [mapping % n for n in range(9)]), V479, True).mappings) == 9
    with pytest.raises(RefusedRequest, match="mappings of more than 10000 bytes"):
        read_register_body(_compressed([], [mapping % n for n in range(10)]), V479, True)


def test_a_table_of_small_values_with_bare_keys_takes_time_in_proportion() -> None:
    """For each of them 64 KiB were once searched for bare keys: a frame of 3 MB took minutes."""
    entries = b",".join(b'"T%d":{0:1}' % number for number in range(20_000))
    body = b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{' + entries + b"}}}"
    before = time.thread_time()
    assert len(read_register_body(body, V479, False).mappings) == 20_000
    assert time.thread_time() - before < 5


@pytest.mark.parametrize(
    "mapping",
    [
        b'{"topic":"\\ud800"}',
        b'{"topic":"T","a":"\\ud800"}',
        b'{"topic":"T","a":%d}' % (1 << 64),
        b'{"topic":"T","a":1e999}',
        b'{"topic":"T","a":NaN}',
        b'{"topic":"T",{{"a":1}:1}:1}',
        b'{"no":"topic"}',
        b"[]",
    ],
)
def test_a_mapping_that_no_answer_could_hold_is_refused(mapping: bytes) -> None:
    wrapped = b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":%b}}}' % mapping
    refused = [(_compressed([], [mapping]), True)]
    if mapping not in (b'{"no":"topic"}', b'{"topic":"\\ud800"}'):
        refused.append((wrapped, False))
    for body, compressed in refused:
        with pytest.raises(RefusedRequest) as refusal:
            read_register_body(body, V479, compressed)
        assert refusal.value.code == 1
