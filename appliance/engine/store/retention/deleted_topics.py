"""Which records belong to topics that were deleted: `deleted-topics.json` in our own directory.

    {"topics": {"T": 12345}, "crc32": of the topics' text}

The checksum is there because one flipped digit would take messages for a deleted topic's.

Records stay in the log after their topic is gone. Without this note recovery would give them queue entries again, and a
new topic of that name would begin with the old one's messages.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from zlib_ng.zlib_ng import crc32

from ..disk import Disk
from ..paths import queue_id_of, segment_offset
from ..queues.queue_extension import EXTENSION_DIRECTORY

if TYPE_CHECKING:
    from ..message_store import MessageStore

logger = logging.getLogger(__name__)

NAME = "deleted-topics.json"


def load_deleted_topics(store: MessageStore) -> dict[str, int]:
    """topic -> physical offset below which its records are a deleted topic's."""
    path = store.paths.own / NAME
    try:
        fd = store.disk.open(path, read_only=True)
        try:
            raw = store.disk.pread(fd, store.disk.size(fd), 0)
        finally:
            store.disk.close(fd)
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


def remember_deleted_topic(store: MessageStore, topic: str, offset: int) -> None:
    """Note a deletion, durably; entries whose records have left the log are dropped."""
    begin = store.log.min_offset
    known = {name: below for name, below in load_deleted_topics(store).items() if below > begin}
    known[topic] = offset
    _save(store, known)


def limit_deleted_topics(store: MessageStore, end: int) -> None:
    """What recovery found of the log ends at `end`: records written behind it are no deleted topic's.

    A deletion is durable before what was written until then is, so a power cut may leave the log shorter.
    """
    known = load_deleted_topics(store)
    if any(below > end for below in known.values()):
        _save(store, {topic: min(below, end) for topic, below in known.items()})


def _save(store: MessageStore, known: dict[str, int]) -> None:
    data = json.dumps({"topics": known, "crc32": crc32(json.dumps(known).encode())}).encode()
    store.disk.replace(store.paths.own / NAME, data)


def remove_queue_files(store: MessageStore, topic: str) -> None:
    """Delete the consume queue files of a topic, and what Apache wrote beside them; foreign files stay. Done again it
    finishes what was left."""
    for top in (store.paths.consume_queues, store.paths.root / EXTENSION_DIRECTORY):
        _remove_numbered_files(store.disk, top / topic)


def _remove_numbered_files(disk: Disk, top: Path) -> None:
    if not disk.is_directory(top):
        return
    for name in disk.names(top):
        if queue_id_of(name) is None:
            continue
        directory = top / name
        for file in disk.names(directory):
            if segment_offset(file) is not None:
                disk.unlink(directory / file)
        _remove_if_empty(disk, directory)
    disk.sync_directory(top)
    _remove_if_empty(disk, top)
    disk.sync_directory(top.parent)


def _remove_if_empty(disk: Disk, directory: Path) -> None:
    if disk.names(directory):
        disk.sync_directory(directory)
        logger.warning("consume queue: foreign files left alone in %s", directory)
    else:
        disk.remove_directory(directory)
