"""The two encodings of a frame's header: JSON (0) and ROCKETMQ (1). PURE: bytes in, values out.

JSON like fastjson's: keys in alphabetical order, no blanks, nulls left out.

    {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":1,
     "serializeTypeCurrentRPC":"JSON","version":479}                                       (one line)

ROCKETMQ, binary and big-endian. An empty key or value is null, so no field can be present and empty.

    0 code 2 | 2 language 1 | 3 version 2 | 5 opaque 4 | 9 flag 4 | 13 remark length 4, remark | fields length 4
    and for each field: key length 2, key | value length 4, value

Written strictly, since the Go client accepts only strings in `extFields`. Read tolerantly, since clients differ:
numbers and booleans as `extFields` values (C++), `"remark":""` (Go, C++), a newline behind the object (C++), unknown
keys, a language as its ordinal. Any other language is OTHER.

Decoding and encoding again gives the same bytes for Java's JSON and for every ROCKETMQ header: the order of `extFields`
is kept. It gives other bytes, of the same meaning, for JSON with keys in another order, numbers in `extFields`, blanks,
a newline, or `"remark":""`.

Hot requests depend on how the JSON form begins (`remoting.dispatcher`): a header that begins differently is decoded
here and takes the cold way to the same code.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ..errors import FrameError, HeaderTextError
from ..named_tuple import NamedTuple
from .codes import LANGUAGE_CODES, LANGUAGES

try:
    import msgspec
except ImportError:  # in a client's wheel; the server requires it
    from .plain_json import JsonError
    from .plain_json import decode as _json_decode
    from .plain_json import encode as _json_encode
else:
    JsonError = msgspec.MsgspecError  # type: ignore[assignment,misc]

    class _OddHeader(msgspec.Struct, gc=False):
        """language: OTHER, since it is neither text nor number; it is passed over, however large it is."""

        code: int
        opaque: int = 0
        flag: int = 0
        version: int = 0
        remark: str | None = None
        extFields: dict[str, str | int | float | bool | None] | None = None

    class _JsonHeader(_OddHeader, gc=False):
        language: str | int | None = None

    _decode_usual = msgspec.json.Decoder(_JsonHeader).decode
    _decode_odd = msgspec.json.Decoder(_OddHeader).decode

    def _json_decode(data: memoryview | bytes) -> Any:  # type: ignore[misc]
        try:
            return _decode_usual(data)
        except msgspec.ValidationError:
            found = msgspec.structs.asdict(_decode_odd(data))
            return _JsonHeader(**found, language="OTHER")

    _json_encode = msgspec.json.encode  # type: ignore[assignment]

if TYPE_CHECKING:
    from .command import RemotingCommand

_FIXED = struct.Struct(">hbhii")  # code, language, version, opaque, flag
_I32 = struct.Struct(">i")
_I16 = struct.Struct(">h")

_I32_MIN, _I32_MAX = -(1 << 31), (1 << 31) - 1


class HeaderFields(NamedTuple):
    """Fields of both encodings, in the order of RemotingCommand's parameters. ext_fields: None if the header had
    none."""

    code: int
    opaque: int
    flag: int
    version: int
    language: str
    remark: str | None
    ext_fields: dict[str, str] | None


def _text(value: str | float | bool) -> str:
    """Return a number or boolean in `extFields` as Java's `toString` would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _decode_json(data: memoryview | bytes) -> HeaderFields:
    try:
        header = _json_decode(data)
    except UnicodeDecodeError as error:
        raise HeaderTextError(f"a text in the header is not UTF-8: {error}") from None
    except (JsonError, RecursionError) as error:
        raise FrameError(f"JSON header: {error}") from None
    # JSON numbers have no width, and an opaque beyond 32 bits could not be repeated in the answer.
    for value in (header.code, header.opaque, header.flag, header.version):
        if not _I32_MIN <= value <= _I32_MAX:
            raise FrameError("JSON header: a number is outside 32 bits")
    language = header.language
    if language is None:
        language = "JAVA"
    elif isinstance(language, str) and language.upper() in LANGUAGE_CODES:
        language = language.upper()
    elif type(language) is int and 0 <= language < len(LANGUAGES):
        language = LANGUAGES[language]
    else:
        language = "OTHER"
    ext = header.extFields
    fields = None
    if ext is not None:
        fields = {k: v if type(v) is str else _text(v) for k, v in ext.items() if v is not None}
    return HeaderFields(header.code, header.opaque, header.flag, header.version, language, header.remark, fields)


