"""`rocketbox` with the fault that the variable SABOTAGE names put in on purpose: the rounds must find every one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from appliance.engine.failover import brokers
from appliance.engine.replication.in_sync_position import InSyncPosition


def acknowledge_alone() -> None:
    """Let the leader acknowledge and show records as soon as it has them itself, without its followers."""
    InSyncPosition.__call__ = lambda self: self._kept()  # type: ignore[method-assign]


def leave_the_tail() -> None:
    """Let an old leader keep the tail of its log that only it has, which should be cut."""
    brokers.consistent_point = lambda own, own_end, leaders, leaders_end: own_end


SABOTAGES: dict[str, Callable[[], None]] = {one.__name__: one for one in (acknowledge_alone, leave_the_tail)}


if __name__ == "__main__":
    SABOTAGES[os.environ["SABOTAGE"]]()
    from appliance.main import main

    sys.exit(main())
