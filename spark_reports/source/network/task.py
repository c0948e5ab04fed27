"""The work of one task: its ranges, pulled and turned into columns. Runs in Spark's executors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from .. import findings
from ..columns import decode, walk
from ..findings import CORRUPT, GAP, Ledger
from ..wanted import Wanted
from .access import Access
from .errors import Garbled
from .pulls import OnGap, Pulls, Range, queue_offset_at
from .routes import Queue

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of records in one batch of columns.
_BATCH_BYTES = 4 << 20


@dataclass
class NetworkPartition(InputPartition):
    """The ranges that one task reads, in this order. rows: selects the messages that become rows."""

    ranges: tuple[Range, ...]
    rows: Wanted


@dataclass(frozen=True)
class Task:
    """Pickles. fails: missing messages end the read. findings: directory in which they are counted otherwise."""

    access: Access
    fails: bool
    findings: str | None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition without a value if there is nothing to read.
        if not isinstance(partition, NetworkPartition):
            return
        ledger, size, rows = Ledger(self.fails), 0, 0
        for wanted in partition.ranges:
            of_broker = replace(partition.rows, broker=wanted.queue.broker)
            for data in _joined(Pulls(wanted, self.access, noted_in(ledger))):
                size += len(data)
                for batch in _batches(data, wanted, of_broker, ledger):
                    rows += batch.num_rows
                    yield batch
        if self.findings is not None:
            name = hashlib.sha256(repr(partition.ranges).encode()).hexdigest()[:24]
            findings.write(self.findings, f"network-{name}", ledger.found, size, rows)


def noted_in(ledger: Ledger) -> OnGap:
    """Return an OnGap that notes missing messages, or ends the read, as the ledger is set."""

    def note(queue: Queue, start: int, end: int, why: str) -> None:
        some = f"{end - start} messages" if end - start > 1 else "1 message"
        text = f"{some} of {queue} cannot be read, offsets {start} to {end - 1}: {why}"
        ledger.add(GAP, start, end, text, _place(queue))

    return note


def _batches(data: bytes, wanted: Range, rows: Wanted, ledger: Ledger) -> Iterator[pa.RecordBatch]:
    """Yield batches of the wanted records; damaged ones are noted and left out."""
    servers = " or ".join(wanted.servers)
    begins, end = walk(data, 0, len(data))
    if end != len(data):
        raise Garbled(f"{servers} sent records of {wanted} that are none")
    while begins:
        found = decode(data, begins, rows)
        for index, why in found.corrupt:
            at = queue_offset_at(data, begins[index])
            text = f"{servers} sent a damaged message, offset {at} of {wanted.queue}: {why}"
            ledger.add(CORRUPT, at, at + 1, text, _place(wanted.queue))
        if found.batch.num_rows:
            yield found.batch
        begins = begins[found.used :]


def _place(queue: Queue) -> str:
    return f"{queue.broker}/{queue.topic}-{queue.queue_id}"


def _joined(pulls: Pulls) -> Iterator[bytes]:
    """Yield the pulled records in portions that are large enough for a batch."""
    found: list[memoryview] = []
    size = 0
    for piece in pulls.pieces():
        if piece.records:
            found.append(piece.records)
            size += len(piece.records)
        if size >= _BATCH_BYTES:
            yield b"".join(found)
            found, size = [], 0
    if found:
        yield b"".join(found)
