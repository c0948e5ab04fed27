"""The permissions that each request needs: resources, and actions of which any one is enough. PURE.

Every code that is served has exactly one line here; if one is missing, the engine does not start. A request is admitted
if on each resource that it needs any one of the actions is allowed. A missing name counts as the empty name, which only
a whole type holds.

A topic that begins with `%RETRY%` counts as its group: a user who may consume for a group may have its retries.
Differs from 5.3.3, where many codes need nothing and so are open to every user: docs/access-control.md has them all.
"""

from __future__ import annotations

from collections.abc import Callable

from ..broker.group_config import SubscriptionGroupConfig
from ..broker.heartbeat import (
    CheckClientBody,
    HeartbeatData,
    LockBody,
    decode_body,
)
from ..broker.processors.admin_groups import GroupList
from ..broker.processors.admin_topics import TopicList
from ..errors import RefusedRequest
from ..named_tuple import NamedTuple
from ..protocol.codes import RequestCode as C
from ..protocol.codes import ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.names import RETRY_PREFIX, TEMPLATE_TOPIC
from ..protocol.request_kinds import ROUTE_CODES
from .policies import ACTIONS, ALL, CLUSTER, CREATE, DELETE, GET, GROUP, PUB, SUB, TOPIC, UPDATE

#: Most topics in the list of one request: each is checked on remoting-io.
MOST_NAMED = 1000


class Asked(NamedTuple):
    """One resource, and the actions of which any one is enough."""

    kind: str
    name: str
    actions: frozenset[str]


#: (request, cluster name) -> the permissions that the request needs. Refuses with 1 a body that cannot be read.
Asks = Callable[[RemotingCommand, str], list[Asked]]


def of_topic(name: str, *actions: str) -> Asked:
    """Return the need for a topic; for a retry topic that for its group, where sending needs the same as consuming."""
    if name.startswith(RETRY_PREFIX):
        return of_group(name[len(RETRY_PREFIX) :], *(SUB if action == PUB else action for action in actions))
    return Asked(TOPIC, name, frozenset(actions))


def of_group(name: str, *actions: str) -> Asked:
    """Return the need for a consumer group."""
    return Asked(GROUP, name, frozenset(actions))


def _topic(field: str, *actions: str) -> Asks:
    return lambda request, _: [of_topic(request.ext_fields.get(field) or "", *actions)]


def _group(field: str, *actions: str) -> Asks:
    return lambda request, _: [of_group(request.ext_fields.get(field) or "", *actions)]


def _both(group: str, topic: str, *actions: str) -> Asks:
    """Need a group, and a topic unless it is the group's own retry topic."""

    def asks(request: RemotingCommand, _: str) -> list[Asked]:
        name = request.ext_fields.get(group) or ""
        return _consumes(name, [request.ext_fields.get(topic) or ""], *actions)

    return asks


def _consumes(group: str, topics: list[str], *actions: str) -> list[Asked]:
    return [of_group(group, *actions), *(of_topic(topic, *actions) for topic in topics)]


def _if_named(group: str, topic: str, *actions: str) -> Asks:
    """Need a group and a topic as `_both` does, but only those that are named; at least one must be."""

    def asks(request: RemotingCommand, _: str) -> list[Asked]:
        named = request.ext_fields.get(group), request.ext_fields.get(topic)
        found = [of(name, *actions) for of, name in zip((of_group, of_topic), named, strict=True) if name]
        return found or [of_group("", *actions)]

    return asks


def _cluster(*actions: str) -> Asks:
    return lambda _, cluster: [Asked(CLUSTER, cluster, frozenset(actions))]


def _heartbeat(request: RemotingCommand, _: str) -> list[Asked]:
    """Need what a client consumes. Its handler checks it part by part: what is allowed is registered."""
    asked = []
    for consumer in decode_body(request.body, HeartbeatData).consumer_data_set:
        topics = [data.topic for data in consumer.subscription_data_set]
        asked += _consumes(consumer.group_name, topics, SUB)
    return list(dict.fromkeys(asked))


def _unregister(request: RemotingCommand, _: str) -> list[Asked]:
    group = request.ext_fields.get("consumerGroup")
    return [of_group(group, SUB)] if group else []


def _locks(request: RemotingCommand, _: str) -> list[Asked]:
    body = decode_body(request.body, LockBody)
    return _consumes(body.consumer_group, sorted({queue.topic for queue in body.mq_set}), SUB)


def _checked_client(request: RemotingCommand, _: str) -> list[Asked]:
    body = decode_body(request.body, CheckClientBody)
    data = body.subscription_data
    return _consumes(body.group, [] if data is None else [data.topic], SUB)


