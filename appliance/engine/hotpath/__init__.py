"""What happens for each frame, each record and each answer, in two forms that do the same: compiled, and pure Python.

`pure.py` is the reference and stays complete. `_compiled` is built from `_compiled.pyx` where a C compiler was found;
which of the two this process uses is decided once, here: the compiled one when it is there and fits, unless
ROCKETBOX_PURE says otherwise. Everybody else imports these names from this package.

The compiled twin takes what is usual, and leaves everything else to the Python code that would have done it anyway.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import pure

#: Why the pure twin runs; empty when the compiled one does.
WHY_PURE = ""

twin: Any = pure

if TYPE_CHECKING:
    from .pure import (
        AdmissionState,
        AppenderState,
        LoopState,
        PeerState,
        QueueState,
        ServerState,
        StageState,
        TableState,
        TickState,
    )
else:
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
    AdmissionState, AppenderState, LoopState = twin.AdmissionState, twin.AppenderState, twin.LoopState
    PeerState, QueueState, ServerState = twin.PeerState, twin.QueueState, twin.ServerState
    StageState, TableState, TickState = twin.StageState, twin.TableState, twin.TickState

#: Whether this process uses the compiled twin.
COMPILED = not WHY_PURE

# What only the compiled twin has, None in the pure one: in their place stands the Python code of the engine.
#: Takes usual sends from a header's fields on.
SendRuns: Any = getattr(twin, "SendRuns", None)
#: Takes the usual frames of a read.
FrameRunner: Any = getattr(twin, "FrameRunner", None)
#: Reads a socket.
SocketReader: Any = getattr(twin, "SocketReader", None)
#: Sends what outboxes hold.
flush_outboxes: Any = getattr(twin, "flush_outboxes", None)

__all__ = [
    "COMPILED",
    "WHY_PURE",
    "AdmissionState",
    "AppenderState",
    "FrameRunner",
    "LoopState",
    "PeerState",
    "QueueState",
    "SendRuns",
    "ServerState",
    "SocketReader",
    "StageState",
    "TableState",
    "TickState",
    "flush_outboxes",
]
