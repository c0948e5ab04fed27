"""One send: chooses queues, makes attempts, interprets answers. PURE.

Follows RocketMQ 5.3.3 `DefaultMQProducerImpl.sendDefaultImpl`. Differs: while another broker has the topic, one attempt
may take at most half of the remaining time; a broker that cannot be reached is tried again after a pause if it is the
only one; codes 10 to 12 are errors, since the message is not as safe as the broker is configured to make it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import (
    BadAnswer,
    BrokerAway,
    ClientError,
    InvalidMessage,
    NotConnected,
    Refused,
    SendError,
    SendTimeout,
    StoredUnconfirmed,
    Unsupported,
)
from ..message import MessageQueue, SendResult
from ..wire import RemotingCommand, RequestCode, ResponseCode
from . import requests
from .answers import advice, code_text, failure, number, refusal
from .directory import Directory
from .selection import Faults, RoundRobin, queue_of_shard
from .steps import Call, CallFailed, Clock, Sleep, Steps, Tell

#: Codes after which another broker may store the message.
RETRIED = frozenset(
    (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.GO_AWAY,
    )
)
#: Codes for a message that is stored, but not as safely as the broker is configured to.
UNCONFIRMED = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "it was not synced to disk in time",
    ResponseCode.SLAVE_NOT_AVAILABLE: "no slave has it",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "no slave had it in time",
}

#: Own limit of topics whose queues are counted for their shards.
_MOST_COUNTED = 1000
#: Shortest time for an attempt while another broker is left to try.
_LEAST_ATTEMPT_S = 1.0
#: Pauses before the only broker is tried again after it could not be reached: it may be starting.
_PAUSES_S = (0.1, 0.5)


#: The queue of an attempt, when it began (monotonic), and what it came to.
FirstAttempt: TypeAlias = tuple[MessageQueue, float, RemotingCommand | CallFailed]


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message ready to be sent. properties: their text. shard, queue: determine its queue; such a send has one
    attempt. since: version of the oldest brokers that can take it, an ordinal of MQVersion. code: of the request: a
    message's, a batch's - several messages in one body - or a reply's."""

    group: str
    topic: str
    body: bytes
    properties: str
    sys_flag: int
    message_id: str
    shard: str | int | None = None
    queue: MessageQueue | None = None
    since: int = 0
    code: int = RequestCode.SEND_MESSAGE_V2


