"""When the log may let messages go."""

from __future__ import annotations

import time

from ...store.message_store import MessageStore
from ...store.retention.clean_rules import HOUR_MS, is_cleaning_hour
from ..options import Options


class Expiry:
    """The earliest time at which messages may be deleted. Made for one request: it looks at each log file once.

    Source of the rule: `store/retention/clean_service.py`; a full disk may cost files before that.
    """

    def __init__(self, store: MessageStore, options: Options) -> None:
        self._store = store
        self._options = options.config.store
        self._files: dict[int, int | None] = {}

    def of(self, physical: int, stored_ms: int, topic_hours: int | None) -> int | None:
        """Return the wall ms before which a message does not expire; None if that cannot be determined.

        physical, stored_ms: the message's physical offset and store time. topic_hours: the topic's own retention time,
        None without one.
        """
        segments = self._store.log.segments
        index = next((i for i, segment in enumerate(segments) if segment.start <= physical < segment.end), -1)
        if index < 0:
            return None
        start = segments[index].start
        if start not in self._files:
            self._files[start] = self._not_before(index)
        found = self._files[start]
        if topic_hours is not None:
            own = stored_ms + topic_hours * HOUR_MS
            return own if found is None else min(found, own)
        return found

    def edge(self, until_ms: int) -> int:
        """Return the physical offset behind the last log file that may be deleted by `until_ms`."""
        edge = 0
        for index, segment in enumerate(self._store.log.segments[:-1]):
            if segment.start not in self._files:
                self._files[segment.start] = self._not_before(index)
            at = self._files[segment.start]
            if at is None or at > until_ms:
                break
            edge = segment.end
        return edge

    def _not_before(self, index: int) -> int | None:
        """Return the wall ms before which a log file is not deleted. Its reserved time counts from its last record on;
        after that it stays until an hour of deleteWhen."""
        store = self._store
        segments = store.log.segments
        if index + 1 >= len(segments):
            last_ms = int(time.time() * 1000)  # it is still being written
        else:
            try:
                last_ms = max(
                    store.log.modified_ms(segments[index]), store.records.store_time(segments[index + 1].start)
                )
            except OSError:
                return None
        at = last_ms + self._options.file_reserved_time_hours * HOUR_MS
        for _ in range(48):
            if is_cleaning_hour(self._options.delete_when, at):
                break
            at = (at // HOUR_MS + 1) * HOUR_MS
        return at
