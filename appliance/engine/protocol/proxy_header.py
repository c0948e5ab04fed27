"""The PROXY header, with which a balancer begins a connection to tell whose it is. PURE.

Two forms (haproxy.org, proxy-protocol.txt 2020/03/05):

    version 1   "PROXY TCP4 10.0.0.5 10.0.0.1 56324 9876\\r\\n", TCP6, or "PROXY UNKNOWN ...\\r\\n"; 107 bytes at most
    version 2   0   12  0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A
                12   1  version (2) and command: 0 LOCAL, 1 PROXY
                13   1  family (1 IPv4, 2 IPv6, 3 UNIX, 0 unknown) and transport (1 stream)
                14   2  length of the rest, big endian
                16      source, destination (4 or 16 bytes each), source port, destination port (2 each); then TLVs

Of the rest of version 2 at most 536 bytes are taken, which is what balancers may rely on. TLVs are skipped: nothing
here depends on them.
"""

from __future__ import annotations

import ipaddress

from ..errors import FrameError
from ..named_tuple import NamedTuple

SIGNATURE_1 = b"PROXY "
SIGNATURE_2 = b"\r\n\r\n\x00\r\nQUIT\n"
#: Longest line of version 1, with its end; longest rest of version 2.
MOST_1 = 107
MOST_2 = 536
_FIXED_2 = 16
#: More bytes than the longest header has.
MOST_BYTES = _FIXED_2 + MOST_2
#: Address family and transport of version 2 -> length of one address.
_ADDRESS_BYTES = {0x11: 4, 0x21: 16}
#: Unknown, and UNIX sockets: there is no address in them that a client could have here.
_WITHOUT_ADDRESS = (0x00, 0x31)


class Header(NamedTuple):
    """A whole header. length: its bytes. source: the client's (address, port); None if the peer's own address counts,
    as for a balancer's own checks."""

    length: int
    source: tuple[str, int] | None


def parse_proxy_header(data: bytes) -> Header | None:
    """Return the header at the beginning of `data`; None if all of `data` is the beginning of one.

    Raises FrameError if these bytes begin no header, or one that is too long or makes no sense.
    """
    if data.startswith(SIGNATURE_2[: len(data) or 1]):
        return _binary(data)
    if data.startswith(SIGNATURE_1[: len(data) or 1]):
        return _text(data)
    if not data:
        return None
    raise FrameError("it begins without a PROXY header")


def _text(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, MOST_1)
    if end < 0:
        if len(data) >= MOST_1:
            raise FrameError("its PROXY line has no end")
        return None
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return Header(end + 2, None)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise FrameError("its PROXY line is malformed")
    source, _destination = _address(words[1], words[2]), _address(words[1], words[3])
    port, _ = _port(words[4]), _port(words[5])
    return Header(end + 2, (source, port))


def _address(family: bytes, word: bytes) -> str:
    kind = ipaddress.IPv4Address if family == b"TCP4" else ipaddress.IPv6Address
    try:
        text = word.decode("ascii")
        if "%" in text:
            raise ValueError
        return str(kind(text))
    except ValueError:
        raise FrameError("its PROXY line has no address where one belongs") from None


def _port(word: bytes) -> int:
    if not word.isdigit() or len(word) > 5 or int(word) > 65_535:
        raise FrameError("its PROXY line has no port where one belongs")
    return int(word)


def _binary(data: bytes) -> Header | None:
    if len(data) < _FIXED_2:
        return None
    version, command = data[12] >> 4, data[12] & 15
    length = int.from_bytes(data[14:16], "big")
    if version != 2 or command > 1:
        raise FrameError(f"its PROXY header has version {version} and command {command}")
    if length > MOST_2:
        raise FrameError(f"its PROXY header has {length} bytes, more than {MOST_2}")
    if len(data) < _FIXED_2 + length:
        return None
    whole = _FIXED_2 + length
    if command == 0 or data[13] in _WITHOUT_ADDRESS:
        return Header(whole, None)
    size = _ADDRESS_BYTES.get(data[13])
    if size is None:
        raise FrameError(f"its PROXY header is for transport {data[13]:#04x}, not for a stream over IP")
    if length < 2 * size + 4:
        raise FrameError("its PROXY header is shorter than its addresses")
    source = str(ipaddress.ip_address(data[_FIXED_2 : _FIXED_2 + size]))
    at = _FIXED_2 + 2 * size
    return Header(whole, (source, int.from_bytes(data[at : at + 2], "big")))
