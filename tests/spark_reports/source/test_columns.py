"""The vectorised columns equal the results of the engine's decoder, for any records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.engine.errors import CorruptFile
from appliance.engine.protocol.record import MAGIC_V2
from spark_reports.source import property_columns
from spark_reports.source.columns import decode, record_batch, walk
from spark_reports.source.wanted import Wanted
from tests.spark_reports.source.records import LONG_HOST, SHORT_HOST, any_records, any_wanted, packed, plain, record

BASE = 1 << 40
ALL = Wanted(system=True)


def both(data: bytes, wanted: Wanted, base: int | None = BASE):
    starts, _ = walk(data, 0, len(data))
    found = decode(data, starts, wanted, base)
    batch, corrupt = plain(data, starts, wanted, base)
    found.batch.validate(full=True)
    assert [index for index, _ in found.corrupt] == corrupt
    assert found.batch.to_pylist() == batch.to_pylist()
    assert found.batch.equals(batch)
    return found


@settings(max_examples=300, deadline=None)
@given(any_records(), any_wanted())
def test_any_records_become_what_the_plain_loop_makes_of_them(records, wanted):
    both(packed(records, BASE), wanted)


@settings(max_examples=300, deadline=None)
@given(any_records().filter(bool), st.data(), st.booleans())
def test_damage_anywhere_is_seen_as_the_plain_loop_sees_it(records, data, body):
    octets = bytearray(packed(records, BASE))
    for _ in range(data.draw(st.integers(1, 3))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    both(bytes(octets), Wanted(system=True, body=body))


@settings(max_examples=100, deadline=None)
@given(any_records(), any_wanted())
def test_many_different_names_are_compared_without_a_table(records, wanted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(property_columns, "_TABLE_ITEMS", 0)
        both(packed(records, BASE), wanted)


@pytest.mark.parametrize("magic_and_hosts", [(MAGIC_V2, SHORT_HOST), (0xDAA320A7, LONG_HOST)])
def test_long_topics_and_long_hosts(magic_and_hosts):
    magic, host = magic_and_hosts
    topic = "t" * (300 if magic == MAGIC_V2 else 255)
    found = both(packed([(record(3, topic, magic=magic), host, host)], BASE), ALL)
    assert found.batch.num_rows == 1
    assert len(found.batch["msg_id"][0].as_py()) == (32 if host == SHORT_HOST else 56)


def test_of_equal_names_the_last_value_wins_at_the_place_of_the_first():
    text = "UNIQ_KEY\x01own\x02WAIT\x01true\x02UNIQ_KEY\x01the batch's\x02"
    found = both(packed([record(0, properties=text), record(1, properties="WAIT\x01false")], BASE), ALL)
    assert found.batch["msg_id"][0].as_py() == "the batch's"
    assert found.batch["properties"].to_pylist() == [
        [("UNIQ_KEY", "the batch's"), ("WAIT", "true")],
        [("WAIT", "false")],
    ]


def test_odd_properties_stand_among_usual_ones_in_order():
    texts = ["A\x011\x02", "A\x01\x02B\x012\x02", "", "no separator", "A\x011\x012\x02", "B\x013", "\x02\x02"]
    found = both(packed([record(n, properties=text) for n, text in enumerate(texts)], BASE), ALL)
    assert found.batch["queue_offset"].to_pylist() == list(range(7))
    assert [dict(row) for row in found.batch["properties"].to_pylist()] == [
        {"A": "1"}, {"B": "2"}, {}, {}, {"A": "1\x012"}, {"B": "3"}, {},
    ]  # fmt: skip


def test_text_that_is_no_utf_8_is_a_corrupt_record_and_others_are_not():
    data = packed([record(0, properties="A\x01one\x02"), record(1, properties="A\x01two\x02"), record(2)], BASE)
    found = both(data.replace(b"two", b"\xff\xfe!"), ALL)
    assert [index for index, _ in found.corrupt] == [1]
    assert "utf-8" in found.corrupt[0][1]


def test_a_body_s_crc_is_looked_at_where_bodies_are_wanted():
    data = packed([record(0, body=b"one body"), record(1)], BASE).replace(b"one body", b"own body")
    assert both(data, Wanted()).batch.num_rows == 2
    found = both(data, Wanted(body=True))
    assert found.batch["queue_offset"].to_pylist() == [1]
    assert found.corrupt == [(0, "its body does not match its CRC")]


def test_a_pull_answer_is_whole_records_or_an_error():
    data = packed([record(0), record(1)], BASE)
    assert record_batch(memoryview(data), ALL).num_rows == 2
    assert record_batch(b"", ALL).num_rows == 0
    with pytest.raises(CorruptFile, match="no whole one"):
        record_batch(data[:-1], ALL)
    with pytest.raises(CorruptFile, match="queue -1"):
        record_batch(packed([record(0, queue_id=-1)]), ALL)
