"""The key that signs sessions and forms: made once, kept in the data directory, readable by its owner only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

FILE_NAME = "secret-key"


def secret_key(directory: Path) -> str:
    """The key of this data directory; a new one that is not kept when there is no such directory (tests, checks)."""
    path = directory / FILE_NAME
    try:
        return path.read_text(encoding="ascii").strip() or _made(path)
    except FileNotFoundError:
        return _made(path) if directory.is_dir() else secrets.token_urlsafe(50)


def _made(path: Path) -> str:
    key = secrets.token_urlsafe(50)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return key
