"""The code writes the worked examples of docs/formats."""

import re
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from appliance.engine.broker.offset_resets.records import Line, Move, ResetRecord, encode_line
from appliance.engine.disk import Disk
from appliance.engine.protocol.record import decode_record
from appliance.engine.store import findings
from appliance.engine.store.checkpoint import RecoveryPosition, RecoveryPositionFile
from appliance.engine.store.dispatch import entry_tag_code
from appliance.engine.store.findings import Finding, Findings
from appliance.engine.store.index.index_file import IndexFile, IndexHeader
from appliance.engine.store.index.index_keys import key_hash
from appliance.engine.store.log.block_checksums import BLOCK_BYTES, decode_checksums, encode_checksums
from appliance.engine.store.paths import StorePaths
from appliance.engine.store.queues.batch_queue import units_of
from appliance.engine.store.queues.consume_queue import ENTRY, ConsumeQueue
from appliance.engine.store.queues.queue_extension import address_of, decode_unit, is_address
from appliance.engine.store.queues.queue_ledger import QueueLedger

PAGES = Path(__file__).resolve().parents[3] / "docs" / "formats"


def example(page: str) -> bytes:
    """Return the bytes of a page's worked example: hex digits at the lines' beginnings; two blanks begin a comment."""
    block = re.findall(r"```\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)[-1]
    return b"".join(bytes.fromhex(re.split(r" {2,}", line)[0]) for line in block.splitlines())


def test_the_records_page():
    record = decode_record(example("record.md"))
    assert (record.topic, record.body, record.physical_offset, record.size) == ("T", b"hello", 4096, 107)


def test_the_consume_queues_page():
    record = decode_record(example("record.md"))
    assert example("consume-queue.md") == ENTRY.pack(4096, 107, entry_tag_code(record, []))


def test_the_recovery_positions_page(tmp_path):
    file = RecoveryPositionFile(tmp_path / "p", Disk())
    position = RecoveryPosition(107, 0, 107, 907060870, 1700000000001, 1, 1, 40, crc32(example("queue-ledger.md")))
    file.save(position)
    file.save(position)
    assert (tmp_path / "p").read_bytes()[:72] == example("checkpoint.md")
    assert RecoveryPositionFile(tmp_path / "p", Disk()).position == position


def test_the_queue_ledgers_page(tmp_path):
    queue = ConsumeQueue("T", 0, 1)
    queue.min_offset = 0
    ledger = QueueLedger(StorePaths(tmp_path / "store", tmp_path), Disk(), 6_000_000)
    place = ledger.save([queue])
    ledger.close()
    assert (tmp_path / "queue-ledger-00000001").read_bytes() == example("queue-ledger.md")
    assert place == (1, len(example("queue-ledger.md")), crc32(example("queue-ledger.md")))


def test_the_block_checksums_page():
    checksums = [crc32(bytes(65536)), crc32(bytes(32768))]
    assert example("block-checksums.md") == encode_checksums(98304, 98304, checksums)
    assert decode_checksums(example("block-checksums.md")) == (98304, 98304, BLOCK_BYTES, tuple(checksums))


def test_the_queue_extensions_page():
    data = example("queue-extension.md")
    assert decode_unit(data) == (22, 2598919, 1700000000001, b"\x05\x01")
    assert data[22:] == ENTRY.pack(4096, 107, address_of(1024))
    assert is_address(ENTRY.unpack(data[22:])[2])


def test_the_batch_queues_page(tmp_path):
    (tmp_path / "units").write_bytes(example("batch-queue.md") + bytes(46))
    units = list(units_of(tmp_path / "units"))
    assert units == [(0, (4096, 107, 0, 1700000000001, 7, 5, -1, 0))]


def test_the_quarantines_page(tmp_path):
    block = re.findall(r"```\n(.*?)```", (PAGES / "quarantine.md").read_text(), re.DOTALL)[-1]
    paths = StorePaths(tmp_path / "store", tmp_path / "rocketbox")
    paths.quarantine.mkdir(parents=True)
    (paths.quarantine / findings.NAME).write_text(block)
    (finding,) = Findings(paths, Disk()).all()
    assert (finding.kind, finding.begin, finding.end) == ("torn", 4096, 5120)
    (paths.quarantine / findings.NAME).unlink()
    Findings(paths, Disk()).add(finding)
    assert (paths.quarantine / findings.NAME).read_text().strip() == block.strip()
    for name in Finding._fields:
        assert f"`{name}`" in (PAGES / "quarantine.md").read_text()


def test_the_index_files_page(tmp_path):
    file = IndexFile(tmp_path / "i", Disk(), 4, 3, IndexHeader(0, 0, 0, 0, 0, 1))
    assert file.put([(key_hash("T", key), 4096, 1700000000001) for key in ("K1", "K5")], 0) == 2
    file.close()
    assert (tmp_path / "i").read_bytes() == example("index-file.md")
    assert f"`T#K1` has the hash {key_hash('T', 'K1')}" in (PAGES / "index-file.md").read_text()


def test_the_offset_resets_page():
    page = (PAGES / "offset-resets.md").read_bytes()
    acts = re.findall(rb"```\n(.*?)```", page, re.DOTALL)[-1]
    moves = (Move("T", 0, 7, 0), Move("T", 1, -1, 3))
    record = ResetRecord(1700000000000, "reset", "CG", "alice", 1700000000000, "earliest", moves)
    assert acts == encode_line(Line(reset=record)) + encode_line(Line(over=((1700000000000, "T", 0),)))
