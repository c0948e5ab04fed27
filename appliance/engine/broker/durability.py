"""From a published tick to the answers of its sends.

The store hands a tick back when it may be acknowledged (D1), or when it failed; who waits is told what became of the
send, and answers in the protocol that asked. A sender that asked WAIT=false was answered when its tick was written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from ..protocol.codes import ResponseCode
from ..remoting.event_loop import EventLoop
from ..store.message_store import MessageStore, Tick
from ..store.queues.consume_queue import ConsumeQueue
from .sending.outcome import store_unavailable

logger = logging.getLogger(__name__)


class Durability:
    """Waits for the store on behalf of senders. Owned by remoting-io."""

    def __init__(
        self,
        store: MessageStore,
        loop: EventLoop,
        sync_flush_timeout_ms: Callable[[], int],
        on_new_messages: Callable[[Iterable[ConsumeQueue]], None],
    ) -> None:
        self._store = store
        self._loop = loop
        self._timeout_ms = sync_flush_timeout_ms
        self._on_new_messages = on_new_messages
        store.on_written = self._written
        store.on_published = self._published
        store.on_failed = self._failed
        if store.settings.synchronous:
            loop.call_every(1.0, self._look_at_timeouts)

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
        """Nothing of the tick is promised."""
        failed = store_unavailable(reason)
        for reply_to, _ in tick.acks + tick.early:
            reply_to.put_ended(failed)
        tick.acks, tick.early = [], []

    def _look_at_timeouts(self) -> None:
        """Stored but not yet durable after syncFlushTimeout: FLUSH_DISK_TIMEOUT, and where it is."""
        now = self._loop.monotonic
        for tick in self._store.pending:
            if (now - tick.written_at) * 1000 < self._timeout_ms():
                return
            if tick.acks:
                logger.warning("durability: sync slower than %d ms, acks=%d", self._timeout_ms(), len(tick.acks))
            for reply_to, outcome in tick.acks:
                reply_to.put_ended(replace(outcome, code=ResponseCode.FLUSH_DISK_TIMEOUT))
            tick.acks = []