class Sending:
    """The state that all sends of a producer share. Guarded by the client's lock."""

    def __init__(
        self,
        directory: Directory,
        clock: Clock,
        faults: Faults,
        begin: int,
        retries: int,
        beat: Callable[[str], Steps[None]],
        accept_unconfirmed: bool = False,
    ) -> None:
        """begin: start of the round robin of queues. retries: attempts after the first. beat: sends a heartbeat to a
        broker, whose answer has its version. accept_unconfirmed: True if codes 10 to 12 are results."""
        self.directory = directory
        self.faults = faults
        self.clock = clock
        self._begin = begin
        self.retries = retries
        self._beat = beat
        self._accepts_unconfirmed = accept_unconfirmed
        self._in_turn: dict[str, RoundRobin] = {}
        #: Numbers of queues by which shards of topics were sent.
        self._of_shards: dict[str, int] = {}

    def turn_of(self, topic: str) -> RoundRobin:
        in_turn = self._in_turn.get(topic)
        if in_turn is None:
            in_turn = self._in_turn[topic] = RoundRobin(self._begin)
        return in_turn

    def queue_of(self, shard: str | int, queues: Sequence[MessageQueue]) -> MessageQueue:
        """Return the queue of a shard. Raises InvalidMessage."""
        topic, count = queues[0].topic, len(queues)
        before = self._of_shards.get(topic)
        if before != count:
            if before is not None:
                self.directory.note(
                    f"{topic} has {count} queues to send to, and had {before}: messages of one shard may go to another "
                    "queue than those before, and be handled before these"
                )
            if before is not None or len(self._of_shards) < _MOST_COUNTED:
                self._of_shards[topic] = count
        return queue_of_shard(shard, queues)

    def send(self, envelope: Envelope, deadline: float, first: FirstAttempt | None = None) -> Steps[SendResult]:
        """Send a message; go on with it if its first attempt was made elsewhere. Raises NoNameServer, NoRoute,
        InvalidMessage and Unsupported: nothing was sent; SendError."""
        attempt = _Attempts(envelope)
        try:
            return (yield from self._send(envelope, deadline, attempt, first))
        except SendError:
            raise
        except ClientError:
            if not attempt.number:
                raise
            raise attempt.error() from None  # the message of an attempt may be stored, and the error has to say so

    def _send(
        self, envelope: Envelope, deadline: float, attempt: _Attempts, first: FirstAttempt | None
    ) -> Steps[SendResult]:
        most = 1 if envelope.queue is not None or envelope.shard is not None else 1 + self.retries
        failed: str | None = None
        if first is not None and isinstance(first[2], RemotingCommand) and first[2].code == ResponseCode.GO_AWAY:
            first = None  # it is made again over another connection, as other requests are
        while True:
            outcome: RemotingCommand | CallFailed | None
            if first is not None:
                queue, now, outcome = first
                broker, first = queue.broker_name, None
                attempt.begins(broker, self.directory.master(queue) or "its former address")
            else:
                queues = yield from self.directory.publish_queues(envelope.topic, deadline)
                now = self.clock.monotonic()
                queue = self._choose(envelope, queues, now, failed)
                broker, address = queue.broker_name, self._address(queue)
                if failed == broker and attempt.unreached:
                    yield Sleep(min(deadline, now + _PAUSES_S[min(attempt.unreached, len(_PAUSES_S)) - 1]))
                    now = self.clock.monotonic()
                others = any(one.broker_name != broker for one in queues) and attempt.number + 1 < most
                outcome = yield from self._too_old(envelope, address)
                attempt.begins(broker, address)
                if outcome is None:
                    request = self._request(envelope, queue)
                    outcome = yield Call(address, request, attempt_deadline(now, deadline, others))
            ended = self.clock.monotonic()
            if isinstance(outcome, CallFailed):
                self.faults.failed(broker, ended)
                attempt.failed(outcome)
                if outcome.kind == "closed" or attempt.number >= most or ended >= deadline:
                    raise attempt.error()
            elif outcome.code == ResponseCode.SUCCESS or outcome.code in UNCONFIRMED:
                self.faults.answered(broker, ended - now, ended)
                return _result(envelope, queue, outcome, attempt, self._accepts_unconfirmed)
            else:
                attempt.refused(outcome)
                if outcome.code == ResponseCode.TOPIC_NOT_EXIST:
                    self.directory.forget(envelope.topic)
                if outcome.code not in RETRIED or attempt.number >= most or ended >= deadline:
                    raise attempt.error()
            failed = broker

    def tell(self, envelope: Envelope, deadline: float) -> Steps[None]:
        """Send without an answer. Raises NoNameServer, NoRoute, Unsupported, and NotConnected if there is no
        connection."""
        queues = yield from self.directory.publish_queues(envelope.topic, deadline)
        queue = self._choose(envelope, queues, self.clock.monotonic(), None)
        attempt = _Attempts(envelope)
        address = self._address(queue)
        attempt.begins(queue.broker_name, address)
        outcome = yield from self._too_old(envelope, address)
        if outcome is None:
            outcome = yield Tell(address, self._request(envelope, queue), deadline)
        if isinstance(outcome, CallFailed):
            self.faults.failed(queue.broker_name, self.clock.monotonic())
            attempt.failed(outcome)
            raise attempt.error()

    def _address(self, queue: MessageQueue) -> str:
        address = self.directory.master(queue)
        if address is None:
            raise InvalidMessage(f"The queue {queue} is on a broker without a master in the route of its topic.")
        return address

    def _too_old(self, envelope: Envelope, address: str) -> Steps[CallFailed | None]:
        """Return None if the broker can take the message, or why that is not known. Raises Unsupported."""
        if not envelope.since:
            return None
        if address not in self.directory.versions:
            yield from self._beat(address)
        version = self.directory.versions.get(address)
        if version is None:
            return CallFailed("connect", "it did not say its version, which a time of delivery depends on", sent=False)
        if version < envelope.since:
            raise Unsupported(
                f"The broker at {address} is older than 5.0 and would deliver the message at once: delay_level is what "
                "it knows. The message is not stored."
            )
        return None

    def recall(self, group: str, sent: SendResult, handle: str, deadline: float) -> Steps[None]:
        """Take a delayed message back. Raises NoNameServer, NoRoute, BrokerAway, RequestTimeout, RequestRefused."""
        queue = sent.queue
        yield from self.directory.publish_queues(queue.topic, deadline)
        address = self.directory.master(queue)
        what = f"the recall of the message {sent.message_id}"
        if address is None:
            raise BrokerAway(f"broker {queue.broker_name} has no master in the route of {queue.topic}, for {what}.")
        who = f"broker {queue.broker_name} at {address}"
        answer = yield Call(address, requests.recall(group, queue, handle), deadline)
        if isinstance(answer, CallFailed):
            raise failure(answer, who, what, " The message may be recalled.")
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer, who, what)

    def _request(self, envelope: Envelope, queue: MessageQueue) -> RemotingCommand:
        return requests.send(
            envelope.group,
            queue,
            envelope.body,
            envelope.properties,
            envelope.sys_flag,
            self.clock.wall_ms(),
            envelope.code,
        )

    def _choose(
        self, envelope: Envelope, queues: tuple[MessageQueue, ...], now: float, failed: str | None
    ) -> MessageQueue:
        if envelope.queue is not None:
            return envelope.queue
        if envelope.shard is not None:
            return self.queue_of(envelope.shard, queues)
        return self.turn_of(envelope.topic).choose(queues, self.faults, now, failed)


