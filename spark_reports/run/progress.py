"""progress.json: the progress of a run, written by a separate thread twice a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from . import plan as files
from .plan import Progress

EVERY_S = 0.5


class ProgressFile:
    """`with` writes it while the block runs. Any thread may set the progress."""

    def __init__(self, path: Path) -> None:
        # Constant after construction.
        self._path = path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        # Replaced whole.
        self._now: tuple[str, int, int] = ("starting", 0, 0)
        self._ask: Any = None

    def __enter__(self) -> ProgressFile:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(5)
        self._write()

    def step(self, name: str) -> None:
        """Begin another step."""
        self._now = (name, 0, 0)
        self._write()

    def done(self, done: int, total: int) -> None:
        """Set how much of the current step is done."""
        self._now = (self._now[0], done, total)

    @contextmanager
    def of_spark(self, spark: Any) -> Iterator[None]:
        """Take the progress from Spark within the block: tasks of all stages that it has planned so far."""
        tasks = SparkTasks(spark.sparkContext.statusTracker())
        self._ask = tasks.look
        try:
            yield
            self.done(*tasks.look())
        finally:
            self._ask = None

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            ask = self._ask
            if ask is not None:
                with suppress(Exception):  # the session may be over, or its process
                    self.done(*ask())
            self._write()

    def _write(self) -> None:
        with suppress(OSError):  # a full disk ends the run elsewhere, when a needed file cannot be written
            files.write(self._path, Progress(*self._now, int(time.time() * 1000)))


class SparkTasks:
    """Counts tasks by Spark's own status tracker, which forgets old stages: those that were seen are kept."""

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        # Stage -> (tasks done, tasks).
        self._stages: dict[int, tuple[int, int]] = {}
        self._looked: set[int] = set()

    def look(self) -> tuple[int, int]:
        """Return (tasks done, all tasks planned so far)."""
        active = set(self._tracker.getActiveStageIds())
        for job in list(self._tracker.getActiveJobsIds()):
            info = self._tracker.getJobInfo(job)
            active |= set() if info is None else set(info.stageIds)
        # Stages that were under way at the last look are read again: they may have ended since.
        for stage in active | self._looked:
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._stages[stage] = (info.numCompletedTasks, info.numTasks)
        self._looked = active
        return sum(done for done, _ in self._stages.values()), sum(tasks for _, tasks in self._stages.values())
