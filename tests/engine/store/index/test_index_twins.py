"""The compiled twin of the index finds and writes the same as the pure one, byte for byte."""

import os
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appliance.engine.disk import Disk
from appliance.engine.hotpath import pure_index
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import MAGIC_V1, MAGIC_V2, Record, decode_record, encode_record
from appliance.engine.store.dispatch import keys_of
from appliance.engine.store.index import index_file, index_keys
from appliance.engine.store.index.index_file import FIRST_ENTRY, IndexFile, IndexHeader
from appliance.engine.store.index.index_keys import FastKeyScanner, KeyScanner, key_hash

compiled = pytest.importorskip("appliance.engine.hotpath._compiled")

IPV4, IPV6 = encode_host("127.0.0.1", 10911), encode_host("fd00::1", 10911)
UNIQUE = "7F0000016AB14E0E2F2A6920{:08X}"
BASE = 1 << 33

names = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "MYUNIQ_KEY", "MONKEYS", "KEY", "UNIQ_KEYS", "", "WAIT"])
words = st.one_of(
    st.integers(0, 50).map(UNIQUE.format),
    st.sampled_from(
        ["", "a", "order-1", "one two", " a  b ", "k" * 70, "订单", "é", "KEYS\x01x", "UNIQ_KEY\x01y", "\x7f"]
    ),
    st.text("ab \x01é", max_size=12),
)
pairs = st.builds(
    lambda name, separator, value: name + separator + value, names, st.sampled_from("\x01\x01\x01\x01="), words
)
texts = st.one_of(
    st.builds(lambda found, end: "\x02".join(found) + end, st.lists(pairs, max_size=5), st.sampled_from(["", "\x02"])),
    st.text("KEYSUNIQ_\x01\x02 aé", max_size=40),
)
topics = st.sampled_from(["A", "A", "TopicTest", "B" * 127, "主题", "%RETRY%g"])
records_ = st.builds(
    lambda text, topic, body, magic, sys_flag, hosts, time_ms: (text, topic, body, magic, sys_flag, hosts, time_ms),
    texts,
    topics,
    st.binary(max_size=60),
    st.sampled_from([MAGIC_V1] * 9 + [MAGIC_V2]),
    st.sampled_from([0, 0, 0, 4, 8, 12, 1]),
    st.sampled_from([(IPV4, IPV4)] * 8 + [(IPV6, IPV4), (IPV4, IPV6)]),
    st.one_of(st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-(1 << 63), (1 << 63) - 1)),
)


def joined(records, base=BASE):
    data = bytearray()
    for text, topic, body, magic, sys_flag, hosts, time_ms in records:
        fields = (0, magic, 0, 0, 0, 0, base + len(data), sys_flag, 0, None, time_ms, None, 0, 0, body, topic, text)
        data += encode_record(Record(*fields), *hosts)
    return bytes(data)


def both(monkeypatch_scan, data, at, limit, base=BASE):
    """Return (keys found by the pure twin and where it stopped, the same of the compiled one)."""
    pure_found, found = [], compiled.Keys()
    pure_stop = KeyScanner().scan(data, at, base, pure_found, limit)
    stop = fast_scanner(monkeypatch_scan).scan(data, at, base, found, limit)
    return (pure_found, pure_stop), (found[:], stop)


def fast_scanner(patch):
    patch.setattr(index_keys, "scan_keys", compiled.scan_keys)
    return FastKeyScanner()


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@settings(max_examples=400, deadline=None)
@given(records=st.lists(records_, max_size=8), limit=st.integers(1, 10))
def test_both_find_the_same_keys(patch, records, limit):
    data = joined(records)
    pure, fast = both(patch, data, 0, limit)
    assert fast == pure
    if limit >= len(records):
        assert pure[1] == len(data)
        assert pure[0] == [
            (key_hash(topic, key), physical, time_ms)
            for (text, topic, _, _, sys_flag, _, time_ms), physical in zip(records, starts(records), strict=True)
            if sys_flag & 12 != 12
            for key in keys_of(text)
        ]


