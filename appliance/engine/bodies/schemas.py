"""A schema of either kind, and how a body is tried with it."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from .work import SCHEMA_BYTES, BadSchema, Undecided, Unfit, Work

KINDS = ("avro", "protobuf")
_WORDS = {"avro": "Avro", "protobuf": "Protobuf"}


class BodyReader(Protocol):
    """Decodes the bodies of a topic, on any thread. label: for a page, as "Avro shop.Order"."""

    label: str

    def prepare(self, data: bytes) -> None:
        """Wait for what `decode` with `most_values` needs for this body. Raises nothing."""
        return

    def decode(self, data: bytes, most_values: int | None = None) -> bytes:
        """Return a body as JSON. Raises Unfit."""

    def decoded(self, data: bytes, most_values: int | None = None) -> bytes | None:
        """Return a body as JSON; None if it does not fit."""
        try:
            return self.decode(data, most_values)
        except Unfit:
            return None


class Decodes(Protocol):
    """A schema of either format."""

    def decode(self, data: bytes, work: Work) -> Any:
        """Return the value of a whole body. Raises Unfit."""


class Schema(Decodes, Protocol):
    """A schema that a topic was given. name: the full name of the record or message."""

    name: str

    def inner(self, data: bytes) -> bytes | None:
        """Return the body behind a header that some serializers put before it; None without one."""


class BodySchema(BodyReader):
    """A schema that was read, for many bodies; any thread."""

    def __init__(self, kind: str, data: bytes, message: str = "") -> None:
        """kind: of KINDS. data: Avro: the schema in JSON; Protobuf: the text of a .proto file, or a FileDescriptorSet.
        message: the full name of the Protobuf message. Raises BadSchema."""
        if len(data) > SCHEMA_BYTES:
            raise BadSchema(f"it has {len(data)} bytes, at most {SCHEMA_BYTES} are possible")
        self._schema: Schema
        if kind == "avro":
            if message:
                raise BadSchema("an Avro schema has one root, so there is no message to name")
            from .avro import AvroSchema

            self._schema = AvroSchema(data)
        elif kind == "protobuf":
            from .protobuf import ProtobufSchema

            self._schema = ProtobufSchema(data, message)
        else:
            raise BadSchema(f"there is no kind {kind[:20]}")
        self.name = self._schema.name
        #: For a page, as "Avro shop.Order".
        self.label = f"{_WORDS[kind]} {self.name}"

    def decode(self, data: bytes, most_values: int | None = None) -> bytes:
        """Return a body as JSON. If it does not fit as it is, the header of a serializer is taken off and it is tried
        again. Raises Unfit, of the first try unless the second one may fit."""
        try:
            return json_of(self._schema, data, most_values)
        except Unfit:
            inner = self._schema.inner(data)
            if inner is not None:
                try:
                    return json_of(self._schema, inner, most_values)
                except Undecided:
                    raise
                except Unfit:
                    pass
            raise


def registered(kind: str, text: bytes) -> Decodes:
    """Return a schema of a registry, for what stands behind its id in a body. kind: the registry's schemaType. Raises
    BadSchema."""
    if kind == "AVRO":
        from .avro import AvroSchema

        return AvroSchema(text)
    if kind == "PROTOBUF":
        from .protobuf import ProtobufFile

        return ProtobufFile(text)
    raise BadSchema("it is neither Avro nor Protobuf")


def json_of(schema: Decodes, data: bytes, most_values: int | None) -> bytes:
    """Return a body without a header as JSON. Raises Unfit."""
    return msgspec.json.encode(schema.decode(data, Work() if most_values is None else Work(most_values)))
