"""Bytes that were cut off a member's log because the set went on without them: kept, listed, and readable for people.

    quarantine/diverged-<epoch>-<from>-<to>.log     the bytes of the log, from one physical offset to another
    quarantine/diverged-<epoch>-<from>-<to>.json    whose they were, why they were cut off, what they contain

The .json is written last: without it a .log is ignored. docs/formats/quarantine.md has its fields.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from .. import fastjson
from ..disk import Disk
from ..errors import CorruptFile
from ..protocol.record import FIXED_BYTES, MAGIC_BLANK, SIZE_MAGIC, Record, decode_record
from ..store.log.log_scan import check_place
from ..store.log.raw_log import RECORD_MAGICS, WINDOW_BYTES, RawLog, is_whole

logger = logging.getLogger(__name__)

FORMAT = 1
#: Bytes copied at a time.
PIECE_BYTES = 4 * 1024 * 1024
#: Topics that are counted one by one.
MAX_TOPICS = 1000
#: Messages of one page, and bytes that are read for it.
MAX_PAGE = 1000
PAGE_BYTES = 64 * 1024 * 1024
#: Most bytes of a .json that are read. RocketBox's own are shorter; a longer one is cut off here, and does not parse.
MAX_JSON_BYTES = 4 * 1024 * 1024


class Tail(NamedTuple):
    """A .log: bytes of the log from one physical offset to another."""

    path: Path
    begin: int
    end: int
    segment_bytes: int

    def records(self, disk: Disk, offset: int = 0) -> Iterator[Record]:
        """Yield the whole records from a physical offset on; other bytes are skipped. Raises OSError."""
        fd = disk.open(self.path, read_only=True)
        try:
            yield from _records(disk, fd, self.begin, self.end, self.segment_bytes, max(offset, self.begin))
        finally:
            disk.close(fd)


class Cut(NamedTuple):
    """A part of the log to cut off, from one physical offset to another. epoch: the newest one in it."""

    epoch: int
    begin: int
    end: int
    segment_bytes: int


class Kept(NamedTuple):
    """Content of a .json. records: number of whole ones. topics: name -> messages. own_epochs, leaders_epochs: (epoch,
    start) pairs as the two had them. leader: uuid."""

    tail: Tail
    epoch: int
    records: int
    topics: dict[str, int]
    own_epochs: tuple[tuple[int, int], ...]
    leaders_epochs: tuple[tuple[int, int], ...]
    leader: str
    reason: str
    cut_ms: int


class KeptMessage(NamedTuple):
    """One message that was cut off. offset: its physical offset in the log, by which `read_record` finds it. keys,
    unique_key: "" without."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    keys: str
    unique_key: str
    tags: str
    store_time_ms: int
    born_time_ms: int


class Page(NamedTuple):
    """Messages in the order of the log. next: physical offset of the next page, -1 after the last one."""

    messages: list[KeptMessage]
    next: int


# --- keeping


def keep(
    raw: RawLog,
    disk: Disk,
    directory: Path,
    cut: Cut,
    facts: dict[str, Any],
) -> Path:
    """Copy the part of the log that will be cut off; return the path of the .log, durable. Raises OSError.

    facts: further fields of the .json. Bytes that were kept before are not kept twice.
    """
    epoch, begin, end, segment_bytes = cut
    disk.make_directory(directory)
    stem = f"diverged-{epoch}-{begin:020d}-{end:020d}"
    temporary = directory / f"{stem}.tmp"
    try:
        checksum = _copy(raw, disk, temporary, begin, end)
        records, topics = _count(disk, temporary, begin, end, segment_bytes)
    except OSError:
        _remove(disk, temporary)
        raise
    number = 1
    while True:
        path = directory / (f"{stem}.log" if number == 1 else f"{stem}-{number}.log")
        known = _load_json(disk, path.with_suffix(".json"))
        if known is not None and known.get("crc32") == checksum and disk.exists(path):
            _remove(disk, temporary)
            return path
        if not disk.exists(path.with_suffix(".json")):  # beside a damaged .json the bytes may be others: they stay
            break
        number += 1
    disk.rename(temporary, path)
    disk.sync_directory(directory)
    named = dict(topics.most_common(MAX_TOPICS))
    found = {
        "v": FORMAT,
        "epoch": epoch,
        "from": begin,
        "to": end,
        "file_bytes": segment_bytes,
        "crc32": checksum,
        "records": records,
        "topics": named,
        **({"more_topics": len(topics) - len(named)} if len(topics) > len(named) else {}),
        **facts,
    }
    disk.replace(path.with_suffix(".json"), json.dumps(found, indent=1, ensure_ascii=False).encode() + b"\n")
    return path


def _copy(raw: RawLog, disk: Disk, path: Path, begin: int, end: int) -> int:
    """Copy [begin, end) of the log to a file; return the CRC-32 of the bytes."""
    checksum = 0

    def pieces() -> Iterator[bytes]:
        nonlocal checksum
        offset = begin
        while offset < end:
            data = raw.read(offset, min(PIECE_BYTES, end - offset))
            if not data:
                raise OSError(0, f"the log cannot be read at {offset}")
            checksum = crc32(data, checksum)
            yield data
            offset += len(data)

    disk.write_new(path, pieces())
    return checksum


def _count(disk: Disk, path: Path, begin: int, end: int, segment_bytes: int) -> tuple[int, Counter[str]]:
    topics: Counter[str] = Counter()
    records = 0
    for record in Tail(path, begin, end, segment_bytes).records(disk):
        records += 1
        if record.topic in topics or len(topics) < 100 * MAX_TOPICS:
            topics[record.topic] += 1
    return records, topics


