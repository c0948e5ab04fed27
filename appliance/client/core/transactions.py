"""Transactions: how they end, and the brokers' checks. PURE.

A half message is stored where no consumer sees it, until a producer says that it is committed or rolled back. A broker
that got neither sends the half message to a connected producer of the group, which says how it ends.

Follows RocketMQ 5.3.3 `DefaultMQProducerImpl.endTransaction`, `checkTransactionState`. Differs: a commit and a rollback
are answered, so that one that did not arrive is known.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..errors import BadAnswer, BrokerAway
from ..message import MessageQueue, ReceivedMessage, SendResult
from ..wire import PRODUCER_GROUP, CorruptFile, RemotingCommand, ResponseCode, decode_offset_id, decode_record
from . import requests
from .answers import failure, number, refusal
from .directory import Directory
from .requests import HalfPlace
from .steps import Call, CallFailed, Steps, Tell

_STAYS = " The half message stays, and the broker asks `check` about it."


class Decision(enum.Enum):
    """How a transaction ends. UNKNOWN: not yet; the broker checks again later."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


@dataclass(frozen=True, slots=True)
class Half:
    """A stored half message, and whom to tell of it. address: of its broker; None: the master of `queue`'s broker.
    topic: the message's, or that which a check names."""

    group: str
    topic: str
    queue: MessageQueue
    place: HalfPlace
    address: str | None = None


def half_of(group: str, sent: SendResult) -> Half:
    """Return the half message of an answered send. Raises BadAnswer."""
    try:
        _, _, physical_offset = decode_offset_id(sent.offset_id)
    except ValueError as error:
        raise BadAnswer(
            f"The broker of {sent.queue} answered a half message without a proper msgId: {error}."
        ) from None
    place = HalfPlace(sent.message_id, sent.transaction_id or sent.message_id, sent.queue_offset, physical_offset)
    return Half(group, sent.queue.topic, sent.queue, place)


def half_of_check(address: str, question: RemotingCommand) -> tuple[Half, ReceivedMessage]:
    """Return the half message of a broker's check. Raises BadAnswer."""
    who, fields = f"broker at {address}", question.ext_fields
    try:
        record = decode_record(question.body)
    except CorruptFile as error:
        raise BadAnswer(f"{who} asked about a half message that cannot be read: {error}") from None
    message = ReceivedMessage(record, MessageQueue(record.topic, fields.get("bname", ""), record.queue_id))
    place = HalfPlace(
        message.message_id,
        fields.get("transactionId", message.message_id),
        number(question, "tranStateTableOffset", who),
        number(question, "commitLogOffset", who),
    )
    group = message.properties.get(PRODUCER_GROUP, "")
    return Half(group, fields.get("topic", record.topic), message.queue, place, address), message


def end(
    directory: Directory, half: Half, decision: Decision, deadline: float, remark: str | None = None
) -> Steps[None]:
    """Tell the broker the decision; UNKNOWN gets no answer. Raises BrokerAway, RequestTimeout, RequestRefused and
    BadAnswer: the broker goes on asking."""
    broker, place = half.queue.broker_name, half.place
    what = f"the {decision.name.lower()} of the transaction {place.transaction_id}"
    address = half.address or directory.master(half.queue)
    if address is None:
        raise BrokerAway(f"broker {broker} has no master in the route of {half.topic}, for {what}.{_STAYS}")
    request = requests.end_transaction(
        half.group, broker, half.topic, place, decision.value, remark, checked=half.address is not None
    )
    if decision is Decision.UNKNOWN:
        yield Tell(address, request, deadline)
        return
    answer = yield Call(address, request, deadline)
    who = f"broker {broker} at {address}"
    if isinstance(answer, CallFailed):
        raise failure(answer, who, what, _STAYS)
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(answer, who, what)
