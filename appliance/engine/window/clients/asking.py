"""Asking one connected client: its running info (307), and to consume a message now (309).

The answer is not trusted: it is read within bounds, in the caller's thread, and parts that cannot be read are left out.
Shapes: Java's fastjson with objects as keys, Go's encoding/json, C++'s JsonCpp.
Source: RocketMQ 5.3.3 `ConsumerRunningInfo`, `ProcessQueueInfo`, `ConsumeStatus`, `ConsumeMessageDirectlyResult`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from ... import fastjson
from ...broker.clients import ClientChannel
from ...broker.member_questions import ANSWER_TIMEOUT_S, MemberQuestions
from ...errors import Conflict, NotFound, Unavailable
from ...protocol.codes import RequestCode, ResponseCode, release_name
from ...protocol.command import RemotingCommand
from ...protocol.message_id import encode_host, encode_offset_id
from ...protocol.record import Record
from ..sentences import say
from ..snapshots import Subscription
from . import asking_snapshots as a

logger = logging.getLogger(__name__)

#: Largest answer that is read: a client with 1,000 queues sends about 400 KiB, its thread dump about 70 KiB more.
MOST_ANSWER_BYTES = 2 * 1024 * 1024
_MOST_VALUES = 200_000
#: Limits of what is shown: rows, characters of a text, characters of the thread dump.
MOST_ROWS = 5000
MOST_TEXT = 2000
MOST_STACK = 1024 * 1024
#: Time added to the time-out for the way of the answer to the caller's thread.
_ON_THE_WAY_S = 2.0
#: Results by number, as Go clients send them. Source: rocketmq-client-go v2 `internal/model.go`.
_GO_RESULTS = ("CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION", "CR_RETURN_NULL")


class Asking:
    """Any thread but remoting-io; waits in the caller's.

    record: returns (record, its bytes) for a reference to a message; raises InvalidInput, NotFound.
    """

    def __init__(self, questions: MemberQuestions, record: Callable[[str], tuple[Record, bytes]]) -> None:
        # Constant after construction.
        self._questions = questions
        self._record = record
        # Guarded by _lock: (group, client id) of the clients being asked. A thread dump pauses the client, so only one
        # question to a client is allowed at a time.
        self._lock = threading.Lock()
        self._asked: set[tuple[str, str]] = set()

    def running_info(self, group: str, client_id: str, *, stack: bool = False, by: str = "") -> a.RunningInfo:
        """Return a connected consumer's report about itself: queues, rates, settings; `stack`: also its thread dump.

        Asks the client and blocks up to 12 s. by: the user, for the log. NotFound (client: it is no connected member
        of the group), Conflict (it is being asked already), Unavailable (its version is too old, it does not answer
        within 10 s, or its answer cannot be read).
        """
        channel = self._member(group, client_id)
        fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "true" if stack else "false"}
        logger.info("admin: running info asked group=%s client=%s stack=%s by=%s", group, client_id, stack, by)
        begin = time.monotonic()
        answer = self._ask(channel, RequestCode.GET_CONSUMER_RUNNING_INFO, fields, b"")
        return running_info_of(group, channel, _document(client_id, answer), (time.monotonic() - begin) * 1000)

    def consumers_for(self, ref: str, most: int = 200) -> tuple[tuple[str, str, str], ...]:
        """Return (group, client id, address) of the connected consumers that can consume a message: those of groups
        that subscribe to its topic, and of the group that it came back to. Errors as `message`."""
        found = self._questions.candidates(self._record(ref)[0].topic)
        rows = [(group, channel.client_id, channel.conn.remote_host) for group, channel in found]
        return tuple(sorted(rows)[:most])

    def consume_directly(self, group: str, client_id: str, ref: str, *, by: str = "") -> a.DirectConsumption:
        """Have a connected consumer consume one message now, regardless of the group's offsets, which do not change.

        ref: as for `message`. The message may be consumed a second time, so have the user confirm it. by: the user, for
        the log. Errors as `running_info`, and NotFound (message), InvalidInput (ref). After Unavailable the message may
        have been consumed nevertheless.
        """
        channel = self._member(group, client_id)
        record, data = self._record(ref)
        offset_id = encode_offset_id(encode_host(*record.store_host), record.physical_offset)
        fields = self._questions.consume_fields(
            {"consumerGroup": group, "clientId": client_id, "msgId": offset_id, "topic": record.topic}
        )
        logger.info("admin: consume directly group=%s client=%s message=%s by=%s", group, client_id, offset_id, by)
        begin = time.monotonic()
        answer = self._ask(channel, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, data)
        found = _document(client_id, answer)
        return a.DirectConsumption(
            delivered=True,
            group=group,
            client_id=client_id,
            offset_id=offset_id,
            result=_result(found.get("consumeResult")),
            in_order=_truth(found.get("order")),
            auto_commit=_truth(found.get("autoCommit")),
            remark=_text(found.get("remark")),
            spent_ms=_integer(found.get("spentTimeMills")),
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def _member(self, group: str, client_id: str) -> ClientChannel:
        channel = self._questions.member(group, client_id)
        if channel is None:
            raise NotFound("client", client_id)
        if self._questions.is_too_old(channel):
            raise Unavailable(say("client_too_old", client=client_id, version=release_name(channel.version)))
        return channel

    def _ask(self, channel: ClientChannel, code: int, fields: dict[str, str], body: bytes) -> RemotingCommand:
        """Ask the client; Conflict while another question to it is under way."""
        key = (fields["consumerGroup"], channel.client_id)
        with self._lock:
            if key in self._asked:
                raise Conflict(say("client_being_asked", client=channel.client_id))
            self._asked.add(key)
        try:
            return self._answer(channel, code, fields, body)
        finally:
            with self._lock:
                self._asked.discard(key)

    def _answer(self, channel: ClientChannel, code: int, fields: dict[str, str], body: bytes) -> RemotingCommand:
        came: Future[RemotingCommand | None] = Future()
        self._questions.ask_soon(channel, code, fields, body, came.set_result)
        try:
            answer = came.result(ANSWER_TIMEOUT_S + _ON_THE_WAY_S)
        except FutureTimeout:  # the I/O thread has ended
            raise Unavailable(say("too_busy")) from None
        client = channel.client_id
        if answer is None:
            raise Unavailable(say("client_silent", client=client, seconds=round(ANSWER_TIMEOUT_S)))
        if answer.code != ResponseCode.SUCCESS:
            remark = (answer.remark or "")[:MOST_TEXT]
            raise Unavailable(say("client_refused", client=client, number=answer.code, reason=remark))
        return answer


def _document(client_id: str, answer: RemotingCommand) -> dict[str, Any]:
    """Return the answer's body as an object; Unavailable if it is too large or is no JSON object."""
    if len(answer.body) > MOST_ANSWER_BYTES:
        raise Unavailable(say("client_unreadable", client=client_id, reason=f"{len(answer.body)} bytes"))
    try:
        found = fastjson.loads(answer.body, _MOST_VALUES)
    except (ValueError, RecursionError) as error:
        raise Unavailable(say("client_unreadable", client=client_id, reason=str(error)[:200])) from None
    if not isinstance(found, dict):
        raise Unavailable(say("client_unreadable", client=client_id, reason="no object"))
    return found


