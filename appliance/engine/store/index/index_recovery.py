"""Decides which index files to trust at a start, and from which offset on to index the log again.

Index files are derived. One that does not fit is deleted with those behind it, and the log is indexed again from there,
in the background. `index-position`, in RocketBox's own directory, says how much of the files was on disk:

    {"files": [[name, entries' end number, offset of the last entry's record], ...], "next": 12345, "stopped": true,
     "crc32": of the object's text without it}

`next`: the log is indexed below it. `stopped`: the index was closed in this state; if Apache opened it since, the
headers differ. If this file is missing or no longer true, the headers count, as for Apache.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from ... import fastjson
from ...disk import Disk
from ...named_tuple import NamedTuple
from ..log.raw_log import RawLog
from ..paths import StorePaths
from .index_file import ENTRY, FIRST_ENTRY, IndexFile
from .index_keys import IndexKey, KeyScanner

logger = logging.getLogger(__name__)

NAME = "index-position"
#: Time yyyyMMddHHmmssSSS of the broker's clock when the file was made.
FILE_NAME = re.compile(r"[0-9]{17}\Z", re.ASCII)
#: Between two Apache files lie only records without keys; up to this many bytes are checked for that.
_GAP_BYTES = 8 * 1024 * 1024


class IndexPosition(NamedTuple):
    """Content of `index-position`. files: (name, count, end_offset), oldest first."""

    files: list[tuple[str, int, int]]
    next: int
    stopped: bool


class OpenedIndex(NamedTuple):
    """files: oldest first. position: offset to continue indexing at; `skip` keys of the record there are already in the
    last file. stale_slots: the last file's slots have to be rebuilt before any key is put."""

    files: list[IndexFile]
    position: int
    skip: int
    stale_slots: bool

    def summaries(self) -> list[tuple[str, int, int]]:
        """Return the files in the form of `index-position`, without the record that is read again."""
        summaries = [summary_of(file) for file in self.files]
        if self.skip:
            last = self.files[-1]
            count = last.count - self.skip
            summaries[-1:] = [(last.name, count, _offset_of(last, count - 1))] if count > FIRST_ENTRY else []
        return summaries


class IndexPositionFile:
    """Loads and saves it. Used by recovery first, then by the holder of the index service's lock."""

    def __init__(self, paths: StorePaths, disk: Disk) -> None:
        self._path = paths.own / NAME
        self._disk = disk

    def load(self) -> IndexPosition | None:
        """Return the position that was saved last; None if there is none, or it cannot be trusted."""
        data = self._disk.read_if_any(self._path)
        if data is None:
            return None
        try:
            found = fastjson.loads_plain(data)
            if found.pop("crc32") != crc32(json.dumps(found).encode()):
                raise ValueError("the checksum does not match")
            files = [(str(name), int(count), int(end)) for name, count, end in found["files"]]
            return IndexPosition(files, int(found["next"]), bool(found["stopped"]))
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            logger.warning("index: %s cannot be read: %s", NAME, error)
            return None

    def save(self, position: IndexPosition) -> None:
        """Replace the file, durably. Raises OSError."""
        found: dict[str, object] = {"files": position.files, "next": position.next, "stopped": position.stopped}
        found["crc32"] = crc32(json.dumps(found).encode())
        self._disk.replace(self._path, json.dumps(found).encode())


class IndexSettings(NamedTuple):
    """enabled: index new records. slots, entries: hash slots of a file, and its entries plus one."""

    enabled: bool
    slots: int
    entries: int


class FoundLog(NamedTuple):
    """The log as recovery left it: its first offset and its end, `left_clean` after a clean stop, and the time up to
    which index files were synced according to Apache's checkpoint."""

    raw: RawLog
    begin: int
    end: int
    left_clean: bool
    synced_ms: int


def open_index(
    directory: Path, disk: Disk, settings: IndexSettings, saved: IndexPosition | None, log: FoundLog
) -> OpenedIndex:
    """Open the index files and delete those that do not fit.

    A file that cannot be opened is deleted, too, if possible. Raises OSError when a later read fails.
    """
    files = _load(directory, disk, settings)
    try:
        return _Opening(disk, saved, files, log).run()
    except BaseException:
        for file in files:
            file.close()
        raise


def _load(directory: Path, disk: Disk, settings: IndexSettings) -> list[IndexFile]:
    """Open all files up to the first that is no index file; delete that one and those behind it."""
    try:
        names = disk.names(directory)
    except FileNotFoundError:
        return []
    files: list[IndexFile] = []
    fault: str | None = None
    for name in names:
        path = directory / name
        if not FILE_NAME.match(name) or disk.is_directory(path):
            logger.warning("index: foreign file left alone path=%s", path)
            continue
        if fault is not None:
            _delete(disk, path, f"behind one that was deleted: {fault}")
            continue
        try:
            file = IndexFile(path, disk, settings.slots, settings.entries)
            fault = file.fault()
        except OSError as error:
            fault = f"cannot be read: {error.strerror}"
            _delete(disk, path, fault)
            continue
        if fault is not None:
            file.close()
            _delete(disk, path, fault)
        else:
            files.append(file)
    return files


def _delete(disk: Disk, path: Path, reason: str) -> None:
    logger.warning("index: file deleted, what it held is indexed again file=%s: %s", path.name, reason)
    try:
        disk.unlink(path)
    except OSError as error:
        logger.error("index: %s stays: %s", path, error)


