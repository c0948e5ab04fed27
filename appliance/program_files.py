"""The program's files that are no modules: in directories, or inside the one-file build.

There the loader of its modules has them (binary/rocketbox_start.py), under paths that begin with the executable's.
"""

from __future__ import annotations

from pathlib import Path

_LOADER = __spec__.loader


def names_below(directory: Path) -> list[str]:
    """Return the files below a directory of the program, relative to it, with `/`."""
    named = getattr(_LOADER, "names_below", None)
    if named is not None:
        return list(named(directory))
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def content(path: Path) -> bytes:
    """Return the content of a file of the program. Raises OSError."""
    return bytes(_LOADER.get_data(str(path)))  # type: ignore[union-attr]