def _topics_listed(request: RemotingCommand, _: str) -> list[Asked]:
    listed = decode_body(request.body, TopicList).topic_config_list
    return [of_topic(config.topic_name, CREATE, UPDATE) for config in listed] or [of_topic("", CREATE)]


def _group_described(request: RemotingCommand, _: str) -> list[Asked]:
    return [of_group(decode_body(request.body, SubscriptionGroupConfig).group_name, CREATE, UPDATE)]


def _groups_listed(request: RemotingCommand, _: str) -> list[Asked]:
    listed = decode_body(request.body, GroupList).group_config_list
    return [of_group(config.group_name, CREATE, UPDATE) for config in listed] or [of_group("", CREATE)]


def _consume_stats(request: RemotingCommand, _: str) -> list[Asked]:
    fields = request.ext_fields
    named = dict.fromkeys((fields.get("topicList") or fields.get("topic") or "").split(";"))
    if len(named) > MOST_NAMED:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"topicList names {len(named)} topics, at most {MOST_NAMED}")
    return _consumes(fields.get("consumerGroup") or "", [topic for topic in named if topic], GET)


def _cloned(request: RemotingCommand, _: str) -> list[Asked]:
    fields = request.ext_fields
    topic = fields.get("topic")
    asked = [of_group(fields.get("srcGroup") or "", GET), of_group(fields.get("destGroup") or "", UPDATE)]
    return [*asked, of_topic(topic, UPDATE)] if topic else asked


def _nothing(request: RemotingCommand, _: str) -> list[Asked]:
    """Need nothing here: the handler checks when it has the record, or leaves out what the user may not see
    (`RemotingCommand.caller`)."""
    return []


def _route(request: RemotingCommand, _: str) -> list[Asked]:
    """Need any right on the topic. Producers ask for the template's route for a topic that is not there yet, which
    tells nothing of other topics."""
    topic = request.ext_fields.get("topic") or ""
    return [] if topic == TEMPLATE_TOPIC else [of_topic(topic, *(action for action in ACTIONS if action != ALL))]


#: Only for Super users: others could give themselves any right with these codes.
SUPER: Asks = lambda _, cluster: []  # noqa: E731  a mark, told apart by identity

_SENDS = _topic("topic", PUB)
_SHORT_SENDS = _topic("b", PUB)
_READS_TOPIC = _topic("topic", SUB, GET)

#: Codes whose handlers do what is allowed of a request, and refuse the rest (`RemotingCommand.caller`).
IN_PARTS = frozenset((C.HEART_BEAT,))
#: Codes whose handlers check the topic of the record that a request names, once it is read.
BY_RECORD = frozenset((C.VIEW_MESSAGE_BY_ID, C.CONSUMER_SEND_MSG_BACK, C.END_TRANSACTION, C.CONSUME_MESSAGE_DIRECTLY))