def running_info_of(group: str, channel: ClientChannel, found: dict[str, Any], took_ms: float) -> a.RunningInfo:
    """Build a RunningInfo from the parts of a client's answer that can be read. PURE."""
    properties = _table(found.get("properties"))
    queues, bad_queues = _rows(_queues(_table(found.get("mqTable"))))
    rates, bad_rates = _rows(_rates(_table(found.get("statusTable"))))
    wanted = found.get("subscriptionSet")
    subscriptions, bad_subscriptions = _rows(_subscriptions(wanted if isinstance(wanted, list) else []))
    stack = found.get("jstack")
    shown = sorted((_text(name), _text(value)) for name, value in properties.items())[:MOST_ROWS]
    return a.RunningInfo(
        group=group,
        client_id=channel.client_id,
        address=channel.conn.remote_host,
        language=channel.language,
        version=release_name(channel.version),
        took_ms=took_ms,
        started_at_ms=_integer(properties.get("PROP_CONSUMER_START_TIMESTAMP")),
        properties=dict(shown),
        subscriptions=tuple(subscriptions),
        queues=tuple(sorted(queues, key=lambda queue: (queue.topic, queue.broker, queue.queue_id))),
        rates=tuple(sorted(rates, key=lambda row: row.topic)),
        stack=stack[:MOST_STACK] if isinstance(stack, str) and stack else None,
        left_out=bad_queues + bad_rates + bad_subscriptions + len(properties) - len(shown),
    )


