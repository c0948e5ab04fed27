"""Protobuf: bodies, read by the types of a schema.

The value has the names of the .proto file, enums by name, bytes as base64, numbers as numbers, and only the fields that
are there. Fields that the message does not declare are shown as "?7", as Protobuf keeps them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from .protobuf_types import (
    BOOL,
    BYTES,
    DOUBLE,
    ENUM,
    FIXED32,
    FIXED64,
    FLOAT,
    GROUP,
    INT32,
    INT64,
    MESSAGE,
    SFIXED32,
    SFIXED64,
    SINT32,
    SINT64,
    STRING,
    UINT32,
    UINT64,
    Field,
    Message,
    Types,
)
from .protobuf_wire import (
    WIRE_FIXED32,
    WIRE_FIXED64,
    WIRE_GROUP,
    WIRE_LENGTH,
    WIRE_VARINT,
    Data,
    bytes_of,
    fields_of,
    int_of,
    signed,
    varint,
    zigzag,
)
from .work import SCHEMA_DEPTH, BadSchema, Unfit, Work, bytes_text, float_of, text_of

_WIRE = {
    **dict.fromkeys((INT64, UINT64, INT32, BOOL, UINT32, ENUM, SINT32, SINT64), WIRE_VARINT),
    **dict.fromkeys((DOUBLE, FIXED64, SFIXED64), WIRE_FIXED64),
    **dict.fromkeys((FLOAT, FIXED32, SFIXED32), WIRE_FIXED32),
    **dict.fromkeys((STRING, MESSAGE, BYTES), WIRE_LENGTH),
    GROUP: WIRE_GROUP,
}
_FORMATS = {DOUBLE: "<d", FIXED64: "<Q", SFIXED64: "<q", FLOAT: "<f", FIXED32: "<I", SFIXED32: "<i"}


class ProtobufSchema:
    """The message `name` of a FileDescriptorSet, or of a .proto file's text."""

    def __init__(self, described: bytes, message: str) -> None:
        """message: its full name; may be empty for a text with one message at its top. Raises BadSchema."""
        from .proto_text import ProtoText, is_text

        self.name = message.strip().removeprefix(".")
        if is_text(described):
            text = ProtoText(described)
            types = text.types
            if not self.name and len(text.roots) == 1:
                self.name = text.roots[0]
        else:
            from .descriptor_set import types_of

            types = types_of(described)
        if not types.messages:
            raise BadSchema("there is no message in it")
        if self.name not in types.messages:
            there = [name for name, one in types.messages.items() if not one.is_entry]
            raise BadSchema(f"name a message in it, such as {', '.join(sorted(there)[:5])}"[:300])
        missing = types.missing(self.name)
        if missing is not None:
            raise BadSchema(f"{missing[:200]} is missing; make the descriptor set with --include_imports")
        self._values = _Values(types)

    def decode(self, data: bytes, work: Work) -> dict[str, Any]:
        """Return the value of a body as what JSON can hold. Raises Unfit, also if the message declares none of its
        fields: nearly any bytes can be read as fields."""
        found: dict[str, Any] = {}
        # Parts of a view are no copies: 64 nested messages would be as many of most of the body.
        known = self._values.read(self.name, memoryview(data), work, found)
        if data and not known:
            raise Unfit("it has no field of the message")
        return found

    def inner(self, data: bytes) -> bytes | None:
        """Return a body behind the header of a registry's serializer: 0, an id of 4 bytes, and the indexes that lead to
        the message, or a 0 for the first message; None without one."""
        if data[:1] != b"\0" or len(data) < 6:
            return None
        try:
            count, at = varint(data, 5)
            for _ in range(min(zigzag(count), SCHEMA_DEPTH)):
                _, at = varint(data, at)
        except Unfit:
            return None
        return data[at:]


class ProtobufFile:
    """A .proto file's text in a schema registry. The bodies say by numbers which of its messages they are."""

    def __init__(self, text: bytes) -> None:
        """Raises BadSchema."""
        from .proto_text import ProtoText

        file = ProtoText(text)
        self._roots, self._within = file.roots, file.within
        self._values = _Values(file.types)

    def decode(self, data: bytes, work: Work) -> dict[str, Any]:
        """Return the value of a body behind the schema's id: the number of indexes and these, or a 0 for the first
        message; then the message. Raises Unfit."""
        count, at = varint(data, 0)
        indexes = [0]
        if count:
            indexes = []
            if not 1 <= zigzag(count) <= SCHEMA_DEPTH:
                raise Unfit("it does not say which message of its schema it is")
            for _ in range(zigzag(count)):
                index, at = varint(data, at)
                indexes.append(zigzag(index))
        name, there = "", self._roots
        for index in indexes:
            if not 0 <= index < len(there):
                raise Unfit("its schema has no message of this number")
            name = there[index]
            there = self._within.get(name, [])
        found: dict[str, Any] = {}
        self._values.read(name, memoryview(data)[at:], work, found)
        return found


