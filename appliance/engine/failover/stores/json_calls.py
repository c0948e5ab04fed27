"""HTTP calls of one endpoint over a kept connection, limited in time and size whatever the other side does."""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any

from ...host_port import join_host_port
from .lookup import Lookup

#: A key of a set is a few hundred bytes, and members are few.
MAX_ANSWER_BYTES = 4 * 1024 * 1024


class CallFailed(Exception):
    """No answer; the text gives the reason. The request may have been done or not."""


class TooLong(CallFailed):
    """There is an answer, of more bytes than wanted."""


class Endpoint:
    """One address. A call that fails closes the connection, so that the next call does not meet a late answer to it."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        self.address = join_host_port(host, port)
        self._host = host
        self._port = port
        self._context = context
        self._lookup = Lookup(host, port)
        self._connection: http.client.HTTPConnection | None = None
        self._sock: _BoundedSocket | None = None

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def connect(self, deadline: float) -> None:
        """Connect anew. deadline: of time.monotonic(), everything included. Raises CallFailed."""
        self.close()
        try:
            sock = _connect(self._lookup.addresses(deadline), deadline)
        except OSError as error:
            raise CallFailed(f"{self.address}: {error}") from None
        try:
            if self._context is not None:
                sock.settimeout(_left(deadline))
                sock = self._context.wrap_socket(sock, server_hostname=self._host)
        except (OSError, ValueError) as error:
            sock.close()
            raise CallFailed(f"{self.address}: {error}") from None
        self._sock = _BoundedSocket(sock)
        self._connection = http.client.HTTPConnection(self._host, self._port)
        self._connection.auto_open = 0
        self._connection.sock = self._sock

    def post(self, path: str, body: bytes, headers: Mapping[str, str], deadline: float) -> tuple[int, bytes]:
        """Send JSON; return status and body of the answer; connects if needed. Raises CallFailed."""
        return self._call("POST", path, body, {"Content-Type": "application/json", **headers}, deadline)

    def get(
        self, path: str, headers: Mapping[str, str], deadline: float, most_bytes: int = MAX_ANSWER_BYTES
    ) -> tuple[int, bytes]:
        """Return status and body of the answer; connects if needed. Raises CallFailed."""
        return self._call("GET", path, None, headers, deadline, most_bytes)

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline: float,
        most_bytes: int = MAX_ANSWER_BYTES,
    ) -> tuple[int, bytes]:
        if self._connection is None:
            self.connect(deadline)
        connection, sock = self._connection, self._sock
        assert connection is not None
        assert sock is not None
        sock.deadline = deadline
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            answer = response.read(most_bytes + 1)
            if len(answer) > most_bytes:
                raise TooLong(f"{self.address} answers with more than {most_bytes} bytes")
            # A response closes itself at its end; the rest of an unfinished one would be read as the next answer.
            # Without a length the connection's end is the answer's.
            ended = response.isclosed() or (response.length is None and not response.chunked)
            if not ended or response.length:
                raise CallFailed(f"{self.address} broke off within its answer")
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise CallFailed(f"{self.address}: {str(error) or type(error).__name__}") from None
        except BaseException:
            self.close()
            raise
        if response.will_close:
            self.close()
        return response.status, answer

    def close(self) -> None:
        connection, self._connection, self._sock = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()


class _BoundedSocket:
    """The methods of a socket that http.client uses, with one deadline for all of them: a server that sends a byte at a
    time would never exceed a time-out of single calls."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.deadline = 0.0

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left(self.deadline))
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Received(self, self._sock.makefile("rb", buffering=0)))

    def wait_until_deadline(self) -> None:
        self._sock.settimeout(_left(self.deadline))

    def close(self) -> None:
        """Like a socket it stays open for files made of it: http.client closes it before the answer's body is read."""
        self._sock.close()


class _Received(io.RawIOBase):
    def __init__(self, sock: _BoundedSocket, raw: io.RawIOBase) -> None:
        self._sock = sock
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.wait_until_deadline()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _left(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("no answer in time")
    return seconds


def _connect(addresses: list[tuple[int, tuple[str | int, ...]]], deadline: float) -> socket.socket:
    """Connect to the first address that accepts; each of several gets an equal part of the remaining time. Raises
    OSError."""
    failed: OSError = ConnectionError("no address")
    for at, (family, address) in enumerate(addresses):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(_left(deadline) / (len(addresses) - at))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            sock.close()
            failed = error
    raise failed
