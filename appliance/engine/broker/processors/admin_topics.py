"""Topics for administrators: 17, 18 create or change; 215 delete; 21, 351 read.

Changes run in the pool "admin". They are answered when they are durable and the name servers have them, because tools
ask for the route right afterwards. Texts and order of checks: RocketMQ 5.3.3 `AdminBrokerProcessor`, as recorded.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...errors import RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.data_version import DataVersion
from ...protocol.fields import optional_bool, optional_int, require_int, require_str
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ..heartbeat import MAX_POOL_BODY_BYTES, decode_body
from ..topic_attributes import AttributeChange, parse_attributes
from ..topic_config import TopicConfig
from ..topic_service import FILTER_TYPES, TopicChange, TopicService
from ..topics import TopicConfigManager

POOL = "admin"


class TopicList(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """CreateTopicListRequestBody."""

    topic_config_list: list[TopicConfig] = []


def _change_of(config: TopicConfig) -> TopicChange:
    """Return the change that 18 asks for: there the keys of a topic's attributes carry a sign."""
    return TopicChange(config, tuple(AttributeChange.from_wire(key, value) for key, value in config.attributes.items()))


class AdminTopicsProcessor:
    """Everything but 351 runs on the thread of the pool, one request after the other."""

    def __init__(self, topics: TopicConfigManager, service: TopicService) -> None:
        # Constant after construction.
        self._topics = topics
        self._service = service

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.UPDATE_AND_CREATE_TOPIC, self.handle_update, POOL)
        dispatcher.add(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, self.handle_update_list, POOL)
        dispatcher.add(RequestCode.DELETE_TOPIC_IN_BROKER, self.handle_delete, POOL)
        dispatcher.add(RequestCode.GET_ALL_TOPIC_CONFIG, self.handle_get_all, POOL)
        dispatcher.add(RequestCode.GET_TOPIC_CONFIG, self.handle_get)

    # --- changing

    def handle_update(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """17: create a topic or replace its whole configuration; `attributes` are changes to those that it has."""
        ext = request.ext_fields
        topic = ext.get("topic") or ""
        self._service.check_name(topic)
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=require_int(request, "readQueueNums"),
            write_queue_nums=require_int(request, "writeQueueNums"),
            perm=require_int(request, "perm"),
            topic_filter_type=ext.get("topicFilterType") or FILTER_TYPES[0],
            topic_sys_flag=optional_int(request, "topicSysFlag", 0),
            order=optional_bool(request, "order", False),
        )
        change = TopicChange(config, parse_attributes(ext.get("attributes") or ""))
        self._service.change([change], conn.remote_host)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_update_list(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """18: the same for several topics; all names are checked before the first change."""
        configs = decode_body(request.body, TopicList, MAX_POOL_BODY_BYTES).topic_config_list
        for config in configs:
            self._service.check_name(config.topic_name)
        self._service.change([_change_of(config) for config in configs], conn.remote_host)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_delete(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """215: see `TopicService.delete`; succeeds also if there is no such topic."""
        topic = request.ext_fields.get("topic") or ""
        if not topic.strip():
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._service.delete(topic, conn.remote_host)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    # --- reading

    def handle_get_all(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """21: the whole table, or what the caller may see of it."""
        shown = None if request.caller is None else request.caller.seen("Topic")
        return RemotingCommand.response(ResponseCode.SUCCESS, body=bytes(self.document(shown)))

    def document(self, shown: Callable[[str], bool] | None = None) -> bytearray:
        """Return the table as 21 answers it. shown: tells the topics that are in it; None: all. The mapping tables are
        empty: there are no static topics."""
        version = self._topics.data_version.encode()
        body = bytearray(b'{"dataVersion":%b,"mappingDataVersion":%b,' % (version, DataVersion().encode()))
        body += b'"topicConfigTable":'
        body += self._topics.encode_table(shown)
        body += b',"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}'
        return body

    def handle_get(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """351: one topic; 17 if there is none."""
        topic = require_str(request, "topic")
        config = self._topics.get(topic)
        if config is None:
            raise RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return RemotingCommand.response(ResponseCode.SUCCESS, body=msgspec.json.encode(config))
