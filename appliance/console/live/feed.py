"""The overview's live frame for all open streams: the window is read once and the frame rendered once for all."""

from __future__ import annotations

import asyncio
import time
from weakref import WeakKeyDictionary

from ... import runtime
from ...engine.errors import AdminError

LOOK_EVERY_S = 0.25
HEARTBEAT_S = 15.0
#: Streams get an event one after the other, STEP_S apart, and all within SPREAD_S: twenty at once would keep the
#: interpreter from the engine's threads for some milliseconds.
STEP_S, SPREAD_S = 0.01, 0.2


class LiveFeed:
    """The newest frame, for the streams of one event loop; owned by its thread. It reads the window while at least one
    stream waits."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[bytes | None]] = []
        self._looker: asyncio.Task[None] | None = None
        self._number = -1
        self._event = b""

    @property
    def latest(self) -> bytes:
        """The newest event, for a stream that begins; empty until the window was read for the first time."""
        return self._event if self._looker is not None else b""

    async def next(self) -> bytes | None:
        """Wait for the next event and return its bytes, or a heartbeat's; None if the engine does not run."""
        future: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._looker is None:
            self._looker = asyncio.create_task(self._look())
        try:
            return await future
        finally:
            if future in self._waiting:
                self._waiting.remove(future)

    async def _look(self) -> None:
        said_at = time.monotonic()
        self._number = -1
        try:
            idle = 0
            while idle < 2:  # a stream that has just got an event waits again at once
                try:
                    number, frame = runtime.window().live.frame()
                except (AdminError, runtime.EngineNotRunning):
                    await self._hand_out(None)
                    return
                now = time.monotonic()
                if number != self._number:
                    self._number, said_at = number, now
                    self._event = b"id: %d\ndata: %b\n\n" % (number, frame)
                    await self._hand_out(self._event)
                elif now - said_at > HEARTBEAT_S:
                    said_at = now
                    await self._hand_out(b": still here\n\n")
                await asyncio.sleep(LOOK_EVERY_S)
                idle = 0 if self._waiting else idle + 1
        finally:
            self._looker = None
            for future in self._waiting:
                _answer(future, None)

    async def _hand_out(self, event: bytes | None) -> None:
        count = len(self._waiting)  # a stream that waits again meanwhile gets the next event
        for _ in range(count):
            if self._waiting:
                _answer(self._waiting.pop(0), event)
                await asyncio.sleep(min(STEP_S, SPREAD_S / count))


def _answer(future: asyncio.Future[bytes | None], event: bytes | None) -> None:
    if not future.done():
        future.set_result(event)


_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, LiveFeed] = WeakKeyDictionary()


def live_feed() -> LiveFeed:
    """Return the feed of the running event loop: the server has one loop, tests have many."""
    return _feeds.setdefault(asyncio.get_running_loop(), LiveFeed())
