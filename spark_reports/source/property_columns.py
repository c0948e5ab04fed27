"""The properties of many records, split without a step in Python for each.

    TAGS 0x01 TagA 0x02 KEYS 0x01 order-17 0x02 | UNIQ_KEY 0x01 7F00... 0x02 | ...

A text is usual when its separators alternate, beginning with 0x01, and nothing between them is empty; the last 0x02 may
be missing, as Java 4.9 leaves it out. Of equal names the last value wins, at the place of the first, as in a dict. All
others are odd, and left to the engine's decoder.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from appliance.engine.protocol.properties import KEYS, PRODUCER_GROUP, TAGS, UNIQUE_KEY

#: Product of names and records up to which equal names are found by a table of all pairs.
_TABLE_ITEMS = 1 << 24


class Properties(NamedTuple):
    """odd: mask of the texts that are not usual; the other fields are set only if there are none."""

    odd: np.ndarray
    unique_key: pa.StringArray | None = None
    keys: pa.StringArray | None = None
    tags: pa.StringArray | None = None
    producer_group: pa.StringArray | None = None
    maps: pa.MapArray | None = None


def split(stored: pa.BinaryArray) -> Properties:
    """Split properties. stored: the texts of one or more records."""
    count = len(stored)
    _, bounds_buffer, octets_buffer = stored.buffers()
    bounds = np.frombuffer(bounds_buffer, np.int32)[stored.offset : stored.offset + count + 1].astype(np.int64)
    if octets_buffer is None or bounds[-1] == bounds[0]:
        none = pa.nulls(count, pa.string())
        maps = _maps(np.zeros(count + 1, np.int32), none[:0], none[:0])
        return Properties(np.zeros(count, bool), none, none, none, none, maps)
    octets = np.frombuffer(octets_buffer, np.uint8)[: bounds[-1]]
    places, is_end, of_record = _separators(octets, bounds)
    odd = _odd(stored, octets, bounds, places, is_end, of_record)
    if odd.any():
        return Properties(odd)
    middles, ends = places[0::2], places[1::2]
    owners = of_record[0::2]
    pairs = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=count), out=pairs[1:])
    begins = np.empty_like(middles)
    begins[1:] = ends[:-1] + 1
    filled = np.flatnonzero(pairs[:-1] != pairs[1:])
    begins[pairs[filled]] = bounds[filled]
    names, values = _cut(octets_buffer, begins, middles, ends)
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    kinds = encoded.dictionary.to_pylist()
    chosen, kept = _last_of_equal(owners, codes, len(kinds), count)
    if chosen is not None:
        names, values = names.take(pa.array(kept)), values.take(pa.array(chosen))
        owners, codes = owners[kept], codes[kept]
        np.cumsum(np.bincount(owners, minlength=count), out=pairs[1:])
    unique_key, keys, tags, group = (
        _pick(name, kinds, codes, owners, values, count) for name in (UNIQUE_KEY, KEYS, TAGS, PRODUCER_GROUP)
    )
    return Properties(odd, unique_key, keys, tags, group, _maps(pairs.astype(np.int32), names, values))


def _maps(pairs: np.ndarray, names: pa.StringArray, values: pa.StringArray) -> pa.MapArray:
    return pa.MapArray.from_arrays(pa.array(pairs, pa.int32()), names, values)


def _separators(octets: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (places of separators, mask of those that are 0x02, record of each); 0x02 is added to texts that do not
    end with it."""
    places = np.flatnonzero(octets - np.uint8(1) <= 1)
    is_end = octets[places] == 2
    lengths = bounds[1:] - bounds[:-1]
    upto = np.searchsorted(places, bounds[1:])
    open_ended = np.flatnonzero((lengths > 0) & (octets[np.maximum(bounds[1:], 1) - 1] != 2))
    counts = np.diff(upto, prepend=np.searchsorted(places, bounds[0]))
    if len(open_ended):
        places = np.insert(places, upto[open_ended], bounds[1:][open_ended])
        is_end = np.insert(is_end, upto[open_ended], True)
        counts[open_ended] += 1
    return places, is_end, np.repeat(np.arange(len(lengths)), counts)


def _odd(
    stored: pa.BinaryArray,
    octets: np.ndarray,
    bounds: np.ndarray,
    places: np.ndarray,
    is_end: np.ndarray,
    of_record: np.ndarray,
) -> np.ndarray:
    """Return a mask of the texts that are not usual."""
    count = len(bounds) - 1
    odd = np.zeros(count, bool)
    counts = np.bincount(of_record, minlength=count)
    odd[counts & 1 == 1] = True
    # Separators alternate within each text; with an even number in all texts before, all alternate.
    first = np.zeros(count, np.int64)
    np.cumsum(counts[:-1], out=first[1:])
    nth = np.arange(len(places)) - first[of_record]
    odd[of_record[is_end != (nth & 1 == 1)]] = True
    # Nothing is empty: each separator is at least two behind the one before it, or one behind its text's begin.
    before = np.empty_like(places)
    before[1:] = places[:-1]
    heads = nth == 0
    before[heads] = bounds[:-1][of_record[heads]] - 1
    odd[of_record[places - before < 2]] = True
    if (octets > 127).any():
        try:
            stored.cast(pa.string())
        except pa.ArrowInvalid:
            odd[[row for row, text in enumerate(stored.to_pylist()) if not _is_text(text)]] = True
    return odd


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _cut(
    octets: pa.Buffer, begins: np.ndarray, middles: np.ndarray, ends: np.ndarray
) -> tuple[pa.StringArray, pa.StringArray]:
    """Return (names, values): pieces [begin, middle) and (middle, end) of valid text."""
    bounds = np.empty(4 * len(begins), np.int32)
    bounds[0::4], bounds[1::4], bounds[2::4], bounds[3::4] = begins, middles, middles + 1, ends
    every = pa.Array.from_buffers(pa.string(), len(bounds) - 1, [None, pa.py_buffer(bounds), octets])
    return (
        every.take(pa.array(np.arange(0, len(bounds), 4, dtype=np.int32))),
        every.take(pa.array(np.arange(2, len(bounds), 4, dtype=np.int32))),
    )


def _last_of_equal(
    owners: np.ndarray, codes: np.ndarray, kinds: int, count: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return (pairs that have the values, pairs that have the names) if any text has a name twice; else (None,
    None)."""
    places = np.arange(len(owners))
    keys = owners * kinds + codes
    if kinds * count <= _TABLE_ITEMS:
        last = np.empty(kinds * count, np.int64)
        last[keys] = places  # the last of equal keys stays
        if (last[keys] == places).all():
            return None, None
        first = np.empty(kinds * count, np.int64)
        first[keys[::-1]] = places[::-1]
        kept = np.flatnonzero(first[keys] == places)
        return last[keys[kept]], kept
    unique, first_of = np.unique(keys, return_index=True)
    if len(unique) == len(keys):
        return None, None
    last_of = len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]
    order = np.argsort(first_of)
    return last_of[order], first_of[order]


def _pick(
    name: str, kinds: list[str], codes: np.ndarray, owners: np.ndarray, values: pa.StringArray, count: int
) -> pa.StringArray:
    """Return the value of one name in each text, null without it."""
    if name not in kinds:
        return pa.nulls(count, pa.string())
    pairs = np.flatnonzero(codes == kinds.index(name))
    if len(pairs) == count:
        return values.take(pa.array(pairs))
    where = np.full(count, -1, np.int64)
    where[owners[pairs]] = pairs
    return values.take(pa.array(where, mask=where < 0))
