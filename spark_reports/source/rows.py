"""Converts records to rows, one after another by the engine's own decoder: the reference for `columns.py`, which uses
it for odd records. Needs pyarrow only when a batch is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from appliance.engine.protocol.compression import compression_of
from appliance.engine.protocol.message_id import encode_host, encode_offset_id
from appliance.engine.protocol.properties import KEYS, PRODUCER_GROUP, TAGS, UNIQUE_KEY, decode_properties
from appliance.engine.protocol.record import Record

from .bodies import opened
from .schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

#: A row: values in the order of the columns; times in microseconds.
Row = tuple[Any, ...]

#: The years 1 to 9999, in ms, which both Python and Spark can represent. Producers' clocks may show anything.
MIN_MS, MAX_MS = -62_135_596_800_000, 253_402_300_799_999


def row_of(record: Record, body: bool, broker: str | None = None) -> Row:
    """Convert a record. body: with the columns of bodies. broker: name of the one from which it was read, if known."""
    properties = decode_properties(record.properties)
    key = properties.get(UNIQUE_KEY)
    row: Row = (
        record.topic,
        record.queue_id,
        record.queue_offset,
        offset_id(record.store_host, record.physical_offset) if key is None else key,
        properties.get(KEYS),
        properties.get(TAGS),
        _time(record.born_time_ms),
        _time(record.store_time_ms),
        record.reconsume_times,
        len(record.body),
        record.size,
        record.flag,
        record.sys_flag,
        record.physical_offset,
        list(properties.items()),
        broker,
        host_text(record.born_host),
        host_text(record.store_host),
        properties.get(PRODUCER_GROUP),
    )
    return (*row, *opened(record.body, compression_of(record.sys_flag))) if body else row


def _time(ms: int) -> int | None:
    return ms * 1000 if MIN_MS <= ms <= MAX_MS else None


def host_text(host: tuple[str, int]) -> str:
    """Return a host as text: 10.1.2.3:10911, [fd00::17]:10911."""
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def offset_id(host: tuple[str, int], physical_offset: int) -> str:
    """Return the id of a message without a unique key, made of its place. A damaged port may be any number."""
    address, port = host
    return encode_offset_id(encode_host(address, 0)[:-4] + port.to_bytes(4, "big"), physical_offset)


def batch_of(rows: Iterable[Row], body: bool) -> pa.RecordBatch:
    import pyarrow as pa

    schema = arrow_schema(body)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
