"""One job: what is known of it, and the directory it lives in."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ...engine import file_sync
from ...engine.own_files import DIRECTORY_MODE

#: In the order of a life. interrupted: RocketBox ended while it ran.
STATES = ("waiting", "running", "done", "failed", "cancelled", "interrupted")
ENDED = ("done", "failed", "cancelled", "interrupted")
#: A job's result is a summary; rows belong into a file.
RESULT_BYTES = 64 << 10

_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}\Z", re.ASCII)
_FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._%+@-]{0,120}\Z", re.ASCII)
_FILE = "job.json"
_FILES = "files"


class Told(msgspec.Struct, frozen=True):
    """A sentence of ours: an English template from the catalogue and its values. Pages show it translated."""

    template: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        return self.template % self.args if self.args else self.template


class JobFile(msgspec.Struct, frozen=True):
    """A result that can be downloaded."""

    name: str
    bytes: int


class Job(msgspec.Struct):
    """kind: the name of its kind. who: who started it, as in the audit log; who_kind: "user", "token", ... names: the
    topics and groups it is about, none for the whole broker. done, total: how far it is, in `unit`; total None: not
    known. counts: parts of `done`. why: why it failed or was interrupted. kept: what it goes on from after a restart.
    changes: counts what pages would show anew.
    """

    id: str
    kind: str
    who: str
    who_kind: str
    created_at_ms: int
    parameters: dict[str, Any]
    address: str = ""
    target: str = ""
    names: list[str] = msgspec.field(default_factory=list)
    state: str = "waiting"
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    done: int = 0
    total: int | None = None
    unit: str = ""
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    result: dict[str, Any] = msgspec.field(default_factory=dict)
    files: list[JobFile] = msgspec.field(default_factory=list)
    files_removed: bool = False
    why: Told | None = None
    kept: dict[str, Any] = msgspec.field(default_factory=dict)
    cancel_asked_by: str = ""
    changes: int = 0

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def other(self) -> int:
        """What was done and is in none of the counts: so the parts add up."""
        return max(0, self.done - sum(self.counts.values())) if self.counts else 0

    @property
    def left(self) -> int | None:
        return None if self.total is None else max(0, self.total - self.done)

    @property
    def file_bytes(self) -> int:
        return sum(one.bytes for one in self.files)


def new_id() -> str:
    """Sorts by time, and cannot be guessed."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


class JobFolder:
    """`jobs/ID/`. Every method may raise OSError."""

    def __init__(self, directory: Path, job_id: str) -> None:
        assert _ID.match(job_id), "ids come from `new_id`, or from names that were checked"
        self.path = directory / job_id

    @staticmethod
    def ids(directory: Path) -> list[str]:
        """What looks like a job; oldest first."""
        try:
            return sorted(name for name in os.listdir(directory) if _ID.match(name))
        except FileNotFoundError:
            return []

    def read(self) -> Job | None:
        """None for a directory without a job that can be read."""
        try:
            return msgspec.json.decode((self.path / _FILE).read_bytes(), type=Job)
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, job: Job, durable: bool) -> None:
        self.path.parent.mkdir(DIRECTORY_MODE, exist_ok=True)
        self.path.mkdir(DIRECTORY_MODE, exist_ok=True)
        file_sync.replace_file(self.path / _FILE, msgspec.json.encode(job), durable)

    def new_file(self, name: str) -> Path:
        """An empty private file to write into; one of that name that is there is kept, for a job that goes on."""
        if not _FILE_NAME.match(name):
            raise ValueError(f"no name for a file of a job: {name!r}")
        directory = self.path / _FILES
        directory.mkdir(DIRECTORY_MODE, exist_ok=True)
        path = directory / name
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        return path

    def file(self, name: str) -> Path:
        """The path of a file that the job listed."""
        return self.path / _FILES / name

    @property
    def input(self) -> Path:
        """What somebody gave the job to work on; never offered for download."""
        return self.path / "input"

    def take_input(self, data: bytes) -> None:
        """Before the job is written, so that no job is found without it."""
        self.path.parent.mkdir(DIRECTORY_MODE, exist_ok=True)
        self.path.mkdir(DIRECTORY_MODE, exist_ok=True)
        handle = os.open(self.input, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def files(self) -> list[JobFile]:
        try:
            with os.scandir(self.path / _FILES) as found:
                return sorted((JobFile(one.name, one.stat().st_size) for one in found), key=lambda one: one.name)
        except FileNotFoundError:
            return []

    def remove_files(self) -> None:
        shutil.rmtree(self.path / _FILES, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
