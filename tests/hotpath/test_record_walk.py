"""Records of another broker's log: both twins take the same ones, with the same queue entries, and refuse the same."""

from __future__ import annotations

import random
import struct

import pytest

from appliance.engine.errors import CorruptFile
from appliance.engine.hotpath import RecordWalk
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, SIZE_MAGIC, Record, encode_record
from appliance.engine.store import replica
from appliance.engine.store.dispatch import Dispatch
from appliance.engine.store.log import log_scan
from tests.support.ha import VERSIONS, manifest, recorded
from tests.support.store import StoreUnderTest

pytestmark = pytest.mark.compiled

FILE = 1 << 16
HOSTS = encode_host("127.0.0.1", 10911), encode_host("fd00::1", 10911)
TEXTS = (
    "", "TAGS\x01a", "TAGS\x01", "x\x01y\x02TAGS\x01订单\x02", "TAGS\x01a\x02TAGS\x01b", "TAGS\x01a\x02k\x01TAGS\x01c",
    "MYTAGS\x01a", "TAGS\x01a\x02\x02TAGS\x01\x02", "DELAY\x013\x02TAGS\x01a", "KEYS\x01é\x02TAGS\x01😀", "\0" * 9,
)  # fmt: skip
TOPICS = ("A", "A", "B" * 127, "主题", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXY")
HOSTILE_TOPICS = ("", ".", "..", "a/b", "a\x1f", "a\x7f", "...", "\x00")
Taken = list[tuple[int, bytes | None, tuple]]


def log_of(
    chance: random.Random, count: int, base: int, topics=TOPICS, odd=0.02, highest=replica.MAX_QUEUE_OFFSET
) -> bytes:
    """Return a log's bytes from `base` on; queue offsets follow each other, with rare exceptions."""
    data = bytearray()
    offsets: dict[tuple[str, int], int] = {}
    for _ in range(count):
        topic, queue_id = chance.choice(topics), chance.choice((0, 0, 1, 7))
        offset = offsets.get((topic, queue_id), chance.randrange(3))
        if chance.random() < odd:
            offset = chance.choice((0, offset + 1, highest, 1 << 40))
        offsets[topic, queue_id] = min(offset + 1, replica.MAX_QUEUE_OFFSET)
        record = Record(
            0, chance.choice((MAGIC_V1, MAGIC_V1, MAGIC_V2)), 0, queue_id, 0, offset, base + len(data),
            chance.choice((0, 0, 0, 1, 4, 8, 12, 0x80)), 0, ("", 0), chance.choice((0, 5, 1 << 50, -1)), ("", 0), 0, 0,
            chance.randbytes(chance.choice((0, 1, 90, 3000))), topic, chance.choice(TEXTS),
        )  # fmt: skip
        packed = encode_record(record, chance.choice(HOSTS), chance.choice(HOSTS))
        left = FILE - (base + len(data)) % FILE
        if len(packed) + 8 > left:
            data += SIZE_MAGIC.pack(left, MAGIC_BLANK).ljust(left, b"\0")
            continue
        data += packed
    return bytes(data)


def entries_of(record: Record) -> tuple:
    dispatch = Dispatch([1000], {})
    if not dispatch.has_entry(record):
        return ()
    return record.topic, record.queue_id, record.queue_offset, dispatch.entry(record)


def taken(monkeypatch, walk, data: bytes, base: int, sizes: list[int], file_bytes=FILE) -> tuple[Taken, str, int]:
    """Feed the data to a walk; return (records as physical offset, bytes and entry; the error that ended it, or "";
    number of records that the compiled one took)."""
    made = []

    def make(crc32):
        made.append(walk(crc32))
        return made[-1]

    monkeypatch.setattr(replica, "RecordWalk", make if walk is not None else None)
    incoming = replica.Incoming(file_bytes)
    incoming.begin(base)
    found: Taken = []
    at, turn, why = 0, 0, ""
    try:
        while at < len(data):
            size = sizes[turn % len(sizes)]
            turn += 1
            incoming.feed(base + at, memoryview(data)[at : at + size])
            at += size
            while (piece := incoming.take()) is not None:
                found += of_piece(piece)
    except CorruptFile as error:
        why = str(error)
    return found, why, made[0].taken if made else 0


def of_piece(piece: replica.Piece) -> Taken:
    if not piece.parts:
        return [(piece.offset, bytes(piece.data), ())]
    found: dict[int, tuple] = {}
    for part in piece.parts:
        if isinstance(part, replica.Runs):
            records = list(piece.records_of(part))
            entries = {}
            for topic, queue_id, first, count, packed in part.runs:
                assert len(packed) == 20 * count > 0
                for n in range(count):
                    entry = packed[20 * n : 20 * n + 20]
                    entries[struct.unpack_from(">q", entry)[0]] = (topic, queue_id, first + n, entry)
            assert part.last == records[-1].physical_offset
            assert part.store_ms == max(record.store_time_ms for record in records)
            assert len({run[:2] for run in part.runs}) == len(part.runs)
            found |= {one.physical_offset: entries.pop(one.physical_offset, ()) for one in records}
            assert not entries
        else:
            found[part.physical_offset] = entries_of(part)
    assert sorted(found) == list(found), "in their order"
    ends = [*list(found)[1:], piece.end]
    data, offset = piece.data, piece.offset
    return [(at, bytes(data[at - offset : end - offset]), found[at]) for at, end in zip(found, ends, strict=True)]


def check(monkeypatch, data: bytes, base: int, sizes: list[int], file_bytes=FILE) -> tuple[int, str]:
    """Assert that both twins take the same records; return how many the compiled one took, and why it ended."""
    pure, why, _ = taken(monkeypatch, None, data, base, sizes, file_bytes)
    found, compiled_why, count = taken(monkeypatch, RecordWalk, data, base, sizes, file_bytes)
    if not why:
        assert found == pure
    else:
        # Records before the bad one may be taken in other pieces, and dropped with them.
        least = min(len(found), len(pure))
        assert found[:least] == pure[:least]
    assert compiled_why == why
    return count, why


@pytest.mark.parametrize("seed", range(30))
def test_random_logs(monkeypatch, seed):
    chance = random.Random(seed)
    base = chance.choice((0, FILE * 7, FILE << 20, (1 << 62) // FILE * FILE))
    data = log_of(chance, 150, base)
    sizes = [chance.choice((1, 40, 700, 9000, 1 << 20)) for _ in range(20)]
    _, why = check(monkeypatch, data, base, sizes)
    assert not why


@pytest.mark.parametrize("seed", range(150))
def test_hostile_bytes(monkeypatch, seed):
    """Some bytes are changed, or a topic's name is invalid."""
    chance = random.Random(1000 + seed)
    data = bytearray(log_of(chance, 12, 0, TOPICS + (HOSTILE_TOPICS if seed % 3 == 0 else ())))
    for _ in range(chance.choice((0, 1, 1, 2, 5)) if seed % 3 == 0 else chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(data))
        data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << chance.randrange(8)))
    check(monkeypatch, bytes(data), 0, [chance.choice((50, 3000, 1 << 20))])


def test_each_byte_of_a_head(monkeypatch):
    chance = random.Random(5)
    data = log_of(chance, 3, 0, ("A",))
    ended = 0
    for at in range(140):
        for value in (0, 0x7F, 0xFF, data[at] ^ 0x10):
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            ended += bool(check(monkeypatch, changed, 0, [1 << 20])[1])
    assert ended > 100


def test_the_end_of_a_file(monkeypatch):
    """A record must leave room for a blank one behind it in the file."""
    data = log_of(random.Random(6), 3, 0, ("A",), 0)
    fits = [not check(monkeypatch, data, 0, [1 << 20], len(data) + room)[1] for room in range(-20, 20)]
    assert fits == [room >= 8 for room in range(-20, 20)]


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_streams(monkeypatch, version):
    events = [one for one in recorded(version) if one.body]
    data = b"".join(one.body for one in events)
    count, why = check(monkeypatch, data, manifest(version)["firstOffset"], [5000], 65_536)
    assert not why
    assert count > 10


def all_entries(store, queue) -> bytes:
    """Return a queue's entries; a read ends early if they move from the tail to a file meanwhile."""
    found = b""
    while (offset := queue.min_offset + len(found) // 20) < queue.max_offset:
        found += store.queues.read_entries(queue, offset, queue.max_offset - offset)
    return found


def stored(monkeypatch, walk, directory, data: bytes, sizes: list[int]) -> tuple[bytes, dict]:
    """Give a log's bytes to a store, up to a record that it refuses; return (its log, the state of each queue).

    Entries are read wherever they are: a thread moves them to files meanwhile.
    """
    monkeypatch.setattr(replica, "RecordWalk", walk)
    under_test = StoreUnderTest(directory, segment_bytes=FILE).open()
    store = under_test.store
    try:
        appender, incoming = replica.ReplicaAppender(store), replica.Incoming(FILE)
        incoming.begin(0)
        at, turn, refused = 0, 0, ""
        try:
            while at < len(data):
                size = sizes[turn % len(sizes)]
                turn += 1
                incoming.feed(at, memoryview(data)[at : at + size])
                at += size
                while (piece := incoming.take()) is not None:
                    appender.append(piece)
                    if turn % 3:
                        store.end_tick()
        except replica.CannotPlace as error:
            refused = str(error)
        store.end_tick()
        queues = {
            (queue.topic, queue.queue_id): (
                queue.min_offset, queue.max_offset, queue.next_offset, all_entries(store, queue),
            )
            for queue in store.queues.all()
        }  # fmt: skip
        assert store.published == store.log.written
        assert refused or store.log.written == len(data)
        return b"".join(store.log.read(one.start, FILE) for one in store.log.segments), {
            **queues, "": (store.store_ms, store.last_record_offset, store.put_count, refused)
        }  # fmt: skip
    finally:
        under_test.stop()


@pytest.mark.parametrize("seed", range(20))
def test_both_make_the_same_store(monkeypatch, tmp_path, seed):
    """Also if queues do not begin at 0, miss entries, go back, or were deleted and made again."""
    chance = random.Random(2000 + seed)
    data = log_of(chance, 150, 0, TOPICS, chance.choice((0, 0.02, 0.2)), 1 << 50)
    sizes = [chance.choice((40, 700, 9000, 1 << 20)) for _ in range(20)]
    pure = stored(monkeypatch, None, tmp_path / "pure", data, sizes)
    assert stored(monkeypatch, RecordWalk, tmp_path / "compiled", data, sizes) == pure
    assert len(pure[1]) > 10 or pure[1][""][-1], "much was placed, or it says what was not"


def recovered(monkeypatch, walk, directory, data: bytes, clean: bool) -> tuple[dict, int]:
    """Start a store with these bytes as its log; return what recovery made of them, and how many records the compiled
    walk took. clean: the store was closed."""
    made = []

    def make(crc32):
        made.append(walk(crc32))
        return made[-1]

    monkeypatch.setattr(log_scan, "RecordWalk", make if walk is not None else None)
    log = directory / "store" / "commitlog"
    log.mkdir(parents=True)
    for start in range(0, len(data), FILE):
        (log / f"{start:020d}").write_bytes(data[start : start + FILE].ljust(FILE, b"\0"))
    if not clean:
        (directory / "store" / "abort").touch()
    under_test = StoreUnderTest(directory, segment_bytes=FILE).open()
    store = under_test.store
    try:
        found = {
            (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset, queue.broken, all_entries(store, queue))
            for queue in store.queues.all()
        }
        found[""] = store.log.written, store.last_record_offset, store.store_ms, store.time_order.begin
        found["log"] = b"".join(store.log.read(one.start, FILE) for one in store.log.segments)
        return found, sum(one.taken for one in made)
    finally:
        under_test.stop()


@pytest.mark.parametrize("seed", range(30))
def test_both_recover_the_same_store(monkeypatch, tmp_path, seed):
    """Also if queues miss entries, go back or begin anew, properties look unwritten, or bytes are damaged."""
    chance = random.Random(3000 + seed)
    odd, clean = (0, 0.02, 0.2)[seed % 3], bool(seed % 2)
    data = bytearray(log_of(chance, 150, 0, TOPICS, odd, 40))
    for _ in range(0 if seed < 15 else chance.choice((1, 3))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    pure, _ = recovered(monkeypatch, None, tmp_path / "pure", bytes(data), clean)
    compiled, count = recovered(monkeypatch, RecordWalk, tmp_path / "compiled", bytes(data), clean)
    assert compiled == pure
    if not odd and clean and seed < 15:
        assert pure[""][0] > len(data) - FILE, "all of it was read"
        assert count > 100, "a walk that takes nothing would pass"


def test_usual_records_are_taken(monkeypatch):
    """A compiled walk that takes nothing would pass every other test."""
    chance = random.Random(1)
    data = log_of(chance, 400, 0, ("A", "B", "主题"), 0)
    records = sum(data.count(struct.pack(">I", magic)) for magic in (MAGIC_V1, MAGIC_V2))
    count, _ = check(monkeypatch, data, 0, [1 << 20])
    assert count == records > 350


def test_a_number_that_no_queue_comes_to_ends_the_copying(monkeypatch):
    data = log_of(random.Random(7), 2, 0, ("A",), 0)
    for number in (replica.MAX_QUEUE_OFFSET, replica.MAX_QUEUE_OFFSET + 1, 2**63 - 1):
        changed = data[:20] + struct.pack(">q", number) + data[28:]
        why = check(monkeypatch, changed, 0, [1 << 20])[1]
        assert bool(why) == (number > replica.MAX_QUEUE_OFFSET)
