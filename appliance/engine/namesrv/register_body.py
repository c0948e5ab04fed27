"""The body of REGISTER_BROKER (103): a broker's topic table. PURE: bytes in, values out.

Three forms, all of Java's making:

    JSON         {"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{}}}
    bare         the wrapper alone, from senders older than 3.0.11
    compressed   one zlib stream of: i32 length + DataVersion JSON · i32 count, per topic i32 length + text
                 `name reads writes perm filterType[ attributes]` · i32 length + filter server list ·
                 from 5.0 on i32 count, per static topic i32 length + mapping JSON

A 5.x broker may send the compressed form under a header that denies it, so the first byte decides. A table may hold
tens of thousands of topics: it is read entry by entry, and no C call sees more than 64 KiB of it (D10).
Filter servers are gone from RocketMQ and are not kept.
"""

from __future__ import annotations

import bisect
import itertools
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from .. import fastjson
from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..protocol.data_version import DataVersion
from .bounds import is_routed_name

#: `MQVersion` ordinals: 3.0.11 wraps the table into a RegisterBrokerBody, 5.0.0 adds the mapping section.
_VERSION_WRAPPED = 37
_VERSION_MAPPINGS = 413

#: Apache's JSON form stops at about 70,000 topics, where it passes 16 MiB.
MAX_TOPICS = 250_000
#: A zlib stream may blow up a thousandfold; this is four of the largest JSON bodies.
MAX_INFLATED_BYTES = 64 * 1024 * 1024
#: One topic, version or mapping.
_VALUE_CHARS = 64 * 1024
#: What a topic's entry usually fits into; cheap to slice.
_FIRST_LOOK_CHARS = 1024
#: Values with bare keys, and longer ones, are looked for in four times as much each time, so that a table of many takes
#: time in proportion to its length.
_LOOKS_CHARS = (128, 512, 2048, 8192, _VALUE_CHARS)
#: Values in one mapping, references written out; a static topic has two for each of its queues.
_MAPPING_VALUES = 16 * 1024
#: All mappings of a broker together, as JSON: some 10,000 static topics.
MAX_MAPPING_BYTES = 4 * 1024 * 1024
_INPUT_SLICE_BYTES = 16 * 1024

_I32_MAX = (1 << 31) - 1

_BLANK = " \t\r\n"
_BLANKS = re.compile(r"[ \t\r\n]*+")
_raw_decode = fastjson.PEER_DECODER.raw_decode


class TopicShape(NamedTuple):
    """What the name server keeps of a TopicConfig."""

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int


class RegisterBody(NamedTuple):
    """data_version of the whole table; topics: name -> shape; mappings: static topic -> its mapping as JSON text."""

    data_version: DataVersion
    topics: dict[str, TopicShape]
    mappings: dict[str, bytes]


def read_register_body(body: bytes, version: int, compressed: bool) -> RegisterBody:
    """Decode the body of a 103; version: the sender's `MQVersion`, compressed: what the header says.

    An empty body is an empty table, as in Java. Raises RefusedRequest (code 1) for anything that is no such body.
    """
    try:
        if not body:
            return RegisterBody(DataVersion(), {}, {})
        if _is_compressed(body, compressed):
            return _read_compressed(body, version)
        return _read_json(body.decode(), bare=version < _VERSION_WRAPPED)
    except (ValueError, RecursionError, zlib.error) as error:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"Failed to decode RegisterBrokerBody: {error}") from None


def peek_data_version(body: bytes, compressed: bool) -> DataVersion | None:
    """The table's version without reading the table; None when it does not come first, as it does from Java."""
    try:
        if _is_compressed(body, compressed):
            return DataVersion.decode(fastjson.PEER_DECODER.decode(_InflatedReader(body).read_block()))
        start = body.find(b'"dataVersion":', 0, _FIRST_LOOK_CHARS)
        if start < 0 or body.find(b'"topicConfigTable"', 0, start) >= 0:
            return None
        piece = body[start + 14 : start + 14 + _FIRST_LOOK_CHARS].decode(errors="replace")
        return DataVersion.decode(_raw_decode(piece.lstrip(_BLANK))[0])
    except (ValueError, RecursionError, zlib.error):
        return None


def _is_compressed(body: bytes, said: bool) -> bool:
    """Brokers of 5.x compress and say they did not: a zlib stream begins with 0x78, JSON with a brace."""
    first = body[:1]
    return first == b"\x78" or (said and body.lstrip()[:1] != b"{")


# --- values


