"""Options of a producer, checked when it is made."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, TypeAlias

from .errors import InvalidOption
from .wire import SYS_COMPRESSED

Compression: TypeAlias = Literal["zlib", "lz4", "zstd"]

_ZLIB_LEVEL = 5
#: Longest time that a message may wait for others, and the longest that a broker is asked to wait for anything.
_MOST_LINGER_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """As of `Client.producer`. Raises InvalidOption."""

    retries: int = 2
    max_in_flight: int = 10_000
    max_in_flight_bytes: int = 64 << 20
    linger: float = 0.0
    compress: Compression | None = "zlib"
    compress_over: int = 4096
    avoid_slow_brokers: bool = True
    accept_unconfirmed: bool = False

    def __post_init__(self) -> None:
        if self.retries < 0 or self.max_in_flight < 1 or self.max_in_flight_bytes < 1 or self.compress_over < 0:
            raise InvalidOption("retries and compress_over are 0 or more, max_in_flight and its bytes 1 or more.")
        if not 0 <= self.linger <= _MOST_LINGER_S:
            raise InvalidOption(f"linger is 0 to {_MOST_LINGER_S:g} seconds, not {self.linger!r}.")
        if self.compress is not None and self.compress not in _PACKERS:
            raise InvalidOption(f'compress is "zlib", "lz4", "zstd" or None, not {self.compress!r}.')
        package = _PACKAGES.get(self.compress or "")
        if package is not None and find_spec(package) is None:
            raise InvalidOption(f"compress={self.compress!r} needs the package {package}.")

    def compresses(self, size: int) -> bool:
        """True if a body of so many bytes is to be compressed."""
        return self.compress is not None and size >= self.compress_over > 0

    def packed(self, body: bytes) -> tuple[bytes, int]:
        """Return (the body as it is sent, the bits of the system flag that say how it is compressed: 0 if not)."""
        if self.compress is None or not self.compresses(len(body)):
            return body, 0
        pack, type_bits = _PACKERS[self.compress]
        packed = pack(body)
        return (packed, SYS_COMPRESSED | type_bits) if len(packed) < len(body) else (body, 0)


def _zlib(body: bytes) -> bytes:
    return zlib.compress(body, _ZLIB_LEVEL)


def _lz4(body: bytes) -> bytes:
    import lz4.frame

    return bytes(lz4.frame.compress(body, block_linked=False))  # Java reads no blocks that need those before them


def _zstd(body: bytes) -> bytes:
    import zstandard

    return zstandard.compress(body)


#: Type -> (what compresses, the type's bits in the system flag, RocketMQ 5.x `CompressionType`).
_PACKERS: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "zlib": (_zlib, 0x300),
    "lz4": (_lz4, 0x100),
    "zstd": (_zstd, 0x200),
}
_PACKAGES = {"lz4": "lz4", "zstd": "zstandard"}