def starts(records):
    return [BASE + len(joined(records[:count])) for count in range(len(records))]


@settings(max_examples=600, deadline=None)
@given(data=st.data(), records=st.lists(records_, min_size=1, max_size=5))
def test_both_find_the_same_in_damaged_bytes(patch, data, records):
    raw = bytearray(joined(records))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.one_of(st.sampled_from([0, 1, 2, 32, 127, 128, 255]), st.integers(0, 255)))
    raw = bytes(raw[: len(raw) - data.draw(st.sampled_from([0, 0, 1, 40]))])
    for at in (0, data.draw(st.integers(0, len(raw)))):
        pure, fast = both(patch, raw, at, 100)
        assert fast == pure


@pytest.mark.parametrize(
    "text",
    [
        "UNIQ_KEY\x01" + "A" * 32 + "\x02TAGS\x01t\x02",
        "KEYS\x01one two  three\x02UNIQ_KEY\x01" + "A" * 32 + "\x02",
        "TAGS\x01t",
        "KEYS\x01" + "k" * 100,
        "KEYS\x01订单 é 号😀\x02",
    ],
)
def test_usual_records_are_taken_by_the_compiled_twin(patch, text):
    data = joined([(text, "TopicTest", b"body", MAGIC_V1, flag, (IPV4, IPV4), 7) for flag in (0, 8, 12, 0)])
    found = compiled.Keys()
    assert compiled.scan_keys(data, 0, BASE, found, 100) == (len(data), 96)
    assert len(found) == 3 * len(keys_of(text))
    scanner = fast_scanner(patch)
    assert scanner.scan(data, 0, BASE, compiled.Keys(), 100) == len(data)
    assert scanner.left == 0


@settings(max_examples=2000, deadline=None)
@given(
    text=st.one_of(st.binary(max_size=6), st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass")))
)
@example(text=b"\xed\xa0\x80")  # half of a pair
@example(text=b"\xed\xbf\xbf")
@example(text=b"\xe0\x80\xaf")  # longer than it needs to be
@example(text=b"\xf0\x80\x80\x80")
@example(text=b"\xf4\x90\x80\x80")  # behind the last character
def test_texts_have_javas_hash_or_are_left(patch, text):
    """Includes texts that are no UTF-8, in a key and in a topic."""
    text = bytes(byte for byte in text if byte not in (1, 2, 32)) or b"a"
    room = "A" * len(text)
    for properties, topic in ((f"KEYS\x01{room}\x02", "t"), ("KEYS\x01k\x02", room)):
        data = joined([(properties, topic, b"", MAGIC_V1, 0, (IPV4, IPV4), 7)]).replace(room.encode(), text)
        pure, fast = both(patch, data, 0, 10)
        assert fast == pure
        try:
            text.decode()
        except UnicodeDecodeError:
            continue
        assert compiled.scan_keys(data, 0, BASE, compiled.Keys(), 10) == (len(data), 9)


def test_a_record_that_is_left_leaves_no_key_behind():
    data = joined([("KEYS\x01one two BAD\x02UNIQ_KEY\x01u\x02", "A", b"", MAGIC_V1, 0, (IPV4, IPV4), 7)])
    found = compiled.Keys()
    assert compiled.scan_keys(data.replace(b"BAD", b"B\xff\xff"), 0, BASE, found, 10) == (0, 10)
    assert len(found) == 0


def test_unusual_records_end_a_scan_early(patch):
    record = ("KEYS\x01\x02", "A", b"", MAGIC_V1, 0, (IPV4, IPV4), 7)
    count = index_keys.LEFT + 5
    data = joined([record] * count)
    scanner = fast_scanner(patch)
    at = scanner.scan(data, 0, BASE, compiled.Keys(), 10_000)
    assert at == len(data) // count * index_keys.LEFT
    assert scanner.scan(data, at, BASE, compiled.Keys(), 10_000) == len(data)
    assert scanner.left == count


def test_a_window_larger_than_what_the_gil_is_kept_for_is_the_same(patch):
    rng = random.Random(1)
    data = joined(
        (f"UNIQ_KEY\x01{UNIQUE.format(number)}\x02", "TopicTest", rng.randbytes(100), MAGIC_V1, 0, (IPV4, IPV4), number)
        for number in range(1000)
    )
    pure, fast = both(patch, data, 0, 1 << 30)
    assert fast == pure
    assert len(pure[0]) == 1000


# --- entries and slots

keys_ = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 30), st.integers(0, (1 << 31) - 1)),
        st.integers(0, (1 << 62)),
        st.one_of(st.integers(1_700_000_000_000, 1_700_000_009_000), st.integers(-(1 << 63), (1 << 63) - 1)),
    ),
    max_size=40,
)


