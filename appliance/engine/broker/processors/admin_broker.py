"""Requests about the broker itself: 25, 26 configuration, 28 figures, 305 its own topics, 907 replication.

No figure is invented: each is measured (`stats.py`) or a constant in `NOT_HERE`. Figures that are not measured are
left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from ...clock import Clock
from ...config import EngineConfig, broker_properties
from ...config_file import parse_properties
from ...errors import AdminError, RefusedRequest, Unavailable
from ...host_port import bracketed, split_host_port
from ...protocol.codes import VERSION, RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.data_version import DataVersion
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ...upstream_options import BROKER as KNOWN_UPSTREAM
from ..heartbeat import MAX_BODY_BYTES

logger = logging.getLogger(__name__)

POOL = "admin"
VERSION_NAME = "V5_3_3"
_QUEUE_FIGURES = ("Size", "Capacity", "HeadWaitTimeMills")


#: Figures of parts that this broker does not have, with the values that Apache reports while such a part is empty.
#: Tools read them.
NOT_HERE = {
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "0",
    "dispatchMaxBuffer": "0",
    "pageCacheLockTimeMills": "0",
    "remainHowManyDataToCommit": "0 B",
    "remainTransientStoreBufferNumbs": str((1 << 31) - 1),
    "sendThreadPoolQueueCapacity": "0",
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    **{f"{pool}ThreadPoolQueue{figure}": "0" for pool in ("litePull", "ack") for figure in _QUEUE_FIGURES},
}

#: Options that 25 never changes. Source: `BrokerConfig.configBlackList`; the last one is ours: users of the wire cannot
#: switch off what checks them.
_BLACK_LIST = frozenset(("configBlackList", "brokerConfigPath", "rocketmqHome", "accessControl"))

#: Called with (upstream's name -> value, the client that asked). The values are in force and durable when it returns.
ChangeOptions = Callable[[Mapping[str, str], str], object]


class RuntimeFigures(Protocol):
    """The measured part of 28."""

    def runtime_info(self) -> dict[str, str]: ...


class SystemTopics(Protocol):
    """The names of the broker's own topics."""

    system_topics: frozenset[str]


def _no_options(values: Mapping[str, str], by: str) -> object:
    raise Unavailable("The broker is starting or stopping; try again.")


class AdminBrokerProcessor:
    """25, 28 and 907 run in the pool, because figures of the disk may have to wait for it; 26 and 305 run inline."""

    def __init__(
        self,
        config: EngineConfig,
        stats: RuntimeFigures,
        address: str | None = None,
        clock: Clock | None = None,
        topics: SystemTopics | None = None,
        change_options: ChangeOptions = _no_options,
    ) -> None:
        """address: "host:port" that the broker advertises; without it, 26 shows what the configuration says.
        change_options: changes options while the broker runs, and makes them durable."""
        # Constant after construction.
        self._stats = stats
        self._address = address
        self._clock = clock or Clock()
        self._system_topics = sorted(topics.system_topics) if topics is not None else []
        self._change_options = change_options
        self._accepts_from = str(config.broker.start_accept_send_request_time_stamp)
        # Replaced whole by take_options(): the configuration in force, and (version, body) of 26.
        self._config = config
        self._answer = (DataVersion(self._clock.wall_ms()), self._text())

    #: Returns the fields of 907 that differ from those of a master without slaves. Set before the first request.
    ha_status: Callable[[], dict[str, object]] = staticmethod(dict)

    def take_options(self, config: EngineConfig) -> None:
        """Show these options from now on. On the pool's thread."""
        self._config = config
        self._answer = (self._answer[0].following(self._clock.wall_ms()), self._text())

    def _text(self) -> bytes:
        properties = broker_properties(self._config)
        if self._address is not None:
            host, port = split_host_port(self._address)
            properties |= {
                "brokerIP1": bracketed(host),
                "listenPort": str(port),
                "haListenPort": str(self._config.store.ha_listen_port or port + 1),
            }
        return "".join(f"{name}={_one_line(properties[name])}\n" for name in sorted(properties)).encode()

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.UPDATE_BROKER_CONFIG, self.handle_update_config, POOL)
        dispatcher.add(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self.handle_system_topics)
        dispatcher.add(RequestCode.GET_BROKER_HA_STATUS, self.handle_ha_status, POOL)
        dispatcher.add(RequestCode.GET_BROKER_CONFIG, self.handle_config)
        dispatcher.add(RequestCode.GET_BROKER_RUNTIME_INFO, self.handle_runtime_info, POOL)

    def handle_config(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """26: upstream's option names with the values in force, one a line, sorted."""
        version, text = self._answer
        ext = {"version": version.encode().decode()}
        return RemotingCommand.response(ResponseCode.SUCCESS, ext=ext, body=text)

    def handle_update_config(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """25: change options that are read at each use, all or none; any other option is refused with the reason.

        Apache answers 0 to any name and any value, and takes over the options that it has. A value that is in force
        already changes nothing, and neither does a body without options.
        """
        if len(request.body) > MAX_BODY_BYTES:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the body has {len(request.body)} bytes")
        try:
            wanted = dict(parse_properties(request.body.decode()))
        except UnicodeDecodeError:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "the body is not UTF-8 text") from None
        if not _BLACK_LIST.isdisjoint(wanted):
            raise RefusedRequest(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        current = broker_properties(self._config)
        wanted = {name: value for name, value in wanted.items() if current.get(name) != value}
        for name in wanted:
            if name not in current and name in KNOWN_UPSTREAM:
                raise RefusedRequest(ResponseCode.NO_PERMISSION, f"{name} has no effect in this broker")
        if wanted:
            try:
                self._change_options(wanted, conn.remote_host)
            except AdminError as error:
                raise RefusedRequest(error.rocketmq_code, str(error)) from None
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_system_topics(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """305: the broker's own topics."""
        body = msgspec.json.encode({"topicList": self._system_topics})
        return RemotingCommand.response(ResponseCode.SUCCESS, body=body)

    def handle_ha_status(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """907: the slaves that follow this broker, or how far it follows its master."""
        nothing = {
            "lastReadTimestamp": 0,
            "lastWriteTimestamp": 0,
            "masterFlushOffset": 0,
            "maxOffset": 0,
            "transferredByteInSecond": 0,
        }
        found = {
            "haClientRuntimeInfo": nothing,
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": True,
            "masterCommitLogMaxOffset": int(self._stats.runtime_info().get("commitLogMaxOffset", 0)),
            **self.ha_status(),
        }
        return RemotingCommand.response(ResponseCode.SUCCESS, body=msgspec.json.encode(found))

    def handle_runtime_info(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """28: a KVTable; every value is text."""
        table = {
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": str(VERSION),
            "brokerActive": "true",
            "startAcceptSendRequestTimeStamp": self._accepts_from,
            **NOT_HERE,
            **self._stats.runtime_info(),
        }
        return RemotingCommand.response(ResponseCode.SUCCESS, body=msgspec.json.encode({"table": table}))


def _one_line(value: str) -> str:
    """Return a value as Java's properties hold it: line ends and backslashes are escaped."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