def attempt_deadline(now: float, deadline: float, others: bool) -> float:
    """Return until when an attempt may last. others: True if another broker can be tried after it."""
    if not others:
        return deadline
    return min(deadline, now + max(_LEAST_ATTEMPT_S, (deadline - now) / 2))


class _Attempts:
    """The outcomes of the attempts of one send so far."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self.number = 0
        #: Number of attempts in a row in which no connection could be made.
        self.unreached = 0
        self._maybe_stored = False
        self._who = ""
        self._last: CallFailed | RemotingCommand | None = None

    @property
    def who(self) -> str:
        return self._who

    def begins(self, broker: str, address: str) -> None:
        self.number += 1
        self._who = f"broker {broker} at {address}"

    def failed(self, outcome: CallFailed) -> None:
        self._last = outcome
        self._maybe_stored |= outcome.sent
        self.unreached = 0 if outcome.sent else self.unreached + 1

    def refused(self, answer: RemotingCommand) -> None:
        self._last = answer
        self.unreached = 0

    def error(self) -> SendError:
        """Return the error of the last attempt."""
        last = self._last
        topic, message_id = self._envelope.topic, self._envelope.message_id
        tried = "1 attempt" if self.number == 1 else f"{self.number} attempts"
        if self._maybe_stored:
            fate = " The message may be stored: sending it again may store it twice."
        else:
            fate = " The message is not stored."
        facts = {"maybe_stored": self._maybe_stored, "attempts": self.number, "message_id": message_id}
        if isinstance(last, RemotingCommand):
            remark = last.remark or ""
            return Refused(
                f"{self._who} refused a message for {topic} with {code_text(last.code)}: {remark[:500]} ({tried})."
                f"{advice(last.code, remark)}{fate}",
                code=last.code,
                remark=remark,
                **facts,  # type: ignore[arg-type]
            )
        assert last is not None, "an error comes after an attempt"
        if last.kind == "timeout":
            reached = "did not answer" if last.sent else "could not be connected to"
            return SendTimeout(
                f"{self._who} {reached} in time, for a message for {topic} ({tried}).{fate}",
                **facts,  # type: ignore[arg-type]
            )
        if last.kind == "closed":
            return NotConnected(
                f"The client was closed before {self._who} answered.{fate}",
                **facts,  # type: ignore[arg-type]
            )
        what = f"{last.why}" if last.kind == "broken" else f"cannot be reached: {last.why}"
        return NotConnected(
            f"{self._who} {what} ({tried}, topic {topic}).{fate} Is the broker running, and does that address lead to "
            "it from here? A broker tells clients its address by `rocketbox serve --advertise`, Apache's by brokerIP1.",
            **facts,  # type: ignore[arg-type]
        )


def _result(
    envelope: Envelope, queue: MessageQueue, answer: RemotingCommand, attempt: _Attempts, accepts_unconfirmed: bool
) -> SendResult:
    fields = answer.ext_fields
    why = UNCONFIRMED.get(answer.code)
    try:
        result = SendResult(
            envelope.message_id,
            fields.get("msgId", ""),
            MessageQueue(envelope.topic, queue.broker_name, number(answer, "queueId", attempt.who)),
            number(answer, "queueOffset", attempt.who),
            fields.get("transactionId"),
            fields.get("recallHandle"),
            fields.get("MSG_REGION", "DefaultRegion"),
            fields.get("TRACE_ON") != "false",
            why if accepts_unconfirmed else None,
        )
    except BadAnswer as error:
        raise SendError(
            f"{error} The message may be stored.",
            maybe_stored=True,
            attempts=attempt.number,
            message_id=envelope.message_id,
        ) from None
    if why is not None and not accepts_unconfirmed:
        unconfirmed = StoredUnconfirmed(
            f"{attempt.who} stored the message, but {why} ({code_text(answer.code)}). Do not send it again, unless "
            "twice is better than perhaps lost.",
            maybe_stored=True,
            attempts=attempt.number,
            message_id=envelope.message_id,
            code=answer.code,
            remark=answer.remark or "",
        )
        unconfirmed.result = result
        raise unconfirmed
    return result
