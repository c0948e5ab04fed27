"""The two ids of a message.

Offset id: upper-case hex of the store host's address (4 or 16 bytes), its port (4) and the physical offset (8).
Unique key (`UNIQ_KEY`): address (4), low 16 bits of the pid, a 4-byte hash, milliseconds since the month began (4), a
counter (2). Source: RocketMQ `MessageDecoder.createMessageId`, `MessageClientIDSetter`.
"""

from __future__ import annotations

import ipaddress
import struct


def encode_host(host: str, port: int) -> bytes:
    """Address bytes and port as records hold them: 8 bytes for IPv4 (also IPv4-mapped IPv6), 20 for IPv6."""
    address = ipaddress.ip_address(host.split("%", 1)[0])
    if address.version == 6 and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.packed + struct.pack(">i", port)


def decode_host(raw: bytes) -> tuple[str, int]:
    """(address text, port) of 8 or 20 bytes."""
    return str(ipaddress.ip_address(raw[:-4])), int.from_bytes(raw[-4:], "big")


def encode_offset_id(host: bytes, physical_offset: int) -> str:
    """The offset id of a record stored by `host` (as `encode_host` writes it)."""
    return f"{host.hex().upper()}{physical_offset:016X}"


def decode_offset_id(text: str) -> tuple[str, int, int]:
    """(address, port, physical offset); ValueError unless it is 32 or 56 hex digits."""
    raw = bytes.fromhex(text)
    if len(raw) not in (16, 28):
        raise ValueError(f"offset id of {len(text)} digits")
    host, port = decode_host(raw[:-8])
    return host, port, int.from_bytes(raw[-8:], "big")


class UniqueKeys:
    """Makes unique keys for messages whose producer sent none.

    address: 4 bytes. month_start_ms: the local month's first millisecond. Owned by one thread.
    """

    def __init__(self, address: bytes, pid: int, salt: int, month_start_ms: int) -> None:
        self._prefix = (address + struct.pack(">HI", pid & 0xFFFF, salt & 0xFFFFFFFF)).hex().upper()
        self._month_start_ms = month_start_ms
        self._counter = 0

    def next(self, now_ms: int) -> str:
        self._counter = self._counter + 1 & 0xFFFF
        return f"{self._prefix}{max(0, now_ms - self._month_start_ms) & 0xFFFFFFFF:08X}{self._counter:04X}"