class _Values:
    """Reads bodies by the types of a schema."""

    def __init__(self, types: Types) -> None:
        self._messages = types.messages
        self._enums = types.enums

    def read(self, name: str, data: Data, work: Work, found: dict[str, Any]) -> int:
        """Read a message into `found`; return the number of fields that it declares. Raises Unfit."""
        return self._message(self._messages[name], data, work, found)

    def _message(self, message: Message, data: Data, work: Work, found: dict[str, Any]) -> int:
        """Read the fields of a message into `found`; return the number of those that it declares."""
        work.value()
        work.deeper()
        known = 0
        for number, wire, value in fields_of(data, work):
            field = message.fields.get(number)
            if field is None:
                work.value(12)
                found[f"?{number}"] = value if isinstance(value, int) else bytes_text(value, work)
                continue
            known += 1
            work.chars -= len(field.name)
            packed = (
                wire == WIRE_LENGTH
                and field.repeated
                and _WIRE[field.type] in (WIRE_VARINT, WIRE_FIXED64, WIRE_FIXED32)
            )
            if wire != _WIRE[field.type] and not packed:
                raise Unfit(f"field {number}, {field.name[:100]}, is of another type")
            inner = self._messages.get(field.of) if field.type == MESSAGE else None
            if packed:
                found.setdefault(field.name, []).extend(self._packed(field, bytes_of(value), work))
            elif inner is not None and inner.is_entry and field.repeated:
                key, one = self._entry(inner, bytes_of(value), work)
                found.setdefault(field.name, {})[key] = one
            elif field.repeated:
                found.setdefault(field.name, []).append(self._value(field, value, work, {}))
            else:
                found[field.name] = self._value(field, value, work, found.get(field.name))
        work.depth -= 1
        return known

    def _value(self, field: Field, value: int | Data, work: Work, before: Any) -> Any:
        """Return the value of a field. before: what an earlier one of the same message had; messages are merged."""
        if field.type in (MESSAGE, GROUP):
            merged = before if isinstance(before, dict) else {}
            self._message(self._messages[field.of], bytes_of(value), work, merged)
            return merged
        if field.type == STRING:
            return text_of(bytes_of(value), work)
        if field.type == BYTES:
            return bytes_text(bytes_of(value), work)
        work.value(20)
        return self._scalar(field, value, work)

    def _scalar(self, field: Field, value: int | Data, work: Work) -> Any:
        kind = field.type
        if kind in _FORMATS:
            number = struct.unpack(_FORMATS[kind], bytes_of(value))[0]
            return float_of(number, kind == FLOAT) if kind in (DOUBLE, FLOAT) else number
        number = int_of(value)
        if kind == ENUM:
            value = signed(number, 32)
            name = self._enums[field.of].get(value, value)
            work.chars -= len(name) if isinstance(name, str) else 0
            return name
        if kind == BOOL:
            return number != 0
        if kind in (SINT32, SINT64):
            return zigzag(number & 0xFFFF_FFFF if kind == SINT32 else number)
        if kind in (INT32, INT64):
            return signed(number, 32 if kind == INT32 else 64)
        return number & 0xFFFF_FFFF if kind == UINT32 else number

    def _packed(self, field: Field, data: Data, work: Work) -> Iterator[Any]:
        size = {WIRE_FIXED64: 8, WIRE_FIXED32: 4}.get(_WIRE[field.type], 0)
        if size and len(data) % size:
            raise Unfit(f"the numbers of {field.name[:100]} are cut")
        at = 0
        while at < len(data):
            work.value(20)
            value: int | Data
            if size:
                value, at = data[at : at + size], at + size
            else:
                value, at = varint(data, at)
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
        if field.type == MESSAGE:
            return {}
        if field.type in (STRING, BYTES):
            return ""
        if field.type == ENUM:
            return self._enums[field.of].get(0, 0)
        return False if field.type == BOOL else 0
