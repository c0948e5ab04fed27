"""Every byte of a closed log file is under a CRC, from its closing to its removal."""

import threading
from pathlib import Path

import pytest

from appliance.engine.disk import Disk
from appliance.engine.errors import CorruptFile
from appliance.engine.store.log import block_checksums
from appliance.engine.store.log.block_checksums import BLOCK_BYTES, BlockChecksums, decode_checksums, encode_checksums
from tests.support.store import FailingDisk, StoreUnderTest
from tests.support.waiting import wait_for

SEGMENT = 3 * BLOCK_BYTES // 2  # its last block is half a block


@pytest.fixture
def store(tmp_path):
    store = StoreUnderTest(tmp_path, segment_bytes=SEGMENT).open()
    yield store
    store.stop()


def fill(store, files):
    while store.store.log.written < files * SEGMENT:
        store.write("T", 0, b"x" * 4000)


def wait_sealed(store, count):
    def are_sealed():
        store.store.blocks.wakeup()
        return store.store.blocks.sealed >= count

    wait_for(are_sealed, f"{count} files to be sealed")


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def test_a_closed_file_is_sealed_and_the_open_one_is_not(store, tmp_path):
    fill(store, 2)
    wait_sealed(store, 2)
    assert sorted(p.name for p in (tmp_path / "rocketbox" / "blocks").iterdir()) == [f"{0:020d}", f"{SEGMENT:020d}"]
    checksums = BlockChecksums(store.store.paths, Disk())
    for start in (0, SEGMENT):
        block_bytes, sums = checksums.load(start)
        data = (tmp_path / "store" / "commitlog" / f"{start:020d}").read_bytes()
        expected = [block_checksums.crc32(data[at : at + block_bytes]) for at in range(0, SEGMENT, block_bytes)]
        assert (block_bytes, list(sums)) == (BLOCK_BYTES, expected)


def test_files_that_were_closed_before_are_sealed_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(block_checksums.BlockChecksumService, "start", lambda self: None)
    store = StoreUnderTest(tmp_path, segment_bytes=SEGMENT).open()
    fill(store, 2)
    store.stop()
    monkeypatch.undo()
    store = StoreUnderTest(tmp_path, segment_bytes=SEGMENT).open()
    wait_sealed(store, 2)
    store.stop()


def test_a_scrub_finds_a_flipped_bit_and_says_where(store, tmp_path, monkeypatch):
    monkeypatch.setattr(block_checksums, "CACHED_BYTES_PER_S", 1 << 40)
    fill(store, 2)
    wait_sealed(store, 2)
    store.store.blocks.scrub()
    assert store.store.blocks.damaged == ()
    assert store.store.files.findings() == []
    name = f"{SEGMENT:020d}"
    # For example in a record's born time, which no checksum of Apache's covers.
    flip(tmp_path / "store" / "commitlog" / name, BLOCK_BYTES + 5)
    for _ in range(2):  # the second scrub does not report it again
        store.store.blocks.scrub()
        assert store.store.blocks.damaged == ((name, SEGMENT + BLOCK_BYTES, 2 * SEGMENT),)
        (finding,) = store.store.files.findings()
        assert (finding.kind, finding.file, finding.begin, finding.end) == (
            "blocks",
            f"commitlog/{name}",
            SEGMENT + BLOCK_BYTES,
            2 * SEGMENT,
        )


def test_every_block_is_compared(store, tmp_path, monkeypatch):
    monkeypatch.setattr(block_checksums, "CACHED_BYTES_PER_S", 1 << 40)
    fill(store, 1)
    wait_sealed(store, 1)
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    for at, block in ((0, 0), (BLOCK_BYTES - 1, 0), (BLOCK_BYTES, 1), (SEGMENT - 1, 1)):
        flip(path, at)
        store.store.blocks.scrub()
        assert [d[1] for d in store.store.blocks.damaged] == [block * BLOCK_BYTES], at
        flip(path, at)
    store.store.blocks.scrub()
    assert store.store.blocks.damaged == ()


