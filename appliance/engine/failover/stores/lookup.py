"""Addresses of a host name, in bounded time: the resolver has no time-out that a caller could set."""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
import time

#: (family, argument of `connect`).
Address = tuple[int, tuple[str | int, ...]]
#: After this time a name is looked up again: it may lead to another machine now.
FRESH_S = 30.0


class Lookup:
    """The addresses of one host and port. A slow lookup goes on in the thread `look-up-<host>`, and the addresses of
    the last one are used meanwhile; there is never more than one such thread."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._known: list[Address] = []
        self._known_at = 0.0
        self._found: queue.SimpleQueue[list[Address] | OSError] = queue.SimpleQueue()
        self._asked = False
        try:
            version = ipaddress.ip_address(host).version
        except ValueError:
            self._literal = False
        else:
            self._literal = True
            self._known = [(socket.AF_INET if version == 4 else socket.AF_INET6, (host, port))]

    def addresses(self, deadline: float) -> list[Address]:
        """Return the addresses. deadline: of time.monotonic(). Raises OSError if none is known in time."""
        if self._literal:
            return self._known
        if self._known and time.monotonic() - self._known_at < FRESH_S:
            return self._known
        if not self._asked:
            self._asked = True
            threading.Thread(target=self._look_up, name=f"look-up-{self._host}", daemon=True).start()
        try:
            # The known addresses are used while the resolver is slow.
            seconds = max(0.0, deadline - time.monotonic()) / (4 if self._known else 1)
            found = self._found.get(timeout=seconds)
        except queue.Empty:
            if self._known:
                return self._known
            raise TimeoutError(f"the name {self._host} was not found in time") from None
        self._asked = False
        if isinstance(found, OSError):
            if self._known:
                return self._known
            raise found
        self._known, self._known_at = found, time.monotonic()
        return found

    def _look_up(self) -> None:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._found.put([(family, address) for family, _, _, _, address in found[:8]])  # type: ignore[misc]
        except OSError as error:
            self._found.put(error)
        except UnicodeError as error:
            self._found.put(OSError(str(error)))
