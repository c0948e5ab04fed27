"""Stores half messages that the broker makes itself: resumed ones, and test messages."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout

from ...errors import Unavailable
from ...protocol.names import HALF_TOPIC
from ...store.message_store import MessageStore
from ..sending.outcome import Awaited, PutOutcome
from ..sending.own_appends import OwnAppends, OwnMessage
from .half import HALF_QUEUE

NO_ANSWER = "it is not known whether the half message is stored: the log does not answer"


class HalfAppends:
    """Appends to the half queue. Any thread but remoting-io; waits in the caller's."""

    def __init__(
        self,
        store: MessageStore,
        appends: OwnAppends,
        stored: Callable[[int, str], None],
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """stored: called on remoting-io for each half message that was staged, with its offset in the half queue and
        its properties."""
        # Constant after construction.
        self._store = store
        self._appends = appends
        self._stored = stored
        self._call_soon = call_soon

    def append(self, message: OwnMessage, timeout_s: float) -> PutOutcome:
        """Store a half message, which is open and published when this returns. Raises Unavailable if that takes
        longer."""
        waiting = Awaited()
        self._call_soon(lambda: self._stage(message, waiting))
        try:
            return waiting.future.result(timeout_s)
        except FutureTimeout:
            raise Unavailable(NO_ANSWER) from None

    def _stage(self, message: OwnMessage, waiting: Awaited) -> None:
        """Stage the message, on remoting-io."""
        offset = self._store.queues.get_or_create(HALF_TOPIC, HALF_QUEUE).next_offset
        self._appends.put(message, waiting)
        if not waiting.future.done():  # else it was refused
            self._stored(offset, message.properties)
