"""Records bodies that Avro's and Protobuf's own libraries encode, as tests/golden/bodies/*.json. Run by hand, in an
environment with fastavro (1.13), protobuf (7.36) and grpcio-tools:

    python tests/support/bodies/record.py tests/golden/bodies
"""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

AVRO = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "customer", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "gift", "type": "boolean"},
        {"name": "weight", "type": "float"},
        {"name": "ratio", "type": "double"},
        {"name": "token", "type": "bytes"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": "State"},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 3}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [
                {"name": "article", "type": "string"}, {"name": "more", "type": ["null", "shop.Line"]}]}}},
        {"name": "stock", "type": {"type": "map", "values": ["int", "string"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "exactly", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "opens", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "trace", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip
ORDER = {
    "id": "Ä-17", "customer": -(1 << 63), "count": 2**31 - 1, "gift": True, "weight": 0.1, "ratio": -2.5,
    "token": b"\x00\xff", "note": "paid", "state": "PAID", "before": "NEW", "mark": b"abc",
    "lines": [{"article": "tea", "more": {"article": "cup", "more": None}}, {"article": "", "more": None}],
    "stock": {"a": -64, "b": "none"}, "price": decimal.Decimal("-12.05"), "day": datetime.date(1969, 12, 31),
    "at": datetime.datetime(2026, 11, 29, 12, 0, 0, 5000, tzinfo=datetime.UTC),
    "exactly": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC),
    "opens": datetime.time(8, 30, 0, 7000), "trace": uuid.UUID(int=7),
}  # fmt: skip
ORDER_SHOWN = ORDER | {
    "token": "AP8=", "mark": "YWJj", "price": "-12.05", "day": "1969-12-31", "at": "2026-11-29T12:00:00.005Z",
    "exactly": "1969-12-31T23:59:59.999999Z", "opens": "08:30:00.007", "trace": str(uuid.UUID(int=7)),
}  # fmt: skip
SIMPLE = [
    ("null", None), ("boolean", False), ("int", -1), ("long", 2**63 - 1), ("string", ""), ("string", "x" * 200),
    ({"type": "array", "items": "null"}, [None, None, None]), ({"type": "map", "values": "long"}, {}),
    (["string", "null"], None), ({"type": "int", "logicalType": "unknown"}, 5),
]  # fmt: skip

PROTO = """syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
enum State { NEW = 0; PAID = 1; }
message Line { string article = 1; sint32 count = 2; double price = 3; }
message Order {
  string id = 1;
  int64 customer = 2;
  State state = 3;
  repeated Line lines = 4;
  repeated int32 codes = 5;
  map<string, int32> stock = 6;
  oneof pay { string card = 7; bytes token = 8; }
  google.protobuf.Timestamp at = 9;
  optional float weight = 10;
  fixed64 big = 11;
  sfixed32 small = 12;
  bool gift = 13;
  uint32 u = 14;
  sint64 s = 15;
  uint64 uu = 16;
  int32 minus = 17;
  message Note { string text = 1; Order about = 2; }
  Note note = 18;
  repeated State states = 19;
  map<bool, Line> by_gift = 20;
}
"""
OLD = """syntax = "proto2";
package old;
message Box {
  required int32 id = 1;
  repeated int32 loose = 2;
  repeated int32 packed = 3 [packed = true];
  optional group Part = 4 { optional string name = 5; }
  extensions 100 to 200;
}
"""


def _encoded(schema: object, value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def _avro() -> list[dict[str, object]]:
    cases = [(AVRO, ORDER, ORDER_SHOWN), *((schema, value, value) for schema, value in SIMPLE)]
    return [{"schema": schema, "body": _encoded(schema, value).hex(), "shown": shown} for schema, value, shown in cases]


def _described(text: str, *options: str) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        Path(place, "it.proto").write_text(text)
        made = [sys.executable, "-m", "grpc_tools.protoc", f"-I{place}", *options, f"--descriptor_set_out={place}/it"]
        subprocess.run([*made, "it.proto"], check=True)
        return Path(place, "it").read_bytes()


def _message(described: bytes, name: str) -> object:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(described).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()


def _protobuf() -> dict[str, object]:
    shop, old = _described(PROTO, "--include_imports"), _described(OLD)
    order = _message(shop, "shop.v1.Order")
    order.id, order.customer, order.state, order.token, order.weight = "Ä-17", -(1 << 63), 1, b"\x00\xff", 0.1
    order.lines.add(article="tea", count=-3, price=2.5)
    order.lines.add()
    order.codes.extend([1, -1, 300])
    order.stock["a"] = -64
    order.at.seconds, order.at.nanos = 1795953600, 5_000_000
    order.big, order.small, order.gift, order.u, order.s, order.uu, order.minus = 2**64 - 1, -5, True, 7, -9, 2**63, -1
    order.note.text, order.note.about.id = "again", "inner"
    order.states.extend([1, 0])
    order.by_gift[True].article = "bow"
    box = _message(old, "old.Box")
    box.id, box.part.name = 5, "lid"
    box.loose.extend([1, 2])
    box.packed.extend([3, -4])
    shown = {
        "id": "Ä-17", "customer": -(1 << 63), "state": "PAID", "token": "AP8=", "weight": 0.1,
        "lines": [{"article": "tea", "count": -3, "price": 2.5}, {}], "codes": [1, -1, 300], "stock": {"a": -64},
        "at": {"seconds": 1795953600, "nanos": 5_000_000}, "big": 2**64 - 1, "small": -5, "gift": True, "u": 7,
        "s": -9, "uu": 2**63, "minus": -1, "note": {"text": "again", "about": {"id": "inner"}},
        "states": ["PAID", "NEW"], "by_gift": {"true": {"article": "bow"}},
    }  # fmt: skip
    old_shown = {"id": 5, "loose": [1, 2], "packed": [3, -4], "part": {"name": "lid"}}
    return {
        "shop": base64.b64encode(shop).decode(),
        "shop_without_imports": base64.b64encode(_described(PROTO)).decode(),
        "old": base64.b64encode(old).decode(),
        "texts": {"shop": PROTO, "old": OLD},
        "cases": [
            {"set": "shop", "message": "shop.v1.Order", "body": order.SerializeToString().hex(), "shown": shown},
            {"set": "old", "message": "old.Box", "body": box.SerializeToString().hex(), "shown": old_shown},
        ],
    }


if __name__ == "__main__":
    to = Path(sys.argv[1])
    (to / "avro.json").write_text(json.dumps(_avro(), ensure_ascii=False, indent=1) + "\n")
    (to / "protobuf.json").write_text(json.dumps(_protobuf(), ensure_ascii=False, indent=1) + "\n")
