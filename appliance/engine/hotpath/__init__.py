"""The work for each frame, each record and each answer, in two equivalent forms: compiled, and pure Python.

`pure.py` is the reference and stays complete. `_compiled` is built from `_compiled.pyx` where a C compiler was found.
`choice.py` decides once which one this process uses: the compiled one if it exists and was built from these sources,
unless ROCKETBOX_PURE says otherwise. All other code imports these names from this package.

The compiled twin handles the usual cases, and leaves all others to the Python code that it replaces.

- **State.** The hot fields of stage, queue, tick, store, loop, server, peer and tables are in base classes (`pure.py`,
  `states.pxi`), as plain C numbers in the compiled one. All parts inherit them from here.
- **Reading.** `read_socket` (`sockets.pxi`) receives, and `FrameRunner.walk` (`frames.pxi`) goes over the frames.
  `headers.pxi` parses a header of either encoding, strictly. `SendRuns` (`send.pxi`) puts sends and batches; `PullRuns`
  (`pull.pxi`) answers pulls that find messages, at once or when they are woken, and were admitted before by
  configurations that are still the same objects. **The walk stops at the first frame that is not usual**, with none of
  its effects done, and `Connection._consume` handles exactly that frame: an unknown topic, a property of the broker's
  own, a full stage, a gate, a header that no client writes. After it the walk goes on.
- **Publication.** One run leaves one entry in the tick: `Places`, the packed outcomes of its sends, which become
  answers when the tick is published, and refusals if it failed (D19).
- **Without the GIL.** `SyncRounds` waits for ticks and syncs the log (`sync.pxi`); `flush_outboxes` sends for all peers
  of a tick; `index.pxi` finds keys and links entries; `filter.pxi` reads the properties that an expression names;
  `replica.pxi` checks another broker's records, and this one's at a start, and packs their queue entries.

`tests/hotpath` gives both twins the same conversations, recorded, made up and hostile; compares answers, log bytes and
queue entries; and counts that the compiled one took them. `script/sanitized` runs that under ASan and UBSan.
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
#: Checks the records of another broker's log, and of this one's at a start.
RecordWalk: Any = getattr(twin, "RecordWalk", None)
#: Counts the pages of a file in the page cache.
cached_pages: Any = getattr(twin, "cached_pages", None)
#: `IndexFile.chain_now`.
chain_cached: Any = getattr(twin, "chain_cached", None)
#: `RecordReader.of_key_now`.
keyed_record: Any = getattr(twin, "keyed_record", None)
#: Handles the usual frames of a read.
FrameRunner: Any = getattr(twin, "FrameRunner", None)
#: What all sockets of a port share, for connections that read by themselves.
Reading: Any = getattr(twin, "Reading", None)
#: Checks usual requests while access control is on, and the secrets of a user for that.
Guard: Any = getattr(twin, "Guard", None)
Signer: Any = getattr(twin, "Signer", None)
#: Sends the content of outboxes.
flush_outboxes: Any = getattr(twin, "flush_outboxes", None)
#: Waits for ticks and syncs the log.
SyncRounds: Any = getattr(twin, "SyncRounds", None)

__all__ = [
    "CHOICE",
    "COMPILED",
    "WHY_PURE",
    "AdmissionState",
    "AnswersState",
    "AppenderState",
    "DeliveryState",
    "FrameRunner",
    "Guard",
    "Keys",
    "LoopState",
    "PeerState",
    "PullRuns",
    "QueueState",
    "Reading",
    "RecordWalk",
    "SendRuns",
    "ServerState",
    "Signer",
    "StageState",
    "SyncRounds",
    "TableState",
    "TickState",
    "cached_pages",
    "chain_cached",
    "flush_outboxes",
    "keyed_record",
    "link_entries",
    "pick_entries",
    "put_keys",
    "scan_keys",
    "take_back",
    "values_of",
]
