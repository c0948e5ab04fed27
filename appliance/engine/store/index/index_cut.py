"""The index without the records that were cut off the log, in a store that no broker runs."""

from __future__ import annotations

import logging

from ...disk import Disk
from ..paths import StorePaths
from .index_file import FIRST_ENTRY, IndexFile
from .index_recovery import FILE_NAME, IndexPosition, IndexPositionFile

logger = logging.getLogger(__name__)


def cut_index(paths: StorePaths, disk: Disk, slots: int, entries: int, point: int) -> None:
    """Remove entries of records at or behind physical offset `point`. After an OSError it has to be called again.

    slots, entries: sizes of a file. A file that is no index file of these sizes is left to the next opening.
    """
    try:
        names = [name for name in disk.names(paths.index) if FILE_NAME.match(name)]
    except FileNotFoundError:
        names = []
    changed = False
    for name in reversed(names):
        file = IndexFile(paths.index / name, disk, slots, entries)
        try:
            if file.fault() is not None:
                continue
            if file.count > FIRST_ENTRY and file.end_offset < point:
                break
            left = 0 if file.begin_offset >= point else file.first_behind(point)
            if left <= FIRST_ENTRY:
                disk.unlink(file.path)
            else:
                _cut(file, left)
            changed = True
        finally:
            file.close()
    if changed:
        logger.info("index: cut at offset=%d", point)
        disk.sync_directory(paths.index)
    _cut_position(paths, disk, slots, entries, point)


def _cut(file: IndexFile, count: int) -> None:
    """Keep only entries below number `count`. The slots are durable before the header says so; after a crash before
    that, the cut is made again."""
    file.cut(count)
    for _ in file.rebuild_slots():
        pass
    for _ in file.write_slots():
        pass
    file.sync()
    file.write_header()
    file.sync()


def _cut_position(paths: StorePaths, disk: Disk, slots: int, entries: int, point: int) -> None:
    """Cut the saved position to what is left of the files. It never counts more as synced than before."""
    position_file = IndexPositionFile(paths, disk)
    saved = position_file.load()
    if saved is None or (saved.next <= point and all(end < point for _, _, end in saved.files)):
        return
    files = []
    for name, count, end_offset in saved.files:
        if end_offset >= point:
            if not disk.exists(paths.index / name):
                break
            file = IndexFile(paths.index / name, disk, slots, entries)
            count, end_offset = min(count, file.count), min(end_offset, file.end_offset)
            file.close()
        files.append((name, count, end_offset))
    position_file.save(IndexPosition(files, min(saved.next, point), saved.stopped))
