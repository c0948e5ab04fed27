"""Bodies without their compression."""

from __future__ import annotations

from appliance.engine.protocol.compression import Undecodable, decompress

#: Largest decompressed body: four times a broker's largest usual message (4 MiB), well below a worker's memory.
LIMIT_BYTES = 16 << 20


def opened(body: bytes, kind: str | None) -> tuple[bytes, str | None]:
    """Return (body, None), or (body as stored, its compression) if it cannot be decompressed: the library is not
    installed, its kind is unknown, it is damaged, or it is longer than LIMIT_BYTES."""
    if kind is None:
        return body, None
    try:
        found, more = decompress(kind, body, LIMIT_BYTES)
    except (ImportError, Undecodable):
        return body, kind
    return (body, kind) if more else (found, None)