def _rows(rows: Iterator[Any]) -> tuple[list[Any], int]:
    """Return (rows that could be read, at most MOST_ROWS; number of rows left out)."""
    found: list[Any] = []
    left_out = 0
    for row in rows:
        if row is None or len(found) >= MOST_ROWS:
            left_out += 1
        else:
            found.append(row)
    return found, left_out


def _queues(table: dict[str, Any]) -> Iterator[a.MemberQueue | None]:
    for key, info in table.items():
        try:
            queue = fastjson.loads(key, 64)
        except (ValueError, RecursionError):
            yield None
            continue
        queue_id = _integer(queue.get("queueId")) if isinstance(queue, dict) else None
        if queue_id is None or not isinstance(info, dict):
            yield None
            continue
        dropped = info.get("droped")  # Java's spelling
        yield a.MemberQueue(
            topic=_text(queue.get("topic")),
            broker=_text(queue.get("brokerName")),
            queue_id=queue_id,
            committed=_integer(info.get("commitOffset")),
            cached=_integer(info.get("cachedMsgCount")),
            cached_mib=_integer(info.get("cachedMsgSizeInMiB")),
            first_cached=_integer(info.get("cachedMsgMinOffset")),
            last_cached=_integer(info.get("cachedMsgMaxOffset")),
            locked=_truth(info.get("locked")),
            dropped=_truth(info.get("dropped") if dropped is None else dropped),
            last_lock_at_ms=_integer(info.get("lastLockTimestamp")),
            last_pull_at_ms=_integer(info.get("lastPullTimestamp")),
            last_consume_at_ms=_integer(info.get("lastConsumeTimestamp")),
        )


def _rates(table: dict[str, Any]) -> Iterator[a.MemberRates | None]:
    for topic, status in table.items():
        if not isinstance(status, dict):
            yield None
            continue
        yield a.MemberRates(
            topic=_text(topic),
            pull_ms=_number(status.get("pullRT")),
            pull_rate=_number(status.get("pullTPS")),
            consume_ms=_number(status.get("consumeRT")),
            consumed_rate=_number(status.get("consumeOKTPS")),
            failed_rate=_number(status.get("consumeFailedTPS")),
            failed=_integer(status.get("consumeFailedMsgs")),
        )


def _subscriptions(wanted: list[Any]) -> Iterator[Subscription | None]:
    for one in wanted:
        if not isinstance(one, dict):
            yield None
            continue
        kind = _text(one.get("expressionType")) or "TAG"
        yield Subscription(_text(one.get("topic")), _text(one.get("subString")), kind)


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)[:MOST_TEXT] if isinstance(value, str | int | float) else ""


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _integer(value: Any) -> int | None:
    """Return a 64-bit integer that the client sent as a number or a string; None for anything else."""
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal() and value.isascii():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(1 << 63) <= value < 1 << 63 else None


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _result(value: Any) -> str:
    number = _integer(value)
    if number is not None:
        return _GO_RESULTS[number] if 0 <= number < len(_GO_RESULTS) else ""
    return _text(value)[:64]
