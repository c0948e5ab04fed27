"""The requests of a client, their fields in the order in which Java 5.3.3 writes them. PURE."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..message import MessageQueue
from ..wire import PERM_READ, PERM_WRITE, TEMPLATE_TOPIC, VERSION, RemotingCommand, RequestCode, ResponseCode, java_hash
from .routes import DEFAULT_QUEUES

#: Bits of a pull's sysFlag.
PULL_SUSPEND = 2
PULL_SUBSCRIPTION = 4
PULL_LITE = 16
#: First version whose brokers support 361, and times of delivery: V5_0_0.
LITE_PULL_SINCE = TIMERS_SINCE = 413

#: Most messages of one pull.
PULL_MOST = 32
#: Group of the producer that sends messages again for consumers.
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"

#: Bytes of a heartbeat above which it is sent in parts. RocketBox reads 256 KiB, some 600 groups; Apache sets no limit.
HEARTBEAT_BYTES = 128 * 1024

_MOST_PULL_BYTES = 2147483647
_PUSH_PULL_BYTES = 262144


@dataclass(frozen=True, slots=True)
class Subscription:
    """tags: "*", or tags with "||" between them. sql: a condition of SQL92 in their place. version: wall ms of the last
    change."""

    topic: str
    tags: str = "*"
    version: int = 0
    sql: str | None = None

    @property
    def kind(self) -> str:
        return "TAG" if self.sql is None else "SQL92"

    def tag_set(self) -> list[str]:
        """Return the tags, sorted; empty for all tags, and messages without one."""
        return (
            [] if self.sql is not None or self.tags == "*" else sorted({tag.strip() for tag in self.tags.split("||")})
        )


@dataclass(frozen=True, slots=True)
class Member:
    """What heartbeats say of a member of a group. begins: where it begins without an offset, in Java's words."""

    group: str
    subscriptions: tuple[Subscription, ...] = ()
    is_push: bool = False
    broadcasts: bool = False
    begins: str = "CONSUME_FROM_LAST_OFFSET"


@dataclass(frozen=True, slots=True)
class HalfPlace:
    """A half message's place: `half_offset` in the broker's queue of these, `physical_offset` in its log."""

    message_id: str
    transaction_id: str
    half_offset: int
    physical_offset: int


def request(code: int, fields: dict[str, Any] | None, body: bytes = b"") -> RemotingCommand:
    """Make a request. fields: None for one that Java writes without any."""
    texts = None if fields is None else {name: _text(value) for name, value in fields.items()}
    return RemotingCommand(code, version=VERSION, language="PYTHON", ext_fields=texts, body=body, bare=fields is None)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def route_of(topic: str) -> RemotingCommand:
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


def send(
    group: str,
    queue: MessageQueue,
    body: bytes,
    properties: str,
    sys_flag: int,
    born_ms: int,
    code: int = RequestCode.SEND_MESSAGE_V2,
) -> RemotingCommand:
    """Make a 310, or by `code` a 320 of a batch or a 325 of a reply. properties: the text of a message's properties."""
    batch = code == RequestCode.SEND_BATCH_MESSAGE
    fields = {
        "a": group, "b": queue.topic, "c": TEMPLATE_TOPIC, "d": DEFAULT_QUEUES, "e": queue.queue_id, "f": sys_flag,
        "g": born_ms, "h": 0, "i": properties, "j": 0, "k": False, "m": batch, "n": queue.broker_name,
    }  # fmt: skip
    return request(code, fields, body)


def end_transaction(
    group: str,
    broker: str,
    topic: str,
    place: HalfPlace,
    decision: int,
    remark: str | None = None,
    *,
    checked: bool,
) -> RemotingCommand:
    """Make a 37. topic: the message's, or that which a check names. decision: 0, 8 or 12. checked: True for the answer
    to a check."""
    fields = {
        "producerGroup": group, "bname": broker, "commitLogOffset": place.physical_offset, "topic": topic,
        "msgId": place.message_id, "tranStateTableOffset": place.half_offset, "commitOrRollback": decision,
        "transactionId": place.transaction_id, "fromTransactionCheck": checked,
    }  # fmt: skip
    made = request(RequestCode.END_TRANSACTION, fields)
    made.remark = remark
    return made


def recall(group: str, queue: MessageQueue, handle: str) -> RemotingCommand:
    """Make a 370. handle: from the answer to the send."""
    fields = {"producerGroup": group, "bname": queue.broker_name, "topic": queue.topic, "recallHandle": handle}
    return request(RequestCode.RECALL_MESSAGE, fields)