def _integer(value: Any, default: int, limit: int) -> int:
    """A JSON number, or one written as a string; `default` for null."""
    if value is None:
        return default
    if type(value) is str:
        value = int(value)
    if type(value) is not int or not 0 <= value <= limit:
        raise ValueError(f"{str(value)[:64]!r} is not a number of the right size")
    return value


def _topic(key: str, value: Any) -> tuple[str, TopicShape]:
    """(name, shape) of one TopicConfig; absent fields have Java's defaults."""
    if type(value) is not dict:
        raise ValueError(f"the configuration of topic {key[:127]!r} is not an object")
    get = value.get
    name = get("topicName") or key
    if type(name) is not str or not name:
        raise ValueError("a topic without name")
    return _checked_name(name), TopicShape(
        _integer(get("readQueueNums"), 16, _I32_MAX),
        _integer(get("writeQueueNums"), 16, _I32_MAX),
        _integer(get("perm"), 6, _I32_MAX),
        _integer(get("topicSysFlag"), 0, _I32_MAX),
    )


def _checked_name(name: Any) -> str:
    if type(name) is not str or not is_routed_name(name):
        raise ValueError(f"the topic {str(name)[:100]!r} is illegal")
    return name


class _Mappings:
    """Static topic -> its mapping as JSON, bounded in all."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self._bytes = 0

    def add(self, topic: Any, value: Any) -> None:
        if type(value) is not dict:
            raise ValueError("a topic queue mapping is not an object")
        text = self.texts[_checked_name(topic)] = msgspec.json.encode(value)
        self._bytes += len(text)
        if self._bytes > MAX_MAPPING_BYTES:
            raise ValueError(f"topic queue mappings of more than {MAX_MAPPING_BYTES} bytes")


# --- JSON


def _quote_bare_keys(text: str) -> tuple[str, list[int]]:
    """fastjson's `{0:"a"}` as standard JSON `{"0":"a"}`, and where in it the new keys begin; strings stay alone."""
    pieces: list[str] = []
    begins: list[int] = []
    done = 0
    for match in _BARE_KEY.finditer(text):
        if match[1] is not None:
            start, end = match.span(1)
            pieces += (text[done:start], f'"{match[1]}"')
            begins.append(start + 2 * len(begins))
            done = end
    pieces.append(text[done:])
    return "".join(pieces), begins


# Possessive, and a string may lack its end: no text makes it look at a character twice.
_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?<=[{,])[ \t\r\n]*+(-?[0-9]++)(?=[ \t\r\n]*+:)', re.DOTALL)


class _JsonWalker:
    """Walks an object key by key; only the values the caller asks for are built, each within `_VALUE_CHARS`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def _skip_blanks(self) -> str:
        """The next character that is not blank, not taken; "" at the end."""
        while (end := _BLANKS.match(self._text, self._at, self._at + _VALUE_CHARS).end()) > self._at:  # type: ignore[union-attr]
            self._at = end
        return self._text[end : end + 1]

    def _take(self, wanted: str) -> str:
        char = self._skip_blanks()
        if not char or char not in wanted:
            raise json.JSONDecodeError(f"expected one of {wanted}", self._text, self._at)
        self._at += 1
        return char

    def entries(self) -> Iterator[str]:
        """The keys of the object that begins here, or none for null; take each key's value before the next key."""
        if self._skip_blanks() == "n":
            self.value()
            return
        self._take("{")
        if self._skip_blanks() == "}":
            self._at += 1
            return
        for count in itertools.count(1):
            _check_count(count)
            key = self.value()
            self._take(":")
            yield key if type(key) is str else str(key)
            if self._take(",}") == "}":
                return

    def value(self) -> Any:
        """The value that begins here."""
        self._skip_blanks()
        text, at = self._text, self._at
        try:
            value, end = _raw_decode(text[at : at + _FIRST_LOOK_CHARS])
            if end < _FIRST_LOOK_CHARS:
                self._at = at + end
                return value
        except json.JSONDecodeError:
            pass
        for size in _LOOKS_CHARS:
            piece = text[at : at + size]
            cut = len(piece) == size
            quoted, begins = _quote_bare_keys(piece)
            try:
                value, end = _raw_decode(quoted)
            except json.JSONDecodeError as error:
                if cut and size < _VALUE_CHARS:
                    continue
                raise json.JSONDecodeError(error.msg, text, at) from None
            end -= 2 * bisect.bisect_left(begins, end)
            if end < len(piece) or not cut:
                self._at = at + end
                return value
        raise json.JSONDecodeError(f"a value longer than {_VALUE_CHARS} characters", text, at)

    def finish(self) -> None:
        if self._skip_blanks():
            raise json.JSONDecodeError("extra data", self._text, self._at)


