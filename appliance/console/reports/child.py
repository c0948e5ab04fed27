"""Starts a run's keeper (`spark_reports/run/keeper.py`) with an environment of its own, and ends it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import spark_reports
from spark_reports.run import plan as files
from spark_reports.run.__main__ import command
from spark_reports.run.plan import MARK

#: What a run is told of the broker's environment: where programs and their settings are. Everything else stays here:
#: passwords and tokens are handed over in environments.
PASSED_ON = (
    "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "JAVA_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR",
    "YARN_CONF_DIR", "PYSPARK_PYTHON",
)  # fmt: skip


def environment(run_id: str, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of the keeper. given: the broker's own."""
    given = os.environ if given is None else given
    passed = {name: given[name] for name in PASSED_ON if name in given}
    root = Path(spark_reports.__file__).resolve().parent.parent
    return {
        **passed,
        MARK: run_id,
        # Spark's workers find the program by it, wherever they are started.
        "PYTHONPATH": str(root),
        "PYTHONSAFEPATH": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
    }


class Child:
    """A keeper that runs. It ends when the thread that made this ends, so one thread does all of it."""

    def __init__(self, run_id: str, folder: Path) -> None:
        """Raises OSError."""
        log = os.open(folder / files.LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._process = subprocess.Popen(
                command(str(folder), "--parent", str(os.getpid())),
                env=environment(run_id),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
                umask=0o077,
            )
        finally:
            os.close(log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> bool:
        return self._process.poll() is not None

    def ask_to_end(self) -> None:
        """It ends all others first."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def end(self, seconds: float) -> None:
        """Have it end within so many seconds, or be killed; the sweep takes what it could not."""
        self.ask_to_end()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