def _decode_rocketmq(data: memoryview | bytes) -> HeaderFields:
    # Every length is checked against its surroundings before use, since a slice in Python is silently cut short.
    raw = bytes(data)
    size = len(raw)
    key = ""
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(raw)
        (length,) = _I32.unpack_from(raw, 13)
        at = 17
        if length < 0 or at + length + 4 > size:
            raise FrameError("ROCKETMQ header: remark longer than the header")
        remark = raw[at : at + length].decode() if length else None
        at += length
        (length,) = _I32.unpack_from(raw, at)
        at += 4
        end = at + length
        if length < 0 or end > size:
            raise FrameError("ROCKETMQ header: map longer than the header")
        fields: dict[str, str] = {}
        bare = not length
        while at < end:
            (length,) = _I16.unpack_from(raw, at)
            at += 2
            if length < 0 or at + length + 4 > end:
                raise FrameError("ROCKETMQ header: key longer than the map")
            key = raw[at : at + length].decode()
            at += length
            (length,) = _I32.unpack_from(raw, at)
            at += 4
            if length < 0 or at + length > end:
                raise FrameError("ROCKETMQ header: value longer than the map")
            if key and length:
                fields[key] = raw[at : at + length].decode()
            at += length
    except struct.error as error:
        raise FrameError(f"ROCKETMQ header: {error}") from None
    except UnicodeDecodeError as error:
        near = f" at {key[:100]}" if key else ""
        raise HeaderTextError(f"a text in the header is not UTF-8{near}: {error}") from None
    name = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    # Code and version are unsigned, although Java writes them with writeShort.
    return HeaderFields(code & 0xFFFF, opaque, flag, version & 0xFFFF, name, remark, None if bare else fields)


def decode_header(codec: int, data: memoryview | bytes) -> HeaderFields:
    """Decode one header. Raises FrameError for an unknown encoding and for bytes that are no header, HeaderTextError if
    only a text is wrong."""
    if codec == 0:
        return _decode_json(data)
    if codec == 1:
        return _decode_rocketmq(data)
    raise FrameError(f"unknown serialize type {codec}")


def _encode_json(command: RemotingCommand) -> bytes:
    ext = b"" if command.bare and not command.ext_fields else b'"extFields":%b,' % _json_encode(command.ext_fields)
    remark = b"" if command.remark is None else b'"remark":%b,' % _json_encode(command.remark)
    return b'{"code":%d,%b"flag":%d,"language":"%b","opaque":%d,%b"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        command.code,
        ext,
        command.flag,
        command.language.encode(),
        command.opaque,
        remark,
        command.version,
    )


def _encode_rocketmq(command: RemotingCommand) -> bytes:
    entries = bytearray()
    try:
        for key, value in command.ext_fields.items():
            k, v = key.encode(), value.encode()
            entries += _I16.pack(len(k)) + k + _I32.pack(len(v)) + v
        remark = (command.remark or "").encode()
        language = LANGUAGE_CODES.get(command.language, LANGUAGE_CODES["OTHER"])
        fixed = _FIXED.pack(command.code, language, command.version, command.opaque, command.flag)
    except struct.error as error:
        raise FrameError(f"ROCKETMQ header: {error}") from None
    return b"".join((fixed, _I32.pack(len(remark)), remark, _I32.pack(len(entries)), entries))


def encode_header(command: RemotingCommand, codec: int) -> bytes:
    """Encode a command's header. Raises FrameError for values that the encoding cannot hold: too wide numbers in
    ROCKETMQ, half a surrogate pair in both."""
    try:
        if codec == 0:
            return _encode_json(command)
        if codec == 1:
            return _encode_rocketmq(command)
    except UnicodeEncodeError as error:
        raise FrameError(f"header: {error}") from None
    raise FrameError(f"unknown serialize type {codec}")
