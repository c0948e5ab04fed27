"""The fields of many records, as numpy arrays; the engine's `protocol/record.py` has their places."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from appliance.engine.protocol.message_id import decode_host
from appliance.engine.protocol.record import MAGIC_V1, SYS_BORN_IPV6, SYS_STORE_IPV6

from .rows import MAX_MS, MIN_MS, host_text, offset_id
from .wanted import Wanted

_HEAD = np.dtype(
    [
        ("size", ">i4"), ("magic", ">u4"), ("crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
        ("queue_offset", ">i8"), ("physical_offset", ">i8"), ("sys_flag", ">i4"), ("born_ms", ">i8"),
    ]
)  # fmt: skip
_TAIL = np.dtype([("reconsume_times", ">i4"), ("prepared", ">i8"), ("body_size", ">i4")])
_TIME = np.dtype(">i8")
_RAW_HOST = np.dtype("V8")
_HEX = np.array([list(b"%02X" % byte) for byte in range(256)], np.uint8)


class Fixed(NamedTuple):
    """One array each, one value a record; native byte order. at, end: of the record in the data; *_at, *_end: of its
    parts."""

    at: np.ndarray
    end: np.ndarray
    size: np.ndarray
    crc: np.ndarray
    queue_id: np.ndarray
    flag: np.ndarray
    queue_offset: np.ndarray
    physical_offset: np.ndarray
    sys_flag: np.ndarray
    born_ms: np.ndarray
    store_ms: np.ndarray
    born_host_at: np.ndarray
    store_host_at: np.ndarray
    store_host_end: np.ndarray
    reconsume_times: np.ndarray
    body_size: np.ndarray
    body_at: np.ndarray
    topic_at: np.ndarray
    topic_end: np.ndarray
    properties_at: np.ndarray
    agrees: np.ndarray

    def take(self, rows: np.ndarray | slice) -> Fixed:
        """Return some of the records. rows: their indices, a mask, or a slice."""
        return Fixed(*[values[rows] for values in self])


def _windows(data: bytes | bytearray | memoryview, kind: np.dtype) -> np.ndarray:
    """Return an array whose item i is data[i:] read as `kind`."""
    return np.ndarray((max(len(data) - kind.itemsize + 1, 0),), kind, data, 0, (1,))


def gather(data: bytes | bytearray | memoryview, at: np.ndarray) -> Fixed:
    """Return the fields of the records at these places; each must be as long as its size says, and at least
    FIXED_BYTES. `agrees` is True for those whose parts fill them exactly."""
    head = _windows(data, _HEAD)[at]
    size = head["size"].astype(np.int32)
    end = at + size
    sys_flag = head["sys_flag"].astype(np.int32)
    born_bytes = np.where(sys_flag & SYS_BORN_IPV6, 20, 8)
    store_host_at = at + 56 + born_bytes
    tail_at = store_host_at + np.where(sys_flag & SYS_STORE_IPV6, 20, 8)
    store_ms = _windows(data, _TIME)[store_host_at - 8].astype(np.int64)
    last = len(data) - 1
    # A short record whose flags announce long hosts is clipped here, and does not agree below.
    tail = _windows(data, _TAIL)[np.minimum(tail_at, len(data) - _TAIL.itemsize)]
    body_size = tail["body_size"].astype(np.int32)
    body_at = tail_at + _TAIL.itemsize
    body_end = body_at + body_size
    agrees = (body_size >= 0) & (body_end < end)
    octets = np.frombuffer(data, np.uint8)
    place = np.where(agrees, body_end, 0)
    short = head["magic"] == MAGIC_V1
    first = octets[place].astype(np.int64)
    topic_size = np.where(short, first, first << 8 | octets[np.minimum(place + 1, last)])
    topic_at = body_end + np.where(short, 1, 2)
    topic_end = topic_at + topic_size
    agrees &= topic_end + 2 <= end
    place = np.where(agrees, topic_end, 0)
    properties_at = topic_end + 2
    properties_size = octets[place].astype(np.int64) << 8 | octets[np.minimum(place + 1, last)]
    agrees &= properties_at + properties_size == end
    return Fixed(
        at=at,
        end=end,
        size=size,
        crc=head["crc"].astype(np.int32),
        queue_id=head["queue_id"].astype(np.int32),
        flag=head["flag"].astype(np.int32),
        queue_offset=head["queue_offset"].astype(np.int64),
        physical_offset=head["physical_offset"].astype(np.int64),
        sys_flag=sys_flag,
        born_ms=head["born_ms"].astype(np.int64),
        store_ms=store_ms,
        born_host_at=at + _HEAD.itemsize,
        store_host_at=store_host_at,
        store_host_end=tail_at,
        reconsume_times=tail["reconsume_times"].astype(np.int32),
        body_size=body_size,
        body_at=body_at,
        topic_at=topic_at,
        topic_end=topic_end,
        properties_at=properties_at,
        agrees=agrees,
    )


def agrees(fixed: Fixed, base: int | None) -> np.ndarray:
    """Return a mask of the records that are valid: their parts fill them, they have a valid queue, and they contain
    their own physical offset."""
    found = fixed.agrees & (fixed.queue_id >= 0) & (fixed.queue_offset >= 0)
    return found if base is None else found & (fixed.physical_offset == fixed.at + base)


def chosen(fixed: Fixed, topics: list[str | None], codes: np.ndarray, wanted: Wanted) -> np.ndarray:
    """Return a mask of the wanted records: `Wanted.has` for many at once. codes: index in `topics` of each record."""
    of_topic = np.array([topic is not None and wanted.has_topic(topic) for topic in topics], bool)
    kept = of_topic[codes]
    if wanted.queue_ids is not None:
        kept &= np.isin(fixed.queue_id, list(wanted.queue_ids))
    for values, low, high in (
        (fixed.store_ms, wanted.from_ms, wanted.to_ms),
        (fixed.queue_offset, wanted.from_offset, wanted.to_offset),
    ):
        if low is not None:
            kept &= values >= low
        if high is not None:
            kept &= values < high
    for bounds, is_start in ((wanted.starts, True), (wanted.ends, False)):
        for (topic, queue_id), offset in bounds.items():
            if topic in topics:
                of_queue = (codes == topics.index(topic)) & (fixed.queue_id == queue_id)
                outside = fixed.queue_offset < offset if is_start else fixed.queue_offset >= offset
                kept &= ~(of_queue & outside)
    return kept


def texts(data: bytes | bytearray | memoryview, begins: np.ndarray, ends: np.ndarray) -> pa.BinaryArray:
    """Return the pieces data[begin:end], which must ascend and not overlap. Copied piece by piece, by Arrow."""
    count = len(begins)
    if not count:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = begins
    bounds[1::2] = ends
    # Pieces and the bytes between them, in turn.
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def hosts(data: bytes | bytearray | memoryview, begins: np.ndarray, ends: np.ndarray) -> pa.StringArray:
    """Return the hosts at data[begin:end] as texts (`host_text`). There are few: one for each producer's connection."""
    encoded = texts(data, begins, ends).dictionary_encode()
    names = [host_text(decode_host(raw)) for raw in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)


