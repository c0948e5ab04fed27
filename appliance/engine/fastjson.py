"""fastjson's dialect of JSON, in which Apache's files and Java's bodies are written. PURE: text in, values out.

It differs from JSON in three ways that matter here:

    {"offsetTable":{0:23,1:40}}                        integer keys are not quoted
    {"offsetTable":{{"brokerName":"b","queueId":0}:5}} a key may be an object
    {"a":{"x":1},"b":{"$ref":"$.a"}}                   a value that occurs twice is written once, then referred to

Reading: integer keys become text, an object that is a key becomes its own compact JSON as text, and a reference becomes
a copy of its target. Standard JSON is read by the C parser; only a document that this refuses is read again, first with
its integer keys quoted, then by a parser in Python. Reading takes time and memory in proportion to the text: the growth
by references is bounded, and an object that is a key may have no such keys itself, since each level would double the
text.

Writing ("pretty", the form of the files in `config/`): tabs, a line for each text key, integer keys on one line.
Source: RocketMQ `RemotingSerializable.toJson(obj, true)`, fastjson 1.2.83 `MapSerializer`, `CollectionCodec`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

#: Deeper documents are refused if they have references or objects as keys; Apache's are six levels deep.
MAX_DEPTH = 64

#: Our limit: factor by which references may enlarge a document, in characters and in values. Apache refers to values
#: that occur twice: some 25 characters stand for a configuration of some 300.
REFERENCE_GROWTH = 16
#: And never more than this, in characters of strings and keys, plus one for each value.
MAX_REFERENCED_CHARS = 4 * 1024 * 1024

_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1
#: Digits and sign of a 64-bit number. The time of int() grows with the square of the length.
_I64_CHARS = 20

# A string, skipped whole, or an integer key. Possessive, so that it looks at each character of any text only once.
_BARE_KEY = re.compile(r'"(?:[^"\\]++|\\.)*+"?|(?<=[{,])[ \t\r\n]*+(-?[0-9]++)(?=[ \t\r\n]*+:)', re.DOTALL)
_BLANKS = re.compile(r"[ \t\r\n]*+")
_NUMBER = re.compile(r"-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+")
_WORDS = {"true": True, "false": False, "null": None}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# A text in which every escaped upper half of a surrogate pair is followed by a lower half, and no lower half is alone.
_WHOLE_PAIRS = re.compile(
    r"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]|\\(?!u[dD][89a-fA-F]).)*+", re.DOTALL
)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:64]} is out of range")
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _integer(text: str) -> int:
    if len(text) > _I64_CHARS or not _I64_MIN <= (value := int(text)) <= _I64_MAX:
        raise ValueError(f"the number {text[:64]} is outside 64 bits")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)
#: For documents from peers. The check of each integer would make reading a large file slower by a third.
PEER_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant, parse_int=_integer)


def loads(data: bytes | str, max_values: int | None = None, object_keys: bool = True) -> Any:
    """Return the value of one document, standard JSON or fastjson's. Raises ValueError for anything else.

    max_values: for a document from a peer, how many values it may have with its references written out; each comma and
    bracket counts as one, also in strings. Integers must then fit 64 bits, and no text may have half of a surrogate
    pair. None for a file: it may have values that an older version accepted, and must not keep the broker from
    starting. object_keys: True if a key may be an object; the Python parser reads these, at 8 us each. No number in
    the result is infinite.
    """
    text = data if isinstance(data, str) else data.decode("utf-8")
    decode = _DECODER.decode
    if max_values is not None:
        decode = PEER_DECODER.decode
        if (count := _values_at_most(text)) > max_values:
            raise ValueError(f"up to {count} values in one document, at most {max_values} are read")
        check_pairs(text)
    try:
        try:
            value = decode(text)
        except json.JSONDecodeError:
            try:
                value = decode(_BARE_KEY.sub(_quoted, text))
            except json.JSONDecodeError:
                if not object_keys:
                    raise
                value = _Parser(text, decode).document()
        if '"$ref"' in text:
            value = _References(value, text, max_values).written_out()
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None
    return value


def loads_plain(data: bytes | str) -> Any:
    """Return the value of one document of standard JSON. Raises ValueError, also if it is nested too deeply, for which
    `json.loads` raises RecursionError."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None


