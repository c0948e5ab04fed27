"""Files that hold a secret: only the user that runs the broker may read them."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import StartError
from .regular_file import open_regular


def read_secret_file(option: str, path: Path, most: int) -> bytes:
    """Return the first `most` bytes of a file that an option names. Raises StartError if it is no regular file, or may
    be read by others."""
    try:
        with open_regular(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(most)
    except OSError as error:
        raise StartError(f"{option} {path} cannot be read: {error.strerror}.") from None
    if mode & 0o077:
        raise StartError(f"{option} {path} may be read by others: chmod 600 it.")
    return data
