"""Avro: a schema in JSON, and the binary encoding. Source: the Avro 1.12 specification, "Schema Declaration", "Binary
Encoding" and "Logical Types".

A body is read with the schema it was written with; there is no resolution between two schemas. A union's value stands
alone, without the branch's name. bytes and fixed become base64; dates and times text as in RFC 3339, decimals exact
text; a logical type whose value has no such text stays the number it is.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec

from .work import SCHEMA_DEPTH, SCHEMA_PARTS, BadSchema, Unfit, Work, bytes_text, float_of, text_of

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
#: Bytes of a decimal that is written out; int to text takes a time that grows with the square.
_DECIMAL_BYTES = 64
_MOST_SCALE = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Logical type -> (its unit's number in a second, True for a time zone).
_TIMESTAMPS = {
    "timestamp-millis": (1000, True), "timestamp-micros": (10**6, True), "timestamp-nanos": (10**9, True),
    "local-timestamp-millis": (1000, False), "local-timestamp-micros": (10**6, False),
    "local-timestamp-nanos": (10**9, False),
}  # fmt: skip


class Node:
    """A type. fields: (name, type) of a record. symbols: of an enum. items: of an array or a map. branches: of a union.
    size: of a fixed. scale: of a decimal."""

    __slots__ = ("branches", "fields", "items", "kind", "logical", "name", "scale", "size", "symbols")

    def __init__(self, kind: str, name: str = "", logical: str = "") -> None:
        self.kind = kind
        self.name = name
        self.logical = logical
        self.fields: list[tuple[str, Node]] = []
        self.symbols: list[str] = []
        self.items: Node | None = None
        self.branches: list[Node] = []
        self.size = self.scale = 0


class AvroSchema:
    """A schema that was read. name: full name of its record, else its kind."""

    def __init__(self, text: bytes) -> None:
        """Raises BadSchema."""
        try:
            declared = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadSchema(f"it is not JSON: {str(error)[:200]}") from None
        self._named: dict[str, Node] = {}
        self._parts = 0
        self._root = self._node(declared, "", 0)
        self.name = self._root.name or self._root.kind

    def decode(self, data: bytes, work: Work) -> Any:
        """Return the value of a body, which it fills to its end, as what JSON can hold. Raises Unfit."""
        reader = _Reader(data, work)
        value = reader.read(self._root)
        if reader.at != len(data):
            raise Unfit(f"it ends after {reader.at} of {len(data)} bytes")
        return value

    def inner(self, data: bytes) -> bytes | None:
        """Return a body behind the header of the single-object encoding (C3 01 and a fingerprint), or of a registry's
        serializer (0 and an id of 4 bytes); None without one."""
        if data[:2] == b"\xc3\x01" and len(data) >= 10:
            return data[10:]
        return data[5:] if data[:1] == b"\0" and len(data) >= 5 else None

    # --- the schema

    def _node(self, declared: Any, space: str, depth: int) -> Node:
        self._parts += 1
        if self._parts > SCHEMA_PARTS:
            raise BadSchema(f"it has more than {SCHEMA_PARTS} types and fields")
        if depth > SCHEMA_DEPTH:
            raise BadSchema(f"it is nested more than {SCHEMA_DEPTH} levels deep")
        if isinstance(declared, str):
            return self._by_name(declared, space)
        if isinstance(declared, list):
            node = Node("union")
            node.branches = [self._node(one, space, depth + 1) for one in declared]
            if not declared or any(one.kind == "union" for one in node.branches):
                raise BadSchema("a union has no types, or has a union in it")
            return node
        if not isinstance(declared, dict):
            raise BadSchema("a type is a name, a list or an object")
        kind = declared.get("type")
        if isinstance(kind, dict | list):
            return self._node(kind, space, depth + 1)
        if not isinstance(kind, str):
            raise BadSchema("an object in it has no “type”")
        if kind in ("array", "map"):
            node = Node(kind)
            node.items = self._node(declared.get("items" if kind == "array" else "values"), space, depth + 1)
            return node
        if kind in ("record", "error", "enum", "fixed"):
            return self._named_node(declared, kind, space, depth)
        node = self._by_name(kind, space)
        return _logical(Node(kind), declared) if node.kind in _PRIMITIVES else node

    def _by_name(self, name: str, space: str) -> Node:
        if name in _PRIMITIVES:
            return Node(name)
        node = self._named.get(_full_name(name, space)) or self._named.get(name)
        if node is None:
            raise BadSchema(f"the type {name[:200]} is used before it is declared")
        return node

    def _named_node(self, declared: dict[str, Any], kind: str, space: str, depth: int) -> Node:
        name, own = declared.get("name"), declared.get("namespace")
        if not isinstance(name, str) or not name or not isinstance(own, str | None):
            raise BadSchema(f"a type “{kind}” has no name")
        full = _full_name(name, space if own is None else own)
        if full in self._named:
            raise BadSchema(f"the type {full[:200]} is declared twice")
        node = self._named[full] = Node("record" if kind == "error" else kind, full)
        if kind == "enum":
            node.symbols = _texts(declared.get("symbols"), full)
        elif kind == "fixed":
            size = declared.get("size")
            if type(size) is not int or size < 0:
                raise BadSchema(f"the type {full[:200]} has no size")
            node.size = size
            _logical(node, declared)
        else:
            fields = declared.get("fields")
            if not isinstance(fields, list) or not all(isinstance(one, dict) for one in fields):
                raise BadSchema(f"the record {full[:200]} has no list of fields")
            inner = full.rpartition(".")[0]
            names = _texts([one.get("name") for one in fields], full)
            types = [self._node(one.get("type"), inner, depth + 1) for one in fields]
            node.fields = list(zip(names, types, strict=True))
        return node


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _texts(found: Any, name: str) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise BadSchema(f"the names in {name[:200]} must be texts")
    if len(set(found)) != len(found):
        raise BadSchema(f"{name[:200]} has a name twice")
    return found


def _logical(node: Node, declared: dict[str, Any]) -> Node:
    """Note a logical type; an unknown or wrong one is left out, as the specification says."""
    logical, scale = declared.get("logicalType"), declared.get("scale", 0)
    if not isinstance(logical, str):
        return node
    if logical == "decimal":
        if node.kind in ("bytes", "fixed") and type(scale) is int and 0 <= scale <= _MOST_SCALE:
            node.logical, node.scale = logical, scale
    elif (
        (logical in _TIMESTAMPS and node.kind == "long")
        or (logical in ("date", "time-millis") and node.kind == "int")
        or (logical == "time-micros" and node.kind == "long")
        or (logical == "uuid" and node.kind == "fixed" and node.size == 16)
    ):
        node.logical = logical
    return node


class _Reader:
    """Reads one body. at: position of the next byte."""

    def __init__(self, data: bytes, work: Work) -> None:
        self._data = data
        self._work = work
        self.at = 0

    def read(self, node: Node) -> Any:
        return _READ[node.kind](self, node)

    def _take(self, size: int) -> bytes:
        if size < 0 or size > len(self._data) - self.at:
            raise Unfit(f"it ends too early, at byte {len(self._data)}")
        self.at += size
        return self._data[self.at - size : self.at]

    def _number(self, bits: int) -> int:
        """Read a zigzag number of variable length."""
        data, at, found, shift = self._data, self.at, 0, 0
        while True:
            if at >= len(data):
                raise Unfit(f"it ends too early, at byte {at}")
            byte = data[at]
            at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise Unfit(f"the number at byte {self.at} is too long")
        if found >> bits:
            raise Unfit(f"the number at byte {self.at} has more than {bits} bits")
        self.at = at
        return (found >> 1) ^ -(found & 1)

    def _null(self, node: Node) -> None:
        self._work.value()

    def _boolean(self, node: Node) -> bool:
        self._work.value()
        found = self._take(1)[0]
        if found > 1:
            raise Unfit(f"byte {self.at - 1} is neither true nor false")
        return found == 1

    def _int(self, node: Node) -> Any:
        self._work.value(20)
        number = self._number(32)
        return _moment(node.logical, number) if node.logical else number

    def _long(self, node: Node) -> Any:
        self._work.value(32)
        number = self._number(64)
        return _moment(node.logical, number) if node.logical else number

    def _float(self, node: Node) -> Any:
        self._work.value(20)
        return float_of(struct.unpack("<f", self._take(4))[0], single=True)

    def _double(self, node: Node) -> Any:
        self._work.value(24)
        return float_of(struct.unpack("<d", self._take(8))[0])

    def _bytes(self, node: Node) -> str:
        return self._shown(node, self._take(self._number(64)))

    def _fixed(self, node: Node) -> str:
        return self._shown(node, self._take(node.size))

    def _shown(self, node: Node, data: bytes) -> str:
        if node.logical == "decimal" and len(data) <= _DECIMAL_BYTES:
            self._work.value(3 * len(data) + node.scale)
            return _decimal(int.from_bytes(data, "big", signed=True), node.scale)
        if node.logical == "uuid":
            self._work.value(36)
            return str(uuid.UUID(bytes=data))
        return bytes_text(data, self._work)

    def _string(self, node: Node) -> str:
        return text_of(self._take(self._number(64)), self._work)

    def _enum(self, node: Node) -> str:
        number = self._number(32)
        if not 0 <= number < len(node.symbols):
            raise Unfit(f"{node.name} has no symbol {number}")
        self._work.value(len(node.symbols[number]))
        return node.symbols[number]

    def _union(self, node: Node) -> Any:
        number = self._number(32)
        if not 0 <= number < len(node.branches):
            raise Unfit(f"a union has no type {number}, at byte {self.at}")
        return self.read(node.branches[number])

    def _record(self, node: Node) -> dict[str, Any]:
        work = self._work
        work.value()
        work.deeper()
        found = {}
        for name, inner in node.fields:
            work.chars -= len(name)
            found[name] = self.read(inner)
        work.depth -= 1
        return found

    def _array(self, node: Node) -> list[Any]:
        found: list[Any] = []
        self._blocks(node, lambda items: found.append(self.read(items)))
        return found

    def _map(self, node: Node) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def entry(items: Node) -> None:
            key = text_of(self._take(self._number(64)), self._work)
            found[key] = self.read(items)

        self._blocks(node, entry)
        return found

    def _blocks(self, node: Node, take: Callable[[Node], None]) -> None:
        """Read the blocks of an array or a map. A negative number of items comes with the block's size in bytes."""
        assert node.items is not None
        self._work.value()
        self._work.deeper()
        while count := self._number(64):
            if count < 0:
                count, size = -count, self._number(64)
                if not 0 <= size <= len(self._data) - self.at:
                    raise Unfit(f"it ends too early, at byte {len(self._data)}")
            for _ in range(min(count, self._work.values + 1)):
                take(node.items)
        self._work.depth -= 1


