"""Keys of records, read off the log's bytes, compared with decoding every record."""

import random

import pytest

from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.properties import java_hash
from appliance.engine.protocol.record import MAGIC_V1, MAGIC_V2, Record, decode_record, encode_record
from appliance.engine.store.dispatch import BYTES_A_WORD, FEW_WORDS, keys_of
from appliance.engine.store.index.index_keys import KeyScanner, index_hash, key_hash

IPV4, IPV6 = encode_host("127.0.0.1", 10911), encode_host("fd00::1", 10911)
UNIQUE = "7F0000016AB14E0E2F2A6920{:08X}"

#: (keys in their order, properties text)
TEXTS = [
    (["K" * 32], f"UNIQ_KEY\x01{'K' * 32}\x02"),
    (["K" * 32], f"UNIQ_KEY\x01{'K' * 32}"),
    ([], ""),
    ([], "UNIQ_KEY\x01\x02"),
    (["a"], "UNIQ_KEY\x01a\x02UNIQ_KEY\x01\x02"),
    (["b"], "UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02"),
    (["B" * 32], f"UNIQ_KEY\x01{'A' * 32}\x02WAIT\x01true\x02UNIQ_KEY\x01{'B' * 32}\x02"),
    ([], f"MYUNIQ_KEY\x01{'A' * 32}\x02"),
    (["real"], "UNIQ_KEY\x01real\x02MYUNIQ_KEY\x01mine\x02"),
    (["u", "one", "two"], "KEYS\x01 one  two \x02UNIQ_KEY\x01u\x02"),
    (["k"], "KEYS\x01k"),
    (["k"], "KEYS\x01gone\x02KEYS\x01k\x02MONKEYS\x01no\x02"),
    (["U" * 32, "x"], f"UNIQ_KEY\x01{'U' * 32}\x02KEYS\x01x\x02"),
    (["订单", "号😀"], "UNIQ_KEY\x01订单\x02KEYS\x01号😀\x02"),
    (["é" * 16], f"UNIQ_KEY\x01{'é' * 16}\x02"),
    (["long" * 40], f"KEYS\x01{'long' * 40}\x02"),
    ([], "KEYS\x01\x02TAGS\x01KEYS\x02"),
    # More words than are indexed: a few, and one more for some bytes.
    (["u"] + ["a"] * (FEW_WORDS + 199 // BYTES_A_WORD), "UNIQ_KEY\x01u\x02KEYS\x01" + " ".join(["a"] * 100) + "\x02"),
    (["é"] * (FEW_WORDS + 299 // BYTES_A_WORD), "KEYS\x01" + " ".join(["é"] * 100)),
    ([f"order{number:05}" for number in range(2000)], "KEYS\x01" + " ".join(f"order{n:05}" for n in range(2000))),
]


def record(text, physical, topic="T", body=b"body", magic=MAGIC_V1, sys_flag=0, hosts=(IPV4, IPV4), time_ms=1):
    fields = (0, magic, 0, 0, 0, 0, physical, sys_flag, 0, None, time_ms, None, 0, 0, body, topic, text)
    return encode_record(Record(*fields), *hosts)


def scanned(data, base=0, slice_=1 << 30):
    scanner, found, at = KeyScanner(), [], 0
    while at < len(data):
        following = scanner.scan(data, at, base, found, slice_)
        assert following > at
        at = following
    return found


@pytest.mark.parametrize(("keys", "text"), TEXTS)
def test_the_keys_of_a_text_are_those_of_its_map(keys, text):
    assert keys_of(text) == keys
    for topic in ("T", "主题"):
        expected = [(key_hash(topic, key), 0, 7) for key in keys]
        assert scanned(record(text, 0, topic, time_ms=7)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("TopicTest#KEY1", 1656969516), ("polygenelubricants", 0), ("", 0), ("订单", 1129459)],
)
def test_the_hash_is_javas_abs(text, expected):
    assert index_hash(java_hash(text)) == expected


def test_a_rolled_back_record_has_no_keys():
    text = TEXTS[0][1]
    for flag, count in ((0, 1), (4, 1), (8, 1), (12, 0)):
        # Written twice, since a second record that equals the first is read by another branch.
        first = record(text, 0)
        data = first + record(text, len(first), sys_flag=flag)
        assert len(scanned(data)) == 1 + count


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_records_has_the_keys_that_decoding_finds(seed):
    rng = random.Random(seed)
    texts = [text for _, text in TEXTS]
    parts, base = [], 1 << 33
    at = base
    for number in range(400):
        unique = UNIQUE.format(rng.choice((1, 5)) << 24 | number % 16)
        text = rng.choice(
            (
                f"UNIQ_KEY\x01{unique}\x02TAGS\x01t\x02",
                f"KEYS\x01order{number} c{number % 3}\x02UNIQ_KEY\x01{unique}\x02TAGS\x01t\x02",
                f"UNIQ_KEY\x01{unique}\x02TAGS\x01other\x02",
                rng.choice(texts),
            )
        )
        body = rng.choice((b"", b"x" * 50, text.encode()))
        data = record(
            text,
            at,
            topic=rng.choice(("A", "A", "A", "B", "主题")),
            body=body,
            magic=MAGIC_V2 if rng.random() < 0.02 else MAGIC_V1,
            sys_flag=rng.choice((0, 0, 0, 8, 12)),
            hosts=(IPV6 if rng.random() < 0.05 else IPV4, IPV6 if rng.random() < 0.05 else IPV4),
            time_ms=number,
        )
        parts.append(data)
        at += len(data)
    data = b"".join(parts)
    expected = []
    at = 0
    while at < len(data):
        decoded = decode_record(data, at)
        if decoded.sys_flag & 12 != 12:
            for key in keys_of(decoded.properties):
                expected.append((key_hash(decoded.topic, key), base + at, decoded.store_time_ms))
        at += decoded.size
    assert scanned(data, base) == expected
    assert scanned(data, base, slice_=7) == expected


def test_bytes_that_are_no_record_stop_the_scan():
    good = record(TEXTS[0][1], 0)
    for bad in (
        b"",
        b"\0" * 200,
        record(TEXTS[0][1], 12345),  # at another place
        record(TEXTS[0][1], len(good))[:-1],  # incomplete
        (91).to_bytes(4, "big") + record(TEXTS[0][1], len(good))[4:],
        record(TEXTS[0][1], len(good))[:84] + b"\x7f\xff\xff\xff" + b"x" * 100,
    ):
        found = []
        assert KeyScanner().scan(good + bad, 0, 0, found, 100) == len(good)
        assert len(found) == 1


def test_texts_that_are_no_utf8_do_not_stop_it():
    data = bytearray(record(f"UNIQ_KEY\x01{'a' * 20}\x02KEYS\x01{'k' * 9}\x02", 0))
    data[data.index(b"aaaa")] = 0xFF
    data[data.index(b"kkkk")] = 0xC0
    assert len(scanned(bytes(data))) == 2
