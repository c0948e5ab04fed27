"""Bodies without their compression."""

from __future__ import annotations

from appliance.engine.protocol.compression import Undecodable, decompress

#: No body is decompressed further: four times what a broker's largest usual message (4 MiB) holds, well below what a
#: worker has.
LIMIT_BYTES = 16 << 20


def opened(body: bytes, kind: str | None) -> tuple[bytes, str | None]:
    """(body, None), or (body as it is stored, what it is still in) where it cannot be decompressed: the library is not
    installed, its kind is not known, it is damaged, or it is longer than LIMIT_BYTES."""
    if kind is None:
        return body, None
    try:
        found, more = decompress(kind, body, LIMIT_BYTES)
    except (ImportError, Undecodable):
        return body, kind
    return (body, kind) if more else (found, None)
