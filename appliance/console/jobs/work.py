"""What a running job is handed: its parameters, the window, and ways to tell how far it is."""

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
    from ...engine.window.engine_admin import EngineAdmin

logger = logging.getLogger(__name__)

FILE_BYTES = 1 << 30
#: How often pages are told, and how often the job's file is written.
TELL_S, SAVE_S = 0.2, 2.0
#: A job that has used the processor for so long rests twice as long: the engine's threads need the interpreter more.
BURST_S, REST_FACTOR = 0.004, 2.0
_LONGEST_REST_S = 0.5


class Cancelled(Exception):
    """Somebody cancelled the job. Let it pass: what was written is removed."""


class Stopping(Exception):
    """RocketBox is being stopped. Let it pass."""


class JobFailed(Exception):
    """The job cannot go on. template: an English sentence that the catalogue has; args: its values."""

    def __init__(self, template: str, **args: Any) -> None:
        super().__init__(template % args if args else template)
        self.told = Told(template, args)


class Work:
    """Owned by the thread that runs the job. `job` is read by others."""

    def __init__(
        self,
        job: Job,
        folder: JobFolder,
        stopping: Callable[[], bool],
        file_bytes: int = FILE_BYTES,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        """may_go_on: whether who started it may still do it; asks the settings database."""
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
    def window(self) -> EngineAdmin:
        """The engine, as pages see it."""
        return runtime.window()

    @property
    def kept(self) -> dict[str, Any]:
        """What `keep` was given before the restart; {} at the first start."""
        return self.job.kept

    @property
    def file_bytes_left(self) -> int:
        """How much the job's files may still grow."""
        return self._file_bytes - sum(one.bytes for one in self._folder.files())

    def progress(self, done: int, total: int | None = None, unit: str = "", **counts: int) -> None:
        """Say how far it is. Call it often: it costs little, rests when the job has worked for a while, and is where a
        job ends that was cancelled. counts: parts of `done`, by name; together they are at most `done`.
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
        self._rest()

    def check(self) -> None:
        """End here when the job was cancelled or RocketBox stops; for a job that waits for something."""
        if self.job.cancel_asked_by:
            raise Cancelled
        if self._stopping():
            raise Stopping

    def require_right(self) -> None:
        """End here when who started it may not do it any more. A database that does not answer says nothing."""
        try:
            if self._may_go_on():
                return
        except DatabaseError as error:
            logger.warning("jobs: nobody knows who may go on job=%s: %s", self.job.id, error)
            return
        raise JobFailed(gettext_noop("Who started it may not do this any more."))

    def file(self, name: str) -> Path:
        """A file to write results into; it is offered for download once the job is done."""
        return self._folder.new_file(name)

    @property
    def input(self) -> Path:
        """What the job was given when it was started."""
        return self._folder.input

    def result(self, values: dict[str, Any]) -> None:
        """A summary, as small JSON."""
        size = len(json.dumps(values))
        assert size <= RESULT_BYTES, f"{size} bytes are no summary"
        self.job.result = values

    def keep(self, values: dict[str, Any]) -> None:
        """Have this in `kept` after a restart; durable when this returns. Raises OSError."""
        self.job.kept = values
        self._folder.write(self.job, durable=True)

    def _hold_files_down(self) -> None:
        if self.file_bytes_left < 0:
            raise JobFailed(
                gettext_noop("Its files would be larger than %(limit_bytes)d bytes, which is all they may take here."),
                limit_bytes=self._file_bytes,
            )

    def _save(self) -> None:
        """Progress that cannot be saved is no reason to end: the job's own writes will tell."""
        with contextlib.suppress(OSError):
            self._folder.write(self.job, durable=False)

    def _rest(self) -> None:
        used = time.thread_time() - self._used_s
        if used >= BURST_S:
            time.sleep(min(used * REST_FACTOR, _LONGEST_REST_S))
            self._used_s = time.thread_time()
