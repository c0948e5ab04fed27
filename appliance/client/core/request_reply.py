"""Requests that wait for a reply, and replies. PURE.

A request is a message that names its requester, by client id, and itself, by a correlation id. Who consumes it sends a
reply to a topic of the broker's cluster, and the broker pushes that to the requester, over the connection on which it
has the requester's heartbeats.

Follows RocketMQ 5.3.3 `DefaultMQProducerImpl.request`, `MessageUtil.createReplyMessage`,
`ClientRemotingProcessor.receiveReplyMessage`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import BadAnswer, InvalidMessage
from ..message import MessageQueue, ReceivedMessage
from ..wire import CLUSTER, REPLY_TO_CLIENT, Record, RemotingCommand, decode_properties, split_host_port
from .answers import number

_CORRELATION_ID = "CORRELATION_ID"
_TTL = "TTL"
_MSG_TYPE = "MSG_TYPE"


class Question:
    """A request whose reply is waited for. wake: called with the lock when there is one."""

    __slots__ = ("reply", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.reply: ReceivedMessage | None = None
        self.wake = wake


def of_request(correlation_id: str, client_id: str, seconds: float) -> dict[str, str]:
    """Return the properties that make a message a request."""
    return {_CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: client_id, _TTL: str(round(seconds * 1000))}


def reply_to(message: ReceivedMessage) -> tuple[str, dict[str, str]]:
    """Return (the topic, properties) of a reply to a message. Raises InvalidMessage if it is no request."""
    given = message.properties
    copied = {name: given[name] for name in (_CORRELATION_ID, REPLY_TO_CLIENT, _TTL) if name in given}
    if _CORRELATION_ID not in copied or REPLY_TO_CLIENT not in copied or CLUSTER not in given:
        raise InvalidMessage(f"{message!r} asks for no reply: it was not sent as a request.")
    return f"{given[CLUSTER]}_REPLY_TOPIC", {_MSG_TYPE: "reply", **copied}


def take_reply(questions: Mapping[str, Question], address: str, push: RemotingCommand) -> bool:
    """Give a pushed reply to the question that waits for it; False if none does. Raises BadAnswer."""
    who, fields = f"broker at {address}", push.ext_fields
    text = fields.get("properties", "")
    question = questions.get(decode_properties(text).get(_CORRELATION_ID, ""))
    if question is None or question.reply is not None:
        return False
    try:
        born, stored = (_host(fields[name]) for name in ("bornHost", "storeHost"))
    except (KeyError, ValueError) as error:
        raise BadAnswer(f"{who} pushed a reply without proper hosts: {error!r}.") from None
    queue_id = number(push, "queueId", who)
    record = Record(
        0,
        0,
        0,
        queue_id,
        number(push, "flag", who),
        0,
        0,
        number(push, "sysFlag", who),
        number(push, "bornTimestamp", who),
        born,
        number(push, "storeTimestamp", who),
        stored,
        number(push, "reconsumeTimes", who),
        0,
        bytes(push.body),
        fields.get("topic", ""),
        text,
    )
    question.reply = ReceivedMessage(record, MessageQueue(record.topic, "", queue_id))
    question.wake()
    return True


def _host(text: str) -> tuple[str, int]:
    host, port = split_host_port(text.rpartition("/")[2])
    return host, int(port)
