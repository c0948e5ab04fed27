"""Prepares a message's body for display: decompresses it, detects its kind, cuts it to size.

PURE but for the lazy import of two optional packages. A body may be hostile: a decompression bomb, JSON that grows
when it is indented, or text full of control characters. So each step has its own limit.
"""

from __future__ import annotations

import base64
import codecs
import re
from json import loads
from typing import TYPE_CHECKING

import msgspec

from ...protocol.compression import DECODERS, PACKAGES, Undecodable, compression_of, decompress
from ..sentences import Sentence, say
from .snapshots import BodyView

if TYPE_CHECKING:
    from ...bodies.schemas import BodyReader

#: Bytes to which a body is decompressed at most; the default of maxMessageSize.
DECODE_LIMIT_BYTES = 4 << 20
#: JSON is indented if it has at most JSON_LIMIT_BYTES before and JSON_SHOWN_BYTES after.
JSON_LIMIT_BYTES = 256 << 10
JSON_SHOWN_BYTES = 2 << 20
#: Bytes that a hex dump shows; it takes five times as many characters.
HEX_LIMIT_BYTES = 16 << 10

#: Bounds of a body that is decoded for a line of a list, where there may be hundreds a second.
GLANCE_BYTES, GLANCE_VALUES = 64 << 10, 500

_GZIP = b"\x1f\x8b\x08"
_OTHER_THAN_BRACKETS = bytes(set(range(256)) - set(b"[]{},"))
#: Bytes that occur in no text: control characters but tab, line feed, form feed, carriage return and escape.
_NO_TEXT = bytes(set(range(32)) - {9, 10, 12, 13, 27}) + b"\x7f"


def view_body(
    body: bytes, sys_flag: int, max_bytes: int, schema: BodyReader | None = None, most_whole: int | None = None
) -> BodyView:
    """Return the view of a record's body, with at most `max_bytes` of it in each form. schema: its topic's.
    most_whole: bytes of a body of which all is shown, as JSON and by the schema; None: no bound."""
    notes: list[Sentence] = []
    data, layers, more = _decode(body, sys_flag, notes)
    shown = data[:max_bytes]
    cut = more or len(data) > max_bytes
    if more:
        notes.append(say("bomb", limit=DECODE_LIMIT_BYTES))
    elif cut:
        notes.append(say("too_long", shown=len(shown), total=len(data)))
    text = _text_of(shown, cut)
    withheld = most_whole is not None and len(data) > most_whole
    json = None if more or withheld or text is None else _indented(data)
    decoded = None if schema is None or more or withheld else _by_schema(data, schema, notes)
    if withheld and not more:
        notes.append(say("whole_is_export"))
    if data and text is None and not layers and decoded is None:
        notes.append(say("not_utf8"))
    return BodyView(
        kind="empty" if not data else "json" if json is not None else "binary" if text is None else "text",
        layers=tuple(layers),
        stored_bytes=len(body),
        decoded_bytes=len(data),
        shown_bytes=len(shown),
        truncated=cut,
        decoded=decoded,
        schema=None if schema is None else schema.label,
        json=json,
        text=text,
        hex="\n".join(f"{at:08x}  {hexes}  {letters}" for at, hexes, letters in dump_of(shown[:HEX_LIMIT_BYTES])),
        base64=base64.b64encode(shown).decode(),
        notes=tuple(notes),
    )


def dump_of(data: bytes) -> list[tuple[int, str, str]]:
    """Return one (offset, hex of up to 16 bytes, the same bytes as printable ASCII) a line."""
    lines = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append((at, part.hex(" ").ljust(47), letters))
    return lines


def _by_schema(data: bytes, schema: BodyReader, notes: list[Sentence]) -> str | None:
    """Return the body as indented JSON by its schema; None, with a note, if it does not fit."""
    from ...bodies.work import Unfit

    try:
        found = schema.decode(data)
    except Unfit as error:
        notes.append(say("body_unfit", schema=schema.label, reason=str(error)))
        return None
    if len(found) > JSON_SHOWN_BYTES:
        notes.append(say("body_unfit", schema=schema.label, reason="it is too long to be shown"))
        return None
    return _readable(msgspec.json.format(found, indent=2).decode())


