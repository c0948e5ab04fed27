"""`rocketbox` with a fault put into it on purpose, that of the variable SABOTAGE: the rounds must find every one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from appliance.engine.failover import brokers
from appliance.engine.replication.in_sync_position import InSyncPosition


def acknowledge_alone() -> None:
    """The leader waits for nobody: what it keeps itself is answered and shown."""
    InSyncPosition.__call__ = lambda self: self._kept()  # type: ignore[method-assign]


def leave_the_tail() -> None:
    """What an old leader had for itself is said to be cut, and is not."""
    brokers.consistent_point = lambda own, own_end, leaders, leaders_end: own_end


SABOTAGES: dict[str, Callable[[], None]] = {one.__name__: one for one in (acknowledge_alone, leave_the_tail)}


if __name__ == "__main__":
    SABOTAGES[os.environ["SABOTAGE"]]()
    from appliance.main import main

    sys.exit(main())
