"""Dispatch: from a record to what follows from it, its queue entry and its keys in the index.

    record -> entry: physical offset 8 | size 4 | tag code 8        none for prepared and rolled-back ones, for whole
                                                                    batches, for a deleted topic's
    record -> keys:  its unique key, then each word of KEYS         none for rolled-back ones

Sends know the entry when they append; recovery and repair learn it from the record, and so will a replica that appends
records as they are. All of them ask here, so that a crash changes no entry: a record that would get none is not taken
(`has_queue_entry`), and the code is that of the properties as they are stored, not as they were sent
(`properties_tag_code`).
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
#: Of a level. A time far beyond fits no queue entry, and each message of that level would be refused.
LONGEST_DELAY_MS = 36_525 * 86_400_000
_MOST_DIGITS = 15
_LEVEL = re.compile(r"([0-9]+)([smhd])\Z", re.ASCII)

#: Tags are few and repeat; the table is emptied when a client makes one up per message.
_HASHES_KEPT = 10_000
_hashes: dict[str, int] = {}


def parse_delay_levels(text: str) -> list[int]:
    """Milliseconds of each level of `messageDelayLevel`, level 1 first. ValueError names what does not parse."""
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
    """The Java hash of a tag, 0 without one."""
    if not tag:
        return 0
    code = _hashes.get(tag)
    if code is None:
        if len(_hashes) >= _HASHES_KEPT:
            _hashes.clear()
        code = _hashes[tag] = java_hash(tag)
    return code


class Dispatch:
    """What records of the log give rise to, for whoever reads them from it. Belongs to one pass over the log."""

    def __init__(
        self,
        delay_levels_ms: list[int],
        deleted: Mapping[str, int],
        begins: Mapping[str, Mapping[int, Begin]] | None = None,
    ) -> None:
        """deleted: topic -> physical offset below which its records are a deleted topic's. begins: the same of queues,
        by the numbers of their records (`ConsumeQueueTable.begins`)."""
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
        """The entry of a record that has one."""
        return ENTRY.pack(record.physical_offset, record.size, entry_tag_code(record, self._delay_levels_ms))


def has_queue_entry(sys_flag: int) -> bool:
    """Prepared and rolled-back records have none, nor have whole batches: theirs lie in 5.x's batch queues."""
    return sys_flag & SYS_TRANSACTION_MASK in (0, SYS_COMMIT) and not sys_flag & SYS_INNER_BATCH


def properties_tag_code(properties: str) -> int:
    """The tag code of the entry of a record with these stored properties, in any topic but the schedule topic.

    That of `find_property(properties, TAGS)`; each send asks, so the way there is short.
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
    """The tag code of a record's entry; in the schedule topic the time its delay ends."""
    if record.topic == SCHEDULE_TOPIC:
        return waiting_tag_code(record.properties, record.store_time_ms, delay_levels_ms)
    return properties_tag_code(record.properties)


def waiting_tag_code(properties: str, store_ms: int, delay_levels_ms: Sequence[int]) -> int:
    """The tag code of a record of the schedule topic: when its delay ends, wall ms."""
    level = (find_property(properties, DELAY_TIME_LEVEL) or "").removeprefix("+")  # so Apache's stores may say it
    if level.isascii() and level.isdigit() and len(level) <= 32 and int(level) > 0:
        index = min(int(level), len(delay_levels_ms)) - 1
        return store_ms + (delay_levels_ms[index] if index >= 0 else 1000)
    return properties_tag_code(properties)


def has_keys(sys_flag: int) -> bool:
    """Whether the index knows a record by its keys: rolled-back ones it does not."""
    return sys_flag & SYS_TRANSACTION_MASK != SYS_ROLLBACK


def keys_of(properties: str) -> list[str]:
    """The keys of a record by its properties text: the unique key, then the words of KEYS."""
    found = decode_properties(properties)
    keys = [found[UNIQUE_KEY]] if UNIQUE_KEY in found else []
    words = found.get(KEYS, "")
    if len(words) < 2 * FEW_WORDS:
        return keys + [word for word in words.split(" ") if word]
    return keys + [word for word in words.split(" ") if word][: most_words(len(words.encode("utf-8", "replace")))]


#: Words of KEYS that are indexed in any case, and one more for so many bytes of it: an entry of the index takes 20
#: bytes, a word of one letter two in the log, and strangers could have an index of ten times their messages. Keys of
#: people's have ten letters, and are all found. Ours: Apache indexes every word.
FEW_WORDS, BYTES_A_WORD = 64, 10


def most_words(size: int) -> int:
    """How many words of a KEYS of so many bytes are indexed."""
    return FEW_WORDS + size // BYTES_A_WORD