def check_pairs(text: str) -> None:
    """Raise ValueError if a JSON text has an escape that is half of a surrogate pair; Python's parser allows that."""
    if _SURROGATE.search(text) and not _WHOLE_PAIRS.fullmatch(text):
        raise ValueError("half a surrogate pair is not text")


def _values_at_most(text: str) -> int:
    return 1 + text.count(",") + text.count("{") + text.count("[")


def _quoted(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else f'"{match[1]}"'


class _Parser:
    """Reads documents with objects as keys, which the C parser refuses."""

    def __init__(self, text: str, decode: Callable[[str], Any]) -> None:
        self._text = text
        self._decode = decode
        self._at = 0
        self._in_key = False

    def document(self) -> Any:
        value = self._value(0)
        if self._peek():
            raise self._error("extra data")
        return value

    def _error(self, what: str) -> ValueError:
        return json.JSONDecodeError(what, self._text, self._at)

    def _peek(self) -> str:
        self._at = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._text[self._at : self._at + 1]

    def _take(self, wanted: str) -> str:
        char = self._peek()
        if not char or char not in wanted:
            raise self._error(f"expected one of {wanted}")
        self._at += 1
        return char

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._error("nested too deeply")
        char = self._peek()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char == '"':
            value, self._at = scanstring(self._text, self._at + 1)
            return value
        number = _NUMBER.match(self._text, self._at)
        if number:
            self._at = number.end()
            return self._decode(number[0])
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        raise self._error("expected a value")

    def _object(self, depth: int) -> dict[str, Any]:
        self._take("{")
        found: dict[str, Any] = {}
        if self._peek() == "}":
            self._at += 1
            return found
        while True:
            key = self._key(depth + 1)
            if isinstance(key, dict):
                key = json.dumps(key, separators=(",", ":"), sort_keys=True)
            elif not isinstance(key, str):
                if isinstance(key, (bool, float, list)) or key is None:
                    raise self._error("a key must be a string, an integer or an object")
                key = str(key)
            self._take(":")
            found[key] = self._value(depth + 1)
            if self._take(",}") == "}":
                return found

    def _key(self, depth: int) -> Any:
        if self._peek() != "{":
            return self._value(depth)
        if self._in_key:  # each level would quote its text again
            raise self._error("an object as a key within a key")
        self._in_key = True
        key = self._value(depth)
        self._in_key = False
        return key

    def _array(self, depth: int) -> list[Any]:
        self._take("[")
        found: list[Any] = []
        if self._peek() == "]":
            self._at += 1
            return found
        while True:
            found.append(self._value(depth + 1))
            if self._take(",]") == "]":
                return found


# --- references


class _References:
    """A document in which each `$ref` is replaced by a copy of its target.

    A reference without a target becomes null, as in fastjson; so does one whose target contains it, which would never
    end. The size of all copies is bounded. A path leads through values as they are written, not through other
    references: a serializer writes each target in full, once.
    """

    def __init__(self, root: Any, text: str, max_values: int | None) -> None:
        self._root = root
        self._chars_left = len(text) + min(REFERENCE_GROWTH * len(text), MAX_REFERENCED_CHARS)
        own = _values_at_most(text)
        most = own + min(REFERENCE_GROWTH * own, MAX_REFERENCED_CHARS)
        self._values_left = most if max_values is None else min(most, max_values)
        #: Ids of the objects and lists that are being copied: those around the present place.
        self._around: set[int] = set()

    def written_out(self) -> Any:
        """Return the whole document. Raises ValueError if it would be too large or too deep."""
        return self._copy(self._root)

    def _copy(self, value: Any) -> Any:
        kind = type(value)
        if kind is dict:
            if len(value) == 1 and type(path := value.get("$ref")) is str:
                self._enter(value, len(path))
                target = _target(self._root, path)
                found: Any = None if id(target) in self._around else self._copy(target)
            else:
                self._enter(value, sum(map(len, value)))
                found = {key: self._copy(item) for key, item in value.items()}
        elif kind is list:
            self._enter(value, 0)
            found = [self._copy(item) for item in value]
        else:
            if kind is str:
                self._take(0, len(value))
            return value
        self._around.discard(id(value))
        return found

    def _enter(self, value: dict[str, Any] | list[Any], chars: int) -> None:
        if len(self._around) >= MAX_DEPTH:
            raise ValueError("the document is nested too deeply")
        self._around.add(id(value))
        self._take(1 + len(value), chars + len(value))

    def _take(self, values: int, chars: int) -> None:
        self._values_left -= values
        self._chars_left -= chars
        if self._values_left < 0 or self._chars_left < 0:
            raise ValueError("its references make the document too large")


_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)++)|\[([0-9]++)\]", re.DOTALL)
#: No list has a longer index; the time of int() grows with the square of the length.
_INDEX_DIGITS = 9