def times(ms: np.ndarray) -> pa.TimestampArray:
    """Return Spark's timestamps; null for times outside the years 1 to 9999, from clocks that were wrong."""
    nonsense = (ms < MIN_MS) | (ms > MAX_MS)
    none = nonsense if nonsense.any() else None
    return pa.array(np.where(nonsense, 0, ms) * 1000, pa.int64(), mask=none).cast(pa.timestamp("us", tz="UTC"))


def message_ids(data: bytes | bytearray | memoryview, fixed: Fixed, unique_keys: pa.StringArray) -> pa.StringArray:
    """Return the messages' ids: the unique key, or the offset id without one."""
    if not unique_keys.null_count:
        return unique_keys
    rows = np.flatnonzero(unique_keys.is_null().to_numpy(zero_copy_only=False))
    long = (fixed.sys_flag[rows] & SYS_STORE_IPV6) != 0
    short = rows[~long]
    raw = np.empty((len(short), 16), np.uint8)
    raw[:, :8] = _windows(data, _RAW_HOST)[fixed.store_host_at[short]].view(np.uint8).reshape(-1, 8)
    raw[:, 8:] = fixed.physical_offset[short].astype(">i8").view(np.uint8).reshape(-1, 8)
    digits = np.ascontiguousarray(_HEX[raw])
    bounds = np.arange(0, 32 * len(short) + 1, 32, dtype=np.int32)
    ids = pa.Array.from_buffers(pa.string(), len(short), [None, pa.py_buffer(bounds), pa.py_buffer(digits)])
    if long.any():
        view = memoryview(data)
        places = fixed.store_host_at[rows[long]].tolist()
        offsets = fixed.physical_offset[rows[long]].tolist()
        found = [
            offset_id(decode_host(bytes(view[at : at + 20])), offset)
            for at, offset in zip(places, offsets, strict=True)
        ]
        ids = pa.concat_arrays([ids, pa.array(found, pa.string())])
    where = np.full(len(fixed.at), -1, np.int64)
    where[short] = np.arange(len(short))
    where[rows[long]] = np.arange(len(short), len(rows))
    return pc.coalesce(unique_keys, ids.take(pa.array(where, mask=where < 0)))
