"""Files that are always whole: saved through a temporary file, with the previous version kept beside them as `.bak`.

    X.tmp   being written; never read
    X.bak   X before the last save
    X       the valid version

A save writes and syncs X.tmp, makes X.bak a second name of the old X, renames X.tmp to X and syncs the directory. So
neither a crash nor a full disk leaves X half written. Reading takes X; when that is missing, empty or damaged, X.bak. A
damaged X is first moved to X.damaged, so that no later save can make it the `.bak` in place of the good one.
Apache's brokers keep the same two names. Source of the rules: RocketMQ `ConfigManager`, `MixAll.string2File`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from . import fastjson, file_sync
from .errors import CorruptFile, StartError
from .own_files import FILE_MODE

logger = logging.getLogger(__name__)

_WRITE_BYTES = 256 * 1024


class FileCalls(Protocol):
    """The system calls of this module; tests pass ones that fail or record."""

    def read(self, path: Path) -> bytes: ...
    def size(self, path: Path) -> int: ...
    def open(self, path: Path) -> int: ...
    def write(self, fd: int, data: bytes | memoryview) -> int: ...
    def fsync(self, fd: int) -> None: ...
    def close(self, fd: int) -> None: ...
    def link(self, old: Path, new: Path) -> None: ...
    def rename(self, old: Path, new: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...


class OsFileCalls:
    """The operating system's calls. FileNotFoundError if there is no such file."""

    #: Mode of new files. Apache's brokers read them, and may run as another user.
    mode = 0o644

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def open(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, self.mode)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def link(self, old: Path, new: Path) -> None:
        os.link(old, new)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def sync_directory(self, path: Path) -> None:
        file_sync.sync_directory(path)


class OwnFileCalls(OsFileCalls):
    """The operating system's calls, for files that only RocketBox reads."""

    mode = FILE_MODE


OS_FILE_CALLS = OsFileCalls()
OWN_FILE_CALLS = OwnFileCalls()


def save_json_atomically(path: Path, content: str | bytes | Iterable[bytes], calls: FileCalls = OS_FILE_CALLS) -> None:
    """Save `content` (text, bytes, or pieces of bytes) as the file at `path`; durable on return.

    Raises OSError; the file and its `.bak` are both whole then, and the file may already be the new one. The caller
    ensures that one thread at a time saves a path.
    """
    if isinstance(content, str):
        content = content.encode()
    temporary = _beside(path, ".tmp")
    fd = calls.open(temporary)
    try:
        for piece in (content,) if isinstance(content, bytes) else content:
            _write_all(calls, fd, piece)
        calls.fsync(fd)
    finally:
        calls.close(fd)
    _keep_backup(path, calls)
    calls.rename(temporary, path)
    calls.sync_directory(path.parent)


def _write_all(calls: FileCalls, fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[calls.write(fd, view[:_WRITE_BYTES]) :]


def _keep_backup(path: Path, calls: FileCalls) -> None:
    """Keep the present file as `.bak`, unless it is empty."""
    try:
        if not calls.size(path):
            return
    except FileNotFoundError:
        return
    second_name = _beside(path, ".bak.tmp")
    try:
        calls.unlink(second_name)
    except FileNotFoundError:
        pass
    try:
        calls.link(path, second_name)
    except OSError:
        # A file system without hard links: make a copy, synced before it takes the name.
        fd = calls.open(second_name)
        try:
            _write_all(calls, fd, calls.read(path))
            calls.fsync(fd)
        finally:
            calls.close(fd)
    calls.rename(second_name, _beside(path, ".bak"))
    try:
        calls.unlink(second_name)  # still there when both were already names of one file
    except FileNotFoundError:
        pass


def load_json_with_backup(path: Path, calls: FileCalls = OS_FILE_CALLS, field: str = "") -> dict[str, Any] | None:
    """Return the document in the file, or in its `.bak`; None if both are missing or empty.

    Every such file holds an object: anything else, as `[]` or `null`, is damaged like half a document. field: the table
    that the document must have; one without it, as `{}`, is damaged too, because every version writes the table, also
    an empty one.
    The directory is synced, so that the returned version is durable: a process that died may have renamed the file
    without a sync.
    Raises CorruptFile if the file is damaged and there is no good copy, OSError if reading fails.
    """
    damage: ValueError | None = None
    try:
        raw = _read(path, calls)
        if raw is not None:
            found = _parsed(raw, field)
            calls.sync_directory(path.parent)
            return found
    except ValueError as error:
        damage = error
    backup = _beside(path, ".bak")
    document: dict[str, Any] | None = None
    try:
        raw = _read(backup, calls)
        if raw is not None:
            document = _parsed(raw, field)
    except ValueError as error:
        damage = damage or error
    if document is None and damage is not None:
        raise CorruptFile(f"{path} is damaged and there is no good copy of it: {damage}.")
    if document is not None:
        logger.warning("json file: read the backup instead path=%s reason=%s", backup, damage or "missing or empty")
        if damage is not None:
            calls.rename(path, _beside(path, ".damaged"))
        calls.sync_directory(path.parent)
    return document


def _parsed(raw: bytes, field: str) -> dict[str, Any]:
    document = fastjson.loads(raw)
    if not isinstance(document, dict):
        raise ValueError("it holds no object")
    if field and not isinstance(document.get(field), dict):
        raise ValueError(f"there is no {field}")
    return document


def load_at_start(
    path: Path, field: str, take: Callable[[dict[str, Any]], None], calls: FileCalls = OS_FILE_CALLS
) -> None:
    """Pass the document of a file, with the table `field`, to `take`; do nothing if there is no file.

    take: raises ValueError or msgspec.ValidationError for invalid content. Raises StartError if the file cannot be read
    or is invalid.
    """
    try:
        document = load_json_with_backup(path, calls, field)
        if document is not None:
            take(document)
    except CorruptFile as error:
        raise StartError(str(error)) from None
    except (ValueError, msgspec.ValidationError) as error:
        raise StartError(f"{path} does not hold what it should: {error}.") from None
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}.") from None


def _read(path: Path, calls: FileCalls) -> bytes | None:
    try:
        raw = calls.read(path)
    except FileNotFoundError:
        return None
    return raw if raw.strip() else None


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
