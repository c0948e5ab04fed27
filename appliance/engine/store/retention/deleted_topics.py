"""Which records belong to topics that were deleted: `deleted-topics.json` in our own directory.

    {"topics": {"T": 12345}, "crc32": of the topics' text}

The checksum is there because one flipped digit would take messages for a deleted topic's.

Records stay in the log after their topic is gone. Without this note recovery would give them queue entries again, and a
new topic of that name would begin with the old one's messages.
"""

from __future__ import annotations

import json
import logging

from zlib_ng.zlib_ng import crc32

from ..disk import Disk
from ..paths import StorePaths

logger = logging.getLogger(__name__)

NAME = "deleted-topics.json"


class DeletedTopics:
    """The file. Written by recovery, then by flush-consumequeue alone."""

    def __init__(self, paths: StorePaths, disk: Disk) -> None:
        self._path = paths.own / NAME
        self._disk = disk

    def load(self) -> dict[str, int]:
        """topic -> physical offset below which its records are a deleted topic's."""
        disk = self._disk
        try:
            fd = disk.open(self._path, read_only=True)
            try:
                raw = disk.pread(fd, disk.size(fd), 0)
            finally:
                disk.close(fd)
            found = json.loads(raw)
            topics = {str(topic): int(offset) for topic, offset in found["topics"].items()}
            if found["crc32"] != crc32(json.dumps(topics).encode()):
                raise ValueError("the checksum does not match")
            return topics
        except FileNotFoundError:
            return {}
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            logger.error("store: %s cannot be read, deleted topics may show again: %s", NAME, error)
            return {}

    def remember(self, topic: str, offset: int, log_begin: int) -> None:
        """Note a deletion, durably; those whose records have all left the log are dropped."""
        known = {name: below for name, below in self.load().items() if below > log_begin}
        known[topic] = offset
        self._save(known)

    def limit(self, end: int) -> None:
        """What recovery found of the log ends at `end`: records written behind it are no deleted topic's.

        A deletion is durable before what was written until then is, so a power cut may leave the log shorter.
        """
        known = self.load()
        if any(below > end for below in known.values()):
            self._save({topic: min(below, end) for topic, below in known.items()})

    def _save(self, known: dict[str, int]) -> None:
        data = json.dumps({"topics": known, "crc32": crc32(json.dumps(known).encode())}).encode()
        self._disk.replace(self._path, data)
