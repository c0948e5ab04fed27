"""A reverse proxy that shows a server below a path, as people put one before the console.

    with ReverseProxy("/mq/box", cut=True) as proxy:
        proxy.backend = "127.0.0.1:8080"
        browse(proxy.url)

It runs in a thread of its own. A request for an address outside its path is answered 404 and kept in `outside`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType


class ReverseProxy:
    """One request a connection. cut: the backend gets the path without the prefix, else as it came."""

    def __init__(self, prefix: str, cut: bool) -> None:
        self.prefix = prefix
        self.cut = cut
        self.backend = ""
        self.outside: list[str] = []
        self.seen: list[str] = []
        self._forwards: set[asyncio.Task[None]] = set()
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._open = threading.Event()

    @property
    def url(self) -> str:
        """The address as people type it, without a slash at its end."""
        return f"http://127.0.0.1:{self._port}{self.prefix}"

    def __enter__(self) -> ReverseProxy:
        self._thread.start()
        assert self._open.wait(60)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._open.set()
        await self._stop.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip("\r\n").split("\r\n")
            method, path, _ = first.split(" ")
            if not (path == self.prefix or path.startswith((self.prefix + "/", self.prefix + "?"))):
                self.outside.append(f"{method} {path}")
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                self.seen.append(f"{method} {path}")
                await self._pass_on(method, path, lines, reader, writer)
            await writer.drain()
        writer.close()

    @staticmethod
    async def _hand_over(reader: asyncio.StreamReader, before: asyncio.StreamWriter) -> None:
        """Pass on what the browser sends through a WebSocket."""
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                before.write(data)
                await before.drain()
        before.close()

    async def _pass_on(
        self, method: str, path: str, lines: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self.cut:
            path = path[len(self.prefix) :] or "/"
        size = next((int(line[15:]) for line in lines if line.lower().startswith("content-length:")), 0)
        upgrade = any(line.lower() == "upgrade: websocket" for line in lines)
        kept = [line for line in lines if not line.lower().startswith(("connection:", "x-forwarded-for:"))]
        kept += ["Connection: upgrade" if upgrade else "Connection: close"]
        kept += ["X-Forwarded-For: 192.0.2.7", "X-Forwarded-Prefix: /elsewhere"]
        host, _, port = self.backend.rpartition(":")
        behind, before = await asyncio.open_connection(host, int(port))
        try:
            before.write("\r\n".join([f"{method} {path} HTTP/1.1", *kept, "", ""]).encode("latin-1"))
            before.write(await reader.readexactly(size))
            if upgrade:
                forwards = asyncio.create_task(self._hand_over(reader, before))
                self._forwards.add(forwards)
                forwards.add_done_callback(self._forwards.discard)
            while data := await behind.read(1 << 16):  # the server closes after its answer; a stream goes on
                writer.write(data)
                await writer.drain()
        finally:
            before.close()
