"""Where queues go on of which a backup has no message: the log in it does not say.

They are noted in the backup's `deleted-topics.json`, beside those of deleted topics. Which these are, and where they
end, the queue ledger says, and the entries in the queue files: the ledger is of a moment after the log's files were
listed, and no file of the log goes before the ledger has all that was in it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..store.checkpoint import RecoveryPositionFile
from ..store.paths import StorePaths
from ..store.queues.consume_queue import ENTRY, ConsumeQueue
from ..store.queues.consume_queue_table import ConsumeQueueTable
from ..store.queues.queue_ledger import LedgerPlace, queues_in
from ..store.retention import deleted_topics
from ..store.retention.clean_queues import first_kept
from ..store.retention.deleted_topics import Begin, DeletedTopics, Ends
from ..store_tools.offline_store import ReadOnlyDisk
from .archive import Step

#: Tries to read the ledger that the recovery position names: a running broker may begin the next one meanwhile.
_TRIES = 5
#: Queues that are looked into between two rests: some milliseconds.
_SLICE = 200


def deletions_with_ends(store_dir: Path, own_dir: Path, begin: int, end: int, step: Step) -> bytes | None:
    """Return `deleted-topics.json` for a backup with the log [begin, end); None if the file itself serves. step: called
    now and then, to rest. Raises OSError."""
    if not begin:
        return None  # no message has left the log
    paths, disk = StorePaths(store_dir, own_dir), ReadOnlyDisk()
    queues = _queues_of(paths, disk)
    found = {} if queues is None else _ends(queues, begin, end, step)
    deleted = DeletedTopics(paths, disk)
    topics, ends = deleted.load_all()
    news = False
    for topic, its in found.items():
        known = ends.get(topic, {})
        later = {one: at for one, at in its.items() if one not in known or known[one].offset < at.offset}
        if later:
            news = True
            ends[topic] = {**known, **later}
    return deleted_topics.encode(topics, ends, deleted.load_late()) if news else None


def _queues_of(paths: StorePaths, disk: ReadOnlyDisk) -> ConsumeQueueTable | None:
    """Return the queues of the ledger; None without one, as before the first start has read the whole log."""
    for _ in range(_TRIES):
        try:
            file = RecoveryPositionFile(paths.recovery_position, disk)
        except FileNotFoundError:
            return None
        file.close()
        if file.position is None or not file.position.ledger_generation:
            return None
        found = queues_in(LedgerPlace(*file.position.ledger), paths, disk)
        if found is not None:
            return found
    return None


def _ends(queues: ConsumeQueueTable, begin: int, end: int, step: Step) -> Ends:
    """Return where the queues end that have no message in the log [begin, end)."""
    found: Ends = {}
    try:
        for number, queue in enumerate(queues.all(), 1):
            if not number % _SLICE:
                step(0)
            offset = first_kept(partial(_entry, queues, queue), queue.min_offset, queue.max_offset, begin)
            entry = _entry(queues, queue, offset) if offset < queue.max_offset else b""
            if offset and (not entry or ENTRY.unpack(entry)[0] >= end):
                found.setdefault(queue.topic, {})[queue.queue_id] = Begin(offset, begin)
    finally:
        queues.close()
    return found


def _entry(queues: ConsumeQueueTable, queue: ConsumeQueue, offset: int) -> bytes:
    return queues.files.read(queue.topic, queue.queue_id, offset, 1)