def _remove(disk: Disk, path: Path) -> None:
    try:
        disk.unlink(path)
    except OSError as error:
        logger.warning("quarantine: %s stays: %s", path, error)


# --- reading


def kept_tails(directory: Path, disk: Disk) -> list[Kept]:
    """Return everything that was cut off here, the newest first; entries that cannot be read are left out."""
    try:
        names = disk.names(directory)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        path = directory / name
        if name.startswith("diverged-") and name.endswith(".json") and disk.exists(path.with_suffix(".log")):
            known = _load_json(disk, path)
            try:
                if known is not None:
                    found.append(_kept(path.with_suffix(".log"), known))
            except (KeyError, TypeError, ValueError) as error:
                logger.warning("quarantine: %s cannot be read: %s", path, error)
    return sorted(found, key=lambda one: -one.cut_ms)


def _kept(path: Path, found: dict[str, Any]) -> Kept:
    return Kept(
        Tail(path, int(found["from"]), int(found["to"]), int(found["file_bytes"])),
        int(found["epoch"]),
        int(found["records"]),
        {str(topic): int(count) for topic, count in found["topics"].items()},
        tuple((int(epoch), int(start)) for epoch, start in found["own_epochs"]),
        tuple((int(epoch), int(start)) for epoch, start in found["leaders_epochs"]),
        str(found["leader"]),
        str(found["reason"]),
        int(found["cut_ms"]),
    )


def _load_json(disk: Disk, path: Path) -> dict[str, Any] | None:
    """Load the .json of a tail; None if there is none, or it cannot be read, which is logged."""
    data = disk.read_if_any(path, MAX_JSON_BYTES)
    if data is None:
        return None
    try:
        found = fastjson.loads_plain(data)
        if not isinstance(found, dict) or found.get("v") != FORMAT:
            raise ValueError("it is none of this version's")
    except ValueError as error:
        logger.warning("quarantine: %s cannot be read, and its messages are not listed: %s", path, error)
        return None
    return found


def read_page(kept: Kept, disk: Disk, offset: int, limit: int) -> Page:
    """Return up to `limit` messages from a physical offset on: first `kept.tail.begin`, then a page's `next`. A page
    has fewer if PAGE_BYTES were read for it, or it is the last. Raises OSError."""
    messages: list[KeptMessage] = []
    limit = max(1, min(limit, MAX_PAGE))
    begin = max(offset, kept.tail.begin)
    for record in kept.tail.records(disk, begin):
        messages.append(_message(record))
        end = record.physical_offset + record.size
        if len(messages) >= limit or end - begin >= PAGE_BYTES:
            return Page(messages, end if end < kept.tail.end else -1)
    return Page(messages, -1)


def read_record(kept: Kept, disk: Disk, offset: int) -> Record | None:
    """Return the whole message that lay at a physical offset, None if there is none. Raises OSError."""
    if offset < kept.tail.begin:
        return None
    found = next(kept.tail.records(disk, offset), None)
    return found if found is not None and found.physical_offset == offset else None


def _message(record: Record) -> KeptMessage:
    properties = dict(pair.split("\1", 1) for pair in record.properties.split("\2") if "\1" in pair)
    return KeptMessage(
        record.physical_offset,
        record.size,
        record.topic,
        record.queue_id,
        record.queue_offset,
        properties.get("KEYS", ""),
        properties.get("UNIQ_KEY", ""),
        properties.get("TAGS", ""),
        record.store_time_ms,
        record.born_time_ms,
    )


def _records(disk: Disk, fd: int, begin: int, end: int, segment_bytes: int, offset: int) -> Iterator[Record]:
    """Yield the whole records from a physical offset on; other bytes are skipped up to the next record."""

    def read(at: int, size: int) -> bytes:
        return disk.pread(fd, min(size, end - at), at - begin)

    base, data = offset, b""
    while offset < end:
        left = segment_bytes - offset % segment_bytes
        at = offset - base
        if not is_whole(data, at):
            base, data, at = offset, read(offset, WINDOW_BYTES), 0
            if len(data) < 8:
                return
            if not is_whole(data, 0) and data[4:8] in RECORD_MAGICS:
                data = read(offset, min(left, SIZE_MAGIC.unpack_from(data)[0]))
        size, magic = SIZE_MAGIC.unpack_from(data, at)
        if magic == MAGIC_BLANK and size == left:
            offset += size
            continue
        record = _record(data, at, offset, left)
        if record is None:
            offset = _next_magic(read, offset + 1, end)
        else:
            offset += size
            yield record


def _record(data: bytes, at: int, offset: int, left: int) -> Record | None:
    if not FIXED_BYTES <= SIZE_MAGIC.unpack_from(data, at)[0] <= left:
        return None
    try:
        record = decode_record(data, at)
        check_place(record, offset)
    except CorruptFile:
        return None
    return record


def _next_magic(read: Callable[[int, int], bytes], offset: int, end: int) -> int:
    """Return the physical offset, `offset` or later, where something with a record's magic begins; `end` if nothing
    has."""
    while offset < end:
        data = read(offset, WINDOW_BYTES)
        found = min((at for magic in RECORD_MAGICS if (at := data.find(magic, 4)) >= 0), default=-1)
        if found >= 0:
            return offset + found - 4
        if len(data) < 8:
            return end
        offset += len(data) - 7
    return end
