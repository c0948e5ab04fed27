"""Whether the machine has room for a run: memory and disk that nobody uses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from spark_reports import machine
from spark_reports.run.failures import RunFailed

from .report_settings import ReportSettings

_MIB = 1 << 20
#: What plain Python takes: its interpreter and a day's counts.
PYTHON_MIB = 200
#: What Spark takes besides the JVM's heap: the JVM itself, and Python's processes.
SPARK_BESIDE_MIB = 700
#: Disk for scratch, facts and reports; the broker needs what is left.
PYTHON_DISK_MIB = 256
SPARK_DISK_MIB = 1024


def needed_mib(engine: str, wanted: ReportSettings) -> int:
    """Memory that a run takes; never more than it may have."""
    needed = PYTHON_MIB if engine == "python" else wanted.driver_mib + SPARK_BESIDE_MIB
    return min(needed, wanted.memory_mib)


def check(engine: str, wanted: ReportSettings, place: Path) -> None:
    """Raises RunFailed where there is too little; it says how much is needed."""
    needed = needed_mib(engine, wanted)
    memory = machine.free_memory()
    if memory is not None and memory // _MIB < needed:
        raise RunFailed("low_memory", needed=needed, free=max(0, memory // _MIB))
    needed = PYTHON_DISK_MIB if engine == "python" else SPARK_DISK_MIB
    free = shutil.disk_usage(place).free // _MIB
    if free < needed:
        raise RunFailed("low_disk", needed=needed, free=free, place=os.fspath(place))
