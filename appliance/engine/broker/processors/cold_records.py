"""A record that a request names by its physical offset, wherever it lies.

On remoting-io when the page cache has it, which it mostly has: it was written or consumed a moment ago. Else the pool
`pull-cold` reads it while the loop goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...remoting.connection import Connection
from ...remoting.dispatcher import WorkerPool
from ...remoting.event_loop import EventLoop
from ...store.record_reader import LONGEST_READ_AT_ONCE, Missing, RecordReader, StoredRecord

#: Counted for a request that waits in the pool.
_WAITING_BYTES = 4096
_TAKEN_WITHIN_S = 1.0


class ColdRecords:
    """Owned by remoting-io."""

    def __init__(self, records: RecordReader, pool: WorkerPool, loop: EventLoop) -> None:
        # Constant after construction.
        self._records = records
        self._pool = pool
        self._loop = loop

    def find(self, physical: int, conn: Connection, go_on: Callable[[StoredRecord | Missing], None]) -> bool:
        """Have `go_on` called with what lies there: at once, or from the loop when it was read. False when the pool
        takes no more; `go_on` is not called then. What it raises from the loop costs `conn` its connection."""
        found = self._records.find_now(physical)
        if found is not None:
            go_on(found)
            return True

        def job() -> None:
            read = self._records.find(physical)
            taken = threading.Event()

            def arrived() -> None:
                taken.set()
                try:
                    go_on(read)
                except Exception:  # costs this peer its connection, and nobody else of the tick an answer
                    conn.fail()

            # A one-way request is served even when its sender has gone.
            self._loop.call_soon(arrived)
            if isinstance(read, StoredRecord) and len(read.data) > LONGEST_READ_AT_ONCE:
                taken.wait(_TAKEN_WITHIN_S)  # so that long ones do not pile up before the loop

        return self._pool.submit(job, _WAITING_BYTES, conn, answered=False)
