"""The two ids of a message. PURE.

Offset id, `offsetMsgId` in answers: the message's location. Upper-case hex of 16 or 28 bytes.

    0 address of the broker that stored it 4 or 16 | port 4 | physical offset 8

It leads to the message as long as the broker keeps that address. In records, hosts have the same form: address, port.

Unique key, the property `UNIQ_KEY` and `msgId` in Java: the message's identity. The producer makes it, so it is the
same in every copy, including a retry's. Upper-case hex of 16 bytes.

    0 address 4 | 4 low 16 bits of the pid 2 | 6 a hash 4 | 10 ms since the month began 4 | 14 counter 2

Source: RocketMQ `MessageDecoder.createMessageId`, `MessageClientIDSetter`.
"""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache

#: Hosts whose text is cached: one log names the same few repeatedly, and making the text costs more than decoding the
#: rest of a record.
_HOSTS_KEPT = 1024


def encode_host(host: str, port: int) -> bytes:
    """Return address and port in the form of records: 20 bytes for IPv6, 8 for IPv4 and IPv6 addresses that map one.

    host: an IP address, with or without a zone. Raises ValueError if it is none.
    """
    address = ipaddress.ip_address(host.split("%", 1)[0])
    if address.version == 6 and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.packed + struct.pack(">i", port)


@lru_cache(_HOSTS_KEPT)
def decode_host(raw: bytes) -> tuple[str, int]:
    """Return (address, port) of 8 or 20 bytes, the reverse of `encode_host`."""
    if len(raw) == 8:  # as below, in a tenth of the time
        return f"{raw[0]}.{raw[1]}.{raw[2]}.{raw[3]}", int.from_bytes(raw[4:], "big")
    return str(ipaddress.ip_address(raw[:-4])), int.from_bytes(raw[-4:], "big")


def encode_offset_id(host: bytes, physical_offset: int) -> str:
    """Return the offset id of a record stored by `host` (in the form of `encode_host`)."""
    return f"{host.hex().upper()}{physical_offset:016X}"


def decode_offset_id(text: str) -> tuple[str, int, int]:
    """Return (address, port, physical offset). Raises ValueError unless the text has 32 or 56 hex digits."""
    raw = bytes.fromhex(text)
    if len(raw) not in (16, 28):
        raise ValueError(f"offset id of {len(text)} digits")
    host, port = decode_host(raw[:-8])
    return host, port, int.from_bytes(raw[-8:], "big")


def key_prefix(address: bytes, pid: int, salt: int) -> str:
    """Return the first 20 digits of the unique keys of a process. address: 4 bytes. salt: distinguishes processes with
    one pid."""
    assert len(address) == 4, "a unique key has room for 4 bytes of the address"
    return (address + struct.pack(">HI", pid & 0xFFFF, salt & 0xFFFFFFFF)).hex().upper()


class UniqueKeys:
    """Makes unique keys for messages whose producer sent none. Java producers send them, others may not.

    Their time never goes back, as it would with a clock that is set back, and goes on after 65,536 keys: so those of
    49 days differ. Owned by one thread.
    """

    def __init__(self, prefix: str, month_start_ms: int) -> None:
        """prefix: of `key_prefix`. month_start_ms: when the local month began."""
        self._prefix = prefix
        self._month_start_ms = month_start_ms
        #: The last key's ms since the month began and its counter, and the counter with which these ms began.
        self._ms = -1
        self._counter = self._first = 0

    def next(self, now_ms: int) -> str:
        """Return the next key, 32 hex digits."""
        self._counter = counter = self._counter + 1 & 0xFFFF
        ms = max(0, now_ms - self._month_start_ms)
        if ms > self._ms:
            self._ms, self._first = ms, counter
        elif counter == self._first:
            self._ms += 1
        return f"{self._prefix}{self._ms & 0xFFFFFFFF:08X}{counter:04X}"
