"""From a published tick to the answers of its sends.

The store hands a tick back when it may be acknowledged (D1), or when it failed. Each `reply_to` that waits for it gets
the outcome of its send, and answers in its own protocol. A send with WAIT=false was answered when its tick was written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from ..named_tuple import NamedTuple
from ..protocol.codes import ResponseCode
from ..remoting.event_loop import EventLoop, Timer
from ..store.message_store import MessageStore, Tick
from ..store.queues.consume_queue import ConsumeQueue
from .sending.outcome import store_unavailable

logger = logging.getLogger(__name__)


#: Period of the check for sends that have waited too long for a slave.
SLAVE_LOOK_S = 0.1
#: Ticks whose sends have all been answered are merged into one for each 64 KiB of the log, and published together.
_TOGETHER_BITS = 16


class SlaveWait(NamedTuple):
    """timeout_ms: after it a send is answered 12. most_behind_bytes: of the log; if slaves lack more, sends are
    refused."""

    timeout_ms: int
    most_behind_bytes: int


class Durability:
    """Waits for the store on behalf of senders. Owned by remoting-io."""

    def __init__(
        self,
        store: MessageStore,
        loop: EventLoop,
        sync_flush_timeout_ms: Callable[[], int],
        on_new_messages: Callable[[Iterable[ConsumeQueue]], None],
        slaves: SlaveWait | None = None,
    ) -> None:
        """slaves: the limits of the wait for slaves; None if sends do not wait for them."""
        self._store = store
        self._loop = loop
        self._timeout_ms = sync_flush_timeout_ms
        self._on_new_messages = on_new_messages
        store.on_written = self._written
        store.on_published = self._published
        store.on_failed = self._failed
        self._slaves = slaves

    def begin(self) -> list[Timer]:
        """Start the timer that looks for late sends. On remoting-io, or before it runs."""
        if self._slaves is not None:
            return [self._loop.call_every(SLAVE_LOOK_S, self._look_at_slaves)]
        if self._store.settings.synchronous:
            return [self._loop.call_every(1.0, self._look_at_timeouts)]
        return []

    @staticmethod
    def _written(tick: Tick) -> None:
        for reply_to, outcome in tick.early:
            reply_to.put_ended(outcome)
        tick.early = []

    def _published(self, tick: Tick) -> None:
        for reply_to, outcome in tick.acks:
            reply_to.put_ended(outcome)
        self._on_new_messages(tick.touched)

    @staticmethod
    def _failed(tick: Tick, reason: str) -> None:
        """Answer all sends of a failed tick: nothing of it is promised."""
        failed = store_unavailable(reason)
        for reply_to, _ in tick.acks + tick.early:
            reply_to.put_ended(failed)
        tick.acks, tick.early = [], []

    def _look_at_timeouts(self) -> None:
        """Answer sends that are stored but not durable after syncFlushTimeout: FLUSH_DISK_TIMEOUT, and their place."""
        now = self._loop.monotonic
        for tick in self._store.pending:
            if (now - tick.written_at) * 1000 < self._timeout_ms():
                return
            if tick.acks:
                logger.warning("durability: sync slower than %d ms, acks=%d", self._timeout_ms(), len(tick.acks))
            for reply_to, outcome in tick.acks:
                reply_to.put_ended(replace(outcome, code=ResponseCode.FLUSH_DISK_TIMEOUT))
            tick.acks = []

    def _look_at_slaves(self) -> None:
        """Do the same if sends wait for slaves: one that no slave has after slaveTimeout is answered
        FLUSH_SLAVE_TIMEOUT. It stays unpublished, and its ticks are merged, so that a long wait takes little memory.
        Refuse further sends while slaves are too far behind."""
        slaves, log, pending = self._slaves, self._store.log, self._store.pending
        assert slaves is not None
        now = self._loop.monotonic
        told: list[Tick] = []
        late = 0
        while pending:
            tick = pending[0]
            age_ms = (now - tick.written_at) * 1000
            if self._store.kept() < tick.end:
                code, timeout_ms = ResponseCode.FLUSH_DISK_TIMEOUT, self._timeout_ms()
            else:
                code, timeout_ms = ResponseCode.FLUSH_SLAVE_TIMEOUT, slaves.timeout_ms
            if tick.acks and age_ms < timeout_ms:
                break
            acks, tick.acks = tick.acks, []
            late += len(acks)
            for reply_to, outcome in acks:
                reply_to.put_ended(replace(outcome, code=code))
            pending.popleft()
            assert not told or told[-1].end <= tick.end, "ticks wait in the order of the log"
            if told and told[-1].end >> _TOGETHER_BITS == tick.end >> _TOGETHER_BITS:
                one = told[-1]
                one.touched |= tick.touched
                one.end, one.last_offset = tick.end, tick.last_offset
            else:
                told.append(tick)
        pending.extendleft(reversed(told))
        if late:
            logger.warning("durability: no slave, or not the disk, had it in time: acks=%d", late)
        behind = log.written - self._store.publication.published
        log.refuse(
            f"slaves are {behind >> 20} MiB behind" if behind > slaves.most_behind_bytes else None,
            "slaves",
        )
