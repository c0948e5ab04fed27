"""A process that stands still, as one on a machine that swaps or is moved: its sockets stay open."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.waiting import wait_for


def stop_process(pid: int) -> None:
    """SIGSTOP; returns when each of its threads has stopped: until then one may still answer."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: _stands_still(pid), f"process {pid} to stand still", every=0.002)


def _stands_still(pid: int) -> bool:
    states = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended
            continue
    return all(state in "TtZX" for state in states)