_READ: dict[str, Callable[[_Reader, Node], Any]] = {
    "null": _Reader._null, "boolean": _Reader._boolean, "int": _Reader._int, "long": _Reader._long,
    "float": _Reader._float, "double": _Reader._double, "bytes": _Reader._bytes, "string": _Reader._string,
    "fixed": _Reader._fixed, "enum": _Reader._enum, "union": _Reader._union, "record": _Reader._record,
    "array": _Reader._array, "map": _Reader._map,
}  # fmt: skip


def _decimal(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    whole, part = (digits[:-scale], digits[-scale:]) if scale else (digits, "")
    return ("-" if number < 0 else "") + whole + (f".{part}" if part else "")


def _moment(logical: str, number: int) -> Any:
    """Return a date or time as text; one that no calendar has stays a number."""
    try:
        if logical == "date":
            return (date(1970, 1, 1) + timedelta(days=number)).isoformat()
        if logical in ("time-millis", "time-micros"):
            unit = 1000 if logical == "time-millis" else 10**6
            if not 0 <= number < 86_400 * unit:
                return number
            return _clock(datetime.min, number, unit).partition("T")[2]
        unit, zoned = _TIMESTAMPS[logical]
        return _clock(_EPOCH.replace(tzinfo=None), number, unit) + ("Z" if zoned else "")
    except (OverflowError, ValueError):
        return number


def _clock(begin: datetime, number: int, unit: int) -> str:
    seconds, part = divmod(number, unit)
    return f"{(begin + timedelta(seconds=seconds)).isoformat()}.{part:0{len(str(unit)) - 1}d}"
