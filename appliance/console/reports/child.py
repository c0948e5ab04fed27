"""Starts a run's keeper (`spark_reports/run/keeper.py`) in a reduced environment, and ends it."""

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

#: Variables of the broker's environment that a run gets: they locate programs and their settings. No others are passed
#: on, since environments often hold passwords and tokens.
PASSED_ON = (
    "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "JAVA_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR",
    "YARN_CONF_DIR", "PYSPARK_PYTHON",
)  # fmt: skip


def environment(run_id: str, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the keeper's environment. given: the broker's."""
    given = os.environ if given is None else given
    passed = {name: given[name] for name in PASSED_ON if name in given}
    root = Path(spark_reports.__file__).resolve().parent.parent
    return {
        **passed,
        MARK: run_id,
        # Lets Spark's workers find the program, wherever they are started.
        "PYTHONPATH": str(root),
        "PYTHONSAFEPATH": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
    }


class Child:
    """A running keeper. It ends when the thread that created this object ends, so that thread does everything here."""

    def __init__(self, run_id: str, folder: Path) -> None:
        """Start the keeper. Raises OSError."""
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
        """Ask the keeper to end. It ends the run's other processes first."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def end(self, seconds: float) -> None:
        """Ask the keeper to end, and kill it after `seconds`; the caller's sweep then ends the other processes."""
        self.ask_to_end()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
