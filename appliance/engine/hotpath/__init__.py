"""The work for each frame, each record and each answer, in two equivalent forms: compiled, and pure Python.

`pure.py` is the reference and stays complete. `_compiled` is built from `_compiled.pyx` where a C compiler was found.
`choice.py` decides once which one this process uses: the compiled one if it exists and was built from these sources,
unless ROCKETBOX_PURE says otherwise. All other code imports these names from this package.

The compiled twin handles the usual cases, and leaves all others to the Python code that it replaces.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import pure
from .choice import choose


def _compiled_twin() -> ModuleType:
    from . import _compiled

    return _compiled


#: The twin that this process uses, and the reason.
CHOICE = choose(os.environ, pure, _compiled_twin, os.path.dirname(__file__))
#: Reason that the pure twin runs; empty if the compiled one does.
WHY_PURE = CHOICE.why_pure

twin: Any = CHOICE.twin

if TYPE_CHECKING:
    from .pure import (
        AdmissionState,
        AnswersState,
        AppenderState,
        DeliveryState,
        LoopState,
        PeerState,
        QueueState,
        ServerState,
        StageState,
        TableState,
        TickState,
    )
    from .pure_index import Keys, link_entries, put_keys, scan_keys, take_back
else:
    AdmissionState, AppenderState, LoopState = twin.AdmissionState, twin.AppenderState, twin.LoopState
    PeerState, QueueState, ServerState = twin.PeerState, twin.QueueState, twin.ServerState
    StageState, TableState, TickState = twin.StageState, twin.TableState, twin.TickState
    Keys, link_entries, put_keys = twin.Keys, twin.link_entries, twin.put_keys
    scan_keys, take_back = twin.scan_keys, twin.take_back
    AnswersState, DeliveryState = twin.AnswersState, twin.DeliveryState

#: True if this process uses the compiled twin.
COMPILED = not WHY_PURE

# Parts that only the compiled twin has, None in the pure one, where the engine's Python code does the work.
#: Handles usual sends, from a header's fields on.
SendRuns: Any = getattr(twin, "SendRuns", None)
#: Serves pulls of consumers that were admitted before.
PullRuns: Any = getattr(twin, "PullRuns", None)
#: `pick_entries` of store/message_reader.py.
pick_entries: Any = getattr(twin, "pick_entries", None)
#: Returns the values that an expression needs of the records of queue entries, read without the GIL.
values_of: Any = getattr(twin, "values_of", None)
#: Scans the records of another broker's log.
RecordWalk: Any = getattr(twin, "RecordWalk", None)
#: Counts the pages of a file in the page cache.
cached_pages: Any = getattr(twin, "cached_pages", None)
#: Handles the usual frames of a read.
FrameRunner: Any = getattr(twin, "FrameRunner", None)
#: Reads a socket.
SocketReader: Any = getattr(twin, "SocketReader", None)
#: Sends the content of outboxes.
flush_outboxes: Any = getattr(twin, "flush_outboxes", None)

__all__ = [
    "CHOICE",
    "COMPILED",
    "WHY_PURE",
    "AdmissionState",
    "AnswersState",
    "AppenderState",
    "DeliveryState",
    "FrameRunner",
    "Keys",
    "LoopState",
    "PeerState",
    "PullRuns",
    "QueueState",
    "RecordWalk",
    "SendRuns",
    "ServerState",
    "SocketReader",
    "StageState",
    "TableState",
    "TickState",
    "cached_pages",
    "flush_outboxes",
    "link_entries",
    "pick_entries",
    "put_keys",
    "scan_keys",
    "take_back",
    "values_of",
]
