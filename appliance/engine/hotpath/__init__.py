"""What happens for each frame, each record and each answer, in two forms that do the same: compiled, and pure Python.

`pure.py` is the reference and stays complete. `_compiled` is built from `_compiled.pyx` where a C compiler was found;
which of the two this process uses is decided once, here: the compiled one when it is there and fits, unless
ROCKETBOX_PURE says otherwise. Everybody else imports these names from this package.

The compiled twin takes what is usual, and leaves everything else to the Python code that would have done it anyway.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import pure

#: Why the pure twin runs; empty when the compiled one does.
WHY_PURE = ""

if TYPE_CHECKING:
    from .pure import (
        AnswersState,
        AppenderState,
        LoopState,
        PeerState,
        PullRuns,
        QueueState,
        ServerState,
        StageState,
        TickState,
        pick_entries,
    )
else:
    twin = pure
    if os.environ.get("ROCKETBOX_PURE", "").lower() not in ("", "0", "false", "no"):
        WHY_PURE = "ROCKETBOX_PURE is set"
    else:
        try:
            from . import _compiled
        except ImportError as error:
            WHY_PURE = f"the compiled part was not built: {error}"
        else:
            if _compiled.INTERFACE == pure.INTERFACE:
                twin = _compiled
            else:
                WHY_PURE = "the compiled part was built from other sources"
    AppenderState, LoopState, PeerState, QueueState = (
        twin.AppenderState,
        twin.LoopState,
        twin.PeerState,
        twin.QueueState,
    )
    ServerState, StageState, TickState = twin.ServerState, twin.StageState, twin.TickState
    AnswersState, PullRuns, pick_entries = twin.AnswersState, twin.PullRuns, twin.pick_entries

#: Whether this process uses the compiled twin.
COMPILED = not WHY_PURE

__all__ = [
    "COMPILED",
    "WHY_PURE",
    "AnswersState",
    "AppenderState",
    "LoopState",
    "PeerState",
    "PullRuns",
    "QueueState",
    "ServerState",
    "StageState",
    "TickState",
    "pick_entries",
]
