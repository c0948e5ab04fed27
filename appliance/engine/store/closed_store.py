"""A store that no broker runs, opened to be changed: locked, its log's files and small files open. No thread runs."""

from __future__ import annotations

from collections.abc import Callable

from ..disk import Disk
from .checkpoint import RecoveryPosition
from .log.commit_log import CommitLog
from .log.log_scan import LogScan
from .log.raw_log import RawLog
from .paths import StorePaths
from .settings import StoreSettings
from .store_files import StoreFiles


class ClosedStore:
    """A context manager; entering it raises StartError when the store is in use or its files form no log."""

    def __init__(self, paths: StorePaths, disk: Disk, settings: StoreSettings, now_ms: Callable[[], int]) -> None:
        self.paths = paths
        self.disk = disk
        self.settings = settings
        self.files = StoreFiles(paths, disk, now_ms)
        self.log = CommitLog(paths.commit_log, disk, settings.segment_bytes)
        self.raw = RawLog(self.log, disk)

    def __enter__(self) -> ClosedStore:
        self.files.lock_and_check()
        try:
            self.log.load()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()
        self.files.close(clean=False)

    def data_end(self, offset: int) -> int:
        """Return the offset behind the log's last byte that is not zero, from `offset` on; `offset` if all are."""
        for segment in reversed(self.log.segments):
            begin = max(offset, segment.start)
            if begin < segment.end and (end := self.raw.data_end(segment, begin)) > begin:
                return end
        return offset

    def trusted_position(self) -> RecoveryPosition | None:
        """Return the recovery position if the record it names is unchanged, else None."""
        position = self.files.recovery_position.position
        if position is None:
            return None
        return position if position.is_true(self.raw.record_at(position.record_offset, position.record_size)) else None

    def record_boundary(self, offset: int) -> int:
        """Return the offset of the record that `offset` lies in. Return `offset` itself if a record begins there, or
        the log cannot be read up to it."""
        segment = self.log.segment_at(offset)
        if segment is None or offset == segment.start or LogScan(self.raw, _NoDamage(), None).is_record(offset):
            return offset
        at = segment.start
        for end, _ in LogScan(self.raw, _NoDamage(), None, next_durable=lambda _: None).records(segment.start):
            if end > offset:
                return at
            at = end
            if at == offset:
                break
        return offset


class _NoDamage:
    """A reporter for scans that step over nothing."""

    def damage(self, begin: int, end: int, reason: str) -> None:
        raise AssertionError(reason)
