"""First messages on Apache's replication stream between a member of a broker set and its leader.

    member -> leader    Hello, once, as the first bytes of the connection
    leader -> member    Answer; the stream of `ha_stream` follows. Or Refusal, and the connection is closed

Each is a sequence of 8-byte words whose top bit is set: no report and no header begins so. An Apache master ignores
them, but sends no data.

    word 0     magic 6 ("BoxHA", its first byte above 0x80), version 2
    word 1     0x80, size of the payload 3, its CRC-32 4
    others     0x80, 7 bytes of the payload; the last one is padded with zeros

Payload, big-endian; a text is its size 1 and that many bytes of UTF-8; epochs are their count 2 and (epoch 8, physical
offset of its start 8) for each, ascending:

    Hello      kind 1, hash of the set's name 8, uuid text, features 2, slot 2, epoch wanted 8, highest epoch seen 8,
               log end 8, log start 8, size of the log's files 8, epochs
    Answer     kind 2, leader's uuid text, epoch 8, log start 8, log end 8, epochs
    Refusal    kind 3, reason 1, leader's epoch 8, text

With a secret (`replication/proving.py`), these come before, in this order; a plain slave's report may follow as well:

    Prove      kind 4, nonce text          follower -> port
    Challenge  kind 5, nonce text          port -> follower
    Proof      kind 6, proof text          follower -> port, and back
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

from ..errors import FrameError

WORD_BYTES = 8
_PIECE_BYTES = WORD_BYTES - 1
_MAGIC = bytes((0x80 | ord("R"),)) + b"BoxHA"
VERSION = 1
_HEAD = struct.Struct(">6sHII")
_MARK = 0x80
_HELLO = struct.Struct(">hHqqqqq")
_ANSWER = struct.Struct(">qqq")
_REFUSAL = struct.Struct(">Bq")
_EPOCH = struct.Struct(">qq")
#: Only the newest epochs are sent; no member was away for that many elections.
MAX_EPOCHS = 1024
MAX_UUID_BYTES = 64
MAX_TEXT_BYTES = 255
_MAX_PAYLOAD = 1 + 8 + 1 + MAX_TEXT_BYTES + _HELLO.size + 2 + MAX_EPOCHS * _EPOCH.size

#: (epoch, physical offset of its start), ascending.
Epochs = tuple[tuple[int, int], ...]


class Reason(IntEnum):
    """Reasons for which a leader refuses a member."""

    OTHER_SET = 1
    OTHER_EPOCH = 2
    #: The member has seen a higher epoch, so this broker is no longer the leader.
    HIGHER_EPOCH = 3
    SAME_UUID = 4
    #: The leader is fenced.
    NOT_LEADING = 5
    #: The leader's disk does not respond.
    STALLED = 6
    FULL = 7
    OTHER_FILE_SIZE = 8
    #: It has another secret, or has not proved that it has one.
    OTHER_SECRET = 9
    NOT_PROVED = 10


#: A feature: the member reports how many changes of topics it has (`ha_stream`). Earlier versions used these two bytes
#: as the upper half of the slot, send 0 there, and ignore them.
SAYS_TAKEN = 1


class Hello(NamedTuple):
    """end, start: of the member's log. file_bytes: the size of its files. features: sum of the supported ones."""

    set_hash: bytes
    uuid: str
    slot: int
    epoch: int
    seen: int
    end: int
    start: int
    file_bytes: int
    epochs: Epochs
    features: int = 0


class Answer(NamedTuple):
    """The leader's uuid and epoch, and its log's start and end."""

    uuid: str
    epoch: int
    start: int
    end: int
    epochs: Epochs


class Refusal(NamedTuple):
    """reason: a Reason, or a number of a later version. text: for people."""

    reason: int
    epoch: int
    text: str


class Prove(NamedTuple):
    """nonce: of the follower, for one proof."""

    nonce: str


class Challenge(NamedTuple):
    """nonce: of the broker that is followed, for one proof."""

    nonce: str


class Proof(NamedTuple):
    """proof: `member_proof.proof`, as hexadecimal text."""

    proof: str


Preamble = Hello | Answer | Refusal | Prove | Challenge | Proof
#: The kinds of preambles that are one text.
_TEXTS: dict[int, type[Prove] | type[Challenge] | type[Proof]] = {4: Prove, 5: Challenge, 6: Proof}


def set_hash(name: str) -> bytes:
    """Return eight bytes that identify a set by its name."""
    return hashlib.sha256(name.encode()).digest()[:8]


def is_preamble(first: bytes) -> bool:
    """True if a connection that begins with these bytes, at least one, begins with a preamble."""
    return first[0] >= _MARK


def pack(said: Preamble) -> bytes:
    """Return the words of a preamble."""
    if isinstance(said, Hello):
        payload = b"\x01" + said.set_hash + _text(said.uuid, MAX_UUID_BYTES)
        payload += _HELLO.pack(said.features, said.slot, said.epoch, said.seen, said.end, said.start, said.file_bytes)
        payload += _pack_epochs(said.epochs)
    elif isinstance(said, Answer):
        payload = b"\x02" + _text(said.uuid, MAX_UUID_BYTES)
        payload += _ANSWER.pack(said.epoch, said.start, said.end) + _pack_epochs(said.epochs)
    elif isinstance(said, Prove | Challenge | Proof):
        kind = next(kind for kind, made in _TEXTS.items() if isinstance(said, made))
        payload = bytes((kind,)) + _text(said[0], MAX_TEXT_BYTES)
    else:
        payload = b"\x03" + _REFUSAL.pack(said.reason, said.epoch) + _text(said.text, MAX_TEXT_BYTES)
    head = _HEAD.pack(_MAGIC, VERSION, _MARK << 24 | len(payload), zlib.crc32(payload))
    mark = bytes((_MARK,))
    pieces = (payload[at : at + _PIECE_BYTES] for at in range(0, len(payload), _PIECE_BYTES))
    return head + b"".join(mark + piece.ljust(_PIECE_BYTES, b"\0") for piece in pieces)


