"""Writes and reads backups: a directory, or one tar file. The manifest comes last.

A backup is written under another name beside its own and renamed when all of it is on the disk: a file or directory
with a backup's name is whole.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from .. import file_sync
from ..errors import RocketBoxError
from ..own_files import DIRECTORY_MODE, FILE_MODE
from .manifest import NAME, Manifest, decode

CHUNK = 1 << 20
#: Most bytes that wait to be written: a sync of the broker must not wait for gigabytes of a backup first.
_SYNC_BYTES = 32 << 20


class BackupError(RocketBoxError):
    """A backup was not made, or not restored; the message says why."""


class Damaged(BackupError):
    """A backup is not what its manifest says."""


#: Called with the number of bytes in each step: counts, rests, and may raise to end the work.
Step = Callable[[int], None]


class Sink(Protocol):
    """Takes files until `finish` or `give_up`."""

    def add(self, name: str, source: BinaryIO, size: int, step: Step) -> str:
        """Store `size` bytes of `source`; return their SHA-256."""

    def finish(self, manifest: bytes) -> None: ...

    def give_up(self) -> None: ...


class _Hashed:
    """A file that is read: `size` bytes of it, which are hashed and counted."""

    def __init__(self, source: BinaryIO, size: int, step: Step) -> None:
        self._source = source
        self._left = size
        self._step = step
        self._digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._source.read(min(wanted, CHUNK)) if wanted else b""
        if wanted and not data:
            raise BackupError("A file became shorter while it was copied; try again.")
        self._left -= len(data)
        self._digest.update(data)
        if data:
            self._step(len(data))
        return data

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class _Synced:
    """A file that is written, and synced after every _SYNC_BYTES."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.fdopen(os.open(path, flags, FILE_MODE), "wb", buffering=0)
        self._unsynced = 0
        self._at = 0

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        self._unsynced += len(data)
        self._at += len(data)
        if self._unsynced >= _SYNC_BYTES:
            self._sync()
        return len(data)

    def tell(self) -> int:
        return self._at

    def _sync(self) -> None:
        fd = self._file.fileno()
        file_sync.sync_data(fd)
        file_sync.forget_cached(fd)  # it is not read soon, and the broker's files need the room
        self._unsynced = 0

    def close(self) -> None:
        try:
            self._sync()
        finally:
            self._file.close()


class DirectorySink:
    """Writes a backup as a directory of files."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._partial = _partial(target)
        self._partial.mkdir(DIRECTORY_MODE)

    def add(self, name: str, source: BinaryIO, size: int, step: Step) -> str:
        path = self._partial / name
        make_directories(self._partial, path.parent)
        hashed, out = _Hashed(source, size, step), _Synced(path)
        try:
            left = size
            while left:
                left -= out.write(hashed.read(CHUNK))
        finally:
            out.close()
        return hashed.sha256

    def finish(self, manifest: bytes) -> None:
        self.add(NAME, io.BytesIO(manifest), len(manifest), _nothing)
        for directory, _, _ in os.walk(self._partial):
            file_sync.sync_directory(Path(directory))
        os.rename(self._partial, self._target)
        file_sync.sync_directory(self._target.parent)

    def give_up(self) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)


class TarSink:
    """Writes a backup as one file, which `tar` reads, too."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._partial = _partial(target)
        self._out = _Synced(self._partial)
        out: Any = self._out  # it is written to only
        self._tar = tarfile.TarFile(mode="w", fileobj=out, format=tarfile.PAX_FORMAT, copybufsize=CHUNK)

    def add(self, name: str, source: BinaryIO, size: int, step: Step) -> str:
        info = tarfile.TarInfo(name)
        info.size, info.mode = size, FILE_MODE
        hashed = _Hashed(source, size, step)
        self._tar.addfile(info, hashed)
        return hashed.sha256

    def finish(self, manifest: bytes) -> None:
        self.add(NAME, io.BytesIO(manifest), len(manifest), _nothing)
        self._tar.close()
        self._out.close()
        os.rename(self._partial, self._target)
        file_sync.sync_directory(self._target.parent)

    def give_up(self) -> None:
        try:
            self._out.close()
        except OSError:
            pass
        self._partial.unlink(missing_ok=True)


