"""Waits in the caller's thread until the log is durable behind what was stored."""

from __future__ import annotations

from ...clock import Clock
from ...store.log.commit_log import CommitLog

#: Longest wait, and the pause between two looks.
DURABLE_S = 10.0
_LOOK_S = 0.005


def durable_soon(log: CommitLog, end: int, clock: Clock) -> bool:
    """Wait until the log is durable up to `end`; False after DURABLE_S or if it broke. Any thread but remoting-io."""
    deadline = clock.monotonic() + DURABLE_S
    while log.durable < end:
        if log.broken is not None or clock.monotonic() >= deadline:
            return False
        clock.sleep(_LOOK_S)
    return True
