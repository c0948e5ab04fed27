"""Checks that the machine has enough free memory and disk space for a run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from spark_reports import machine
from spark_reports.run.failures import RunFailed

from .report_settings import ReportSettings

_MIB = 1 << 20
#: Memory that plain Python takes: its interpreter, Arrow, and a day's counts.
PYTHON_MIB = 300
#: Memory that Spark takes besides the JVM's heap: the JVM itself, and Python's processes.
SPARK_BESIDE_MIB = 700
#: Free disk space that a run needs, for scratch, facts and reports, so that it does not fill the broker's disk.
PYTHON_DISK_MIB = 256
SPARK_DISK_MIB = 1024


def needed_mib(engine: str, wanted: ReportSettings) -> int:
    """Return the memory that a run takes, in MiB; never more than the settings allow it."""
    needed = PYTHON_MIB if engine == "python" else wanted.driver_mib + SPARK_BESIDE_MIB
    return min(needed, wanted.memory_mib)


def too_little(engine: str, wanted: ReportSettings, place: Path) -> RunFailed | None:
    """Return the failure of a run for which there is too little memory or disk, with the amount that it needs; None if
    there is enough."""
    needed = needed_mib(engine, wanted)
    memory = machine.free_memory()
    if memory is not None and memory // _MIB < needed:
        return RunFailed("low_memory", needed=needed, free=max(0, memory // _MIB))
    needed = PYTHON_DISK_MIB if engine == "python" else SPARK_DISK_MIB
    free = shutil.disk_usage(place).free // _MIB
    if free < needed:
        return RunFailed("low_disk", needed=needed, free=free, place=os.fspath(place))
    return None
