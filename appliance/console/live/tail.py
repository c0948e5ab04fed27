"""The viewers of live tails, and the thread that reads new messages for them.

Viewers with the same wish share one look and one rendering. The thread `live-tail` exists while there are viewers. It
hands new frames to the event loop (`call_soon_threadsafe` takes a hundredth of a millisecond), where each viewer has
its own short queue. A browser that does not keep up loses the frames that do not fit, and is sent the number of
messages in them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec
from django.utils.translation import gettext as _

from ... import runtime
from ...engine.errors import AdminError, InvalidInput, NotFound

if TYPE_CHECKING:
    from ...engine.window.messages.tail import Tail, TailLook, Wanted

logger = logging.getLogger(__name__)

#: Seconds between two looks, and for each viewer in addition, so that twenty cost hardly more than one.
LOOK_EVERY_S, EACH_VIEWER_S = 0.015, 0.002
#: After a look the thread rests at least this many times as long as the look took.
REST = 9
#: Most open tails of one user, and of all users together.
STREAMS_EACH, STREAMS = 4, 40
#: Most frames, and most characters in them, that wait for one browser.
WAITING_FRAMES, WAITING_BYTES = 32, 256 * 1024


#: Most characters of a body in a line.
BODY_CHARS = 240


def wish_of(query: Mapping[str, str], bodies: bool) -> Wanted:
    """Read a wish from an address: ?topic= with tags, key, expression, one_in and per_second. Raises InvalidInput."""
    return runtime.window().tails.wanted(
        topic=query.get("topic", "").strip(),
        tags=query.get("tags", "").strip(),
        key=query.get("key", "").strip(),
        expression=query.get("expression", "").strip(),
        one_in=_number(query, "one_in", 1),
        per_second=_number(query, "per_second", 50),
        body_chars=BODY_CHARS if bodies else 0,
    )


def begin(wish: Wanted, dry_run: bool = False) -> Tail | None:
    """Open the engine's tail of a wish; None for a dry run. Raises NotFound and InvalidInput."""
    return runtime.window().tails.begin(wish, dry_run=dry_run)


def _number(query: Mapping[str, str], name: str, otherwise: int) -> int:
    text = query.get(name, "").strip()
    if not text:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput(name, _("“%(text)s” is not a whole number.") % {"text": text[:40]})
    return int(text)


class TooMany(Exception):
    """Too many tails are open. whose: "yours", the user's own, or "all"."""

    def __init__(self, whose: str) -> None:
        super().__init__(whose)
        self.whose = whose


class Viewer:
    """One open page. Owned by the event loop's thread."""

    def __init__(self, user: int) -> None:
        # Constant after construction.
        self.user = user
        # (frame, the look it shows); oldest first.
        self._waiting: deque[tuple[str, TailLook]] = deque()
        self._bytes = 0
        self._came = asyncio.Event()
        self.paused = False
        # Counts of the frames that were not sent, which the browser is still to get: named as in TailLook, with the
        # rows as `dropped` (the browser did not keep up) or `held_back` (it was paused).
        self._untold: Counter[str] = Counter()
        # The reason why it ended; None while it is open.
        self.ended: str | None = None

    def offer(self, text: str, look: TailLook) -> None:
        """Queue a frame for the browser; if there is no room for it, only count it."""
        if self.paused:
            self._count(look, "held_back")
        elif len(self._waiting) >= WAITING_FRAMES or self._bytes + len(text) > WAITING_BYTES:
            self._count(look, "dropped")
        else:
            self._waiting.append((text, look))
            self._bytes += len(text)
        self._came.set()

    def pause(self, paused: bool) -> None:
        self.paused = paused
        if paused:
            for _, look in self._waiting:
                self._count(look, "held_back")
            self._waiting.clear()
            self._bytes = 0
        self._came.set()

    def _count(self, look: TailLook, why: str) -> None:
        counts = {"passed": look.passed, "filtered": look.filtered, "left_out": look.left_out, "unread": look.unread}
        self._untold.update(counts | {why: len(look.rows)})

    def end(self, why: str) -> None:
        self.ended = self.ended or why
        self._came.set()

    async def next(self, timeout_s: float) -> str | None:
        """Return the next text to send; None if there was none within timeout_s, or the viewer has ended."""
        deadline = time.monotonic() + timeout_s
        while not self._waiting and not self.ended:
            if self._untold and not self.paused:
                told, self._untold = self._untold, Counter()
                return msgspec.json.encode(told).decode()
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), left)
            except TimeoutError:
                return None
        if self.ended or not self._waiting:
            return None
        text, _ = self._waiting.popleft()
        self._bytes -= len(text)
        return text