def _read_json(text: str, bare: bool) -> RegisterBody:
    walker = _JsonWalker(text)
    if bare:
        registration = _read_wrapper(walker)
    else:
        registration = RegisterBody(DataVersion(), {}, {})
        for key in walker.entries():
            if key == "topicConfigSerializeWrapper":
                registration = _read_wrapper(walker)
            else:
                walker.value()
    walker.finish()
    return registration


def _read_wrapper(walker: _JsonWalker) -> RegisterBody:
    """TopicConfigSerializeWrapper, or 5.x's TopicConfigAndMappingSerializeWrapper."""
    version = DataVersion()
    topics: dict[str, TopicShape] = {}
    mappings = _Mappings()
    shapes: dict[TopicShape, TopicShape] = {}
    for key in walker.entries():
        if key == "dataVersion":
            version = DataVersion.decode(walker.value())
        elif key == "topicConfigTable":
            for name in walker.entries():
                name, shape = _topic(name, walker.value())
                topics[name] = shapes.setdefault(shape, shape)
        elif key == "topicQueueMappingInfoMap":
            for name in walker.entries():
                mappings.add(name, walker.value())
        elif key == "topicQueueMappingDetailMap":  # the broker's own half of the mappings
            for _ in walker.entries():
                walker.value()
        else:
            walker.value()
    return RegisterBody(version, topics, mappings.texts)


def _check_count(count: int) -> None:
    if not 0 <= count <= MAX_TOPICS:
        raise ValueError(f"{count} topics, at most {MAX_TOPICS} are taken")


# --- compressed


class _InflatedReader:
    """Reads a zlib stream piece by piece; never holds more than one piece of it."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0  # of the compressed bytes
        self._inflate = zlib.decompressobj()
        self._ready = bytearray()
        self._taken = 0  # of `_ready`
        self._total = 0

    def _fill(self) -> bool:
        """Inflate a little more; False at the end of the stream."""
        if self._inflate.eof:
            return False
        tail = self._inflate.unconsumed_tail
        if not tail:
            tail = self._body[self._at : self._at + _INPUT_SLICE_BYTES]
            self._at += len(tail)
        inflated = self._inflate.decompress(tail, _VALUE_CHARS)
        if not tail and not inflated:
            return False
        del self._ready[: self._taken]
        self._taken = 0
        self._total += len(inflated)
        if self._total > MAX_INFLATED_BYTES:
            raise ValueError(f"the compressed body holds more than {MAX_INFLATED_BYTES} bytes")
        self._ready += inflated
        return True

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes; raises ValueError when the stream ends before."""
        while len(self._ready) - self._taken < size:
            if not self._fill():
                raise ValueError("the compressed body ends early")
        piece = bytes(self._ready[self._taken : self._taken + size])
        self._taken += size
        return piece

    def at_end(self) -> bool:
        while len(self._ready) == self._taken:
            if not self._fill():
                return True
        return False

    def read_int(self) -> int:
        return int.from_bytes(self.read(4), "big", signed=True)

    def read_block(self) -> str:
        """A text led by its length in bytes."""
        size = self.read_int()
        if not 0 <= size <= _VALUE_CHARS:
            raise ValueError(f"a block of {size} bytes")
        return self.read(size).decode()


def _read_compressed(body: bytes, version: int) -> RegisterBody:
    reader = _InflatedReader(body)
    data_version = DataVersion.decode(fastjson.PEER_DECODER.decode(reader.read_block()))
    count = reader.read_int()
    _check_count(count)
    topics: dict[str, TopicShape] = {}
    shapes: dict[TopicShape, TopicShape] = {}
    for _ in range(count):
        # An order flag and a system flag do not survive compression.
        name, reads, writes, perm, _rest = reader.read_block().split(" ", 4)
        numbers = [_integer(number, 0, _I32_MAX) for number in (reads, writes, perm)]
        shape = TopicShape(numbers[0], numbers[1], numbers[2], 0)
        topics[_checked_name(name)] = shapes.setdefault(shape, shape)
    mappings = _Mappings()
    if not reader.at_end():
        reader.read_block()  # the filter server list
    if version >= _VERSION_MAPPINGS and not reader.at_end():
        count = reader.read_int()
        _check_count(count)
        for _ in range(count):
            value = fastjson.loads(reader.read_block(), _MAPPING_VALUES, object_keys=False)
            mappings.add(value.get("topic") if type(value) is dict else None, value)
    return RegisterBody(data_version, topics, mappings.texts)
