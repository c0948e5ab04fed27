"""From a published tick to the answers of its sends.

The store hands a tick back when it may be acknowledged (D1), or when it failed. An ack is (connection, opaque, frame);
a sender that asked WAIT=false was answered when its tick was written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ..protocol.codes import ResponseCode
from ..protocol.command import RemotingCommand, decode_frame, encode_command
from ..remoting.connection import Connection
from ..remoting.event_loop import EventLoop
from ..store.message_store import MessageStore, Tick
from ..store.queues.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

Ack = tuple[Connection, int, bytes]


class Durability:
    """Waits for the store on behalf of senders. Owned by remoting-io."""

    def __init__(
        self,
        store: MessageStore,
        loop: EventLoop,
        sync_flush_timeout_ms: Callable[[], int],
        send_ext: dict[str, str],
        on_new_messages: Callable[[Iterable[ConsumeQueue]], None],
    ) -> None:
        self._store = store
        self._loop = loop
        self._timeout_ms = sync_flush_timeout_ms
        self._send_ext = send_ext
        self._on_new_messages = on_new_messages
        store.on_written = self._written
        store.on_published = self._published
        store.on_failed = self._failed
        if store.settings.synchronous:
            loop.call_every(1.0, self._look_at_timeouts)

    @staticmethod
    def _written(tick: Tick) -> None:
        for conn, _, frame in tick.early:
            conn.send(frame)
        tick.early = []

    def _published(self, tick: Tick) -> None:
        for conn, _, frame in tick.acks:
            conn.send(frame)
        self._on_new_messages(tick.touched)

    def _failed(self, tick: Tick, reason: str) -> None:
        """Nothing of the tick is promised: 14 makes a client try another broker (D6)."""
        remark = f"service not available now: {reason}"
        for conn, opaque, _ in tick.acks + tick.early:
            response = RemotingCommand.response(ResponseCode.SERVICE_NOT_AVAILABLE, remark, dict(self._send_ext))
            response.opaque = opaque
            conn.send(encode_command(response))
        tick.acks, tick.early = [], []

    def _look_at_timeouts(self) -> None:
        """Stored but not yet durable after syncFlushTimeout: FLUSH_DISK_TIMEOUT with the header of a success."""
        now = self._loop.monotonic
        for tick in self._store.pending:
            if (now - tick.written_at) * 1000 < self._timeout_ms():
                return
            if tick.acks:
                logger.warning("durability: sync slower than %d ms, acks=%d", self._timeout_ms(), len(tick.acks))
            for conn, _, frame in tick.acks:
                response = decode_frame(frame)
                response.code = ResponseCode.FLUSH_DISK_TIMEOUT
                conn.send(encode_command(response))
            tick.acks = []
