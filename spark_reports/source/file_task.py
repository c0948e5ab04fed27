"""One task: the messages of one partition, as batches whose size is bounded."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import numpy as np

from appliance.engine.protocol.record import MAGIC_BLANK, SIZE_MAGIC

from . import findings
from .columns import BAD_BODY, Bytes, decode, walk
from .findings import CORRUPT, GAP, Ledger
from .log_files import FileGone, LogReader
from .plan import FilePartition
from .wanted import Wanted

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes read at once, unless one record is longer. A batch takes about twice as much in addition.
CHUNK_BYTES = 8 << 20
MOST_ROWS = 16_384
#: Messages of a list that are at most this far apart are read at once.
NEAR_BYTES = 64 << 10


class FileTask:
    """Reads one partition; for one call of `batches`."""

    def __init__(self, partition: FilePartition, wanted: Wanted, fails: bool) -> None:
        """fails: failOnDataLoss."""
        self._partition = partition
        self._wanted = wanted
        self._ledger = Ledger(fails)
        self._rows = 0
        self._bytes_read = 0

    def batches(self, findings_dir: str | None) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the partition. Raises OSError, and DataLoss if the option says so."""
        part = self._partition
        try:
            reader = LogReader(part.file)
        except FileGone as error:
            self._ledger.add(GAP, part.begin, part.end, str(error))
        else:
            try:
                found = self._all(reader) if part.places is None else self._listed(reader, part.places)
                for batch in found:
                    if batch.num_rows:
                        self._rows += batch.num_rows
                        yield batch
            finally:
                self._bytes_read = reader.bytes_read
                reader.close()
        if findings_dir is not None:
            findings.write(findings_dir, part.name, self._ledger.found, self._bytes_read, self._rows)

    def _all(self, reader: LogReader) -> Iterator[pa.RecordBatch]:
        at, end = self._partition.begin, self._partition.end
        while at < end:
            data = reader.read(at, min(CHUNK_BYTES, end - at))
            starts, done = walk(data, 0, len(data))
            if not starts:
                at, data, starts = self._odd_place(reader, at, end, data)
                done = len(data)
            base = going_on = at
            for begin in range(0, len(starts), MOST_ROWS):
                some = starts[begin : begin + MOST_ROWS]
                behind = base + (starts[begin + MOST_ROWS] if begin + MOST_ROWS < len(starts) else done)
                going_on = yield from self._decode(reader, data, some, base, behind)
                if going_on != behind:
                    break
            at = going_on

    def _odd_place(self, reader: LogReader, at: int, end: int, data: bytes) -> tuple[int, bytes, list[int]]:
        """Handle a place at which the bytes read have no whole record; return (where to go on, the bytes there, begins
        of records in them)."""
        file = self._partition.file
        if len(data) >= 8:
            size, magic = SIZE_MAGIC.unpack_from(data)
            if magic == MAGIC_BLANK and size == file.end - at:
                return end, b"", []
        long = reader.size_at(at, end)
        if long is not None and long > len(data):
            data = reader.read(at, long)
            if len(data) == long:
                return at, data, [0]
        following = reader.next_record(at + 1, end)
        if following is not None:
            self._damage(at, following, "bytes that are no record")
            return following, b"", []
        if reader.is_cut_off(end):
            self._ledger.add(GAP, at, end, f"{file.path} was cut off at {at - file.start}, it should have more")
        else:
            self._damage(at, end, "bytes that are no record, to the end")
        return end, b"", []

    def _damage(self, begin: int, end: int, reason: str) -> None:
        file = self._partition.file
        text = f"{file.path} is damaged at {begin - file.start}, {end - begin} bytes: {reason}"
        self._ledger.add(CORRUPT, begin, end, text)

    def _decode(
        self, reader: LogReader, data: Bytes, starts: list[int], base: int, behind: int
    ) -> Generator[pa.RecordBatch, None, int]:
        """Yield batches of records of a chunk; return where to go on. behind: the physical offset behind the chunk."""
        ends = [*(base + start for start in starts[1:]), behind]
        done = 0
        while done < len(starts):
            some = starts[done:]
            found = decode(data, some, self._wanted, base)
            for index, reason in found.corrupt:
                begin, following = base + some[index], ends[done + index]
                if reason != BAD_BODY:
                    following = reader.next_record(begin + 1, self._partition.end) or self._partition.end
                if following != ends[done + index]:
                    # Its size is wrong, or no record follows it: so the records found behind it are not reliable.
                    if index:
                        yield from self._decode(reader, data, some[:index], base, begin)
                    self._damage(begin, following, reason)
                    return following
            for index, reason in found.corrupt:
                self._damage(base + some[index], ends[done + index], reason)
            yield found.batch
            done += found.used
        return ends[-1]

    def _listed(self, reader: LogReader, places: bytes) -> Iterator[pa.RecordBatch]:
        """Yield batches of messages that queue entries name."""
        listed = np.frombuffer(places, np.int64).reshape(-1, 2)
        offsets, ends = listed[:, 0], listed[:, 0] + listed[:, 1]
        low = 0
        while low < len(listed):
            high = low + 1
            while (
                high < len(listed)
                and high - low < MOST_ROWS
                and offsets[high] - ends[high - 1] <= NEAR_BYTES
                and ends[high] - offsets[low] <= CHUNK_BYTES
            ):
                high += 1
            base, end = int(offsets[low]), int(ends[high - 1])
            data = reader.read(base, end - base)
            if len(data) < end - base:
                self._ledger.add(GAP, base, end, f"{reader.file.path} was cut off, it should have bytes up to {end}")
                return
            starts = []
            for offset, behind in zip(offsets[low:high].tolist(), ends[low:high].tolist(), strict=True):
                if walk(data, offset - base, behind - base)[0] == [offset - base]:
                    starts.append(offset - base)
                else:
                    self._damage(offset, behind, "no record where a queue has one")
            done = 0
            while done < len(starts):
                found = decode(data, starts[done:], self._wanted, base)
                for index, reason in found.corrupt:
                    begin = starts[done + index]
                    self._damage(base + begin, base + begin + SIZE_MAGIC.unpack_from(data, begin)[0], reason)
                yield found.batch
                done += found.used
            low = high
