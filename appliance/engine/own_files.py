"""DATA/rocketbox/ is private: it holds password hashes, the key of sessions, bytes of messages.

Its directories are 0700 and its files 0600 from their first byte, whatever the umask: `os.open` and `os.mkdir` get
these modes everywhere. Files of an older version are tightened at each start. DATA/store/ is Apache's and keeps its
modes.
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
    """A path that others may read, or that we may not change. why: half a sentence."""

    path: Path
    why: str


def make_directory(directory: Path) -> None:
    """Make DATA/rocketbox/ if it is missing. Directories above it get the umask's modes. Raises OSError."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(DIRECTORY_MODE, exist_ok=True)


def tighten_at_start(directory: Path) -> None:
    """Tighten files of an older version; what cannot be changed is logged as a warning."""
    left = tighten(directory)
    if left:
        logger.warning("own files: others may read these, and they could not be changed: %s", text_of(left))


def tighten(directory: Path) -> list[Loose]:
    """Take all rights of others away from the directory and everything in it; returns what could not be changed.

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


def loose(directory: Path) -> list[Loose]:
    """What `tighten` would change, or could not."""
    found = []
    for path, _, _, status in _entries(directory):
        why = _refusal(status)
        if why is None and status.st_mode & _OTHERS:
            why = f"mode {stat.S_IMODE(status.st_mode):04o}"
        if why is not None:
            found.append(Loose(path, why))
    return found


def text_of(found: list[Loose]) -> str:
    """The first few by name, and how many more there are."""
    named = ", ".join(f"{one.path} ({one.why})" for one in found[:_NAMED])
    return f"{named} and {len(found) - _NAMED} more" if len(found) > _NAMED else named


def _entries(directory: Path) -> Iterator[tuple[Path, int | None, str, os.stat_result]]:
    """(path, descriptor of its directory, its name there, its status) of the directory and everything in it."""
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
                continue  # somebody removed it meanwhile
            yield Path(parent, name), descriptor, name, status


def _refusal(found: os.stat_result) -> str | None:
    """Why this must not be changed; None when it may be."""
    if stat.S_ISLNK(found.st_mode):
        return "a symbolic link"
    if found.st_uid != os.geteuid():
        return f"of user {found.st_uid}"
    if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
        return "neither a file nor a directory"
    return None


def _take_away(parent: int | None, name: str, seen: os.stat_result) -> str | None:
    """Change the mode of the file that was seen, and of no other that has its name by now; returns why not, or None."""
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
