"""The body of REGISTER_BROKER (103): a broker's topic table. PURE: bytes in, values out.

Java has three forms of it:

    JSON         {"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{}}}
    bare         the wrapper alone, from senders older than 3.0.11
    compressed   one zlib stream of: i32 length + DataVersion JSON · i32 count, per topic i32 length + text
                 `name reads writes perm filterType[ attributes]` · i32 length + filter server list ·
                 from 5.0 on i32 count, per static topic i32 length + mapping JSON

A 5.x broker may send the compressed form although its header denies it, so the first byte decides. A table
may hold tens of thousands of topics: it is read entry by entry (`json_walker`), and no C call sees more than 64 KiB of
it (D10). Filter servers are gone from RocketMQ and are not kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from .. import fastjson
from ..errors import RefusedRequest
from ..named_tuple import NamedTuple
from ..protocol.askers import MAPS_STATIC_TOPICS, WRAPS_TABLES
from ..protocol.codes import ResponseCode
from ..protocol.data_version import DataVersion
from .bounds import is_routed_name
from .json_walker import BLANK, FIRST_LOOK_CHARS, MAX_VALUE_CHARS, JsonWalker, raw_decode

#: Apache's JSON form ends at about 70,000 topics, where a frame is full.
MAX_TOPICS = 250_000
#: A zlib stream may grow a thousandfold when it is inflated. This is four of the largest JSON bodies.
MAX_INFLATED_BYTES = 64 * 1024 * 1024
#: Values in one mapping, references written out; a static topic has two for each of its queues.
_MAPPING_VALUES = 16 * 1024
#: All mappings of a broker together, as JSON: some 10,000 static topics.
MAX_MAPPING_BYTES = 4 * 1024 * 1024
_INPUT_SLICE_BYTES = 16 * 1024

_I32 = 1 << 31


class TopicShape(NamedTuple):
    """The fields of a TopicConfig that the name server keeps."""

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
    """Decode the body of a 103. version: the sender's `MQVersion`. compressed: the header's field.

    An empty body is an empty table, as in Java. Raises RefusedRequest (1) for anything that is no such body.
    """
    try:
        if not body:
            return RegisterBody(DataVersion(), {}, {})
        if _is_compressed(body, compressed):
            return _read_compressed(body, version)
        return _read_json(body.decode(), bare=version < WRAPS_TABLES)
    except (ValueError, RecursionError, zlib.error) as error:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"Failed to decode RegisterBrokerBody: {error}") from None


def peek_data_version(body: bytes, compressed: bool) -> DataVersion | None:
    """Return the table's version without reading the table; None if it does not come first, as Java writes it."""
    try:
        if _is_compressed(body, compressed):
            return DataVersion.decode(fastjson.PEER_DECODER.decode(_InflatedReader(body).read_block()))
        start = body.find(b'"dataVersion":', 0, FIRST_LOOK_CHARS)
        if start < 0 or body.find(b'"topicConfigTable"', 0, start) >= 0:
            return None
        piece = body[start + 14 : start + 14 + FIRST_LOOK_CHARS].decode(errors="replace")
        return DataVersion.decode(raw_decode(piece.lstrip(BLANK))[0])
    except (ValueError, RecursionError, zlib.error):
        return None


def _is_compressed(body: bytes, declared: bool) -> bool:
    """True if the body is compressed. 5.x brokers compress and declare that they did not, so the first byte decides: a
    zlib stream begins with 0x78, JSON with a brace."""
    first = body[:1]
    return first == b"\x78" or (declared and body.lstrip()[:1] != b"{")


# --- values


def _integer(value: Any, default: int) -> int:
    """Return a JSON number, or one written as a string; `default` for null.

    Any value of Java's int is accepted, as in Apache: one odd topic must not exclude a broker with all its topics.
    """
    if value is None:
        return default
    if type(value) is str:
        value = int(value)
    if type(value) is not int or not -_I32 <= value < _I32:
        raise ValueError(f"{str(value)[:64]!r} is not a number of the right size")
    return value


