"""Reading a record that a request names by its physical offset.

It is read on remoting-io if the page cache has it. That is the usual case, since the record was written or consumed a
moment ago. Otherwise the pool `pull-cold` reads it while the loop goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...remoting.connection import Connection
from ...remoting.dispatcher import WorkerPool
from ...remoting.event_loop import EventLoop
from ...store.record_reader import LONGEST_READ_AT_ONCE, Missing, RecordReader, StoredRecord

#: Bytes that are counted for a request that waits in the pool.
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
        """Call `go_on` with the record, or the reason why there is none: at once, or from the loop after a read. False
        if the pool is full; `go_on` is not called then. An exception that it raises in the loop closes `conn`."""
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
                except Exception:  # closes this peer's connection; the tick's other answers go out
                    conn.fail()

            # A one-way request is served even when its sender has gone.
            self._loop.call_soon(arrived)
            if isinstance(read, StoredRecord) and len(read.data) > LONGEST_READ_AT_ONCE:
                taken.wait(_TAKEN_WITHIN_S)  # so that long records do not pile up in front of the loop

        return self._pool.submit(job, _WAITING_BYTES, conn, answered=False)
