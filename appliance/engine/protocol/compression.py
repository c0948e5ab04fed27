"""Compression of bodies, and decompression. PURE, except for the lazy import of two optional packages.

In the sys flag, bit 0 marks a compressed body, bits 8 to 10 the type (RocketMQ 5.x `CompressionType`: 1 LZ4 frame, 2
ZSTD, 3 zlib; 0, from 4.x clients, is zlib). A body may be a decompression bomb, so each decoder has a limit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from .record import SYS_COMPRESSED

#: Zstandard frames may demand windows of gigabytes; its specification recommends decoders to support 8 MiB.
ZSTD_WINDOW_BYTES = 8 << 20

_COMPRESSION = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
#: Packages for the types that Python's own library cannot decompress.
PACKAGES = {"lz4": "lz4", "zstd": "zstandard"}


class Undecodable(Exception):
    """The bytes are not of the type that was assumed."""


def compression_of(sys_flag: int) -> str | None:
    """Return "zlib", "lz4", "zstd" or "unknown" by a message's sys flag; None if its body is not compressed."""
    if not sys_flag & SYS_COMPRESSED:
        return None
    return _COMPRESSION.get(sys_flag >> 8 & 7, "unknown")


def decompress(kind: str, data: bytes, limit: int) -> tuple[bytes, bool]:
    """Return (at most `limit` bytes, True if there are more). Raises Undecodable, ImportError."""
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


#: kind -> decompressor; applications use "gzip". Each takes (data, limit) and may raise ImportError.
DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "zlib": _inflate,
    "gzip": _gunzip,
    "lz4": _unlz4,
    "zstd": _unzstd,
}
