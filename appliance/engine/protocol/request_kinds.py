"""The kind of each served request code: administration, client work, broker work, or reading. PURE.

    ADMIN    changes the broker or the name server on purpose: audited, and accepted only from loopback unless
             `--wire-admin` says otherwise (D22)
    CLIENT   work of producers and consumers, with its side effects: topics made by a send, offsets, locks
    BROKER   sent by brokers to a name server, from other machines
    READ     changes nothing

Every served code must be listed, once, or the engine does not start: whoever adds a request decides its kind here.
Kinds follow the actions of RocketMQ 5.3.3's `@RocketMQAction` (UPDATE, CREATE, DELETE: ADMIN; PUB, SUB: CLIENT; GET,
LIST: READ). Differs: 309 is SUB there and ADMIN here, since only tools send it, and it makes a consumer consume a
message again.
"""

from __future__ import annotations

from .codes import RequestCode as C

ADMIN = "admin"
CLIENT = "client"
BROKER = "broker"
READ = "read"

#: Codes that name servers get from clients and tools that do not sign, among them Apache's brokers of 4.9.
ROUTE_CODES = frozenset(
    (
        C.GET_ROUTEINFO_BY_TOPIC,
        C.GET_KV_CONFIG,
        C.GET_KVLIST_BY_NAMESPACE,
        C.GET_BROKER_MEMBER_GROUP,
        C.GET_BROKER_CLUSTER_INFO,
        C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        C.GET_TOPICS_BY_CLUSTER,
        C.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        C.GET_UNIT_TOPIC_LIST,
        C.GET_HAS_UNIT_SUB_TOPIC_LIST,
        C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    )
)

_CODES: dict[str, tuple[int, ...]] = {
    ADMIN: (
        C.UPDATE_AND_CREATE_TOPIC,
        C.UPDATE_AND_CREATE_TOPIC_LIST,
        C.DELETE_TOPIC_IN_BROKER,
        C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        C.DELETE_SUBSCRIPTIONGROUP,
        C.UPDATE_BROKER_CONFIG,
        C.INVOKE_BROKER_TO_RESET_OFFSET,
        C.CLONE_GROUP_OFFSET,
        C.CLEAN_EXPIRED_CONSUMEQUEUE,
        C.CLEAN_UNUSED_TOPIC,
        C.DELETE_EXPIRED_COMMITLOG,
        C.CONSUME_MESSAGE_DIRECTLY,
        C.RESUME_CHECK_HALF_MESSAGE,
        C.PUT_KV_CONFIG,
        C.DELETE_KV_CONFIG,
        C.WIPE_WRITE_PERM_OF_BROKER,
        C.ADD_WRITE_PERM_OF_BROKER,
        C.DELETE_TOPIC_IN_NAMESRV,
        C.UPDATE_NAMESRV_CONFIG,
        C.AUTH_CREATE_USER,
        C.AUTH_UPDATE_USER,
        C.AUTH_DELETE_USER,
        C.AUTH_CREATE_ACL,
        C.AUTH_UPDATE_ACL,
        C.AUTH_DELETE_ACL,
    ),
    CLIENT: (
        C.SEND_MESSAGE,
        C.SEND_MESSAGE_V2,
        C.SEND_BATCH_MESSAGE,
        C.SEND_REPLY_MESSAGE,
        C.SEND_REPLY_MESSAGE_V2,
        C.PULL_MESSAGE,
        C.LITE_PULL_MESSAGE,
        C.UPDATE_CONSUMER_OFFSET,
        C.HEART_BEAT,
        C.UNREGISTER_CLIENT,
        C.CONSUMER_SEND_MSG_BACK,
        C.END_TRANSACTION,
        C.RECALL_MESSAGE,
        C.LOCK_BATCH_MQ,
        C.UNLOCK_BATCH_MQ,
        C.CHECK_CLIENT_CONFIG,
    ),
    BROKER: (
        C.REGISTER_BROKER,
        C.UNREGISTER_BROKER,
        C.BROKER_HEARTBEAT,
        C.QUERY_DATA_VERSION,  # counts as a sign of life
        C.REGISTER_TOPIC_IN_NAMESRV,  # 5.x brokers with enableSingleTopicRegister
    ),
    READ: (
        C.QUERY_MESSAGE,
        C.VIEW_MESSAGE_BY_ID,
        C.QUERY_CONSUMER_OFFSET,
        C.GET_ALL_TOPIC_CONFIG,
        C.ROCKETBOX_TOPIC_PLACES,
        C.ROCKETBOX_MEMBER,
        C.ROCKETBOX_USERS,
        C.GET_TOPIC_CONFIG,
        C.GET_BROKER_CONFIG,
        C.GET_BROKER_RUNTIME_INFO,
        C.GET_BROKER_HA_STATUS,
        C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        C.SEARCH_OFFSET_BY_TIMESTAMP,
        C.GET_MAX_OFFSET,
        C.GET_MIN_OFFSET,
        C.GET_EARLIEST_MSG_STORETIME,
        C.GET_CONSUMER_LIST_BY_GROUP,
        C.GET_ALL_CONSUMER_OFFSET,
        C.GET_ALL_DELAY_OFFSET,
        C.GET_ALL_MESSAGE_REQUEST_MODE,
        C.GET_TIMER_CHECK_POINT,
        C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        C.GET_SUBSCRIPTIONGROUP_CONFIG,
        C.GET_TOPIC_STATS_INFO,
        C.GET_CONSUMER_CONNECTION_LIST,
        C.GET_PRODUCER_CONNECTION_LIST,
        C.GET_ALL_PRODUCER_INFO,
        C.GET_CONSUME_STATS,
        C.GET_BROKER_CONSUME_STATS,
        C.GET_CONSUMER_RUNNING_INFO,
        C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        C.QUERY_TOPIC_CONSUME_BY_WHO,
        C.QUERY_TOPICS_BY_CONSUMER,
        C.QUERY_SUBSCRIPTION_BY_CONSUMER,
        C.QUERY_CONSUME_TIME_SPAN,
        C.QUERY_CONSUME_QUEUE,
        C.VIEW_BROKER_STATS_DATA,
        *ROUTE_CODES,
        C.GET_NAMESRV_CONFIG,
        C.AUTH_GET_USER,
        C.AUTH_LIST_USER,
        C.AUTH_GET_ACL,
        C.AUTH_LIST_ACL,
    ),
}

KINDS: dict[int, str] = {code: kind for kind, codes in _CODES.items() for code in codes}
assert len(KINDS) == sum(map(len, _CODES.values())), "a request code is listed twice"


def kind_of(code: int) -> str:
    """Return ADMIN, CLIENT, BROKER or READ. Raises LookupError for a code that is not listed."""
    try:
        return KINDS[code]
    except KeyError:
        raise LookupError(f"request code {code} is served, but not listed in request_kinds.py") from None
