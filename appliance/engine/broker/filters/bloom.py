"""The bits that stand for a group and a topic in Apache's bloom filters. PURE.

With `enableCalcFilterBitMap` an Apache broker notes beside each queue entry which groups' expressions it fulfils, in a
map of `bits` bits. RocketBox neither writes nor reads such maps, but the positions belong into `consumerFilter.json`:
Apache discards a whole file in which one of them differs from its own.
Source: RocketMQ `BloomFilter`, Guava `Hashing.murmur3_128`.
"""

from __future__ import annotations

import math

from ...named_tuple import NamedTuple

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


class Bloom(NamedTuple):
    """Dimensions that follow from a broker's settings: the map's size, and the positions of each group and topic."""

    bits: int
    positions: int

    def positions_of(self, group: str, topic: str) -> tuple[int, ...]:
        """Return the bits of a group's subscription of a topic, in Apache's order; one may occur twice."""
        found = murmur3_first_half(f"{group}#{topic}".encode())
        first, second = found & 0xFFFFFFFF, found >> 32
        places = []
        for number in range(1, self.positions + 1):
            combined = (first + number * second) & 0xFFFFFFFF
            if combined >> 31:  # negative in Java
                combined = ~combined & 0xFFFFFFFF
            places.append(combined % self.bits)
        return tuple(places)


def bloom_of(error_percent: int, groups: int) -> Bloom:
    """Return the dimensions for `maxErrorRateOfBloomFilter` and `expectConsumerNumUseFilter`."""
    logarithm = math.log2(100 / error_percent)
    bits = math.ceil(groups * logarithm * math.log2(math.e))
    return Bloom(-(-bits // 8) * 8, math.ceil(logarithm))


def murmur3_first_half(data: bytes, seed: int = 0) -> int:
    """Return the first 64 bits of MurmurHash3's x64 variant of 128 bits, as an unsigned number."""
    h1 = h2 = seed
    whole = len(data) & ~15
    for at in range(0, whole, 16):
        k1 = int.from_bytes(data[at : at + 8], "little")
        k2 = int.from_bytes(data[at + 8 : at + 16], "little")
        h1 ^= _rotated(k1 * _C1 & _MASK, 31) * _C2 & _MASK
        h1 = ((_rotated(h1, 27) + h2 & _MASK) * 5 + 0x52DCE729) & _MASK
        h2 ^= _rotated(k2 * _C2 & _MASK, 33) * _C1 & _MASK
        h2 = ((_rotated(h2, 31) + h1 & _MASK) * 5 + 0x38495AB5) & _MASK
    tail = data[whole:]
    h2 ^= _rotated(int.from_bytes(tail[8:], "little") * _C2 & _MASK, 33) * _C1 & _MASK
    h1 ^= _rotated(int.from_bytes(tail[:8], "little") * _C1 & _MASK, 31) * _C2 & _MASK
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_mixed(h1) + _mixed(h2)) & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
