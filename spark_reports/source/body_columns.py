"""The columns `body` and `body_encoding`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from appliance.engine.protocol.compression import compression_of
from appliance.engine.protocol.record import SYS_COMPRESSED, body_crc

from .bodies import opened
from .fields import Fixed, texts

#: Most bytes of all decompressed bodies of one batch; a single one may be longer.
BODIES_BYTES = 32 << 20


def wrong_bodies(data: bytes | bytearray | memoryview, fixed: Fixed, rows: np.ndarray) -> list[int]:
    """Return those of some records whose body does not match its CRC."""
    view = memoryview(data)
    begins, crcs = fixed.body_at[rows], fixed.crc[rows]
    ends = begins + fixed.body_size[rows]
    return [
        row
        for row, begin, end, crc in zip(rows.tolist(), begins.tolist(), ends.tolist(), crcs.tolist(), strict=True)
        if begin != end and body_crc(view[begin:end]) != crc
    ]


class Opened(NamedTuple):
    """Compressed bodies among some records. among: number of records handled, from the first on. rows: those with a
    compressed body; bodies, encodings: the results of decompressing."""

    among: int = 0
    rows: np.ndarray = np.zeros(0, np.int64)
    bodies: Sequence[bytes] = ()
    encodings: Sequence[str | None] = ()

    def of(self, kept: np.ndarray) -> Opened:
        """Return the same for some of the records. kept: a mask."""
        some = [index for index, row in enumerate(self.rows.tolist()) if kept[row]]
        numbers = np.cumsum(kept) - 1
        return Opened(
            int(kept.sum()),
            numbers[self.rows[some]],
            [self.bodies[index] for index in some],
            [self.encodings[index] for index in some],
        )


def open_bodies(data: bytes | bytearray | memoryview, fixed: Fixed) -> Opened:
    """Decompress bodies until they take more than BODIES_BYTES, but at least the first."""
    count = len(fixed.at)
    packed = np.flatnonzero(fixed.sys_flag & SYS_COMPRESSED)
    view, total = memoryview(data), 0
    bodies: list[bytes] = []
    encodings: list[str | None] = []
    for row in packed.tolist():
        begin = int(fixed.body_at[row])
        stored = bytes(view[begin : begin + int(fixed.body_size[row])])
        body, encoding = opened(stored, compression_of(int(fixed.sys_flag[row])))
        total += len(body)
        if total > BODIES_BYTES and bodies:
            return Opened(row, packed[: len(bodies)], bodies, encodings)
        bodies.append(body)
        encodings.append(encoding)
    return Opened(count, packed, bodies, encodings)


def body_columns(data: bytes | bytearray | memoryview, fixed: Fixed, found: Opened) -> list[pa.Array]:
    """Return the two columns: bodies, and the compression that each still has."""
    count = len(fixed.at)
    bodies = texts(data, fixed.body_at, fixed.body_at + fixed.body_size)
    if not len(found.rows):
        return [bodies, pa.nulls(count, pa.string())]
    where = np.arange(count)
    where[found.rows] = np.arange(count, count + len(found.rows))
    encodings = np.full(count, None, object)
    encodings[found.rows] = found.encodings
    both = pa.concat_arrays([bodies, pa.array(found.bodies, pa.binary())])
    return [both.take(pa.array(where)), pa.array(encodings, pa.string())]
