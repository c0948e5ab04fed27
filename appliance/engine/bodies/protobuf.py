"""Protobuf: a FileDescriptorSet, and messages in the binary encoding. Source: protobuf.dev "Encoding", and the field
numbers of google/protobuf/descriptor.proto.

The value has the names of the .proto file, enums by name, bytes as base64, numbers as numbers, and only the fields that
are there. Fields that the message does not declare are shown as "?7", as Protobuf keeps them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from .work import SCHEMA_DEPTH, SCHEMA_PARTS, BadSchema, Unfit, Work, bytes_text, float_of, text_of

# Wire types.
_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
# FieldDescriptorProto.Type.
(_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64_TYPE, _FIXED32_TYPE, _BOOL, _STRING, _GROUP_TYPE, _MESSAGE, _BYTES,
 _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64) = range(1, 19)  # fmt: skip
_REPEATED = 3
_WIRE = {
    **dict.fromkeys((_INT64, _UINT64, _INT32, _BOOL, _UINT32, _ENUM, _SINT32, _SINT64), _VARINT),
    **dict.fromkeys((_DOUBLE, _FIXED64_TYPE, _SFIXED64), _FIXED64),
    **dict.fromkeys((_FLOAT, _FIXED32_TYPE, _SFIXED32), _FIXED32),
    **dict.fromkeys((_STRING, _MESSAGE, _BYTES), _LENGTH),
    _GROUP_TYPE: _GROUP,
}
_FORMATS = {_DOUBLE: "<d", _FIXED64_TYPE: "<Q", _SFIXED64: "<q", _FLOAT: "<f", _FIXED32_TYPE: "<I", _SFIXED32: "<i"}
_MOST_NUMBER = (1 << 29) - 1

Data: TypeAlias = bytes | memoryview


class Field(NamedTuple):
    """A field of a message. of: full name of its message or enum."""

    name: str
    type: int
    repeated: bool
    of: str


class Message:
    """A message type. fields: by number. names: of its fields. is_entry: it is an entry of a map."""

    __slots__ = ("fields", "is_entry", "names")

    def __init__(self) -> None:
        self.fields: dict[int, Field] = {}
        self.names: set[str] = set()
        self.is_entry = False


class ProtobufSchema:
    """The message `name` of a FileDescriptorSet."""

    def __init__(self, described: bytes, message: str) -> None:
        """Raises BadSchema."""
        self._messages: dict[str, Message] = {}
        self._enums: dict[str, dict[int, str]] = {}
        self._parts = 0
        try:
            for number, wire, data in _fields(described):
                if number == 1 and wire == _LENGTH:
                    self._file(_bytes(data))
        except (Unfit, UnicodeDecodeError):
            raise BadSchema("it is no descriptor set of protoc") from None
        if not self._messages:
            raise BadSchema("there is no message in this descriptor set")
        self.name = message.strip().removeprefix(".")
        if self.name not in self._messages:
            there = [name for name, one in self._messages.items() if not one.is_entry]
            raise BadSchema(f"name a message in it, such as {', '.join(sorted(there)[:5])}"[:300])
        self._check_reachable(self.name)

    def decode(self, data: bytes, work: Work) -> dict[str, Any]:
        """Return the value of a body as what JSON can hold. Raises Unfit, also if the message declares none of its
        fields: nearly any bytes can be read as fields."""
        found: dict[str, Any] = {}
        # Parts of a view are no copies: 64 nested messages would be as many of most of the body.
        known = self._message(self._messages[self.name], memoryview(data), work, found)
        if data and not known:
            raise Unfit("it has no field of the message")
        return found

    def inner(self, data: bytes) -> bytes | None:
        """Return a body behind the header of a registry's serializer: 0, an id of 4 bytes, and the indexes that lead to
        the message, or a 0 for the first message; None without one."""
        if data[:1] != b"\0" or len(data) < 6:
            return None
        try:
            count, at = _varint(data, 5)
            for _ in range(min(_zigzag(count), SCHEMA_DEPTH)):
                _, at = _varint(data, at)
        except Unfit:
            return None
        return data[at:]

    # --- the schema

    def _file(self, data: Data) -> None:
        package, inner = "", []
        for number, wire, value in _fields(data):
            if wire != _LENGTH:
                continue
            if number == 2:
                package = _name(value)
            elif number in (4, 5):
                inner.append((number == 4, _bytes(value)))
        for is_message, value in inner:
            self._declare(is_message, value, package, 0)

    def _count(self) -> None:
        self._parts += 1
        if self._parts > SCHEMA_PARTS:
            raise BadSchema(f"it has more than {SCHEMA_PARTS} types and fields")

    def _declare(self, is_message: bool, data: Data, space: str, depth: int) -> None:
        self._count()
        if depth > SCHEMA_DEPTH:
            raise BadSchema(f"it is nested more than {SCHEMA_DEPTH} levels deep")
        own = "".join(_name(value) for number, wire, value in _fields(data) if (number, wire) == (1, _LENGTH))
        name = f"{space}.{own}" if space else own
        if name in self._messages or name in self._enums:
            raise BadSchema(f"the type {name[:200]} is declared twice")
        if not is_message:
            values = self._enums[name] = {}
            for number, symbol in self._enum_values(data):
                values.setdefault(number, symbol)
            return
        message = self._messages[name] = Message()
        for number, wire, value in _fields(data):
            if wire != _LENGTH:
                continue
            inner = _bytes(value)
            if number == 2:
                self._field(message, inner)
            elif number in (3, 4):
                self._declare(number == 3, inner, name, depth + 1)
            elif number == 7:
                message.is_entry = any(one == 7 and bool(flag) for one, _, flag in _fields(inner))

    def _enum_values(self, data: Data) -> Iterator[tuple[int, str]]:
        for number, wire, value in _fields(data):
            if (number, wire) == (2, _LENGTH):
                self._count()
                parts = {one: inner for one, _, inner in _fields(_bytes(value))}
                yield _signed(_int(parts.get(2, 0)), 32), _name(parts.get(1, b""))

    def _field(self, message: Message, data: Data) -> None:
        self._count()
        parts = {number: value for number, _, value in _fields(data)}
        number, kind = _int(parts.get(3, 0)), _int(parts.get(5, 0))
        if kind not in _WIRE or not 1 <= number <= _MOST_NUMBER:
            raise BadSchema("a field in it has no number or an unknown type")
        of = _name(parts.get(6, b"")).removeprefix(".")
        name = _name(parts.get(1, b""))
        if not (name.isascii() and name.isidentifier()):  # "?7" is a field without a name
            raise BadSchema(f"the field “{name[:200]}” has no name of Protobuf's")
        if number in message.fields or name in message.names:
            raise BadSchema(f"the field {name[:200]} is declared twice")
        message.names.add(name)
        message.fields[number] = Field(name, kind, _int(parts.get(4, 1)) == _REPEATED, of)

    def _check_reachable(self, name: str) -> None:
        """Raise BadSchema if a type that the message can hold is not there."""
        seen, left = {name}, [name]
        while left:
            for field in self._messages[left.pop()].fields.values():
                known = self._enums if field.type == _ENUM else self._messages
                if field.type in (_MESSAGE, _GROUP_TYPE, _ENUM) and field.of not in known:
                    raise BadSchema(f"{field.of[:200]} is missing; make the descriptor set with --include_imports")
                if field.type in (_MESSAGE, _GROUP_TYPE) and field.of not in seen:
                    seen.add(field.of)
                    left.append(field.of)

    # --- a body

    def _message(self, message: Message, data: Data, work: Work, found: dict[str, Any]) -> int:
        """Read the fields of a message into `found`; return the number of those that it declares."""
        work.value()
        work.deeper()
        known = 0
        for number, wire, value in _fields(data, work):
            field = message.fields.get(number)
            if field is None:
                work.value(12)
                found[f"?{number}"] = value if isinstance(value, int) else bytes_text(value, work)
                continue
            known += 1
            work.chars -= len(field.name)
            packed = wire == _LENGTH and field.repeated and _WIRE[field.type] in (_VARINT, _FIXED64, _FIXED32)
            if wire != _WIRE[field.type] and not packed:
                raise Unfit(f"field {number}, {field.name[:100]}, is of another type")
            inner = self._messages.get(field.of) if field.type == _MESSAGE else None
            if packed:
                found.setdefault(field.name, []).extend(self._packed(field, _bytes(value), work))
            elif inner is not None and inner.is_entry and field.repeated:
                key, one = self._entry(inner, _bytes(value), work)
                found.setdefault(field.name, {})[key] = one
            elif field.repeated:
                found.setdefault(field.name, []).append(self._value(field, value, work, {}))
            else:
                found[field.name] = self._value(field, value, work, found.get(field.name))
        work.depth -= 1
        return known

    def _value(self, field: Field, value: int | Data, work: Work, before: Any) -> Any:
        """Return the value of a field. before: what an earlier one of the same message had; messages are merged."""
        if field.type in (_MESSAGE, _GROUP_TYPE):
            merged = before if isinstance(before, dict) else {}
            self._message(self._messages[field.of], _bytes(value), work, merged)
            return merged
        if field.type == _STRING:
            return text_of(_bytes(value), work)
        if field.type == _BYTES:
            return bytes_text(_bytes(value), work)
        work.value(20)
        return self._scalar(field, value, work)

    def _scalar(self, field: Field, value: int | Data, work: Work) -> Any:
        kind = field.type
        if kind in _FORMATS:
            number = struct.unpack(_FORMATS[kind], _bytes(value))[0]
            return float_of(number, kind == _FLOAT) if kind in (_DOUBLE, _FLOAT) else number
        number = _int(value)
        if kind == _ENUM:
            signed = _signed(number, 32)
            name = self._enums[field.of].get(signed, signed)
            work.chars -= len(name) if isinstance(name, str) else 0
            return name
        if kind == _BOOL:
            return number != 0
        if kind in (_SINT32, _SINT64):
            return _zigzag(number & 0xFFFF_FFFF if kind == _SINT32 else number)
        if kind in (_INT32, _INT64):
            return _signed(number, 32 if kind == _INT32 else 64)
        return number & 0xFFFF_FFFF if kind == _UINT32 else number

    def _packed(self, field: Field, data: Data, work: Work) -> Iterator[Any]:
        size = {_FIXED64: 8, _FIXED32: 4}.get(_WIRE[field.type], 0)
        if size and len(data) % size:
            raise Unfit(f"the numbers of {field.name[:100]} are cut")
        at = 0
        while at < len(data):
            work.value(20)
            value: int | Data
            if size:
                value, at = data[at : at + size], at + size
            else:
                value, at = _varint(data, at)
            yield self._scalar(field, value, work)

    def _entry(self, entry: Message, data: Data, work: Work) -> tuple[str, Any]:
        """Return (key as text, value) of an entry of a map; what it leaves out has the default."""
        found: dict[str, Any] = {}
        self._message(entry, data, work, found)
        key, value = entry.fields.get(1), entry.fields.get(2)
        if key is None or value is None:
            raise Unfit("a map in its schema has no key or value")
        of_key = found.get(key.name, self._default(key))
        text = str(of_key).lower() if isinstance(of_key, bool) else str(of_key)
        return text, found.get(value.name, self._default(value))

    def _default(self, field: Field) -> Any:
        if field.type == _MESSAGE:
            return {}
        if field.type in (_STRING, _BYTES):
            return ""
        if field.type == _ENUM:
            return self._enums[field.of].get(0, 0)
        return False if field.type == _BOOL else 0


def _fields(data: Data, work: Work | None = None) -> Iterator[tuple[int, int, int | Data]]:
    """Yield (number, wire type, value) of each field: an int, or a part of `data`, of a group that within. work: counts
    the fields of groups. Raises Unfit."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not 1 <= number <= _MOST_NUMBER:
            raise Unfit(f"there is no field {number}, at byte {at}")
        begin = at
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == _GROUP:
            inner, at = _group(data, at, number, work)
            yield number, wire, data[begin:inner]
            continue
        if wire == _LENGTH:
            size, begin = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise Unfit(f"byte {at - 1} begins no field")
        at = begin + size
        if at > len(data):
            raise Unfit(f"it ends too early, at byte {len(data)}")
        yield number, wire, data[begin:at]


