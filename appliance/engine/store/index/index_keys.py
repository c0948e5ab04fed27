"""From records to index keys: the hash of each key a record has, straight from the log's bytes.

A key of the index is `topic#key`; its hash is `abs(String.hashCode)`, with 0 for the one value that has no abs. A
record has its unique key, then each word of KEYS; a rolled-back record has none.
Source: RocketMQ `IndexService.buildIndex`, `IndexFile.indexKeyHashMethod`.

Records are not decoded. A producer's unique keys share their beginning for at least a millisecond, so the hash of
`topic#` and a key's first 30 characters is kept, and the last two cost one addition each.

Where the hot path is compiled, `FastKeyScanner` calls it for runs of usual records, and `KeyScanner` for each other
one: IPv6 hosts, version 2, invalid UTF-8, a KEYS or unique key without a value, and bytes that are no record.
"""

from __future__ import annotations

import struct
from operator import mul

from ... import hotpath
from ...errors import CorruptFile
from ...hotpath import Keys, scan_keys
from ...protocol.properties import KEYS, UNIQUE_KEY, java_hash
from ...protocol.record import (
    FIXED_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    SYS_BORN_IPV6,
    SYS_ROLLBACK,
    SYS_STORE_IPV6,
    SYS_TRANSACTION_MASK,
    decode_record,
)
from ..dispatch import has_keys, keys_of, most_words

#: Size, magic, physical offset, sys flag, store time and body length of a record with IPv4 hosts.
_HEAD = struct.Struct(">iI20xqi16xq20xi")
_IPV6 = SYS_BORN_IPV6 | SYS_STORE_IPV6
_UNIQUE = UNIQUE_KEY.encode() + b"\x01"
_KEYS = KEYS.encode() + b"\x01"
#: A unique key with an IPv4 address has 32 digits.
_UNIQUE_DIGITS = 32
_STEM = _UNIQUE_DIGITS - 2
#: Limit on beginnings whose hash is kept, over all topics; above it all are dropped.
_KEPT = 4096
#: 31 ** n for the n-th character from the end.
_POWERS = [pow(31, n, 1 << 32) for n in range(64)]
_BY_LENGTH = [tuple(reversed(_POWERS[:n])) for n in range(65)]
_BOUND = 1 << 32

#: Limit on unusual records per scan, which the compiled twin leaves to Python: they take it some 2 ms.
LEFT = 400

#: (hash, physical offset, store time in ms)
IndexKey = tuple[int, int, int]


def index_hash(code: int) -> int:
    """Return the index's hash of a Java hash code, signed or not: its abs, 0 for -2**31."""
    code &= 0xFFFFFFFF
    return code if code < 0x80000000 else -code & 0x7FFFFFFF


def key_hash(topic: str, key: str) -> int:
    """Return the hash that entries of `topic#key` carry."""
    return index_hash(java_hash(f"{topic}#{key}"))


class _Shape:
    """Parts that the records of one topic have in common.

    stems: first 30 characters of a unique key -> hash of everything before the last two, times 31**2.
    lead, tail: the last record's bytes from its topic's length to its unique key, and behind that; without other keys.
    """

    __slots__ = ("base", "lead", "stems", "tail")

    def __init__(self, topic: bytes) -> None:
        self.base = java_hash(topic.decode("utf-8", "replace") + "#")
        self.stems: dict[bytes, int] = {}
        self.lead: bytes | None = None
        self.tail = b""


