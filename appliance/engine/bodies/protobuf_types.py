"""The types of a Protobuf schema, however they are declared: in a descriptor set, or in the text of a .proto file.
Numbers are those of google/protobuf/descriptor.proto."""

from __future__ import annotations

from typing import NamedTuple

from .work import NAME_CHARS, NAME_PARTS, SCHEMA_DEPTH, SCHEMA_PARTS, BadSchema

# FieldDescriptorProto.Type.
(DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64, FIXED32, BOOL, STRING, GROUP, MESSAGE, BYTES,
 UINT32, ENUM, SFIXED32, SFIXED64, SINT32, SINT64) = range(1, 19)  # fmt: skip
#: The types that are no types of their own, as a .proto file names them.
SCALARS = {
    "double": DOUBLE, "float": FLOAT, "int64": INT64, "uint64": UINT64, "int32": INT32, "fixed64": FIXED64,
    "fixed32": FIXED32, "bool": BOOL, "string": STRING, "bytes": BYTES, "uint32": UINT32, "sfixed32": SFIXED32,
    "sfixed64": SFIXED64, "sint32": SINT32, "sint64": SINT64,
}  # fmt: skip
MOST_NUMBER = (1 << 29) - 1


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

    def add(self, number: int, field: Field) -> None:
        """Raises BadSchema."""
        if not 1 <= number <= MOST_NUMBER:
            raise BadSchema("a field in it has no number or an unknown type")
        if not (field.name.isascii() and field.name.isidentifier()):  # "?7" is a field without a name
            raise BadSchema(f"the field “{field.name[:200]}” has no name of Protobuf's")
        if number in self.fields or field.name in self.names:
            raise BadSchema(f"the field {field.name[:200]} is declared twice")
        self.names.add(field.name)
        self.fields[number] = field


class Types:
    """All types of a schema, by full name, in the order of their declarations."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.enums: dict[str, dict[int, str]] = {}
        self._parts = 0

    def count(self) -> None:
        """Count a type or a field. Raises BadSchema beyond the bound."""
        self._parts += 1
        if self._parts > SCHEMA_PARTS:
            raise BadSchema(f"it has more than {SCHEMA_PARTS} types and fields")

    def declare(self, name: str, depth: int, *, enum: bool = False) -> Message:
        """Add a message, or an enum without values, and return the message. Raises BadSchema."""
        self.count()
        if depth > SCHEMA_DEPTH:
            raise BadSchema(f"it is nested more than {SCHEMA_DEPTH} levels deep")
        if len(name) > NAME_CHARS or name.count(".") >= NAME_PARTS:
            raise BadSchema(f"the full name of a type has more than {NAME_CHARS} characters or {NAME_PARTS} parts")
        if name in self.messages or name in self.enums:
            raise BadSchema(f"the type {name[:200]} is declared twice")
        message = Message()
        if enum:
            self.enums[name] = {}
        else:
            self.messages[name] = message
        return message

    def missing(self, name: str) -> str | None:
        """Return the name of a type that the message `name` can hold and that is not there."""
        seen, left = {name}, [name]
        while left:
            for field in self.messages[left.pop()].fields.values():
                if field.type not in (MESSAGE, GROUP, ENUM):
                    continue
                if field.of not in (self.enums if field.type == ENUM else self.messages):
                    return field.of
                if field.type != ENUM and field.of not in seen:
                    seen.add(field.of)
                    left.append(field.of)
        return None
