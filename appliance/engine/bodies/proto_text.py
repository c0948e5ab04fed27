"""Protobuf: the text of a .proto file, as its types. Source: protobuf.dev, the specifications of proto2, proto3 and
editions.

Only declarations count that say how a body is read: options, services, extensions and reserved numbers are skipped. Of
the files that a text imports, those of google/protobuf that messages use are known here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .protobuf_types import ENUM, GROUP, MESSAGE, SCALARS, Field, Message, Types
from .work import BadSchema

_KEYS = frozenset(SCALARS) - {"double", "float", "bytes"}
#: The declarations of the files of google/protobuf that messages use.
_KNOWN = {
    "timestamp": "message Timestamp { int64 seconds = 1; int32 nanos = 2; }",
    "duration": "message Duration { int64 seconds = 1; int32 nanos = 2; }",
    "empty": "message Empty {}",
    "any": "message Any { string type_url = 1; bytes value = 2; }",
    "field_mask": "message FieldMask { repeated string paths = 1; }",
    "source_context": "message SourceContext { string file_name = 1; }",
    "wrappers": " ".join(
        f"message {name}Value {{ {name.lower()} value = 1; }}"
        for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
    ),
    "struct": "enum NullValue { NULL_VALUE = 0; } message ListValue { repeated Value values = 1; }"
    " message Struct { map<string, Value> fields = 1; } message Value { oneof kind { NullValue null_value = 1;"
    " double number_value = 2; string string_value = 3; bool bool_value = 4; Struct struct_value = 5;"
    " ListValue list_value = 6; } }",
}
#: Files that declare only options.
_OF_OPTIONS = frozenset({"google/protobuf/descriptor.proto"})
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<token> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'
        | \.?[A-Za-z_][A-Za-z0-9_.]* | [0-9.][0-9A-Za-z.+]* | [^\s"'] )
    """,
    re.VERBOSE | re.DOTALL,
)
#: Control characters that no text has; a descriptor set has the numbers of its fields as some.
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_END = ""


class _Use(NamedTuple):
    """A field whose type is a name, resolved when all types are known."""

    message: Message
    number: int
    scope: str


def is_text(data: bytes) -> bool:
    """True if a schema is the text of a .proto file, not a descriptor set."""
    return bool(data.strip()) and _NO_TEXT.search(data) is None