class KeyScanner:
    """Scans records in log bytes and collects their keys. Belongs to one thread at a time."""

    #: See FastKeyScanner.
    left = 0

    def __init__(self) -> None:
        self._topic = b""
        self._base = 0
        self._kept = 0
        self._shapes: dict[bytes, _Shape] = {}
        # Attributes of the current topic's shape.
        self._stems: dict[bytes, int] = {}
        self._lead: bytes | None = None
        self._tail = b""

    def scan(self, data: bytes, at: int, base: int, found: Keys, limit: int) -> int:
        """Append the keys of whole records from `data[at]` on to `found`; return where it stopped in `data`.

        base: physical offset of data[0]. Stops after `limit` records, before a record that is not whole in `data`, and
        before bytes that are no record, or one of another offset.
        """
        end = len(data)
        unpack, add = _HEAD.unpack_from, found.append
        stems, lead, tail = self._stems, self._lead, self._tail
        behind = len(tail)
        while limit and at + FIXED_BYTES <= end:
            size, magic, physical, sys_flag, time_ms, body_size = unpack(data, at)
            after = at + size
            if magic != MAGIC_V1 or sys_flag & _IPV6 or physical != base + at or after > end or body_size < 0:
                step = self._unusual(data, at, base, found)
                if not step:
                    break
                at += step
                limit -= 1
                continue
            p = at + 88 + body_size
            v = after - behind - _UNIQUE_DIGITS
            if data[p:v] == lead and data[after - behind : after] == tail:
                # Like the record before, except for its body and its unique key.
                stem = data[v : v + _STEM]
                code = stems.get(stem)
                if code is None:
                    code = self._learn(stem, stems)
                x, y = data[v + _STEM], data[v + _STEM + 1]
                if code >= 0 and 47 < x < 128 and 47 < y < 128 and sys_flag & SYS_TRANSACTION_MASK != SYS_ROLLBACK:
                    code = code + 31 * x + y & 0xFFFFFFFF
                    add((code if code < 0x80000000 else -code & 0x7FFFFFFF, physical, time_ms))
                    at = after
                    limit -= 1
                    continue
            if p >= after or size < FIXED_BYTES:
                break
            q = p + 3 + data[p]
            if q + int.from_bytes(data[q - 2 : q], "big") != after:
                break
            limit -= 1
            at = after
            if has_keys(sys_flag):
                self._collect(data, p, q, after, found, physical, time_ms)
                stems, lead, tail = self._stems, self._lead, self._tail
                behind = len(tail)
        return at

    def _collect(self, data: bytes, p: int, q: int, after: int, found: Keys, physical: int, time_ms: int) -> None:
        """Append the keys of one record to `found`: data[p] is its topic's length, data[q:after] its properties."""
        topic = data[p + 1 : q - 2]
        if topic != self._topic:
            self._turn_to(topic)
            v = after - len(self._tail) - _UNIQUE_DIGITS
            if data[p:v] == self._lead and data[v + _UNIQUE_DIGITS : after] == self._tail:
                key = data[v : v + _UNIQUE_DIGITS]
                if key.isalnum() and key.isascii():
                    found.append((self._hash(key), physical, time_ms))
                    return
        k, k2 = data.rfind(_UNIQUE, q, after), data.rfind(_KEYS, q, after)
        if any(at >= 0 and at != q and data[at - 1] != 2 for at in (k, k2)):
            # It may be the end of another property's name, or a value that looks like a name.
            self._all_keys(data[q:after], physical, time_ms, found)
            return
        words = b""
        if k2 >= 0:
            end = data.find(b"\x02", k2, after)
            words = data[k2 + len(_KEYS) : end if end >= 0 else after]
            if not words:
                self._all_keys(data[q:after], physical, time_ms, found)
                return
        if k >= 0:
            v = k + len(_UNIQUE)
            end = data.find(b"\x02", v, after)
            key = data[v : end if end >= 0 else after]
            if not key:
                self._all_keys(data[q:after], physical, time_ms, found)
                return
            if len(key) == _UNIQUE_DIGITS and end >= 0 and key.isalnum() and key.isascii():
                found.append((self._hash(key), physical, time_ms))
                if k2 < 0:
                    shape = self._shapes[topic]
                    shape.lead, shape.tail = self._lead, self._tail = data[p:v], data[end:after]
            else:
                found.append((self._hash(key), physical, time_ms))
        left = most_words(len(words))
        for word in words.split(b" "):
            if word:
                if not left:
                    break
                left -= 1
                found.append((self._hash(word), physical, time_ms))

    def _turn_to(self, topic: bytes) -> None:
        """Make `topic` the current one."""
        shape = self._shapes.get(topic)
        if shape is None:
            if len(self._shapes) >= _KEPT:
                self._shapes.clear()
            shape = self._shapes[topic] = _Shape(topic)
        self._topic, self._base = topic, shape.base
        self._stems, self._lead, self._tail = shape.stems, shape.lead, shape.tail

    def _learn(self, stem: bytes, stems: dict[bytes, int]) -> int:
        """Keep and return the hash of `topic#` and a stem, times 31**2; -1 if the stem is not alphanumeric ASCII."""
        if not stem.isalnum() or not stem.isascii():
            return -1
        self._kept += 1
        if self._kept > _KEPT:
            self._kept = 1
            for shape in self._shapes.values():
                shape.stems.clear()
        code = self._base * _POWERS[_STEM] + sum(map(mul, stem, _BY_LENGTH[_STEM]))
        code = stems[stem] = code * _POWERS[2] & 0xFFFFFFFF
        return code

    def _hash(self, key: bytes) -> int:
        """Return the index's hash of a key in the current topic."""
        size = len(key)
        if size > 64 or not key.isascii():
            return key_hash(self._topic.decode("utf-8", "replace"), key.decode("utf-8", "replace"))
        powers = _BY_LENGTH[size]
        return index_hash(self._base * pow(31, size, _BOUND) + sum(map(mul, key, powers)))

    def _all_keys(self, properties: bytes, physical: int, time_ms: int, found: Keys) -> None:
        """Append all keys of a properties text, parsed in full, where the fast way might misread it."""
        for key in keys_of(properties.decode("utf-8", "replace")):
            found.append((self._hash(key.encode("utf-8", "replace")), physical, time_ms))

    def _unusual(self, data: bytes, at: int, base: int, found: Keys) -> int:
        """Take a record with IPv6 hosts or of version 2; return its size, 0 if no valid one is there."""
        if int.from_bytes(data[at + 4 : at + 8], "big") in (MAGIC_V1, MAGIC_BLANK) and not data[at + 39] & _IPV6:
            return 0
        try:
            record = decode_record(data, at, check_crc=False)
        except CorruptFile:
            return 0
        if record.physical_offset != base + at:
            return 0
        if has_keys(record.sys_flag):
            for key in keys_of(record.properties):
                found.append((key_hash(record.topic, key), record.physical_offset, record.store_time_ms))
        return record.size


class FastKeyScanner:
    """A `KeyScanner` that uses the compiled twin. Belongs to one thread at a time."""

    def __init__(self) -> None:
        self._scanner = KeyScanner()
        #: Number of places, records or not, that the compiled twin left to Python.
        self.left = 0

    def scan(self, data: bytes, at: int, base: int, found: Keys, limit: int) -> int:
        """Like `KeyScanner.scan`, but it may stop before the limit, after LEFT unusual records."""
        until = self.left + LEFT
        while True:
            at, limit = scan_keys(data, at, base, found, limit)
            if not limit or at + FIXED_BYTES > len(data) or self.left == until:
                return at
            self.left += 1
            following = self._scanner.scan(data, at, base, found, 1)
            if following == at:
                return at
            at, limit = following, limit - 1


def key_scanner() -> KeyScanner | FastKeyScanner:
    """Return a scanner of the faster kind that this process has."""
    return FastKeyScanner() if hotpath.COMPILED else KeyScanner()
