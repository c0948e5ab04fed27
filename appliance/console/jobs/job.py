"""One job: its state, and the directory it lives in."""

from __future__ import annotations

import contextlib
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
from ...engine.translatable import english

#: In the order of a job's life. interrupted: RocketBox ended while the job ran.
STATES = ("waiting", "running", "done", "failed", "cancelled", "interrupted")
ENDED = ("done", "failed", "cancelled", "interrupted")
#: Most bytes of a result as JSON: it is a summary; rows belong in a file.
RESULT_BYTES = 64 << 10

#: state -> result of the entry in the audit log that says how a job ended.
AUDIT_RESULTS = {"done": "done", "cancelled": "done", "failed": "failed", "interrupted": "failed"}

ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}\Z", re.ASCII)
_FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._%+@-]{0,120}\Z", re.ASCII)
_FILE = "job.json"
_FILES = "files"


class Told(msgspec.Struct, frozen=True):
    """A sentence: an English template from RocketBox's catalogue, a text or a `Plural`, and its values. Pages show it
    translated."""

    template: str | tuple[str, str, str]
    args: dict[str, Any] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        text = english(self.template, self.args)
        return text % self.args if self.args else text


class JobFile(msgspec.Struct, frozen=True):
    """A file with results, which can be downloaded."""

    name: str
    bytes: int


class Job(msgspec.Struct):
    """kind: the name of its kind. who: the actor who started it, as in the audit log; who_kind: "user", "token", ...
    token: the token's number, 0 for none.
    names: the topics and groups it is about; empty for the whole broker. done, total: its progress in `unit`; total is
    None if not known. counts: parts of `done`. why: the reason why it failed or was interrupted. kept: the data with
    which it goes on after a restart. changes: goes up with each change that pages should show.
    """

    id: str
    kind: str
    who: str
    who_kind: str
    created_at_ms: int
    parameters: dict[str, Any]
    address: str = ""
    token: int = 0
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
        """Part of `done` that is in none of the counts, so that the parts add up; 0 without counts."""
        return max(0, self.done - sum(self.counts.values())) if self.counts else 0

    @property
    def left(self) -> int | None:
        return None if self.total is None else max(0, self.total - self.done)

    @property
    def file_bytes(self) -> int:
        return sum(one.bytes for one in self.files)


def new_id() -> str:
    """Return an id for a new job. Ids sort by time and cannot be guessed."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def ids_in(directory: Path) -> list[str]:
    """Return the names in `directory` that have the form of a job's id, oldest first."""
    try:
        return sorted(name for name in os.listdir(directory) if ID.match(name))
    except FileNotFoundError:
        return []


class JobFolder:
    """`jobs/ID/`. Every method may raise OSError."""

    def __init__(self, directory: Path, job_id: str) -> None:
        assert ID.match(job_id), "ids come from `new_id`, or from names that were checked"
        self.path = directory / job_id

    def read(self) -> Job | None:
        """Return the job; None if the directory has no job that can be read."""
        try:
            return msgspec.json.decode((self.path / _FILE).read_bytes(), type=Job)
        except (OSError, msgspec.DecodeError, RecursionError):
            return None

    def write(self, job: Job, durable: bool) -> None:
        self.path.parent.mkdir(DIRECTORY_MODE, exist_ok=True)
        self.path.mkdir(DIRECTORY_MODE, exist_ok=True)
        file_sync.replace_file(self.path / _FILE, msgspec.json.encode(job), durable)

    def new_file(self, name: str) -> Path:
        """Return the path of a private file to write into. It is made empty, unless a job that goes on left one."""
        if not _FILE_NAME.match(name):
            raise ValueError(f"no name for a file of a job: {name!r}")
        directory = self.path / _FILES
        directory.mkdir(DIRECTORY_MODE, exist_ok=True)
        path = directory / name
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        return path

    def file(self, name: str) -> Path:
        """Return the path of a file that the job lists."""
        return self.path / _FILES / name

    @property
    def input(self) -> Path:
        """Path of the data that the job was given to work on; never offered for download."""
        return self.path / "input"

    def take_input(self, data: bytes) -> None:
        """Write the input, durably. Called before the job itself is written, so that no job is found without it."""
        self.path.parent.mkdir(DIRECTORY_MODE, exist_ok=True)
        self.path.mkdir(DIRECTORY_MODE, exist_ok=True)
        file_sync.replace_file(self.input, data)

    def files(self) -> list[JobFile]:
        try:
            with os.scandir(self.path / _FILES) as found:
                return sorted((JobFile(one.name, one.stat().st_size) for one in found), key=lambda one: one.name)
        except FileNotFoundError:
            return []

    def remove_files(self) -> None:
        shutil.rmtree(self.path / _FILES, ignore_errors=True)

    def remove_data(self) -> None:
        """Remove the input, which may be messages, and the files."""
        self.remove_files()
        with contextlib.suppress(OSError):
            self.input.unlink()

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