class ProtoText:
    """The types of a text. types: its own and those it imports. roots: full names of the messages at its top."""

    def __init__(self, data: bytes) -> None:
        """Raises BadSchema."""
        self.types = Types()
        self.roots: list[str] = []
        #: Full names of the messages within a message that has some.
        self.within: dict[str, list[str]] = {}
        self._uses: list[_Use] = []
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise BadSchema("it is not UTF-8") from None
        for path in self._file(text):
            if path in _OF_OPTIONS:
                continue
            name = path.removeprefix("google/protobuf/").removesuffix(".proto")
            if path != f"google/protobuf/{name}.proto" or name not in _KNOWN:
                raise BadSchema(
                    f"it imports {path[:200]}, which is not in it; give all files as one descriptor set of protoc"
                )
            roots = list(self.roots)
            self._file(f"package google.protobuf; {_KNOWN[name]}")
            self.roots = roots
        for use in self._uses:
            field = use.message.fields[use.number]
            kind, full = self._resolved(field.of, use.scope)
            use.message.fields[use.number] = field._replace(of=full, type=field.type or kind)

    # --- the text

    def _file(self, text: str) -> list[str]:
        """Read the declarations of a file; return the paths that it imports."""
        self._tokens = _tokens(text)
        self._at = 0
        package, imports = "", []
        while (word := self._next()) != _END:
            match word:
                case "package":
                    package = self._name()
                    self._want(";")
                case "import":
                    path = self._next()
                    if path in ("public", "weak", "option"):
                        path = self._next()
                    if path[:1] not in ("'", '"'):
                        raise self._wrong(path)
                    self._want(";")
                    imports.append(path[1:-1])
                case "message":
                    self.roots.append(self._message(package, 0))
                case "enum":
                    self._enum(package, 0)
                case "syntax" | "edition" | "option":
                    self._skip_to_end()
                case "service" | "extend":
                    self._skip_block()
                case ";":
                    pass
                case _:
                    raise self._wrong(word)
        return list(dict.fromkeys(imports))

    def _message(self, space: str, depth: int) -> str:
        name = _joined(space, self._name(simple=True))
        self._fields(name, self.types.declare(name, depth), depth)
        return name

    def _fields(self, name: str, message: Message, depth: int) -> None:
        """Read the body of a message."""
        self._want("{")
        while (word := self._next()) != "}":
            if word == ";":
                continue
            if word in ("option", "reserved", "extensions"):
                self._skip_to_end()
            elif word == "message" and self._peek(1) == "{":
                self.within.setdefault(name, []).append(self._message(name, depth + 1))
            elif word == "enum" and self._peek(1) == "{":
                self._enum(name, depth + 1)
            elif word == "extend" and self._peek(1) == "{":
                self._skip_block()
            elif word == "oneof" and self._peek(1) == "{":
                self._name(simple=True)
                self._want("{")
                while (part := self._next()) != "}":
                    if part == "option":
                        self._skip_to_end()
                    elif part != ";":
                        self._field(name, message, part, False, depth)
            elif word == "map" and self._peek() == "<":
                self._map(name, message, depth)
            else:
                repeated = word == "repeated"
                if repeated or word in ("optional", "required"):
                    word = self._next()
                self._field(name, message, word, repeated, depth)

    def _field(self, space: str, message: Message, kind: str, repeated: bool, depth: int) -> None:
        """Read a field behind the word of its type."""
        self.types.count()
        if kind == "group" and self._peek(1) == "=":
            own = self._name(simple=True)
            self._want("=")
            number = self._number()
            self._options()
            full = _joined(space, own)
            message.add(number, Field(own.lower(), GROUP, repeated, full))
            self._fields(full, self.types.declare(full, depth + 1), depth + 1)
            return
        if not (kind[:1].isalpha() or kind[:1] in ("_", ".")):
            raise self._wrong(kind)
        name = self._name(simple=True)
        self._want("=")
        number = self._number()
        self._options()
        self._want(";")
        self._add(message, number, Field(name, SCALARS.get(kind, 0), repeated, kind), space)

    def _map(self, space: str, message: Message, depth: int) -> None:
        self.types.count()
        self._want("<")
        key = self._next()
        if key not in _KEYS:
            raise self._wrong(key)
        self._want(",")
        value = self._name()
        self._want(">")
        name = self._name(simple=True)
        self._want("=")
        number = self._number()
        self._options()
        self._want(";")
        full = f"{_joined(space, name)}.Entry"
        entry = self.types.declare(full, depth + 1)
        entry.is_entry = True
        entry.add(1, Field("key", SCALARS[key], False, ""))
        self._add(entry, 2, Field("value", SCALARS.get(value, 0), False, value), space)
        message.add(number, Field(name, MESSAGE, True, full))

    def _add(self, message: Message, number: int, field: Field, scope: str) -> None:
        if field.type:
            message.add(number, field._replace(of=""))
            return
        message.add(number, field)
        self._uses.append(_Use(message, number, scope))

    def _enum(self, space: str, depth: int) -> None:
        name = _joined(space, self._name(simple=True))
        self.types.declare(name, depth, enum=True)
        values = self.types.enums[name]
        self._want("{")
        while (word := self._next()) != "}":
            if word in ("option", "reserved") and self._peek() != "=":
                self._skip_to_end()
            elif word != ";":
                if not word.isidentifier():
                    raise self._wrong(word)
                self.types.count()
                self._want("=")
                values.setdefault(self._number(), word)
                self._options()
                self._want(";")

    def _resolved(self, name: str, scope: str) -> tuple[int, str]:
        """Return (MESSAGE or ENUM, full name) of a type as it is named within `scope`: the innermost one."""
        own = name.removeprefix(".")
        space = "" if name.startswith(".") else scope
        while True:
            full = _joined(space, own)
            if full in self.types.messages:
                return MESSAGE, full
            if full in self.types.enums:
                return ENUM, full
            if not space:
                raise BadSchema(f"there is no type {own[:200]} in it")
            space = space.rpartition(".")[0]

    # --- its words

    def _peek(self, more: int = 0) -> str:
        at = self._at + more
        return self._tokens[at] if at < len(self._tokens) else _END

    def _next(self) -> str:
        word = self._peek()
        self._at += 1
        return word

    def _want(self, wanted: str) -> None:
        word = self._next()
        if word != wanted:
            raise self._wrong(word, wanted)

    def _name(self, simple: bool = False) -> str:
        word = self._next()
        if not (word[:1].isalpha() or word[:1] in ("_", ".")) or (simple and "." in word):
            raise self._wrong(word, "a name")
        return word

    def _number(self) -> int:
        word = self._next()
        sign = 1
        if word == "-":
            sign, word = -1, self._next()
        try:
            return sign * int(word, 8 if re.fullmatch("0[0-7]+", word) else 0)
        except ValueError:
            raise self._wrong(word, "a number") from None

    def _options(self) -> None:
        if self._peek() == "[":
            self._skip("[", "]")

    def _skip_to_end(self) -> None:
        """Skip a statement, whose value may be in braces."""
        while (word := self._peek()) != ";":
            if word == "{":
                self._skip("{", "}")
            elif word in ("}", _END):
                raise self._wrong(word, ";")
            else:
                self._at += 1
        self._at += 1

    def _skip_block(self) -> None:
        while self._peek() not in ("{", _END):
            self._at += 1
        self._skip("{", "}")

    def _skip(self, opens: str, closes: str) -> None:
        depth = 0
        while True:
            word = self._next()
            if word == _END:
                raise self._wrong(word, closes)
            depth += (word == opens) - (word == closes)
            if depth == 0:
                return

    def _wrong(self, word: str, wanted: str = "") -> BadSchema:
        if word == _END:
            return BadSchema("the .proto file ends too early")
        instead = f" instead of {wanted}" if wanted else ""
        before = " ".join(self._tokens[max(0, self._at - 6) : self._at - 1])
        return BadSchema(f"“{word[:40]}” stands{instead} behind “{before[-80:]}”")


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match["token"] == "/":
            raise BadSchema("a text or a comment in it has no end")
        if match["token"]:
            found.append(match["token"])
        at = match.end()
    return found


def _joined(space: str, name: str) -> str:
    return f"{space}.{name}" if space else name
