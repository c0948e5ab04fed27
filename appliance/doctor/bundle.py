"""A support bundle: diagnostics for those who help from afar, without secrets, messages, and names of users.

A zip of a few texts. Its manifest says what each of them is, before anything is handed out.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from ..engine.hotpath import CHOICE
from .scrubbing import Scrubber

#: Of one text; a longer one keeps its end.
MOST_BYTES = 4 << 20
LEFT_OUT = (
    "message bodies, keys and properties",
    "passwords and their hashes, API tokens, sessions, second factors",
    "the keys of sessions and of the audit log",
    "the audit log, users and their names",
    "addresses and secrets of alert channels",
    "user names and passwords in URLs, and what follows a ? in them",
)


@dataclass(frozen=True, slots=True)
class Part:
    """One text. what: what it is, for people."""

    name: str
    what: str
    data: bytes

    @property
    def bytes(self) -> int:
        return len(self.data)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


class Bundle:
    """Collects parts; each goes through the scrubber."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self.parts: list[Part] = []

    def add_json(self, name: str, what: str, value: Any) -> None:
        clean = self._scrubber.value(json.loads(json.dumps(value, default=str)))
        self._add(name, what, json.dumps(clean, indent=1, sort_keys=True))

    def add_text(self, name: str, what: str, text: str) -> None:
        self._add(name, what, self._scrubber.long_text(text))

    def _add(self, name: str, what: str, text: str) -> None:
        data = text.encode("utf-8", "replace")
        self.parts.append(Part(name, what, data[-MOST_BYTES:]))

    def manifest(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "files": [
                {"name": one.name, "what": one.what, "bytes": one.bytes, "sha256": one.sha256} for one in self.parts
            ],
            "left_out": list(LEFT_OUT),
        }

    def zipped(self) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("manifest.json", json.dumps(self.manifest(), indent=1))
            for one in self.parts:
                archive.writestr(one.name, one.data)
        return out.getvalue()


def about(environ: Mapping[str, str]) -> dict[str, Any]:
    """The program and the machine. Of the environment the names of our variables only."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "hot_path": CHOICE.name,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "memory": _lines(Path("/proc/meminfo"), 5),
        "load": os.getloadavg(),
        "variables": sorted(name for name in environ if name.startswith("ROCKETBOX_")),
    }


def _lines(path: Path, count: int) -> list[str]:
    try:
        return path.read_text().splitlines()[:count]
    except OSError:
        return []


def files_of(directories: Mapping[str, Path], most: int = 5000) -> list[dict[str, Any]]:
    """Names, lengths and times of files; of the log and the queues as of all others. No contents."""
    found: list[dict[str, Any]] = []
    for prefix, root in directories.items():
        for directory, names, files in os.walk(root):
            names.sort()
            for name in sorted(files):
                if len(found) >= most:
                    return found
                path = Path(directory) / name
                try:
                    status = path.lstat()
                except OSError:
                    continue
                relative = path.relative_to(root).as_posix()
                found.append(
                    {"name": f"{prefix}/{relative}", "bytes": status.st_size, "on_disk": status.st_blocks * 512,
                     "changed_s": int(status.st_mtime), "mode": f"{status.st_mode & 0o7777:04o}"}
                )  # fmt: skip
    return found
