"""Producers, sizes, copies and frequent keys: against a plain recount, in any order, in any number of parts."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.engine.protocol.properties import decode_properties
from spark_reports.facts.contents import LONGEST, MOST_FREQUENT, MOST_NAMED, Contents, _property, bounds_of, bucket_of

TOPICS = ("orders", "clicks", "ü-名")
messages = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from((*TOPICS, "TBW102", "%RETRY%g", "rmq_sys_x")),
            "host": st.sampled_from(
                ("10.0.0.1", "10.0.0.2", "10.0.7.1", "10.9.0.1", "fd00::1", "fd00:0:1::1", "fe80::1")
            ),
            "born_ms": st.none() | st.integers(0, 2000) | st.just(1 << 47),
            "size": st.integers(91, 5000),
            "body_size": st.integers(0, 70) | st.integers(0, 1 << 22),
            "unique": st.none() | st.sampled_from([f"id{n}" for n in range(6)] + ["x" * 200, "x" * 201]),
            "keys": st.none() | st.sampled_from(("a", "b a", "a  a c", "   ", " ".join("defghijklmnopqrstuvw"))),
            "shard": st.none() | st.sampled_from(("s", "a")),
        }
    ),
    max_size=60,
)


def _taken(found: Contents, rows: list) -> Contents:
    for at, one in rows:
        found.take(
            one["topic"], one["host"], one["born_ms"], 1000, one["size"], one["body_size"], at % 3, at // 3, at * 100,
            one["unique"], one["keys"], one["shard"],
        )  # fmt: skip
    return found


@settings(max_examples=60, deadline=None)
@given(messages)
def test_below_the_bounds_all_counts_are_exact(sent: list) -> None:
    rows = _taken(Contents(), list(enumerate(sent))).rows()
    people = [(at, one) for at, one in enumerate(sent) if one["topic"] in TOPICS]

    producers: dict = defaultdict(list)
    for _, one in people:
        producers[one["topic"], one["host"]].append(one)
    assert {row[:5] for row in rows["producers"]} == {
        (*key, len(of), sum(one["size"] for one in of), sum(one["born_ms"] is not None for one in of))
        for key, of in producers.items()
    }
    for topic, host, _, _, timed, after, least, most in rows["producers"]:
        born = [1000 - one["born_ms"] for one in producers[topic, host] if one["born_ms"] is not None]
        assert (timed, least, most) == ((len(born), min(born), max(born)) if born else (0, 0, 0))
        assert after == sum(max(-86_400_000, ms) for ms in born)

    sizes = Counter((one["topic"], bucket_of(one["body_size"])) for _, one in people)
    assert {row[:2]: row[2] for row in rows["sizes"]} == sizes
    assert sum(row[3] for row in rows["sizes"]) == sum(one["body_size"] for _, one in people)

    for topic, body, size, queue_id, offset, at_ms, _ in rows["largest"]:
        of = [(at, one) for at, one in people if one["topic"] == topic]
        at, one = max(of, key=lambda pair: (pair[1]["body_size"], -pair[0]))
        assert (body, size, queue_id, offset, at_ms) == (one["body_size"], one["size"], at % 3, at // 3, 1000)

    ids = Counter((one["topic"], one["unique"]) for _, one in people if one["unique"])
    repeats: dict = defaultdict(lambda: [0, 0, 0])
    for (topic, _), count in ids.items():
        for n, value in enumerate((1, count > 1, count - 1)):
            repeats[topic][n] += value
    assert {row[0]: [*row[1:4]] for row in rows["repeats"]} == repeats
    assert all(row[-1] == 1 for row in [*rows["repeats"], *rows["frequent"]])

    keys: Counter = Counter()
    for _, one in people:
        words = sorted(set((one["keys"] or "").split()))[:16]
        keys.update(("key", one["topic"], word) for word in words)
        keys.update([("shard", one["topic"], one["shard"])] if one["shard"] else ())
    for what in ("key", "shard"):
        order = sorted((key for key in keys if key[0] == what), key=lambda key: (-keys[key], key[1:]))
        shown = {row[:3]: row[3] for row in rows["frequent"] if row[0] == what}
        assert shown == {key: keys[key] for key in order[:MOST_FREQUENT]}
    assert all(len(row[2]) <= LONGEST for row in rows["frequent"])


@settings(max_examples=60, deadline=None)
@given(messages, st.randoms(use_true_random=False), st.integers(1, 4))
def test_order_and_parts_make_no_difference(sent: list, chance: random.Random, parts: int) -> None:
    def small() -> Contents:
        return Contents(most_producers=3, most_ids=4, most_keyed=40)

    given_rows = list(enumerate(sent))
    expected = _taken(small(), given_rows).rows()
    chance.shuffle(given_rows)
    merged = small()
    pieces = [_taken(small(), given_rows[n::parts]) for n in range(parts)]
    for piece in chance.sample(pieces, len(pieces)):
        found = list(piece.parts())
        assert sum(part[0] == "id" for part in found) <= 4
        assert sum(part[2].count("\x02") for part in found if part[0] == "keyed") <= 40
        for part in found:
            merged.merge(part)
    assert merged.rows() == expected


def test_a_sample_estimates_copies_and_frequent_keys() -> None:
    """A hundred thousand messages in samples of a thousand: a twentieth of the ids came twice, and a tenth of the
    messages have one key."""
    chance, found, at = random.Random(5), Contents(most_ids=1000, most_keyed=1000), 0
    for number in range(100_000):
        key = "hot" if number % 10 == 3 else f"k{chance.randrange(1 << 40)}"
        for _ in range(1 + (number % 20 == 7)):
            found.take("orders", "10.0.0.1", 0, 0, 200, 100, 0, at, at * 200, f"7F00{number:028X}", key, None)
            at += 1
    rows = found.rows()
    ((_, ids, repeated, copies, one_in),) = rows["repeats"]
    assert 500 < ids <= 1000
    assert one_in == 128
    assert ids * one_in == pytest.approx(100_000, rel=0.1)
    assert copies == repeated
    assert copies / ids == pytest.approx(0.05, abs=0.025)
    (hot,) = (row for row in rows["frequent"] if row[2] == "hot")
    assert hot[3] * hot[4] == pytest.approx(10_000, rel=0.3)
    assert max(row[3] for row in rows["frequent"] if row[0] == "key") == hot[3]


def test_chosen_ids_cannot_stay_in_the_sample() -> None:
    """Ids with a check sum of their producer's choice, here 0 together with the topic, are like any others."""
    found, ids = Contents(), []
    for number in range(500):
        text = _with_crc_zero(f"t\0{number:06d}".encode())
        if text is not None:
            ids.append(text.partition("\0")[2])
    assert len(ids) > 20
    for at, unique in enumerate(ids):
        found.take("t", "10.0.0.1", 0, 0, 200, 100, 0, at, at * 200, unique, None, None)
    found._ids.rise(8)
    assert len(found._ids.found) < len(ids) // 4


