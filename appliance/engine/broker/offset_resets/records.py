"""The lines in the journal of offset resets; format page: docs/formats/offset-resets.md."""

from __future__ import annotations

import msgspec

from ...crc_lines import line_of, text_of

#: In a `Move`: the group has no offset of the queue.
NONE = -1


class Move(msgspec.Struct, frozen=True, array_like=True):
    """The move of one queue. before: the group's offset then, NONE without one. target: the new offset; NONE removes
    it."""

    topic: str
    queue_id: int
    before: int
    target: int


class ResetRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One act. id: grows with each. kind: "reset", "undo" or "clone". by: the administrator. at_ms: wall clock. asked:
    the request, in the words of `targets.text_of`, or the group that was cloned. undoes: the id of the act that it
    takes back."""

    id: int
    kind: str
    group: str
    by: str
    at_ms: int
    asked: str
    moves: tuple[Move, ...]
    undoes: int = 0


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line; at least one of its fields is there.

    reset: an act, which is done from here on. over: (reset id, topic, queue id) of moves that members have taken over,
    with the offsets since then in consumerOffset.json. gone: (reset id, topic) of moves whose topic or group was
    deleted.
    """

    reset: ResetRecord | None = None
    over: tuple[tuple[int, str, int], ...] = ()
    gone: tuple[tuple[int, str], ...] = ()


def encode_line(line: Line) -> bytes:
    """Return the line with its CRC and newline."""
    return line_of(msgspec.json.encode(line))


def decode_line(raw: bytes) -> Line | None:
    """Decode a line without its newline; None if it is damaged."""
    text = text_of(raw)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Line)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None
