"""The name server: its tables, its requests, and the scan for silent brokers, wired together.

It has one thread, the pool `namesrv`, and only that thread changes the tables: requests, closed connections and the
scan take turns there. Routes (105) are read on the I/O thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..clock import Clock
from ..config import EngineConfig
from ..errors import CallTimeout, CorruptFile, RefusedRequest, StartError
from ..protocol.codes import ResponseCode
from ..protocol.command import RemotingCommand
from ..remoting.dispatcher import Dispatcher, WorkerPool
from ..wire_gate import Act
from .kv_config import KVConfigManager
from .processor import POOL, NamesrvProcessor
from .route_info import RouteInfoManager
from .settings import NamesrvSettings
from .wire_acts import namesrv_acts

if TYPE_CHECKING:
    from ..remoting.connection import Connection
    from ..remoting.event_loop import EventLoop
    from ..remoting.server import RemotingServer

logger = logging.getLogger(__name__)


class NameServer:
    """Built before the loop starts. `register` fills the dispatch table of its port."""

    def __init__(self, config: EngineConfig, loop: EventLoop, server: RemotingServer, clock: Clock) -> None:
        """Read key-values and settings. Raises StartError when a file is there and cannot be read."""
        # Constant after construction.
        self.routes = RouteInfoManager(clock)
        self.kv = KVConfigManager(config.namesrv.kv_config_path)
        self.settings = NamesrvSettings(config)
        self._processor = NamesrvProcessor(self.routes, self.kv, self.settings)
        self._loop = loop
        self._scan_s = config.namesrv.scan_not_active_broker_interval_ms / 1000
        self._pool: WorkerPool | None = None  # set by register()
        try:
            self.kv.load()
            self.settings.load()
        except CorruptFile as error:
            raise StartError(f"{str(error).rstrip('.')}.") from None
        except OSError as error:
            raise StartError(f"The name server cannot use {error.filename}: {error.strerror}.") from None
        server.on_close(self._connection_closed)

    def wire_acts(self) -> dict[int, Act]:
        """Request code -> how the audit log shows that administrative request."""
        return namesrv_acts(self.routes, self.kv, self.settings)

    def register(self, dispatcher: Dispatcher) -> None:
        """Fill the dispatch table of the name server's port, before it listens."""
        self._processor.register(dispatcher)
        self._pool = dispatcher.pool(POOL)

    def register_again(self, request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Answer a 103 of this process's own broker without the wire; the connection of its last registration counts.

        Waits for the pool, which alone changes the tables. Raises CallTimeout.
        """
        answers: list[RemotingCommand] = []
        done = threading.Lock()  # a third of the price of an Event
        done.acquire()

        def register() -> None:
            try:
                answers.append(self._processor.register_again(request))
            except RefusedRequest as error:
                answers.append(RemotingCommand.response(error.code, error.remark))
            except Exception:
                logger.exception("namesrv: a registration failed")
                answers.append(RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "register broker failed"))
            finally:
                done.release()

        if not self._submit(register) or not done.acquire(timeout=timeout_ms / 1000):
            raise CallTimeout("the name server did not answer in time")
        return answers[0]

    def start(self) -> None:
        """Start looking for silent brokers. Any thread; the loop runs already."""
        self._loop.call_soon(self._begin_scans)

    def _begin_scans(self) -> None:
        self._loop.call_every(self._scan_s, self._scan)

    def stop(self) -> None:
        """Log the end. Nothing has to be saved: key-values and settings are saved when they change. The loop has
        ended."""
        logger.info("namesrv: stopped brokers=%d topics=%d", self.routes.broker_count, self.routes.topic_count)

    def _connection_closed(self, conn: Connection) -> None:
        """Have the brokers of a closed connection removed. On the I/O thread, for every connection of every port; most
        are clients', and cost the pool nothing."""
        if self.routes.carries_broker(conn) and not self._submit(lambda: self.routes.connection_closed(conn)):
            logger.warning("namesrv: queue full, the next scan removes the brokers of %s", conn.remote_host)

    def _scan(self) -> None:
        """On the I/O thread, each scanNotActiveBrokerInterval."""
        self._submit(self._expire)

    def _expire(self) -> None:
        for peer in self.routes.expire():
            peer.close()

    def _submit(self, job: Callable[[], None]) -> bool:
        return self._pool is not None and self._pool.submit(job)