def heartbeat(client_id: str, producers: Iterable[str], consumers: Iterable[Member]) -> RemotingCommand:
    """Make a 34."""
    body = {
        "clientID": client_id,
        "consumerDataSet": [
            {
                "consumeFromWhere": one.begins,
                "consumeType": "CONSUME_PASSIVELY" if one.is_push else "CONSUME_ACTIVELY",
                "groupName": one.group,
                "messageModel": "BROADCASTING" if one.broadcasts else "CLUSTERING",
                "subscriptionDataSet": [subscription_data(subscription) for subscription in one.subscriptions],
                "unitMode": False,
            }
            for one in consumers
        ],
        "heartbeatFingerprint": 0,
        "producerDataSet": [{"groupName": group} for group in producers],
        "withoutSub": False,
    }
    return request(RequestCode.HEART_BEAT, {}, _json(body))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def subscription_data(subscription: Subscription) -> dict[str, Any]:
    tags = subscription.tag_set()
    return {
        "classFilterMode": False,
        "codeSet": [java_hash(tag) for tag in tags],
        "expressionType": subscription.kind,
        "subString": subscription.tags if subscription.sql is None else subscription.sql,
        "subVersion": subscription.version,
        "tagsSet": tags,
        "topic": subscription.topic,
    }


def check_filter(client_id: str, group: str, subscription: Subscription) -> RemotingCommand:
    """Make a 46, the question whether brokers take the condition of a subscription."""
    body = {"clientId": client_id, "group": group, "subscriptionData": subscription_data(subscription)}
    return request(RequestCode.CHECK_CLIENT_CONFIG, None, _json(body))


def unregister(client_id: str, *, producer: str | None = None, consumer: str | None = None) -> RemotingCommand:
    fields = {"producerGroup": producer, "clientID": client_id, "consumerGroup": consumer}
    return request(RequestCode.UNREGISTER_CLIENT, {name: value for name, value in fields.items() if value is not None})


def members(group: str) -> RemotingCommand:
    return request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})


def connections(group: str) -> RemotingCommand:
    """Make a 203, the question for the members of a group and what it subscribes to."""
    return request(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})


def committed_offset(group: str, queue: MessageQueue) -> RemotingCommand:
    fields = {"queueId": queue.queue_id, "bname": queue.broker_name, "topic": queue.topic, "consumerGroup": group}
    return request(RequestCode.QUERY_CONSUMER_OFFSET, fields)


def commit(group: str, queue: MessageQueue, offset: int) -> RemotingCommand:
    """Make a commit. offset: of the next message."""
    fields = {
        "queueId": queue.queue_id, "commitOffset": offset, "bname": queue.broker_name, "topic": queue.topic,
        "consumerGroup": group,
    }  # fmt: skip
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


def max_offset(queue: MessageQueue) -> RemotingCommand:
    fields = {"queueId": queue.queue_id, "committed": True, "bname": queue.broker_name, "topic": queue.topic}
    return request(RequestCode.GET_MAX_OFFSET, fields)


def min_offset(queue: MessageQueue) -> RemotingCommand:
    fields = {"queueId": queue.queue_id, "bname": queue.broker_name, "topic": queue.topic}
    return request(RequestCode.GET_MIN_OFFSET, fields)


def offset_at(queue: MessageQueue, wall_ms: int) -> RemotingCommand:
    fields = {
        "queueId": queue.queue_id, "boundaryType": "LOWER", "timestamp": wall_ms, "bname": queue.broker_name,
        "topic": queue.topic,
    }  # fmt: skip
    return request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)


def pull(
    group: str,
    queue: MessageQueue,
    offset: int,
    most: int,
    wait_ms: int,
    subscription: Subscription,
    *,
    broker_version: int,
) -> RemotingCommand:
    """Make a 361, or an 11 for a broker that does not support it or whose version is unknown. wait_ms: how long the
    broker may wait for a message; 0: not at all."""
    is_lite = broker_version >= LITE_PULL_SINCE
    fields = {
        "queueId": queue.queue_id,
        "commitOffset": 0,
        "subscription": subscription.tags if subscription.sql is None else subscription.sql,
        "suspendTimeoutMillis": wait_ms,
        "bname": queue.broker_name,
        "sysFlag": PULL_SUBSCRIPTION | PULL_LITE | (PULL_SUSPEND if wait_ms else 0),
        "expressionType": subscription.kind,
        "topic": queue.topic,
        "consumerGroup": group,
        "maxMsgNums": most,
        "queueOffset": offset,
        "subVersion": 0,
        "maxMsgBytes": _MOST_PULL_BYTES,
    }
    return request(RequestCode.LITE_PULL_MESSAGE if is_lite else RequestCode.PULL_MESSAGE, fields)


