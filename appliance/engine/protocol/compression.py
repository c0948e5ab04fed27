"""How a body is compressed, and taking that off. PURE but for the lazy import of two optional packages.

By the sys flag: bit 0 says that there is any, bits 8 to 10 which (RocketMQ 5.x `CompressionType`: 1 LZ4 frame, 2 ZSTD,
3 zlib; 0 is what 4.x clients write, zlib). A body is hostile, it may be a decompression bomb: each decoder has a bound.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from .record import SYS_COMPRESSED

#: Zstandard frames may ask for windows of gigabytes; 8 MiB is what its specification tells decoders to support.
ZSTD_WINDOW_BYTES = 8 << 20

_COMPRESSION = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
#: Which package decompresses what Python's own library does not.
PACKAGES = {"lz4": "lz4", "zstd": "zstandard"}


class Undecodable(Exception):
    """The bytes are not what they were taken for."""


def compression_of(sys_flag: int) -> str | None:
    """ "zlib", "lz4", "zstd" or "unknown" by a message's sys flag; None when its body is not compressed."""
    if not sys_flag & SYS_COMPRESSED:
        return None
    return _COMPRESSION.get(sys_flag >> 8 & 7, "unknown")


def decompress(kind: str, data: bytes, limit: int) -> tuple[bytes, bool]:
    """(at most `limit` bytes, whether there is more). Raises Undecodable, ImportError."""
    decoder = DECODERS.get(kind)
    if decoder is None:
        raise Undecodable("its type is not known")
    found = decoder(data, limit + 1)
    return found[:limit], len(found) > limit


def _inflate(data: bytes, limit: int, window_bits: int = zlib.MAX_WBITS) -> bytes:
    decoder = zlib.decompressobj(window_bits)
    try:
        found = decoder.decompress(data, limit)
    except zlib.error as error:
        raise Undecodable(str(error)) from None
    if not decoder.eof and len(found) < limit:
        raise Undecodable("it ends too early")
    return found


def _gunzip(data: bytes, limit: int) -> bytes:
    return _inflate(data, limit, zlib.MAX_WBITS | 16)


def _unlz4(data: bytes, limit: int) -> bytes:
    import lz4.frame

    decoder = lz4.frame.LZ4FrameDecompressor()
    try:
        found = bytes(decoder.decompress(data, limit))
    except (RuntimeError, ValueError) as error:
        raise Undecodable(str(error)) from None
    if not decoder.eof and len(found) < limit:
        raise Undecodable("it ends too early")
    return found


def _unzstd(data: bytes, limit: int) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).stream_reader(data) as reader:
            found = reader.read(limit)
    except zstandard.ZstdError as error:
        raise Undecodable(str(error)) from None
    if not found and data:
        raise Undecodable("it ends too early")
    return bytes(found)


#: kind -> how to decompress; "gzip" is what applications use. Each takes (data, limit) and may raise ImportError.
DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "zlib": _inflate,
    "gzip": _gunzip,
    "lz4": _unlz4,
    "zstd": _unzstd,
}