def glance_at(body: bytes, sys_flag: int, most_chars: int, schema: BodyReader | None = None) -> tuple[str, bool, bool]:
    """Return (beginning of a body, True if that is hexadecimal, True if there is more), for a line of a list. Of a
    compressed body only the shown part is decompressed, unless it has a schema."""
    if schema is not None:
        whole, complete = opened(body, sys_flag, GLANCE_BYTES)
        found = schema.decoded(whole, GLANCE_VALUES) if complete else None
        if found is not None:
            line = found.decode()
            return line[:most_chars], False, len(line) > most_chars
    most_bytes = most_chars * 4
    data, more = body[:most_bytes], len(body) > most_bytes
    kind = compression_of(sys_flag)
    if kind in DECODERS:
        try:
            data = DECODERS[kind](body, most_bytes + 1)
        except (ImportError, Undecodable):
            data = body[: most_bytes + 1]
        data, more = data[:most_bytes], len(data) > most_bytes
    text = _text_of(data, more)
    if text is None:
        shown = data[: most_chars // 3]
        return shown.hex(" "), True, more or len(shown) < len(data)
    return text[:most_chars], False, more or len(text) > most_chars


# --- taking layers off


def opened(body: bytes, sys_flag: int, limit: int) -> tuple[bytes, bool]:
    """Return (the decompressed body, at most `limit` bytes; True if that is all of it). A layer that cannot be
    decompressed stays."""
    data, _, more = _decode(body, sys_flag, [], limit)
    return data[:limit], not more and len(data) <= limit


def _decode(
    body: bytes, sys_flag: int, notes: list[Sentence], limit: int = DECODE_LIMIT_BYTES
) -> tuple[bytes, list[str], bool]:
    """Return (bytes, names of the compressions that were undone, True if there are more than `limit` bytes)."""
    layers: list[str] = []
    data, more = body, False
    named = compression_of(sys_flag)
    if named is not None:
        try:
            data, more = decompress(named, body, limit)
            layers.append(named)
        except ImportError:
            notes.append(say("library_missing", kind=named, package=PACKAGES[named]))
            return body, layers, False
        except Undecodable as error:
            notes.append(say("bad_compression", kind=named, reason=str(error)))
    found = _looks_like(data)
    if found is not None and not more:
        try:
            data, more = decompress(found, data, limit)
            layers.append(found)
        except Undecodable as error:
            if found == "gzip":
                notes.append(say("bad_compression", kind=found, reason=str(error)))
    return data, layers, more


def decompressed(body: bytes, kind: str) -> tuple[bytes, str | None]:
    """Return (decompressed body, None), or (unchanged body, the reason why it cannot be decompressed)."""
    try:
        data, more = decompress(kind, body, DECODE_LIMIT_BYTES)
    except ImportError:
        return body, f"the package {PACKAGES[kind]} is not installed"
    except Undecodable as error:
        return body, str(error)
    return (body, f"it is more than {DECODE_LIMIT_BYTES} bytes") if more else (data, None)


def _looks_like(data: bytes) -> str | None:
    """Return "gzip" or "zlib" by the first bytes, else None. Zlib's two bytes may be chance, so a failure to decompress
    zlib is not reported."""
    if data.startswith(_GZIP):
        return "gzip"
    if len(data) > 8 and data[0] == 0x78 and int.from_bytes(data[:2], "big") % 31 == 0 and not data[1] & 0x20:
        return "zlib"
    return None


# --- recognising


def _text_of(data: bytes, cut: bool) -> str | None:
    """Return the bytes as UTF-8 text, without a character that was cut in two; None if they are no text."""
    if len(data.translate(None, _NO_TEXT)) != len(data):
        return None
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data, final=not cut)
    except UnicodeDecodeError:
        return None


def _indented(data: bytes) -> str | None:
    """Return a JSON object or array, indented unless that makes it too large; None if the data is neither."""
    data = data.removeprefix(codecs.BOM_UTF8)
    if len(data) > JSON_LIMIT_BYTES or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        brackets = data.translate(None, _OTHER_THAN_BRACKETS)
        deepest = depth = 0
        for byte in brackets.replace(b",", b""):
            depth += 1 if byte in b"[{" else -1
            deepest = max(deepest, depth)
        # Each bracket and each comma begins a line that is indented by two blanks a level, at most.
        if len(data) + len(brackets) * (2 * deepest + 2) > JSON_SHOWN_BYTES:
            return data.decode()
        return _readable(msgspec.json.format(data, indent=2).decode())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


#: An escape of a JSON text; two of them make a character beyond U+FFFF.
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")


def _readable(text: str) -> str:
    """Write the characters of a JSON text that its program escaped without need, as Python's json does with all that
    is not ASCII. Those that cannot be seen stay escaped, and so it is equal for a parser."""
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(found: re.Match[str]) -> str:
    if found[0][1] != "u":
        return found[0]
    character: str = loads(f'"{found[0]}"')
    return character if character.isprintable() and character not in '"\\' else found[0]
