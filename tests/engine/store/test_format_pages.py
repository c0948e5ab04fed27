"""The worked examples of docs/formats are what the code writes."""

import re
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from appliance.engine.protocol.record import decode_record
from appliance.engine.store.checkpoint import RecoveryPosition, RecoveryPositionFile
from appliance.engine.store.consume_queue import ENTRY, ConsumeQueue
from appliance.engine.store.disk import Disk
from appliance.engine.store.dispatch import entry_tag_code
from appliance.engine.store.paths import StorePaths
from appliance.engine.store.queue_ledger import QueueLedger

PAGES = Path(__file__).resolve().parents[3] / "docs" / "formats"


def example(page: str) -> bytes:
    """The bytes of a page's worked example: hex digits at the lines' beginnings; two blanks begin a comment."""
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
