"""Reads from the disk for pulls in the pool `pull-cold`: remoting-io never waits for a read (D2). The pool
`pull-filter` does the same for filters that look at records.

The peer always notices how a read ended: the data goes to `then` on remoting-io, a failing disk and a full pool are
refusals, and an internal error closes the connection (`WorkerPool.run`, `Outbox.post`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...errors import RefusedRequest
from ...protocol.codes import ResponseCode
from ...remoting.dispatcher import OVERLOADED, WorkerPool
from ...store.cold_reader import ColdReader
from ...store.log.commit_log import CommitLog
from ...store.queues.consume_queue import ConsumeQueue
from ...store.results import GetResult
from .request import PullRequest

logger = logging.getLogger(__name__)

#: Bytes counted for a pull in the pool: mostly itself, its job, and the entries it reads. A connection's share of what
#: waits in pools holds some 4,000 pulls, more than a client has queues, and under half of the pool's places.
COLD_PULL_BYTES = 4096


def overloaded() -> RefusedRequest:
    """Return the refusal of a full pool. A client waits after this code; after "not found" it would ask at once."""
    return RefusedRequest(ResponseCode.SYSTEM_BUSY, OVERLOADED)


class ColdPulls:
    """`read_entries` and `read_records` are called on remoting-io."""

    def __init__(self, pool: WorkerPool, reader: ColdReader, log: CommitLog) -> None:
        # Constant after construction.
        self._pool = pool
        self._log = log
        # Owned by the pool's thread.
        self._reader = reader
        #: Refusal of reads once the broker has ended, for jobs that had to wait in the pool; None before. Any thread.
        self.ended: RefusedRequest | None = None

    def close(self) -> None:
        """Close the reader, when the pool has finished all of these jobs."""
        self._reader.close()

    @property
    def judged(self) -> int:
        """Records judged for filters that look at them."""
        return self._reader.settling.scanned

    def read_entries(self, request: PullRequest, queue: ConsumeQueue, then: Callable[[bytes], None]) -> None:
        """Read the entries that the pull looks through."""

        def read() -> bytes:
            return self._reader.entries(queue, request.offset, request.max_count, request.wanted)

        self._submit(request, read, then)

    def look_ahead(self, request: PullRequest, queue: ConsumeQueue, then: Callable[[bytes | None], None]) -> bool:
        """Read entries as `read_entries` does, for a pull that stays held meanwhile; `then` gets None if the read
        fails. False when the pool has no room; then nothing is called."""
        conn, offset = request.conn, request.offset

        def job() -> None:
            data: bytes | None = None
            if request.bucket and self.ended is None:
                try:
                    data = self._reader.entries(queue, offset, request.max_count, request.wanted)
                except OSError as error:
                    logger.error("pull: the disk cannot be read for %r: %s", request, error)
                except Exception:  # a bug: the pull waits on, and is answered when its time is over
                    logger.exception("pull: looking ahead failed for %r", request)
            conn.post(lambda: then(data), 0)

        return self._pool.submit(job, COLD_PULL_BYTES, conn, answered=False)

    def read_records(self, request: PullRequest, result: GetResult, then: Callable[[bytes], None]) -> None:
        """Read the records that were found; those that have expired since are left out."""
        log = self._log

        def read() -> bytes | None:
            parts = [log.read(offset, size) for offset, size in result.runs]
            body = b"".join(parts)
            if len(body) != result.size:
                begin = log.min_offset
                for (offset, size), part in zip(result.runs, parts, strict=True):
                    if len(part) != size and (part or offset >= begin):
                        logger.error("pull: the log gave %d of %d bytes at %d", len(part), size, offset)
                        return None
            return body

        self._submit(request, read, then)

    def _submit(self, request: PullRequest, read: Callable[[], bytes | None], then: Callable[[bytes], None]) -> None:
        """Have the pool call `read` for a peer that is still there; `then` gets the data. None closes the
        connection."""
        conn = request.conn

        def job() -> None:
            if conn.closed:
                return
            ended = self.ended
            if ended is not None:
                conn.post(lambda: request.reply_to.refused(request, ended), 0)
                return
            try:
                data = read()
            except OSError as error:
                logger.error("pull: the disk cannot be read for %r: %s", request, error)
                # The client tries again later, at the same offset.
                refusal = RefusedRequest(ResponseCode.SYSTEM_ERROR, "the messages cannot be read")
                conn.post(lambda: request.reply_to.refused(request, refusal), 0)
                return
            if data is None:
                conn.close()
            else:
                conn.post(lambda: then(data), len(data))

        if not self._pool.submit(job, COLD_PULL_BYTES, conn):
            request.reply_to.refused(request, overloaded())
