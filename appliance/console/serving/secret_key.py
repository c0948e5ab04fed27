"""The key that signs sessions and forms: made once, kept in the data directory, readable by its owner only."""

from __future__ import annotations

import secrets
from pathlib import Path

from ...engine import file_sync

FILE_NAME = "secret-key"


def secret_key(directory: Path) -> str:
    """Return the key of this data directory, made at the first call; if there is no such directory (tests, checks), a
    new one that is not kept."""
    path = directory / FILE_NAME
    try:
        return path.read_text(encoding="ascii").strip() or _made(path)
    except FileNotFoundError:
        return _made(path) if directory.is_dir() else secrets.token_urlsafe(50)


def _made(path: Path) -> str:
    key = secrets.token_urlsafe(50)
    file_sync.replace_file(path, f"{key}\n".encode())
    return key