def packed(keys):
    found = compiled.Keys()
    for key in keys:
        found.append(key)
    return found


def table_of(values):
    table = memoryview(bytearray(4 * len(values))).cast("i")
    for slot, value in enumerate(values):
        table[slot] = value
    return table


@settings(max_examples=400, deadline=None)
@given(
    keys=keys_,
    begin=st.integers(0, 5),
    slots=st.lists(
        st.one_of(st.just(0), st.integers(-5, 40), st.integers(-(1 << 31), (1 << 31) - 1)), min_size=1, max_size=20
    ),
    number=st.one_of(st.just(1), st.integers(1, 10_000)),
    begin_ms=st.one_of(st.just(0), st.integers(1_700_000_000_000, 1_700_000_009_000), st.integers(-5, 1 << 62)),
)
def test_both_write_the_same_entries_and_slots(keys, begin, slots, number, begin_ms):
    begin = min(begin, len(keys))
    count = len(keys) - begin
    one, other = table_of(slots), table_of(slots)
    pure = pure_index.put_keys(one, keys, begin, count, number, 7, begin_ms)
    assert compiled.put_keys(other, packed(keys), begin, count, number, 7, begin_ms) == pure
    assert other == one
    pure_index.take_back(one, pure[0])
    compiled.take_back(other, pure[0])
    assert other == one
    touched = {code % len(slots) for code, _, _ in keys[begin:]}
    assert one.tolist() == [max(value, 0) if slot in touched else value for slot, value in enumerate(slots)]


