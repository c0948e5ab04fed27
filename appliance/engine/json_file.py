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
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from . import fastjson
from .disk import Disk
from .errors import CorruptFile, StartError

logger = logging.getLogger(__name__)


def save_json_atomically(path: Path, content: str | bytes | Iterable[bytes], disk: Disk | None = None) -> None:
    """Save `content` (text, bytes, or pieces of bytes) as the file at `path`; durable on return. disk: None for files
    that Apache's brokers may read, too.

    Raises OSError; the file and its `.bak` are both whole then, and the file may already be the new one. The caller
    ensures that one thread at a time saves a path.
    """
    disk = disk or Disk()
    if isinstance(content, str):
        content = content.encode()
    temporary = _beside(path, ".tmp")
    disk.write_new(temporary, (content,) if isinstance(content, bytes) else content)
    _keep_backup(path, disk)
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def _keep_backup(path: Path, disk: Disk) -> None:
    """Keep the present file as `.bak`, unless it is empty."""
    if not disk.read_if_any(path, 1):
        return
    second_name = _beside(path, ".bak.tmp")
    with suppress(FileNotFoundError):
        disk.unlink(second_name)
    try:
        disk.link(path, second_name)
    except OSError:
        # A file system without hard links: make a copy, synced before it takes the name.
        disk.write_new(second_name, (disk.read(path),))
    disk.rename(second_name, _beside(path, ".bak"))
    with suppress(FileNotFoundError):
        disk.unlink(second_name)  # still there when both were already names of one file


def load_json_with_backup(path: Path, disk: Disk | None = None, field: str = "") -> dict[str, Any] | None:
    """Return the document in the file, or in its `.bak`; None if both are missing or empty.

    Every such file holds an object: anything else, as `[]` or `null`, is damaged like half a document. field: the table
    that the document must have; one without it, as `{}`, is damaged too, because every version writes the table, also
    an empty one.
    The directory is synced, so that the returned version is durable: a process that died may have renamed the file
    without a sync.
    Raises CorruptFile if the file is damaged and there is no good copy, OSError if reading fails.
    """
    disk = disk or Disk()
    damage: ValueError | None = None
    try:
        raw = _read(path, disk)
        if raw is not None:
            found = _parsed(raw, field)
            disk.sync_directory(path.parent)
            return found
    except ValueError as error:
        damage = error
    backup = _beside(path, ".bak")
    document: dict[str, Any] | None = None
    try:
        raw = _read(backup, disk)
        if raw is not None:
            document = _parsed(raw, field)
    except ValueError as error:
        damage = damage or error
    if document is None and damage is not None:
        raise CorruptFile(f"{path} is damaged and there is no good copy of it: {damage}.")
    if document is not None:
        logger.warning("json file: read the backup instead path=%s reason=%s", backup, damage or "missing or empty")
        if damage is not None:
            disk.rename(path, _beside(path, ".damaged"))
        disk.sync_directory(path.parent)
    return document


def _parsed(raw: bytes, field: str) -> dict[str, Any]:
    document = fastjson.loads(raw)
    if not isinstance(document, dict):
        raise ValueError("it holds no object")
    if field and not isinstance(document.get(field), dict):
        raise ValueError(f"there is no {field}")
    return document


def load_at_start(path: Path, field: str, take: Callable[[dict[str, Any]], None], disk: Disk | None = None) -> None:
    """Pass the document of a file, with the table `field`, to `take`; do nothing if there is no file.

    take: raises ValueError or msgspec.ValidationError for invalid content. Raises StartError if the file cannot be read
    or is invalid.
    """
    try:
        document = load_json_with_backup(path, disk, field)
        if document is not None:
            take(document)
    except CorruptFile as error:
        raise StartError(str(error)) from None
    except (ValueError, msgspec.ValidationError) as error:
        raise StartError(f"{path} does not hold what it should: {error}.") from None
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}.") from None


def _read(path: Path, disk: Disk) -> bytes | None:
    raw = disk.read_if_any(path)
    return raw if raw and raw.strip() else None


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