def test_checksums_go_with_their_file(store, tmp_path):
    fill(store, 3)
    wait_sealed(store, 3)
    for hook in store.store.on_removed:
        hook(2 * SEGMENT)
    assert store.store.blocks.checksums.starts() == [2 * SEGMENT]


def test_a_file_that_is_open_again_loses_its_checksums(tmp_path):
    """Apache, or RocketBox, may have cut the log's end back into a file that was closed."""
    store = StoreUnderTest(tmp_path, segment_bytes=SEGMENT).open()
    fill(store, 1)
    wait_sealed(store, 1)
    store.store.blocks.checksums.save(SEGMENT, SEGMENT, [0, 0])
    store.store.blocks.checksums.save(7 * SEGMENT, SEGMENT, [0, 0])
    store.stop()
    store = StoreUnderTest(tmp_path, segment_bytes=SEGMENT).open()
    wait_sealed(store, 1)
    store.stop()
    assert store.store.blocks.checksums.starts() == [0]


def test_damaged_checksums_are_made_anew(tmp_path):
    store = StoreUnderTest(tmp_path, segment_bytes=SEGMENT).open()
    fill(store, 1)
    wait_sealed(store, 1)
    store.stop()
    path = tmp_path / "rocketbox" / "blocks" / f"{0:020d}"
    whole = path.read_bytes()
    flip(path, 30)
    store = StoreUnderTest(tmp_path, segment_bytes=SEGMENT).open()
    wait_sealed(store, 1)
    store.stop()
    assert path.read_bytes() == whole


def test_a_disk_that_refuses_is_told_and_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(block_checksums, "RETRY_S", 0.05)
    disk = FailingDisk()
    store = StoreUnderTest(tmp_path, segment_bytes=SEGMENT, disk=disk).open()
    blocks = store.store.blocks
    failing = threading.Event()

    def save(*args):
        failing.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(blocks.checksums, "save", save)
    fill(store, 1)
    blocks.wakeup()
    assert failing.wait(60)
    assert "No space left" in wait_for(lambda: blocks.failure, "it to say so")
    monkeypatch.delattr(blocks.checksums, "save")
    wait_sealed(store, 1)
    wait_for(lambda: blocks.failure is None, "it to be well")
    store.stop()


def test_any_flipped_bit_of_a_checksum_file_is_seen():
    raw = encode_checksums(SEGMENT, SEGMENT, [1, 2])
    assert decode_checksums(raw) == (SEGMENT, SEGMENT, BLOCK_BYTES, (1, 2))
    for at in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(CorruptFile):
            decode_checksums(bytes(flipped))
    for size in range(len(raw)):
        with pytest.raises(CorruptFile):
            decode_checksums(raw[:size])


def test_a_scrub_leaves_the_page_cache_as_it_was(store, tmp_path, monkeypatch):
    """Pages that were not cached are dropped after the scrub; cached ones stay."""
    monkeypatch.setattr(block_checksums, "SCRUB_BYTES_PER_S", 1 << 40)
    fill(store, 2)
    wait_sealed(store, 2)
    forgotten = []
    monkeypatch.setattr(store.store.disk, "forget_range", lambda fd, position, size: forgotten.append(position))
    monkeypatch.setattr(store.store.disk, "is_resident", lambda fd, position, size: position == 0)
    monkeypatch.setattr(block_checksums, "SLICE_BYTES", BLOCK_BYTES)
    store.store.blocks.scrub()
    assert forgotten == [BLOCK_BYTES, BLOCK_BYTES], "of each of two files the second slice"


def test_reading_keeps_to_its_budget(store, monkeypatch):
    """8 MiB/s from the disk, 32 when old files are sealed; a slice that was in the page cache costs less."""
    waited = []
    monkeypatch.setattr(store.store.blocks, "wait", waited.append)
    for cached, rate, expected in ((False, 8, 1 / 8), (False, 32, 1 / 32), (True, 8, 1 / 256)):
        store.store.blocks._was_cached = cached
        store.store.blocks._pause(rate << 20)
        assert waited[-1] == expected
