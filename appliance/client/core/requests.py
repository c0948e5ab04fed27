"""The requests of a client, their fields in the order in which Java 5.3.3 writes them. PURE."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..message import MessageQueue
from ..wire import TEMPLATE_TOPIC, VERSION, RemotingCommand, RequestCode, ResponseCode, java_hash
from .routes import DEFAULT_QUEUES

#: Bits of a pull's sysFlag.
PULL_SUSPEND = 2
PULL_SUBSCRIPTION = 4
PULL_LITE = 16
#: First version whose brokers support 361, and times of delivery: V5_0_0.
LITE_PULL_SINCE = TIMERS_SINCE = 413

_MOST_PULL_BYTES = 2147483647


@dataclass(frozen=True, slots=True)
class Subscription:
    """tags: "*", or tags with "||" between them. version: wall ms of the last change."""

    topic: str
    tags: str = "*"
    version: int = 0

    def tag_set(self) -> list[str]:
        """Return the tags, sorted; empty for all tags, and messages without one."""
        return [] if self.tags == "*" else sorted({tag.strip() for tag in self.tags.split("||")})


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
    group: str, queue: MessageQueue, body: bytes, properties: str, sys_flag: int, born_ms: int, batch: bool = False
) -> RemotingCommand:
    """Make a 310, or a 320 for a batch. properties: the text of a message's properties."""
    fields = {
        "a": group, "b": queue.topic, "c": TEMPLATE_TOPIC, "d": DEFAULT_QUEUES, "e": queue.queue_id, "f": sys_flag,
        "g": born_ms, "h": 0, "i": properties, "j": 0, "k": False, "m": batch, "n": queue.broker_name,
    }  # fmt: skip
    return request(RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2, fields, body)


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


def heartbeat(
    client_id: str, producers: Iterable[str], consumers: Iterable[tuple[str, Iterable[Subscription]]]
) -> RemotingCommand:
    """Make a 34. consumers: pull consumers as (group, its subscriptions)."""
    body = {
        "clientID": client_id,
        "consumerDataSet": [
            {
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "consumeType": "CONSUME_ACTIVELY",
                "groupName": group,
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [_subscription_data(one) for one in subscriptions],
                "unitMode": False,
            }
            for group, subscriptions in consumers
        ],
        "heartbeatFingerprint": 0,
        "producerDataSet": [{"groupName": group} for group in producers],
        "withoutSub": False,
    }
    return request(RequestCode.HEART_BEAT, {}, json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode())


def _subscription_data(subscription: Subscription) -> dict[str, Any]:
    tags = subscription.tag_set()
    return {
        "classFilterMode": False,
        "codeSet": [java_hash(tag) for tag in tags],
        "expressionType": "TAG",
        "subString": subscription.tags,
        "subVersion": subscription.version,
        "tagsSet": tags,
        "topic": subscription.topic,
    }


def unregister(client_id: str, *, producer: str | None = None, consumer: str | None = None) -> RemotingCommand:
    fields = {"producerGroup": producer, "clientID": client_id, "consumerGroup": consumer}
    return request(RequestCode.UNREGISTER_CLIENT, {name: value for name, value in fields.items() if value is not None})


def members(group: str) -> RemotingCommand:
    return request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})


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
    group: str, queue: MessageQueue, offset: int, most: int, wait_ms: int, tags: str, *, broker_version: int
) -> RemotingCommand:
    """Make a 361, or an 11 for a broker that does not support it or whose version is unknown. wait_ms: how long the
    broker may wait for a message; 0: not at all."""
    is_lite = broker_version >= LITE_PULL_SINCE
    fields = {
        "queueId": queue.queue_id,
        "commitOffset": 0,
        "subscription": tags,
        "suspendTimeoutMillis": wait_ms,
        "bname": queue.broker_name,
        "sysFlag": PULL_SUBSCRIPTION | PULL_LITE | (PULL_SUSPEND if wait_ms else 0),
        "expressionType": "TAG",
        "topic": queue.topic,
        "consumerGroup": group,
        "maxMsgNums": most,
        "queueOffset": offset,
        "subVersion": 0,
        "maxMsgBytes": _MOST_PULL_BYTES,
    }
    return request(RequestCode.LITE_PULL_MESSAGE if is_lite else RequestCode.PULL_MESSAGE, fields)


def not_supported(question: RemotingCommand) -> RemotingCommand:
    """Make the answer to a request of a server that this client does not support."""
    answer = request(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, None)
    answer.remark = f"the Python client does not support request code {question.code}"
    return answer
