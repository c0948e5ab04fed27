"""The I/O thread: one epoll loop that owns every socket and timer, and the end of each tick.

A tick is one round: the events that epoll reported, then calls from other threads, then due timers, then the tick hooks
(the store writes the staged records, the server sends the answers). Nothing else runs on this thread, so data used only
here needs no lock. Nothing on it may block, or take longer than some ms, since every peer waits meanwhile.
"""

from __future__ import annotations

import collections
import heapq
import itertools
import logging
import os
import resource
import selectors
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ..clock import Clock
from ..hotpath import LoopState
from ..service_thread import ServiceThread

logger = logging.getLogger(__name__)

READABLE = 1
WRITABLE = 4

#: One receive buffer serves all connections: frames are read where the kernel put them.
RECEIVE_BUFFER_BYTES = 512 * 1024


#: Amount that a wake-up adds to the eventfd's count, in the machine's byte order: in the other, it would soon be full.
_ONE = (1).to_bytes(8, sys.byteorder)


class Watcher(Protocol):
    """Receives a file descriptor's events from the loop."""

    def on_event(self, mask: int) -> None: ...


def _nothing() -> None: ...


class Timer:
    """One entry of the timer heap; `cancel()` on the loop's thread only."""

    __slots__ = ("callback", "cancelled", "period")

    def __init__(self, callback: Callable[[], None], period: float) -> None:
        self.callback = callback
        self.period = period
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        self.callback = _nothing  # the entry stays until it is due, but must not keep its callback alive


