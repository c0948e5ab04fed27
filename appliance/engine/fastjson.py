"""The JSON dialect of fastjson, which Apache's files and Java's bodies are written in. PURE: text in, values out.

It differs from JSON in three ways that matter here:

    {"offsetTable":{0:23,1:40}}                        integer keys stand unquoted
    {"offsetTable":{{"brokerName":"b","queueId":0}:5}} a key may be an object
    {"a":{"x":1},"b":{"$ref":"$.a"}}                   a value that occurs twice is written once, then referred to

Read: keys become text, an object as key becomes its own compact JSON, references become the value they mean.
Written ("pretty", the form of the files below `config/`): tabs, a line for each text key and none for integer keys.
Source: RocketMQ `RemotingSerializable.toJson(obj, true)`, fastjson 1.2.83 `MapSerializer`, `CollectionCodec`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

#: Deeper documents are refused; Apache's go six levels deep.
MAX_DEPTH = 64

# Strings are skipped whole (possessively: no text makes it look at a character twice).
_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?<=[{,])[ \t\r\n]*+(-?[0-9]++)(?=[ \t\r\n]*+:)', re.DOTALL)
_BLANKS = re.compile(r"[ \t\r\n]*+")
_NUMBER = re.compile(r"-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+")
_WORDS = {"true": True, "false": False, "null": None}


def loads(data: bytes | str) -> Any:
    """The value of one document, standard JSON or fastjson's; raises ValueError for anything else."""
    text = data if isinstance(data, str) else data.decode("utf-8")
    try:
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            try:
                value = json.loads(_BARE_KEY.sub(_quoted, text))
            except json.JSONDecodeError:
                value = _Parser(text).document()
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None
    return _resolve(value) if '"$ref"' in text else value


def _quoted(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else f'"{match[1]}"'


class _Parser:
    """Reads what the C parser cannot: objects as keys."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> Any:
        value = self._value(0)
        if self._peek():
            raise self._error("something behind the end")
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
            return json.loads(number[0])
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
            key = self._value(depth + 1)
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


def _resolve(root: Any) -> Any:
    """Put the values in that `$ref`s mean; one that means nothing becomes null, as in fastjson.

    A reference to something around itself would make a value without end: it becomes null too.
    """

    def walk(value: Any, around: tuple[Any, ...], depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("the document is nested too deeply")
        if isinstance(value, dict):
            if len(value) == 1 and isinstance(path := value.get("$ref"), str):
                target = _target(root, path, around)
                return None if any(target is outer for outer in around) else target
            inside = (*around, value)
            for key in value:
                value[key] = walk(value[key], inside, depth + 1)
        elif isinstance(value, list):
            inside = (*around, value)
            for index, item in enumerate(value):
                value[index] = walk(item, inside, depth + 1)
        return value

    return walk(root, (), 0)


_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)+)|\[([0-9]+)\]")


def _target(root: Any, path: str, around: tuple[Any, ...]) -> Any:
    """What a path means: `$` the root, `..` the object around, `$.name[0].name` downwards; a backslash escapes."""
    if path == "..":
        return around[-1] if around else None
    if not path.startswith("$"):
        return None
    value, at = root, 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        at = step.end()
        try:
            value = value[int(step[2])] if step[2] else value[re.sub(r"\\(.)", r"\1", step[1])]
        except (LookupError, TypeError):
            return None
    return value


# --- writing


def encode_text(text: str) -> str:
    """A JSON string. Raises UnicodeEncodeError for half a surrogate pair, which no file could hold."""
    text.encode()
    return json.dumps(text, ensure_ascii=False)


def encode_pretty(value: Any, depth: int = 0) -> str:
    """A value as Apache's files hold it; depth: tabs in front of the line it stands on.

    dict with text keys: a line each, in the dict's order; with integer keys: `{0:1,1:2` and the brace on its own line.
    list: on one line. None values are left to the caller (Java leaves them out).
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


#: Entries joined in one C call: far below a millisecond (D10).
_ENTRIES_A_PIECE = 256


def pretty_document(fields: Iterable[tuple[str, bytes | Iterable[bytes]]]) -> Iterator[bytes]:
    """A whole file in pieces. fields: (name, its value, or the entries of a table), in alphabetical order.

    An entry is `"key":value`, encoded for depth 2. Pieces are small, so that a large table never holds the
    interpreter for long.
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