class Opening:
    """Receives the first bytes of a connection, in any pieces, until the preamble is complete."""

    def __init__(self) -> None:
        self._data = b""
        #: Bytes received behind the preamble.
        self.rest = b""

    @property
    def begun(self) -> bool:
        """True if a part of the preamble was received."""
        return bool(self._data)

    def feed(self, data: bytes) -> Preamble | None:
        """Return the preamble once it is complete, else None. Raises FrameError as soon as it cannot become one."""
        self._data = data = self._data + data
        known = min(len(data), len(_MAGIC))
        if data[:known] != _MAGIC[:known]:
            raise FrameError(f"{data[:WORD_BYTES].hex(' ')} is no preamble")
        if len(data) < _HEAD.size:
            return None
        _, version, size, crc = _HEAD.unpack_from(data)
        if version != VERSION:
            raise FrameError(f"it speaks version {version} of the preamble; this program speaks {VERSION}")
        size ^= _MARK << 24
        if not 0 < size <= _MAX_PAYLOAD:
            raise FrameError(f"a preamble of {size} bytes")
        end = _HEAD.size + -(-size // _PIECE_BYTES) * WORD_BYTES
        if len(data) < end:
            return None
        words = data[_HEAD.size : end]
        if any(mark != _MARK for mark in words[::WORD_BYTES]):
            raise FrameError("a preamble whose words are not marked")
        padded = b"".join(words[at + 1 : at + WORD_BYTES] for at in range(0, len(words), WORD_BYTES))
        payload = padded[:size]
        if zlib.crc32(payload) != crc or any(padded[size:]):
            raise FrameError("a preamble that was changed on its way")
        self._data, self.rest = b"", data[end:]
        return _unpack(payload)


def _unpack(payload: bytes) -> Preamble:
    """Return the preamble in a payload. Raises FrameError if this program would not send it."""
    try:
        said = _parse(payload)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise FrameError("a preamble that is not one") from None
    if isinstance(said, Refusal | Prove | Challenge | Proof):
        return said
    if not said.uuid or said.epoch < 1 or not 0 <= said.start <= said.end:
        raise FrameError(f"a preamble that contradicts itself: {said}")
    if isinstance(said, Hello) and (said.features < 0 or said.seen < 0 or said.file_bytes < 1):
        raise FrameError(f"a preamble that contradicts itself: {said}")
    for before, after in zip(said.epochs, said.epochs[1:], strict=False):
        if after[0] <= before[0] or after[1] < before[1]:
            raise FrameError(f"epochs that do not grow: {before}, {after}")
    if said.epochs and (said.epochs[0][0] < 1 or said.epochs[0][1] < 0):
        raise FrameError(f"no epoch: {said.epochs[0]}")
    return said


def _parse(payload: bytes) -> Preamble:
    kind = payload[0]
    if kind == 1:
        name, at = payload[1:9], 9
        uuid, at = _parse_text(payload, at, MAX_UUID_BYTES)
        features, slot, epoch, seen, end, start, file_bytes = _HELLO.unpack_from(payload, at)
        epochs = _parse_epochs(payload, at + _HELLO.size)
        return Hello(name, uuid, slot, epoch, seen, end, start, file_bytes, epochs, features)
    if kind == 2:
        uuid, at = _parse_text(payload, 1, MAX_UUID_BYTES)
        epoch, start, end = _ANSWER.unpack_from(payload, at)
        return Answer(uuid, epoch, start, end, _parse_epochs(payload, at + _ANSWER.size))
    if kind == 3:
        reason, epoch = _REFUSAL.unpack_from(payload, 1)
        text, at = _parse_text(payload, 1 + _REFUSAL.size, MAX_TEXT_BYTES)
        if at == len(payload):
            return Refusal(reason, epoch, text)
    if kind in _TEXTS:
        text, at = _parse_text(payload, 1, MAX_TEXT_BYTES)
        if text and at == len(payload):
            return _TEXTS[kind](text)
    raise FrameError("a preamble of a kind that this program does not know")


def _text(value: str, most: int) -> bytes:
    """Encode a text, cut to `most` bytes at a character's end."""
    data = value.encode()[:most].decode(errors="ignore").encode()
    return bytes((len(data),)) + data


def _parse_text(payload: bytes, at: int, most: int) -> tuple[str, int]:
    """Return (text, its end)."""
    end = at + 1 + payload[at]
    if end - at - 1 > most or end > len(payload):
        raise FrameError("a text that is too long")
    return payload[at + 1 : end].decode(), end


def _pack_epochs(epochs: Epochs) -> bytes:
    newest = epochs[-MAX_EPOCHS:]
    return struct.pack(">H", len(newest)) + b"".join(_EPOCH.pack(*one) for one in newest)


def _parse_epochs(payload: bytes, at: int) -> Epochs:
    """Parse the epochs, which end the payload."""
    (count,) = struct.unpack_from(">H", payload, at)
    if count > MAX_EPOCHS or len(payload) != at + 2 + count * _EPOCH.size:
        raise FrameError(f"{count} epochs in a preamble of {len(payload)} bytes")
    return tuple((epoch, start) for epoch, start in _EPOCH.iter_unpack(payload[at + 2 :]))
