"""Which records belong to topics that were deleted: `deleted-topics.json` in our own directory.

Records stay in the log after their topic is gone. Without this note recovery would give them queue entries again, and a
new topic of that name would begin with the old one's messages.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .message_store import MessageStore

logger = logging.getLogger(__name__)

NAME = "deleted-topics.json"


def load_deleted_topics(store: MessageStore) -> dict[str, int]:
    """topic -> physical offset below which its records are a deleted topic's."""
    try:
        raw = (store.paths.own / NAME).read_bytes()
        return {str(topic): int(offset) for topic, offset in json.loads(raw).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError) as error:
        logger.error("store: %s cannot be read, deleted topics may show again: %s", NAME, error)
        return {}


def remember_deleted_topic(store: MessageStore, topic: str, offset: int) -> None:
    """Note a deletion, durably; entries whose records have left the log are dropped."""
    disk, path = store.disk, store.paths.own / NAME
    begin = store.log.min_offset
    known = {name: below for name, below in load_deleted_topics(store).items() if below > begin}
    known[topic] = offset
    data = json.dumps(known).encode()
    temporary = path.with_suffix(".tmp")
    fd = disk.open(temporary, create=True)
    try:
        disk.truncate(fd, 0)
        disk.pwrite(fd, data, 0)
        disk.fsync(fd)
    finally:
        disk.close(fd)
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def remove_queue_files(store: MessageStore, topic: str) -> None:
    """Delete the consume queue files of a topic."""
    disk = store.disk
    for name, queue_id in store.queues.on_disk():
        if name != topic:
            continue
        directory = store.paths.queue_dir(topic, queue_id)
        for path in sorted(directory.iterdir()):
            disk.unlink(path)
        directory.rmdir()
    top = store.paths.consume_queues / topic
    if top.is_dir() and not any(top.iterdir()):
        top.rmdir()
        disk.sync_directory(top.parent)
