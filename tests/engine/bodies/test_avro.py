"""Avro bodies: those that Avro's own library encoded, and those of strangers."""

from __future__ import annotations

import json

import pytest

from appliance.engine.bodies.avro import AvroSchema
from appliance.engine.bodies.schemas import BodySchema
from appliance.engine.bodies.work import SCHEMA_BYTES, BadSchema, Unfit, Work
from tests.support.golden import GOLDEN

RECORDED = json.loads((GOLDEN / "bodies" / "avro.json").read_text())
BOOKS = {"type": "record", "name": "Book", "fields": [{"name": "title", "type": "string"}]}


def read(schema: object) -> AvroSchema:
    return AvroSchema(json.dumps(schema).encode())


@pytest.mark.parametrize("case", RECORDED, ids=[str(number) for number in range(len(RECORDED))])
def test_what_avro_encoded_is_decoded(case):
    body = bytes.fromhex(case["body"])
    assert read(case["schema"]).decode(body, Work()) == case["shown"]
    # No body that is cut fits, nor one with a byte behind it.
    for size in range(len(body)):
        with pytest.raises(Unfit):
            read(case["schema"]).decode(body[:size], Work())
    with pytest.raises(Unfit, match="it ends after"):
        read(case["schema"]).decode(body + b"\0", Work())


@pytest.mark.parametrize(
    ("schema", "body", "reason"),
    [
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "too many values"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, b"", "nested more than"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "ends too early"),
        ("string", b"\x01", "ends too early"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("int", b"\xfe\xff\xff\xff\xff\x01", "more than 32 bits"),
        ("long", b"\xff" * 11, "too long"),
        ("boolean", b"\x02", "neither true nor false"),
        (["null", "int"], b"\x04", "no type 2"),
        (["null", "int"], b"\x01", "no type -1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "no symbol 1"),
        ({"type": "array", "items": "null"}, b"\x01\x03", "ends too early"),
    ],
)
def test_bodies_of_strangers_are_refused_soon(schema, body, reason):
    with pytest.raises(Unfit, match=reason):
        read(schema).decode(body, Work())


def test_long_names_make_no_long_result():
    wide = {"type": "record", "name": "W", "fields": [{"name": "n" * 60_000, "type": "null"}]}
    with pytest.raises(Unfit, match="too long"):
        read({"type": "array", "items": wide}).decode(b"\xd0\x0f\x00", Work())
    digits = {"type": "bytes", "logicalType": "decimal", "scale": 1000}
    with pytest.raises(Unfit, match="too long"):
        read({"type": "array", "items": digits}).decode(b"\xc0\xb8\x02" + b"\x00" * 20_000 + b"\x00", Work())


def test_odd_values_stay_numbers_and_json_stays_json():
    schema = {"type": "record", "name": "O", "fields": [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "nan", "type": "double"}, {"name": "much", "type": "float"},
    ]}  # fmt: skip
    body = b"\xfe\xff\xff\xff\x0f" + b"\x02" + b"\0\0\0\0\0\0\xf8\x7f" + b"\0\0\x80\xff"
    assert json.loads(BodySchema("avro", json.dumps(schema).encode()).decode(body)) == {
        "day": 2**31 - 1, "at": "1970-01-01T00:00:00.000000001Z", "nan": "NaN", "much": "-Infinity",
    }  # fmt: skip


def test_headers_of_serializers_are_taken_off():
    schema = BodySchema("avro", json.dumps(BOOKS).encode())
    body = b"\x06tea"
    assert schema.label == "Avro Book"
    for header in (b"", b"\xc3\x01" + b"fingerpr", b"\0\0\0\0\x07"):
        assert json.loads(schema.decode(header + body)) == {"title": "tea"}
    with pytest.raises(Unfit, match="it ends after 1 of 6"):
        schema.decode(b"\0\0\0\0\x07\x09")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "it is not JSON"),
        (b"[" * 5000, "it is not JSON"),
        (b"7", "a name, a list or an object"),
        (b"[]", "a union has no types"),
        (b'[["null"]]', "a union in it"),
        (b'"Order"', "used before it is declared"),
        (b'{"name": "x"}', "has no .type."),
        (b'{"type": "record", "fields": []}', "has no name"),
        (b'{"type": "record", "name": "R"}', "no list of fields"),
        (b'{"type": "record", "name": "R", "fields": [{"type": "int"}]}', "must be texts"),
        (b'{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "a name twice"),
        (b'{"type": "fixed", "name": "F", "size": -1}', "no size"),
        (b'[{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 1}]', "declared twice"),
        (b'{"type":' * 100 + b'"int"' + b"}" * 100, "nested more than"),
        (b'["null"' + b',"int"' * 21_000 + b"]", "more than 20000"),
        (b" " * (SCHEMA_BYTES + 1), "at most"),
    ],
)  # fmt: skip
def test_bad_schemas_are_refused(text, reason):
    with pytest.raises(BadSchema, match=reason):
        BodySchema("avro", text)
