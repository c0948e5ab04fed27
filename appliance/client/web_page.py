"""Reads a web page within a time for the whole of it. Imported when one is read."""

from __future__ import annotations

import http.client
import io
import socket
import time
import urllib.request
from functools import partial
from typing import Any


def read_page(url: str, most_bytes: int, seconds: float) -> bytes:
    """Return the page, or its beginning. Redirections count within `seconds`, the resolution of names does not.

    Raises OSError, http.client.HTTPException and ValueError.
    """
    deadline = time.monotonic() + seconds
    # No proxy: as for Java's clients, this server is near.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Http(deadline), _Https(deadline))
    with opener.open(url, timeout=seconds) as answer:
        return bytes(answer.read(most_bytes))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


class _Raw(io.RawIOBase):
    """The bytes that a socket receives until a deadline, however slowly they come."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, deadline: float) -> None:
        self._sock = sock
        self._raw = raw
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._deadline))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(self, deadline: float, sock: socket.socket, **options: Any) -> None:
        super().__init__(sock, **options)
        self.fp = io.BufferedReader(_Raw(sock, self.fp.detach(), deadline))


def _prepared(connection: http.client.HTTPConnection, deadline: float) -> http.client.HTTPConnection:
    connection.timeout = _left(deadline)
    connection.response_class = partial(_Answer, deadline)  # type: ignore[assignment]
    return connection


class _InTime(urllib.request.AbstractHTTPHandler):
    """Opens connections until a deadline."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def do_open(self, http_class: Any, req: urllib.request.Request, **options: Any) -> Any:
        return super().do_open(lambda *at, **how: _prepared(http_class(*at, **how), self._deadline), req, **options)


class _Http(_InTime, urllib.request.HTTPHandler):
    pass


class _Https(_InTime, urllib.request.HTTPSHandler):
    pass
