"""Restores a backup into an empty directory; each file is compared with the manifest while it is written."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from .. import file_sync
from ..own_files import DIRECTORY_MODE, FILE_MODE
from .archive import CHUNK, BackupError, Damaged, Source, disk_error, make_directories
from .manifest import Entry, Manifest

#: File beside the restored ones that names the backup they are from.
RECEIPT = "rocketbox/restored-from.json"
_SYNC_BYTES = 32 << 20

Step = Callable[[int, int], None]


def _nothing(_done: int, _total: int) -> None:
    pass


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a backup. Raises BackupError."""
    source = Source(path)
    try:
        return source.manifest()
    finally:
        source.close()


def check_backup(path: Path, step: Step = _nothing) -> Manifest:
    """Read all of a backup and compare it with its manifest. Raises Damaged."""
    return _through(path, lambda _entry: None, step)


def restore_backup(path: Path, into: Path, step: Step = _nothing) -> Manifest:
    """Restore a backup. Raises BackupError; `into` is as empty as before then.

    The files are written into a directory beside `into`, which is renamed when all of them are on the disk: a restore
    that was killed leaves nothing that a start would take for a data directory.
    """
    into = Path(os.path.abspath(into))
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise BackupError(f"{into} is not an empty directory; a restore overwrites nothing.")
    if not into.parent.is_dir():
        raise BackupError(f"There is no directory {into.parent}.")
    manifest = read_manifest(path)
    free = shutil.disk_usage(into.parent).free
    if manifest.total_bytes > free:
        raise BackupError(f"It needs {manifest.total_bytes} bytes, and the disk of {into} has {free} free.")
    partial = into.with_name(f".{into.name}.{os.urandom(6).hex()}.partial")
    try:
        partial.mkdir(DIRECTORY_MODE)
        found = _through(path, lambda entry: _Restored(partial, entry), step)
        receipt = partial / RECEIPT
        make_directories(partial, receipt.parent)
        file_sync.replace_file(receipt, _receipt(found))
        for directory, _, _ in os.walk(partial):
            file_sync.sync_directory(Path(directory))
        _take_place(partial, into)
    except OSError as error:
        raise disk_error(error, into) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return found


def _take_place(partial: Path, into: Path) -> None:
    try:
        os.rename(partial, into)  # over an empty directory, too
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM):
            raise
        # A mount point cannot be renamed over.
        raise BackupError(
            f"{into} cannot be replaced ({error.strerror}): is it a mount point? Restore into a directory below it."
        ) from None
    file_sync.sync_directory(into.parent)


def _receipt(manifest: Manifest) -> bytes:
    import msgspec

    text = {
        "made_at_ms": manifest.made_at_ms,
        "version": manifest.version,
        "end_offset": manifest.end_offset,
        "digest": manifest.digest,
    }
    return msgspec.json.encode(text)


class _Restored:
    """One restored file, while it is written."""

    def __init__(self, root: Path, entry: Entry) -> None:
        path = root / entry.name
        make_directories(root, path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        # Apache's files keep the umask's modes, as the store makes them.
        mode = FILE_MODE if entry.name.startswith("rocketbox/") else 0o644
        self._file = os.fdopen(os.open(path, flags, mode), "wb", buffering=0)
        self._entry = entry
        self._unsynced = 0

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        self._unsynced += len(data)
        if self._unsynced >= _SYNC_BYTES:
            file_sync.sync_data(self._file.fileno())
            self._unsynced = 0

    def close(self) -> None:
        with self._file:
            if self._entry.full_bytes > self._entry.bytes:
                os.ftruncate(self._file.fileno(), self._entry.full_bytes)
            file_sync.sync_file(self._file.fileno())


def _through(path: Path, take: Callable[[Entry], _Restored | None], step: Step) -> Manifest:
    """Read every file of a backup, compare it with the manifest, and write it into what `take` returns for it."""
    source = Source(path)
    try:
        manifest = source.manifest()
        wanted = {entry.name for entry in manifest.files}
        others = sorted(source.names() - wanted)
        if others:
            raise Damaged(f"{path} is damaged: {others[0][:200]!r} is not in its manifest.")
        done, total = 0, manifest.total_bytes
        for entry in manifest.files:
            with source.open(entry.name) as (found, size):
                if size != entry.bytes:
                    raise Damaged(f"{path} is damaged: {entry.name} has {size} bytes instead of {entry.bytes}.")
                done = _one(path, entry, found, take(entry), done, total, step)
        return manifest
    finally:
        source.close()


def _one(path: Path, entry: Entry, source: BinaryIO, out: _Restored | None, done: int, total: int, step: Step) -> int:
    digest = hashlib.sha256()
    try:
        left = entry.bytes
        while left:
            data = source.read(min(CHUNK, left))
            if not data:
                raise Damaged(f"{path} is damaged: {entry.name} ends early.")
            left -= len(data)
            done += len(data)
            digest.update(data)
            if out is not None:
                out.write(data)
            step(done, total)
    finally:
        if out is not None:
            out.close()
    if digest.hexdigest() != entry.sha256:
        raise Damaged(f"{path} is damaged: {entry.name} is not what its manifest says.")
    return done
