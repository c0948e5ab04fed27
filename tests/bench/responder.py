"""A tiny broker for the generator's own tests: one thread a connection, every request parsed strictly.

A test gives it `answer(request) -> list of (delay-free) frames`; it keeps the generator's requests in `requests`.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

#: END_TRANSACTION.
ONE_WAY = (37,)


@dataclass(frozen=True)
class Request:
    code: int
    opaque: int
    fields: dict[str, str]
    body: bytes
    connection: socket.socket


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


def answer(request: Request, code: int = 0, body: bytes = b"", remark: str | None = None, **fields: Any) -> bytes:
    """Return an answer as a 5.3.3 broker writes it: every field a string."""
    header: dict[str, Any] = {"code": code, "extFields": {key: str(value) for key, value in fields.items()}, "flag": 1}
    header |= {"language": "JAVA", "opaque": request.opaque, "serializeTypeCurrentRPC": "JSON", "version": 479}
    if remark is not None:
        header["remark"] = remark
    return frame(header, body)


def record(queue_offset: int, body: bytes, queue_id: int = 0, topic: bytes = b"T") -> bytes:
    """Return a stored record with IPv4 hosts and no properties, CRC included."""
    rest = struct.pack(">iiiqqiq", zlib.crc32(body) & 0x7FFFFFFF, queue_id, 0, queue_offset, 0, 0, 1700000000000)
    rest += b"\x7f\0\0\1\0\0\x13\x88" + struct.pack(">q", 1700000000001) + b"\x7f\0\0\1\0\0*\x9f"
    rest += struct.pack(">iqi", 0, 0, len(body)) + body + bytes([len(topic)]) + topic + struct.pack(">h", 0)
    return struct.pack(">iI", 8 + len(rest), 0xDAA320A7) + rest


def message_id(position: int) -> str:
    return f"7F00000100002A9F{position:016X}"


class Responder:
    """Listens on a free port until the block ends; `failure` is the first request it could not parse, and why."""

    def __init__(self, handler: Callable[[Request], Iterable[bytes]]) -> None:
        self._handler = handler
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []
        self.requests: list[Request] = []
        self.failure: str | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Responder:
        self._start(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        for waiting in (self._listener, *self._connections):
            try:
                waiting.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            waiting.close()
        for thread in self._threads:
            thread.join(60)

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        try:
            while head := stream.read(4):
                (length,) = struct.unpack(">i", head)
                content = stream.read(length)
                (meta,) = struct.unpack_from(">I", content)
                assert meta >> 24 == 0, "not a JSON header"
                header = json.loads(content[4 : 4 + meta])
                assert header["flag"] == (2 if header["code"] in ONE_WAY else 0), header
                assert header["language"] == "JAVA", header
                fields = header["extFields"]
                assert all(isinstance(value, str) for value in fields.values()), header
                request = Request(header["code"], header["opaque"], fields, content[4 + meta :], connection)
                with self._lock:
                    self.requests.append(request)
                    frames = list(self._handler(request))
                for data in frames:
                    connection.sendall(data)
        except OSError:
            pass
        except Exception as fault:
            self.failure = self.failure or f"{type(fault).__name__}: {fault}"
            connection.close()