def _target(root: Any, path: str) -> Any:
    """Return the target of a path: `$` is the root, `$.name[0].name` leads down, a backslash escapes. None if there is
    no target.

    `..` and `@` lead up, to a value that contains the reference; these become null, too.
    """
    if not path.startswith("$"):
        return None
    value, at = root, 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None or len(step[2] or "") > _INDEX_DIGITS:
            return None
        at = step.end()
        try:
            if step[2] and type(value) is list:
                value = value[int(step[2])]
            elif step[1] and type(value) is dict:
                value = value[re.sub(r"\\(.)", r"\1", step[1], flags=re.DOTALL)]
            else:
                return None
        except LookupError:
            return None
    return value


# --- writing


def encode_text(text: str) -> str:
    """Return a JSON string. Raises UnicodeEncodeError for half of a surrogate pair, which no file could hold."""
    text.encode()
    return json.encoder.encode_basestring(text)


def encode_pretty(value: Any, depth: int = 0) -> str:
    """Return a value as Apache's files hold it. depth: number of tabs in front of its line.

    A dict with text keys: one line for each, in the dict's order; with integer keys: `{0:1,1:2` and the brace on a line
    of its own. A list: on one line. Callers leave None out, as Java does.
    """
    if isinstance(value, dict):
        if not value:
            return "{}"
        line = "\n" + "\t" * (depth + 1)
        end = "\n" + "\t" * depth + "}"
        if isinstance(next(iter(value)), int):
            return "{" + ",".join([f"{key}:{encode_pretty(value[key], depth + 1)}" for key in value]) + end
        parts = [f"{line}{encode_text(key)}:{encode_pretty(value[key], depth + 1)}" for key in value]
        return "{" + ",".join(parts) + end
    if isinstance(value, str):
        return encode_text(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([encode_pretty(item, depth) for item in value]) + "]"
    return json.dumps(value)


#: Entries that one C call joins: far below a millisecond (D10).
_ENTRIES_A_PIECE = 256


def pretty_document(fields: Iterable[tuple[str, bytes | Iterable[bytes]]]) -> Iterator[bytes]:
    """Yield a whole file in pieces. fields: (name, value) or (name, entries of a table), in alphabetical order.

    An entry is `"key":value`, encoded for depth 2. Pieces are small, so that a large table never holds the GIL for
    long.
    """
    lead = b"{\n\t"
    for name, value in fields:
        yield b"%b%b:" % (lead, encode_text(name).encode())
        lead = b",\n\t"
        if isinstance(value, bytes):
            yield value
        else:
            yield from _pretty_table(value)
    yield b"\n}"


def _pretty_table(entries: Iterable[bytes]) -> Iterator[bytes]:
    opened = False
    piece: list[bytes] = []
    for entry in entries:
        piece.append(entry)
        if len(piece) == _ENTRIES_A_PIECE:
            yield (b",\n\t\t" if opened else b"{\n\t\t") + b",\n\t\t".join(piece)
            opened = True
            piece = []
    if piece:
        yield (b",\n\t\t" if opened else b"{\n\t\t") + b",\n\t\t".join(piece)
        opened = True
    yield b"\n\t}" if opened else b"{}"
