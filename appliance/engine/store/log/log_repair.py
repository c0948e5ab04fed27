"""Recovery's changes to the log's files: make them durable, keep damaged bytes, and zero a torn tail.

No byte is lost: bytes are copied to `quarantine/`, synced and listed among the findings before a scan steps over them
or they are zeroed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ...disk import Disk
from ..paths import StorePaths
from ..store_files import StoreFiles
from .raw_log import WINDOW_BYTES, ZEROS_BYTES, RawLog

logger = logging.getLogger(__name__)


class LogRepair:
    """The reporter of scans that repair the log. Belongs to recovery, afterwards to flush-consumequeue."""

    def __init__(self, raw: RawLog, paths: StorePaths, disk: Disk, files: StoreFiles) -> None:
        self.raw = raw
        self._paths = paths
        self._disk = disk
        self._files = files

    def settle(self, start: int) -> None:
        """Make the log's files behind `start` durable, and have them read from the disk only.

        A process that died may have left bytes in the page cache that a failed sync never stored.
        """
        for segment in self.raw.files.segments:
            if segment.end > start:
                self._disk.fdatasync(segment.fd)
                self._disk.forget_cached(segment.fd)

    def damage(self, begin: int, end: int, reason: str) -> None:
        """Keep a copy of a range without a valid record before a scan steps over it."""
        self._quarantine(begin, end, "damage", reason)

    def cut(self, end: int) -> None:
        """Zero the bytes behind the log's end: stale records must never follow a later one."""
        disk = self._disk
        for segment in self.raw.files.segments:
            begin = max(end, segment.start)
            if begin >= segment.end:
                continue
            data_end = self.raw.data_end(segment, begin)
            if data_end == begin:
                continue
            self._quarantine(begin, data_end, "torn", "behind the last whole record")
            if begin == segment.start:
                disk.truncate(segment.fd, 0)
                disk.allocate(segment.fd, segment.end - segment.start)
            else:
                for offset in range(begin, data_end, ZEROS_BYTES):
                    zeros = bytes(min(ZEROS_BYTES, data_end - offset))
                    disk.write_all(segment.fd, zeros, offset - segment.start)
            disk.fdatasync(segment.fd)

    def _pieces(self, at: int, end: int) -> Iterator[bytes]:
        """Yield the log's bytes of a range, as far as they can be read."""
        while at < end and (data := self.raw.read(at, min(WINDOW_BYTES, end - at))):
            yield data
            at += len(data)

    def _quarantine(self, begin: int, end: int, kind: str, reason: str) -> None:
        """Copy bytes that are stepped over or cut to `quarantine/`, and report them as a finding."""
        disk, directory = self._disk, self._paths.quarantine
        disk.make_directory(directory)
        path = directory / f"commitlog-{begin:020d}-{end:020d}.{kind}"
        disk.write_new(path, self._pieces(begin, end))
        disk.sync_directory(directory)
        self._files.report(kind, self._paths.commit_log.name, reason, begin, end, str(path))
        level = logging.ERROR if kind == "damage" else logging.WARNING
        logger.log(level, "recovery: %s [%d, %d) kept as %s: %s", kind, begin, end, path.name, reason)
