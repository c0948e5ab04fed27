"""RemotingCommand: one request or response, and the frame it travels in. PURE: bytes in, values out.

    0 length 4 | 4 encoding 1 | 5 header length 3 | 8 header | header end: body

`length` counts everything behind itself: 4 + header + body. Bytes 4 to 7 are read as one number, `meta`: its top byte
is the header's encoding (0 JSON, 1 ROCKETMQ, see `header_codecs`), its low 24 bits the header's length. All big-endian.
The body's format depends on the request or response code and is not read here. Format page: docs/formats/frame.md.

A request and its answer have the same `opaque`, chosen by the requesting side for each connection. Answers may come in
any order. A one-way request must not be answered, not even with an error.

A RemotingCommand costs a decoded header and several objects. Sends and pulls whose header begins as Java, Go and C++
write it do not become one: `remoting.dispatcher` reads their fields in place.
Source: RocketMQ 5.3.3 `RemotingCommand`, `NettyDecoder`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Set
from typing import Any, Protocol

from ..errors import FrameError
from .codes import VERSION
from .header_codecs import decode_header, encode_header

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

CODEC_JSON = 0
CODEC_ROCKETMQ = 1

#: Apache's `com.rocketmq.remoting.frameMaxLength`, including the length field.
MAX_FRAME_BYTES = 16 * 1024 * 1024
#: Chosen here (D13); Apache allows 16 MiB. The largest legal header is that of a send with 32,767 bytes of properties,
#: each of which JSON may write as six.
MAX_HEADER_BYTES = 256 * 1024

_PREFIX = struct.Struct(">iI")


class Witness(Protocol):
    """Follows one request. begins: called in the handler's thread, before it. answered: in any thread, before sending.

    A witness must not refer to its request, which refers to it: the cycle would keep both until a garbage collection.
    """

    def begins(self, request: RemotingCommand) -> None: ...
    def answered(self, request: RemotingCommand, response: RemotingCommand) -> None: ...


class Caller(Protocol):
    """Identity of a request's sender, with quotas."""

    @property
    def allowance(self) -> Any:
        """The sender's quota of pulls (`broker.pulling.request.Allowance`); None without one."""

    @property
    def name(self) -> str:
        """The user."""

    @property
    def told(self) -> str:
        """User and address, for the broker that the request is passed on to."""

    def check_topic(self, topic: str, *actions: str) -> None:
        """Refuse with code 16 unless the caller may do one of the actions (`access.policies`) on the topic. For
        handlers that learn only from a record which topic is meant. Any thread."""

    @property
    def identity(self) -> Hashable:
        """User, rights and address: equal for requests of which the same is allowed. None if what is not
        allowed passes, and is noted only."""

    def kept_from_consuming(self, named: Iterable[tuple[str, str]], conn: Any) -> tuple[Set[tuple[str, str]], str]:
        """Return what the caller may not consume of some ("Topic", name) and ("Group", name), as it is named there, and
        the text that refuses it; nothing and "" if all is allowed. For handlers that do the rest nevertheless. On the
        I/O thread."""

    def allowed(self) -> None:
        """Learn that all of the request is allowed. For handlers that know it without asking. Any thread."""

    def seen(self, kind: str) -> Callable[[str], bool] | None:
        """Return what tells whether a name of this kind, "Topic" or "Group", is shown to the caller; None if all are.
        For handlers that answer with a whole table. Any thread."""

    def passes(self, request: RemotingCommand, conn: Any, size: int, proceed: Callable[[], None]) -> bool:
        """True if a request, in a frame of `size` bytes, is within the caller's quotas. Otherwise `proceed` is called
        when it is, or the request is refused. On the I/O thread."""


class RemotingCommand:
    """One decoded frame, or one about to be encoded.

    code: request code, or response code when FLAG_RESPONSE is set. opaque: correlation id, any i32. version:
    `MQVersion` ordinal of the sender. language: name of the sender's, see LANGUAGES. remark: free text, mostly of an
    error. ext_fields: the fields of this request code, Java's CommandCustomHeader, text to text. codec: 0 JSON, 1
    ROCKETMQ, as received. bare: the header had no `extFields` at all, as Java writes a request without fields; encoding
    repeats that. witness: follows the handling of this request, None without one. caller: the sender, from
    the access gate; None without that gate.
    """

    __slots__ = (
        "bare",
        "body",
        "caller",
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
        self.caller: Caller | None = None

    @classmethod
    def response(
        cls, code: int, remark: str | None = None, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Return a response. The sending part sets its opaque, from the request."""
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
    """Return the whole frame.

    Raises FrameError when it would be longer than MAX_FRAME_BYTES, or a field does not fit its encoding: a code above
    32767 in ROCKETMQ, half a surrogate pair in either.
    """
    header = encode_header(command, codec)
    length = 4 + len(header) + len(command.body)
    if length + 4 > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {length + 4} bytes exceeds {MAX_FRAME_BYTES}")
    assert len(header) < 1 << 24, "a header that fits a frame has a length of 24 bits"
    return _PREFIX.pack(length, codec << 24 | len(header)) + header + command.body


def decode_frame(frame: bytes | bytearray | memoryview) -> RemotingCommand:
    """Decode one whole frame, length field included. Raises FrameError when its lengths or its header are wrong.

    The command keeps no reference to `frame`: header and body are copied.
    """
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
    """Return the command with this header, in the encoding `codec`, and this body. Raises FrameError."""
    fields = decode_header(codec, header)
    return RemotingCommand(*fields, body=body, codec=codec, bare=fields.ext_fields is None)