class EventLoop(ServiceThread, LoopState):
    """The thread `remoting-io`. Owns: epoll, timers, the receive buffer. Woken by: sockets, an eventfd, timers.

    name: of the thread, if it is another one.
    """

    def __init__(self, clock: Clock | None = None, name: str = "remoting-io") -> None:
        super().__init__(name)
        # Constant after construction.
        self.clock = clock or Clock()
        self.receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.receive_view = memoryview(self.receive_buffer)
        self._poller = _Poller()
        self._wake_fd, self._wake_write_fd = _wakeup_pipe()
        # Owned by the remoting-io thread.
        # At the number of its descriptor. Descriptors are small numbers, and a place takes less than a key.
        self._watchers: list[Watcher | None] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._sequence = itertools.count()
        self._tick_hooks: list[Callable[[], None]] = []
        self.wall_ms = self.clock.wall_ms()
        self.monotonic = self.clock.monotonic()
        # Any thread appends, this one pops.
        self._calls: collections.deque[Callable[[], None]] = collections.deque()
        self._ident = 0
        self._poller.register(self._wake_fd, READABLE)

    # --- from any thread

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` on this thread, in the current or the next tick. Thread-safe, keeps order."""
        self._calls.append(callback)
        if threading.get_ident() != self._ident:
            self.wake()

    def wake(self) -> None:
        fd = self._wake_write_fd
        if fd < 0:  # the loop has ended, and another file may have the number by now
            return
        try:
            os.write(fd, _ONE)
        except BlockingIOError:  # the count is full: the loop will wake
            pass

    def new_wake_fd(self) -> int | None:
        """Return a descriptor of the caller's own for `wake`: it outlives the loop. None if the loop has ended."""
        return os.dup(self._wake_write_fd) if self._wake_write_fd >= 0 else None

    def on_loop_thread(self) -> bool:
        return threading.get_ident() == self._ident

    def request_stop(self) -> None:
        super().request_stop()
        self.wake()

    # --- on the loop's thread, or before it starts

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._schedule(seconds, callback, 0.0)

    def call_every(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._schedule(seconds, callback, seconds)

    def _schedule(self, seconds: float, callback: Callable[[], None], period: float) -> Timer:
        timer = Timer(callback, period)
        heapq.heappush(self._timers, (self.clock.monotonic() + seconds, next(self._sequence), timer))
        return timer

    def at_tick_end(self, hook: Callable[[], None]) -> None:
        """Run `hook` at the end of every tick, in the order in which hooks were added."""
        self._tick_hooks = [*self._tick_hooks, hook]

    def put_first(self, *hooks: Callable[[], None]) -> None:
        """Like `at_tick_end`, for hooks that run before all others, in their order."""
        assert not any(hook in self._tick_hooks for hook in hooks), "a hook runs once a tick"
        self._tick_hooks = [*hooks, *self._tick_hooks]

    def drop_hooks(self, *hooks: Callable[[], None]) -> None:
        """Stop running these hooks."""
        self._tick_hooks = [hook for hook in self._tick_hooks if hook not in hooks]

    def watch(self, fd: int, mask: int, watcher: Watcher) -> None:
        watchers = self._watchers
        watchers.extend([None] * (fd + 1 - len(watchers)))
        assert watchers[fd] is None, "a watcher is dropped before its descriptor is closed"
        watchers[fd] = watcher
        self._poller.register(fd, mask)

    def rewatch(self, fd: int, mask: int) -> None:
        self._poller.modify(fd, mask)

    def unwatch(self, fd: int) -> None:
        if self._is_watched(fd):
            self._watchers[fd] = None
            self._poller.unregister(fd)

    def _is_watched(self, fd: int) -> bool:
        return 0 <= fd < len(self._watchers) and self._watchers[fd] is not None

    # --- the loop

    def run(self) -> None:
        self._ident = threading.get_ident()
        poll = self._poller.poll
        watchers = self._watchers
        wake_fd = self._wake_fd
        wall_ms, monotonic = self.clock.wall_ms, self.clock.monotonic
        while not self.stopped:
            events = poll(self._poll_timeout())
            self.wall_ms = wall_ms()
            self.monotonic = monotonic()
            for fd, mask in events:
                if fd == wake_fd:
                    os.read(wake_fd, 4096)
                    continue
                watcher = watchers[fd]
                if watcher is not None:
                    try:
                        watcher.on_event(mask)
                    except Exception:
                        logger.exception("%s: event handler failed fd=%d", self.name, fd)
            self._run_calls()
            self._run_timers()
            for hook in self._tick_hooks:
                try:
                    hook()
                except Exception:
                    logger.exception("%s: tick hook failed", self.name)

    def _poll_timeout(self) -> float:
        """Return the seconds until the next timer; -1 to wait for events only."""
        if self._calls:
            return 0.0
        if not self._timers:
            return -1.0
        return max(0.0, self._timers[0][0] - self.clock.monotonic())

    def _run_calls(self) -> None:
        calls = self._calls
        for _ in range(len(calls)):
            try:
                calls.popleft()()
            except Exception:
                logger.exception("%s: call failed", self.name)

    def _run_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.monotonic:
            due, _, timer = heapq.heappop(timers)
            if timer.cancelled:
                continue
            if timer.period:
                # After a late tick the timer continues from now, instead of catching up in a burst.
                following = max(due + timer.period, self.monotonic)
                heapq.heappush(timers, (following, next(self._sequence), timer))
            try:
                timer.callback()
            except Exception:
                logger.exception("%s: timer failed", self.name)

    def close(self) -> None:
        """Release the poller and the wake-up pipe, after the thread has ended."""
        write_fd, self._wake_write_fd = self._wake_write_fd, -1
        self._poller.close()
        os.close(self._wake_fd)
        if write_fd != self._wake_fd:
            os.close(write_fd)


def _wakeup_pipe() -> tuple[int, int]:
    """Return (read end, write end): one eventfd on Linux, a pipe elsewhere."""
    if hasattr(os, "eventfd"):
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return fd, fd
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    return read_fd, write_fd


if sys.platform == "linux":
    import select

    #: Time for which the thread asks again before it sleeps: a client that sends one message after the other is back
    #: sooner than a processor wakes up.
    LINGER_S = 60e-6
    #: Lingering goes on while it pays: each time that it found something adds 1, up to the first, each other one takes
    #: the second. Then it is tried again after so many waits.
    _MOST_CREDIT, _LOSS, _TRY_EACH = 32, 4, 256
    #: After so many times it looks whether another thread wanted the processor: more often than the second number, and
    #: lingering rests for the third.
    _LOOK_EACH, _FEW_SWITCHES, _REST = 256, 4, 4096

    def _switches() -> int:
        """Return how often another thread took the processor from this one."""
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw

    class _Poller:
        """epoll, level-triggered; masks are epoll's own."""

        def __init__(self, processors: int | None = None, now: Callable[[], float] = time.monotonic) -> None:
            """processors: of this process; None: as the kernel says."""
            self._epoll = select.epoll()
            self.register = self._epoll.register
            self.modify = self._epoll.modify
            self.close = self._epoll.close
            self._now = now
            # On one processor a client cannot send while this thread asks.
            self._growth = int((processors or len(os.sched_getaffinity(0))) > 1)
            self._credit = -_TRY_EACH
            self._lingered = 0
            self._switches = 0

        def poll(self, timeout: float) -> list[tuple[int, int]]:
            # An epoll time-out is whole milliseconds, rounded up by Python: a timer is never early.
            poll = self._epoll.poll
            if self._credit <= 0:
                self._credit += self._growth
                if self._credit > 0:
                    self._lingered, self._switches = 0, _switches()
                return poll(timeout, 1024)
            found = poll(0, 1024)
            return found if found or timeout == 0 else self._linger() or poll(timeout, 1024)

        def _linger(self) -> list[tuple[int, int]]:
            """Ask for LINGER_S; note whether that paid."""
            self._lingered += 1
            if self._lingered % _LOOK_EACH == 0 and self._is_in_the_way():
                self._credit = -_REST
                return []
            end = self._now() + LINGER_S
            while self._now() < end:
                if found := self._epoll.poll(0, 1024):
                    self._credit = min(self._credit + 1, _MOST_CREDIT)
                    return found
            self._credit -= _LOSS
            if self._credit <= 0:
                self._credit = -_TRY_EACH
            return []

        def _is_in_the_way(self) -> bool:
            """True if other threads took the processor from this one since the last look."""
            before, self._switches = self._switches, _switches()
            return self._switches - before > _FEW_SWITCHES

        def unregister(self, fd: int) -> None:
            self._epoll.unregister(fd)

else:  # macOS, for development (D14)

    class _Poller:  # type: ignore[no-redef]
        """The same calls on top of `selectors`."""

        def __init__(self) -> None:
            self._selector = selectors.DefaultSelector()
            self.close = self._selector.close

        @staticmethod
        def _events(mask: int) -> int:
            read = selectors.EVENT_READ if mask & READABLE else 0
            return read | (selectors.EVENT_WRITE if mask & WRITABLE else 0)

        def register(self, fd: int, mask: int) -> None:
            if mask:
                self._selector.register(fd, self._events(mask))

        def modify(self, fd: int, mask: int) -> None:
            self.unregister(fd)
            self.register(fd, mask)

        def unregister(self, fd: int) -> None:
            try:
                self._selector.unregister(fd)
            except KeyError:
                pass

        def poll(self, timeout: float) -> list[tuple[int, int]]:
            found = self._selector.select(None if timeout < 0 else timeout)
            return [
                (
                    key.fd,
                    (READABLE if got & selectors.EVENT_READ else 0) | (WRITABLE if got & selectors.EVENT_WRITE else 0),
                )
                for key, got in found
            ]