ASKS: dict[int, Asks] = {
    C.SEND_MESSAGE: _SENDS,
    C.SEND_REPLY_MESSAGE: _SENDS,
    C.SEND_MESSAGE_V2: _SHORT_SENDS,
    C.SEND_BATCH_MESSAGE: _SHORT_SENDS,
    C.SEND_REPLY_MESSAGE_V2: _SHORT_SENDS,
    C.RECALL_MESSAGE: _SENDS,
    C.END_TRANSACTION: _nothing,
    C.PULL_MESSAGE: _both("consumerGroup", "topic", SUB),
    C.LITE_PULL_MESSAGE: _both("consumerGroup", "topic", SUB),
    C.CONSUMER_SEND_MSG_BACK: _group("group", SUB),
    C.VIEW_MESSAGE_BY_ID: _nothing,
    C.QUERY_MESSAGE: _READS_TOPIC,
    C.HEART_BEAT: _heartbeat,
    C.UNREGISTER_CLIENT: _unregister,
    C.CHECK_CLIENT_CONFIG: _checked_client,
    C.GET_CONSUMER_LIST_BY_GROUP: _group("consumerGroup", SUB, GET),
    C.QUERY_CONSUMER_OFFSET: _both("consumerGroup", "topic", SUB, GET),
    C.UPDATE_CONSUMER_OFFSET: _both("consumerGroup", "topic", SUB, UPDATE),
    C.LOCK_BATCH_MQ: _locks,
    C.UNLOCK_BATCH_MQ: _locks,
    C.SEARCH_OFFSET_BY_TIMESTAMP: _READS_TOPIC,
    C.GET_MAX_OFFSET: _READS_TOPIC,
    C.GET_MIN_OFFSET: _READS_TOPIC,
    C.GET_EARLIEST_MSG_STORETIME: _READS_TOPIC,
    C.UPDATE_AND_CREATE_TOPIC: _topic("topic", CREATE, UPDATE),
    C.UPDATE_AND_CREATE_TOPIC_LIST: _topics_listed,
    C.DELETE_TOPIC_IN_BROKER: _topic("topic", DELETE),
    C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group_described,
    C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _groups_listed,
    C.DELETE_SUBSCRIPTIONGROUP: _group("groupName", DELETE),
    C.INVOKE_BROKER_TO_RESET_OFFSET: _both("group", "topic", UPDATE),
    C.CLONE_GROUP_OFFSET: _cloned,
    C.CONSUME_MESSAGE_DIRECTLY: _group("consumerGroup", UPDATE),
    C.RESUME_CHECK_HALF_MESSAGE: SUPER,
    C.GET_TOPIC_STATS_INFO: _topic("topic", GET),
    C.GET_ALL_TOPIC_CONFIG: _nothing,
    C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _nothing,
    C.GET_TOPIC_CONFIG: _topic("topic", GET),
    C.QUERY_TOPIC_CONSUME_BY_WHO: _topic("topic", GET),
    C.GET_SUBSCRIPTIONGROUP_CONFIG: _group("group", GET),
    C.GET_CONSUMER_CONNECTION_LIST: _group("consumerGroup", GET),
    C.GET_CONSUMER_RUNNING_INFO: _group("consumerGroup", GET),
    C.QUERY_TOPICS_BY_CONSUMER: _group("group", GET),
    C.GET_CONSUME_STATS: _consume_stats,
    C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _both("group", "topic", GET),
    C.QUERY_CONSUME_TIME_SPAN: _both("group", "topic", GET),
    C.QUERY_CONSUME_QUEUE: _if_named("consumerGroup", "topic", GET),
    C.QUERY_SUBSCRIPTION_BY_CONSUMER: _both("group", "topic", GET),
    **dict.fromkeys(
        (
            C.ROCKETBOX_TOPIC_PLACES,
            C.GET_BROKER_CONFIG,
            C.GET_BROKER_RUNTIME_INFO,
            C.GET_BROKER_HA_STATUS,
            C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            C.GET_ALL_CONSUMER_OFFSET,
            C.GET_ALL_DELAY_OFFSET,
            C.GET_ALL_MESSAGE_REQUEST_MODE,
            C.GET_TIMER_CHECK_POINT,
            C.GET_PRODUCER_CONNECTION_LIST,
            C.GET_ALL_PRODUCER_INFO,
            C.GET_BROKER_CONSUME_STATS,
            C.VIEW_BROKER_STATS_DATA,
            C.GET_NAMESRV_CONFIG,
            *ROUTE_CODES,
        ),
        _cluster(GET),
    ),
    C.GET_ROUTEINFO_BY_TOPIC: _route,
    **dict.fromkeys(
        (
            C.UPDATE_BROKER_CONFIG,
            C.CLEAN_EXPIRED_CONSUMEQUEUE,
            C.CLEAN_UNUSED_TOPIC,
            C.DELETE_EXPIRED_COMMITLOG,
            C.PUT_KV_CONFIG,
            C.DELETE_KV_CONFIG,
            C.WIPE_WRITE_PERM_OF_BROKER,
            C.ADD_WRITE_PERM_OF_BROKER,
            C.DELETE_TOPIC_IN_NAMESRV,
            C.UPDATE_NAMESRV_CONFIG,
            C.REGISTER_BROKER,
            C.UNREGISTER_BROKER,
            C.BROKER_HEARTBEAT,
            C.QUERY_DATA_VERSION,
            C.REGISTER_TOPIC_IN_NAMESRV,
        ),
        _cluster(UPDATE),
    ),
    **dict.fromkeys(
        (
            C.AUTH_CREATE_USER,
            C.AUTH_UPDATE_USER,
            C.AUTH_DELETE_USER,
            C.AUTH_GET_USER,
            C.AUTH_LIST_USER,
            C.AUTH_CREATE_ACL,
            C.AUTH_UPDATE_ACL,
            C.AUTH_DELETE_ACL,
            C.AUTH_GET_ACL,
            C.AUTH_LIST_ACL,
            C.ROCKETBOX_MEMBER,  # never asked: it is itself a proof
            C.ROCKETBOX_USERS,
        ),
        SUPER,
    ),
}


def asks_of(code: int) -> Asks:
    """Return the permissions that requests of this code need. Raises LookupError for a code that is not listed."""
    try:
        return ASKS[code]
    except KeyError:
        raise LookupError(f"request code {code} is served, but not listed in access/asked.py") from None
