"""The priority of a run's processes, which take the processor only when nothing else wants it (nice 19).

Beside other tests something always does: a run of some seconds then takes minutes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from spark_reports.run import plan as files
from spark_reports.run.processes import members_of


def hurry(session: int) -> None:
    """Give the processes of a session this process's own priority, and those that they start; root alone may."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for member in members_of(session):
        with suppress(OSError):  # it has ended, or we may not, or the kernel does not group by session
            Path(f"/proc/{member.pid}/autogroup").write_text("0")
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{member.pid}/task"):
                os.setpriority(os.PRIO_PROCESS, int(thread), own)


def hurry_run(folder: Path) -> None:
    """Do that for the run of a directory, if it goes on."""
    with suppress(OSError, ValueError, IndexError):
        hurry(int((folder / files.PROCESS).read_text().split()[0]))
