"""Requests to the name server: checks the fields, reads or changes the tables, answers.

105 (routes), which every client sends every 30 s for each topic, is answered on the I/O thread. Everything else runs in
`pool-namesrv`, the one thread that changes the tables, and that may wait for a disk.

Follows RocketMQ 5.3.3 DefaultRequestProcessor and ClientRequestProcessor. Differs: a required field that is missing is
refused by its name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from zlib_ng import zlib_ng

from ..errors import RefusedRequest
from ..protocol.askers import reads_quoted_ids
from ..protocol.codes import NO_ROUTE, RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.data_version import KNOWS_TABLES, SAME_TABLE, DataVersion, SameTable
from ..protocol.fields import optional_bool, optional_int, optional_long, require_long, require_str
from .bounds import LONGEST_TIMEOUT_MS, check_key_value, check_name, check_topic
from .kv_config import ORDER_TOPIC_CONFIG, KVConfigManager
from .register_body import RegisterBody, TopicShape, peek_data_version, read_register_body
from .route_data import DEFAULT_TIMEOUT_MS, BrokerKey, Registration
from .route_info import RouteInfoManager
from .settings import NamesrvSettings

if TYPE_CHECKING:
    from ..remoting.connection import Connection
    from ..remoting.dispatcher import Dispatcher
    from .route_data import Peer

logger = logging.getLogger(__name__)

#: The pool whose thread changes the tables.
POOL = "namesrv"

#: Bits 0 and 1 of a topic's system flag.
UNIT, UNIT_SUB = 1, 2

#: No increment is as long as this, so such a body is a whole table. It is not read again if its version and length are
#: those of the last.
_WHOLE_TABLE_BYTES = 64 * 1024
#: `MixAll.ZONE_NAME`, `ZONE_MODE`: fields that a 5.x client adds to every request when its environment sets them.
_ZONE_NAME, _ZONE_MODE = "__ZONE_NAME", "__ZONE_MODE"

_I32 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]


class _QueueDataBody(msgspec.Struct):
    brokerName: str
    readQueueNums: _I32 = 0
    writeQueueNums: _I32 = 0
    perm: _I32 = 0
    topicSysFlag: _I32 = 0


class _RouteBody(msgspec.Struct):
    """TopicRouteData as 217 sends it: queues only."""

    queueDatas: list[_QueueDataBody] | None = None


#: One DataVersion, or the queues of one topic on some thousand brokers.
_SMALL_BODY_BYTES = 256 * 1024

_Body = TypeVar("_Body")


def _decode_small(request: RemotingCommand, kind: type[_Body]) -> _Body:
    """Decode the body as one small object; an empty body is `{}`. Raises RefusedRequest (1) for any other."""
    if len(request.body) > _SMALL_BODY_BYTES:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"a body of {len(request.body)} bytes")
    try:
        return msgspec.json.decode(request.body or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the body is not what {request.code} takes: {error}") from None


def _same_table(request: RemotingCommand) -> SameTable | None:
    """Return which table a RocketBox broker left out of its body, None if it did not leave it out."""
    text = request.ext_fields.get(SAME_TABLE)
    if text is None:
        return None
    try:
        return SameTable.decode(text)
    except ValueError as error:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"{SAME_TABLE} is not one: {error}") from None


def _told_version(request: RemotingCommand) -> DataVersion:
    try:
        return DataVersion.decode(_decode_small(request, dict[str, Any]))
    except ValueError as error:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the body is not what {request.code} takes: {error}") from None


def _success(ext: dict[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.response(ResponseCode.SUCCESS, ext=ext, body=body)


def _broker_key(request: RemotingCommand) -> BrokerKey:
    return BrokerKey(_name(request, "clusterName"), _name(request, "brokerAddr"))


def _name(request: RemotingCommand, field: str) -> str:
    """Return a required field that names a cluster, a broker or an address."""
    return check_name(field, require_str(request, field))


def _optional_name(request: RemotingCommand, field: str) -> str:
    """Return an optional field of that kind, "" without it."""
    text = request.ext_fields.get(field)
    return check_name(field, text) if text else ""


class NamesrvProcessor:
    """Handlers of the name server's port."""

    def __init__(self, routes: RouteInfoManager, kv: KVConfigManager, settings: NamesrvSettings) -> None:
        # Constant after construction.
        self._routes = routes
        self._kv = kv
        self._settings = settings

    def register(self, dispatcher: Dispatcher) -> None:
        """Add every code of the name server to its port's table."""
        code = RequestCode
        dispatcher.add(code.GET_ROUTEINFO_BY_TOPIC, self.handle_get_route)
        pooled: dict[int, Callable[[RemotingCommand, Connection], RemotingCommand]] = {
            code.PUT_KV_CONFIG: self.handle_put_kv,
            code.GET_KV_CONFIG: self.handle_get_kv,
            code.DELETE_KV_CONFIG: self.handle_delete_kv,
            code.GET_KVLIST_BY_NAMESPACE: self.handle_get_kv_namespace,
            code.REGISTER_BROKER: self.handle_register_broker,
            code.UNREGISTER_BROKER: self.handle_unregister_broker,
            code.REGISTER_TOPIC_IN_NAMESRV: self.handle_register_topic,
            code.QUERY_DATA_VERSION: self.handle_query_data_version,
            code.BROKER_HEARTBEAT: self.handle_broker_heartbeat,
            code.GET_BROKER_MEMBER_GROUP: self.handle_get_member_group,
            code.GET_BROKER_CLUSTER_INFO: self.handle_get_cluster_info,
            code.WIPE_WRITE_PERM_OF_BROKER: self.handle_wipe_write_perm,
            code.ADD_WRITE_PERM_OF_BROKER: self.handle_add_write_perm,
            code.DELETE_TOPIC_IN_NAMESRV: self.handle_delete_topic,
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.handle_all_topics,
            code.GET_TOPICS_BY_CLUSTER: self.handle_topics_by_cluster,
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.handle_system_topics,
            code.GET_UNIT_TOPIC_LIST: self.handle_unit_topics,
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: self.handle_unit_sub_topics,
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.handle_unit_sub_ununit_topics,
            code.UPDATE_NAMESRV_CONFIG: self.handle_update_config,
            code.GET_NAMESRV_CONFIG: self.handle_get_config,
        }
        for number, handler in pooled.items():
            dispatcher.add(number, handler, POOL)

    # --- routes

    def handle_get_route(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """105; on the I/O thread."""
        fields = request.ext_fields
        topic = fields.get("topic")
        settings = self._settings.current
        body = None
        if topic:
            zone = (
                fields.get(_ZONE_NAME) if _ZONE_MODE in fields and optional_bool(request, _ZONE_MODE, False) else None
            )
            order = self._kv.get(ORDER_TOPIC_CONFIG, topic) if settings.order_message_enable else None
            body = self._routes.route(
                topic,
                order_conf=order,
                zone=zone,
                acting_master=settings.support_acting_master,
                quoted=reads_quoted_ids(request.version, fields),
            )
        if body is None:
            return RemotingCommand.response(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE % (topic or "null"))
        return _success(body=body)

    def handle_get_cluster_info(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """106: all brokers, by cluster."""
        return _success(body=self._routes.cluster_info(reads_quoted_ids(request.version, request.ext_fields)))

    def handle_get_member_group(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """901: the addresses of one broker name."""
        cluster, name = require_str(request, "clusterName"), require_str(request, "brokerName")
        quoted = reads_quoted_ids(request.version, request.ext_fields)
        return _success(body=self._routes.member_group(cluster, name, quoted))

    # --- brokers

    def register_again(self, request: RemotingCommand) -> RemotingCommand:
        """103 without a connection: the one over which the broker is registered counts."""
        peer = self._routes.peer_of(_broker_key(request))
        if peer is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "register broker failed")
        return self.handle_register_broker(request, peer)

    def handle_register_broker(self, request: RemotingCommand, conn: Peer) -> RemotingCommand:
        """103: a broker registers, with all its topics or with those that changed."""
        body = request.body
        crc = optional_int(request, "bodyCrc32", 0)
        if crc and crc != zlib_ng.crc32(body) & 0x7FFFFFFF:
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        who = Registration(
            cluster=_name(request, "clusterName"),
            address=_name(request, "brokerAddr"),
            broker_name=_name(request, "brokerName"),
            broker_id=require_long(request, "brokerId"),
            ha_address=_optional_name(request, "haServerAddr"),
            zone=_optional_name(request, _ZONE_NAME) or None,
            timeout_ms=_timeout(request),
            enable_acting_master=_acting_master(request),
        )
        compressed = optional_bool(request, "compressed", False)
        same = _same_table(request)
        body_bytes = len(body) if same is None else same.size
        table = None
        if body_bytes > _WHOLE_TABLE_BYTES:
            version = peek_data_version(body, compressed) if same is None else same.version
            if version is not None and self._routes.is_unchanged(who, version, body_bytes):
                table = RegisterBody(version, {}, {})
        unchanged = table is not None
        if same is not None and not unchanged:
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "another table is known")
        if table is None:
            table = read_register_body(body, request.version, compressed)
        master = self._routes.register(
            who,
            table,
            conn,
            body_bytes=body_bytes,
            unchanged=unchanged,
            delete_missing=self._settings.current.delete_topic_with_broker_registration,
        )
        ext = {} if master is None else {"masterAddr": master.address, "haServerAddr": master.ha_address}
        if body_bytes > _WHOLE_TABLE_BYTES:
            ext[KNOWS_TABLES] = "true"
        orders = None
        if self._settings.current.return_order_topic_config_to_broker:
            orders = self._kv.encode_namespace(ORDER_TOPIC_CONFIG)
        return _success(ext, orders or b"")

    def handle_unregister_broker(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """104: a broker leaves. Apache's queues this and answers at once; here it is gone when the answer comes."""
        self._routes.unregister(_broker_key(request), _name(request, "brokerName"))
        return _success()

    def handle_query_data_version(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """322: has a broker's table changed since it registered? Counts as a sign of life."""
        key = _broker_key(request)
        told = _told_version(request)
        known = self._routes.data_version(key)
        self._routes.heard(key)
        changed = known != told
        return _success({"changed": "true" if changed else "false"}, b"" if known is None else known.encode())

    def handle_broker_heartbeat(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """904: a broker is alive."""
        self._routes.heard(_broker_key(request))
        return _success()

    def handle_register_topic(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """217: a broker adds one topic."""
        topic = check_topic(require_str(request, "topic"))
        route = _decode_small(request, _RouteBody)
        self._routes.register_topic(
            topic,
            [
                (
                    check_name("brokerName", q.brokerName),
                    TopicShape(q.readQueueNums, q.writeQueueNums, q.perm, q.topicSysFlag),
                )
                for q in route.queueDatas or ()
            ],
        )
        return _success()

    def handle_wipe_write_perm(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """205: every topic of this broker refuses messages until its table changes."""
        count = self._routes.change_perm(_name(request, "brokerName"), wipe_write=True)
        logger.info("namesrv: wiped write permission broker=%r topics=%d", request.ext_fields["brokerName"], count)
        return _success({"wipeTopicCount": str(count)})

    def handle_add_write_perm(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """327: every topic of this broker may be written and read."""
        count = self._routes.change_perm(_name(request, "brokerName"), wipe_write=False)
        logger.info("namesrv: added write permission broker=%r topics=%d", request.ext_fields["brokerName"], count)
        return _success({"addTopicCount": str(count)})

    # --- topics

    def handle_delete_topic(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """216: forget a topic, on all brokers or on those of one cluster."""
        self._routes.delete_topic(require_str(request, "topic"), request.ext_fields.get("clusterName"))
        return _success()

    def handle_all_topics(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """206: the names of all topics."""
        if not self._settings.current.enable_all_topic_list:
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "disable")
        return _success(body=self._routes.all_topics())

    def handle_topics_by_cluster(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """224: the names of one cluster's topics."""
        self._require_topic_lists()
        return _success(body=self._routes.topics_of_cluster(require_str(request, "cluster")))

    def handle_system_topics(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """304: the names of clusters and brokers, and the address of a broker that has the system topics."""
        return _success(body=self._routes.system_topics())

    def handle_unit_topics(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """311: topics with the unit flag."""
        self._require_topic_lists()
        return _success(body=self._routes.topics_by_flags(wanted=UNIT))

    def handle_unit_sub_topics(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """312: topics with the unit subscription flag."""
        self._require_topic_lists()
        return _success(body=self._routes.topics_by_flags(wanted=UNIT_SUB))

    def handle_unit_sub_ununit_topics(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """313: topics with the unit subscription flag and without the unit flag."""
        self._require_topic_lists()
        return _success(body=self._routes.topics_by_flags(wanted=UNIT_SUB, unwanted=UNIT))

    def _require_topic_lists(self) -> None:
        if not self._settings.current.enable_topic_list:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "disable")

    # --- key-values and settings

    def handle_put_kv(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """100: set a key-value."""
        fields = request.ext_fields
        namespace, key = fields.get("namespace"), fields.get("key")
        if not namespace or not key:
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        value = require_str(request, "value")
        check_key_value(namespace, key, value)
        self._kv.put(namespace, key, value)
        return _success()

    def handle_get_kv(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """101: one value."""
        namespace, key = require_str(request, "namespace"), require_str(request, "key")
        value = self._kv.get(namespace, key)
        if value is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            return RemotingCommand.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return _success({"value": value})

    def handle_delete_kv(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """102: remove a key-value."""
        self._kv.delete(require_str(request, "namespace"), require_str(request, "key"))
        return _success()

    def handle_get_kv_namespace(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """219: all keys and values of a namespace."""
        namespace = require_str(request, "namespace")
        body = self._kv.encode_namespace(namespace)
        if body is None:
            return RemotingCommand.response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return _success(body=body)

    def handle_update_config(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """318: change settings."""
        self._settings.update(request.body)
        return _success()

    def handle_get_config(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """319: all settings."""
        return _success(body=self._settings.properties_text())


def _timeout(request: RemotingCommand) -> int:
    """Return how long (ms) this broker may be silent. Brokers send it from 5.0 on."""
    timeout_ms = optional_long(request, "heartbeatTimeoutMillis", 0)
    return min(timeout_ms, LONGEST_TIMEOUT_MS) if timeout_ms > 0 else DEFAULT_TIMEOUT_MS


def _acting_master(request: RemotingCommand) -> bool | None:
    """True if a slave may stand in for the master; None for brokers that do not send the field (4.9)."""
    return optional_bool(request, "enableActingMaster", False) if request.ext_fields.get("enableActingMaster") else None
