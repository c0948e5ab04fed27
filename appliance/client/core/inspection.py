"""Answers to the questions of brokers about a member of a group, for consoles and mqadmin. PURE.

    220  begin again at other offsets    221  where are you    307  how are you    309  handle this message now

Source: RocketMQ 5.3.3 `ClientRemotingProcessor`, `ConsumerRunningInfo`, `ConsumeMessageDirectlyResult`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import BadAnswer
from ..message import MessageQueue, ReceivedMessage
from ..wire import CorruptFile, RemotingCommand, ResponseCode, decode_record, read_json
from . import requests

#: Own limits: of the values in a table of offsets, and the text about a handler's end.
_MOST_VALUES = 100_000
_MOST_REMARK = 4000


def unknown_group(group: str) -> RemotingCommand:
    """Make the answer about a group of which this client has no such member, as Java words it."""
    answer = requests.request(ResponseCode.SYSTEM_ERROR, None)
    answer.remark = f"The Consumer Group <{group[:255]}> not exist in this consumer"
    return answer


def answer_with(body: str) -> RemotingCommand:
    return requests.request(ResponseCode.SUCCESS, None, body.encode(errors="replace"))


def read_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Decode the `offsetTable` of a 220. Raises BadAnswer."""
    try:
        table = read_json(body, max_values=_MOST_VALUES)["offsetTable"]
        found = {}
        for text, offset in table.items():
            place = read_json(text.encode())
            queue = MessageQueue(place["topic"], place["brokerName"], place["queueId"])
            if not isinstance(queue.topic, str) or not isinstance(queue.broker_name, str):
                raise TypeError(f"names {text[:300]}")
            for number in (queue.queue_id, offset):
                if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 63:
                    raise ValueError(f"number {number!r}")
            found[queue] = offset
        return found
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadAnswer(f"the offsets of a reset cannot be read: {error!r}") from None


def status(offsets: Mapping[MessageQueue, int]) -> str:
    """Return the body of an answer to 221."""
    return '{"consumerTable":{},"messageQueueTable":' + by_queue(offsets) + "}"


def by_queue(values: Mapping[MessageQueue, Any]) -> str:
    """Return an object whose names are objects, as Java's fastjson writes it."""
    return "{" + ",".join(f"{_place(queue)}:{_text(value)}" for queue, value in sorted(values.items())) + "}"


def _place(queue: MessageQueue) -> str:
    return _text({"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic})


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def queue_info(
    waiting: Iterable[ReceivedMessage], handled: Iterable[ReceivedMessage], committed: int | None, **more: Any
) -> dict[str, Any]:
    """Return Java's ProcessQueueInfo. waiting, handled: messages that are fetched and not done; the second are those of
    an ordered consumer's batch. more: fields that are not 0 and false."""
    cached, busy = list(waiting), list(handled)
    size = sum(len(message.record.body) for message in (*cached, *busy))
    found = {
        "cachedMsgCount": len(cached),
        "cachedMsgMaxOffset": max((one.queue_offset for one in cached), default=0),
        "cachedMsgMinOffset": min((one.queue_offset for one in cached), default=0),
        "cachedMsgSizeInMiB": size >> 20,
        "commitOffset": committed or 0,
        "droped": False,
        "lastConsumeTimestamp": 0,
        "lastLockTimestamp": 0,
        "lastPullTimestamp": 0,
        "locked": False,
        "transactionMsgCount": len(busy),
        "transactionMsgMaxOffset": max((one.queue_offset for one in busy), default=0),
        "transactionMsgMinOffset": min((one.queue_offset for one in busy), default=0),
        "tryUnlockTimes": 0,
    }
    return found | more


def running_info(
    queues: Mapping[MessageQueue, Any],
    properties: Mapping[str, str],
    rates: Mapping[str, Any],
    subscriptions: Iterable[requests.Subscription],
    stacks: str | None,
) -> str:
    """Return the body of an answer to 307."""
    parts = {} if stacks is None else {"jstack": _text(stacks)}
    parts |= {
        "mqPopTable": "{}",
        "mqTable": by_queue(queues),
        "properties": _text(properties),
        "statusTable": _text(rates),
        "subscriptionSet": _text([requests.subscription_data(one) for one in subscriptions]),
        "userConsumerInfo": "{}",
    }
    return "{" + ",".join(f'"{name}":{text}' for name, text in parts.items()) + "}"


def read_message(question: RemotingCommand) -> ReceivedMessage:
    """Decode the message of a 309. Raises BadAnswer."""
    try:
        record = decode_record(question.body)
    except CorruptFile as error:
        raise BadAnswer(f"the message to handle cannot be read: {error}") from None
    broker = question.ext_fields.get("brokerName", "")
    return ReceivedMessage(record, MessageQueue(record.topic, broker, record.queue_id))


def directly(result: str, remark: str, spent_ms: int, in_order: bool) -> RemotingCommand:
    """Make the answer to a 309. result: one of Java's CMResult."""
    body = {
        "autoCommit": True,
        "consumeResult": result,
        "order": in_order,
        "remark": remark[:_MOST_REMARK],
        "spentTimeMills": spent_ms,
    }
    return answer_with(_text(body))
