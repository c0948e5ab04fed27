"""PROXY headers: the two forms whole, byte by byte and with bytes behind them, and what is none."""

import ipaddress
import struct

import pytest

from appliance.engine.errors import FrameError
from appliance.engine.protocol.proxy_header import MOST_BYTES, SIGNATURE_2, parse_proxy_header


def binary(family=0x11, command=1, source="10.1.2.3", port=4711, tlvs=b"", length=None, version=2):
    packed = ipaddress.ip_address(source).packed
    rest = packed + packed + struct.pack(">HH", port, 9876) + tlvs
    if family in (0x00, 0x31):
        rest = bytes(216 if family else 0) + tlvs
    length = len(rest) if length is None else length
    return SIGNATURE_2 + bytes([version << 4 | command, family]) + struct.pack(">H", length) + rest


#: One of each kind: an authority, a unique id, and SSL with a common name in it.
TLVS = b"\x02\x00\x0emq.example.org" + b"\x05\x00\x04abcd" + b"\x20\x00\x0c\x01\x00\x00\x00\x00\x22\x00\x04anna"

WHOLE = {
    "v1": (b"PROXY TCP4 10.1.2.3 10.0.0.1 4711 9876\r\n", ("10.1.2.3", 4711)),
    "v1 IPv6": (b"PROXY TCP6 2001:db8::7 ::1 65535 0\r\n", ("2001:db8::7", 65535)),
    "v1 unknown": (b"PROXY UNKNOWN\r\n", None),
    "v1 unknown with more": (b"PROXY UNKNOWN ffff:f ffff:f 1 2\r\n", None),
    "v2": (binary(), ("10.1.2.3", 4711)),
    "v2 IPv6": (binary(0x21, source="2001:db8::7"), ("2001:db8::7", 4711)),
    "v2 with TLVs": (binary(tlvs=TLVS), ("10.1.2.3", 4711)),
    "v2 with the most": (binary(tlvs=bytes(524)), ("10.1.2.3", 4711)),
    "v2 LOCAL": (binary(command=0), None),
    "v2 LOCAL without anything": (binary(0x00, 0), None),
    "v2 unknown": (binary(0x00), None),
    "v2 UNIX": (binary(0x31), None),
}


@pytest.mark.parametrize(("data", "source"), WHOLE.values(), ids=WHOLE)
def test_a_header_is_known_at_its_last_byte_and_leaves_what_follows(data, source):
    assert len(data) <= MOST_BYTES
    for end in range(len(data)):
        assert parse_proxy_header(data[:end]) is None, end
    for more in (b"", b"\x00", b"\x16\x03\x01", data):
        assert parse_proxy_header(data + more) == (len(data), source)


BAD = {
    "a frame": b"\x00\x00\x00\x10\x00\x00\x00\x08",
    "TLS": b"\x16\x03\x01",
    "nearly v1": b"PROXI",
    "nearly v2": SIGNATURE_2[:-1] + b"X",
    "HTTP": b"POST / HTTP/1.1\r\n",
    "v1 without an end": b"PROXY TCP4 " + b"1" * 96,
    "v1 unknown without an end": b"PROXY UNKNOWN " + b"x" * 93,
    "v1 that ends too late": b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n",
    "v1 empty": b"PROXY \r\n",
    "v1 word missing": b"PROXY TCP4 10.1.2.3 10.0.0.1 4711\r\n",
    "v1 word too many": b"PROXY TCP4 10.1.2.3 10.0.0.1 4711 9876 1\r\n",
    "v1 two blanks": b"PROXY TCP4  10.1.2.3 10.0.0.1 4711 9876\r\n",
    "v1 other family": b"PROXY UDP4 10.1.2.3 10.0.0.1 4711 9876\r\n",
    "v1 IPv6 as IPv4": b"PROXY TCP4 ::1 ::1 4711 9876\r\n",
    "v1 name": b"PROXY TCP4 localhost 10.0.0.1 4711 9876\r\n",
    "v1 zone": b"PROXY TCP6 fe80::1%eth0 ::1 4711 9876\r\n",
    "v1 high bytes": b"PROXY TCP4 \xff.1.2.3 10.0.0.1 4711 9876\r\n",
    "v1 port": b"PROXY TCP4 10.1.2.3 10.0.0.1 65536 9876\r\n",
    "v1 sign": b"PROXY TCP4 10.1.2.3 10.0.0.1 +711 9876\r\n",
    "v1 long port": b"PROXY TCP4 10.1.2.3 10.0.0.1 000001 9876\r\n",
    "v2 other version": binary(version=1),
    "v2 other command": binary(command=2),
    "v2 too long": binary(tlvs=bytes(525)),
    "v2 says it is too long": binary(length=65_535)[:16],
    "v2 datagrams": binary(0x12),
    "v2 UNIX datagrams": binary(0x32),
    "v2 nonsense": binary(0xFF),
    "v2 shorter than addresses": binary(length=11),
    "v2 IPv6 shorter than addresses": binary(0x21, length=12),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_is_no_header_is_refused(data):
    with pytest.raises(FrameError):
        parse_proxy_header(data)