class _Opening:
    """One opening; `files` shrinks to the files that are kept."""

    def __init__(self, disk: Disk, saved: IndexPosition | None, files: list[IndexFile], log: FoundLog) -> None:
        self._disk = disk
        self._saved = saved
        self._files = files
        self._log = log
        self._begin, self._end = log.begin, log.end
        #: True if the last file's slots do not match its entries.
        self._stale = False
        #: Offset to continue indexing at, if the saved position is valid.
        self._next: int | None = None

    def run(self) -> OpenedIndex:
        clean, saved = self._log.left_clean, self._saved
        if saved is not None and not (clean and saved.stopped):
            self._as_saved(saved)
        elif not clean:
            self._as_apache_after_a_crash()
        elif saved is not None and saved.files == [summary_of(file) for file in self._files]:
            self._next = saved.next
        self._drop_expired()
        self._drop_unconnected()
        self._drop_empty()
        self._cut_to_log()
        return self._result()

    def _drop_from(self, index: int, reason: str) -> None:
        for file in self._files[index:]:
            file.close()
            _delete(self._disk, file.path, reason)
        if index < len(self._files):
            del self._files[index:]
            self._next, self._stale = None, False

    def _as_saved(self, saved: IndexPosition) -> None:
        """After a crash or an early stop, keep the files up to the saved state; the last one's slots become stale."""
        self._next = saved.next
        known = {name: (count, end) for name, count, end in saved.files}
        for index, file in enumerate(self._files):
            last = bool(saved.files) and file.name == saved.files[-1][0]
            count, end = known.get(file.name, (-1, -1))
            if not last:
                if (file.count, file.end_offset) != (count, end):
                    self._drop_from(index, "not as it was saved before a crash")
                    return
                continue
            if file.count < count or (count > FIRST_ENTRY and _offset_of(file, count - 1) != end):
                self._drop_from(index, "not as it was saved before a crash")
                return
            file.cut(count)
            self._stale = True
            self._drop_behind(index, saved.next)
            return
        if saved.files:
            self._drop_from(len(self._files), "")
            self._next = None  # the last one is missing

    def _drop_behind(self, index: int, position: int) -> None:
        """Delete the files behind one, but keep the state of that one."""
        stale = self._stale
        self._drop_from(index + 1, "made after the index was last saved before a crash")
        self._next, self._stale = position, stale

    def _as_apache_after_a_crash(self) -> None:
        """Apply Apache's own rule: delete files that were not yet synced according to its checkpoint."""
        synced_ms = self._log.synced_ms
        for index, file in enumerate(self._files):
            if file.end_ms > synced_ms:
                self._drop_from(index, "not synced before a crash")
                return

    def _drop_expired(self) -> None:
        """Delete files, except the last, whose records have left the log."""
        while len(self._files) > 1 and self._files[0].end_offset < self._begin:
            file = self._files.pop(0)
            file.close()
            _delete(self._disk, file.path, "its records have expired")

    def _drop_unconnected(self) -> None:
        """Delete files that follow a missing one, if the records between have keys."""
        if self._next is not None and self._saved is not None:
            # Names and numbers are as saved; only files at the front may be gone, with the log's.
            names = [name for name, _, end in self._saved.files if end >= self._begin]
            kept = [file.name for file in self._files]
            if kept[-len(names) :] == names if names else True:
                return
            self._next = None
        before = self._begin
        for index, file in enumerate(self._files):
            if file.count > FIRST_ENTRY:
                if file.begin_offset >= self._begin and self._has_keys(before, file.begin_offset, index > 0):
                    self._drop_from(index, "the one before it is missing")
                    return
                before = max(before, file.end_offset)

    def _has_keys(self, begin: int, end: int, behind: bool) -> bool:
        """True if records in [begin, end) have keys. behind: ignore the record at `begin`."""
        if end - begin > _GAP_BYTES:
            return True
        scanner = KeyScanner()
        while begin < end:
            segment = self._log.raw.files.segment_at(begin)
            if segment is None:
                return False
            size = min(segment.end, end) - begin
            data = self._log.raw.read(begin, size)
            found: list[IndexKey] = []
            scanner.scan(data, 0, begin, found, 1 << 30)
            if any(physical != begin or not behind for _, physical, _ in found):
                return True
            begin, behind = begin + size, False
        return False

    def _drop_empty(self) -> None:
        """Delete files without entries: Apache leaves a new one empty, RocketBox makes one with its first key."""
        while self._files and self._files[-1].count <= FIRST_ENTRY:
            file = self._files.pop()
            file.close()
            _delete(self._disk, file.path, "it is empty")

    def _cut_to_log(self) -> None:
        """Remove entries of records behind the log's end."""
        files = self._files
        while files and files[-1].begin_offset >= self._end:
            file = files.pop()
            file.close()
            _delete(self._disk, file.path, "its records lie behind the log's end")
            self._next, self._stale = None, False
        if files and files[-1].end_offset >= self._end:
            logger.warning("index: cut to the log's end file=%s end=%d", files[-1].name, self._end)
            files[-1].cut(files[-1].first_behind(self._end))
            self._stale = True
            self._next = None
        if self._next is not None:
            self._next = min(self._next, self._end)
        self._drop_empty()

    def _result(self) -> OpenedIndex:
        files = self._files
        position, skip = self._next, 0
        if position is None:
            position = self._begin
            if files:
                position = files[-1].end_offset
                skip = files[-1].entries_of_last()
        if position < self._begin:
            position, skip = self._begin, 0
        return OpenedIndex(files, position, skip, self._stale)


def summary_of(file: IndexFile) -> tuple[str, int, int]:
    """Return a file's row in `index-position`: its name, the number behind its last entry, that entry's offset."""
    return file.name, file.count, file.end_offset


def _offset_of(file: IndexFile, number: int) -> int:
    raw = file.entries(number, 1)
    return int(ENTRY.unpack(raw)[1]) if len(raw) == ENTRY.size else -1
