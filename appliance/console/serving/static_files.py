"""The files below `static/`. They are few and small, so each is read once and served from memory. Their addresses
change with their content."""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from pathlib import Path

from django.conf import settings
from django.urls import reverse

from ... import program_files
from ...engine.lazy_dataclass import dataclass

# Content types by suffix. Other files get the type that `mimetypes` guesses.
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    content_type: str
    mark: str


@cache
def names() -> dict[str, Path]:
    """Return the file of every name that is served. The list is made once, so an address never becomes a path."""
    root = Path(settings.STATIC_DIR)
    return {name: root / name for name in program_files.names_below(root)}


@cache
def read(name: str) -> StaticFile | None:
    """Return a file by its name below `static/`; None if there is none."""
    path = names().get(name)
    if path is None:
        return None
    content = program_files.content(path)
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return StaticFile(content, kind, hashlib.sha256(content).hexdigest()[:16])


def address(name: str) -> str:
    """Return the address of a file. Raises LookupError if there is none: pages must not link to missing files."""
    found = read(name)
    if found is None:
        raise LookupError(f"there is no static file {name!r}")
    return f"{reverse('static_file', args=[name])}?v={found.mark}"
