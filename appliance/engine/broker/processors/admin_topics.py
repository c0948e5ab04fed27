"""Topics for administrators: 17, 18 create or change; 215 delete; 21, 351 read.

Changes run in the pool "admin" and are answered when they are durable and the name servers know them: tools ask for
the route right afterwards. Texts and order of checks: RocketMQ 5.3.3 `AdminBrokerProcessor`, as recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

import msgspec

from ...errors import RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.data_version import DataVersion
from ...protocol.fields import optional_bool, optional_int, require_int, require_str
from ...protocol.names import RETRY_PREFIX, topic_name_error
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ...store.message_store import MessageStore
from ..heartbeat import MAX_POOL_BODY_BYTES, decode_body
from ..offsets import ConsumerOffsetManager
from ..topic_config import TopicConfig, parse_attributes
from ..topics import TopicConfigManager

logger = logging.getLogger(__name__)

POOL = "admin"
FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class NameServers(Protocol):
    """What registration.py does for us."""

    def register_topics(self, changed: Iterable[TopicConfig]) -> dict[str, bool]:
        """Wait until the name servers that answer know these topics; who does. Raises nothing."""


class TopicList(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """CreateTopicListRequestBody."""

    topic_config_list: list[TopicConfig] = []


class AdminTopicsProcessor:
    """Everything but 351 runs on the thread of the pool, one request after the other."""

    def __init__(
        self,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        store: MessageStore,
        name_servers: NameServers,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._name_servers = name_servers

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.UPDATE_AND_CREATE_TOPIC, self.handle_update, POOL)
        dispatcher.add(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, self.handle_update_list, POOL)
        dispatcher.add(RequestCode.DELETE_TOPIC_IN_BROKER, self.handle_delete, POOL)
        dispatcher.add(RequestCode.GET_ALL_TOPIC_CONFIG, self.handle_get_all, POOL)
        dispatcher.add(RequestCode.GET_TOPIC_CONFIG, self.handle_get)

    # --- changing

    def handle_update(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """17: the whole configuration is replaced; attributes are changes of what is there."""
        ext = request.ext_fields
        topic = ext.get("topic") or ""
        self.check_name(topic)
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=require_int(request, "readQueueNums"),
            write_queue_nums=require_int(request, "writeQueueNums"),
            perm=require_int(request, "perm"),
            topic_filter_type=ext.get("topicFilterType") or FILTER_TYPES[0],
            topic_sys_flag=optional_int(request, "topicSysFlag", 0),
            order=optional_bool(request, "order", False),
            attributes=parse_attributes(ext.get("attributes") or ""),
        )
        self.change([config], conn.remote_host)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_update_list(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """18: several at once; all names are checked before the first change."""
        configs = decode_body(request.body, TopicList, MAX_POOL_BODY_BYTES).topic_config_list
        for config in configs:
            self.check_name(config.topic_name)
        self.change(configs, conn.remote_host)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def check_name(self, topic: str) -> None:
        """Refuse with 29 a name that is illegal or the system's."""
        error = topic_name_error(topic)
        if error is None and self._topics.is_system_topic(topic):
            error = f"The topic[{topic}] is conflict with system topic."
        if error is not None:
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, error)

    def change(self, configs: list[TopicConfig], by: str) -> dict[str, bool]:
        """Create or replace topics whose names were checked, on the pool's thread; which name servers know them.

        Durable when it returns. attributes are changes. by: who asked, for the log.
        """
        for config in configs:
            if config.topic_filter_type not in FILTER_TYPES:
                raise RefusedRequest(
                    ResponseCode.SYSTEM_ERROR, f"No enum constant TopicFilterType.{config.topic_filter_type[:64]}"
                )
            if config.attributes.get("+message.type") == "MIXED":
                raise RefusedRequest(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        ticket = 0
        changed = []
        for config in configs:
            last = self._topics.update(config)
            if last:
                ticket = last
                changed.append(config)
        logger.info("admin: %d of %d topics changed by=%s", len(changed), len(configs), by)
        if not changed:
            return {}
        self._topics.wait_durable(ticket)
        return self._name_servers.register_topics(changed)

    def handle_delete(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """215: configuration, offsets and queue files go; its records stay in the log until they expire.

        Also what a pop consumer of it left behind, as 5.3.3 does. Fine, too, when there is no such topic: what an
        interrupted deletion has left goes now. Nobody can create the topic again in between.
        """
        topic = request.ext_fields.get("topic") or ""
        if not topic.strip():
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self.delete(topic, conn.remote_host)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def delete(self, topic: str, by: str) -> None:
        """The same for the window, on the pool's thread."""
        self.check_name(topic)
        groups = self._offsets.groups_of(topic)
        names = [topic]
        for group in groups:
            for name in (f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"):
                if self._topics.get(name) is not None:
                    names.append(name)
        for name in names:
            with self._topics.deleting(name) as ticket:
                self._topics.wait_durable(ticket)
                self._forget(name)
        logger.info("admin: topics deleted %s by=%s", names, by)

    def _forget(self, topic: str) -> None:
        self._offsets.remove_topic(topic)
        try:
            self._offsets.persist()
            self._store.delete_topic(topic)
        except OSError as error:
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR, f"the topic is gone, not everything of it: {error}; try again"
            ) from None

    # --- reading

    def handle_get_all(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """21: the whole table; there are no static topics to map."""
        version = self._topics.data_version.encode()
        body = bytearray(b'{"dataVersion":%b,"mappingDataVersion":%b,' % (version, DataVersion().encode()))
        body += b'"topicConfigTable":'
        body += self._topics.encode_table()
        body += b',"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}'
        return RemotingCommand.response(ResponseCode.SUCCESS, body=bytes(body))

    def handle_get(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """351: one topic; 17 when there is none."""
        topic = require_str(request, "topic")
        config = self._topics.get(topic)
        if config is None:
            raise RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return RemotingCommand.response(ResponseCode.SUCCESS, body=msgspec.json.encode(config))
