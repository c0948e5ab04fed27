"""The object that a running job works with: its parameters, the window, and methods to report progress and results."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError
from django.utils.translation import gettext_noop

from ... import runtime
from .job import RESULT_BYTES, Job, JobFolder, Told

if TYPE_CHECKING:
    from ...engine.window.window import Window

logger = logging.getLogger(__name__)

FILE_BYTES = 1 << 30
#: Least seconds between two changes that pages see, and between two writes of the job's file.
TELL_S, SAVE_S = 0.2, 2.0
#: A job that has used the processor for BURST_S seconds sleeps twice as long: the engine's threads come first. Each of
#: their system calls waits for the interpreter while a job has it, so a burst is shorter than a send may take.
BURST_S, REST_FACTOR = 0.0005, 2.0
_LONGEST_REST_S = 0.5


class Cancelled(Exception):
    """A user cancelled the job. A kind must not catch this; the files it wrote are removed."""


class Stopping(Exception):
    """RocketBox is being stopped. A kind must not catch this."""


class JobFailed(Exception):
    """The job cannot go on. template: an English sentence from the catalogue; args: its values."""

    def __init__(self, template: str | tuple[str, str, str], **args: Any) -> None:
        self.told = Told(template, args)
        super().__init__(str(self.told))


class Work:
    """Owned by the thread that runs the job. Other threads read `job`."""

    def __init__(
        self,
        job: Job,
        folder: JobFolder,
        stopping: Callable[[], bool],
        file_bytes: int = FILE_BYTES,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        """may_go_on: returns True if the user who started the job may still do so; it reads the settings database."""
        self.job = job
        self._may_go_on = may_go_on
        self._folder = folder
        self._stopping = stopping
        self._told_at = 0.0
        self._saved_at = time.monotonic()
        self._used_s = time.thread_time()
        try:
            self._file_bytes = min(file_bytes, shutil.disk_usage(folder.path).free // 4)
        except OSError:
            self._file_bytes = file_bytes

    @property
    def parameters(self) -> dict[str, Any]:
        return self.job.parameters

    @property
    def window(self) -> Window:
        """The engine's window, as pages use it."""
        return runtime.window()

    @property
    def kept(self) -> dict[str, Any]:
        """The values last given to `keep` before the restart; {} when the job runs for the first time."""
        return self.job.kept

    @property
    def file_bytes_left(self) -> int:
        """Bytes by which the job's files may still grow."""
        return self._file_bytes - sum(one.bytes for one in self._folder.files())

    def progress(self, done: int, total: int | None = None, unit: str = "", **counts: int) -> None:
        """Report progress. Call it often: it costs little, sleeps when the job has worked for a while, and raises
        what `check` and, now and then, `require_right` raise; JobFailed too if the job's files are too large. counts:
        parts of `done`, by name; together they are at most `done`.
        """
        assert sum(counts.values()) <= done, f"{counts} is more than {done}"
        job = self.job
        job.done, job.total = done, total
        if unit:
            job.unit = unit
        if counts:
            job.counts = counts
        self.check()
        now = time.monotonic()
        if now - self._told_at >= TELL_S:
            self._told_at = now
            job.changes += 1
            self._hold_files_down()
        if now - self._saved_at >= SAVE_S:
            self._saved_at = now
            self.require_right()
            self._save()
        self.rest()

    def check(self) -> None:
        """Raise Cancelled if the job was cancelled, Stopping if RocketBox stops; for a job that waits for something."""
        if self.job.cancel_asked_by:
            raise Cancelled
        if self._stopping():
            raise Stopping

    def rest(self) -> None:
        """Sleep if the job has worked for a while. `progress` does so, too."""
        used = time.thread_time() - self._used_s
        if used >= BURST_S:
            time.sleep(min(used * REST_FACTOR, _LONGEST_REST_S))
            self._used_s = time.thread_time()

    def require_right(self) -> None:
        """Raise JobFailed if the user who started the job may no longer do so. If the database fails, the job goes
        on."""
        try:
            if self._may_go_on():
                return
        except DatabaseError as error:
            logger.warning("jobs: rights cannot be read, and it goes on job=%s: %s", self.job.id, error)
            return
        raise JobFailed(gettext_noop("Who started it may not do this any more."))

    def file(self, name: str) -> Path:
        """Return the path of a file for results, which can be downloaded once the job is done."""
        return self._folder.new_file(name)

    @property
    def input(self) -> Path:
        """Path of the data that the job was given when it was started."""
        return self._folder.input

    def result(self, values: dict[str, Any]) -> None:
        """Set the job's result: a summary of at most RESULT_BYTES as JSON."""
        size = len(json.dumps(values))
        assert size <= RESULT_BYTES, f"{size} bytes are no summary"
        self.job.result = values

    def keep(self, values: dict[str, Any]) -> None:
        """Store values that the job finds in `kept` after a restart; durable when this returns. Raises OSError."""
        self.job.kept = values
        self._folder.write(self.job, durable=True)

    def _hold_files_down(self) -> None:
        if self.file_bytes_left < 0:
            raise JobFailed(
                gettext_noop("Its files would be larger than %(limit_bytes)d bytes, which is all they may take here."),
                limit_bytes=self._file_bytes,
            )

    def _save(self) -> None:
        """Write the job's file. A failure does not end the job: if the disk is full, the job's own writes fail too."""
        with contextlib.suppress(OSError):
            self._folder.write(self.job, durable=False)