def _nothing(_count: int) -> None:
    pass


def _partial(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.urandom(6).hex()}.partial")


def make_directories(root: Path, wanted: Path) -> None:
    """Make `wanted` and the missing directories above it, inside `root`; private from the beginning."""
    missing = []
    while wanted != root and not wanted.exists():
        missing.append(wanted)
        wanted = wanted.parent
    for one in reversed(missing):
        one.mkdir(DIRECTORY_MODE)


def remove_partials(directory: Path) -> None:
    """Remove what interrupted backups left in a directory."""
    for path in directory.glob(".*.partial"):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def sink_for(target: Path) -> Sink:
    """Return a tar file for a name that ends in .tar, else a directory. Raises BackupError."""
    if target.exists():
        raise BackupError(f"{target} exists already; a backup overwrites nothing.")
    if not target.parent.is_dir():
        raise BackupError(f"There is no directory {target.parent}.")
    try:
        return TarSink(target) if target.suffix == ".tar" else DirectorySink(target)
    except OSError as error:
        raise BackupError(f"{target} cannot be written: {error.strerror}.") from None


# --- reading

#: Errors of the library for bytes that are no tar file; numbers in a header may be of any size.
_NO_TAR = (tarfile.TarError, EOFError, ValueError, OverflowError)


class Source:
    """A backup that is read. Raises Damaged if it cannot be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tar: tarfile.TarFile | None = None
        self._members: dict[str, tarfile.TarInfo] = {}
        if path.is_dir():
            return
        try:
            self._tar = tarfile.open(path, "r:")  # noqa: SIM115
            for info in self._tar:
                if not info.isreg() or info.issparse() or info.name in self._members:
                    raise Damaged(f"{path} is damaged: {info.name[:200]!r} does not belong into it.")
                self._members[info.name] = info
        except FileNotFoundError:
            raise BackupError(f"There is no backup {path}.") from None
        except (OSError, *_NO_TAR) as error:
            raise Damaged(f"{path} is no whole backup: {error}.") from None

    def close(self) -> None:
        if self._tar is not None:
            self._tar.close()

    def manifest(self) -> Manifest:
        with self.open(NAME) as (source, size):
            if size > 64 << 20:
                raise Damaged(f"{self._path} is no backup: its manifest is too large.")
            data = source.read(size)
        try:
            return decode(data)
        except ValueError as error:
            raise Damaged(f"{self._path} is damaged: {error}.") from None

    def names(self) -> set[str]:
        """Return the names of all files but the manifest."""
        if self._tar is not None:
            return set(self._members) - {NAME}
        found = (path for path in self._path.rglob("*") if not path.is_dir() or path.is_symlink())
        return {path.relative_to(self._path).as_posix() for path in found} - {NAME}

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        """Open a file; yield (the file, its length)."""
        if self._tar is None:
            path = self._path / name
            try:
                # Opening a pipe must not wait for its writer.
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            except FileNotFoundError:
                raise Damaged(f"{self._path} is no whole backup: it has no {name}.") from None
            except OSError as error:
                raise Damaged(f"{path} cannot be read: {error.strerror}.") from None
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                os.close(fd)
                raise Damaged(f"{self._path} is damaged: {name[:200]!r} is no file.")
            with os.fdopen(fd, "rb") as source:
                yield source, status.st_size
            return
        info = self._members.get(name)
        if info is None:
            raise Damaged(f"{self._path} is no whole backup: it has no {name}.")
        found = self._tar.extractfile(info)
        assert found is not None
        try:
            with found:
                yield found, info.size  # type: ignore[misc]
        except _NO_TAR as error:
            raise Damaged(f"{self._path} is damaged: {name[:200]!r} cannot be read: {error}.") from None


def disk_error(error: OSError, path: Path) -> BackupError:
    """Return the disk's refusal as a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BackupError(f"The disk of {path.parent} is full; nothing was kept.")
    return BackupError(f"{error.filename or path} cannot be read or written: {error.strerror or error}.")
