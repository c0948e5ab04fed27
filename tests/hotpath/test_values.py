"""The compiled twin finds the same property values in stored records as the reference."""

import os
import random

import pytest

from appliance.engine.filter.projection import needles, property_values
from appliance.engine.hotpath import values_of as compiled
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import MAGIC_V1, MAGIC_V2, Record, encode_record
from appliance.engine.store.queues.consume_queue import ENTRY, HOLE_SIZE

pytestmark = pytest.mark.skipif(compiled is None, reason="the pure twin runs")

NAMES = ("a", "ab", "b", "TAGS", "\u00fc")
WORDS = ("", "1", "a", "ab", "\x01", "x\x01y", "\u4e2d\u6587", "v" * 300)


def record(chance, physical, body=None):
    pairs = [
        chance.choice((*NAMES, "", "other", "a b")) + chance.choice(("\x01", "\x01", "\x01", "")) + chance.choice(WORDS)
        for _ in range(chance.randrange(8))
    ]
    text = "\x02".join(pairs) + chance.choice(("", "\x02", "\x02\x02"))
    sizes = [chance.choice((8, 20)) for _ in range(2)]
    body = chance.randbytes(chance.choice((0, 10, 1000, 8000, 9000))) if body is None else body
    topic = chance.choice(("T", "topic" * 20))
    fields = Record(
        0, chance.choice((MAGIC_V1, MAGIC_V2)), 0, 0, 0, 0, physical, 0, 0, ("", 0), 0, ("", 0), 0, 0, body, topic, text
    )
    return encode_record(fields, bytes(sizes[0]), bytes(sizes[1])), text


def test_the_twins_find_the_same(tmp_path):
    chance = random.Random(5)
    start = 1000
    records, places, texts = [], [], []
    at = 0
    for _ in range(600):
        one, text = record(chance, start + at)
        records.append(one)
        places.append((at, len(one)))
        texts.append(text)
        at += len(one)
    data = b"".join(records)
    path = tmp_path / "log"
    path.write_bytes(data)
    entries = b"".join(ENTRY.pack(start + at, size, 7) for at, size in places)
    wanted = needles(NAMES)
    names = tuple(name.encode() for name in NAMES)
    with open(path, "rb") as file:
        found = compiled(file.fileno(), start, start + len(data), entries, 0, 10_000, names)
        assert found == property_values(data, places, wanted)
        for key, text in zip(found, texts, strict=True):
            properties = decode_properties(text)
            assert key.split(b"\x02") == [properties.get(name, "").encode() for name in NAMES]
        assert compiled(file.fileno(), start, start + len(data), entries, 7, 5, names) == found[7:12]
        assert compiled(file.fileno(), start, start + len(data), entries, 0, 3, ()) == [b"", b"", b""]
        middle = start + places[300][0]
        assert compiled(file.fileno(), start, middle, entries, 298, 10, names) == found[298:300], "the file ends"
        assert compiled(file.fileno(), start, start + len(data), entries, 600, 10, names) == []


def test_what_is_no_record_has_no_values(tmp_path):
    chance = random.Random(6)
    one, _ = record(chance, 0, body=b"b" * 100)
    long, _ = record(chance, 0, body=b"b" * 20_000)
    path = tmp_path / "log"
    for good in (one, long):
        for _ in range(150):
            data = bytearray(good)
            at = chance.choice((*range(8), 39, *range(84, 116), len(good) - 3, chance.randrange(len(good))))
            data[at] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
            entries = ENTRY.pack(0, len(good), 0)
            with open(path, "rb") as file:
                found = compiled(file.fileno(), 0, 1 << 20, entries, 0, 1, (b"a", b"TAGS"))
            expected = property_values(bytes(data), [(0, len(good))], needles(("a", "TAGS")))
            if int.from_bytes(data[:4], "big") != len(good):
                expected = [None]  # the reference is given the size and does not compare it
            assert found == expected, at
        path.write_bytes(good[:-1])
        with open(path, "rb") as file:
            assert compiled(file.fileno(), 0, 1 << 20, ENTRY.pack(0, len(good), 0), 0, 1, (b"a",)) == [None]
            for size in (0, -5, HOLE_SIZE):
                assert compiled(file.fileno(), 0, 1 << 20, ENTRY.pack(0, size, 0), 0, 1, (b"a",)) == []
            assert compiled(file.fileno(), 0, 1 << 20, ENTRY.pack(0, 50, 0), 0, 1, (b"a",)) == [None]


def test_bytes_that_are_no_text_are_values_like_others(tmp_path):
    chance = random.Random(8)
    path = tmp_path / "log"
    names = tuple(name.encode() for name in NAMES)
    some = (b"a", b"ab", b"b", b"\xc3", b"\xbc", b"\xff", b"\xed\xa0\x80", b"\x00", b"\x01", b"\x02", b"TAGS")
    for _ in range(1000):
        text = b"".join(chance.choices(some, weights=[2] * 8 + [5, 4, 2], k=chance.randrange(40)))
        one = encode_record(
            Record(0, MAGIC_V1, 0, 0, 0, 0, 0, 0, 0, ("", 0), 0, ("", 0), 0, 0, b"", "T", "p" * len(text)),
            bytes(8),
            bytes(8),
        )
        one = one[: len(one) - len(text)] + text
        path.write_bytes(one)
        with open(path, "rb") as file:
            found = compiled(file.fileno(), 0, len(one), ENTRY.pack(0, len(one), 0), 0, 1, names)
        assert found == property_values(one, [(0, len(one))], needles(NAMES)), text


def test_entries_of_a_damaged_queue_point_anywhere(tmp_path):
    """They point backwards, into the middle of records, twice at the same one, at short and long ones in turn."""
    chance = random.Random(7)
    records = [record(chance, 0)[0] for _ in range(400)]
    data = b"".join(records)
    data += bytes(3_000_000 - len(data))
    path = tmp_path / "log"
    path.write_bytes(data)
    places, at = [], 0
    for one in records:
        places.append((at, len(one)))
        at += len(one)
    names = tuple(name.encode() for name in NAMES)
    with open(path, "rb") as file:
        for _ in range(100):
            some = [(2_900_000, 200), *chance.choices(places, k=60)]
            some += [(chance.randrange(len(data)), chance.randrange(1, 30_000)) for _ in range(20)]
            some += [(place + chance.randrange(-9, 9), size) for place, size in chance.choices(places[1:], k=20)]
            chance.shuffle(some)
            entries = b"".join(ENTRY.pack(place, size, 0) for place, size in some)
            expected = property_values(data, some, needles(NAMES))
            for number, (place, size) in enumerate(some):
                if int.from_bytes(data[place : place + 4], "big") != size:
                    expected[number] = None  # the reference does not compare the size
            assert compiled(file.fileno(), 0, len(data), entries, 0, len(some), names) == expected


def test_a_disk_that_fails_says_so():
    reading, writing = os.pipe()
    try:
        with pytest.raises(OSError, match="Illegal seek"):
            compiled(reading, 0, 1 << 20, ENTRY.pack(0, 200, 0), 0, 1, (b"a",))
    finally:
        os.close(reading)
        os.close(writing)
