"""The selection of messages of the log that become rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from appliance.engine.protocol.record import Record

from .topics import is_system

#: (topic, queue id) -> offset.
QueueOffsets = dict[tuple[str, int], int]
_ALL = 1 << 63


@dataclass(frozen=True)
class Wanted:
    """Pickles. topics: None means all; a named topic is wanted even if system topics are not. pattern: a regular
    expression that the whole name of a topic must match if topics is None. Times in ms; to_ms and ends are not
    included. A queue that starts or ends do not name is wanted whole. body: with the columns of bodies, whose CRC is
    checked then. broker: the value of that column."""

    topics: frozenset[str] | None = None
    system: bool = False
    pattern: str | None = None
    queue_ids: frozenset[int] | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    starts: QueueOffsets = field(default_factory=dict)
    ends: QueueOffsets = field(default_factory=dict)
    body: bool = False
    broker: str | None = None

    def has_topic(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics
        if self.pattern is not None and re.fullmatch(self.pattern, topic) is None:
            return False
        return self.system or not is_system(topic)

    def has(self, record: Record) -> bool:
        """True if a record becomes a row. `columns.py` decides the same for many at once."""
        key = record.topic, record.queue_id
        return (
            self.has_topic(record.topic)
            and (self.queue_ids is None or record.queue_id in self.queue_ids)
            and (self.from_ms is None or record.store_time_ms >= self.from_ms)
            and (self.to_ms is None or record.store_time_ms < self.to_ms)
            and (self.from_offset is None or record.queue_offset >= self.from_offset)
            and (self.to_offset is None or record.queue_offset < self.to_offset)
            and record.queue_offset >= self.starts.get(key, 0)
            and record.queue_offset < self.ends.get(key, _ALL)
        )
