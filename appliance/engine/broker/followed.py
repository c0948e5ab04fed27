"""A plain slave's note of how far the topics here cover its log: `followed.json` in RocketBox's own directory.

    {"topics_to": 12345}    the log's end here when the topics that are here were asked for

A slave copies the log at once and the topics seconds later. When people make it the master (another `brokerRole` at its
next start), topics may be missing for which the log has messages. The new master finds this note, makes them, and
removes it. A member of a set needs no note: it becomes the leader without a new start.
"""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path

from .. import fastjson
from ..clock import Clock
from ..store.message_store import MessageStore
from .offsets import ConsumerOffsetManager
from .promotion import settle_side_state
from .topics import TopicConfigManager

logger = logging.getLogger(__name__)

#: Shortest time between two notes.
PERIOD_S = 60.0


class Followed:
    """Owned by the thread `sync-from-master`."""

    def __init__(self, path: Path, store: MessageStore, clock: Clock) -> None:
        self._path = path
        self._disk = store.disk
        self._clock = clock
        self._end = -1
        self._saved = -1
        self._topics: object = None
        self._saved_at = -math.inf

    def covers(self, end: int, topics: object) -> None:
        """Note that the topics here cover the log up to this end; saved once in a while, and at once when there are
        other topics: else queues would come back that were taken from a topic. topics: their version."""
        self._end = end
        if topics != self._topics or self._clock.monotonic() - self._saved_at >= PERIOD_S:
            self._topics = topics
            self.save()

    def save(self) -> None:
        """Save the note if it has changed."""
        if self._end == self._saved:
            return
        self._saved_at = self._clock.monotonic()
        try:
            self._disk.replace(self._path, json.dumps({"topics_to": self._end}).encode())
            self._saved = self._end
        except OSError as error:
            logger.warning("replication: %s is not saved: %s", self._path.name, error)


def settle_former_slave(
    path: Path, store: MessageStore, topics: TopicConfigManager, offsets: ConsumerOffsetManager
) -> None:
    """Correct the tables of a master that was a slave before, as `settle_side_state` does, and remove its note."""
    try:
        end = int(fastjson.loads_plain(store.disk.read(path))["topics_to"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.error("replication: %s cannot be read, all topics of the log are looked at: %s", path.name, error)
        end = -1
    logger.warning("replication: this broker was a slave and is a master now; topics are known up to %d", end)
    settle_side_state(store, topics, offsets, end)
    store.disk.unlink(path)
