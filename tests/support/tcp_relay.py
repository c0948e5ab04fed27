"""A TCP relay between a client and a server, with the faults of a network.

with TcpRelay(server.address) as relay:
    client = connect(relay.address)
    relay.delay_s = 0.2             # each direction
    relay.hold = True               # nothing goes either way, and nothing is closed
    relay.swallow_after = b"value"  # once the client has sent that, answers of its connection are thrown away
    relay.refuse = True             # connections are closed, new ones at once
    relay.cut_after = 300           # a connection ends behind so many bytes of the server's; None: it does not
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType


class TcpRelay:
    def __init__(self, target: str) -> None:
        self.target = target
        self.delay_s = 0.0
        self.hold = False
        self.swallow_after: tuple[bytes, ...] = ()
        self.cut_after: int | None = None
        self.swallowed = threading.Event()
        self._refuse = False
        self._closed = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    @property
    def refuse(self) -> bool:
        return self._refuse

    @refuse.setter
    def refuse(self, refuse: bool) -> None:
        self._refuse = refuse
        if refuse:
            self.cut()

    def cut(self) -> None:
        """Closes what is open."""
        for pair in self._pairs:
            for sock in pair:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def __enter__(self) -> TcpRelay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._refuse:
                client.close()
                continue
            host, _, port = self.target.rpartition(":")
            try:
                server = socket.create_connection((host, int(port)), 5)
            except OSError:
                client.close()
                continue
            for sock in (client, server):
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.append((client, server))
            found = threading.Event()
            threading.Thread(target=self._pump, args=(client, server, found, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, found, False), daemon=True).start()

    def _pump(self, source: socket.socket, drain: socket.socket, found: threading.Event, asks: bool) -> None:
        seen, passed = b"", 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self.delay_s:
                    time.sleep(self.delay_s)
                while self.hold and not self._closed:
                    time.sleep(0.005)
                if asks:
                    seen = (seen + data)[-(1 << 17) :]
                    if any(marker in seen for marker in self.swallow_after):
                        found.set()
                elif found.is_set():
                    self.swallowed.set()
                    continue
                if not asks and self.cut_after is not None and passed + len(data) > self.cut_after:
                    drain.sendall(data[: self.cut_after - passed])
                    break
                drain.sendall(data)
                passed += len(data)
        for sock in (source, drain):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
