"""RemotingCommand: one request or response, and its whole frame.

A frame is `length(4) meta(4) header body`; `length` counts everything after itself, the top byte of `meta` is the
header's encoding (0 JSON, 1 ROCKETMQ) and its low 24 bits the header's length. The encodings are in `header_codecs`.
Hot requests never become a RemotingCommand; `hot_headers` reads what they need straight from the frame.
"""

from __future__ import annotations

import struct
from typing import Protocol

from ..errors import FrameError
from .codes import VERSION
from .header_codecs import decode_header, encode_header

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

CODEC_JSON = 0
CODEC_ROCKETMQ = 1

#: Apache's `com.rocketmq.remoting.frameMaxLength`, its length field included.
MAX_FRAME_BYTES = 16 * 1024 * 1024
#: Ours (D13): Apache allows 16 MiB. The largest legal header is a send with 32,767 bytes of properties, of which JSON
#: makes up to six times as many.
MAX_HEADER_BYTES = 256 * 1024

_PREFIX = struct.Struct(">iI")


class Witness(Protocol):
    """Sees how one request goes. begins: in the handler's thread, before it. answered: in any, before it is sent."""

    def begins(self) -> None: ...
    def answered(self, response: RemotingCommand) -> None: ...


class RemotingCommand:
    """One decoded frame, or one about to be encoded.

    code: request or response code. opaque: correlation id, any i32. version: `MQVersion` ordinal of the sender.
    ext_fields: the custom header, text to text. body: opaque to this layer. codec: 0 JSON, 1 ROCKETMQ, as received.
    bare: the header had no `extFields` key at all (a request of Java without fields); an encoder repeats that.
    witness: of a request, who is told how it goes.
    """

    __slots__ = (
        "bare",
        "body",
        "code",
        "codec",
        "ext_fields",
        "flag",
        "language",
        "opaque",
        "remark",
        "version",
        "witness",
    )

    def __init__(
        self,
        code: int,
        opaque: int = 0,
        flag: int = 0,
        version: int = VERSION,
        language: str = "JAVA",
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        codec: int = CODEC_JSON,
        bare: bool = False,
    ) -> None:
        self.code = code
        self.opaque = opaque
        self.flag = flag
        self.version = version
        self.language = language
        self.remark = remark
        self.ext_fields: dict[str, str] = {} if ext_fields is None else ext_fields
        self.body = body
        self.codec = codec
        self.bare = bare
        self.witness: Witness | None = None

    @classmethod
    def response(
        cls, code: int, remark: str | None = None, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """A response; whoever sends it copies the request's opaque."""
        return cls(code, flag=FLAG_RESPONSE, remark=remark, ext_fields=ext, body=body)

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & FLAG_ONEWAY)

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "request"
        return (
            f"<{kind} code={self.code} opaque={self.opaque} flag={self.flag} remark={self.remark!r} "
            f"ext={self.ext_fields} body={len(self.body)} bytes>"
        )


def encode_command(command: RemotingCommand, codec: int = CODEC_JSON) -> bytes:
    """The whole frame. Raises FrameError when a field does not fit its encoding (code > 32767 in ROCKETMQ)."""
    header = encode_header(command, codec)
    length = 4 + len(header) + len(command.body)
    if length + 4 > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {length + 4} bytes exceeds {MAX_FRAME_BYTES}")
    return _PREFIX.pack(length, codec << 24 | len(header)) + header + command.body


def decode_frame(frame: bytes | bytearray | memoryview) -> RemotingCommand:
    """Decode one whole frame, length field included; raises FrameError when it is none."""
    if len(frame) < 8:
        raise FrameError(f"frame of {len(frame)} bytes has no header")
    length, meta = _PREFIX.unpack_from(frame)
    if length + 4 != len(frame):
        raise FrameError(f"frame says {length} + 4 bytes, has {len(frame)}")
    header_length = meta & 0xFFFFFF
    if 8 + header_length > len(frame):
        raise FrameError(f"header of {header_length} bytes does not fit a frame of {len(frame)}")
    view = memoryview(frame)
    return decode_parts(meta >> 24, view[8 : 8 + header_length], bytes(view[8 + header_length :]))


def decode_parts(codec: int, header: memoryview | bytes, body: bytes) -> RemotingCommand:
    """A command from its header (encoding `codec`) and body; raises FrameError."""
    fields = decode_header(codec, header)
    return RemotingCommand(*fields, body=body, codec=codec, bare=fields.ext_fields is None)