def push_pull(
    group: str, queue: MessageQueue, offset: int, wait_ms: int, subscription: Subscription
) -> RemotingCommand:
    """Make an 11 of a push consumer: brokers filter by the subscription of its heartbeats. wait_ms: as of `pull`."""
    fields = {
        "queueId": queue.queue_id,
        "maxMsgBytes": _PUSH_PULL_BYTES,
        "maxMsgNums": PULL_MOST,
        "sysFlag": PULL_SUSPEND,
        "suspendTimeoutMillis": wait_ms,
        "commitOffset": 0,
        "bname": queue.broker_name,
        "topic": queue.topic,
        "queueOffset": offset,
        "expressionType": subscription.kind,
        "subVersion": subscription.version,
        "consumerGroup": group,
    }
    return request(RequestCode.PULL_MESSAGE, fields)


def send_back(
    group: str, queue: MessageQueue, topic: str, physical_offset: int, message_id: str, level: int, most_retries: int
) -> RemotingCommand:
    """Make a 36: the broker stores a copy for the group, to be delivered later. queue, physical_offset: of the message.
    topic: the one it was sent to. level: of the delay; 0: by its attempts, -1: a dead letter. most_retries: a message
    that was delivered again so often becomes a dead letter."""
    fields = {
        "maxReconsumeTimes": most_retries, "offset": physical_offset, "bname": queue.broker_name, "delayLevel": level,
        "originTopic": topic, "originMsgId": message_id, "unitMode": False, "group": group,
    }  # fmt: skip
    return request(RequestCode.CONSUMER_SEND_MSG_BACK, fields)


def retry(
    queue: MessageQueue, body: bytes, properties: str, sys_flag: int, born_ms: int, times: int, most: int
) -> RemotingCommand:
    """Make the 310 of a message to its group's retry topic. times: how often it was delivered again, this one counted.
    most: as `most_retries` of `send_back`."""
    again = send(INNER_PRODUCER, queue, body, properties, sys_flag, born_ms)
    again.ext_fields |= {"j": str(times), "l": str(most)}
    return again


def lock(group: str, client_id: str, queues: Iterable[MessageQueue]) -> RemotingCommand:
    """Make a 41: the answer names the queues that this client has for itself from now on."""
    return request(RequestCode.LOCK_BATCH_MQ, {}, _locks(group, client_id, queues))


def unlock(group: str, client_id: str, queues: Iterable[MessageQueue]) -> RemotingCommand:
    return request(RequestCode.UNLOCK_BATCH_MQ, {}, _locks(group, client_id, queues))


def _locks(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    places = [{"brokerName": one.broker_name, "queueId": one.queue_id, "topic": one.topic} for one in queues]
    return _json({"clientId": client_id, "consumerGroup": group, "mqSet": places, "onlyThisBroker": False})


def cluster_info() -> RemotingCommand:
    return request(RequestCode.GET_BROKER_CLUSTER_INFO, None)


def all_topics() -> RemotingCommand:
    return request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None)


def brokers_own_topics() -> RemotingCommand:
    return request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None)


def all_groups() -> RemotingCommand:
    return request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None)


def create_topic(topic: str, queues: int) -> RemotingCommand:
    fields = {
        "topic": topic, "defaultTopic": TEMPLATE_TOPIC, "readQueueNums": queues, "writeQueueNums": queues,
        "perm": PERM_READ | PERM_WRITE, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
    }  # fmt: skip
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def delete_topic(topic: str) -> RemotingCommand:
    return request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})


def delete_route(topic: str) -> RemotingCommand:
    return request(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})


def consume_stats(group: str) -> RemotingCommand:
    return request(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group})


def reset_offsets(group: str, topic: str, wall_ms: int) -> RemotingCommand:
    """Make a 222, for all queues. wall_ms: -1 for their ends."""
    fields = {"topic": topic, "group": group, "timestamp": wall_ms, "isForce": True, "queueId": -1, "offset": -1}
    return request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)


def message_at(topic: str, physical_offset: int) -> RemotingCommand:
    return request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": physical_offset, "topic": topic})


def messages_of(topic: str, key: str, most: int, begin_ms: int, end_ms: int, *, is_unique: bool) -> RemotingCommand:
    """Make a 12. begin_ms, end_ms: of the store times. is_unique: `key` is a message's unique key."""
    fields = {
        "topic": topic, "key": key, "maxNum": most, "beginTimestamp": begin_ms, "endTimestamp": end_ms,
        "_UNIQUE_KEY_QUERY": is_unique,
    }  # fmt: skip
    return request(RequestCode.QUERY_MESSAGE, fields)


def not_supported(question: RemotingCommand) -> RemotingCommand:
    """Make the answer to a request of a server that this client does not support."""
    answer = request(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, None)
    answer.remark = f"the Python client does not support request code {question.code}"
    return answer
