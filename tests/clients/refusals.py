"""A name server and a broker in front of the real ones that refuse, lose or repeat requests.

Each client reacts in its own way to a refused request, and a broker refuses some requests too rarely to wait for it.
One-way requests may be lost with their connection without any error.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Set
from types import TracebackType
from typing import Any

Json = dict[str, Any]


class Refusals:
    """Clients that ask `namesrv` find a broker that answers requests of the `refused` codes with 1, "as the test wants
    it", and passes everything else on, as often as `times` says of its header (default: once). refusals: the codes that
    were refused so far; tampered: the headers of what was passed on more or less than once."""

    def __init__(
        self, namesrv: str, broker: str, refused: Set[int] = frozenset(), times: Callable[[Json], int] = lambda _: 1
    ) -> None:
        self.refusals: list[int] = []
        self.tampered: list[Json] = []
        self._refused = refused
        self._times = times
        self._sockets: list[socket.socket] = []
        self._ended = False
        self.broker = self._listen(broker, {})
        self.namesrv = self._listen(namesrv, {broker.encode(): self.broker.encode()})

    def __enter__(self) -> Refusals:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ended = True
        for sock in self._sockets:
            end(sock)

    def _listen(self, behind: str, replaced: dict[bytes, bytes]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        self._sockets.append(listener)
        self._start(self._accept, listener, behind, replaced)
        return f"127.0.0.1:{listener.getsockname()[1]}"

    def _start(self, run: object, *arguments: object) -> None:
        threading.Thread(target=self._quietly, args=(run, *arguments), name="refusals", daemon=True).start()

    def _quietly(self, run: object, *arguments: object) -> None:
        """A connection that goes ends its threads; that is no news."""
        with contextlib.suppress(OSError, EOFError):
            run(*arguments)  # type: ignore[operator]

    def _accept(self, listener: socket.socket, behind: str, replaced: dict[bytes, bytes]) -> None:
        while not self._ended:
            client, _ = listener.accept()
            host, _, port = behind.rpartition(":")
            server = socket.create_connection((host, int(port)), timeout=60)
            server.settimeout(None)
            self._sockets += [client, server]
            lock = threading.Lock()  # two threads write to the client
            self._start(self._ask, client, server, lock)
            self._start(self._answer, client, server, lock, replaced)

    def _ask(self, client: socket.socket, server: socket.socket, lock: threading.Lock) -> None:
        try:
            while True:
                mark, header, body = read(client)
                asked = json.loads(header)
                if asked["code"] in self._refused and not asked["flag"] & 1:
                    self.refusals.append(asked["code"])
                    said = {"code": 1, "flag": 1, "opaque": asked["opaque"], "remark": "as the test wants it"}
                    answer = json.dumps({**said, "language": "JAVA", "version": 479}).encode()
                    with lock:
                        write(client, 0, answer, b"")
                else:
                    times = self._times(asked)
                    for _ in range(times):
                        write(server, mark, header, body)
                    if times != 1:
                        self.tampered.append(asked)
        finally:
            end(server)

    def _answer(
        self, client: socket.socket, server: socket.socket, lock: threading.Lock, replaced: dict[bytes, bytes]
    ) -> None:
        try:
            while True:
                mark, header, body = read(server)
                for old, new in replaced.items():
                    body = body.replace(old, new)
                with lock:
                    write(client, mark, header, body)
        finally:
            end(client)


def end(sock: socket.socket) -> None:
    """Close a connection at once, also if another thread waits for its bytes."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def read(sock: socket.socket) -> tuple[int, bytes, bytes]:
    """One frame: the codec's number, header, body."""
    (length,) = struct.unpack(">I", exactly(sock, 4))
    frame = exactly(sock, length)
    (marked,) = struct.unpack_from(">I", frame)
    size = marked & 0xFFFFFF
    return marked >> 24, frame[4 : 4 + size], frame[4 + size :]


def write(sock: socket.socket, mark: int, header: bytes, body: bytes) -> None:
    length = struct.pack(">II", 4 + len(header) + len(body), mark << 24 | len(header))
    sock.sendall(length + header + body)


def exactly(sock: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        more = sock.recv(size - len(received))
        if not more:
            raise EOFError
        received += more
    return bytes(received)