def _with_crc_zero(data: bytes) -> str | None:
    """Return a text that begins so and has the CRC-32 0; None if its last four bytes are no text."""
    table = [0] * 256
    for index in range(256):
        value = index
        for _ in range(8):
            value = value >> 1 ^ 0xEDB88320 * (value & 1)
        table[index] = value
    of_top = {value >> 24: index for index, value in enumerate(table)}
    state, steps = 0xFFFFFFFF, []
    for _ in range(4):
        steps.append(of_top[state >> 24])
        state = (state ^ table[steps[-1]]) << 8 & 0xFFFFFFFF
    state = crc32(data) ^ 0xFFFFFFFF
    for index in reversed(steps):
        data += bytes([(state ^ index) & 0xFF])
        state = table[index] ^ state >> 8
    assert not crc32(data)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def test_messages_with_many_long_keys_are_fewer_in_the_sample() -> None:
    found = Contents(most_keyed=1000)
    for at in range(1, 501):
        keys = " ".join(f"{at}-{word}-{'x' * 100}" for word in range(20))
        found.take("t", "10.0.0.1", 0, 0, 200, 100, 0, at, at * 200, None, keys, None)
    assert 200 < sum(text.count("\x02") for text in found._keyed.found.values()) <= 1000


def test_keys_without_a_word_take_no_room() -> None:
    found = Contents()
    found.take("t", "10.0.0.1", 0, 0, 200, 100, 0, 0, 0, None, " ", None)
    assert not found._keyed.found


def test_of_very_many_producers_networks_are_counted() -> None:
    found = Contents(most_producers=300)
    for n in range(2000):
        found.take("t", f"10.{n % 4}.{n // 100}.{n % 100}", 1, 3, 10, 5, 0, n, n * 10, None, None, None)
    rows = found.rows()["producers"]
    assert {row[1] for row in rows} == {f"10.{a}.{b}.0/24" for a in range(4) for b in range(20)}
    assert sum(row[2] for row in rows) == 2000
    assert {row[4:] for row in rows} == {(25, 50, 2, 2)}


def test_only_so_many_producers_have_a_row() -> None:
    found = Contents()
    for n in range(MOST_NAMED + 20):
        for m in range(1 + (n < MOST_NAMED)):
            found.take("t", f"10.0.{n // 250}.{n % 250}", None, 3, 10, 5, 0, n, n * 10 + m, None, None, None)
    rows = found.rows()["producers"]
    assert len(rows) == MOST_NAMED + 20
    assert rows[0] == ("", "10.0.4.0", 1, 10, 0, 0, 0, 0)


def test_messages_of_hosts_with_very_many_topics_stay_those_of_the_hosts() -> None:
    found, place = Contents(), 0
    sent = [("10.0.0.1", 2 * MOST_NAMED), ("10.0.0.2", MOST_NAMED), *((f"10.1.{n}", 1) for n in range(3 * MOST_NAMED))]
    for host, topics in sent:
        for n in range(topics):
            found.take(f"t{n}", host, 7, 9, 10, 5, 0, 0, place := place + 1, None, None, None)
    rows = found.rows()["producers"]
    by_host: Counter[str] = Counter()
    for _, host, messages, *_ in rows:
        by_host[host] += messages
    assert len(rows) <= 2 * MOST_NAMED + 1
    assert (by_host["10.0.0.1"], by_host["10.0.0.2"]) == (2 * MOST_NAMED, MOST_NAMED)
    assert by_host[""] == by_host.total() - sum(by_host[host] for host in by_host if host) > 0
    assert by_host.total() == place
    assert {(row[5], *row[6:]) for row in rows if row[0]} == {(2, 2, 2)}
    assert {(row[5] - 2 * row[4], *row[6:]) for row in rows} == {(0, 2, 2)}, "times are summed up, too"


@given(st.integers(0, 1 << 40))
def test_a_bucket_holds_its_size_and_spans_an_eighth(size: int) -> None:
    least, most = bounds_of(bucket_of(size))
    assert least <= size <= most
    assert (most - least) * 8 <= least
    assert bucket_of(least) == bucket_of(most) == bucket_of(most + 1) - 1


@given(
    st.lists(st.sampled_from(["\x01", "\x02", "KEYS", "KEYS\x01", "\x02KEYS\x01", "XKEYS\x01", "K", "v"])).map("".join)
)
def test_a_property_is_the_one_that_all_others_find(text: str) -> None:
    assert _property(text, "KEYS") == decode_properties(text).get("KEYS")
