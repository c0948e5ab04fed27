"""Wakes a thread that waits for a socket."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

from ..clock import Clock


class WakePipe:
    """Polled beside the socket, for POLLIN."""

    def __init__(self) -> None:
        """Raises OSError if there are no descriptors left."""
        self._in, self._out = socket.socketpair()
        for end in (self._in, self._out):
            end.setblocking(False)

    def fileno(self) -> int:
        return self._in.fileno()

    def wake(self) -> None:
        """Wake the thread that polls. Any thread."""
        try:
            self._out.send(b"w")
        except OSError:  # full, so it wakes; or gone
            pass

    def drain(self) -> None:
        """Empty the pipe; called by the thread that was woken."""
        try:
            self._in.recv(4096)
        except BlockingIOError:
            pass

    def wait_beside(
        self, sock: socket.socket, events: int, seconds: float, clock: Clock, stopped: Callable[[], bool]
    ) -> bool:
        """Wait for one of the poll events of a socket. False when the time is over, or `stopped` returns True: it is
        called after each wake."""
        poller = select.poll()
        poller.register(sock, events)
        poller.register(self, select.POLLIN)
        until = clock.monotonic() + seconds
        while not stopped():
            left = until - clock.monotonic()
            if left <= 0:
                return False
            if any(fd == sock.fileno() for fd, _ in poller.poll(left * 1000)):
                return True
            self.drain()
        return False

    def close(self) -> None:
        self._in.close()
        self._out.close()
