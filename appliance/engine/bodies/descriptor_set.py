"""Protobuf: a FileDescriptorSet, as its types. Source: the field numbers of google/protobuf/descriptor.proto."""

from __future__ import annotations

from collections.abc import Iterator

from .protobuf_types import SINT64, Field, Message, Types
from .protobuf_wire import WIRE_LENGTH, Data, bytes_of, fields_of, int_of, name_of, signed
from .work import BadSchema, Unfit

_REPEATED = 3


def types_of(described: bytes) -> Types:
    """Raises BadSchema."""
    types = Types()
    try:
        for number, wire, data in fields_of(described):
            if number == 1 and wire == WIRE_LENGTH:
                _file(types, bytes_of(data))
    except (Unfit, UnicodeDecodeError):
        raise BadSchema("it is no descriptor set of protoc, and no .proto file") from None
    return types


def _file(types: Types, data: Data) -> None:
    package, inner = "", []
    for number, wire, value in fields_of(data):
        if wire != WIRE_LENGTH:
            continue
        if number == 2:
            package = name_of(value)
        elif number in (4, 5):
            inner.append((number == 4, bytes_of(value)))
    for is_message, value in inner:
        _declare(types, is_message, value, package, 0)


def _declare(types: Types, is_message: bool, data: Data, space: str, depth: int) -> None:
    own = "".join(name_of(value) for number, wire, value in fields_of(data) if (number, wire) == (1, WIRE_LENGTH))
    name = f"{space}.{own}" if space else own
    message = types.declare(name, depth, enum=not is_message)
    if not is_message:
        values = types.enums[name]
        for number, symbol in _enum_values(types, data):
            values.setdefault(number, symbol)
        return
    for number, wire, value in fields_of(data):
        if wire != WIRE_LENGTH:
            continue
        inner = bytes_of(value)
        if number == 2:
            _field(types, message, inner)
        elif number in (3, 4):
            _declare(types, number == 3, inner, name, depth + 1)
        elif number == 7:
            message.is_entry = any(one == 7 and bool(flag) for one, _, flag in fields_of(inner))


def _enum_values(types: Types, data: Data) -> Iterator[tuple[int, str]]:
    for number, wire, value in fields_of(data):
        if (number, wire) == (2, WIRE_LENGTH):
            types.count()
            parts = {one: inner for one, _, inner in fields_of(bytes_of(value))}
            yield signed(int_of(parts.get(2, 0)), 32), name_of(parts.get(1, b""))


def _field(types: Types, message: Message, data: Data) -> None:
    types.count()
    parts = {number: value for number, _, value in fields_of(data)}
    number, kind = int_of(parts.get(3, 0)), int_of(parts.get(5, 0))
    if not 1 <= kind <= SINT64:
        raise BadSchema("a field in it has no number or an unknown type")
    of = name_of(parts.get(6, b"")).removeprefix(".")
    message.add(number, Field(name_of(parts.get(1, b"")), kind, int_of(parts.get(4, 1)) == _REPEATED, of))
