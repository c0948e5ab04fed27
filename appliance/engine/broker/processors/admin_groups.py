"""Consumer groups for administrators: 200, 225 create or change; 207 delete; 201, 352 read.

Changes run in the pool "admin" and are answered when they are durable.
Texts: RocketMQ 5.3.3 `AdminBrokerProcessor`, as recorded.
"""

from __future__ import annotations

import msgspec

from ...errors import RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import optional_bool, require_str
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ..group_config import SubscriptionGroupConfig
from ..group_service import SubscriptionGroupService
from ..groups import SubscriptionGroupManager
from ..heartbeat import MAX_POOL_BODY_BYTES, decode_body

POOL = "admin"
#: Changes in the other one wait for members of a set that ask for the table.
TABLE_POOL = "query"


class GroupList(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """SubscriptionGroupList."""

    group_config_list: list[SubscriptionGroupConfig] = []


class AdminGroupsProcessor:
    """Changes run on the thread of the pool, one request after the other."""

    def __init__(self, groups: SubscriptionGroupManager, service: SubscriptionGroupService) -> None:
        # Constant after construction.
        self._groups = groups
        self._service = service

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self.handle_update, POOL)
        dispatcher.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, self.handle_update_list, POOL)
        dispatcher.add(RequestCode.DELETE_SUBSCRIPTIONGROUP, self.handle_delete, POOL)
        dispatcher.add(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.handle_get_all, TABLE_POOL)
        dispatcher.add(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, self.handle_get)

    def handle_update(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """200: create a group or replace its whole configuration."""
        self._service.change([decode_body(request.body, SubscriptionGroupConfig)], conn.remote_host)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_update_list(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """225: the same for several groups; the first that is refused ends it, and those before it stay changed."""
        configs = decode_body(request.body, GroupList, MAX_POOL_BODY_BYTES).group_config_list
        self._service.change(configs, conn.remote_host)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_delete(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """207: delete the configuration, and the offsets if asked to (`cleanOffset` of 5.x, `removeOffset` of 4.9)."""
        offsets = optional_bool(request, "cleanOffset", False) or optional_bool(request, "removeOffset", False)
        self._service.delete(require_str(request, "groupName"), conn.remote_host, offsets=offsets)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_get_all(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """201: the whole table, or what the caller may see of it."""
        groups, caller = self._groups, request.caller
        shown = None if caller is None else caller.seen("Group")
        forbidden = groups.forbidden if shown is None else {}  # it names groups and topics
        body = bytearray(b'{"dataVersion":%b,' % groups.data_version.encode())
        body += b'"forbiddenTable":' + msgspec.json.encode(forbidden)
        body += b',"subscriptionGroupTable":'
        body += groups.encode_table(shown)
        body += b"}"
        return RemotingCommand.response(ResponseCode.SUCCESS, body=bytes(body))

    def handle_get(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """352: one group, made if that is allowed; 26 if there is none then."""
        config = self._groups.find(require_str(request, "group"), conn.born_host)
        if config is None:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return RemotingCommand.response(ResponseCode.SUCCESS, body=msgspec.json.encode(config))
