"""A WebSocket client of a few lines: what tests and load need, without a browser.

with WebSocket(server.ready["http"], "/messages/tail/?topic=t", {"Cookie": cookie}) as socket:
    socket.send("pause")
    frame = socket.next(5)      # a text; None when the server closed (`code`)
"""

from __future__ import annotations

import base64
import os
import socket
import struct
import time
from collections.abc import Mapping
from types import TracebackType

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


class Refused(Exception):
    """The server did not upgrade. status: of its answer."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class WebSocket:
    """One connection. origin: where the page says it is from; "" for none."""

    def __init__(
        self, address: str, path: str, headers: Mapping[str, str] | None = None, origin: str | None = None,
        receive_buffer: int = 0,
    ) -> None:  # fmt: skip
        host, _, port = address.rpartition(":")
        #: For a selector: what comes next is frames.
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect((host, int(port)))
        self._buffer = bytearray()
        #: Status code of the server's closing frame.
        self.code: int | None = None
        sent = {
            "Host": address, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Origin": f"http://{address}" if origin is None else origin,
        } | dict(headers or {})  # fmt: skip
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value), "", ""]
        self.socket.sendall("\r\n".join(lines).encode("latin-1"))
        while b"\r\n\r\n" not in self._buffer:
            data = self.socket.recv(4096)
            if not data:
                break
            self._buffer += data
        head, _, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        status = int(head.split(b" ")[1]) if head else 0
        if status != 101:
            self.socket.close()
            raise Refused(status)
        self._buffer = bytearray(rest)

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, text: str, opcode: int = TEXT) -> None:
        data, mask = text.encode(), os.urandom(4)
        assert len(data) < 1 << 16
        size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack("!H", len(data))
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        self.socket.sendall(bytes([0x80 | opcode]) + size + mask + masked)

    def next(self, timeout_s: float = 60.0) -> str | None:
        """The next text; None when the server has closed. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while True:
            frame = self._frame()
            if frame is None:
                self.socket.settimeout(max(0.001, deadline - time.monotonic()))
                try:
                    data = self.socket.recv(1 << 16)
                except TimeoutError:
                    raise TimeoutError(f"nothing came within {timeout_s} s") from None
                except ConnectionError:
                    data = b""
                if not data:
                    return None
                self._buffer += data
                continue
            opcode, payload = frame
            if opcode == TEXT:
                return payload.decode()
            if opcode == CLOSE:
                self.code = struct.unpack("!H", payload[:2])[0] if len(payload) >= 2 else None
                return None
            if opcode == PING:
                self.send(payload.decode(), PONG)

    def _frame(self) -> tuple[int, bytes] | None:
        data = self._buffer
        if len(data) < 2:
            return None
        size, at = data[1] & 0x7F, 2
        if size == 126:
            size, at = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, at = int.from_bytes(data[2:10], "big"), 10
        if len(data) < at + size:
            return None
        frame = data[0] & 0x0F, bytes(data[at : at + size])
        del data[: at + size]
        return frame
