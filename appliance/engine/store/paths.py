"""All file names and directories of the store are built and parsed here only.

`store/` is Apache's `storePathRootDir`; `rocketbox/` holds RocketBox's own files (D3).
"""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"[0-9]{20}\Z", re.ASCII)
_QUEUE_ID = re.compile(r"(0|[1-9][0-9]{0,9})\Z", re.ASCII)


def segment_name(offset: int) -> str:
    """Return a file's name, its start offset in 20 digits."""
    return f"{offset:020d}"


def segment_offset(name: str) -> int | None:
    """Return the start offset in a file's name; None for a foreign name."""
    return int(name) if _NAME.match(name) else None


def queue_id_of(name: str) -> int | None:
    """Return the queue id in a directory's name; None for a foreign name."""
    return int(name) if _QUEUE_ID.match(name) else None


class StorePaths:
    """Paths below one store directory and one directory of RocketBox."""

    def __init__(self, store_dir: Path, own_dir: Path) -> None:
        self.root = store_dir
        self.commit_log = store_dir / "commitlog"
        self.consume_queues = store_dir / "consumequeue"
        self.index = store_dir / "index"
        self.config = store_dir / "config"
        self.checkpoint = store_dir / "checkpoint"
        self.abort = store_dir / "abort"
        self.lock = store_dir / "lock"
        self.own = own_dir
        self.recovery_position = own_dir / "recovery-position"
        self.quarantine = own_dir / "quarantine"

    def queue_dir(self, topic: str, queue_id: int) -> Path:
        """Return a queue's directory. Topic names are checked where they enter; a separator here would be a bug."""
        assert "/" not in topic, topic
        assert topic not in (".", "..", ""), topic
        return self.consume_queues.joinpath(topic, str(queue_id))