def _topic(key: str, value: Any) -> tuple[str, TopicShape]:
    """Return (name, shape) of one TopicConfig. Absent fields have Java's defaults."""
    if type(value) is not dict:
        raise ValueError(f"the configuration of topic {key[:127]!r} is not an object")
    get = value.get
    name = get("topicName") or key
    if type(name) is not str or not name:
        raise ValueError("a topic without name")
    return _checked_name(name), TopicShape(
        _integer(get("readQueueNums"), 16),
        _integer(get("writeQueueNums"), 16),
        _integer(get("perm"), 6),
        _integer(get("topicSysFlag"), 0),
    )


def _checked_name(name: Any) -> str:
    if type(name) is not str or not is_routed_name(name):
        raise ValueError(f"the topic {str(name)[:100]!r} is illegal")
    return name


class _Mappings:
    """Static topic -> its mapping as JSON; at most MAX_MAPPING_BYTES in all."""

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


def _read_json(text: str, bare: bool) -> RegisterBody:
    walker = JsonWalker(text)
    if bare:
        registration = _read_wrapper(walker)
    else:
        registration = RegisterBody(DataVersion(), {}, {})
        for key in _counted(walker.entries()):
            if key == "topicConfigSerializeWrapper":
                registration = _read_wrapper(walker)
            else:
                walker.value()
    walker.finish()
    return registration


def _read_wrapper(walker: JsonWalker) -> RegisterBody:
    """Read a TopicConfigSerializeWrapper, or 5.x's TopicConfigAndMappingSerializeWrapper."""
    version = DataVersion()
    topics: dict[str, TopicShape] = {}
    mappings = _Mappings()
    shapes: dict[TopicShape, TopicShape] = {}
    for key in _counted(walker.entries()):
        if key == "dataVersion":
            version = DataVersion.decode(walker.value())
        elif key == "topicConfigTable":
            for name in _counted(walker.entries()):
                name, shape = _topic(name, walker.value())
                topics[name] = shapes.setdefault(shape, shape)
        elif key == "topicQueueMappingInfoMap":
            for name in _counted(walker.entries()):
                mappings.add(name, walker.value())
        elif key == "topicQueueMappingDetailMap":  # the broker's own half of the mappings
            for _ in _counted(walker.entries()):
                walker.value()
        else:
            walker.value()
    return RegisterBody(version, topics, mappings.texts)


def _counted(keys: Iterator[str]) -> Iterator[str]:
    """Yield the same keys; raise ValueError when there are more than a table may have topics."""
    for count, key in enumerate(keys, 1):
        _check_count(count)
        yield key


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
        inflated = self._inflate.decompress(tail, MAX_VALUE_CHARS)
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
        """Return exactly `size` bytes. Raises ValueError when the stream ends before."""
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
        """Read a text that its length in bytes precedes."""
        size = self.read_int()
        if not 0 <= size <= MAX_VALUE_CHARS:
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
        # The compressed form carries neither the order flag nor the system flag.
        name, reads, writes, perm, _rest = reader.read_block().split(" ", 4)
        numbers = [_integer(number, 0) for number in (reads, writes, perm)]
        shape = TopicShape(numbers[0], numbers[1], numbers[2], 0)
        topics[_checked_name(name)] = shapes.setdefault(shape, shape)
    mappings = _Mappings()
    if not reader.at_end():
        reader.read_block()  # the filter server list
    if version >= MAPS_STATIC_TOPICS and not reader.at_end():
        count = reader.read_int()
        _check_count(count)
        for _ in range(count):
            value = fastjson.loads(reader.read_block(), _MAPPING_VALUES, object_keys=False)
            mappings.add(value.get("topic") if type(value) is dict else None, value)
    return RegisterBody(data_version, topics, mappings.texts)
