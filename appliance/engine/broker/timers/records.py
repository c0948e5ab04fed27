"""Records of the timer topic: reads of each only the bytes that are needed, and makes its entries in the index."""

from __future__ import annotations

from ...digests import blake2b
from ...protocol.properties import (
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_ENQUEUE_MS,
    TIMER_FIRST,
    TIMER_OF,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQUE_KEY,
    find_property,
)
from ...protocol.record import FIXED_BYTES, MAGIC_V1, MAGIC_V2, STORE_TIME_AT, SYS_BORN_IPV6, topic_at
from ...store.log.commit_log import CommitLog
from .runs import TimerEntry, lane_of
from .spans import SpanReader
from .waiting import First, Timed, due_of

#: Records up to this size are read whole; of longer ones only their properties.
_WHOLE_BYTES = 8192
_HEAD_BYTES = 128
_MOST_DIGITS = 19
#: Characters in which a topic's name and a unique key fit as clients make them; longer keys are kept as a hash.
_SHORT = 192


def read_properties(log: CommitLog | SpanReader, physical: int, size: int) -> str | None:
    """Return the properties text of the record that a queue entry names; None if it is not there. Raises OSError."""
    found = read_stored(log, physical, size)
    return None if found is None else found[0]


def read_stored(log: CommitLog | SpanReader, physical: int, size: int) -> tuple[str, int] | None:
    """Return (properties text, store time in ms) of the record that a queue entry names; None if it is not there.
    Raises OSError."""
    whole = size <= _WHOLE_BYTES
    data = log.read(physical, size if whole else _HEAD_BYTES)
    magic = int.from_bytes(data[4:8], "big")
    if len(data) < FIXED_BYTES or magic not in (MAGIC_V1, MAGIC_V2):
        return None
    if int.from_bytes(data[:4], "big") != size or int.from_bytes(data[28:36], "big") != physical:
        return None
    at = topic_at(data)
    if not at < size:
        return None
    stored_at = 68 if data[39] & SYS_BORN_IPV6 else STORE_TIME_AT
    stored_ms = int.from_bytes(data[stored_at : stored_at + 8], "big")
    if not whole:
        data, at = log.read(physical + at, size - at), 0
    width = 1 if magic == MAGIC_V1 else 2
    at += width + int.from_bytes(data[at : at + width], "big")
    text = data[at + 2 :]  # which ends the record
    if len(text) != int.from_bytes(data[at : at + 2], "big"):
        return None
    return text.decode("utf-8", "replace"), stored_ms


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0


def timed_of(properties: str, precision_ms: int) -> Timed | None:
    """Return the timer fields in the properties of a record; None if it has no legal TIMER_OUT_MS."""
    out_ms = _number(find_property(properties, TIMER_OUT_MS))
    if not 0 < out_ms < 1 << 62:
        return None
    due_ms = due_of(out_ms, _number(find_property(properties, TIMER_DELIVER_MS)), precision_ms)
    cancels = find_property(properties, TIMER_DEL_UNIQKEY)
    times = _number(find_property(properties, TIMER_ROLL_TIMES))
    if not times and "ROCKETBOX_TIMER" not in properties:
        return Timed(out_ms, due_ms, cancels, 0)
    first, ahead_ms = _first_in(find_property(properties, TIMER_FIRST))
    named = find_property(properties, TIMER_OF)
    takes_out = -1 if named is None else _number(named)
    return Timed(
        out_ms, due_ms, cancels, times, takes_out, first, _number(find_property(properties, TIMER_ENQUEUE_MS)), ahead_ms
    )


def delay_in(properties: str) -> int | None:
    """Return the delay in ms that a message asked for; None if it named a time of day, or for a mark."""
    for name, unit_ms in ((TIMER_DELAY_SEC, 1000), (TIMER_DELAY_MS, 1)):
        asked = find_property(properties, name)
        if asked is not None:
            return _number(asked) * unit_ms
    return None


def _first_in(text: str | None) -> tuple[First | None, int]:
    """Return (first record, `Timed.ahead_ms`) of a value of ROCKETBOX_TIMER_FIRST; None and 0 without one."""
    parts = [] if text is None else text.split(":")
    if not 3 <= len(parts) <= 4:
        return None, 0
    ahead = parts[3] if len(parts) == 4 else ""
    ahead_ms = -_number(ahead[1:]) if ahead.startswith("-") else _number(ahead)
    return First(*map(_number, parts[:3])), ahead_ms


def first_text(timed: Timed, queue_offset: int, stored_ms: int, ahead_ms: int = 0) -> str:
    """Return the value of ROCKETBOX_TIMER_FIRST for a copy of a record. ahead_ms: of the copy."""
    ahead = (ahead_ms,) if ahead_ms else ()
    return ":".join(map(str, (*timed.first_of(queue_offset, stored_ms), *ahead)))


def entries_of(timed: Timed, properties: str, queue_offset: int, physical: int, size: int) -> list[TimerEntry]:
    """Return a record's entries in the index: for a message its own; for a message that was rolled also a mark before
    it, by which the older records no longer count; for a record that cancels messages only the mark."""
    lane = lane_of(cancel_key(properties) if timed.cancels is None else timed.cancels)
    mark = TimerEntry(timed.out_ms + 1, True, queue_offset, physical, size, lane)
    if timed.cancels is not None:
        return [mark]
    message = TimerEntry(timed.due_ms, False, queue_offset, physical, size, lane)
    return [mark, message] if timed.roll_times else [message]


def cancel_key(properties: str) -> str:
    """Return the key by which a mark finds this message: `topic+unique key`."""
    return f"{find_property(properties, REAL_TOPIC) or ''}+{find_property(properties, UNIQUE_KEY) or ''}"


def short_key(key: str) -> str:
    """Return a key as it is kept in memory while its mark counts: a hash of a long one, which may have 32 KB."""
    return key if len(key) <= _SHORT else blake2b(key.encode("utf-8", "replace"), 20).hex()
