"""Keeps DATA/rocketbox/ private: it has password hashes, the key of sessions, bytes of messages.

Its directories are 0700 and its files 0600 from their first byte, whatever the umask: all calls of `os.open` and
`os.mkdir` pass these modes. Files of an older version are tightened at each start. DATA/store/ has Apache's format and
keeps its modes.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from .named_tuple import NamedTuple

logger = logging.getLogger(__name__)

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_OTHERS = 0o077
# Names in one warning; the rest are counted.
_NAMED = 5


class Loose(NamedTuple):
    """A path that other users may read, or whose mode must not be changed. why: the reason, half a sentence."""

    path: Path
    why: str


def make_directory(directory: Path) -> None:
    """Make DATA/rocketbox/ if it is missing. Directories above it get the umask's modes. Raises OSError."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(DIRECTORY_MODE, exist_ok=True)


def tighten_at_start(directory: Path) -> None:
    """Tighten files of an older version; log a warning for those that cannot be changed."""
    left = tighten(directory)
    if left:
        logger.warning("own files: others may read these, and they could not be changed: %s", text_of(left))


def tighten(directory: Path) -> list[Loose]:
    """Remove all rights of other users from the directory and everything in it. Return what could not be changed.

    Links are not followed, and files of another user are left alone.
    """
    left = []
    for path, parent, name, found in _entries(directory):
        why = _refusal(found)
        if why is None and found.st_mode & _OTHERS:
            why = _take_away(parent, name, found)
        if why is not None:
            left.append(Loose(path, why))
    return left


def loose(directory: Path, without: Path | None = None) -> list[Loose]:
    """Return the paths that `tighten` would change, or could not change. without: a directory whose contents are left
    out."""
    found = []
    for path, _, _, status in _entries(directory):
        if without in path.parents:
            continue
        why = _refusal(status)
        if why is None and status.st_mode & _OTHERS:
            why = f"mode {stat.S_IMODE(status.st_mode):04o}"
        if why is not None:
            found.append(Loose(path, why))
    return found


def text_of(found: list[Loose]) -> str:
    """Return the first few by name, and the number of others."""
    named = ", ".join(f"{one.path} ({one.why})" for one in found[:_NAMED])
    return f"{named} and {len(found) - _NAMED} more" if len(found) > _NAMED else named


def _entries(directory: Path) -> Iterator[tuple[Path, int | None, str, os.stat_result]]:
    """Yield (path, descriptor of its directory, its name there, its status) for the directory and all in it."""
    try:
        top = os.lstat(directory)
    except OSError:
        return
    yield directory, None, str(directory), top
    if not stat.S_ISDIR(top.st_mode):
        return
    for parent, directories, files, descriptor in os.fwalk(directory):  # follows no links
        for name in (*directories, *files):
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                continue  # removed meanwhile
            yield Path(parent, name), descriptor, name, status


def _refusal(found: os.stat_result) -> str | None:
    """Return why this must not be changed; None if it may be."""
    if stat.S_ISLNK(found.st_mode):
        return "a symbolic link"
    if found.st_uid != os.geteuid():
        return f"of user {found.st_uid}"
    if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
        return "neither a file nor a directory"
    return None


def _take_away(parent: int | None, name: str, seen: os.stat_result) -> str | None:
    """Change the mode of the file that was seen, but not of another one that has its name by now. Return the reason if
    that failed, else None."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        try:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != (seen.st_dev, seen.st_ino):
                return "replaced meanwhile"
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~_OTHERS)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.strerror or str(error)
    return None
