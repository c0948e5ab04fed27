"""What happens for each frame, each record and each answer, in two forms that do the same: compiled, and pure Python.

`pure.py` is the reference and stays complete. `_compiled` is built from `_compiled.pyx` where a C compiler was found;
which of the two this process uses is decided once, here: the compiled one when it is there and fits, unless
ROCKETBOX_PURE says otherwise. Everybody else imports these names from this package.

The compiled twin takes what is usual, and leaves everything else to the Python code that would have done it anyway.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import pure, pure_index

#: Why the pure twin runs; empty when the compiled one does.
WHY_PURE = ""

if TYPE_CHECKING:
    from .pure import AppenderState, LoopState, PeerState, QueueState, ServerState, StageState, TickState
    from .pure_index import Keys, link_entries, put_keys, scan_keys, take_back
else:
    twin, index = pure, pure_index
    if os.environ.get("ROCKETBOX_PURE", "").lower() not in ("", "0", "false", "no"):
        WHY_PURE = "ROCKETBOX_PURE is set"
    else:
        try:
            from . import _compiled
        except ImportError as error:
            WHY_PURE = f"the compiled part was not built: {error}"
        else:
            if _compiled.INTERFACE == pure.INTERFACE:
                twin = index = _compiled
            else:
                WHY_PURE = "the compiled part was built from other sources"
    AppenderState, LoopState, PeerState, QueueState = (
        twin.AppenderState,
        twin.LoopState,
        twin.PeerState,
        twin.QueueState,
    )
    ServerState, StageState, TickState = twin.ServerState, twin.StageState, twin.TickState
    Keys, link_entries, put_keys = index.Keys, index.link_entries, index.put_keys
    scan_keys, take_back = index.scan_keys, index.take_back

#: Whether this process uses the compiled twin.
COMPILED = not WHY_PURE

__all__ = [
    "COMPILED",
    "WHY_PURE",
    "AppenderState",
    "Keys",
    "LoopState",
    "PeerState",
    "QueueState",
    "ServerState",
    "StageState",
    "TickState",
    "link_entries",
    "put_keys",
    "scan_keys",
    "take_back",
]
