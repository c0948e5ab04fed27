"""Converts bytes of whole records to columns, by numpy and Arrow: Python takes a step for a batch, not for a record.

    data | record | record | record |            starts: where each begins, ascending
    fixed fields   gathered by numpy, big-endian, at their places in each record
    texts          cut out of the bytes by Arrow; properties are split where 0x01 and 0x02 stand
    odd records    by `rows.py` with the engine's own decoder, which is the reference

Records that the engine would find contradictory are left out and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from appliance.engine.errors import CorruptFile
from appliance.engine.protocol.record import FIXED_BYTES, MAGIC_V1, MAGIC_V2, SIZE_MAGIC, decode_record

from . import fields as f
from .body_columns import Opened, body_columns, open_bodies, wrong_bodies
from .names import topic_of
from .property_columns import Properties, split
from .rows import batch_of, row_of
from .schema import arrow_schema
from .wanted import Wanted

Bytes = bytes | bytearray | memoryview

#: Reason for a record whose other parts are right, so that the next one does follow it.
BAD_BODY = "its body does not match its CRC"


class Decoded(NamedTuple):
    """batch: the wanted records, in their order. corrupt: (index among the starts, why) of those that are no records.

    used: number of the starts that were handled; fewer than all if decompressed bodies go beyond BODIES_BYTES."""

    batch: pa.RecordBatch
    corrupt: list[tuple[int, str]]
    used: int


def record_batch(data: Bytes, wanted: Wanted) -> pa.RecordBatch:
    """Decode the wanted ones of whole records, one after another, as a pull's answer has them. Raises CorruptFile for
    anything else."""
    found = list(record_batches(data, wanted))
    return found[0] if len(found) == 1 else pa.concat_batches(found or [batch_of((), wanted.body)])


def record_batches(data: Bytes, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Like `record_batch`, but in several batches if decompressed bodies take much memory."""
    starts, end = walk(data, 0, len(data))
    if end != len(data):
        raise CorruptFile(f"{len(data)} bytes of records: at {end} there is no whole one")
    while starts:
        found = decode(data, starts, wanted)
        if found.corrupt:
            index, reason = found.corrupt[0]
            raise CorruptFile(f"the record at {starts[index]}: {reason}")
        yield found.batch
        starts = starts[found.used :]


def walk(data: Bytes, at: int, end: int) -> tuple[list[int], int]:
    """Return (begins of records from `at` on, the place behind the last whole one below `end`), by sizes alone."""
    starts: list[int] = []
    head = SIZE_MAGIC.unpack_from
    add = starts.append
    last = end - FIXED_BYTES
    while at <= last:
        size, magic = head(data, at)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < FIXED_BYTES or at + size > end:
            break
        add(at)
        at += size
    return starts, at


def decode(data: Bytes, starts: Sequence[int], wanted: Wanted, base: int | None = None) -> Decoded:
    """Decode records that `walk` found. base: the physical offset of data[0], with which each record must agree; None
    if unknown."""
    if not starts:
        return Decoded(batch_of((), wanted.body), [], 0)
    fixed = f.gather(data, np.array(starts, np.int64))
    corrupt = [(i, _why(data, starts[i], wanted)) for i in np.flatnonzero(~f.agrees(fixed, base)).tolist()]
    rows = np.arange(len(starts))
    if corrupt:
        rows = np.delete(rows, [i for i, _ in corrupt])
        fixed = fixed.take(rows)
    names = f.texts(data, fixed.topic_at, fixed.topic_end).dictionary_encode()
    codes = names.indices.to_numpy(zero_copy_only=False)
    topics = [topic_of(raw) for raw in names.dictionary.to_pylist()]
    nameless = [code for code, topic in enumerate(topics) if topic is None]
    if nameless:
        kept = ~np.isin(codes, nameless)
        corrupt += [(int(i), "its topic is no name") for i in rows[~kept]]
        rows, fixed, codes = rows[kept], fixed.take(kept), codes[kept]
    kept = f.chosen(fixed, topics, codes, wanted)
    if wanted.body:
        candidates = np.flatnonzero(kept)
        wrong = wrong_bodies(data, fixed, candidates)
        corrupt += [(int(rows[i]), BAD_BODY) for i in wrong]
        kept[wrong] = False
    if not kept.all():
        rows, fixed, codes = rows[kept], fixed.take(kept), codes[kept]
    opened, used = Opened(), len(starts)
    if wanted.body:
        opened = open_bodies(data, fixed)
        if opened.among < len(rows):
            used = int(rows[opened.among])
            rows, fixed, codes = rows[: opened.among], fixed.take(slice(opened.among)), codes[: opened.among]
            corrupt = [one for one in corrupt if one[0] < used]
    if not len(rows):
        return Decoded(batch_of((), wanted.body), sorted(corrupt), used)
    properties = split(f.texts(data, fixed.properties_at, fixed.end))
    odd = properties.odd
    if not odd.any():
        return Decoded(_batch(data, fixed, topics, codes, properties, opened, wanted), sorted(corrupt), used)
    # Few records: with properties without a value, with separators in odd places, or not valid text.
    plain, plain_rows = [], []
    for i in np.flatnonzero(odd):
        try:
            plain.append(row_of(decode_record(data, starts[rows[i]], check_crc=False), wanted.body, wanted.broker))
            plain_rows.append(int(rows[i]))
        except CorruptFile as error:
            corrupt.append((int(rows[i]), str(error)))
    batches = [batch_of(plain, wanted.body)]
    usual = ~odd
    if usual.any():
        fixed, codes = fixed.take(usual), codes[usual]
        properties = split(f.texts(data, fixed.properties_at, fixed.end))
        batches.append(_batch(data, fixed, topics, codes, properties, opened.of(usual), wanted))
    order = np.argsort(np.concatenate([np.array(plain_rows, np.int64), rows[usual]]), kind="stable")
    table = pa.Table.from_batches(batches).take(pa.array(order)).combine_chunks()
    found = table.to_batches()
    return Decoded(found[0] if found else batch_of((), wanted.body), sorted(corrupt), used)


def _why(data: Bytes, at: int, wanted: Wanted) -> str:
    """Return why bytes are no valid record."""
    try:
        record = decode_record(data, at, wanted.body)
    except CorruptFile as error:
        return str(error)
    return f"it says it lies at {record.physical_offset} and is number {record.queue_offset} of queue {record.queue_id}"


def _batch(
    data: Bytes,
    fixed: f.Fixed,
    topics: list[str | None],
    codes: np.ndarray,
    properties: Properties,
    opened: Opened,
    wanted: Wanted,
) -> pa.RecordBatch:
    """Make a batch of records that are all right, none of them odd."""
    arrays = [
        pa.array(topics, pa.string()).take(pa.array(codes)),
        pa.array(fixed.queue_id),
        pa.array(fixed.queue_offset),
        f.message_ids(data, fixed, properties.unique_key),
        properties.keys,
        properties.tags,
        f.times(fixed.born_ms),
        f.times(fixed.store_ms),
        pa.array(fixed.reconsume_times),
        pa.array(fixed.body_size),
        pa.array(fixed.size),
        pa.array(fixed.flag),
        pa.array(fixed.sys_flag),
        pa.array(fixed.physical_offset),
        properties.maps,
        pa.array([wanted.broker], pa.string()).take(pa.array(np.zeros(len(codes), np.int32))),
        f.hosts(data, fixed.born_host_at, fixed.store_host_at - 8),
        f.hosts(data, fixed.store_host_at, fixed.store_host_end),
        properties.producer_group,
    ]
    if wanted.body:
        arrays += body_columns(data, fixed, opened)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(wanted.body))
