"""The broker about itself: 26 GET_BROKER_CONFIG, 28 GET_BROKER_RUNTIME_INFO.

No figure is made up. What Apache reports of things this broker has none of (pools with queues before them, a transient
buffer pool, a timer wheel) is what it reports when they are empty; what is not measured is left out.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ...clock import Clock
from ...config import EngineConfig, broker_properties
from ...protocol.codes import VERSION, RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ..data_version import DataVersion

POOL = "admin"
VERSION_NAME = "V5_3_3"
_POOLS = ("send", "pull", "litePull", "query", "ack")


class RuntimeFigures(Protocol):
    """The measured part of 28."""

    def runtime_info(self) -> dict[str, str]: ...


class AdminBrokerProcessor:
    """Answers in the pool: figures of the disk may have to wait for it."""

    def __init__(
        self, config: EngineConfig, stats: RuntimeFigures, address: str | None = None, clock: Clock | None = None
    ) -> None:
        """address: "host:port" others are told; without it, what the configuration says."""
        # Constant after construction.
        self._config = config
        self._stats = stats
        self._address = address
        self._clock = clock or Clock()
        self._accepts_from = str(config.broker.start_accept_send_request_time_stamp)
        # Replaced whole by refresh(): (version, body) of 26.
        self._answer = (DataVersion(self._clock.wall_ms()), self._text())

    def refresh(self) -> None:
        """An option was changed; on the pool's thread."""
        self._answer = (self._answer[0].following(self._clock.wall_ms()), self._text())

    def _text(self) -> bytes:
        properties = broker_properties(self._config)
        if self._address is not None:
            host, _, port = self._address.rpartition(":")
            properties |= {"brokerIP1": host, "listenPort": port, "haListenPort": str(int(port) + 1)}
        return "".join(f"{name}={_one_line(properties[name])}\n" for name in sorted(properties)).encode()

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.GET_BROKER_CONFIG, self.handle_config)
        dispatcher.add(RequestCode.GET_BROKER_RUNTIME_INFO, self.handle_runtime_info, POOL)

    def handle_config(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """26: upstream's option names and the values in force, a line each, sorted."""
        version, text = self._answer
        ext = {"version": version.encode().decode()}
        return RemotingCommand.response(ResponseCode.SUCCESS, ext=ext, body=text)

    def handle_runtime_info(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """28: a KVTable; every value is text."""
        table = {
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": str(VERSION),
            "brokerActive": "true",
            "startAcceptSendRequestTimeStamp": self._accepts_from,
            **_nothing_waits(),
            **self._stats.runtime_info(),
        }
        return RemotingCommand.response(ResponseCode.SUCCESS, body=msgspec.json.encode({"table": table}))


def _nothing_waits() -> dict[str, str]:
    """Requests are handled as they are read: there is no queue before a handler, so nothing is in one."""
    found = {
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": "0",
        "dispatchMaxBuffer": "0",
        "pageCacheLockTimeMills": "0",  # no lock is held while a record is written
        "remainTransientStoreBufferNumbs": str((1 << 31) - 1),  # Apache's figure where there is no such pool
        "timerReadBehind": "0",
        "timerOffsetBehind": "0",
        "timerCongestNum": "0",
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
    }
    for pool in _POOLS:
        found[f"{pool}ThreadPoolQueueSize"] = "0"
        found[f"{pool}ThreadPoolQueueCapacity"] = "0"
        found[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return found


def _one_line(value: str) -> str:
    """A value as Java's properties hold it: a line's end or a backslash in it is escaped."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
