"""Wakes a thread that waits for a socket."""

from __future__ import annotations

import socket


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

    def close(self) -> None:
        self._in.close()
        self._out.close()
