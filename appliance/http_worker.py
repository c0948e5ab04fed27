"""The worker of the console's HTTP server, made after the fork: Django on an asyncio loop, with bounded connections."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from itertools import count
from typing import Any

from gunicorn.asgi import protocol
from gunicorn.workers.gasgi import ASGIWorker

from .c_memory import give_back_now
from .http_connections import BoundedProtocol, Connections, connections

# Time after the start when memory that its imports freed goes back; pages and sends are served already.
SETTLED_S = 2.0

# Seconds between two looks if the console's certificate has changed.
LOOK_S = 5

# gunicorn keeps the text of every chunk length up to 16 KiB, 2 MB, and makes missing ones when needed.
getattr(protocol, "_CHUNK_PREFIXES", {}).clear()


class EngineWorker(ASGIWorker):
    """gunicorn's ASGI worker, which announces itself and stops without delay."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Owned by the main thread.
        self.alive: bool = True
        self._serving: asyncio.Task[Any] | None = None
        self._shutting_down = False
        # Made when serving begins, since the engine has raised the limit of descriptors by then.
        self._connections: Connections

    def init_signals(self) -> None:
        """Do nothing: `Booting` took the signals before the engine started."""

    def stop_soon(self, number: int) -> None:
        """Begin to stop. Called in a signal's handler, at any time, also more than once."""
        if number != signal.SIGTERM:
            self._quick_shutdown = True
        if self.alive:
            self.alive = False
            if self._serving is not None:
                self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        """Wake the serving loop, which may sleep for a second: it takes a cancellation as the signal to end."""
        if self._serving is not None and self.servers and not self._shutting_down:
            self._serving.cancel()

    async def _serve(self) -> None:
        """Run gunicorn's serving loop, with bounded connections."""
        self._serving = asyncio.current_task()
        tasks = [asyncio.create_task(self._announce()), asyncio.create_task(self._give_back())]
        self._connections = connections()
        served = self._served()
        try:
            for listener in self.sockets:
                server = await self.loop.create_server(served, sock=listener.sock)
                self.servers.append(server)
            await self._wait_for_the_end()
            await self._shutdown()
        finally:
            for task in tasks:
                task.cancel()
            self._serving = None  # the loop closes next

    def _served(self) -> Callable[[], asyncio.Protocol]:
        """Return what makes the protocol of a new connection: with HTTPS, one that shakes hands first."""
        process = self.app.process
        if process.options.https is None:
            return lambda: BoundedProtocol(self, self._connections)
        from .https_connections import Handshake

        return lambda: Handshake(self, self._connections, lambda: process.certificate.context)

    async def _wait_for_the_end(self) -> None:
        try:
            looks = count()
            while self.alive and self.ppid == os.getppid():
                self.notify()
                if next(looks) % LOOK_S == 0 and self.app.process.options.https is not None:
                    await self.loop.run_in_executor(None, self.app.process.look_at_certificate)
                await asyncio.sleep(1.0)
        except asyncio.CancelledError:
            pass  # `_wake`

    async def _announce(self) -> None:
        while not self.servers:
            await asyncio.sleep(0.001)
        if self.alive:
            self.app.process.announce(self.app.http_port, self.app.setup_path)

    async def _give_back(self) -> None:
        await asyncio.sleep(SETTLED_S)
        await self.loop.run_in_executor(None, give_back_now)

    async def _shutdown(self) -> None:
        self._shutting_down = True
        for server in self.servers:
            server.close()
        self._connections.close_waiting()
        self._connections.close_sockets()
        await super()._shutdown()
