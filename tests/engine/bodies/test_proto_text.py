"""The text of a .proto file: the types that protoc makes of it, and texts of strangers."""

from __future__ import annotations

import base64
import json

import pytest

from appliance.engine.bodies.descriptor_set import types_of
from appliance.engine.bodies.proto_text import ProtoText
from appliance.engine.bodies.protobuf import ProtobufFile
from appliance.engine.bodies.protobuf_types import Types
from appliance.engine.bodies.schemas import BodySchema
from appliance.engine.bodies.work import BadSchema, Unfit, Work
from tests.support.golden import GOLDEN

RECORDED = json.loads((GOLDEN / "bodies" / "protobuf.json").read_text())
TEXTS = {name: text.encode() for name, text in RECORDED["texts"].items()}
SHOP = TEXTS["shop"]


def facts(types: Types) -> dict[str, object]:
    """Return the declarations, without the names that protoc gives to the entries of maps."""

    def of(name: str) -> object:
        entry = types.messages.get(name)
        return fields(name) if entry is not None and entry.is_entry else name

    def fields(name: str) -> object:
        return {
            number: (one.name, one.type, one.repeated, of(one.of))
            for number, one in types.messages[name].fields.items()
        }

    found: dict[str, object] = {name: fields(name) for name, one in types.messages.items() if not one.is_entry}
    return found | dict(types.enums)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_declares_what_protocs_descriptor_set_declares(name):
    assert facts(ProtoText(TEXTS[name]).types) == facts(types_of(base64.b64decode(RECORDED[name])))


@pytest.mark.parametrize("case", RECORDED["cases"], ids=[case["message"] for case in RECORDED["cases"]])
def test_what_protobuf_encoded_is_decoded_by_a_text(case):
    schema = BodySchema("protobuf", TEXTS[case["set"]], case["message"])
    assert json.loads(schema.decode(bytes.fromhex(case["body"]))) == case["shown"]


def test_all_that_may_stand_in_a_file_is_read_or_skipped():
    text = b"""\xef\xbb\xbf// a comment
edition = "2023"; /* over
two lines */ package a.b;
import public 'google/protobuf/any.proto'; import "google/protobuf/struct.proto";
import option "google/protobuf/descriptor.proto";
option (mine.file) = { list: [1, 2], text: "}" "and \\" more" };
service Shop { rpc Buy (stream M) returns (M) { option deadline = 5; } }
extend google.protobuf.FieldOptions { optional string help = 50000; }
enum E { option allow_alias = true; reserved -3, 5 to max; NONE = 0; NULL = 0 [deprecated = true]; LESS = -0x10; }
message M {
  option deprecated = false; extensions 100 to 199, 500 [verification = UNVERIFIED]; reserved "gone", 'away';
  message M { E.E wrong_scope = 1; enum E { INNER = 1; } message E2 {} }
  .a.b.M outer = 010; M inner = 0xA [(mine.it) = {a: [1]}, json_name = "x;]"];
  oneof one { option (x) = 1; int32 message = 1; google.protobuf.Any any = 2; }
  map<int64, google.protobuf.Value> map = 3; repeated E list = 4 [packed = true];
  extend M { optional int32 more = 100; } ; string option_ = 5;
};
"""
    with pytest.raises(BadSchema, match=r"there is no type E\.E in it"):
        ProtoText(text)
    file = ProtoText(text.replace(b"E.E wrong_scope", b"E right_scope"))
    assert (file.roots, file.within) == (["a.b.M"], {"a.b.M": ["a.b.M.M"], "a.b.M.M": ["a.b.M.M.E2"]})
    assert file.types.enums["a.b.E"] == {0: "NONE", -16: "LESS"}
    fields = file.types.messages["a.b.M"].fields
    assert {number: (one.name, one.of) for number, one in fields.items() if number != 3} == {
        8: ("outer", "a.b.M"), 10: ("inner", "a.b.M.M"), 1: ("message", ""), 2: ("any", "google.protobuf.Any"),
        4: ("list", "a.b.E"), 5: ("option_", ""),
    }  # fmt: skip
    assert file.types.messages["a.b.M.M"].fields[1].of == "a.b.M.M.E"
    assert file.types.messages[fields[3].of].fields[2].of == "google.protobuf.Value"


def test_a_text_with_one_message_needs_no_name():
    one = b'syntax = "proto3"; package p; message Order { string id = 1; message Line {} }'
    assert BodySchema("protobuf", one).name == "p.Order"
    with pytest.raises(BadSchema, match=r"name a message in it, such as p\.A, p\.B"):
        BodySchema("protobuf", b"package p; message A {} message B {}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"message", "ends too early"),
        (b"message A {", "ends too early"),
        (b"message A { int32 a = 1 }", "“}” stands instead of ; behind “{ int32 a = 1”"),
        (b"message A { int32 a = x; }", "stands instead of a number"),
        (b"message A { int32 a = 0; }", "has no number"),
        (b"message A { int32 a = 1; int32 b = 1; }", "declared twice"),
        (b"message A { int32 a = 1; int32 a = 2; }", "declared twice"),
        (b"message A {} message A {}", "the type A is declared twice"),
        (b"message A { B b = 1; }", "there is no type B in it"),
        (b"message A { map<A, int32> a = 1; }", "“A” stands behind"),
        (b"message A { oneof a { int32 b = 1; ", "ends too early"),
        (b"message A { option x = { ", "ends too early"),
        (b"enum A { B = 1", "ends too early"),
        (b"extend A", "ends too early"),
        (b'import "shop/common.proto"; message A {}', "imports shop/common.proto, which is not in it"),
        (b"import shop; message A {}", "“shop” stands"),
        (b"message A {} /* no end", "has no end"),
        (b'option a = "no end;', "has no end"),
        (b"\xff\xfe message", "not UTF-8"),
        (b"hello", "“hello” stands"),
        (b"message A {" * 100 + b"}" * 100, "nested more than"),
        (b"message A { optional group B = 1 {" * 100 + b"}}" * 100, "declared|nested more than"),
        (b"package " + b"a" * 1000 + b"; message A {}", "full name of a type has more than 1000 characters"),
        (b"package a" + b".a" * 128 + b"; message A {}", "or 128 parts"),
        (b"message A {" + b"".join(b"int32 a%d = %d;" % (n, n) for n in range(1, 21_000)) + b"}", "has|more than"),
    ],
)
def test_bad_texts_are_refused(text, reason):
    with pytest.raises(BadSchema, match=reason):
        BodySchema("protobuf", text, "A")


def test_other_texts_never_raise_anything_else():
    """A good text is cut, and lacks a character, at every third place."""
    for size in range(0, len(SHOP), 3):
        for text in (SHOP[:size], SHOP[:size] + SHOP[size + 1 :]):
            try:
                ProtoText(text)
            except BadSchema:
                pass


def test_a_registrys_body_says_which_message_it_is():
    file = ProtobufFile(
        b'syntax = "proto3"; message A { int32 a = 1; } message B { message C {} message D { string d = 1; } }'
    )
    assert file.decode(b"\0\x08\x05", Work()) == {"a": 5}
    assert file.decode(b"\x02\0\x08\x05", Work()) == {"a": 5}
    assert file.decode(b"\x04\x02\x02\x0a\x01x", Work()) == {"d": "x"}
    for body in (b"", b"\x02", b"\x02\x04", b"\x02\x01", b"\x01", b"\x04\x02\x04", b"\xff\xff\x03" + b"\0" * 70_000):
        with pytest.raises(Unfit):
            file.decode(body, Work())
