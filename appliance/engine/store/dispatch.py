"""Dispatch: from a record to its queue entry and its keys in the index.

    record -> entry: physical offset 8 | size 4 | tag code 8        none for prepared and rolled-back records, whole
                                                                    batches, and records of a deleted topic
    record -> keys:  its unique key, then each word of KEYS         none for rolled-back records

A send computes the entry when it appends; recovery, repair and a replica, which appends records as they are, derive it
from the record. All use this module, so that a crash changes no entry: a record that would get none is rejected
(`has_queue_entry`), and the code is that of the stored properties, not of the sent ones (`properties_tag_code`).
Source: RocketMQ `CommitLog.checkMessageAndReturnSize`, `CommitLogDispatcherBuildConsumeQueue`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..protocol.names import SCHEDULE_TOPIC
from ..protocol.properties import DELAY_TIME_LEVEL, KEYS, UNIQUE_KEY, decode_properties, find_property, java_hash
from ..protocol.record import SYS_COMMIT, SYS_INNER_BATCH, SYS_ROLLBACK, SYS_TRANSACTION_MASK, Record
from .queues.consume_queue import ENTRY
from .retention.deleted_topics import Begin

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: Limit of a level. A time far beyond fits no queue entry, so each message of that level would be rejected.
LONGEST_DELAY_MS = 36_525 * 86_400_000
_MOST_DIGITS = 15
_LEVEL = re.compile(r"([0-9]+)([smhd])\Z", re.ASCII)

#: Tags are few and repeat; the table is emptied when a client makes a new one for each message.
_HASHES_KEPT = 10_000
_hashes: dict[str, int] = {}


def parse_delay_levels(text: str) -> list[int]:
    """Return the milliseconds of each level of `messageDelayLevel`, level 1 first. ValueError names the bad word."""
    levels = []
    for word in text.split():
        match = _LEVEL.match(word)
        if match is None:
            raise ValueError(f"messageDelayLevel: {word!r} is not a number followed by s, m, h or d")
        delay_ms = int(match[1]) * _UNIT_MS[match[2]] if len(match[1]) <= _MOST_DIGITS else LONGEST_DELAY_MS + 1
        if delay_ms > LONGEST_DELAY_MS:
            raise ValueError(f"messageDelayLevel: {word[:30]!r} is longer than 100 years")
        levels.append(delay_ms)
    return levels


def tag_code(tag: str | None) -> int:
    """Return the Java hash of a tag, 0 without one."""
    if not tag:
        return 0
    code = _hashes.get(tag)
    if code is None:
        if len(_hashes) >= _HASHES_KEPT:
            _hashes.clear()
        code = _hashes[tag] = java_hash(tag)
    return code


class Dispatch:
    """Queue entries of records that are read from the log. Belongs to one pass over the log."""

    def __init__(
        self,
        delay_levels_ms: list[int],
        deleted: Mapping[str, int],
        begins: Mapping[str, Mapping[int, Begin]] | None = None,
    ) -> None:
        """deleted: topic -> physical offset below which its records belong to a deleted topic. begins: the same for
        queues, by the queue offsets of their records (`ConsumeQueueTable.begins`)."""
        self._delay_levels_ms = delay_levels_ms
        self._deleted = deleted
        self._begins = {} if begins is None else begins

    def has_entry(self, record: Record) -> bool:
        if not has_queue_entry(record.sys_flag) or record.physical_offset < self._deleted.get(record.topic, 0):
            return False
        begins = self._begins.get(record.topic) if self._begins else None
        begin = begins.get(record.queue_id) if begins else None
        return begin is None or record.queue_offset >= begin.offset or record.physical_offset >= begin.place

    def entry(self, record: Record) -> bytes:
        """Return the entry of a record that has one."""
        return ENTRY.pack(record.physical_offset, record.size, entry_tag_code(record, self._delay_levels_ms))


def has_queue_entry(sys_flag: int) -> bool:
    """False for prepared and rolled-back records, and for whole batches, whose entries lie in 5.x's batch queues."""
    return sys_flag & SYS_TRANSACTION_MASK in (0, SYS_COMMIT) and not sys_flag & SYS_INNER_BATCH


def properties_tag_code(properties: str) -> int:
    """Return the tag code for the entry of a record with these stored properties, in any topic but the schedule topic.

    As for `find_property(properties, TAGS)`, but shorter, since each send calls it.
    """
    at = properties.rfind("\x02TAGS\x01")
    if at >= 0:
        begin = at + 6
    elif properties.startswith("TAGS\x01"):
        begin = 5
    else:
        return 0
    end = properties.find("\x02", begin)
    tag = properties[begin:end] if end >= 0 else properties[begin:]
    code = _hashes.get(tag)
    return tag_code(tag) if code is None else code


def entry_tag_code(record: Record, delay_levels_ms: Sequence[int]) -> int:
    """Return the tag code of a record's entry; in the schedule topic that is the time its delay ends."""
    if record.topic == SCHEDULE_TOPIC:
        return waiting_tag_code(record.properties, record.store_time_ms, delay_levels_ms)
    return properties_tag_code(record.properties)


def waiting_tag_code(properties: str, store_ms: int, delay_levels_ms: Sequence[int]) -> int:
    """Return the tag code of a record in the schedule topic: the time its delay ends, in wall ms."""
    level = (find_property(properties, DELAY_TIME_LEVEL) or "").removeprefix("+")  # Apache's stores may contain it so
    if level.isascii() and level.isdigit() and len(level) <= 32 and int(level) > 0:
        index = min(int(level), len(delay_levels_ms)) - 1
        return store_ms + (delay_levels_ms[index] if index >= 0 else 1000)
    return properties_tag_code(properties)


def has_keys(sys_flag: int) -> bool:
    """True if a record has keys in the index: rolled-back ones have none."""
    return sys_flag & SYS_TRANSACTION_MASK != SYS_ROLLBACK


def keys_of(properties: str) -> list[str]:
    """Return the keys in a record's properties text: the unique key, then the words of KEYS."""
    found = decode_properties(properties)
    keys = [found[UNIQUE_KEY]] if UNIQUE_KEY in found else []
    words = found.get(KEYS, "")
    if len(words) < 2 * FEW_WORDS:
        return keys + [word for word in words.split(" ") if word]
    return keys + [word for word in words.split(" ") if word][: most_words(len(words.encode("utf-8", "replace")))]


#: Words of KEYS that are always indexed, and bytes of KEYS for each further one. An index entry takes 20 bytes, a word
#: of one letter only two in the log, so clients could make the index ten times as large as their messages. Keys in real
#: use have ten letters and are all found. Differs from Apache, which indexes every word.
FEW_WORDS, BYTES_A_WORD = 64, 10


def most_words(size: int) -> int:
    """Return how many words of a KEYS with `size` bytes are indexed."""
    return FEW_WORDS + size // BYTES_A_WORD