class _Watch:
    """The tail of one wish and its viewers. The tail is owned by the thread, `viewers` by the loop."""

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self.viewers: tuple[Viewer, ...] = ()  # replaced whole


class LiveTail:
    """The viewers of one event loop. Everything except `_run` and the methods below it runs on that loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watches: dict[Wanted, _Watch] = {}
        # Guards `_watches` against the thread that ends, and `_thread`.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def viewers(self) -> list[Viewer]:
        """All present viewers."""
        return [viewer for watch in list(self._watches.values()) for viewer in watch.viewers]

    def admit(self, user: int) -> None:
        """Raise TooMany if this user, or all users together, have the most viewers allowed."""
        present = self.viewers
        if sum(viewer.user == user for viewer in present) >= STREAMS_EACH:
            raise TooMany("yours")
        if len(present) >= STREAMS:
            raise TooMany("all")

    def add(self, wish: Wanted, viewer: Viewer) -> None:
        """Add a viewer; the first one of a wish opens its tail. Raises TooMany, and what `Tails.begin` raises."""
        self.admit(viewer.user)
        with self._lock:
            watch = self._watches.get(wish)
            if watch is None:
                tail = begin(wish)
                assert tail is not None, "it was no dry run"
                watch = self._watches[wish] = _Watch(tail)
            watch.viewers = (*watch.viewers, viewer)
            if self._thread is None:
                # Not a daemon: the process waits for it at its end, for some hundredths of a second.
                self._thread = threading.Thread(target=self._run, name="live-tail")
                self._thread.start()

    def remove(self, wish: Wanted, viewer: Viewer) -> None:
        watch = self._watches.get(wish)
        if watch is not None:
            watch.viewers = tuple(one for one in watch.viewers if one is not viewer)

    def end_all(self, why: str) -> None:
        """End all viewers, as the server stops."""
        for viewer in self.viewers:
            viewer.end(why)

    # --- the thread

    def _run(self) -> None:
        try:
            while self._looks():
                begin = time.monotonic()
                count = 0
                for wish, watch in list(self._watches.items()):
                    count += len(watch.viewers)
                    self._look(wish, watch)
                took = time.monotonic() - begin
                time.sleep(max(LOOK_EVERY_S + EACH_VIEWER_S * count, took * REST))
        except Exception:
            logger.exception("console: live tail ended")
            with self._lock:
                self._thread = None
                left, self._watches = self._watches, {}
            self._say(self._end, left, "unavailable")

    def _looks(self) -> bool:
        """Close the tails without viewers. Return True if any tail is left; if not, the thread ends."""
        with self._lock:
            for wish, watch in list(self._watches.items()):
                if not watch.viewers:
                    del self._watches[wish]
                    watch.tail.close()
            if not self._watches:
                self._thread = None
            return bool(self._watches)

    def _look(self, wish: Wanted, watch: _Watch) -> None:
        try:
            runtime.running()  # raises if the engine has stopped: its tail would find nothing for ever
            look = watch.tail.look()
        except NotFound:
            self._drop(wish, watch, "gone")
        except (AdminError, runtime.EngineNotRunning, OSError):
            self._drop(wish, watch, "unavailable")
        else:
            if look is not None and look.passed:
                self._say(_hand_out, watch, frame_of(look), look)

    def _drop(self, wish: Wanted, watch: _Watch, why: str) -> None:
        with self._lock:
            self._watches.pop(wish, None)
        watch.tail.close()
        self._say(self._end, {wish: watch}, why)

    def _say(self, call: object, *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)  # type: ignore[arg-type]
        except RuntimeError:  # the loop has ended, and all its viewers with it
            pass

    @staticmethod
    def _end(watches: dict[Wanted, _Watch], why: str) -> None:
        for watch in watches.values():
            for viewer in watch.viewers:
                viewer.end(why)


def frame_of(look: TailLook) -> str:
    """Return one look as text, the same for all viewers of a wish."""
    return msgspec.json.encode(look).decode()


def _hand_out(watch: _Watch, text: str, look: TailLook) -> None:
    for viewer in watch.viewers:
        viewer.offer(text, look)


_tails: WeakKeyDictionary[asyncio.AbstractEventLoop, LiveTail] = WeakKeyDictionary()


def live_tail() -> LiveTail:
    """Return the live tail of the running event loop: the server has one loop, tests have many."""
    loop = asyncio.get_running_loop()
    found = _tails.get(loop)
    if found is None:
        found = _tails[loop] = LiveTail(loop)
    return found
