"""Protobuf bodies: those that Protobuf's own library encoded, and those of strangers."""

from __future__ import annotations

import base64
import json
import tracemalloc

import pytest

from appliance.engine.bodies.protobuf import ProtobufSchema
from appliance.engine.bodies.schemas import BodySchema
from appliance.engine.bodies.work import BadSchema, Unfit, Work
from tests.support.golden import GOLDEN

RECORDED = json.loads((GOLDEN / "bodies" / "protobuf.json").read_text())
SHOP, OLD, BARE = (base64.b64decode(RECORDED[name]) for name in ("shop", "old", "shop_without_imports"))
ORDER = "shop.v1.Order"


@pytest.mark.parametrize("case", RECORDED["cases"], ids=[case["message"] for case in RECORDED["cases"]])
def test_what_protobuf_encoded_is_decoded(case):
    schema = ProtobufSchema(base64.b64decode(RECORDED[case["set"]]), case["message"])
    body = bytes.fromhex(case["body"])
    assert schema.decode(body, Work()) == case["shown"]
    for size in range(1, len(body)):
        try:
            part = schema.decode(body[:size], Work())
        except Unfit:
            continue
        assert part.keys() <= case["shown"].keys()


def test_fields_that_the_message_does_not_declare_are_shown_by_number():
    schema = BodySchema("protobuf", SHOP, ORDER)
    assert schema.label == "Protobuf shop.v1.Order"
    assert json.loads(schema.decode(b"\x0a\x01a\xc0\x3e\x07\xca\x3e\x01\xff")) == {
        "id": "a",
        "?1000": 7,
        "?1001": "/w==",
    }
    with pytest.raises(Unfit, match="no field of the message"):
        schema.decode(b"\xc0\x3e\x07")


def test_a_registrys_header_is_taken_off():
    schema = BodySchema("protobuf", SHOP, ORDER)
    for header in (b"", b"\0\0\0\0\x07\0", b"\0\0\0\0\x07\x02\x02", b"\0\0\0\0\x07\x04\x02\0"):
        assert json.loads(schema.decode(header + b"\x0a\x01a")) == {"id": "a"}


def test_parts_of_one_message_are_merged_and_the_last_value_counts():
    schema = ProtobufSchema(SHOP, ORDER)
    body = b"\x92\x01\x03\x0a\x01x" + b"\x92\x01\x05\x12\x03\x0a\x01y" + b"\x0a\x01a\x0a\x01b"
    assert schema.decode(body, Work()) == {"note": {"text": "x", "about": {"id": "y"}}, "id": "b"}
    assert schema.decode(b"\x32\0", Work()) == {"stock": {"": 0}}, "an entry of a map may leave out both"


def nested(levels: int) -> bytes:
    body = b""
    for _ in range(levels):
        body = b"\x12" + _size(body) + body  # Note.about
        body = b"\x92\x01" + _size(body) + body  # Order.note
    return body


def _size(body: bytes) -> bytes:
    found, left = b"", len(body)
    while left > 127:
        found, left = found + bytes([left & 127 | 128]), left >> 7
    return found + bytes([left])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (nested(60), "nested more than"),
        (b"\x2a\xc0\x84\x3d" + b"\x01" * 1_000_000, "too many values"),
        (b"\x22\0" * 60_000, "too many values"),
        (b"\xc0\x3e\x07" * 60_000, "too many values"),
        (b"\x0a\x01a\xc3\x3e" + b"\x08\x01" * 60_000 + b"\xc4\x3e", "too many values"),
        (b"\x0a\xff\xff\xff\xff\x0f", "ends too early"),
        (b"\x0a\x01\xff", "not UTF-8"),
        (b"\x0a", "ends too early"),
        (b"\x10" + b"\xff" * 11, "too long"),
        (b"\x08\x01", "is of another type"),
        (b"\x07", "no field 0"),
        (b"\x0f", "begins no field"),
        (b"\x0c", "begins no field"),
        (b"\xc3\x3e\xcc\x3e", "has another end"),
        (b"\xc3\x3e" * 100, "ends too early"),
        (b"not at all", "."),
    ],
)
def test_bodies_of_strangers_are_refused(body, reason):
    with pytest.raises(Unfit, match=reason):
        ProtobufSchema(SHOP, ORDER).decode(body, Work())


@pytest.mark.parametrize(
    ("described", "message", "reason"),
    [
        (SHOP, "shop.v1.Nothing", "name a message in it, such as google.protobuf.Timestamp, shop.v1.Line"),
        (SHOP, "", "name a message"),
        (BARE, ORDER, "google.protobuf.Timestamp is missing; make the descriptor set with --include_imports"),
        (b'syntax = "proto3";', ORDER, "there is no message in it"),
        (SHOP[:-3], ORDER, "no descriptor set"),
        (b"", ORDER, "no message"),
        (SHOP + SHOP, ORDER, "declared twice"),
    ],
)  # fmt: skip
def test_bad_descriptor_sets_are_refused(described, message, reason):
    with pytest.raises(BadSchema, match=reason):
        BodySchema("protobuf", described, message)


def test_other_bytes_never_raise_anything_else():
    """Each byte of a good set and of a good body is changed in turn."""
    body = bytes.fromhex(RECORDED["cases"][0]["body"])
    order = ProtobufSchema(SHOP, ORDER)
    for at in range(len(body)):
        for change in (1, 0x80, 0xFF):
            try:
                order.decode(body[:at] + bytes([body[at] ^ change]) + body[at + 1 :], Work())
            except Unfit:
                pass
    for at in range(len(OLD)):
        for change in (1, 2, 0x80, 0xFF):
            try:
                schema = BodySchema("protobuf", OLD[:at] + bytes([OLD[at] ^ change]) + OLD[at + 1 :], "old.Box")
                schema.decode(bytes.fromhex(RECORDED["cases"][1]["body"]))
            except (BadSchema, Unfit):
                pass


def test_nested_messages_are_not_copied_for_each_level():
    body = b"\x0a\x01a\x0a\xff\xff\x7f" + b"x" * 2_097_151
    for _ in range(30):
        body = b"\x12" + _size(body) + body
        body = b"\x92\x01" + _size(body) + body
    tracemalloc.start()
    try:
        with pytest.raises(Unfit, match="too long"):
            ProtobufSchema(SHOP, ORDER).decode(body, Work())
        assert tracemalloc.get_traced_memory()[1] < 2 * len(body)
    finally:
        tracemalloc.stop()


def test_a_field_has_a_name_that_no_unknown_field_has():
    """Such a name made a list of what an undeclared field had set to a number."""
    field = b"\x0a\x02?7\x18\x01\x20\x03\x28\x09"
    message = b"\x0a\x01M\x12" + _size(field) + field
    file = b"\x22" + _size(message) + message
    with pytest.raises(BadSchema, match="no name"):
        ProtobufSchema(b"\x0a" + _size(file) + file, "M")