@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=400), slots=st.integers(1, 9), number=st.integers(1, 1000))
def test_both_link_stored_entries_alike(raw, slots, number):
    raw = raw[: len(raw) // 20 * 20]
    one, other = table_of([0] * slots), table_of([0] * slots)
    assert compiled.link_entries(other, raw, number) == pure_index.link_entries(one, raw, number)
    assert other == one


class LimitedDisk(Disk):
    """Refuses writes of entries while the test wants it."""

    refuses = False

    def write_all(self, fd, data, position):
        if self.refuses and len(data) > 100:
            raise OSError(28, "No space left on device")
        super().write_all(fd, data, position)


def test_files_of_both_are_the_same_to_the_byte_and_a_refused_write_leaves_nothing(tmp_path, monkeypatch):
    rng = random.Random(2)
    keys = [
        (rng.choice((rng.randrange(20), rng.randrange(1 << 31))), 100 * n, 1_700_000_000_000 + 40 * n)
        for n in range(3000)
    ]
    contents, headers = [], []
    for twin, found in ((pure_index, list(keys)), (compiled, packed(keys))):
        for name in ("put_keys", "take_back", "link_entries"):
            monkeypatch.setattr(index_file, name, getattr(twin, name))
        disk = LimitedDisk()
        path = tmp_path / f"{len(contents):017d}"
        file = IndexFile(path, disk, 97, 2501, IndexHeader(5, 5, 5, 5, 0, FIRST_ENTRY))
        file.new_table()
        done = file.put(found, 2000)
        before, table = file.header, file._table.tolist()
        disk.refuses = True
        with pytest.raises(OSError, match="No space"):
            file.put(found, 0)
        disk.refuses = False
        assert (file.header, file._table.tolist()) == (before, table)
        assert done == 1000
        done = file.put(found, 100)
        assert done == 1500, "as far as there is room"
        assert file.full
        assert file.put(found, 1600) == 0
        table, used = file._table.tolist(), file.used
        for _ in file.write_slots():
            pass
        file.write_header()
        for _ in file.rebuild_slots():
            pass
        assert (file._table.tolist(), file.used) == (table, used)
        contents.append(path.read_bytes())
        headers.append(file.header)
        file.close()
    assert contents[0] == contents[1]
    assert headers[0] == headers[1]


def test_what_is_not_there_is_refused():
    table, found = table_of([0, 0]), packed([(1, 2, 3)])
    for begin, count in ((0, 2), (1, 1), (-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="not there"):
            compiled.put_keys(table, found, begin, count, 1, 0, 0)
    with pytest.raises(IndexError):
        found[1]
    with pytest.raises(ValueError, match="no table"):
        compiled.put_keys(memoryview(bytearray()), found, 0, 1, 1, 0, 0)
    assert (found[-1], list(found), found[0:5], len(found)) == ((1, 2, 3), [(1, 2, 3)], [(1, 2, 3)], 1)
    assert table.tolist() == [0, 0]


def test_a_record_that_is_found_by_its_key_at_once_has_that_key(tmp_path):
    """Bytes from no record to a usual one, and a place that holds another one: what is taken, the reference takes, too;
    usual records are taken."""
    chance = random.Random(11)
    names = ("UNIQ_KEY", "UNIQ_KEY", "KEYS", "KEYS", "TAGS", "", "UNIQ_KEYS")
    values = ("a", "b", "a b", " a  b ", "", "ab", "a " * 70, "\u00e9", "a", "c a")
    taken = usual = 0
    path = tmp_path / "log"
    for _ in range(3000):
        pairs = [f"{chance.choice(names)}\x01{chance.choice(values)}" for _ in range(chance.randrange(1, 5))]
        text = "\x02".join(pairs) + chance.choice(("", "\x02"))
        topic, key = chance.choice(("T", "T", "T", "TT")), chance.choice(("a", "a", "b", "ab", "", "\u00e9"))
        body = chance.randbytes(chance.choice((0, 10, 3000, 5000)))
        host = chance.choice((8, 8, 8, 20))
        fields = Record(
            0, chance.choice((MAGIC_V1, MAGIC_V1, MAGIC_V2)), 0, 0, 0, 0, 1000, 0 if host == 8 else 0x30, 0, ("", 0),
            chance.choice((50, 60, 60, 60, 70)), ("", 0), 0, 0, body, topic, text
        )  # fmt: skip
        data = bytearray(encode_record(fields, bytes(host), bytes(host)))
        whole = chance.random() < 0.7
        if not whole:
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        fd = os.open(path, os.O_RDONLY)
        try:
            found = compiled.keyed_record(
                fd, 0, len(data) - chance.choice((0, 0, 0, 1)), 1000, b"T", key.encode(), 60, 65
            )
            assert compiled.keyed_record(fd, 0, len(data), 1001, b"T", key.encode(), 60, 65) is None, (
                "it is not of this place"
            )
        finally:
            os.close(fd)
        if found is None:
            continue
        record = decode_record(bytes(data), check_crc=False)
        assert found == bytes(data[: record.size])
        assert record.topic == "T"
        assert key in keys_of(record.properties)
        assert (record.physical_offset, record.store_time_ms) == (1000, 60)
        taken += 1
        usual += whole
    assert 20 < usual < taken, "the rest were left to the reference"
