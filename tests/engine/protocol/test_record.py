"""Stored records, properties, ids: vectors worked by hand and the records inside recorded pulls."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.errors import CorruptFile
from appliance.engine.protocol.message_id import decode_offset_id, encode_host, encode_offset_id
from appliance.engine.protocol.properties import decode_properties, encode_properties, find_property, java_hash
from appliance.engine.protocol.record import body_crc, decode_record, encode_record
from tests.support.golden import VERSIONS, frames, transcripts

RECORD = bytes.fromhex(
    "0000006bdaa320a73610a6860000000300000000000000000000000700000000000010000000000000000"
    "18bcfe568000a000001000013880000018bcfe568017f00000100002a9f00000000000000000000000000"
    "00000568656c6c6f0154000a54414753015461674102"
)


def test_the_record_worked_by_hand():
    record = decode_record(RECORD)
    assert record.topic == "T"
    assert record.body == b"hello"
    assert record.body_crc == 907060870
    assert (record.queue_id, record.queue_offset, record.physical_offset) == (3, 7, 4096)
    assert record.born_host == ("10.0.0.1", 5000)
    assert record.store_host == ("127.0.0.1", 10911)
    assert record.properties == "TAGS\x01TagA\x02"
    assert encode_record(record, encode_host(*record.born_host), encode_host(*record.store_host)) == RECORD


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_recorded_pulls_come_back_byte_for_byte(version):
    count = 0
    for path in transcripts(version):
        asked = {}
        for line, frame in frames(path):
            if line["dir"] == "request":
                asked[line["conn"], line["opaque"]] = line["code"]
            elif asked.get((line["conn"], line["opaque"])) in (11, 361) and line["code"] == 0:
                body = frame[len(frame) - line["body_len"] :]
                at = 0
                while at < len(body):
                    record = decode_record(body, at)
                    raw = body[at : at + record.size]
                    assert encode_record(record, encode_host(*record.born_host), encode_host(*record.store_host)) == raw
                    at += record.size
                    count += 1
                assert at == len(body)
    assert count > 50


def test_a_record_changed_anywhere_in_its_checked_parts_is_refused():
    for position in [*range(8), *range(84, len(RECORD) - 13)]:
        for bit in range(8):
            broken = bytearray(RECORD)
            broken[position] ^= 1 << bit
            if position in range(93, 95):
                continue  # the topic's length and text: not covered by the CRC, the lengths decide below
            with pytest.raises(CorruptFile):
                decode_record(bytes(broken))


def test_a_record_cut_anywhere_is_refused():
    for size in range(len(RECORD)):
        with pytest.raises(CorruptFile):
            decode_record(RECORD[:size])


@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_but_the_one_refusal(data):
    try:
        decode_record(data)
    except CorruptFile:
        pass


@given(st.binary(max_size=200), st.integers(0, 2**31 - 1))
def test_random_bytes_behind_a_good_head_raise_nothing_but_the_one_refusal(data, size):
    try:
        decode_record(struct.pack(">i", size) + RECORD[4:48] + data)
    except CorruptFile:
        pass


def test_ipv6_hosts_take_twenty_bytes():
    record = decode_record(RECORD)
    raw = encode_record(record, encode_host("2001:db8::1", 5000), encode_host("::1", 10911))
    assert len(raw) == len(RECORD) + 24
    again = decode_record(raw)
    assert again.born_host == ("2001:db8::1", 5000)
    assert again.store_host == ("::1", 10911)
    assert again.sys_flag == 0x30
    assert encode_host("::ffff:10.0.0.1", 5000) == encode_host("10.0.0.1", 5000)


def test_crc_vectors():
    assert body_crc(b"1") == 64810935
    assert body_crc(b"abc") == 891568578
    assert body_crc(b"Hello RocketMQ") == 1774740973
    assert body_crc(b"") == 0


def test_java_hash_vectors():
    assert java_hash("TagA") == 2598919
    assert java_hash("TagB") == 2598920
    assert java_hash("订单") == 1129459
    assert java_hash("polygenelubricants") == -2147483648
    assert java_hash("TopicTest#KEY1") == -1656969516


def test_offset_ids():
    assert encode_offset_id(encode_host("192.168.1.10", 10911), 1024) == "C0A8010A00002A9F0000000000000400"
    assert decode_offset_id("C0A8010A00002A9F0000000000000400") == ("192.168.1.10", 10911, 1024)
    for bad in ("", "xyz", "C0A8010A", "C0A8010A00002A9F00000000000004"):
        with pytest.raises(ValueError):
            decode_offset_id(bad)


def test_properties_are_read_as_java_reads_them():
    assert decode_properties("a\x011\x02b\x012") == {"a": "1", "b": "2"}
    assert decode_properties("a\x011\x02a\x012\x02") == {"a": "2"}
    assert decode_properties("no-separators") == {}
    assert decode_properties("a\x01\x02\x01x\x02b\x012\x02") == {"b": "2"}


names = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=("Cs",)), min_size=1, max_size=5)


@given(st.dictionaries(names, names, max_size=5))
def test_properties_come_back(properties):
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    for name in properties:
        assert find_property(text, name) == properties[name]
    assert find_property(text, "absent-name") is None


def test_find_property_looks_for_whole_names():
    assert find_property("XTAGS\x01a\x02", "TAGS") is None
    assert find_property("XTAGS\x01a\x02TAGS\x01b", "TAGS") == "b"
    assert find_property("TAGS\x01b\x02XTAGS\x01a\x02", "TAGS") == "b"
    assert find_property("TAGS\x01a\x02TAGS\x01b\x02", "TAGS") == "b"