def _group(data: Data, at: int, number: int, work: Work | None) -> tuple[int, int]:
    """Return (end of the bytes within a group, position behind it). Groups in it are skipped."""
    opened = [number]
    while True:
        if work is not None:
            work.value()
        before = at
        tag, at = _varint(data, at)
        found, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            _, at = _varint(data, at)
        elif wire == _GROUP:
            opened.append(found)
        elif wire == _GROUP_END:
            if opened.pop() != found:
                raise Unfit("a group in it has another end")
            if not opened:
                return before, at
        elif wire == _LENGTH:
            size, at = _varint(data, at)
            at += size
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise Unfit(f"byte {before} begins no field")
        if at > len(data):
            raise Unfit(f"it ends too early, at byte {len(data)}")


def _varint(data: Data, at: int) -> tuple[int, int]:
    found = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & 0xFFFF_FFFF_FFFF_FFFF, place + 1
        shift += 7
    raise Unfit(f"it ends too early, at byte {at}" if at + 10 > len(data) else f"the number at byte {at} is too long")


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def _zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _int(value: int | Data) -> int:
    if not isinstance(value, int):
        raise Unfit("a number in it is of another type")
    return value


def _bytes(value: int | Data) -> Data:
    if isinstance(value, int):
        raise Unfit("a text in it is of another type")
    return value


def _name(value: int | Data) -> str:
    return str(_bytes(value), "utf-8")
